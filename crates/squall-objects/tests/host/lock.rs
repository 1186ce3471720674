//! Tests of the adaptive lock.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall_adapt::control;
use squall_adapt::decision::Verdict;
use squall_core::Handle;
use squall_objects::lock::{AdaptiveLock, LockView, Wanted};
use squall_policy::attribute;

/// Locks out the other tests, since class settings and the load of the processors affect all locks.
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Runs threads that each hold the lock for `hold` repeatedly, until a condition is true.
fn fight<T: Send>(lock: &AdaptiveLock<T>, threads: usize, hold: Duration, until: impl Fn() -> bool) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _guard = lock.lock();
                    if hold > Duration::from_micros(100) {
                        thread::sleep(hold);
                    } else {
                        let begun = Instant::now();
                        while begun.elapsed() < hold {
                            std::hint::spin_loop();
                        }
                    }
                }
            });
        }
        while !until() {
            thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Ordering::Relaxed);
    });
}

const LONG: Duration = Duration::from_millis(1);

#[test]
fn a_lock_that_nobody_fights_over_stays_as_it_is() {
    let lock = AdaptiveLock::new(0u64);
    for _ in 0..10_000 {
        *lock.lock() += 1;
    }
    assert_eq!((*lock.lock(), lock.form()), (10_000, "turns"));
    assert!(lock.view().is_none() && lock.history().is_empty());
    assert_eq!(lock.monitor().contended, 0);
}

#[test]
fn kt_17_long_sections_are_slept_for_and_the_log_says_why() {
    let _alone = alone();
    let lock = AdaptiveLock::named("long", ());
    let swap = || lock.history().into_iter().rfind(|decision| decision.verdict == Verdict::Swapped);
    fight(&lock, 3, LONG, || lock.form() == "block" && swap().is_some_and(|decision| decision.to == "block"));
    let last = swap().unwrap();
    assert_eq!((last.from, last.to, last.family), ("turns", "block", "lock"));
    assert!(last.why.contains("held for"), "{}", last.why);
    let view = lock.view().unwrap();
    assert_eq!((view.name(), view.form()), ("long", "block"));
    assert!(view.monitor().contended > 0);
    assert!(control::recent().iter().any(|decision| decision.id == Handle::id(view)));
}

#[test]
fn what_a_lock_shows_ends_with_it() {
    let _alone = alone();
    let lock = AdaptiveLock::new(());
    lock.set_form(Wanted::Block);
    let view: Handle<dyn LockView> = lock.view().unwrap();
    assert_eq!(view.form(), "block");
    drop(lock);
    assert!(view.try_form().is_err());
}

#[test]
fn a_form_that_was_asked_for_stays() {
    let _alone = alone();
    let lock = AdaptiveLock::new(());
    for (form, name) in [
        (Wanted::HandOff, "hand-off"),
        (Wanted::StandBy, "stand-by"),
        (Wanted::Block, "block"),
        (Wanted::Turns, "turns"),
    ] {
        lock.set_form(form);
        assert_eq!(lock.form(), name);
        assert_eq!(lock.history().last().unwrap().verdict, Verdict::ByHand);
    }
    let before = lock.monitor().contended;
    fight(&lock, 3, LONG, || lock.monitor().contended > before + 200);
    assert_eq!(lock.form(), "turns");
    lock.set_form(Wanted::Auto);
    fight(&lock, 3, LONG, || lock.form() == "block");
}

#[test]
fn it_is_steered_by_its_attributes_as_a_person_would() {
    let _alone = alone();
    let lock = AdaptiveLock::new(());
    lock.set_form(Wanted::Turns);
    lock.set_form(Wanted::StandBy);
    let id = Handle::id(lock.view().unwrap());
    let names: Vec<_> = control::attributes(id).unwrap().iter().map(|info| info.name).collect();
    assert_eq!(names, ["freeze", "dry-run", "cooldown", "form"]);
    control::set_attribute(id, "freeze", "true").unwrap();
    control::set_attribute(id, "form", "auto").unwrap();
    let wrong = control::set_attribute(id, "form", "fast").unwrap_err().to_string();
    assert!(wrong.contains("hand-off"), "{wrong}");
    fight(&lock, 3, LONG, || {
        lock.history().iter().any(|decision| matches!(decision.verdict, Verdict::Held(_)))
    });
    assert_eq!(lock.form(), "stand-by");
    control::set_attribute(id, "freeze", "false").unwrap();
    control::set_attribute(id, "dry-run", "true").unwrap();
    fight(&lock, 3, LONG, || lock.history().iter().any(|decision| decision.verdict == Verdict::DryRun));
    assert_eq!(lock.form(), "stand-by");
    assert!(attribute::values_of(id).is_some());
}

#[test]
fn every_form_excludes() {
    let _alone = alone();
    for form in [Wanted::Turns, Wanted::HandOff, Wanted::StandBy, Wanted::Block, Wanted::Auto] {
        let lock = AdaptiveLock::new((0u64, 0u64));
        lock.set_form(form);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let mut pair = lock.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), (8_000, 8_000));
    }
}

#[test]
fn it_is_used_as_any_lock() {
    let mut lock = AdaptiveLock::from(vec![1]);
    lock.get_mut().push(2);
    {
        let guard = lock.try_lock().unwrap();
        assert!(lock.is_locked() && lock.try_lock().is_none());
        thread::scope(|scope| {
            let other = scope.spawn(|| lock.try_lock_for(Duration::from_millis(2)).is_none());
            assert!(other.join().unwrap());
        });
        assert_eq!(guard.len(), 2);
        assert!(format!("{lock:?}").contains("<locked>"));
    }
    assert!(lock.try_lock_until(Instant::now()).is_some());
    assert!(format!("{lock:?}").contains("[1, 2]"));
    assert_eq!(AdaptiveLock::<u8>::default().into_inner(), 0);
    assert_eq!(format!("{}", AdaptiveLock::new(7).lock()), "7");
    let size = size_of::<AdaptiveLock<()>>();
    assert!(size <= 320, "{size}");
}
