//! The engine with families that misbehave, settings that change, and loads that are hard to recognize. Each
//! thread runs on the VP that a test gives it.

use crate::common::{Crew, alone, eventually, form, made, on, virtual_time};
use squall_adapt::control::{self, Verdict};
use squall_adapt::family::{self, Cost, Family, Form, Load, Reading, Shape};
use squall_adapt::sensor::Alarm;
use squall_adapt::{engine, settings};
use squall_core::swap::{Replacement, State, StateFormats, arbitrate};
use squall_core::{CallError, Handle, Id, Owned, info_of, swappable_with};
use squall_macros::interface;
use squall_objects::counter::{Counter, DISTRIBUTED, SHARED};
use squall_objects::read_mostly::{self, ReadMostly as _, ReadMostlyExt as _};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

/// VPs that add to a counter.
fn adders(vps: &[u32], handle: Handle<dyn Counter>) -> Crew {
    Crew::new(vps, 256, move |calls| (0..calls).for_each(|_| handle.inc()))
}

/// VPs that call an object of the program's family.
fn hitters(vps: &[u32], thing: Handle<dyn Thing>) -> Crew {
    Crew::new(vps, 256, move |calls| (0..calls).for_each(|_| thing.hit()))
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

/// Number of estimates.
static JUDGED: AtomicU32 = AtomicU32::new(0);

/// Held while the family's sensors cannot be read.
static MAY_READ: Mutex<()> = Mutex::new(());
/// Whether a thread has begun to read them.
static READS: AtomicBool = AtomicBool::new(false);

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
        READS.store(true, Ordering::Relaxed);
        drop(MAY_READ.lock());
        panic_if(READ);
        Ok(Reading { foreign: READINGS.fetch_add(1000, Ordering::Relaxed), reps: 1, ..Reading::default() })
    }

    fn arm(&self, _: Handle<dyn Thing>, _: u32) -> Result<(), CallError> {
        Ok(())
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        panic_if(JUDGE);
        JUDGED.fetch_add(1, Ordering::Relaxed);
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
fn the_calls_of_a_frozen_object_are_counted_once() {
    let mut time = virtual_time();
    let (thing, id) = thing();
    let before = JUDGED.load(Ordering::Relaxed);
    control::freeze(id, true).unwrap();
    time.with(hitters(&[0, 1], thing.handle()), |time| {
        time.pass(Duration::from_secs(5));
        assert_eq!((form(id), JUDGED.load(Ordering::Relaxed) - before), ("small", 1));
        control::freeze(id, false).unwrap();
        time.until("it grows", || form(id) == "large");
    });
}

#[test]
fn objects_adapt_after_a_panic_of_their_family() {
    let mut time = virtual_time();
    for function in [READ, JUDGE, MAKE] {
        let ((thing, thing_id), (counter, id)) = (thing(), made());
        let (thing, counter) = (thing.handle(), counter.handle());
        PANICS_IN.store(function, Ordering::Relaxed);
        let both = move |calls| {
            (0..calls).for_each(|_| {
                thing.hit();
                counter.inc();
            });
        };
        time.with(Crew::new(&[0, 1, 2], 256, both), |time| {
            time.until("the family panics", || PANICS_IN.load(Ordering::Relaxed) == 0);
            time.until("the counter grows", || form(id) == DISTRIBUTED);
            time.until("the object of that family grows", || form(thing_id) == "large");
        });
    }
}

#[test]
fn a_failed_swap_is_tried_again_ever_more_rarely_and_recorded_once() {
    let mut time = virtual_time();
    let (thing, id) = thing();
    TRIED.store(0, Ordering::Relaxed);
    FAILS.store(true, Ordering::Relaxed);
    time.with(hitters(&[0, 1], thing.handle()), |time| {
        let mut tried = Vec::new();
        for attempt in 1..=5 {
            time.until("it is tried", || TRIED.load(Ordering::Relaxed) == attempt);
            tried.push(time.engine.now());
        }
        let pauses: Vec<Duration> = tried.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(pauses.is_sorted() && pauses[3] > pauses[0], "{pauses:?}");
        FAILS.store(false, Ordering::Relaxed);
        time.until("it grows when it can", || form(id) == "large");
    });
    let failed =
        |verdict: &Verdict| matches!(verdict, Verdict::Failed(why) if why.contains("it does not fit"));
    let failures = control::history(id).iter().filter(|decision| failed(&decision.verdict)).count();
    assert_eq!(failures, 1, "{:?}", control::history(id));
}

#[test]
fn an_object_of_a_class_that_is_thawed_adapts() {
    let mut time = virtual_time();
    let (counter, id) = made();
    settings::ALL.set(&settings::FREEZE, true).unwrap();
    time.with(adders(&[0, 1, 2, 3], counter.handle()), |time| {
        time.until("it is held", || !control::history(id).is_empty());
        assert_eq!(form(id), SHARED);
        settings::ALL.set(&settings::FREEZE, false).unwrap();
        time.until("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn an_object_with_rejected_sensor_calls_is_sampled_again() {
    let mut time = virtual_time();
    let (counter, id) = made();
    let refused = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&refused);
    let arbiter = arbitrate(counter.handle(), move |call| {
        if call.method() == "sensors" {
            count.fetch_add(1, Ordering::Relaxed);
            call.refuse("a fault, injected");
        }
    });
    let arbiter = arbiter.unwrap();
    time.with(adders(&[0, 1, 2, 3], counter.handle()), |time| {
        time.until("it is refused", || refused.load(Ordering::Relaxed) > 0);
        arbiter.detach();
        time.until("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn a_counter_that_goes_up_and_down_is_not_taken_for_quiet() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let (counter, id) = made();
    let handle = counter.handle();
    let up_and_down = move |calls| {
        (0..calls).for_each(|_| {
            handle.inc();
            handle.sub(1);
        });
    };
    time.with(Crew::new(&[0, 1, 2, 3], 64, up_and_down), |time| {
        control::swap(id, DISTRIBUTED).unwrap();
        // Twenty idle periods. At each sample the sum is unchanged.
        time.pass(Duration::from_secs(2));
    });
    let shrunk = |decision: &control::Decision| decision.why.starts_with("nothing happened");
    assert!(!control::history(id).iter().any(shrunk), "{:?}", control::history(id));
    assert_eq!(handle.total(), 0);
}

#[test]
fn a_thread_that_steers_an_object_makes_no_representatives() {
    let _time = virtual_time();
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
fn half_a_swap_per_second_allows_one_swap_in_two_seconds() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::SWAPS, 0.5).unwrap();
    let counters: [_; 3] = std::array::from_fn(|_| made());
    let handles = [0, 1, 2].map(|at: usize| counters[at].0.handle());
    let all = move |calls| (0..calls).for_each(|_| handles.iter().for_each(|handle| handle.inc()));
    let mut grown = Vec::new();
    time.with(Crew::new(&[0, 1, 2, 3], 256, all), |time| {
        for count in 1..=3 {
            let forms = || counters.iter().map(|(_, id)| form(*id));
            time.until("one more grows", || forms().filter(|form| *form == DISTRIBUTED).count() == count);
            grown.push(time.engine.now());
        }
    });
    assert!(grown[1] - grown[0] >= Duration::from_secs(2), "{grown:?}");
    assert!(grown[2] - grown[1] >= Duration::from_secs(2), "{grown:?}");
}

/// Makes the engine's thread wait in a family's code, and calls `then`.
fn while_the_engine_reads(then: impl FnOnce()) {
    let _alone = alone();
    let (thing, _) = thing();
    let may_not_read = MAY_READ.lock();
    READS.store(false, Ordering::Relaxed);
    thing.hit();
    eventually("a look", || READS.load(Ordering::Relaxed));
    then();
    drop(may_not_read);
}

/// Makes steps of an alarm that is off. Returns the number of pauses in them.
fn pauses_of_steps() -> u64 {
    let (before, waiting) = (engine::pauses(), Alarm::new(0));
    (0..10 * 256).for_each(|_| waiting.step(1, || unreachable!("the alarm is off")));
    engine::pauses() - before
}

#[test]
fn callers_pause_only_if_the_engines_thread_should_have_woken() {
    while_the_engine_reads(|| {
        // The thread has run since its wake-up, and waits for the program. If it were late, callers would
        // pause from 3 ms after the wake-up.
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(pauses_of_steps(), 0);
        engine::__plant_late();
        eventually("a pause", || pauses_of_steps() > 0);
        engine::set_pauses(false);
        assert_eq!(pauses_of_steps(), 0);
        engine::set_pauses(true);
        eventually("a pause", || pauses_of_steps() > 0);
    });
}

/// Notes the number of pauses at a wake-up.
struct Noting(AtomicU64);

impl Wake for Noting {
    fn wake(self: Arc<Noting>) {
        self.0.store(engine::pauses(), Ordering::Relaxed);
    }
}

#[test]
fn a_change_wakes_its_waiters_before_it_pauses() {
    while_the_engine_reads(|| {
        let value = read_mostly::adaptive(0_u32);
        let mut changes = value.subscribe();
        engine::__plant_late();
        eventually("a pause in a change", || {
            let noting = Arc::new(Noting(AtomicU64::new(u64::MAX)));
            let waker = Waker::from(noting.clone());
            let mut context = Context::from_waker(&waker);
            (0..256).any(|_| {
                // A change that is already there is taken.
                while changes.poll_changed(&mut context).is_ready() {}
                let before = engine::pauses();
                value.set(1);
                assert_eq!(noting.0.load(Ordering::Relaxed), before);
                engine::pauses() > before
            })
        });
    });
}
