//! Topologies of very different machines, read from trees of files.

#![cfg(not(miri))] // Files and processes.

use crate::trees::Tree;
use squall_machine::topology::{Source, Topology};
use squall_machine::{ClusterSize, Vp};

/// Lists the clusters of a size as lists of VPs.
fn lists(topology: &Topology, size: ClusterSize) -> Vec<String> {
    let clusters = topology.clusters(size);
    let list =
        |cluster| clusters.members(cluster).iter().copied().collect::<squall_machine::VpSet>().to_string();
    clusters.iter().map(list).collect()
}

fn counts(topology: &Topology) -> [usize; 5] {
    ClusterSize::LEVELS.map(|size| topology.clusters(size).len())
}

/// Reads a tree that is complete, so that the reader assumes no value.
fn clean(name: &str) -> Topology {
    let topology = Tree::of(name).topology();
    assert_eq!(topology.warnings(), [""; 0], "{name}");
    assert_eq!(topology.source(), Source::Sysfs, "{name}");
    assert!(topology.unknown_vps().is_empty(), "{name}");
    topology
}

#[test]
fn laptop_with_three_kinds_of_core() {
    let laptop = clean("laptop-hybrid");
    assert_eq!(counts(&laptop), [22, 16, 2, 1, 1]);
    assert_eq!(lists(&laptop, ClusterSize::Cache), ["0-19", "20-21"], "each by the highest cache it has");
    assert_eq!(lists(&laptop, ClusterSize::Core)[5..8], ["10-11", "12", "13"]);
    let kinds: Vec<String> = laptop.kinds().iter().map(ToString::to_string).collect();
    assert_eq!(kinds, ["0-11", "12-19", "20-21"]);
}

#[test]
fn two_sockets_with_threads_numbered_last() {
    let xeon = clean("xeon-two-sockets");
    assert_eq!(counts(&xeon), [112, 56, 2, 2, 1]);
    assert_eq!(lists(&xeon, ClusterSize::Core)[28], "28,84");
    assert_eq!(lists(&xeon, ClusterSize::Cache), ["0-27,56-83", "28-55,84-111"]);
    assert_eq!(lists(&xeon, ClusterSize::Node), lists(&xeon, ClusterSize::Cache));
    assert_eq!(xeon.node_number(Vp::new(84)), Some(1));
    assert_eq!(xeon.kinds(), std::slice::from_ref(xeon.possible()));
}

#[test]
fn several_caches_in_one_node() {
    let epyc = clean("epyc-one-node");
    assert_eq!(counts(&epyc), [128, 64, 16, 1, 1]);
    assert_eq!(lists(&epyc, ClusterSize::Cache)[15], "60-63,124-127");
}

#[test]
fn one_package_of_four_nodes() {
    let epyc = clean("epyc-four-nodes");
    assert_eq!(counts(&epyc), [128, 64, 8, 4, 1]);
    assert_eq!(lists(&epyc, ClusterSize::Node)[3], "48-63,112-127");
}

#[test]
fn eighty_cores_without_threads_or_shared_cache() {
    let altra = clean("altra-80");
    assert_eq!(counts(&altra), [80, 80, 80, 1, 1]);
}

#[test]
fn nodes_without_processors_form_no_cluster() {
    let machine = clean("memory-nodes");
    assert_eq!(counts(&machine), [16, 16, 2, 2, 1]);
    assert_eq!(machine.memory_nodes(), [2, 3]);
}

#[test]
fn a_single_node_with_an_empty_list_has_all_processors() {
    let tree = Tree::of("small-vm");
    tree.put("sys/devices/system/node/node0/cpulist", "");
    tree.remove("sys/devices/system/cpu/cpu0/node0");
    tree.remove("sys/devices/system/cpu/cpu1/node0");
    let topology = tree.topology();
    assert_eq!(lists(&topology, ClusterSize::Node), ["0-1"]);
    assert_eq!((topology.memory_nodes(), topology.node_number(Vp::new(1))), ([0; 0].as_slice(), Some(0)));
}

#[test]
fn a_cache_over_two_nodes_is_cut() {
    let split = Tree::of("cache-over-nodes").topology();
    assert_eq!(lists(&split, ClusterSize::Cache), ["0-3,8-11", "4-7,12-15"]);
    assert!(split.warnings()[0].contains("spans several nodes"), "{:?}", split.warnings());
}

#[test]
fn a_core_over_two_caches_is_cut() {
    let tree = Tree::of("small-vm");
    for cpu in 0..2 {
        tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), "0-1");
        tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list"), &cpu.to_string());
    }
    let topology = tree.topology();
    assert_eq!(lists(&topology, ClusterSize::Core), ["0", "1"]);
    assert!(topology.warnings()[0].contains("core spans"), "{:?}", topology.warnings());
}

#[test]
fn ids_of_processors_and_nodes_with_gaps() {
    let machine = clean("gaps");
    assert_eq!(counts(&machine), [8, 2, 2, 2, 1]);
    assert_eq!(machine.vp_limit(), 12);
    assert_eq!(machine.node_number(Vp::new(8)), Some(8));
    let nodes = machine.clusters(ClusterSize::Node);
    assert_eq!(nodes.cluster_of(Vp::new(11)).index(), 1, "clusters are dense where ids are not");
    for missing in [4, 7, 12, 4000] {
        assert_eq!(nodes.get(Vp::new(missing)), None);
    }
    assert_eq!(machine.memory_nodes(), [0; 0]);
}

#[test]
#[should_panic(expected = "this machine has no VP 5")]
fn a_gap_is_in_no_cluster() {
    clean("gaps").clusters(ClusterSize::Core).cluster_of(Vp::new(5));
}

#[test]
fn offline_processors_stand_alone_in_their_node() {
    let machine = Tree::of("some-offline").topology();
    assert_eq!(machine.unknown_vps().to_string(), "2,5-6,8-11");
    assert_eq!(lists(&machine, ClusterSize::Core), ["0,4", "1", "2", "3,7", "5", "6", "8", "9", "10", "11"]);
    assert_eq!(lists(&machine, ClusterSize::Cache), ["0-1,4", "2", "3,7", "5", "6", "8", "9", "10", "11"]);
    // 2, 5 and 6 by their own directories; 8-11 have no directory and go to the first node.
    assert_eq!(lists(&machine, ClusterSize::Node), ["0-1,4-5,8-11", "2-3,6-7"]);
    assert!(machine.warnings()[0].contains("VPs 2,5-6,8-11 have been offline"), "{:?}", machine.warnings());
}

#[test]
fn learning_places_online_vps_and_separates_no_core() {
    let before = Tree::of("some-offline").topology();
    let now = Tree::of("then-online").topology();
    let learnt = before.place_online(&now).expect("2, 5 and 6 can be placed");
    assert_eq!(learnt.unknown_vps().to_string(), "8-11");
    assert_eq!(
        lists(&learnt, ClusterSize::Core),
        ["0,4", "1,5", "2,6", "3,7", "8", "9", "10", "11"],
        "3 is offline now and keeps its place"
    );
    assert_eq!(lists(&learnt, ClusterSize::Cache)[..2], ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(lists(&learnt, ClusterSize::Node), ["0-1,4-5,8-11", "2-3,6-7"]);
    assert!(learnt.place_online(&now).is_none(), "a second learning places no VP");
    let other = Tree::of("big-little").topology();
    assert!(before.place_online(&other).is_none(), "another machine must not place VPs");
}

#[test]
fn learning_moves_a_vp_to_the_node_it_turns_up_in() {
    let before = Tree::of("some-offline").topology();
    let nodes = before.clusters(ClusterSize::Node);
    assert_eq!(nodes.cluster_of(Vp::new(8)), nodes.cluster_of(Vp::new(0)), "not plugged in, so in the first");
    let tree = Tree::of("then-online");
    tree.put("sys/devices/system/cpu/cpu8/topology/core_cpus_list", "8");
    tree.put("sys/devices/system/node/node1/cpulist", "2,6-8");
    let learnt = before.place_online(&tree.topology()).unwrap();
    assert_eq!(lists(&learnt, ClusterSize::Node), ["0-1,4-5,9-11", "2-3,6-8"]);
    assert_eq!(learnt.node_number(Vp::new(8)), Some(1));
}

#[test]
fn a_cache_of_instructions_makes_no_neighbours() {
    let tree = Tree::of("small-vm");
    for cpu in 0..2 {
        tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/type"), "Instruction");
    }
    assert_eq!(lists(&tree.topology(), ClusterSize::Cache), ["0", "1"], "the data cache below it counts");
}

#[test]
fn big_and_little_without_nodes() {
    let board = clean("big-little");
    assert_eq!(counts(&board), [8, 8, 1, 1, 1]);
    let kinds: Vec<String> = board.kinds().iter().map(ToString::to_string).collect();
    assert_eq!(kinds, ["4-7", "0-3"], "the fast ones first");
    assert_eq!(board.node_number(Vp::new(0)), None);
}

#[test]
fn virtual_machine_of_two() {
    assert_eq!(counts(&clean("small-vm")), [2, 2, 1, 1, 1]);
}

#[test]
fn packages_replace_unreported_caches() {
    let vm = Tree::of("vm-no-caches").topology();
    assert_eq!(lists(&vm, ClusterSize::Cache), ["0-1", "2-3", "4", "5", "6", "7"]);
    assert_eq!(vm.unknown_vps().to_string(), "4-7");
    assert!(vm.warnings().iter().any(|w| w.contains("no caches")), "{:?}", vm.warnings());
}

#[test]
fn a_processor_in_several_nodes_is_in_the_first() {
    let fake = Tree::of("fake-nodes").topology();
    assert_eq!(counts(&fake), [4, 4, 1, 1, 1]);
    assert_eq!(fake.memory_nodes(), [1]);
    assert!(fake.warnings()[0].contains("VPs 0-3 are in several nodes"), "{:?}", fake.warnings());
}

#[test]
fn a_bare_list_of_processors() {
    let sandbox = Tree::of("sandbox").topology();
    assert_eq!(counts(&sandbox), [4, 4, 1, 1, 1]);
    assert!(sandbox.unknown_vps().is_empty(), "without any placed VP, no VP counts as unplaced");
    assert_eq!(sandbox.warnings().len(), 2, "{:?}", sandbox.warnings());
}

#[test]
fn without_sysfs_the_mask_bounds_the_vps() {
    let topology = Tree::of("no-sys").topology();
    assert_eq!(topology.source(), Source::MaskWidth);
    assert!(!topology.is_virtual());
    assert_eq!(topology.possible().to_string(), "0-7", "not the mask itself, which can be widened");
    assert_eq!(counts(&topology), [8, 8, 1, 1, 1]);
    assert!(topology.warnings()[0].contains("up to three VPs"), "{:?}", topology.warnings());
}

#[test]
fn without_any_file_the_vps_are_virtual() {
    let topology = Tree::empty().topology();
    assert_eq!(topology.source(), Source::Count);
    assert!(topology.is_virtual(), "the kernel's numbers cannot be bounded, so they must not be used");
    let count = std::thread::available_parallelism().unwrap().get();
    assert_eq!(topology.possible().len(), count);
    assert_eq!(topology.clusters(ClusterSize::Node).len(), 1);
}

#[test]
fn a_malformed_file_is_an_error_that_names_it() {
    let cases = [
        ("sys/devices/system/cpu/possible", "0-z", "`0-z`"),
        ("sys/devices/system/cpu/possible", "", "names no processor"),
        ("sys/devices/system/cpu/possible", "0-70000", "largest processor number"),
        ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1;2", "`1;2`"),
        ("sys/devices/system/cpu/cpu0/cache/index3/level", "three", "holds `three`"),
        ("sys/devices/system/cpu/cpu0/cache/index3/type", "Trace", "Data, Instruction or Unified"),
        ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-\u{fffd}", "0-3,8,10-11"),
        ("sys/devices/system/node/node0/cpulist", "0-1-2", "`0-1-2`"),
        ("sys/devices/system/cpu/cpu1/cpu_capacity", "-1", "holds `-1`"),
        ("sys/devices/cpu_atom/cpus", "?", "`?`"),
    ];
    for (path, content, reason) in cases {
        let tree = Tree::of("small-vm");
        tree.put(path, content);
        let error = tree.reader().topology().expect_err(path);
        assert!(error.path().ends_with(path), "{error}");
        assert!(error.to_string().contains(path) && error.to_string().contains(reason), "{error}");

        let flat = tree.reader().topology_or_flat();
        assert!(flat.warnings()[0].contains(path), "{:?}", flat.warnings());
        assert!(!flat.is_virtual(), "the VPs are still known: {path}");
        assert!(flat.possible().contains(Vp::new(1)), "{path}");
        assert_eq!(flat.clusters(ClusterSize::Cache).len(), 1, "{path}");
    }
}

#[test]
fn malformed_throughout_is_virtual_with_the_reason() {
    let tree = Tree::of("small-vm");
    tree.put("sys/devices/system/cpu/possible", "many");
    tree.put("proc/self/status", "Cpus_allowed:\tzz");
    let topology = tree.reader().topology_or_flat();
    assert_eq!(topology.source(), Source::Count);
    assert!(topology.warnings()[0].contains("cpu/possible holds `many`"), "{:?}", topology.warnings());
}

#[test]
fn a_list_that_empties_while_it_is_read_leaves_the_vp_unplaced() {
    let tree = Tree::of("small-vm");
    tree.put("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "");
    for cpu in 0..2 {
        tree.put(&format!("sys/devices/system/cpu/cpu{cpu}/cache/index3/shared_cpu_list"), "0");
    }
    tree.remove("sys/devices/system/cpu/cpu1/cache");
    let topology = tree.topology();
    assert_eq!(topology.unknown_vps().to_string(), "1");
    assert_eq!(lists(&topology, ClusterSize::Cache), ["0", "1"]);
}

#[test]
fn older_names_of_lists_are_read_where_the_newer_are_absent() {
    let tree = Tree::of("xeon-two-sockets");
    for cpu in 0..112 {
        let topology = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        tree.remove(&format!("{topology}/core_cpus_list"));
        tree.remove(&format!("{topology}/package_cpus_list"));
        tree.remove(&format!("sys/devices/system/cpu/cpu{cpu}/cache"));
    }
    tree.remove("sys/devices/system/node");
    let topology = tree.topology();
    assert_eq!(counts(&topology), [112, 56, 2, 1, 1]);
    assert_eq!(lists(&topology, ClusterSize::Cache)[1], "28-55,84-111");
}

#[test]
fn an_overlong_file_is_rejected() {
    let tree = Tree::of("small-vm");
    tree.put("sys/devices/system/cpu/possible", &" ".repeat(5 << 20));
    let error = tree.reader().topology().unwrap_err().to_string();
    assert!(error.contains("cpu/possible is longer than"), "{error}");
}

#[test]
fn the_machine_we_run_on_is_read_without_error() {
    let topology = squall_machine::topology::Reader::system().topology().unwrap();
    let online = squall_machine::Machine::read(squall_machine::topology::Reader::system()).online();
    assert!(online.is_subset(topology.possible()) && !online.is_empty());
}
