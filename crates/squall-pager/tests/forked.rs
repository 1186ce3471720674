//! Pages in the child of a fork.
//!
//! A program of its own: the threads of other tests would hold locks at a fork.
#![cfg(all(target_os = "linux", not(any(loom, miri))))]

#[path = "../../squall-rcu/tests/forked/mod.rs"]
mod child;
#[path = "pages/memory.rs"]
#[allow(dead_code, reason = "the other test program uses all of it")]
mod memory;

use child::{End, in_child_ending};
use memory::State;
use squall_core::CallErrorKind;
use squall_machine::ClusterSize;
use squall_objects::pages::{self, Supply};
use squall_pager::PageFault;
use squall_pager::cache::{self, FileCache, FileCacheExt, Form};
use std::cell::RefCell;

fn is_refused(result: Result<(), PageFault>) -> bool {
    matches!(result, Err(PageFault::Call(error)) if error.reason() == CallErrorKind::Forked)
}

#[test]
fn a_child_reads_and_drops_the_frames_of_its_thread_and_its_faults_are_refused() {
    for (form, end) in [
        (Form::Shared, End::AtOnce),
        (Form::Distributed(ClusterSize::Cpu), End::Orderly),
        (Form::Partitioned { partitions: 3, shift: 1 }, End::Orderly),
    ] {
        let memory = pages::distributed(Supply::system(4));
        let cache = cache::with_form(form, State::with_pages(8).source(), memory.handle());
        cache.pin_mut(0).unwrap().fill(6);
        let frames = RefCell::new(vec![cache.pin(0).unwrap(), cache.pin(1).unwrap()]);
        let check = || {
            let seen = frames.borrow()[0][9];
            frames.borrow_mut().clear();
            seen == 6
                && is_refused(cache.pin(0).map(drop))
                && is_refused(cache.pin_mut(2).map(drop))
                && is_refused(cache.sync().map(drop))
        };
        assert!(in_child_ending(end, check), "{form:?}");
        assert_eq!((frames.borrow()[0][9], frames.borrow().len()), (6, 2));
    }
}
