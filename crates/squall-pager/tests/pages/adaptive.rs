//! Tests of adaptive caches and regions.
#![cfg(not(miri))]

use crate::memory::zeros;
use squall_adapt::control;
use squall_core::Handle;
use squall_objects::pages::{self, Supply};
use squall_pager::cache::{self, PAGE_BYTES};
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
