//! Hot-swap with several threads that swap, arbitrate and destroy one object, and with misbehaving user code.

use crate::common::drops_panic;
use squall::swap::{Replacement, State, StateFormats, Swap, SwapFailure, SwapOutcome, arbitrate};
use squall::{CallError, Handle, ObjectState, Owned, info_of, rcu};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

#[squall::interface]
trait Base: Send + Sync {
    fn base_add(&self);
}

#[squall::interface]
trait Other: Send + Sync {
    fn other_add(&self);
}

/// An interface with three slots, one for each interface.
#[squall::interface]
trait Sum: Base + Other {
    fn add(&self);
    fn sum(&self) -> u64;
}

#[derive(Default)]
struct Plain(AtomicU64);

impl Base for Plain {
    fn base_add(&self) {
        self.add();
    }
}
impl Other for Plain {
    fn other_add(&self) {
        self.add();
    }
}
impl Sum for Plain {
    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }
    fn sum(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl State for Plain {
    fn formats(formats: &mut StateFormats<'_, Plain>) {
        formats.export(|this| Ok(this.sum())).import(|this, n: u64| {
            this.0.store(n, Relaxed);
            Ok(())
        });
    }
}

fn plain() -> Replacement<dyn Sum> {
    Replacement::swappable(Plain::default())
}

fn state_of(handle: Handle<dyn Sum>) -> Option<ObjectState> {
    info_of(Handle::id(handle)).map(|info| info.state)
}

/// The number of swaps, of arbitrations and of calls by each interface that a race goes on for, at least.
const RACE: u64 = if cfg!(miri) { 3 } else { 300 };

#[test]
fn co_34_one_mediation_after_another_loses_no_call_by_any_interface() {
    let owned: Owned<dyn Sum> = squall::swappable(Plain::default());
    let handle = owned.handle();
    let (base, other): (Handle<dyn Base>, Handle<dyn Other>) =
        (Handle::upcast(handle), Handle::upcast(handle));
    let stop = AtomicBool::new(false);
    let (swapped, arbitrated) = (AtomicU64::new(0), AtomicU64::new(0));
    let called = [const { AtomicU64::new(0) }; 3];
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    // A call that was preempted in the object must not end the swap.
                    let swap = Swap::new(handle).drain_timeout(Duration::from_secs(600));
                    swapped.fetch_add(u64::from(swap.run(plain()).is_ok()), Relaxed);
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                if let Ok(arbiter) = arbitrate(handle, |_| ()) {
                    arbitrated.fetch_add(1, Relaxed);
                    arbiter.detach();
                }
            }
        });
        let (stop, called) = (&stop, &called);
        let calls = |interface: usize, add: &dyn Fn()| {
            while !stop.load(Relaxed) {
                add();
                called[interface].fetch_add(1, Relaxed);
            }
        };
        scope.spawn(move || calls(0, &|| handle.add()));
        scope.spawn(move || calls(1, &|| base.base_add()));
        scope.spawn(move || calls(2, &|| other.other_add()));
        while [&swapped, &arbitrated].into_iter().chain(called).any(|count| count.load(Relaxed) < RACE) {
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Relaxed);
    });
    let calls = called.into_iter().map(AtomicU64::into_inner).sum::<u64>();
    assert_eq!(handle.sum(), calls, "{swapped:?} swaps, {arbitrated:?} arbitrations");
    assert_eq!(state_of(handle), Some(ObjectState::Live));
    Owned::destroy(owned).wait().unwrap();
}

#[test]
fn co_33_a_destruction_among_swaps_and_arbitrations_is_final() {
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        let owned: Owned<dyn Sum> = squall::swappable(Plain::default());
        let handle = owned.handle();
        handle.add();
        let destroyed = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| _ = Swap::new(handle).run(plain()));
            scope.spawn(|| drop(arbitrate(handle, |_| ())));
            scope.spawn(|| {
                // `destroyed` is read before the call, and the fence keeps that order.
                while {
                    let before = destroyed.load(Relaxed);
                    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
                    let answered = handle.try_sum().is_ok();
                    assert!(!(before && answered), "a call was answered after the object was destroyed");
                    answered
                } {}
            });
            let done = Owned::destroy(owned);
            std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
            destroyed.store(true, Relaxed);
            assert!(handle.try_sum().is_err(), "after the object was destroyed");
            done.wait().unwrap();
        });
        assert_eq!(state_of(handle), None);
    }
}

#[test]
fn co_37_a_thread_in_a_call_of_an_arbitrated_object_parks_as_others_do() {
    #[squall::interface]
    trait Home: Send + Sync {
        #[blocking]
        fn live(&self, sum: Handle<dyn Sum>, until: &AtomicBool);
    }
    struct House;
    impl Home for House {
        fn live(&self, sum: Handle<dyn Sum>, until: &AtomicBool) {
            while !until.load(Relaxed) {
                sum.add();
            }
        }
    }
    let home: Owned<dyn Home> = squall::shared(House);
    let arbiter = arbitrate(home.handle(), |_| ()).unwrap();
    let owned: Owned<dyn Sum> = squall::swappable(Plain::default());
    let (handle, house) = (owned.handle(), home.handle());
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        (0..3).for_each(|_| _ = scope.spawn(|| house.live(handle, &stop)));
        while handle.sum() == 0 {
            thread::yield_now();
        }
        let swapped = Swap::new(handle).drain_timeout(Duration::from_secs(600)).run(plain());
        stop.store(true, Relaxed);
        assert!(swapped.unwrap().outcome == SwapOutcome::Swapped);
    });
    drop(arbiter);
}

#[test]
fn x_02_durations_beyond_the_clock_mean_no_limit() {
    let owned: Owned<dyn Sum> = squall::swappable(Plain::default());
    let swap = Swap::new(owned.handle()).drain_timeout(Duration::MAX).timeout(Duration::MAX);
    swap.clone().run(plain()).unwrap();
    swap.run(plain()).unwrap();
    assert_eq!(state_of(owned.handle()), Some(ObjectState::Live));
}

/// A value with the import function of a test.
struct Strange(fn() -> Result<(), Box<dyn std::error::Error + Send + Sync>>);

impl Base for Strange {
    fn base_add(&self) {}
}
impl Other for Strange {
    fn other_add(&self) {}
}
impl Sum for Strange {
    fn add(&self) {}
    fn sum(&self) -> u64 {
        0
    }
}
impl State for Strange {
    fn formats(formats: &mut StateFormats<'_, Strange>) {
        formats.import(|this, _: u64| (this.0)());
    }
}

/// Swaps an object for one with this import function. Returns the failure, and checks that the object goes on
/// serving.
fn fails(
    import: fn() -> Result<(), Box<dyn std::error::Error + Send + Sync>>,
    handle: Handle<dyn Sum>,
) -> SwapFailure {
    handle.add();
    let before = handle.sum();
    let error = Swap::new(handle).run(Replacement::swappable(Strange(import))).unwrap_err();
    let failure = error.failure();
    // The drop of the error may panic.
    std::mem::forget(error);
    assert_eq!(state_of(handle), Some(ObjectState::Live));
    assert_eq!(handle.sum(), before);
    Swap::new(handle).run(plain()).unwrap();
    assert_eq!(handle.sum(), before);
    failure
}

#[test]
fn pitfall_12_a_transfer_cannot_wait_for_a_grace_period() {
    static WAITS: Mutex<Vec<rcu::WaitError>> = Mutex::new(Vec::new());
    let owned: Owned<dyn Sum> = squall::swappable(Plain::default());
    let failure = fails(
        || {
            let errors = [rcu::wait(), rcu::barrier().map(drop), rcu::wait_until(Instant::now())];
            WAITS.lock().unwrap().extend(errors.into_iter().filter_map(Result::err));
            Err("as asked".into())
        },
        owned.handle(),
    );
    assert_eq!(failure, SwapFailure::TransferFailed);
    assert_eq!(*WAITS.lock().unwrap(), [rcu::WaitError::InTransfer; 3]);
    rcu::wait().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "the error whose drop panics is leaked")]
fn pitfall_09_an_error_may_panic_in_its_drop() {
    let _guard = drops_panic();
    #[derive(Debug)]
    struct Bad;
    impl fmt::Display for Bad {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("bad")
        }
    }
    impl std::error::Error for Bad {}
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("the drop of an error");
        }
    }
    static CO: OnceLock<Handle<dyn Sum>> = OnceLock::new();
    let owned: Owned<dyn Sum> = squall::swappable(Plain::default());
    CO.set(owned.handle()).unwrap();
    // The import would wait for the swap, so its own error is discarded.
    let failure = fails(
        || {
            let parked: Result<u64, CallError> = CO.get().unwrap().try_sum();
            assert!(parked.is_err());
            Err(Box::new(Bad))
        },
        owned.handle(),
    );
    assert_eq!(failure, SwapFailure::TransferFailed);
}
