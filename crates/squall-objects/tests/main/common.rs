//! The virtual machine of these tests, and helpers that several of them use.

use squall_adapt::{control, settings};
use squall_core::{Handle, Id, Owned};
use squall_machine::{Machine, Vp, machine};
use squall_objects::counter::{self, Counter};
use std::sync::{Mutex, MutexGuard, Once};
use std::thread;
use std::time::{Duration, Instant};

/// VPs of the machine: two nodes of two caches of four cores of two threads.
pub(crate) const VPS: u32 = 32;

/// Locks out the other tests, makes the machine if this is the first test, and resets all settings.
///
/// The tests run one at a time, since settings, freezes and statistics apply to all objects of the process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MADE: Once = Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    MADE.call_once(|| {
        _ = Machine::set_virtual("nodes:2,caches:2,cores:4,threads:2".parse().unwrap()).unwrap()
    });
    assert_eq!(machine().vps().len(), VPS as usize);
    let guard = ALONE.lock().unwrap_or_else(|poison| poison.into_inner());
    for info in settings::ALL.list() {
        settings::ALL.unset(info.name).unwrap();
    }
    control::freeze_all(false);
    control::dry_run_all(false);
    guard
}

pub(crate) fn on<T>(vp: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

/// Waits until `is_so` returns true. Panics after five minutes, so that a test that hangs ends.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(300), "waited 300 s in vain: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Makes an adaptive counter on VP 0.
pub(crate) fn made() -> (Owned<dyn Counter>, Id) {
    let counter = on(0, counter::adaptive);
    let id = Handle::id(counter.handle());
    (counter, id)
}

pub(crate) fn form(id: Id) -> &'static str {
    control::status(id).expect("an adaptive counter that lives").form
}
