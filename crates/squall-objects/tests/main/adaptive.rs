//! Adaptive counters. Each thread runs on the VP that a test gives it.

use crate::common::{alone, eventually, form, made, on};
use squall_adapt::control::{self, ControlError, Decision, Held, Verdict};
use squall_adapt::{engine, settings};
use squall_core::{Handle, Id, info_of, snapshot};
use squall_machine::Vp;
use squall_objects::counter::{self, Counter, DISTRIBUTED, SHARED};
use squall_policy::attribute::AttributeError;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

fn verdicts(id: Id) -> Vec<Verdict> {
    control::history(id).into_iter().map(|decision| decision.verdict).collect()
}

/// State of threads that call a counter until `stop` is set, each on its own VP.
struct Crowd<'a> {
    stop: &'a AtomicBool,
    counted: &'a AtomicU64,
}

/// One step of a thread of a crowd.
#[derive(Clone, Copy)]
enum Mix {
    Adds,
    MostlyTotals,
}

/// Runs `f` while `threads` threads call the counter. Returns the sum that they added.
fn with_crowd(handle: Handle<dyn Counter>, threads: u32, mix: Mix, f: impl FnOnce()) -> u64 {
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let crowd = Crowd { stop: &stop, counted: &counted };
    thread::scope(|scope| {
        for vp in 0..threads {
            let crowd = &crowd;
            scope.spawn(move || on(vp, || crowd.work(handle, mix)));
        }
        /// Sets the flag even if `f` panics, so that the threads end.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let _stop = Stop(&stop);
        f();
    });
    counted.load(Ordering::Relaxed)
}

impl Crowd<'_> {
    fn work(&self, handle: Handle<dyn Counter>, mix: Mix) {
        let mut added = 0;
        while !self.stop.load(Ordering::Relaxed) {
            match mix {
                Mix::Adds => (0..256).for_each(|_| handle.inc()),
                Mix::MostlyTotals => (0..256).for_each(|_| {
                    handle.inc();
                    (0..99).for_each(|_| _ = std::hint::black_box(handle.total()));
                }),
            }
            added += 256;
            // Lets all threads run, also on few processors.
            thread::yield_now();
        }
        self.counted.fetch_add(added, Ordering::Relaxed);
    }
}

#[test]
fn it_grows_where_several_vps_add_and_folds_when_it_is_quiet_and_keeps_every_addition() {
    let _alone = alone();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(200)).unwrap();
    let (counter, id) = made();
    let before = info_of(id).unwrap();
    assert_eq!((form(id), before.reps.len()), (SHARED, 1));
    let added =
        with_crowd(counter.handle(), 4, Mix::Adds, || eventually("it grows", || form(id) == DISTRIBUTED));
    assert_eq!(counter.total(), added);
    assert!(info_of(id).unwrap().bytes > before.bytes);
    eventually("it folds", || form(id) == SHARED);
    assert_eq!(counter.total(), added);
    let after = info_of(id).unwrap();
    assert_eq!((after.bytes, after.reps.len()), (before.bytes, 1), "its memory comes back");
    eventually("both are told", || control::history(id).len() >= 2);
    let history = control::history(id);
    let [grown, .., folded] = &history[..] else { unreachable!() };
    assert_eq!((grown.from, grown.to, &grown.verdict), (SHARED, DISTRIBUTED, &Verdict::Swapped));
    assert!(grown.why.contains("inc") && grown.why.contains("foreign"), "{grown}");
    assert_eq!(grown.report.as_ref().unwrap().id, id);
    assert_eq!((folded.from, folded.to, &folded.verdict), (DISTRIBUTED, SHARED, &Verdict::Swapped));
    assert!(folded.why.starts_with("nothing happened for"), "{folded}");
}

#[test]
fn it_folds_where_sums_are_what_is_asked_for() {
    let _alone = alone();
    let (counter, id) = made();
    let handle = counter.handle();
    let mut added = with_crowd(handle, 4, Mix::Adds, || eventually("it grows", || form(id) == DISTRIBUTED));
    added += with_crowd(handle, 4, Mix::MostlyTotals, || eventually("it folds", || form(id) == SHARED));
    assert_eq!(handle.total(), added);
    eventually("it is told", || control::history(id).iter().any(|decision| decision.why.contains("total")));
    let folded = control::history(id).pop().unwrap();
    assert!(folded.why.contains("total"), "{folded}");
}

#[test]
fn pr_17_what_nobody_shares_is_left_alone_and_the_policy_keeps_nothing_of_it() {
    let _alone = alone();
    let (counter, id) = made();
    let known = control::statuses().len();
    on(0, || (0..100).for_each(|_| counter.inc()));
    assert_eq!((control::history(id).len(), control::statuses().len()), (0, known));
    let status = control::status(id).unwrap();
    assert_eq!((status.family, status.form, status.swaps_count), ("counter", SHARED, 0));
    assert_eq!(status.forms, [SHARED, DISTRIBUTED]);
    let shared = counter::shared();
    assert_eq!(info_of(id).unwrap().bytes, info_of(Handle::id(shared.handle())).unwrap().bytes);
    assert!(control::status(Handle::id(shared.handle())).is_none(), "that one does not adapt");
}

#[test]
fn where_there_are_no_sequences_nothing_is_won_by_a_move_to_the_vp_that_calls() {
    let _alone = alone();
    let (counter, id) = made();
    let handle = counter.handle();
    let place = || handle.sensors().place;
    assert_eq!(place(), Some(Vp::new(0)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            on(9, || {
                while !stop.load(Ordering::Relaxed) {
                    handle.inc();
                }
            });
        });
        // A virtual machine has no restartable sequences.
        eventually("it is looked at", || control::statuses().iter().any(|status| status.id == id));
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!((form(id), place()), (SHARED, Some(Vp::new(0))));
}

#[test]
fn a_frozen_object_stays_and_says_why_and_goes_on_when_it_is_thawed() {
    let _alone = alone();
    let (counter, id) = made();
    control::freeze(id, true).unwrap();
    assert!(control::status(id).unwrap().frozen);
    with_crowd(counter.handle(), 4, Mix::Adds, || {
        eventually("it is held", || verdicts(id).contains(&Verdict::Held(Held::Frozen)));
        assert_eq!(form(id), SHARED);
        control::freeze(id, false).unwrap();
        eventually("it grows", || form(id) == DISTRIBUTED);
    });
    let held = control::history(id).into_iter().filter(|d| d.verdict == Verdict::Held(Held::Frozen)).count();
    assert_eq!(held, 1, "what is held is news once");
}

#[test]
fn all_are_frozen_and_thawed_at_once() {
    let _alone = alone();
    control::freeze_all(true);
    assert!(control::all_frozen());
    let (counter, id) = made();
    with_crowd(counter.handle(), 4, Mix::Adds, || {
        eventually("it is held", || verdicts(id).contains(&Verdict::Held(Held::Frozen)));
        control::freeze_all(false);
        eventually("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn a_dry_run_only_says_what_it_would_do() {
    let _alone = alone();
    let (counter, id) = made();
    control::set_attribute(id, "dry-run", "true").unwrap();
    with_crowd(counter.handle(), 4, Mix::Adds, || {
        eventually("it says so", || verdicts(id).contains(&Verdict::DryRun));
        // The decision repeats, and is recorded once.
        thread::sleep(Duration::from_millis(300));
        let mut said = verdicts(id);
        // If other processes keep the crowd from its processors, its load is unsteady. Later decisions are
        // recorded again.
        said.retain(|verdict| *verdict != Verdict::Held(Held::Unsteady));
        said.dedup();
        assert_eq!((form(id), said), (SHARED, vec![Verdict::DryRun]));
        control::set_attribute(id, "dry-run", "false").unwrap();
        eventually("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn the_budget_and_the_bound_on_memory_hold_it() {
    let _alone = alone();
    settings::ALL.set(&settings::SWAPS, 0.0).unwrap();
    let (counter, id) = made();
    with_crowd(counter.handle(), 4, Mix::Adds, || {
        eventually("the budget holds it", || verdicts(id).contains(&Verdict::Held(Held::Budget)));
        settings::ALL.set(&settings::BYTES, 100).unwrap();
        settings::ALL.set(&settings::SWAPS, 50.0).unwrap();
        eventually("the bound holds it", || verdicts(id).contains(&Verdict::Held(Held::Memory)));
        assert_eq!(form(id), SHARED);
        settings::ALL.unset("bytes").unwrap();
        eventually("it grows", || form(id) == DISTRIBUTED);
    });
}

#[test]
fn people_swap_by_hand_and_it_is_remembered() {
    let _alone = alone();
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
    assert!(control::status(id).is_none(), "what serves does not adapt");
    assert_eq!(counter.total(), 7);
    control::swap(id, DISTRIBUTED).unwrap();
    assert_eq!((form(id), counter.total()), (DISTRIBUTED, 7));
    let error = control::swap(id, "tree").unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("Counter#{id} cannot become \"tree\": registered are shared, distributed, plain")
    );
}

#[test]
fn bad_requests_are_errors_that_say_what_would_be_right() {
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
    assert_eq!(attributes.len(), 13);
    let error = control::sample(id, Duration::from_secs(2)).unwrap_err();
    assert_eq!(error.to_string(), format!("calls of object {id} were to be counted for 2s; at most for 1s"));
    squall_rcu::pin(|_| {
        assert!(matches!(control::swap(id, DISTRIBUTED), Err(ControlError::InOperation(_))));
        assert!(matches!(control::sample(id, Duration::ZERO), Err(ControlError::InOperation(_))));
    });
    let plain = counter::shared();
    let error = control::freeze(Handle::id(plain.handle()), true).unwrap_err();
    assert!(error.to_string().contains("does not adapt: its class is in no family"), "{error}");
    drop(counter);
    let gone = format!("there is no live object {id}");
    assert_eq!(control::freeze(id, true).unwrap_err().to_string(), gone);
    assert_eq!(control::set_attribute(id, "margin", "2").unwrap_err().to_string(), gone);
    assert_eq!(control::swap(id, DISTRIBUTED).unwrap_err().to_string(), gone);
    assert_eq!(control::sample(id, Duration::ZERO).unwrap_err().to_string(), gone);
    assert!(control::status(id).is_none() && control::implementations(id).is_empty());
}

#[test]
fn calls_are_counted_by_method_and_vp_only_while_someone_looks() {
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
fn a_counter_that_ends_in_the_midst_of_it_disturbs_nobody() {
    let _alone = alone();
    settings::ALL.set(&settings::COOLDOWN, Duration::from_millis(1)).unwrap();
    let (steady, steady_id) = made();
    for _ in 0..20 {
        let (counter, _) = made();
        let handle = counter.handle();
        thread::scope(|scope| {
            for vp in 0..3 {
                scope.spawn(move || on(vp, || while handle.try_add(1).is_ok() {}));
            }
            thread::sleep(Duration::from_millis(10));
            drop(counter);
        });
        assert!(handle.try_total().is_err());
    }
    let added = with_crowd(steady.handle(), 4, Mix::Adds, || {
        eventually("it grows", || form(steady_id) == DISTRIBUTED)
    });
    assert_eq!(steady.total(), added);
    assert!(control::statuses().iter().all(|status| info_of(status.id).is_some()));
}

/// Returns the voluntary context switches of the engine's thread: the number of times that it slept and woke.
fn wakeups() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of =
        |path: &std::path::Path, file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
    let task = tasks.map(|task| task.unwrap().path()).find(|task| of(task, "comm").trim() == "squall-adapt");
    let status = of(&task.expect("an adaptive counter was made"), "status");
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn the_thread_sleeps_while_every_counter_has_the_form_in_which_it_began() {
    let _alone = alone();
    settings::ALL.set(&settings::QUIET, Duration::from_millis(100)).unwrap();
    let (counter, id) = made();
    assert_eq!(engine::thread_state(), engine::EngineState::Running);
    with_crowd(counter.handle(), 4, Mix::Adds, || eventually("it grows", || form(id) == DISTRIBUTED));
    eventually("all fold", || control::statuses().iter().all(|status| status.form == SHARED));
    // The engine may still examine objects of earlier tests once.
    eventually("it sleeps", || {
        let before = wakeups();
        thread::sleep(Duration::from_millis(400));
        wakeups() == before
    });
    let before = wakeups();
    on(0, || (0..100).for_each(|_| counter.inc()));
    thread::sleep(Duration::from_millis(300));
    assert_eq!(wakeups(), before, "nothing is shared, and nobody wakes");
}
