//! Sets of VPs and their text form, and the text form of virtual topologies.

use std::collections::BTreeSet;

use squall_machine::topology::{Topology, VirtualSpec};
use squall_machine::{ClusterSize, Vp, VpSet};

/// A small generator (xorshift); its seed replays a failure.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Builds a random set with runs and holes, as a set of the standard library.
fn random_members(random: &mut Random) -> BTreeSet<u32> {
    let mut members = BTreeSet::new();
    for _ in 0..random.below(8) {
        let from = random.below(300) as u32;
        let length = [1, 2, 63, 64, 65][random.below(5) as usize];
        members.extend(from..from + length);
        members.remove(&(random.below(300) as u32));
    }
    members
}

fn set_of(members: &BTreeSet<u32>) -> VpSet {
    members.iter().map(|&n| Vp::new(n)).collect()
}

#[test]
fn a_set_survives_its_text_form() {
    for seed in 1..500 {
        let members = random_members(&mut Random(seed));
        let set = set_of(&members);
        assert_eq!(set.to_string().parse::<VpSet>().unwrap(), set, "seed {seed}");
        assert_eq!(set.iter().map(|vp| vp.index() as u32).collect::<BTreeSet<_>>(), members, "seed {seed}");
    }
}

#[test]
fn set_operations_agree_with_those_of_std() {
    for seed in 1..500 {
        let mut random = Random(seed);
        let (a, b) = (random_members(&mut random), random_members(&mut random));
        let (x, y) = (set_of(&a), set_of(&b));
        assert_eq!(x.union(&y), set_of(&(&a | &b)), "seed {seed}");
        assert_eq!(x.intersection(&y), set_of(&(&a & &b)), "seed {seed}");
        assert_eq!(x.difference(&y), set_of(&(&a - &b)), "seed {seed}");
        assert_eq!(x.intersects(&y), !a.is_disjoint(&b), "seed {seed}");
        assert_eq!(x.is_subset(&y), a.is_subset(&b), "seed {seed}");
        assert!(x.intersection(&y).is_subset(&x), "seed {seed}");
        assert_eq!((x.len(), x.is_empty()), (a.len(), a.is_empty()), "seed {seed}");
        assert_eq!(x.first().map(Vp::index), a.first().map(|&n| n as usize), "seed {seed}");
        assert_eq!(x.last().map(Vp::index), a.last().map(|&n| n as usize), "seed {seed}");
    }
}

#[test]
fn insert_and_remove_report_membership() {
    let mut set = VpSet::new();
    assert!(set.insert(Vp::new(200)));
    assert!(!set.insert(Vp::new(200)));
    assert!(set.contains(Vp::new(200)) && !set.contains(Vp::new(199)) && !set.contains(Vp::new(u32::MAX)));
    assert!(!set.remove(Vp::new(201)));
    assert!(set.remove(Vp::new(200)));
    assert_eq!(set, VpSet::new(), "a set that was emptied equals one that was never filled");
}

#[test]
fn kernel_lists_are_read_and_written() {
    let cases = [
        ("", "", 0),
        ("\n", "", 0),
        ("0\n", "0", 1),
        ("0-3,8,10-11", "0-3,8,10-11", 7),
        (" 5 \n", "5", 1),
        ("8,0-3,2-4", "0-4,8", 6),
        ("0,1,2,63,64,65", "0-2,63-65", 6),
        ("65535", "65535", 1),
    ];
    for (text, normal, count) in cases {
        let set: VpSet = text.parse().unwrap_or_else(|e| panic!("{text:?}: {e}"));
        assert_eq!((set.to_string().as_str(), set.len()), (normal, count), "{text:?}");
    }
}

#[test]
fn a_malformed_list_is_rejected_with_the_item() {
    let bad = [
        "x",
        "0-",
        "-3",
        "0--3",
        "3-1",
        ",",
        "0,,1",
        "0,",
        "0 1",
        "0, 1",
        "+1",
        "0-3:2/4",
        "0x3",
        "1.5",
        "65536",
        "0-99999999999999999999",
        "all",
    ];
    for text in bad {
        let error = text.parse::<VpSet>().expect_err(text).to_string();
        assert!(error.contains("0-3,8,10-11"), "{text}: {error}");
    }
    let error = "0-3,9-7,11".parse::<VpSet>().unwrap_err().to_string();
    assert!(error.contains("`9-7` runs backwards"), "{error}");
}

#[test]
#[should_panic(expected = "beyond VpSet::LIMIT")]
fn a_vp_beyond_the_limit_is_in_no_set() {
    VpSet::new().insert(Vp::new(VpSet::LIMIT as u32));
}

#[test]
fn a_spec_takes_its_keys_in_any_order() {
    let spec = |text: &str| text.parse::<VirtualSpec>().unwrap_or_else(|e| panic!("{e}"));
    let full = spec("nodes:2,caches:2,cores:4,threads:2");
    assert_eq!(full.vps(), 32);
    assert_eq!(full, spec("threads:2,cores:4,caches:2,nodes:2"));
    assert_eq!(full, VirtualSpec::new(2, 2, 4, 2).unwrap());
    assert_eq!(spec("cores:3").to_string(), "nodes:1,caches:1,cores:3,threads:1");
    assert_eq!(spec(&full.to_string()), full);
    assert_eq!(spec("nodes:4096").vps(), VirtualSpec::VPS_MAX);
    assert_eq!(spec("nodes:64,threads:64").vps(), VirtualSpec::VPS_MAX);
}

#[test]
fn a_malformed_spec_is_rejected_with_a_correct_one() {
    let bad = [
        ("", "not of the form key:count"),
        ("nodes", "not of the form key:count"),
        ("nodes=2", "not of the form key:count"),
        ("nodes:2,", "not of the form key:count"),
        ("nodes:2;cores:2", "not a number"),
        ("nodes:0", "at least 1"),
        ("threads:2,cores:0", "`cores:0`"),
        ("nodes:", "not a number"),
        ("nodes:-1", "not a number"),
        ("nodes:+1", "not a number"),
        ("nodes: 2", "not a number"),
        ("nodes:2:2", "not a number"),
        ("nodes:two", "not a number"),
        ("sockets:2", "`sockets:2` has an unknown key"),
        ("Nodes:2", "unknown key"),
        (" nodes:2", "unknown key"),
        ("nodes:2,nodes:2", "repeats its key"),
        ("nodes:4097", "too many VPs"),
        ("nodes:64,threads:65", "too many VPs"),
        ("nodes:65536,caches:65536", "too many VPs"),
        ("nodes:4294967296", "too large"),
        ("nodes:99999999999999999999999", "too large"),
    ];
    for (text, reason) in bad {
        let error = text.parse::<VirtualSpec>().expect_err(text).to_string();
        assert!(error.contains(reason), "{text:?}: {error}");
        assert!(
            error.contains("nodes:2,caches:2,cores:4,threads:2") && error.contains("4096"),
            "{text:?}: {error}"
        );
    }
    assert!(VirtualSpec::new(1, 1, 0, 1).is_err());
}

#[test]
fn virtual_vps_are_dense_and_threads_of_a_core_adjacent() {
    let topology = Topology::virtual_of("nodes:2,caches:2,cores:4,threads:2".parse().unwrap());
    assert!(topology.is_virtual());
    assert_eq!(topology.possible().to_string(), "0-31");
    assert_eq!(topology.vp_limit(), 32);
    let expected =
        [(ClusterSize::Cpu, 1), (ClusterSize::Core, 2), (ClusterSize::Cache, 8), (ClusterSize::Node, 16)];
    for (size, stride) in expected {
        let clusters = topology.clusters(size);
        for vp in topology.possible() {
            assert_eq!(clusters.cluster_of(vp).index(), vp.index() / stride, "{size} of VP {}", vp.index());
        }
    }
    assert_eq!(topology.node_number(Vp::new(0)), None, "a virtual node has no number of the kernel's");
}
