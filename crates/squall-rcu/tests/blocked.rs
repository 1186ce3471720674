//! Reports of operations that blocked. In a process of its own, since the handler belongs to the process.
#![cfg(all(debug_assertions, target_os = "linux", not(any(loom, miri))))]

use squall_rcu::{Stall, on_stall, pin};
use std::sync::Mutex;
use std::thread::sleep;
use std::time::Duration;

static TOLD: Mutex<Vec<Stall>> = Mutex::new(Vec::new());

/// Longer than the shortest operation that is reported.
const SLEEP: Duration = Duration::from_millis(3);

#[test]
fn an_operation_that_slept_is_reported_once_for_its_place() {
    on_stall(|stall| {
        // The handler may open operations. Their sleeps are reported, too, but not for ever.
        pin(|_| sleep(SLEEP));
        TOLD.lock().unwrap().push(stall.clone());
    });
    let before = squall_sys::affinity::voluntary_switches();
    sleep(SLEEP);
    if squall_sys::affinity::voluntary_switches() == before {
        eprintln!("SKIP: the system does not count switches here");
        return;
    }
    let slow = |nested: bool| {
        pin(|_| if nested { pin(|_| sleep(SLEEP)) } else { sleep(SLEEP) });
        line!() - 1
    };
    let here = slow(false);
    slow(true);
    let told: Vec<_> = TOLD.lock().unwrap().drain(..).collect();
    assert!(told.iter().all(|stall| stall.has_blocked && stall.since >= SLEEP), "{told:?}");
    let of_here = |stall: &&Stall| stall.began.is_some_and(|at| at.file() == file!() && at.line() == here);
    assert_eq!(told.iter().filter(of_here).count(), 1, "{told:?}");
    assert_eq!(told.len(), 2, "the handler's own place is the other one: {told:?}");
    let text = told.iter().find(of_here).unwrap().to_string();
    assert!(text.contains("slept or waited inside an operation") && text.contains("blocked.rs"), "{text}");
    assert!(text.contains("an allocation that waited counts, too; reported once per place"), "{text}");
    // A frequent place is measured now and then.
    for turn in 0..64 {
        pin(|_| {
            if turn > 10 {
                sleep(SLEEP)
            }
        });
    }
    assert_eq!(TOLD.lock().unwrap().len(), 1);
    // The author of an operation cannot avoid a contended lock of Squall's.
    TOLD.lock().unwrap().clear();
    pin(|_| {
        squall_sys::waits::count_sleep();
        sleep(SLEEP);
    });
    assert!(TOLD.lock().unwrap().is_empty());
}
