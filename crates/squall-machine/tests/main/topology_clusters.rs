//! Clusters of every size on every machine: partitions, nesting, trees, and the default size.

#![cfg(not(miri))] // Files and processes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::trees::Tree;
use squall_machine::topology::{Topology, VirtualSpec};
use squall_machine::{ClusterSize, ClusterTree, Clusters, Machine, TreeError, Vp, VpSet};

/// Every tree of the collection and some virtual machines, unpacked once for all tests of this file.
fn machines() -> &'static [(String, Machine)] {
    static MACHINES: LazyLock<Vec<(String, Machine)>> = LazyLock::new(make_machines);
    &MACHINES
}

fn make_machines() -> Vec<(String, Machine)> {
    let read = crate::trees::all().into_iter().map(|name| {
        let machine = Tree::of(&name).machine();
        (name, machine)
    });
    let specs =
        ["threads:1", "nodes:2,caches:2,cores:4,threads:2", "nodes:3,cores:5", "nodes:4,caches:4,cores:4"];
    let made = specs.map(|spec| (spec.to_owned(), Machine::virtual_of(spec.parse().unwrap())));
    read.chain(made).collect()
}

fn sizes() -> impl Iterator<Item = ClusterSize> {
    ClusterSize::LEVELS.into_iter().chain([1, 2, 3, 4, 7, 64, u32::MAX].map(ClusterSize::fixed))
}

fn virtual_machine(spec: &str) -> Machine {
    Machine::virtual_of(spec.parse::<VirtualSpec>().unwrap())
}

#[test]
fn hu_01_every_vp_is_in_exactly_one_cluster_of_each_size() {
    for (name, machine) in machines() {
        for size in sizes() {
            let clusters = machine.clusters(size);
            let mut seen = VpSet::new();
            let mut lowest = None;
            for cluster in clusters.iter() {
                let members = clusters.members(cluster);
                assert!(!members.is_empty() && members.is_sorted(), "{name}, {size}");
                assert!(lowest < Some(members[0]), "{name}, {size}: numbered by their lowest VPs");
                lowest = Some(members[0]);
                for vp in members {
                    assert!(seen.insert(*vp), "{name}, {size}: VP {} twice", vp.index());
                    assert_eq!(clusters.cluster_of(*vp), cluster, "{name}, {size}");
                    assert_eq!(clusters.get(*vp), Some(cluster), "{name}, {size}");
                }
            }
            assert_eq!(seen, *machine.vps(), "{name}, {size}");
        }
    }
}

#[test]
fn co_09_fixed_cluster_size_is_floor_p_over_n() {
    for (name, machine) in machines() {
        for n in [1, 2, 3, 4, 8, 16, 100] {
            let clusters = machine.clusters(ClusterSize::fixed(n));
            let mut group_of = BTreeMap::new();
            for vp in machine.vps() {
                let group = vp.index() / n as usize;
                let cluster = clusters.cluster_of(vp);
                assert_eq!(*group_of.entry(group).or_insert(cluster), cluster, "{name}, fixed:{n}");
                if machine.vps().len() == machine.vp_limit() {
                    assert_eq!(cluster.index(), group, "{name}, fixed:{n}: without gaps the number is p / n");
                }
            }
            assert_eq!(
                clusters.len(),
                group_of.len(),
                "{name}, fixed:{n}: different groups, different clusters"
            );
        }
    }
}

#[test]
fn co_09_sizes_one_and_all_are_the_ends() {
    let machine = virtual_machine("nodes:2,cores:4");
    let one = machine.clusters(ClusterSize::fixed(1));
    assert_eq!(one.len(), machine.clusters(ClusterSize::Cpu).len());
    let all = machine.clusters(ClusterSize::fixed(u32::MAX));
    assert_eq!((all.len(), all.size()), (1, ClusterSize::fixed(8)), "cut to the number of VPs");
    assert!(std::ptr::eq(all, machine.clusters(ClusterSize::fixed(8))));
}

#[test]
fn hu_03_cluster_size_is_a_parameter() {
    // Hurricane's own sizes, on as many processors as it had.
    let machine = virtual_machine("nodes:4,cores:4");
    let counts = [1, 2, 4, 8, 16].map(|n| machine.clusters(ClusterSize::fixed(n)).len());
    assert_eq!(counts, [16, 8, 4, 2, 1]);
}

#[test]
fn hu_24_each_resource_class_has_its_own_size() {
    let machine = virtual_machine("nodes:2,caches:2,cores:4,threads:2");
    let (counters, tables) = (machine.clusters(ClusterSize::Core), machine.clusters(ClusterSize::Node));
    let vp = Vp::new(17);
    assert_eq!((counters.cluster_of(vp).index(), tables.cluster_of(vp).index()), (8, 1));
    assert!(std::ptr::eq(counters, machine.clusters(ClusterSize::Core)), "shared by all users of that size");
}

#[test]
fn x_30_the_default_size_is_set_for_the_system_and_chosen_per_object() {
    let machine = virtual_machine("nodes:2,cores:4,threads:2");
    assert_eq!(machine.default_cluster_size(), ClusterSize::Core);
    let before = machine.clusters(machine.default_cluster_size());
    for size in sizes() {
        machine.set_default_cluster_size(size);
        assert_eq!(machine.default_cluster_size(), size);
    }
    assert_eq!(before.size(), ClusterSize::Core, "existing clusters keep their size");
}

#[test]
fn pr_24_sizes_are_written_and_read() {
    for size in sizes() {
        assert_eq!(size.to_string().parse(), Ok(size));
    }
    for bad in
        ["", "Core", "fixed", "fixed:", "fixed:0", "fixed:-1", "fixed:+4", "fixed:4294967296", "4", "socket"]
    {
        let error = bad.parse::<ClusterSize>().expect_err(bad).to_string();
        assert!(error.contains("cpu, core, cache, node, machine, or fixed:4"), "{error}");
    }
    assert_eq!(format!("{:>8}|", ClusterSize::Core), "    core|");
}

#[test]
fn pr_02_one_partition_per_size_is_made_for_all_threads() {
    let machine = virtual_machine("cores:64");
    let addresses: Vec<[usize; 2]> = std::thread::scope(|scope| {
        let ask = || {
            [ClusterSize::Cache, ClusterSize::fixed(5)]
                .map(|size| std::ptr::from_ref(machine.clusters(size)).addr())
        };
        let askers: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        askers.into_iter().map(|asker| asker.join().unwrap()).collect()
    });
    assert!(addresses.iter().all(|a| *a == addresses[0]));
}

#[test]
fn hu_23_superclusters_nest() {
    for (name, machine) in machines() {
        let tree = machine.tree(&ClusterSize::LEVELS).unwrap_or_else(|e| panic!("{name}: {e}"));
        check_tree(name, machine, &tree);
        for leaving_out in 0..5 {
            let mut sizes = ClusterSize::LEVELS.to_vec();
            sizes.remove(leaving_out);
            let tree = machine.tree(&sizes).unwrap_or_else(|e| panic!("{name}: {e}"));
            check_tree(name, machine, &tree);
        }
    }
}

fn check_tree(name: &str, machine: &Machine, tree: &ClusterTree<'_>) {
    let depths = tree.levels().len();
    assert_eq!(tree.len(), tree.levels().iter().map(|level| level.len()).sum::<usize>(), "{name}");
    for node in tree.down() {
        assert_eq!(tree.parent(node).is_none(), tree.depth(node) == 0, "{name}");
        assert_eq!(tree.is_leaf(node), tree.children(node).len() == 0, "{name}");
        let below: Vec<Vp> = tree.children(node).flat_map(|child| tree.members(child)).copied().collect();
        if !tree.is_leaf(node) {
            let members: VpSet = tree.members(node).iter().copied().collect();
            assert_eq!(below.len(), members.len(), "{name}: no VP under two children");
            assert_eq!(below.into_iter().collect::<VpSet>(), members, "{name}");
        }
        for child in tree.children(node) {
            assert_eq!(tree.parent(child), Some(node), "{name}");
            assert_eq!(tree.depth(child), tree.depth(node) + 1, "{name}");
            assert!(child > node, "{name}: parents first on the way down");
        }
    }
    for vp in machine.vps() {
        let path: Vec<_> = tree.path(vp).collect();
        assert_eq!(path.len(), depths, "{name}");
        assert_eq!(path[0], tree.leaf_of(vp), "{name}");
        assert!(tree.roots().any(|root| path.last() == Some(&root)), "{name}");
        assert!(path.iter().all(|node| tree.members(*node).contains(&vp)), "{name}");
    }
}

#[test]
fn hu_23_a_broadcast_reaches_every_leaf_once_and_a_gather_counts_all() {
    for (name, machine) in machines() {
        let tree = machine.tree(&ClusterSize::LEVELS).unwrap();
        let mut told = vec![0; tree.len()];
        tree.roots().for_each(|root| told[root.index()] += 1);
        for node in tree.down() {
            assert_eq!(told[node.index()], 1, "{name}: a node must receive before it sends");
            tree.children(node).for_each(|child| told[child.index()] += 1);
        }
        let mut sums = vec![0; tree.len()];
        for node in tree.up() {
            let below: usize = tree.children(node).map(|child| sums[child.index()]).sum();
            sums[node.index()] = below + usize::from(tree.is_leaf(node));
        }
        let all: usize = tree.roots().map(|root| sums[root.index()]).sum();
        assert_eq!(all, machine.vps().len(), "{name}");
    }
}

#[test]
fn pr_12_fan_out_is_by_level_and_not_by_machine() {
    let machine = virtual_machine("nodes:8,caches:8,cores:8,threads:8");
    let tree = machine.tree(&ClusterSize::LEVELS).unwrap();
    assert_eq!(
        tree.down().map(|node| tree.children(node).len()).max(),
        Some(8),
        "4096 VPs, 8 messages at most each"
    );
}

#[test]
fn fixed_sizes_nest_where_they_divide() {
    let machine = virtual_machine("nodes:4,cores:4");
    let sizes = [1, 2, 4, 8].map(ClusterSize::fixed);
    let tree = machine.tree(&sizes).unwrap();
    assert_eq!(tree.roots().len(), 2);
    check_tree("fixed", &machine, &tree);
    let mixed = [ClusterSize::fixed(2), ClusterSize::Node, ClusterSize::Machine];
    check_tree("mixed", &machine, &machine.tree(&mixed).unwrap());
}

#[test]
fn sizes_that_do_not_nest_are_rejected() {
    let machine = virtual_machine("nodes:4,cores:4");
    assert_eq!(machine.tree(&[]).unwrap_err(), TreeError::NoSizes);
    let error = machine.tree(&[ClusterSize::Cpu, ClusterSize::fixed(6), ClusterSize::Node]).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("cluster 0 of size fixed:6 (VPs 0-5) lies across clusters 0 and 1 of size node"),
        "{text}"
    );
    let error = machine.tree(&[ClusterSize::Node, ClusterSize::Core]).unwrap_err();
    assert!(matches!(error, TreeError::Straddles { inner: ClusterSize::Node, .. }), "{error}");

    // If threads are numbered last, VPs with consecutive numbers are not neighbours.
    let xeon = Tree::of("xeon-two-sockets").machine();
    let error = xeon.tree(&[ClusterSize::Core, ClusterSize::fixed(28)]).unwrap_err();
    assert!(error.to_string().contains("(VPs 0,56)"), "{error}");
}

#[test]
fn levels_of_different_machines_are_rejected() {
    let of = |spec: &str, size| Topology::virtual_of(spec.parse().unwrap()).clusters(size);
    let (small, large) = (of("cores:4", ClusterSize::Cpu), of("cores:8", ClusterSize::Machine));
    let both: [&Clusters; 2] = [&small, &large];
    assert_eq!(ClusterTree::new(both).unwrap_err(), TreeError::NotOneMachine { vp: Vp::new(4) });
    let (large, small) = (of("cores:8", ClusterSize::Cpu), of("cores:4", ClusterSize::Machine));
    let error = ClusterTree::new([&large, &small]).unwrap_err();
    assert_eq!(error, TreeError::NotOneMachine { vp: Vp::new(4) });
    assert!(error.to_string().contains("no VP 4"), "{error}");
}

#[test]
#[should_panic(expected = "a cluster size of zero VPs")]
fn a_cluster_of_zero_vps_is_rejected() {
    ClusterSize::fixed(0);
}

#[test]
fn machines_and_clusters_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Machine>();
    shared::<Clusters>();
    shared::<ClusterTree<'_>>();
}
