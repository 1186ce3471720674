//! Adaptive counters. Each thread runs on the VP that a test gives it. Tests of decisions run on virtual
//! time.

use crate::common::{Crew, Stop, Time, alone, eventually, form, made, on, virtual_time};
use squall_adapt::control::{self, ControlError, Decision, Held, Verdict};
use squall_adapt::settings;
use squall_core::{Handle, Id, info_of, snapshot};
use squall_machine::Vp;
use squall_objects::counter::{self, Counter, DISTRIBUTED, SHARED};
use squall_policy::attribute::AttributeError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn verdicts(id: Id) -> Vec<Verdict> {
    control::history(id).into_iter().map(|decision| decision.verdict).collect()
}

/// Four VPs that add to a counter, and the sum that they added.
pub(crate) fn adders(handle: Handle<dyn Counter>) -> (Crew, Arc<AtomicU64>) {
    let added = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&added);
    let body = move |calls: u32| {
        (0..calls).for_each(|_| handle.inc());
        count.fetch_add(u64::from(calls), Ordering::Relaxed);
    };
    (Crew::new(&[0, 1, 2, 3], 256, body), added)
}

/// Has four VPs add to a counter until it is distributed.
fn grow(time: &mut Time, handle: Handle<dyn Counter>) -> u64 {
    let (crew, added) = adders(handle);
    let id = Handle::id(handle);
    time.with(crew, |time| time.until("the counter is distributed", || form(id) == DISTRIBUTED));
    added.load(Ordering::Relaxed)
}

#[test]
fn a_counter_grows_where_several_vps_add_and_shrinks_when_it_is_quiet() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(200)).unwrap();
    let (counter, id) = made();
    let before = info_of(id).unwrap();
    assert_eq!((form(id), before.reps.len()), (SHARED, 1));
    let added = grow(&mut time, counter.handle());
    assert_eq!(counter.total(), added);
    assert!(info_of(id).unwrap().bytes > before.bytes);
    time.until("the counter shrinks", || form(id) == SHARED);
    assert_eq!(counter.total(), added);
    let after = info_of(id).unwrap();
    assert_eq!((after.bytes, after.reps.len()), (before.bytes, 1), "its memory comes back");
    let history = control::history(id);
    let [grown, shrunk] = &history[..] else { panic!("{history:?}") };
    assert_eq!((grown.from, grown.to, &grown.verdict), (SHARED, DISTRIBUTED, &Verdict::Swapped));
    assert!(grown.readings().contains("inc") && grown.readings().contains("foreign"), "{grown}");
    assert_eq!(grown.report.as_ref().unwrap().id, id);
    assert_eq!((shrunk.from, shrunk.to, &shrunk.verdict), (DISTRIBUTED, SHARED, &Verdict::Swapped));
    assert!(shrunk.why.starts_with("nothing happened for"), "{shrunk}");
}

#[test]
fn additions_during_swaps_by_the_engines_thread_are_kept() {
    let _alone = alone();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let (counter, id) = made();
    let handle = counter.handle();
    let stop = &AtomicBool::new(false);
    let swaps = || control::history(id).iter().filter(|d| d.verdict == Verdict::Swapped).count();
    let added: u64 = thread::scope(|scope| {
        let body = move |vp| {
            let mut added = 0;
            while !stop.load(Ordering::Relaxed) {
                on(vp, || (0..256).for_each(|_| handle.inc()));
                added += 256;
                // Lets all threads run, also on few processors.
                thread::yield_now();
            }
            added
        };
        let threads = [0, 1, 2, 3].map(|vp| scope.spawn(move || body(vp)));
        let stops = Stop(stop);
        eventually("the counter was swapped", || swaps() > 0);
        drop(stops);
        threads.map(|thread| thread.join().unwrap()).iter().sum()
    });
    assert_eq!(counter.total(), added);
}

#[test]
fn a_counter_shrinks_where_most_calls_are_sums() {
    let mut time = virtual_time();
    let (counter, id) = made();
    let handle = counter.handle();
    let added = Arc::new(AtomicU64::new(grow(&mut time, handle)));
    let count = Arc::clone(&added);
    let mostly_sums = move |calls: u32| {
        for _ in 0..calls {
            handle.inc();
            (0..99).for_each(|_| _ = std::hint::black_box(handle.total()));
        }
        count.fetch_add(u64::from(calls), Ordering::Relaxed);
    };
    let crew = Crew::new(&[0, 1, 2, 3], 16, mostly_sums);
    time.with(crew, |time| time.until("the counter shrinks", || form(id) == SHARED));
    assert_eq!(handle.total(), added.load(Ordering::Relaxed));
    let shrunk = control::history(id).pop().unwrap();
    assert!(shrunk.readings().contains("total"), "{shrunk}");
}

#[test]
fn the_cost_of_a_line_transfer_decides_whether_a_counter_grows() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::SAMPLE, Duration::from_millis(10)).unwrap();
    settings::ALL.set(&settings::GAIN, Duration::ZERO).unwrap();
    let (counter, id) = made();
    let handle = counter.handle();
    // The line moves twice in a hundred additions.
    let adds = move |calls: u32| {
        let calls = if Vp::current() == Vp::new(0) { calls } else { calls / 100 };
        (0..calls).for_each(|_| handle.inc());
    };
    time.with(Crew::new(&[0, 1], 256, adds), |time| {
        settings::ALL.set(&settings::TRANSFER, 1.0).unwrap();
        time.pass(Duration::from_secs(5));
        assert_eq!(form(id), SHARED, "{:?}", control::history(id));
        settings::ALL.set(&settings::TRANSFER, 400.0).unwrap();
        time.until("the counter grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn pr_17_a_counter_of_one_vp_is_left_alone_and_the_policy_keeps_nothing_of_it() {
    let mut time = virtual_time();
    let (counter, id) = made();
    let known = control::statuses().len();
    on(0, || (0..100).for_each(|_| counter.inc()));
    time.pass(Duration::from_secs(10));
    assert_eq!((control::history(id).len(), control::statuses().len()), (0, known));
    let status = control::status(id).unwrap();
    assert_eq!((status.family, status.form, status.swaps_count), ("counter", SHARED, 0));
    assert_eq!(status.forms, [SHARED, DISTRIBUTED]);
    let shared = counter::shared();
    assert_eq!(info_of(id).unwrap().bytes, info_of(Handle::id(shared.handle())).unwrap().bytes);
    assert!(control::status(Handle::id(shared.handle())).is_none(), "that one does not adapt");
}

#[test]
fn without_restartable_sequences_a_counter_does_not_move_to_the_vp_that_calls() {
    let mut time = virtual_time();
    let (counter, id) = made();
    let handle = counter.handle();
    let place = || handle.sensors().place;
    assert_eq!(place(), Some(Vp::new(0)));
    let crew = Crew::new(&[9], 1000, move |calls| (0..calls).for_each(|_| handle.inc()));
    // A virtual machine has no restartable sequences.
    time.with(crew, |time| {
        time.until("the counter is sampled", || control::statuses().iter().any(|status| status.id == id));
        time.pass(Duration::from_secs(2));
    });
    assert_eq!((form(id), place()), (SHARED, Some(Vp::new(0))));
}

#[test]
fn a_frozen_counter_stays_and_grows_when_it_is_thawed() {
    let mut time = virtual_time();
    let (counter, id) = made();
    control::freeze(id, true).unwrap();
    assert!(control::status(id).unwrap().frozen);
    time.with(adders(counter.handle()).0, |time| {
        time.pass(Duration::from_secs(2));
        assert_eq!(form(id), SHARED);
        assert_eq!(verdicts(id), [Verdict::Held(Held::Frozen)], "a repeated decision is recorded once");
        control::freeze(id, false).unwrap();
        time.until("the counter grows", || form(id) == DISTRIBUTED);
    });
    assert_eq!(verdicts(id), [Verdict::Held(Held::Frozen), Verdict::Swapped]);
}

#[test]
fn all_objects_are_frozen_and_thawed_at_once() {
    let mut time = virtual_time();
    control::freeze_all(true);
    assert!(control::all_frozen());
    let (counter, id) = made();
    time.with(adders(counter.handle()).0, |time| {
        time.pass(Duration::from_secs(2));
        assert_eq!(verdicts(id), [Verdict::Held(Held::Frozen)]);
        control::freeze_all(false);
        time.until("the counter grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn a_dry_run_records_the_decision_and_changes_nothing() {
    let mut time = virtual_time();
    let (counter, id) = made();
    control::set_attribute(id, "dry-run", "true").unwrap();
    time.with(adders(counter.handle()).0, |time| {
        time.pass(Duration::from_secs(2));
        assert_eq!((form(id), verdicts(id)), (SHARED, vec![Verdict::DryRun]), "recorded once");
        control::set_attribute(id, "dry-run", "false").unwrap();
        time.until("the counter grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn the_budget_and_the_bound_on_memory_hold_a_counter() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::SWAPS, 0.0).unwrap();
    let (counter, id) = made();
    time.with(adders(counter.handle()).0, |time| {
        time.until("the budget holds it", || verdicts(id).contains(&Verdict::Held(Held::Budget)));
        settings::ALL.set(&settings::BYTES, 100).unwrap();
        settings::ALL.set(&settings::SWAPS, 50.0).unwrap();
        time.until("the bound holds it", || verdicts(id).contains(&Verdict::Held(Held::Memory)));
        assert_eq!(form(id), SHARED);
        settings::ALL.unset("bytes").unwrap();
        time.until("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn a_swap_by_hand_is_recorded() {
    let _time = virtual_time();
    let (counter, id) = made();
    on(3, || counter.add(40));
    let report = control::swap(id, DISTRIBUTED).unwrap();
    assert_eq!((report.id, form(id)), (id, DISTRIBUTED));
    on(4, || counter.add(2));
    control::swap(id, SHARED).unwrap();
    assert_eq!((form(id), counter.total()), (SHARED, 42));
    let history: Vec<Decision> = control::history(id);
    let steps: Vec<_> = history.iter().map(|d| (d.from, d.to, d.verdict.clone())).collect();
    assert_eq!(steps, [(SHARED, DISTRIBUTED, Verdict::ByHand), (DISTRIBUTED, SHARED, Verdict::ByHand)]);
    assert_eq!(control::status(id).unwrap().swaps_count, 2);
}

#[test]
fn implementations_are_those_of_the_family_and_those_that_the_program_registered() {
    let _alone = alone();
    control::register::<dyn Counter>("plain", counter::new_shared);
    let (counter, id) = made();
    assert_eq!(control::implementations(id), [SHARED, DISTRIBUTED, "plain"]);
    counter.add(7);
    control::swap(id, "plain").unwrap();
    assert!(control::status(id).is_none(), "the plain implementation does not adapt");
    assert_eq!(counter.total(), 7);
    control::swap(id, DISTRIBUTED).unwrap();
    assert_eq!((form(id), counter.total()), (DISTRIBUTED, 7));
    let error = control::swap(id, "tree").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "Counter#{id} cannot become \"tree\": registered are shared, distributed, plain; ask for one of these"
        )
    );
}

#[test]
fn errors_of_bad_requests_name_the_valid_ones() {
    let _alone = alone();
    let (counter, id) = made();
    let unknown = control::set_attribute(id, "cool-down", "1s").unwrap_err();
    assert!(matches!(unknown, ControlError::Attribute(AttributeError { .. })), "{unknown:?}");
    let text = unknown.to_string();
    assert!(text.contains("cool-down") && text.contains("cooldown"), "{text}");
    let text = control::set_attribute(id, "margin", "0.5").unwrap_err().to_string();
    assert!(text.contains("margin") && text.contains("0.5"), "{text}");
    assert!(control::set_attribute(id, "freeze", "maybe").is_err());
    let attributes = control::attributes(id).unwrap();
    assert_eq!(attributes.len(), 15);
    let error = control::sample(id, Duration::from_secs(2)).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("calls of object {id} cannot be counted for 2s; count them for at most 1s")
    );
    squall_rcu::pin(|_| {
        assert!(matches!(control::swap(id, DISTRIBUTED), Err(ControlError::InOperation(_))));
        assert!(matches!(control::sample(id, Duration::ZERO), Err(ControlError::InOperation(_))));
    });
    let plain = counter::shared();
    let error = control::freeze(Handle::id(plain.handle()), true).unwrap_err();
    assert!(error.to_string().contains("does not adapt: its class is in no family"), "{error}");
    drop(counter);
    let gone = format!("there is no live object {id}; `squall::snapshot` lists those that live");
    assert_eq!(control::freeze(id, true).unwrap_err().to_string(), gone);
    assert_eq!(control::set_attribute(id, "margin", "2").unwrap_err().to_string(), gone);
    assert_eq!(control::swap(id, DISTRIBUTED).unwrap_err().to_string(), gone);
    assert_eq!(control::sample(id, Duration::ZERO).unwrap_err().to_string(), gone);
    assert!(control::status(id).is_none() && control::implementations(id).is_empty());
}

#[test]
fn a_sample_counts_calls_by_method_and_vp() {
    let _alone = alone();
    let counter = counter::shared();
    let (handle, id) = (counter.handle(), Handle::id(counter.handle()));
    let calls = thread::scope(|scope| {
        let sample = scope.spawn(move || control::sample(id, Duration::from_millis(100)).unwrap());
        while !sample.is_finished() {
            on(5, || handle.inc());
            on(6, || _ = handle.total());
        }
        sample.join().unwrap()
    });
    let mut methods: Vec<_> = calls.by_method.iter().map(|(name, _)| *name).collect();
    methods.sort_unstable();
    assert_eq!(methods, ["inc", "total"]);
    let by_vp: Vec<_> = calls.by_vp.iter().map(|(vp, _)| vp.index()).collect();
    assert_eq!(by_vp, [5, 6]);
    let of = |name| calls.by_method.iter().find(|(method, _)| *method == name).unwrap().1;
    assert_eq!((of("inc"), of("total")), (calls.by_vp[0].1, calls.by_vp[1].1));
    assert_eq!(calls.count(), of("inc") + of("total"));
    let rate = calls.rates_of("inc").next().unwrap();
    assert_eq!((rate.0.index(), rate.1 > 0.0), (5, true));
    // The old form leaves no memory behind.
    let state = snapshot().into_iter().find(|info| info.id == id).unwrap().state;
    assert_eq!(state, squall_core::ObjectState::Live);
}

#[test]
fn counters_that_are_dropped_under_load_leave_the_others_alone() {
    let alone = alone();
    settings::ALL.set(&settings::COOLDOWN, Duration::from_millis(1)).unwrap();
    let (steady, _) = made();
    for round in 0..20 {
        let (counter, _) = made();
        let handle = counter.handle();
        thread::scope(|scope| {
            for vp in 0..3 {
                scope.spawn(move || on(vp, || while handle.try_add(1).is_ok() {}));
            }
            // Any moment will do: the counter may be sampled or swapped by now, or not.
            thread::sleep(Duration::from_millis(round));
            drop(counter);
        });
        assert!(handle.try_total().is_err());
    }
    drop(alone);
    // Waits for the round in progress. The engine adapts the steady counter, and forgets those dropped.
    let mut time = virtual_time();
    let added = grow(&mut time, steady.handle());
    assert_eq!(steady.total(), added);
    assert!(control::statuses().iter().all(|status| info_of(status.id).is_some()));
}

#[test]
fn the_engine_is_idle_while_every_counter_has_its_first_form() {
    let mut time = virtual_time();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let (counter, id) = made();
    grow(&mut time, counter.handle());
    assert!(!time.engine.is_idle());
    time.until("the counter shrinks", || form(id) == SHARED);
    // Objects of earlier tests are examined once.
    time.pass(Duration::from_secs(2));
    assert!(time.engine.is_idle());
    on(0, || (0..100).for_each(|_| counter.inc()));
    assert!(time.engine.is_idle(), "the calls of one VP wake no thread");
}
