//! Adaptive objects of the program's own types, without sensors. Each test has types of its own where it
//! changes their behaviour. All tests run on virtual time, and each call on the VP that a test gives it.

use crate::common::{Crew, Time, eventually, form, on, virtual_time};
use squall_adapt::adaptive::{Adaptive, DISTRIBUTED, SHARED, adaptive};
use squall_adapt::control::{self, Verdict};
use squall_adapt::family::Reading;
use squall_adapt::sensor::Sensor;
use squall_adapt::{engine, settings};
use squall_core::swap::{RootFormats, State, StateFormats};
use squall_core::{Handle, Id, Owned, RepContext, Root, info_of};
use squall_machine::ClusterSize;
use squall_macros::interface;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

#[interface(crate = squall_core)]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn get(&self) -> u64;
    fn total(&self) -> u64;
}

/// Declares a shared form and a distributed form.
macro_rules! forms {
    ($shared:ident, $root:ident, $local:ident) => {
        #[derive(Default)]
        struct $shared(AtomicU64);

        impl Hits for $shared {
            fn add(&self, n: u64) {
                self.0.fetch_add(n, Relaxed);
            }
            fn get(&self) -> u64 {
                self.0.load(Relaxed)
            }
            fn total(&self) -> u64 {
                self.0.load(Relaxed)
            }
        }

        struct $root;

        #[repr(align(128))]
        struct $local {
            count: AtomicU64,
            context: RepContext<$root>,
        }

        impl Hits for $local {
            fn add(&self, n: u64) {
                self.count.fetch_add(n, Relaxed);
            }
            fn get(&self) -> u64 {
                self.count.load(Relaxed)
            }
            fn total(&self) -> u64 {
                self.context.reps().map(|rep| rep.count.load(Relaxed)).sum()
            }
        }

        impl Root for $root {
            type Interface = dyn Hits;
            type Rep = $local;

            fn make_rep(&self, context: RepContext<$root>) -> $local {
                $local { count: AtomicU64::new(0), context }
            }
            fn formats(formats: &mut RootFormats<'_, $root>) {
                formats
                    .export_part(|_, rep| Ok(rep.count.load(Relaxed)))
                    .import_part(|_, rep, n: u64| Ok(rep.add(n)));
            }
        }
    };
}

/// Declares the state of a shared form, with a function that is called when it has moved.
macro_rules! state {
    ($shared:ident, $moved:expr) => {
        impl State for $shared {
            fn formats(formats: &mut StateFormats<'_, $shared>) {
                formats.export_part(|this| Ok(this.total())).import_part(|this, n: u64| Ok(this.add(n)));
            }
            fn moved(&self) {
                $moved(self.0.load(Relaxed));
            }
        }
    };
}

forms!(Word, Spread, Local);
/// Sum of the states that have moved away from a `Word`.
static MOVED: AtomicU64 = AtomicU64::new(0);
state!(Word, |n| MOVED.fetch_add(n, Relaxed));

static HITS: Adaptive<Word, Spread> =
    Adaptive::new(Word::default, || Spread).global(&["total"]).reads(&["get"]);

fn made() -> (Owned<dyn Hits>, Id) {
    let hits = on(0, || HITS.create());
    let id = Handle::id(hits.handle());
    (hits, id)
}

/// VPs that add to an object, and the sum that they added.
fn adders(vps: &[u32], hits: Handle<dyn Hits>) -> (Crew, Arc<AtomicU64>) {
    let added = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&added);
    let body = move |calls: u32| {
        (0..calls).for_each(|_| hits.add(1));
        count.fetch_add(u64::from(calls), Relaxed);
    };
    (Crew::new(vps, 32, body), added)
}

/// Has four VPs add to an object until it is distributed. Returns the sum that they added.
fn grow(time: &mut Time, hits: Handle<dyn Hits>) -> u64 {
    let (crew, added) = adders(&[0, 1, 2, 3], hits);
    let id = Handle::id(hits);
    time.with(crew, |time| time.until("the object is distributed", || form(id) == DISTRIBUTED));
    added.load(Relaxed)
}

fn swaps(id: Id) -> usize {
    control::history(id).iter().filter(|decision| decision.verdict == Verdict::Swapped).count()
}

#[test]
fn an_object_grows_where_several_vps_call_and_shrinks_when_it_is_quiet() {
    let mut time = virtual_time();
    let (hits, id) = made();
    let before = info_of(id).unwrap();
    assert_eq!((form(id), before.reps.len()), (SHARED, 1));
    // Values of earlier tests add to the sum when they are dropped.
    squall_rcu::barrier().unwrap();
    MOVED.store(0, Relaxed);
    let added = grow(&mut time, hits.handle());
    assert_eq!(hits.total(), added);
    (0..4).for_each(|vp| on(vp, || hits.add(0)));
    assert!(info_of(id).unwrap().reps.len() >= 4);
    time.until("the object shrinks", || form(id) == SHARED);
    assert_eq!(hits.total(), added);
    assert_eq!(info_of(id).unwrap().bytes, before.bytes, "its memory comes back");
    let history = control::history(id);
    let [grown, shrunk] = &history[..] else { panic!("{history:?}") };
    assert_eq!((grown.from, grown.to, &grown.verdict), (SHARED, DISTRIBUTED, &Verdict::Swapped));
    assert!(grown.why.contains("4 processors") && grown.readings().contains("add"), "{grown}");
    assert!(shrunk.why.starts_with("nothing happened for"), "{shrunk}");
    // Before it is dropped.
    eventually("the first value is told that its state has moved", || MOVED.load(Relaxed) > 0);
    assert!(MOVED.load(Relaxed) <= added);
}

#[test]
fn an_object_shrinks_when_one_vp_is_left() {
    let mut time = virtual_time();
    let (hits, id) = made();
    grow(&mut time, hits.handle());
    time.with(adders(&[2], hits.handle()).0, |time| {
        time.until("the object shrinks", || form(id) == SHARED);
        time.pass(Duration::from_secs(10));
    });
    let history = control::history(id);
    assert!(history[1].why.starts_with("only VP 2 has called it for"), "{history:?}");
    assert_eq!(swaps(id), 2, "it stays shared");
}

#[test]
fn an_object_stays_distributed_while_two_vps_call() {
    let mut time = virtual_time();
    let (hits, id) = made();
    grow(&mut time, hits.handle());
    time.with(adders(&[2, 9], hits.handle()).0, |time| time.pass(Duration::from_secs(10)));
    assert_eq!((form(id), swaps(id)), (DISTRIBUTED, 1));
}

#[test]
fn an_object_of_one_vp_is_left_alone_and_the_engine_keeps_nothing_of_it() {
    let mut time = virtual_time();
    let (hits, id) = made();
    let known = control::statuses().len();
    on(0, || (0..100).for_each(|_| hits.add(1)));
    // Objects of earlier tests are examined once.
    time.pass(Duration::from_secs(2));
    time.with(adders(&[0], hits.handle()).0, |time| time.pass(Duration::from_secs(5)));
    assert!(time.engine.is_idle());
    assert_eq!((control::history(id).len(), control::statuses().len()), (0, known));
    let status = control::status(id).unwrap();
    assert_eq!((status.family, status.form), ("Hits", SHARED));
    assert_eq!(status.forms, [SHARED, DISTRIBUTED]);
}

#[test]
fn a_thread_that_moves_to_another_vp_grows_nothing_and_the_engine_sleeps_again() {
    let mut time = virtual_time();
    let (hits, id) = made();
    for vp in [0, 5, 6] {
        time.with(adders(&[vp], hits.handle()).0, |time| time.pass(Duration::from_secs(20)));
        assert_eq!(form(id), SHARED);
        assert!(time.engine.is_idle(), "VP {vp} calls alone");
    }
    assert_eq!(swaps(id), 0);
}

#[test]
fn readers_leave_an_object_shared_and_are_looked_at_ever_more_rarely() {
    let mut time = virtual_time();
    let (hits, id) = made();
    let handle = hits.handle();
    let writes = Arc::new(AtomicBool::new(false));
    let may_write = Arc::clone(&writes);
    let body = move |calls| {
        let write = may_write.load(Relaxed);
        (0..calls).for_each(|_| if write { handle.add(1) } else { _ = handle.get() });
    };
    time.with(Crew::new(&[0, 1, 2, 3], 32, body), |time| {
        // Looks after 0.2, 0.4, … 6.4 s. Each costs each VP at most two misses.
        time.pass(Duration::from_secs(13));
        assert_eq!(form(id), SHARED);
        let before = info_of(id).unwrap().misses;
        time.pass(Duration::from_secs(20));
        let misses = info_of(id).unwrap().misses - before;
        assert!((4 * 3..=4 * 4 * 2).contains(&misses), "{misses}");
        writes.store(true, Relaxed);
        time.until("the object grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn an_object_that_few_calls_share_stays_shared() {
    let mut time = virtual_time();
    let (hits, id) = made();
    let handle = hits.handle();
    let crew = Crew::new(&[0, 1, 2, 3], 1, move |calls| (0..calls).for_each(|_| handle.add(1)));
    time.with(crew, |time| time.pass(Duration::from_secs(20)));
    assert_eq!((form(id), swaps(id)), (SHARED, 0));
    grow(&mut time, handle);
}

#[test]
fn a_distributed_object_shrinks_where_most_calls_are_global() {
    let mut time = virtual_time();
    let (hits, id) = made();
    let handle = hits.handle();
    grow(&mut time, handle);
    let mostly_totals = move |calls| {
        for _ in 0..calls {
            handle.add(1);
            (0..99).for_each(|_| _ = std::hint::black_box(handle.total()));
        }
    };
    time.with(Crew::new(&[0, 1, 2, 3], 16, mostly_totals), |time| {
        time.until("the object shrinks", || form(id) == SHARED);
    });
    let shrunk = control::history(id).pop().unwrap();
    assert!(shrunk.readings().contains("total"), "{shrunk}");
}

#[test]
fn a_load_that_alternates_does_not_make_an_object_flap() {
    for half in [5, 50, 400, 3_000] {
        let mut time = virtual_time();
        let (hits, id) = made();
        let handle = hits.handle();
        let mut crews = [adders(&[0, 1, 2, 3], handle).0, adders(&[0], handle).0];
        let mut passed = Duration::ZERO;
        time.engine.set_load(move |span| {
            passed += span;
            crews[(passed.as_millis() / half % 2) as usize].work(span);
        });
        time.pass(Duration::from_secs(10));
        time.engine.clear_load();
        // It grows once, and one VP is never alone for three seconds and a second more.
        assert_eq!((form(id), swaps(id)), (DISTRIBUTED, 1), "half {half} ms: {:?}", control::history(id));
    }
}

#[test]
fn a_free_function_needs_no_static_and_settings_hold_for_objects_of_own_types() {
    forms!(Word, Spread, Local);
    state!(Word, |_| ());
    let mut time = virtual_time();
    let hits = on(0, || adaptive(Word::default, || Spread));
    let again = on(0, || adaptive(Word::default, || Spread));
    for hits in [&hits, &again] {
        let id = Handle::id(hits.handle());
        control::freeze(id, true).unwrap();
        time.with(adders(&[0, 1, 2, 3], hits.handle()).0, |time| {
            time.pass(Duration::from_secs(2));
            assert_eq!(form(id), SHARED);
            control::freeze(id, false).unwrap();
            time.until("the object grows", || form(id) == DISTRIBUTED);
        });
        control::swap(id, SHARED).unwrap();
        control::swap(id, DISTRIBUTED).unwrap();
        assert_eq!(form(id), DISTRIBUTED);
    }
}

#[test]
fn clusters_share_a_representative() {
    forms!(Word, Spread, Local);
    state!(Word, |_| ());
    static HITS: Adaptive<Word, Spread> =
        Adaptive::new(Word::default, || Spread).cluster(ClusterSize::Cache).costs(5.0, 5.0, 2.0);
    let mut time = virtual_time();
    let hits = on(0, || HITS.create());
    let (handle, id) = (hits.handle(), Handle::id(hits.handle()));
    // VPs of one cluster would share the line of its representative.
    time.with(adders(&[0, 1], handle).0, |time| time.pass(Duration::from_secs(5)));
    assert_eq!(form(id), SHARED);
    time.with(adders(&[0, 8, 16, 24], handle).0, |time| {
        time.until("the object grows", || form(id) == DISTRIBUTED);
    });
    (0..32).for_each(|vp| on(vp, || handle.add(1)));
    assert_eq!(info_of(id).unwrap().reps.len(), 4);
}

/// Number of calls of a maker that panic.
static PANICS: AtomicU32 = AtomicU32::new(0);

fn panic_once() {
    if PANICS.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok() {
        panic!("a maker's bug");
    }
}

#[test]
fn a_maker_that_panics_leaves_the_object_in_its_form() {
    forms!(Word, Spread, Local);
    state!(Word, |_| ());
    static HITS: Adaptive<Word, Spread> = Adaptive::new(
        || {
            panic_once();
            Word::default()
        },
        || {
            panic_once();
            Spread
        },
    );
    let mut time = virtual_time();
    let hits = on(0, || HITS.create());
    let (handle, id) = (hits.handle(), Handle::id(hits.handle()));
    let failures = || {
        let is_failure = |verdict: &Verdict| matches!(verdict, Verdict::Failed(why) if why.contains("panic"));
        control::history(id).iter().filter(|decision| is_failure(&decision.verdict)).count()
    };
    PANICS.store(1, Relaxed);
    let (crew, added) = adders(&[0, 1, 2, 3], handle);
    time.with(crew, |time| {
        time.until("the maker of the root panics", || failures() == 1);
        assert_eq!(form(id), SHARED);
        time.until("the object grows", || form(id) == DISTRIBUTED);
    });
    PANICS.store(1, Relaxed);
    time.until("the maker of the shared form panics", || failures() == 2);
    assert_eq!((form(id), hits.total()), (DISTRIBUTED, added.load(Relaxed)));
    time.until("the object shrinks", || form(id) == SHARED);
    assert_eq!(hits.total(), added.load(Relaxed));
    // Before it has a form, the creator gets the panic.
    PANICS.store(1, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| HITS.create())).is_err());
    assert_eq!(HITS.create().total(), 0);
}

#[test]
fn an_object_may_be_destroyed_at_any_time() {
    let mut time = virtual_time();
    // The object ends before, in and after a look, and before and after it has grown.
    for after in (0..12).chain([150, 1300]) {
        let (hits, id) = made();
        let handle = hits.handle();
        let (mut owner, mut passed) = (Some(hits), Duration::ZERO);
        let body = move |calls: u32| (0..calls).for_each(|_| _ = handle.try_add(1));
        let mut crew = Crew::new(&[0, 1], 64, body);
        time.engine.set_load(move |span| {
            crew.work(span / 2);
            passed += span;
            if passed >= Duration::from_micros(after * 500) {
                drop(owner.take());
            }
            crew.work(span / 2);
        });
        time.pass(Duration::from_secs(1));
        time.engine.clear_load();
        assert!(handle.try_total().is_err() && control::status(id).is_none());
    }
    time.pass(Duration::from_secs(2));
    assert!(control::statuses().iter().all(|status| info_of(status.id).is_some()));
    let (steady, _) = made();
    assert_eq!(grow(&mut time, steady.handle()), steady.total());
}

#[test]
fn a_class_belongs_to_one_family() {
    forms!(Word, Spread, Local);
    state!(Word, |_| ());
    static FIRST: Adaptive<Word, Spread> = Adaptive::new(Word::default, || Spread);
    static SECOND: Adaptive<Word, Spread> = Adaptive::new(Word::default, || Spread);
    let _time = virtual_time();
    let _first = FIRST.create();
    let panic = catch_unwind(|| SECOND.create()).unwrap_err();
    let text = panic.downcast_ref::<String>().unwrap();
    assert!(text.contains("Spread") && text.contains("belong to another family"), "{text}");
}

#[test]
fn a_short_quiet_time_holds() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let (hits, id) = made();
    grow(&mut time, hits.handle());
    let grown = time.engine.now();
    time.until("the object shrinks", || form(id) == SHARED);
    assert!(time.engine.now() - grown < Duration::from_secs(1));
}

#[interface(crate = squall_core)]
trait Sensed: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
    fn reading(&self) -> Reading;
    fn arm(&self, after: u32);
}

/// The shared form: calls that come from another VP than the previous call trip the sensor.
struct SensedWord(AtomicU64, Sensor, Handle<dyn Sensed>);

impl Sensed for SensedWord {
    fn add(&self, n: u64) {
        self.1.note_call(|| engine::post(Handle::id(self.2)));
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn reading(&self) -> Reading {
        self.1.reading()
    }
    fn arm(&self, after: u32) {
        self.1.arm(after);
    }
}

impl State for SensedWord {
    fn formats(formats: &mut StateFormats<'_, SensedWord>) {
        formats.export_part(|this| Ok(this.total())).import_part(|this, n: u64| {
            this.add(n);
            Ok(())
        });
    }
}

/// The distributed form: global calls trip the sensor of the caller's representative.
struct SensedSpread;
struct SensedLocal(AtomicU64, Sensor, RepContext<SensedSpread>);

impl Sensed for SensedLocal {
    fn add(&self, n: u64) {
        self.1.note_call(|| true);
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.1.note_global(|| engine::post(Handle::id(self.2.handle())));
        self.2.reps().map(|rep| rep.0.load(Relaxed)).sum()
    }
    fn reading(&self) -> Reading {
        self.2.reps().map(|rep| rep.1.reading()).sum()
    }
    fn arm(&self, after: u32) {
        self.2.reps().for_each(|rep| rep.1.arm(after));
    }
}

impl Root for SensedSpread {
    type Interface = dyn Sensed;
    type Rep = SensedLocal;

    fn make_rep(&self, context: RepContext<SensedSpread>) -> SensedLocal {
        SensedLocal(AtomicU64::new(0), Sensor::new(), context)
    }
    fn formats(formats: &mut RootFormats<'_, SensedSpread>) {
        formats.export_part(|_, rep| Ok(rep.0.load(Relaxed))).import_part(|_, rep, n: u64| {
            rep.add(n);
            Ok(())
        });
    }
}

#[test]
fn forms_with_sensors_post_by_them_and_not_by_misses() {
    static SENSED: Adaptive<SensedWord, SensedSpread> =
        Adaptive::with_handle(|handle| SensedWord(AtomicU64::new(0), Sensor::new(), handle), || SensedSpread)
            .global(&["total"])
            .sensors(|object| object.try_reading(), |object, after| object.try_arm(after));
    let mut time = virtual_time();
    // Objects of earlier tests are examined once.
    time.pass(Duration::from_secs(2));
    let object = on(0, || SENSED.create());
    let (handle, id) = (object.handle(), Handle::id(object.handle()));
    for vp in 0..4 {
        on(vp, || (0..500).for_each(|_| handle.add(1)));
    }
    assert!(time.engine.is_idle(), "four foreign calls are no reason to look");
    let body = move |calls| (0..calls).for_each(|_| handle.add(1));
    // Each call comes from another VP than the one before.
    let calls = move |span: Duration| {
        (0..span.as_micros() / 40).for_each(|_| (0..4).for_each(|vp| on(vp, || body(1))));
    };
    time.engine.set_load(calls);
    time.until("the object grows", || form(id) == DISTRIBUTED);
    let mostly_totals = move |calls| {
        for _ in 0..calls {
            handle.add(1);
            (0..99).for_each(|_| _ = std::hint::black_box(handle.total()));
        }
    };
    time.with(Crew::new(&[0, 1, 2, 3], 16, mostly_totals), |time| {
        time.until("the object shrinks", || form(id) == SHARED);
    });
    let shrunk = control::history(id).pop().unwrap();
    assert!(shrunk.readings().contains("total"), "{shrunk}");
}

forms!(Typo, TypoSpread, TypoLocal);
state!(Typo, |_| ());

#[test]
fn a_setting_that_names_no_method_is_refused_at_the_first_object() {
    static GLOBAL: Adaptive<Typo, TypoSpread> = Adaptive::new(Typo::default, || TypoSpread).global(&["totl"]);
    static READS: Adaptive<Typo, TypoSpread> =
        Adaptive::new(Typo::default, || TypoSpread).reads(&["get", "sum"]);
    for (family, setting, name) in [(&GLOBAL, "global", "totl"), (&READS, "reads", "sum")] {
        let panic = catch_unwind(|| drop(family.create())).expect_err("the interface has no such method");
        assert_eq!(
            *panic.downcast::<String>().expect("a text"),
            format!(
                "cannot make a Hits: `.{setting}(..)` names `{name}`, which is no method of the interface; its \
                 methods are add, get, total"
            )
        );
    }
}

#[test]
fn the_classes_of_both_forms_are_the_types_of_the_program() {
    let _time = virtual_time();
    let (hits, id) = made();
    let class = || info_of(id).expect("it lives").class;
    assert_eq!(class(), std::any::type_name::<Word>());
    control::swap(id, DISTRIBUTED).expect("it is idle");
    assert_eq!(class(), std::any::type_name::<Spread>());
    control::swap(id, SHARED).expect("it is idle");
    let last = control::history(id).pop().expect("two swaps");
    assert_eq!((last.from, last.to), (DISTRIBUTED, SHARED));
    drop(hits);
}
