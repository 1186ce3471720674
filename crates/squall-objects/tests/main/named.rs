//! Every owner of a ready object can name it.

use crate::common::alone;
use squall_core::swap::Swap;
use squall_core::{Handle, Id, info_of};
use squall_machine::ClusterSize;
use squall_objects::cached::{self, CachedMapExt, Form, Items, List, OwnedCachedMap};
use squall_objects::directory::{self, OwnedDirectory, Parts};
use squall_objects::lock::{AdaptiveLock, Wanted};
use squall_objects::map::{self, Compute, MapExt, MapLimit, OwnedMap};
use squall_objects::read_mostly::{OwnedReadMostly, ReadMostlyExt};
use squall_objects::{counter, gate};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

fn name(id: Id) -> String {
    info_of(id).expect("it lives").name.expect("named").to_string()
}

#[test]
fn every_owner_gives_its_object_a_name() {
    let _alone = alone();
    let counter = counter::adaptive().named("GET /login requests");
    assert_eq!(name(Handle::id(counter.handle())), "GET /login requests");
    let gate = gate::shared().named(String::from("requests"));
    assert_eq!(name(Handle::id(gate.handle())), "requests");
    let map: OwnedMap<u32, u32> = OwnedMap::default().named("sessions");
    assert_eq!(name(Handle::id(map.handle())), "sessions");
    let map = map::adaptive::<u32, u32>().named("users");
    assert_eq!(name(Handle::id(map.handle())), "users");
    let value = OwnedReadMostly::from(7).named("limit");
    assert_eq!(name(Handle::id(value.handle())), "limit");
    let cached: OwnedCachedMap<u32, u32> = OwnedCachedMap::default().named("routes");
    assert_eq!(name(Handle::id(cached.handle())), "routes");
    let list: List<u32> = List::default().named("listeners");
    assert_eq!(name(Handle::id(list.handle())), "listeners");
    let directory: OwnedDirectory<u32, u32, u32> = OwnedDirectory::default().named("clients");
    assert_eq!(name(Handle::id(directory.handle())), "clients");
    let lock = AdaptiveLock::named("queue", ());
    lock.set_form(Wanted::Block);
    assert_eq!(name(Handle::id(lock.view().expect("the first decision makes it"))), "queue");
}

/// Returns the text of the panic of `f`.
fn panic_of<R>(f: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(|| drop(f()))).expect_err("the object is gone");
    *panic.downcast::<String>().expect("a text")
}

#[test]
fn the_error_of_a_map_names_the_method_that_was_called() {
    let _alone = alone();
    let map = map::shared::<u32, u32>().named("sessions");
    let handle = map.handle();
    drop(map);
    let text = |method: &str| {
        let class = "squall_objects::map::classes::Shared<u32, u32>";
        format!(
            "{handle}.{method}() of \"sessions\", class {class}: the object was destroyed; keep its owner as long as it is called"
        )
    };
    assert_eq!(handle.try_get(&1).unwrap_err().to_string(), text("get"));
    assert_eq!(handle.try_with(&1, |_| ()).unwrap_err().to_string(), text("with"));
    assert_eq!(handle.try_get_cloned(&1).unwrap_err().to_string(), text("get_cloned"));
    assert_eq!(handle.try_set(1, 1).unwrap_err().to_string(), text("set"));
    assert_eq!(handle.try_delete(&1).unwrap_err().to_string(), text("delete"));
    assert_eq!(handle.try_compute(1, |_| Compute::Keep).unwrap_err().to_string(), text("compute"));
    assert_eq!(handle.try_for_each(|_, _| ()).unwrap_err().to_string(), text("for_each"));
    assert_eq!(panic_of(|| handle.get(&1)), text("get"));
    assert_eq!(panic_of(|| handle.get_cloned(&1)), text("get_cloned"));
    assert_eq!(panic_of(|| handle.contains_key(&1)), text("contains_key"));
    assert_eq!(panic_of(|| handle.insert(1, 1)), text("insert"));
    assert_eq!(panic_of(|| handle.update(&1, |n| n + 1)), text("update"));
    assert_eq!(panic_of(|| handle.update_in_place(&1, |n| *n += 1)), text("update_in_place"));
    assert_eq!(panic_of(|| handle.compute_with(1, |_| (Compute::Keep, ()))), text("compute_with"));
    assert_eq!(panic_of(|| handle.for_each(|_, _| ())), text("for_each"));
    assert_eq!(panic_of(|| handle.iter().next()), text("iter"));
    assert_eq!(panic_of(|| handle.len()), text("len"));
    assert_eq!(panic_of(|| handle.set_cluster_size(ClusterSize::Core)), text("set_cluster_size"));
    let error = handle.swap_to(map::new_shared()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "swap of {handle} \"sessions\": the object was destroyed; keep its owner as long as it is used"
        )
    );
}

#[test]
fn the_error_of_a_read_mostly_value_names_the_method_that_was_called() {
    let _alone = alone();
    let value = OwnedReadMostly::from(7).named("limit");
    let handle = value.handle();
    drop(value);
    let of = |method: &str| format!("{handle}.{method}() of \"limit\", class ");
    for (text, method) in [
        (handle.try_read(|_| ()).unwrap_err().to_string(), "read"),
        (panic_of(|| handle.read(|_| ())), "read"),
        (panic_of(|| handle.read_versioned(|_, _| ())), "read_versioned"),
        (panic_of(|| handle.get()), "get"),
        (panic_of(|| handle.get_cloned()), "get_cloned"),
        (panic_of(|| handle.update(|n| n + 1)), "update"),
        (panic_of(|| handle.set_cluster_size(ClusterSize::Core)), "set_cluster_size"),
    ] {
        assert!(text.starts_with(&of(method)), "{text}");
        assert!(text.contains(": the object was destroyed;"), "{text}");
    }
}

#[test]
fn the_error_of_a_swap_names_the_object_and_types_that_the_program_wrote() {
    let _alone = alone();
    let map = map::locked::<u32, u32>().named("sessions");
    let swap = Swap::new(map.handle()).timeout(Duration::ZERO);
    let error = swap.run(map::new_shared()).unwrap_err();
    let classes = "squall_objects::map::classes::";
    assert_eq!(
        error.to_string(),
        format!(
            "swap of {} \"sessions\" from {classes}Locked<u32, u32> to {classes}Shared<u32, u32>: the time limit \
             expired in phase forward; allow more time, or shorten the calls of the object",
            map.handle()
        )
    );
    assert_eq!(error.name().map(|name| name.to_string()).as_deref(), Some("sessions"));
    for (class, map) in [
        ("Shared", map::shared::<u32, u32>()),
        ("Small", map::adaptive()),
        ("Replicated", map::replicated(ClusterSize::Cpu)),
        ("Partitioned", map::partitioned(2, |key| key as usize)),
        ("Limited", map::limited(map::shared(), MapLimit::entries(1))),
    ] {
        let info = info_of(Handle::id(map.handle())).expect("it lives");
        assert_eq!(info.class, format!("{classes}{class}<u32, u32>"));
    }
}

#[test]
fn the_error_of_a_cached_object_or_a_directory_names_the_method_that_was_called() {
    let _alone = alone();
    let (list, map) = (cached::list::<u32>(Form::shared()), cached::map::<u32, u32>(Form::shared()));
    let directory = directory::shared::<u32, u32, u32>(|_| 0);
    let (lists, maps, directories) = (list.handle(), map.handle(), directory.handle());
    drop((list, map, directory));
    for (text, handle, method) in [
        (panic_of(|| lists.find(|_| true, |_| ())), lists.to_string(), "find"),
        (panic_of(|| lists.remove(|_| true)), lists.to_string(), "remove"),
        (panic_of(|| lists.set_cluster_size(ClusterSize::Core)), lists.to_string(), "set_cluster_size"),
        (panic_of(|| maps.with(&1, |_| ())), maps.to_string(), "with"),
        (panic_of(|| maps.set(1, 1)), maps.to_string(), "set"),
        (panic_of(|| maps.iter().next()), maps.to_string(), "iter"),
        (panic_of(|| directories.update(&1, |_, _| ())), directories.to_string(), "update"),
        (panic_of(|| directories.read(&1, |_| ())), directories.to_string(), "read"),
        (panic_of(|| directories.keys().next()), directories.to_string(), "iter"),
    ] {
        assert!(text.starts_with(&format!("{handle}.{method}() of class ")), "{text}");
    }
}
