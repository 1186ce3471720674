//! The engine with families that misbehave, settings that change, and loads that are hard to recognize. Each
//! thread runs on the VP that a test gives it.

use crate::common::{alone, eventually, form, made, on};
use squall_adapt::control::{self, Verdict};
use squall_adapt::family::{self, Cost, Family, Form, Load, Reading, Shape};
use squall_adapt::{engine, settings};
use squall_core::swap::{Replacement, State, StateFormats, arbitrate};
use squall_core::{CallError, Handle, Id, Owned, info_of, swappable_with};
use squall_macros::interface;
use squall_objects::counter::{Counter, DISTRIBUTED, SHARED};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Runs `f` while `vps` VPs repeat `body`.
fn with_crowd(vps: u32, body: impl Fn() + Sync, f: impl FnOnce()) {
    /// Sets the flag even if `f` panics, so that the threads end.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for vp in 0..vps {
            let (stop, body) = (&stop, &body);
            scope.spawn(move || {
                on(vp, || {
                    while !stop.load(Ordering::Relaxed) {
                        body();
                        // Lets all threads run, also on few processors.
                        thread::yield_now();
                    }
                });
            });
        }
        let _stop = Stop(&stop);
        f();
    });
}

fn adds(handle: Handle<dyn Counter>) -> impl Fn() + Sync {
    move || (0..256).for_each(|_| handle.inc())
}

// --- a family that the program defines ---

#[interface(crate = squall_core)]
trait Thing: Send + Sync {
    fn hit(&self);
}

struct Small(Handle<dyn Thing>);
struct Large;

impl Thing for Small {
    fn hit(&self) {
        engine::post(Handle::id(self.0));
    }
}
impl Thing for Large {
    fn hit(&self) {}
}

/// Number of attempted transfers of state, and whether they fail.
static TRIED: AtomicU32 = AtomicU32::new(0);
static FAILS: AtomicBool = AtomicBool::new(false);

impl State for Small {
    fn formats(formats: &mut StateFormats<'_, Small>) {
        formats.export(|_| Ok(())).import(|_, ()| Ok(()));
    }
}
impl State for Large {
    fn formats(formats: &mut StateFormats<'_, Large>) {
        formats.export(|_| Ok(())).import(|_, ()| {
            TRIED.fetch_add(1, Ordering::Relaxed);
            if FAILS.load(Ordering::Relaxed) { Err("it does not fit".into()) } else { Ok(()) }
        });
    }
}

/// Function in which the family panics: 0 for no function, then in the order of the trait.
static PANICS_IN: AtomicU32 = AtomicU32::new(0);
const READ: u32 = 1;
const JUDGE: u32 = 2;
const MAKE: u32 = 3;

fn panic_if(function: u32) {
    if PANICS_IN.compare_exchange(function, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        panic!("a family's bug, once");
    }
}

struct Things;
static THINGS: Things = Things;
static FORMS: [Form; 2] = [Form::of::<Small>("small"), Form::of::<Large>("large")];

impl Family for Things {
    type Interface = dyn Thing;

    fn name(&self) -> &'static str {
        "thing"
    }

    fn forms(&self) -> &'static [Form] {
        &FORMS
    }

    fn make(&self, shape: Shape, handle: Handle<dyn Thing>) -> Replacement<dyn Thing> {
        panic_if(MAKE);
        if shape.form == 0 { Replacement::swappable(Small(handle)) } else { Replacement::swappable(Large) }
    }

    fn read(&self, _: Handle<dyn Thing>) -> Result<Reading, CallError> {
        static READINGS: AtomicU64 = AtomicU64::new(0);
        panic_if(READ);
        Ok(Reading { foreign: READINGS.fetch_add(1000, Ordering::Relaxed), reps: 1, ..Reading::default() })
    }

    fn arm(&self, _: Handle<dyn Thing>, _: u32) -> Result<(), CallError> {
        Ok(())
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        panic_if(JUDGE);
        let large = Shape { form: 1, place: None };
        let cost = |shape, ns_per_s| Cost { shape, ns_per_s, bytes: 0 };
        vec![cost(load.shape, 9e8), cost(large, 1e8)]
    }
}

fn thing() -> (Owned<dyn Thing>, Id) {
    family::register(&THINGS);
    engine::start();
    let thing: Owned<dyn Thing> = swappable_with(Small).unwrap();
    let id = Handle::id(thing.handle());
    (thing, id)
}

#[test]
fn a_familys_panic_harms_nobody_and_its_object_adapts_all_the_same() {
    let _alone = alone();
    for function in [READ, JUDGE, MAKE] {
        let ((thing, thing_id), (counter, id)) = (thing(), made());
        let (thing, hits) = (thing.handle(), adds(counter.handle()));
        PANICS_IN.store(function, Ordering::Relaxed);
        with_crowd(
            3,
            || {
                (0..256).for_each(|_| thing.hit());
                hits();
            },
            || {
                eventually("the family panics", || PANICS_IN.load(Ordering::Relaxed) == 0);
                eventually("the counter grows", || form(id) == DISTRIBUTED);
                eventually("the object of that family grows", || form(thing_id) == "large");
            },
        );
    }
}

#[test]
fn a_swap_that_fails_is_tried_again_less_and_less_and_logged_once() {
    let _alone = alone();
    let (thing, id) = thing();
    let thing = thing.handle();
    TRIED.store(0, Ordering::Relaxed);
    FAILS.store(true, Ordering::Relaxed);
    with_crowd(
        2,
        || (0..256).for_each(|_| thing.hit()),
        || {
            eventually("it is tried three times", || TRIED.load(Ordering::Relaxed) >= 3);
            FAILS.store(false, Ordering::Relaxed);
            eventually("it grows when it can", || form(id) == "large");
        },
    );
    let failed =
        |verdict: &Verdict| matches!(verdict, Verdict::Failed(why) if why.contains("it does not fit"));
    let failures = control::history(id).iter().filter(|decision| failed(&decision.verdict)).count();
    assert_eq!(failures, 1, "{:?}", control::history(id));
}

#[test]
fn a_class_that_is_thawed_goes_on() {
    let _alone = alone();
    let (counter, id) = made();
    settings::ALL.set(&settings::FREEZE, true).unwrap();
    with_crowd(4, adds(counter.handle()), || {
        eventually("it is held", || !control::history(id).is_empty());
        assert_eq!(form(id), SHARED);
        settings::ALL.set(&settings::FREEZE, false).unwrap();
        eventually("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn an_object_whose_sensors_are_refused_is_looked_at_again() {
    let _alone = alone();
    let (counter, id) = made();
    let refused = std::sync::Arc::new(AtomicU32::new(0));
    let count = std::sync::Arc::clone(&refused);
    let arbiter = arbitrate(counter.handle(), move |call| {
        if call.method() == "sensors" {
            count.fetch_add(1, Ordering::Relaxed);
            call.refuse("a fault, injected");
        }
    });
    let arbiter = arbiter.unwrap();
    with_crowd(4, adds(counter.handle()), || {
        eventually("it is refused", || refused.load(Ordering::Relaxed) > 0);
        arbiter.detach();
        eventually("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn a_gauge_that_goes_up_and_down_is_not_taken_for_quiet() {
    let _alone = alone();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let (counter, id) = made();
    let handle = counter.handle();
    let up_and_down = || {
        (0..64).for_each(|_| {
            handle.inc();
            handle.sub(1);
        });
    };
    with_crowd(4, up_and_down, || {
        control::swap(id, DISTRIBUTED).unwrap();
        // Many idle periods, in each of which the engine may find an unchanged sum.
        thread::sleep(Duration::from_secs(2));
    });
    let folded = |decision: &control::Decision| decision.why.starts_with("nothing happened");
    assert!(!control::history(id).iter().any(folded), "{:?}", control::history(id));
    assert_eq!(handle.total(), 0);
}

#[test]
fn who_steers_makes_no_representatives() {
    let _alone = alone();
    let (counter, id) = made();
    control::freeze(id, true).unwrap();
    control::swap(id, DISTRIBUTED).unwrap();
    on(0, || counter.inc());
    let reps = info_of(id).unwrap().reps.len();
    for vp in 1..32 {
        on(vp, || control::set_attribute(id, "margin", "2").unwrap());
    }
    assert_eq!(info_of(id).unwrap().reps.len(), reps);
}

#[test]
fn half_a_swap_in_a_second_is_one_in_two() {
    let _alone = alone();
    settings::ALL.set(&settings::SWAPS, 0.5).unwrap();
    let (counter, id) = made();
    with_crowd(4, adds(counter.handle()), || eventually("it grows", || form(id) == DISTRIBUTED));
}
