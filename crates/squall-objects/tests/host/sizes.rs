//! The attribute for the cluster size: read and set by name, for every kind of object that has one, during
//! use.

use squall_adapt::control;
use squall_adapt::decision::Verdict;
use squall_core::{Handle, Id};
use squall_machine::ClusterSize;
use squall_objects::CLUSTER_SIZE;
use squall_objects::cached::{self, CachedList, CachedMap, Form, Items};
use squall_objects::directory::{self, Directory, Parts};
use squall_objects::map::{self, Map, MapExt, MapLimit};
use squall_objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use squall_policy::attribute::Scope;

fn shown(id: Id) -> Option<String> {
    let list = control::attributes(id).ok()?;
    let info = list.into_iter().find(|info| info.name == CLUSTER_SIZE.name())?;
    assert_eq!(
        (info.from, info.range.as_str()),
        (Scope::Instance, "cpu, core, cache, node, machine, fixed:N")
    );
    Some(info.value)
}

/// Sets several sizes by name. `is` returns the object's own cluster size, `holds` whether its contents are
/// intact.
fn goes_through(id: Id, begins: &str, is: impl Fn() -> ClusterSize, holds: impl Fn() -> bool) {
    assert_eq!(shown(id).as_deref(), Some(begins));
    for size in ["core", "fixed:2", "cpu", "node", "node"] {
        control::set_attribute(id, "cluster-size", size).unwrap();
        assert_eq!((is().to_string().as_str(), shown(id).as_deref()), (size, Some(size)));
        assert!(holds(), "{size}");
    }
    let refused = control::set_attribute(id, "cluster-size", "fixed:0").unwrap_err().to_string();
    assert!(
        refused.contains(&format!("object {id} "))
            && refused.contains("`fixed:0`")
            && refused.contains("`core`"),
        "{refused}"
    );
    assert_eq!(is(), ClusterSize::Node);
}

#[test]
fn it_is_read_and_set_by_name_and_what_they_hold_stays() {
    for value in [
        read_mostly::shared(5),
        read_mostly::distributed(5, ClusterSize::Machine),
        read_mostly::copied(5, ClusterSize::Machine),
    ] {
        goes_through(Handle::id(value.handle()), "machine", || value.cluster_size(), || value.get() == 5);
    }
    let routes = map::replicated(ClusterSize::Cache);
    routes.set(1, 2);
    goes_through(
        Handle::id(routes.handle()),
        "cache",
        || routes.cluster_size(),
        || routes.get(&1) == Some(2),
    );
    let parts = map::partitioned::<u64, u64>(4, |key| key as usize);
    parts.extend_from(100);
    goes_through(Handle::id(parts.handle()), "cpu", || parts.cluster_size(), || parts.len() == 100);
    let limited = map::limited(map::replicated(ClusterSize::Core), MapLimit::entries(1));
    limited.set(1, 2);
    goes_through(
        Handle::id(limited.handle()),
        "core",
        || limited.cluster_size(),
        || limited.set_or_full(2, 2).is_err(),
    );
    let list = cached::list(Form::distributed(ClusterSize::Core));
    list.insert("item");
    goes_through(Handle::id(list.handle()), "core", || list.form().cluster_size(), || list.len() == 1);
    let kept = cached::map::<u8, u8>(Form::where_threads_are(ClusterSize::Core, 1).updated());
    cached::CachedMapExt::set(kept.handle(), 1, 2);
    let form = || kept.form();
    goes_through(
        Handle::id(kept.handle()),
        "core",
        || form().cluster_size(),
        || {
            cached::CachedMapExt::get(kept.handle(), &1) == Some(2)
                && form().coherence() == cached::Coherence::Update
        },
    );
    let directory = directory::shared::<u8, u8, u8>(|_| 0);
    directory.get_or_make(&1, || 2, |_, part| *part = 3);
    let sum = || directory.gather(&1, 0, |sum, _, part| *sum += *part);
    goes_through(Handle::id(directory.handle()), "machine", || directory.cluster_size(), || sum() == Some(3));
}

trait Filled {
    fn extend_from(&self, keys: u64);
}

impl Filled for map::OwnedMap<u64, u64> {
    fn extend_from(&self, keys: u64) {
        (0..keys).for_each(|key| _ = self.set(key, key));
    }
}

#[test]
fn what_has_no_clusters_does_not_have_it_until_it_has_some() {
    let map = map::shared::<String, u8>();
    let id = Handle::id(map.handle());
    // Registers the attribute for the interface.
    let _other = map::replicated::<String, u8>(ClusterSize::Core);
    assert_eq!(shown(id), None);
    assert!(control::set_attribute(id, "cluster-size", "core").is_err());
    squall_core::swap::swap(map.handle(), map::new_replicated(ClusterSize::Core)).unwrap();
    assert_eq!(shown(id).as_deref(), Some("core"));
    let list = cached::list::<u8>(Form::shared());
    assert_eq!(shown(Handle::id(list.handle())), None);
}

#[test]
fn one_that_adapts_has_it_beside_its_policy_s_and_the_swap_is_remembered() {
    let value = read_mostly::adaptive(vec![1, 2]);
    let id = Handle::id(value.handle());
    control::freeze(id, true).unwrap();
    let names = |id| control::attributes(id).unwrap().into_iter().map(|info| info.name).collect::<Vec<_>>();
    assert!(names(id).contains(&"cooldown") && names(id).contains(&"cluster-size"));
    control::set_attribute(id, "cluster-size", "core").unwrap();
    control::set_attribute(id, "cooldown", "1s").unwrap();
    assert_eq!((value.cluster_size(), value.get_cloned()), (ClusterSize::Core, vec![1, 2]));
    let last = control::history(id).pop().unwrap();
    assert_eq!((last.verdict, last.report.map(|report| report.id)), (Verdict::ByHand, Some(id)));
    assert!(
        control::set_attribute(id, "cluster-sise", "core").unwrap_err().to_string().contains("cluster-sise")
    );
}

#[test]
fn it_is_not_set_within_an_operation_nor_of_what_is_gone() {
    let value = read_mostly::shared(1);
    let id = Handle::id(value.handle());
    squall_rcu::pin(|_| assert!(control::set_attribute(id, "cluster-size", "core").is_err()));
    assert_eq!(value.cluster_size(), ClusterSize::Machine);
    drop(value);
    assert!(control::set_attribute(id, "cluster-size", "core").is_err() && control::attributes(id).is_err());
}
