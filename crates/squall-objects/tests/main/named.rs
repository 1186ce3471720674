//! Every owner of a ready object can name it.

use crate::common::alone;
use squall_core::{Handle, Id, info_of};
use squall_objects::cached::{List, OwnedCachedMap};
use squall_objects::directory::OwnedDirectory;
use squall_objects::lock::{AdaptiveLock, Wanted};
use squall_objects::map::{self, OwnedMap};
use squall_objects::read_mostly::OwnedReadMostly;
use squall_objects::{counter, gate};

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
