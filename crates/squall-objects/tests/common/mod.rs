//! The machine on which adaptive counters are tested, and what the tests of it share.

use squall_adapt::{control, settings};
use squall_core::{Handle, Id, Owned};
use squall_machine::{Machine, Vp, machine};
use squall_objects::counter::{self, Counter};
use std::sync::{Mutex, MutexGuard, Once};
use std::thread;
use std::time::{Duration, Instant};

/// The machine of every test here. They run one after the other: what is set for all objects is set for all of them.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static MADE: Once = Once::new();
    static ALONE: Mutex<()> = Mutex::new(());
    MADE.call_once(|| {
        _ = Machine::set_virtual("nodes:2,caches:2,cores:4,threads:2".parse().unwrap()).unwrap()
    });
    assert_eq!(machine().vps().len(), 32);
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

/// Waits for something that must come; the limit is there for those who wait for a test that hangs.
pub(crate) fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "this does not come: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A counter, made on VP 0.
pub(crate) fn made() -> (Owned<dyn Counter>, Id) {
    let counter = on(0, counter::adaptive);
    let id = Handle::id(counter.handle());
    (counter, id)
}

pub(crate) fn form(id: Id) -> &'static str {
    control::status(id).expect("an adaptive counter that lives").form
}
