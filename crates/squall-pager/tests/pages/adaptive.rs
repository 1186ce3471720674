//! Tests of adaptive caches and regions, and of the attributes that tools show.
#![cfg(not(miri))]

use crate::memory::zeros;
use squall_adapt::control::{self, ControlError};
use squall_core::{Handle, Id};
use squall_objects::pages::{self, PagePool, Supply};
use squall_pager::cache::{self, Attribute, FileCache, FileCacheExt, PAGE_BYTES};
use squall_pager::region::{self, Form, Mapping, RegionExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

/// Calls until the engine has changed both forms. Threads of other tests may delay it.
#[test]
fn co_53_a_region_and_its_cache_that_several_processors_use_are_distributed() {
    if squall_machine::machine().vp_limit() < 2 {
        return;
    }
    let memory = pages::distributed(Supply::system(256));
    let cache = Arc::new(cache::adaptive(zeros(16), memory.handle()));
    let region = region::with_form(Form::Adaptive, 0, Mapping::new(cache.clone()));
    let form = |id| control::status(id).unwrap().form;
    let forms = || (form(Handle::id(region.handle())), form(Handle::id(cache.handle())));
    assert_eq!(forms(), ("shared", "shared"));
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (region, ends) = (&region, &ends);
            scope.spawn(move || {
                for round in 0.. {
                    assert_eq!(region.pin((round + thread) % 16 * PAGE_BYTES as u64).unwrap()[0], 0);
                    if ends.load(Relaxed) {
                        break;
                    }
                }
            });
        }
        while forms() != ("distributed", "partitioned") {
            thread::yield_now();
        }
        ends.store(true, Relaxed);
    });
}

/// Returns the value of an attribute, and its range.
fn shown(id: Id, name: &str) -> (String, String) {
    let mut attributes = control::attributes(id).unwrap().into_iter();
    let shown = attributes.find(|attribute| attribute.name == name).unwrap_or_else(|| panic!("no {name}"));
    (shown.value, shown.range)
}

#[test]
fn tools_show_the_counts_of_caches_and_pools_and_set_their_constants() {
    let memory = pages::shared(Supply::system(64));
    memory.set_attribute(pages::Attribute::Chunk, 1);
    let cache = cache::distributed(zeros(16), memory.handle());
    let (pool, id) = (Handle::id(memory.handle()), Handle::id(cache.handle()));
    drop((0..5).map(|page| cache.pin(page).unwrap()).collect::<Vec<_>>());
    cache.pin_mut(3).unwrap()[0] = 1;
    assert!(cache.read_ahead(9) && !cache.read_ahead(3));
    let reading = |value: &str| (value.to_owned(), "read only".to_owned());
    for (name, value) in [
        ("resident", "6"),
        ("dirty", "1"),
        ("fills", "6"),
        ("read-ahead", "1"),
        ("evictions", "0"),
        ("written", "0"),
        ("replicas", "0"),
        ("replicas-made", "0"),
        ("replicas-removed", "0"),
        ("replicas-refused", "0"),
        ("mappings", "0"),
        ("private-mappings", "0"),
        ("clients", "0"),
    ] {
        assert_eq!(shown(id, name), reading(value), "{name}");
    }
    assert_eq!([shown(pool, "used"), shown(pool, "free")], [reading("6"), reading("0")]);
    let refused = control::set_attribute(id, "fills", "7").unwrap_err();
    assert!(matches!(refused, ControlError::ReadOnly(..)), "{refused}");
    assert!(refused.to_string().contains("attribute `fills` of object"), "{refused}");
    assert!(matches!(control::unset_attribute(id, "fills"), Err(ControlError::ReadOnly(..))));
    control::set_attribute(id, "dirty-max", "5").unwrap();
    control::set_attribute(id, "patience", "20ms").unwrap();
    control::set_attribute(pool, "max-pages", "32").unwrap();
    assert_eq!((cache.attribute(Attribute::DirtyMax), cache.attribute(Attribute::PatienceMs)), (5, 20));
    assert_eq!((memory.max_pages(), shown(pool, "max-pages").0), (32, "32".to_owned()));
}
