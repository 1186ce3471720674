//! Tests of the VP lock with threads that come, go and move.

use crate::biased::Twice;
use squall_lock::VpLock;
use squall_machine::{Vp, machine};
use std::sync::Barrier;
use std::thread;

const THREADS: u64 = 6;
const TURNS: u64 = if cfg!(miri) { 20 } else { 3000 };

#[test]
fn one_is_inside_at_a_time_while_gates_open_and_close() {
    let locks: Vec<_> = (0..machine().vp_limit().min(8) as u32)
        .map(|vp| VpLock::new(Vp::new(vp), Twice::default()))
        .collect();
    let start = Barrier::new(THREADS as usize);
    let turns = |who: u64| {
        let (mut number, mut added) = (who, 0);
        start.wait();
        for _ in 0..TURNS {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let random = number >> 40;
            // Long runs on the lock of the thread's own VP, so that its gate opens.
            if let Some(near) = locks.get(Vp::current().index()) {
                let times = (random & 3) * 8;
                (0..times).for_each(|_| near.lock().add());
                added += times;
            }
            if random >> 4 & 31 == 0 {
                // Any lock, so that gates close.
                locks[(random >> 10) as usize % locks.len()].lock().add();
                added += 1;
            }
            if random >> 5 & 127 == 0
                && let Some(mut twice) = locks[(random >> 10) as usize % locks.len()].try_lock()
            {
                twice.add();
                added += 1;
            }
            if random >> 6 & 15 == 0 {
                thread::yield_now();
            }
        }
        added
    };
    let added: u64 = thread::scope(|threads| {
        let turns = &turns;
        let all: Vec<_> = (0..THREADS).map(|who| threads.spawn(move || turns(who))).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let sums = locks.into_iter().map(VpLock::into_inner).fold((0, 0), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    assert_eq!(sums, (added, added));
}

#[test]
fn a_panic_releases_the_lock() {
    let lock = VpLock::new(Vp::current(), 0);
    for round in 0..20 {
        let inside = std::panic::AssertUnwindSafe(|| {
            *lock.lock() += 1;
            let _guard = lock.lock();
            std::panic::resume_unwind(Box::new(()));
        });
        std::panic::catch_unwind(inside).unwrap_err();
        assert_eq!(*lock.lock(), round + 1);
    }
}
