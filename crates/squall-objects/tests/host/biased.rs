//! The adaptive counter on the processors of the host. The test needs restartable sequences and two
//! processors.

use squall_adapt::control;
use squall_core::Handle;
use squall_machine::pervp::{RestartMode, restart_mode};
use squall_machine::{Vp, VpSet};
use squall_objects::counter::{self, Counter, SHARED};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn one_that_a_single_vp_calls_from_elsewhere_is_at_home_there_soon() {
    let usable: VpSet =
        squall_sys::affinity::allowed().unwrap().into_iter().map(|cpu| Vp::new(cpu as u32)).collect();
    if usable.len() < 2 || restart_mode() != RestartMode::Restartable {
        eprintln!("SKIP: this takes two processors and restartable sequences");
        return;
    }
    let counter = counter::adaptive();
    let (handle, id) = (counter.handle(), Handle::id(counter.handle()));
    let first = handle.sensors().place.unwrap();
    let elsewhere = usable.iter().find(|vp| *vp != first).unwrap();
    let stop = AtomicBool::new(false);
    let added = thread::scope(|scope| {
        let adder = scope.spawn(|| {
            pin(elsewhere);
            let mut added = 0;
            while !stop.load(Ordering::Relaxed) {
                handle.inc();
                added += 1;
            }
            added
        });
        let began = Instant::now();
        // The test polls the log instead of the counter, since reading a counter's sensors is a call of the
        // counter.
        while !control::history(id).iter().any(|decision| decision.place == Some(elsewhere)) {
            assert!(began.elapsed() < Duration::from_secs(300), "{:?}", control::history(id));
            thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, Ordering::Relaxed);
        adder.join().unwrap()
    });
    assert_eq!(handle.total(), added);
    let moved = control::history(id).into_iter().find(|decision| decision.place == Some(elsewhere)).unwrap();
    assert_eq!((moved.from, moved.to), (SHARED, SHARED));
    assert_eq!(handle.sensors().place, Some(elsewhere));
}

/// Pins the calling thread to a processor.
fn pin(vp: Vp) {
    squall_sys::affinity::restrict_to(&[vp.index()]).unwrap();
}
