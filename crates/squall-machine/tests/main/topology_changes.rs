//! Changes while a program runs: affinity, cpusets, limits of processor time, processors that come and go.

#![cfg(not(miri))] // Files and processes.

use crate::trees::Tree;
use squall_machine::topology::{Quota, VirtualSpec};
use squall_machine::{ClusterSize, Machine, Vp};

#[test]
fn control_groups_of_version_2_in_a_namespace() {
    let allowance = Tree::of("container-v2").machine().allowance();
    assert_eq!(allowance.allowed().to_string(), "4-7");
    assert_eq!(allowance.cpuset().unwrap().to_string(), "4-7");
    assert_eq!(allowance.quota().unwrap().cpus(), 2.5);
    assert_eq!(allowance.parallelism(), 3);
    assert_eq!(allowance.online().to_string(), "0-15");
    assert_eq!(allowance.warnings(), [""; 0]);
}

#[test]
fn the_tightest_limit_on_the_path_counts_and_the_nearest_cpuset() {
    let tree = Tree::of("nested-v2");
    let allowance = tree.machine().allowance();
    assert_eq!(allowance.quota(), Quota::new(30_000, 20_000), "1.5 processors, of the group in the middle");
    assert_eq!(
        allowance.cpuset().unwrap().to_string(),
        "0-7",
        "the groups below have no cpuset of their own"
    );
    assert_eq!(allowance.parallelism(), 2);

    tree.put("sys/fs/cgroup/system.slice/cpu.max", "10000 100000");
    assert_eq!(
        tree.machine().allowance().quota(),
        Quota::new(10_000, 100_000),
        "an outer group may be tighter"
    );
    assert_eq!(tree.machine().allowance().parallelism(), 1);
}

#[test]
fn control_groups_of_version_1_without_a_namespace() {
    let allowance = Tree::of("container-v1").machine().allowance();
    assert_eq!(allowance.cpuset().unwrap().to_string(), "2-3");
    assert_eq!(allowance.quota().unwrap().cpus(), 0.5);
    assert_eq!(allowance.parallelism(), 1);
    assert_eq!(allowance.usable().to_string(), "2-3");
}

#[test]
fn nested_control_groups_of_version_1_beside_version_2() {
    let allowance = Tree::of("nested-v1").machine().allowance();
    assert_eq!(allowance.quota(), Quota::new(300_000, 100_000));
    assert_eq!(allowance.cpuset().unwrap().to_string(), "0-15");
}

#[test]
fn a_group_outside_the_mount_gets_the_limits_of_the_mount() {
    for path in ["0::/../../elsewhere", "0::/other/place (deleted)"] {
        let tree = Tree::of("container-v2");
        tree.put("proc/self/cgroup", path);
        assert_eq!(tree.machine().allowance().quota().unwrap().cpus(), 2.5, "{path}");
    }
    let tree = Tree::of("container-v1");
    tree.put("proc/self/cgroup", "4:cpu,cpuacct:/docker/other");
    assert_eq!(tree.machine().allowance().quota().unwrap().cpus(), 0.5);

    let tree = Tree::of("container-v2");
    tree.put("proc/self/cgroup", "0::/..");
    tree.put("sys/fs/cpu.max", "1000 100000");
    assert_eq!(
        tree.machine().allowance().quota().unwrap().cpus(),
        2.5,
        "limits above the mount must not be read"
    );
}

#[test]
fn a_group_below_the_mounted_root_is_found() {
    let tree = Tree::of("container-v1");
    tree.put("proc/self/cgroup", "9:cpuset:/docker/0a1b/part\n4:cpu,cpuacct:/docker/0a1b/part");
    tree.put("sys/fs/cgroup/cpu,cpuacct/part/cpu.cfs_quota_us", "20000");
    tree.put("sys/fs/cgroup/cpu,cpuacct/part/cpu.cfs_period_us", "100000");
    tree.put("sys/fs/cgroup/cpuset/part/cpuset.cpus", "");
    let allowance = tree.machine().allowance();
    assert_eq!(allowance.quota().unwrap().cpus(), 0.2);
    assert_eq!(
        allowance.cpuset().unwrap().to_string(),
        "2-3",
        "an empty set is skipped; the set above it applies"
    );
}

#[test]
fn without_a_mount_table_the_usual_place_is_read() {
    let tree = Tree::of("container-v2");
    tree.remove("proc/self/mountinfo");
    assert_eq!(tree.machine().allowance().quota().unwrap().cpus(), 2.5);
}

#[test]
fn without_groups_there_are_no_limits() {
    let allowance = Tree::of("small-vm").machine().allowance();
    assert_eq!((allowance.quota(), allowance.cpuset()), (None, None));
    assert_eq!(allowance.parallelism(), 2);
}

#[test]
fn malformed_limits_warn_and_are_ignored() {
    let cases = [
        ("sys/fs/cgroup/cpu.max", "lots"),
        ("sys/fs/cgroup/cpu.max", "100000"),
        ("sys/fs/cgroup/cpu.max", "1 2 3"),
        ("sys/fs/cgroup/cpu.max", "0 100000"),
        ("sys/fs/cgroup/cpu.max", "50000 0"),
        ("sys/fs/cgroup/cpuset.cpus.effective", "4-"),
        ("sys/devices/system/cpu/online", "on"),
        ("proc/self/cgroup", "nonsense"),
        ("proc/self/status", "Cpus_allowed_list:\tall"),
    ];
    for (path, content) in cases {
        let tree = Tree::of("container-v2");
        tree.put(path, content);
        let machine = tree.machine();
        let allowance = machine.allowance();
        assert!(allowance.warnings()[0].contains(path), "{path}: {:?}", allowance.warnings());
        assert!(machine.describe().warnings.iter().any(|w| w.contains(path)), "{path}");
        assert!(!allowance.online().is_empty() && !allowance.allowed().is_empty(), "{path}");
        assert!(allowance.parallelism() >= 1, "{path}");
    }
}

#[test]
fn a_refresh_sees_each_change_and_counts_it_once() {
    let tree = Tree::of("container-v2");
    let machine = tree.machine();
    assert_eq!(machine.generation(), 0, "0 before the first snapshot");
    let first = machine.allowance();
    assert_eq!((first.generation(), machine.generation()), (1, 1));
    assert_eq!(machine.refresh().generation(), 1, "a refresh without a change keeps the generation");

    let changes: [(&str, &str); 5] = [
        ("proc/self/status", "Cpus_allowed_list:\t4-5"),
        ("sys/fs/cgroup/cpuset.cpus.effective", "4-6"),
        ("sys/fs/cgroup/cpu.max", "max 100000"),
        ("sys/fs/cgroup/cpu.max", "60000 50000"),
        ("sys/devices/system/cpu/online", "0-4,6-15"),
    ];
    for (count, (path, content)) in changes.into_iter().enumerate() {
        tree.put(path, content);
        let expected = count as u64 + 2;
        assert_eq!(
            machine.allowance().generation(),
            expected - 1,
            "{path}: only a refresh changes the snapshot"
        );
        assert_eq!(machine.refresh().generation(), expected, "{path}");
        assert_eq!(machine.refresh().generation(), expected, "{path}: a second refresh finds no change");
        assert_eq!((machine.allowance().generation(), machine.generation()), (expected, expected), "{path}");
    }
    let last = machine.allowance();
    assert_eq!(last.usable().to_string(), "4", "5 is allowed but offline");
    assert_eq!(last.cpuset().unwrap().to_string(), "4-6");
    assert_eq!(last.quota().unwrap().cpus(), 1.2);
    assert_eq!(first.quota().unwrap().cpus(), 2.5, "an old snapshot stays as it was");
}

#[test]
fn a_mask_of_offline_processors_is_still_usable() {
    let tree = Tree::of("container-v2");
    tree.put("sys/devices/system/cpu/online", "0-3");
    let allowance = tree.machine().allowance();
    assert_eq!(allowance.usable().to_string(), "4-7", "offline VPs that are allowed still count");
}

#[test]
fn the_mask_of_a_thread_is_its_own() {
    let tree = Tree::of("container-v2");
    tree.put("proc/thread-self/status", "Cpus_allowed_list:\t6");
    let machine = tree.machine();
    assert_eq!(machine.thread_allowed().to_string(), "6");
    assert_eq!(machine.allowance().allowed().to_string(), "4-7");
    tree.remove("proc/thread-self");
    assert_eq!(machine.thread_allowed(), *machine.vps());
}

#[test]
fn online_is_read_again_each_time() {
    let tree = Tree::of("small-vm");
    let machine = tree.machine();
    assert_eq!(machine.online().to_string(), "0-1");
    tree.put("sys/devices/system/cpu/online", "0");
    assert_eq!(machine.online().to_string(), "0");
    tree.put("sys/devices/system/cpu/online", "0-5");
    assert_eq!(machine.online().to_string(), "0-1", "an impossible processor is never online");
}

#[test]
fn without_sysfs_proc_lists_the_online_processors() {
    let tree = Tree::of("no-sys");
    let machine = tree.machine();
    assert_eq!(machine.online().to_string(), "0-3,5");
    assert_eq!(machine.allowance().allowed().to_string(), "0-3,5");
    assert_eq!(machine.vp_limit(), 8);
}

#[test]
fn processors_that_come_online_are_placed_and_old_clusters_stay() {
    let tree = Tree::of("some-offline");
    let machine = tree.machine();
    let before = machine.clusters(ClusterSize::Core);
    let fixed = machine.clusters(ClusterSize::fixed(2));
    machine.refresh();
    assert!(std::ptr::eq(before, machine.clusters(ClusterSize::Core)), "no processor came online");

    tree.become_machine("then-online");
    assert!(std::ptr::eq(before, machine.clusters(ClusterSize::Core)), "only a refresh places VPs");
    let allowance = machine.refresh();
    assert_eq!(allowance.generation(), 2);
    let after = machine.clusters(ClusterSize::Core);
    let with =
        |vp| after.members(after.cluster_of(Vp::new(vp))).iter().map(|vp| vp.index()).collect::<Vec<_>>();
    assert_eq!((with(6), with(5), with(3)), (vec![2, 6], vec![1, 5], vec![3, 7]));
    assert_eq!(before.members(before.cluster_of(Vp::new(6))), [Vp::new(6)], "old clusters stay as they are");
    assert!(
        std::ptr::eq(fixed, machine.clusters(ClusterSize::fixed(2))),
        "fixed sizes do not depend on placed VPs"
    );
    assert_eq!(machine.topology().unknown_vps().to_string(), "8-11");
    machine.refresh();
    assert!(std::ptr::eq(after, machine.clusters(ClusterSize::Core)), "no VP is left to place");
    machine.tree(&ClusterSize::LEVELS).unwrap();
}

#[test]
fn an_unreadable_machine_keeps_its_topology_and_warns() {
    let tree = Tree::of("some-offline");
    let machine = tree.machine();
    tree.become_machine("then-online");
    tree.put("sys/devices/system/node/node1/cpulist", "???");
    let allowance = machine.refresh();
    assert!(allowance.warnings()[0].contains("node1/cpulist"), "{:?}", allowance.warnings());
    assert_eq!(machine.topology().unknown_vps().to_string(), "2,5-6,8-11");
}

#[test]
fn later_snapshots_were_read_later() {
    const ROUNDS: u64 = 200;
    let tree = Tree::of("container-v2");
    let machine = tree.machine();
    let put = |round: u64| tree.put("sys/fs/cgroup/cpu.max", &format!("{} 1000", 1000 + round));
    put(0);
    let read_all = || {
        let mut seen = Vec::new();
        while seen.last().is_none_or(|(_, quota)| *quota < 1000 + ROUNDS) {
            let snapshot = machine.refresh();
            assert!(
                machine.generation() >= snapshot.generation(),
                "a snapshot was visible before its generation"
            );
            seen.push((snapshot.generation(), snapshot.quota().unwrap().quota_us()));
        }
        seen
    };
    // The limit only rises, so it must rise with the generations, over all refreshing threads.
    let mut seen: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4).map(|_| scope.spawn(read_all)).collect();
        (1..=ROUNDS).for_each(put);
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    seen.sort_unstable();
    seen.dedup();
    for pair in seen.windows(2) {
        assert!(pair[0].0 < pair[1].0, "one generation, two snapshots: {pair:?}");
        assert!(pair[0].1 < pair[1].1, "an older reading was stored over a newer one: {pair:?}");
    }
}

#[test]
fn a_virtual_machine_has_all_its_vps() {
    let spec: VirtualSpec = "nodes:4,cores:16".parse().unwrap();
    let machine = Machine::virtual_of(spec);
    assert_eq!(machine.online().len(), 64);
    assert_eq!(machine.thread_allowed().len(), 64);
    assert_eq!(machine.allowance().usable().len(), 64);
}

#[test]
fn a_description_matches_the_machine() {
    let description = Tree::of("some-offline").machine().describe();
    assert!(!description.is_virtual);
    assert_eq!(description.source, "/sys");
    assert_eq!((description.possible.as_str(), description.possible_count), ("0-11", 12));
    assert_eq!((description.online.as_str(), description.online_count), ("0-1,3-4,7", 5));
    assert_eq!((description.allowed.as_str(), description.vp_limit), ("0-11", 12));
    assert_eq!(
        (description.unplaced.as_str(), description.default_cluster_size.as_str()),
        ("2,5-6,8-11", "core")
    );
    let levels: Vec<_> = description
        .levels
        .iter()
        .map(|l| (l.name.as_str(), l.clusters_count, l.vps_min, l.vps_max))
        .collect();
    let expected = [
        ("cpu", 12, 1, 1),
        ("core", 10, 1, 2),
        ("cache", 9, 1, 3),
        ("node", 2, 4, 8),
        ("machine", 1, 12, 12),
    ];
    assert_eq!(levels, expected);
    assert_eq!((description.generation, description.warnings.len()), (1, 1));

    let made = Machine::virtual_of("nodes:2,threads:2".parse().unwrap()).describe();
    assert!(made.is_virtual);
    assert_eq!(made.source, "virtual: nodes:2,caches:1,cores:1,threads:2");
    assert_eq!(Tree::of("container-v2").machine().describe().quota_cpus, Some(2.5));
    assert_eq!(Tree::of("memory-nodes").machine().describe().memory_nodes, [2, 3]);
}
