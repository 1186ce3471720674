//! Promises of objects on every machine and in every mode.
//!
//! A test's name begins with the row of the mechanism or pitfall in `docs/mechanisms.md`. The last test runs
//! all tests again under each fallback.
#![cfg(not(miri))]

use crate::common::{
    self, Event, Hits, Inside, Log, Shared, Spread, assert_held_up, both_kinds, drops_panic, end, panic_of,
    stop,
};
use squall::{
    CallError, CallErrorKind, ClusterSize, Handle, Miss, MissAnswer, ObjectKind, Owned, RepContext, Root, Vp,
    WellKnown, machine,
};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

// --- one object, many forms ---

#[test]
fn co_01_forms_of_one_interface_live_together_and_clients_see_no_difference() {
    let log = Log::default();
    let forms: Vec<Owned<dyn Hits>> = vec![
        squall::shared(Shared::new(&log)),
        Spread::new(&log).create(ClusterSize::Machine),
        Spread::new(&log).create(ClusterSize::Cpu),
    ];
    let handles: Vec<Handle<dyn Hits>> = forms.iter().map(Owned::handle).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            let handles = handles.clone();
            scope.spawn(move || (0..1000).for_each(|n| handles.iter().for_each(|hits| hits.add(n % 3))));
        }
    });
    let expected = 4 * (0..1000).map(|n| n % 3).sum::<u64>();
    assert!(handles.iter().all(|hits| hits.total() == expected));
    let kinds = handles.iter().map(|hits| squall::info_of(Handle::id(*hits)).unwrap().kind);
    assert!(kinds.eq([ObjectKind::Shared, ObjectKind::Clustered, ObjectKind::Clustered]));
    forms.into_iter().for_each(end);
}

#[test]
fn co_04_a_reference_is_eight_bytes_for_anyone() {
    fn for_anyone<T: Copy + Send + Sync + Eq + Ord + std::hash::Hash + std::panic::UnwindSafe + 'static>() {}
    for_anyone::<Handle<dyn Hits>>();
    assert_eq!(size_of::<Handle<dyn Hits>>(), 8);
    let hits: Owned<dyn Hits> = squall::shared(Shared::default());
    let id = Handle::id(hits.handle());
    assert_eq!(hits.handle().to_string(), format!("Hits#{}.{}", id.slot(), id.generation()));
}

#[test]
fn co_12_of_two_that_make_one_representative_the_loser_is_dropped() {
    // Two threads are in `make_rep` of the only cluster at the same time.
    let (first_stop, first) = stop();
    let (second_stop, second) = stop();
    let log = Log::default();
    let turns = AtomicUsize::new(0);
    let spread = Spread::new(&log).on_make(move |_| match turns.fetch_add(1, Ordering::Relaxed) {
        0 => first.stop(),
        1 => second.stop(),
        _ => panic!("make_rep ran a third time"),
    });
    let hits = spread.create(ClusterSize::Machine);
    let h = hits.handle();
    let threads = [thread::spawn(move || h.add(1)), thread::spawn(move || h.add(1))];
    first_stop.wait_until_there();
    second_stop.wait_until_there();
    first_stop.go();
    // The first representative serves before the second `make_rep` has finished.
    while squall::info_of(Handle::id(h)).unwrap().reps.is_empty() {
        thread::yield_now();
    }
    h.add(1);
    second_stop.go();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(h.total(), 3);
    assert_eq!((log.made(), log.reps_dropped()), (2, 1));
    assert_eq!(squall::info_of(Handle::id(h)).unwrap().reps.len(), 1);
    end(hits);
    log.assert_over();
}

// --- misses, and the answers of roots ---

/// Answers each miss as `how` says, and counts misses.
struct Answers {
    how: How,
    asked: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Once,
    Refuse,
    First,
}

struct Answer(#[allow(dead_code)] RepContext<Answers>, AtomicU64);

#[squall::interface]
trait Count: Send + Sync {
    fn count(&self) -> u64;
}

impl Count for Answer {
    fn count(&self) -> u64 {
        self.1.fetch_add(1, Ordering::Relaxed)
    }
}

impl Root for Answers {
    type Interface = dyn Count;
    type Rep = Answer;
    fn make_rep(&self, at: RepContext<Self>) -> Answer {
        Answer(at, AtomicU64::new(0))
    }
    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.how {
            How::Once => miss.local().once(),
            How::Refuse => miss.refuse("closed on Sundays"),
            // A mapping of its own: the cluster of the lowest VP serves all VPs.
            How::First => miss.rep(squall::Cluster::new(0)).cached(),
        }
    }
}

#[test]
fn co_08_a_root_may_choose_not_to_cache() {
    let asked = Arc::new(AtomicUsize::new(0));
    let object = Answers { how: How::Once, asked: asked.clone() }.create(ClusterSize::Machine);
    assert_eq!((0..10).map(|_| object.count()).sum::<u64>(), 45);
    assert_eq!(asked.load(Ordering::Relaxed), 10);
    let info = squall::info_of(Handle::id(object.handle())).unwrap();
    assert!(info.translations.is_empty() && info.reps.len() == 1);
    Owned::destroy(object).wait().unwrap();
}

#[test]
fn co_08_a_root_may_refuse() {
    let asked = Arc::new(AtomicUsize::new(0));
    let object = Answers { how: How::Refuse, asked: asked.clone() }.create(ClusterSize::Machine);
    let error = object.try_count().unwrap_err();
    assert_eq!(error.reason(), CallErrorKind::Refused("closed on Sundays"));
    assert!(error.class().unwrap().ends_with("Answers"));
    assert!(panic_of(|| object.count()).contains("closed on Sundays"));
    assert_eq!(asked.load(Ordering::Relaxed), 2);
    Owned::destroy(object).wait().unwrap();
}

#[test]
fn co_10_a_root_may_have_a_map_of_its_own() {
    let asked = Arc::new(AtomicUsize::new(0));
    let object = Answers { how: How::First, asked }.create(ClusterSize::Cpu);
    let handle = object.handle();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || (0..100).for_each(|_| assert!(handle.count() < 800)));
        }
    });
    assert_eq!(handle.count(), 800, "one representative served all threads");
    assert_eq!(squall::info_of(Handle::id(handle)).unwrap().reps.len(), 1);
    Owned::destroy(object).wait().unwrap();
}

#[test]
fn co_08_a_panic_in_make_rep_goes_to_the_caller_and_the_next_one_tries_again() {
    let log = Log::default();
    let fails = AtomicUsize::new(3);
    let hits = Spread::new(&log)
        .on_make(move |_| {
            let fail = fails.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok();
            assert!(!fail, "no representative today");
        })
        .create(ClusterSize::Machine);
    for _ in 0..3 {
        assert_eq!(panic_of(|| hits.add(1)), "no representative today");
        assert!(squall::info_of(Handle::id(hits.handle())).unwrap().reps.is_empty());
    }
    hits.add(1);
    assert_eq!((hits.total(), log.made()), (1, 4));
    // The failed attempts do not keep the root alive.
    end(hits);
    assert_eq!((log.reps_dropped(), log.roots_dropped()), (1, 1));
}

#[test]
fn co_08_make_rep_may_use_the_whole_library_but_not_the_representative_it_is_making() {
    let _guard = common::tables_are_discarded();
    static PLACE: WellKnown<dyn Count> = WellKnown::new(400);
    let log = Log::default();
    let inner = Log::default();
    let seen = Arc::new(Mutex::new(String::new()));
    let (inner_log, told) = (inner.clone(), seen.clone());
    let hits = Spread::new(&log)
        .on_make(move |at| {
            let other = Spread::new(&inner_log).create(ClusterSize::Cpu);
            other.add(1);
            assert_eq!(other.total(), 1);
            drop(other);
            assert!(squall::snapshot().iter().any(|info| info.id == Handle::id(at.handle())));
            squall::tables::discard_all();
            assert_eq!(PLACE.handle().try_count().unwrap_err().reason(), CallErrorKind::NotThere);
            *told.lock().unwrap() = panic_of(|| at.handle().try_total());
            // Inside an operation `make_rep` must not wait.
            assert!(squall::rcu::in_operation());
        })
        .create(ClusterSize::Machine);
    hits.add(1);
    assert!(seen.lock().unwrap().contains("make_rep called its own object"), "{seen:?}");
    assert_eq!(hits.total(), 1);
    end(hits);
    squall::rcu::barrier().unwrap();
    log.assert_over();
}

// --- methods ---

#[test]
fn a_panicking_method_does_not_disturb_other_callers() {
    for (hits, log) in both_kinds() {
        let h = hits.handle();
        let inside = Inside::operation(h);
        assert_eq!(panic_of(|| h.within(&mut || panic!("in an operation"))), "in an operation");
        assert!(!squall::rcu::in_operation(), "the panic ended the operation");
        assert_eq!(panic_of(|| h.holding(&mut || panic!("in a hold"))), "in a hold");
        let info = squall::info_of(Handle::id(h)).unwrap();
        assert_eq!(info.reps.iter().map(|rep| rep.holds).sum::<u32>(), 0, "the panic gave the hold back");
        h.add(1);
        assert_eq!(h.total(), 1);
        drop(inside);
        end(hits);
        log.assert_over();
    }
}

#[test]
fn objects_hold_references_and_call_each_other_and_themselves() {
    let [(one, _), (two, _)] = both_kinds();
    let (a, b) = (one.handle(), two.handle());
    a.within(&mut || b.within(&mut || a.within(&mut || b.add(a.total() + 5))));
    assert_eq!((a.total(), b.total()), (0, 5));
    // Holds nest in holds and in operations.
    a.holding(&mut || b.holding(&mut || a.within(&mut || b.holding(&mut || a.add(1)))));
    assert_eq!(a.total(), 1);
    end(one);
    end(two);
}

// --- the end ---

#[test]
fn to_07_a_call_that_cannot_be_resolved_errs_and_says_what_it_was() {
    for (hits, _) in both_kinds() {
        let h = hits.handle();
        h.add(1);
        let class = squall::info_of(Handle::id(h)).unwrap().class;
        // A thread inside the object keeps the slot from being reused.
        let inside = Inside::operation(h);
        let destruction = Owned::destroy(hits);
        let error: CallError = h.try_total().unwrap_err();
        assert_eq!((error.interface(), error.method()), ("Hits", "total"));
        assert_eq!((error.id(), error.reason()), (Handle::id(h), CallErrorKind::Destroyed));
        assert_eq!(error.class(), Some(class));
        let id = Handle::id(h);
        assert_eq!(
            error.to_string(),
            format!(
                "Hits#{id}.total() of class {class}: the object was destroyed; keep its owner as long as it is called"
            )
        );
        assert_eq!(panic_of(|| h.add(1)), h.try_add(1).unwrap_err().to_string());
        assert_eq!(h.try_holding(&mut || ()).unwrap_err().method(), "holding");
        let mut ran = false;
        h.try_within(&mut || ran = true).unwrap_err();
        assert!(!ran, "the method must not run");
        drop(inside);
        destruction.wait().unwrap();
        assert_eq!(h.try_total().unwrap_err().reason(), CallErrorKind::Destroyed);
        assert!(squall::info_of(Handle::id(h)).is_none());
    }
}

#[test]
fn pitfall_02_cached_entries_do_not_answer_after_destruction() {
    for (hits, log) in both_kinds() {
        let h = hits.handle();
        let inside = Inside::operation(h);
        // Every VP has a cached entry, and `inside` keeps the memory. Only the comparison of ids rejects the
        // calls.
        thread::scope(|scope| {
            for _ in 0..machine().vps().len().min(64) * 2 {
                scope.spawn(move || (0..10).for_each(|_| h.add(1)));
            }
        });
        let destruction = Owned::destroy(hits);
        thread::scope(|scope| {
            for _ in 0..machine().vps().len().min(64) * 2 {
                scope.spawn(move || (0..10).for_each(|_| drop(h.try_add(1).unwrap_err())));
            }
        });
        assert_eq!(log.roots_dropped(), 0);
        drop(inside);
        destruction.wait().unwrap();
        log.assert_over();
    }
}

#[test]
fn pitfall_18_destroy_never_waits() {
    for (hits, log) in both_kinds() {
        let inside = Inside::operation(hits.handle());
        // The destructions return although a thread stays inside.
        let others: Vec<_> = (0..100).map(|_| both_kinds()).collect();
        let ends: Vec<_> = others.into_iter().flatten().map(|(other, _)| Owned::destroy(other)).collect();
        let destruction = Owned::destroy(hits);
        assert!(!destruction.is_complete() && log.roots_dropped() == 0);
        drop(inside);
        destruction.wait().unwrap();
        log.assert_over();
        ends.into_iter().for_each(|end| end.wait().unwrap());
    }
}

#[test]
fn co_28_nothing_is_dropped_while_an_operation_can_reach_it() {
    for (hits, log) in both_kinds() {
        let inside = Inside::operation(hits.handle());
        let destruction = Owned::destroy(hits);
        let still = squall::rcu::Marker::set();
        let dropped = log.roots_dropped() + log.reps_dropped();
        assert_eq!((dropped, destruction.is_complete()), (0, false));
        drop(inside);
        still.wait().unwrap();
        destruction.wait().unwrap();
        log.assert_over();
    }
}

#[test]
fn pitfall_01_a_hold_keeps_the_memory_beyond_every_grace_period() {
    for (hits, log) in both_kinds() {
        let h = hits.handle();
        let holders = [Inside::hold(h), Inside::hold(h), Inside::hold(h)];
        let destruction = Owned::destroy(hits);
        for holder in holders {
            assert_held_up(destruction);
            assert_eq!((log.reps_dropped(), log.roots_dropped()), (0, 0));
            drop(holder);
        }
        destruction.wait().unwrap();
        log.assert_over();
    }
}

#[test]
fn co_08_misses_in_flight_end_in_peace_and_no_other_begins() {
    // The gate of misses drains and then rejects for good. The late miss installs, and leaves no entry.
    let log = Log::default();
    let (making, stopper) = stop();
    let hits = Spread::new(&log).on_make(move |_| stopper.stop()).create(ClusterSize::Machine);
    let h = hits.handle();
    // The call began before the destruction and runs. Its own call of the object fails.
    let late = thread::spawn(move || {
        h.within(&mut || assert_eq!(h.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed))
    });
    making.wait_until_there();
    let destruction = Owned::destroy(hits);
    assert_eq!(h.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
    assert!(!destruction.is_complete());
    making.go();
    late.join().unwrap();
    assert_eq!(h.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
    destruction.wait().unwrap();
    assert_eq!(log.made(), 1);
    log.assert_over();
}

#[test]
fn to_12_an_object_may_be_destroyed_in_its_own_method() {
    for (hits, log) in both_kinds() {
        let h = hits.handle();
        let owned = Mutex::new(Some(hits));
        let mut destruction = None;
        h.within(&mut || {
            h.add(1);
            let ending = Owned::destroy(owned.lock().unwrap().take().unwrap());
            assert_eq!(h.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
            // A wait here would wait for itself.
            assert_eq!(ending.wait(), Err(squall::rcu::WaitError::InOperation));
            assert_eq!(log.roots_dropped(), 0);
            destruction = Some(ending);
        });
        destruction.unwrap().wait().unwrap();
        log.assert_over();
    }
}

#[test]
fn to_12_an_object_may_be_destroyed_in_a_method_of_another_and_in_a_blocking_one() {
    let [(one, one_log), (two, two_log)] = both_kinds();
    let (a, b) = (one.handle(), two.handle());
    let owned = Mutex::new(Some(two));
    a.within(&mut || drop(owned.lock().unwrap().take()));
    assert_eq!(b.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
    let owned = Mutex::new(Some(one));
    let mut ending = None;
    a.holding(&mut || {
        let destruction = Owned::destroy(owned.lock().unwrap().take().unwrap());
        assert_held_up(destruction);
        ending = Some(destruction);
    });
    ending.unwrap().wait().unwrap();
    one_log.assert_over();
    wait_for(|| two_log.roots_dropped() == 1);
    two_log.assert_over();
}

#[test]
fn to_12_an_object_may_be_destroyed_by_its_own_make_rep() {
    let log = Log::default();
    let slot: Arc<Mutex<Option<Owned<dyn Hits>>>> = Arc::default();
    let mine = slot.clone();
    let hits =
        Spread::new(&log).on_make(move |_| drop(mine.lock().unwrap().take())).create(ClusterSize::Machine);
    let h = hits.handle();
    *slot.lock().unwrap() = Some(hits);
    // The call began before the destruction.
    h.try_add(1).unwrap();
    assert_eq!(h.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
    squall::rcu::barrier().unwrap();
    wait_for(|| log.roots_dropped() == 1);
    log.assert_over();
}

/// Waits for a condition that the reclaimer makes true.
fn wait_for(done: impl Fn() -> bool) {
    while !done() {
        squall::rcu::barrier().unwrap();
        thread::yield_now();
    }
}

#[test]
fn to_12_a_drop_may_call_create_and_destroy_and_use_its_own_id() {
    let _guard = drops_panic();
    let log = Log::default();
    let inner = Log::default();
    let (other, other_log) = both_kinds().into_iter().next().unwrap();
    let other = Mutex::new(Some(other));
    let inner_log = inner.clone();
    let spread = Spread::new(&log).on_drop(move |at| {
        // The drop runs outside every operation and outside Squall's locks.
        assert!(!squall::rcu::in_operation());
        let me = at.handle();
        let error = me.try_total().unwrap_err();
        assert_eq!((error.reason(), error.id()), (CallErrorKind::Destroyed, Handle::id(me)));
        assert_eq!(at.reps().count(), 0, "the other representatives are gone");
        // The id is free only after the last drop.
        let fresh: Vec<_> = (0..50).map(|_| Spread::new(&inner_log).create(ClusterSize::Cpu)).collect();
        assert!(fresh.iter().all(|hits| Handle::id(hits.handle()).slot() != Handle::id(me).slot()));
        fresh.iter().for_each(|hits| hits.add(1));
        drop(other.lock().unwrap().take());
    });
    let hits = spread.create(ClusterSize::Machine);
    hits.add(1);
    let panicked = squall::tables::stats().panicked_drops;
    end(hits);
    log.assert_over();
    squall::rcu::barrier().unwrap();
    wait_for(|| other_log.roots_dropped() == 1 && inner.roots_dropped() == 50);
    assert_eq!((inner.made(), inner.reps_dropped()), (50, 50));
    assert_eq!(squall::tables::stats().panicked_drops, panicked);
}

#[test]
fn to_12_a_drop_that_panics_stops_nothing() {
    let _guard = drops_panic();
    let log = Log::default();
    let before = squall::tables::stats().panicked_drops;
    let spread = Spread::new(&log).on_drop(|_| panic!("planned panic of a drop"));
    let hits = spread.create(ClusterSize::Cpu);
    let h = hits.handle();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || h.add(1));
        }
    });
    let made = log.made() as u64;
    end(hits);
    assert_eq!(squall::tables::stats().panicked_drops, before + made);
    log.assert_over();
}

#[test]
fn co_18_no_count_is_lost_while_tables_are_discarded_and_threads_move() {
    let _guard = common::tables_are_discarded();
    for (hits, log) in both_kinds() {
        let h = hits.handle();
        let calls = if cfg!(debug_assertions) { 20_000 } else { 250_000 };
        let done = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..calls {
                        if h.try_add(1).is_ok() {
                            done.fetch_add(1, Ordering::Relaxed);
                        } else {
                            return;
                        }
                    }
                });
            }
            scope.spawn(move || (0..200).for_each(|_| squall::tables::discard_all()));
        });
        assert_eq!(h.total(), done.load(Ordering::Relaxed));
        assert_eq!(done.load(Ordering::Relaxed), 4 * calls);
        end(hits);
        log.assert_over();
    }
}

#[test]
fn to_12_destruction_among_calls_loses_none_that_was_answered() {
    // Each thread counts its answered calls. The root's final sum must equal that count.
    for _ in 0..50 {
        let log = Log::default();
        let sum: Arc<AtomicU64> = Arc::default();
        let seen = sum.clone();
        let counted: Arc<AtomicU64> = Arc::default();
        let spread = Spread::new(&log);
        let hits = Tally { seen, spread }.create(ClusterSize::Cpu);
        let h = hits.handle();
        let started = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    started.wait();
                    while h.try_count().is_ok() {
                        counted.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            started.wait();
            Owned::destroy(hits).wait().unwrap();
        });
        assert_eq!(sum.load(Ordering::Relaxed), counted.load(Ordering::Relaxed));
        log.assert_over();
    }
}

/// Adds up the counts of its representatives when they are dropped.
struct Tally {
    seen: Arc<AtomicU64>,
    #[allow(dead_code, reason = "its drop writes the log")]
    spread: Spread,
}

struct Tallied(AtomicU64, RepContext<Tally>);

impl Root for Tally {
    type Interface = dyn Count;
    type Rep = Tallied;
    fn make_rep(&self, at: RepContext<Self>) -> Tallied {
        Tallied(AtomicU64::new(0), at)
    }
}

impl Count for Tallied {
    fn count(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl Drop for Tallied {
    fn drop(&mut self) {
        self.1.root().seen.fetch_add(self.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

// --- the context ---

#[test]
fn a_context_moved_out_of_its_representative_leads_to_the_root_only() {
    static KEPT: Mutex<Option<RepContext<Keeper>>> = Mutex::new(None);
    struct Keeper(Log);
    struct Kept {
        at: Option<RepContext<Keeper>>,
        text: String,
    }
    impl Count for Kept {
        fn count(&self) -> u64 {
            self.text.len() as u64 + u64::from(self.at.is_some())
        }
    }
    impl Root for Keeper {
        type Interface = dyn Count;
        type Rep = Kept;
        fn make_rep(&self, at: RepContext<Self>) -> Kept {
            Kept { at: Some(at), text: "x".repeat(100) }
        }
        fn cleanup(&self, _: Vp, mut rep: Kept) {
            *KEPT.lock().unwrap() = rep.at.take();
        }
    }
    impl Drop for Keeper {
        fn drop(&mut self) {
            self.0.push(Event::RootDropped);
        }
    }
    let log = Log::default();
    let object = Keeper(log.clone()).create(ClusterSize::Machine);
    let handle = object.handle();
    assert_eq!(handle.count(), 101);
    let destruction = Owned::destroy(object);
    wait_for(|| KEPT.lock().unwrap().is_some());
    let at = KEPT.lock().unwrap().take().unwrap();
    // The context keeps the root alive, and with it the id.
    assert_held_up(destruction);
    assert_eq!(log.roots_dropped(), 0);
    assert_eq!((at.handle(), at.is_ending()), (handle, true));
    assert_eq!(at.root().0.roots_dropped(), 0);
    // The representatives are gone, and the context does not lead to them.
    assert_eq!(at.reps().count(), 0);
    assert!(at.find(Vp::current()).is_none());
    assert!(catch_unwind(AssertUnwindSafe(|| at.local().text.len())).is_err(), "the representative is gone");
    assert_eq!(at.gather(|_| 1, |a, b| a + b), None);
    drop(at);
    destruction.wait().unwrap();
    assert_eq!(log.roots_dropped(), 1);
}

#[test]
fn a_context_of_a_failed_make_rep_leads_to_the_root_only() {
    let kept: Arc<Mutex<Vec<RepContext<Escape>>>> = Arc::default();
    struct Escape(Arc<Mutex<Vec<RepContext<Escape>>>>);
    struct Never;
    impl Count for Never {
        fn count(&self) -> u64 {
            0
        }
    }
    impl Root for Escape {
        type Interface = dyn Count;
        type Rep = Never;
        fn make_rep(&self, at: RepContext<Self>) -> Never {
            self.0.lock().unwrap().push(at);
            panic!("the context escaped");
        }
    }
    let object = Escape(kept.clone()).create(ClusterSize::Machine);
    assert_eq!(panic_of(|| object.count()), "the context escaped");
    let links = std::mem::take(&mut *kept.lock().unwrap());
    let at = Box::new(links.into_iter().next().unwrap());
    assert_eq!(at.handle(), object.handle());
    assert!(panic_of(|| at.reps().count()).contains("works only inside its representative"));
    assert!(panic_of(|| at.local().count()).contains("works only inside its representative"));
    let destruction = Owned::destroy(object);
    assert_held_up(destruction);
    drop(at);
    destruction.wait().unwrap();
}

// --- blocking methods ---

#[test]
fn pitfall_01_sleepers_wake_when_their_object_is_destroyed() {
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Machine);
    let h = hits.handle();
    let sleepers: Vec<_> = (0..6).map(|_| thread::spawn(move || h.wait_for(1))).collect();
    while squall::info_of(Handle::id(h)).unwrap().reps.iter().map(|rep| rep.holds).sum::<u32>() < 6 {
        thread::yield_now();
    }
    let destruction = Owned::destroy(hits);
    for sleeper in sleepers {
        assert_eq!(sleeper.join().unwrap(), None);
    }
    destruction.wait().unwrap();
    log.assert_over();
}

#[test]
fn a_wake_wakes_all_sleepers() {
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Cpu);
    let h = hits.handle();
    let sleepers: Vec<_> = (0..6).map(|_| thread::spawn(move || h.wait_for(3))).collect();
    (0..3).for_each(|_| h.add(1));
    for sleeper in sleepers {
        assert_eq!(sleeper.join().unwrap(), Some(3));
    }
    end(hits);
    log.assert_over();
}

#[test]
fn nothing_sleeps_inside_an_operation() {
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Machine);
    let text = panic_of(|| squall::rcu::pin(|_| hits.wait_for(1)));
    assert!(text.contains("slept inside an operation"), "{text}");
    let text = panic_of(|| hits.within(&mut || assert!(hits.wait_for(1).is_none())));
    assert!(text.contains("slept inside an operation"), "{text}");
    assert_eq!(squall::info_of(Handle::id(hits.handle())).unwrap().reps[0].holds, 0);
    end(hits);
}

#[test]
fn a_method_that_may_block_runs_outside_every_operation() {
    for (hits, _) in both_kinds() {
        hits.within(&mut || assert!(squall::rcu::in_operation()));
        hits.holding(&mut || {
            assert!(!squall::rcu::in_operation());
            squall::rcu::barrier().unwrap();
        });
        end(hits);
    }
}

// --- freeze ---

#[test]
fn co_16_a_call_of_the_object_while_it_is_frozen_is_caught() {
    struct Icy;
    struct Ice(RepContext<Icy>);
    impl Root for Icy {
        type Interface = dyn Count;
        type Rep = Ice;
        fn make_rep(&self, at: RepContext<Self>) -> Ice {
            Ice(at)
        }
        // The first cluster without a representative serves each miss; at last the first cluster.
        fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
            let clusters = machine().clusters(ClusterSize::Cpu);
            let bare = clusters.iter().find(|&cluster| miss.find(cluster).is_none());
            miss.rep(bare.unwrap_or(squall::Cluster::new(0))).once()
        }
    }
    thread_local! {
        static FROZEN: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    impl Count for Ice {
        fn count(&self) -> u64 {
            if FROZEN.replace(true) {
                return 1000;
            }
            let counted = catch_unwind(AssertUnwindSafe(|| {
                self.0.freeze(|reps| {
                    let before = reps.count() as u64;
                    before + self.0.handle().count()
                })
            }));
            FROZEN.set(false);
            counted.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        }
    }
    let clusters = machine().clusters(ClusterSize::Cpu).len() as u64;
    let object = Icy.create(ClusterSize::Cpu);
    // With a representative missing, a call inside `freeze` would wait for itself. The panic ends the freeze.
    for made in 1..clusters {
        let text = panic_of(|| object.count());
        assert!(text.contains("inside `freeze`"), "{text}");
        assert_eq!(squall::info_of(Handle::id(object.handle())).unwrap().reps.len() as u64, made);
    }
    // Once every cluster has a representative, the call succeeds.
    assert_eq!(object.count(), clusters + 1000);
    Owned::destroy(object).wait().unwrap();
}

#[test]
fn co_15_a_frozen_gather_cannot_wait_for_a_grace_period() {
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Cpu);
    hits.frozen(&mut |count| {
        assert_eq!(count, 1);
        assert_eq!(squall::rcu::wait(), Err(squall::rcu::WaitError::InOperation));
    });
    end(hits);
}

// --- well-known objects ---

#[test]
fn co_17_a_well_known_object_is_called_by_number() {
    static PLACE: WellKnown<dyn Hits> = WellKnown::new(17);
    let early = PLACE.handle();
    assert_eq!(early.try_add(1).unwrap_err().reason(), CallErrorKind::NotThere);
    assert_eq!(Handle::id(early).slot(), 17);
    let log = Log::default();
    let hits = PLACE.install(Spread::new(&log), ClusterSize::Cpu).unwrap();
    // The early handle works now.
    early.add(2);
    assert_eq!(PLACE.handle().total(), 2);
    assert_eq!(PLACE.handle(), early);
    let taken = PLACE.install_shared(Shared::default()).unwrap_err();
    assert!(taken.to_string().contains("17.1"), "{taken}");
    end(hits);
    assert_eq!(early.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
    // The next object has another generation.
    let again = PLACE.handle();
    assert_ne!(again, early);
    assert_eq!(again.try_add(1).unwrap_err().reason(), CallErrorKind::NotThere);
    let hits = PLACE.install_shared(Shared::default()).unwrap();
    again.add(5);
    assert_eq!(hits.total(), 5);
    assert_eq!(early.try_total().unwrap_err().reason(), CallErrorKind::Destroyed);
    assert!(squall::info_of(Handle::id(again)).unwrap().home.is_none());
    end(hits);
}

#[test]
fn co_17_a_reference_asked_for_while_one_is_reclaimed_is_to_the_next_one() {
    static PLACE: WellKnown<dyn Hits> = WellKnown::new(19);
    let first = PLACE.install_shared(Shared::default()).unwrap();
    let old = PLACE.handle();
    let inside = Inside::hold(old);
    let destruction = Owned::destroy(first);
    let next = PLACE.handle();
    assert_eq!(old.try_add(1).unwrap_err().reason(), CallErrorKind::Destroyed);
    assert_eq!(next.try_add(1).unwrap_err().reason(), CallErrorKind::NotThere);
    assert!(PLACE.install_shared(Shared::default()).is_err());
    drop(inside);
    destruction.wait().unwrap();
    let second = PLACE.install_shared(Shared::default()).unwrap();
    next.add(3);
    assert_eq!((second.total(), PLACE.handle()), (3, next));
    assert_eq!(old.try_total().unwrap_err().reason(), CallErrorKind::Destroyed);
    end(second);
}

#[test]
fn co_17_a_conflict_of_numbers_claims_none() {
    static LATE: WellKnown<dyn Count> = WellKnown::new(31);
    static WIDE: WellKnown<dyn Wide> = WellKnown::new(30);
    static EARLY: WellKnown<dyn Count> = WellKnown::new(30);
    // `Wide` needs two numbers. The second is taken, so the first stays free.
    assert_eq!(LATE.handle().try_count().unwrap_err().reason(), CallErrorKind::NotThere);
    let text = panic_of(|| WIDE.handle());
    assert!(text.contains("31") && text.contains("Wide"), "{text}");
    let object = EARLY.install_shared(Never(4)).unwrap();
    assert_eq!(EARLY.handle().count(), 4);
    Owned::destroy(object).wait().unwrap();
}

#[squall::interface]
trait Wide: Count {
    fn wide(&self) -> u64;
}

#[test]
fn co_17_a_number_means_one_interface() {
    static HITS: WellKnown<dyn Hits> = WellKnown::new(18);
    static COUNT: WellKnown<dyn Count> = WellKnown::new(18);
    let hits = HITS.install_shared(Shared::default()).unwrap();
    for text in [panic_of(|| COUNT.handle()), panic_of(|| COUNT.install_shared(Never(0)))] {
        assert!(text.contains("18") && text.contains("Hits") && text.contains("Count"), "{text}");
    }
    hits.add(1);
    end(hits);
}

struct Never(u64);

impl Count for Never {
    fn count(&self) -> u64 {
        self.0
    }
}

// --- thread ends ---

#[test]
fn pitfall_14_a_destructor_of_a_thread_may_use_objects() {
    struct AtExit(Handle<dyn Hits>, Log);
    impl Drop for AtExit {
        fn drop(&mut self) {
            self.0.add(1);
            let mut inside = 0;
            self.0.within(&mut || inside = self.0.total());
            assert!(inside >= 1);
            self.0.holding(&mut || self.0.add(1));
            let own = Spread::new(&self.1).create(ClusterSize::Cpu);
            own.add(1);
            drop(own);
        }
    }
    thread_local! {
        static EARLY: OnceLock<AtExit> = const { OnceLock::new() };
        static LATE: OnceLock<AtExit> = const { OnceLock::new() };
    }
    for (hits, log) in both_kinds() {
        let h = hits.handle();
        let inner = Log::default();
        for _ in 0..10 {
            let inner = inner.clone();
            let thread = thread::spawn(move || {
                // One destructor runs before Squall's destructor of this thread, the other after it.
                EARLY.with(|cell| drop(cell.set(AtExit(h, inner.clone()))));
                h.add(1);
                LATE.with(|cell| drop(cell.set(AtExit(h, inner.clone()))));
            });
            thread.join().unwrap();
        }
        let only = inner.clone();
        thread::spawn(move || EARLY.with(|cell| drop(cell.set(AtExit(h, only))))).join().unwrap();
        assert_eq!(h.total(), 10 * 5 + 2);
        end(hits);
        log.assert_over();
        squall::rcu::barrier().unwrap();
        wait_for(|| inner.roots_dropped() == 21);
        assert_eq!((inner.made(), inner.reps_dropped()), (21, 21));
    }
}

// --- inspection ---

#[test]
fn a_snapshot_lists_objects_and_changes_nothing() {
    let here = line!() + 2;
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Machine);
    let h = hits.handle();
    let info = squall::info_of(Handle::id(h)).unwrap();
    assert_eq!((info.reps.len(), info.misses), (0, 0));
    assert!(info.translations.is_empty());
    assert_eq!((info.made_at.line(), info.made_at.file()), (here, file!()));
    assert_eq!((info.interface, info.kind), ("Hits", ObjectKind::Clustered));
    assert!(info.class.ends_with("Spread") && info.interface_source.file.ends_with("mod.rs"));
    assert_eq!(info.state, squall::ObjectState::Live);
    h.add(1);
    let before = squall::info_of(Handle::id(h)).unwrap();
    assert!(before.bytes > info.bytes, "bytes include the representative");
    assert!(before.value_bytes < before.bytes);
    assert!(before.misses >= 1 && before.translations.len() as u64 <= before.misses);
    for _ in 0..100 {
        let all = squall::snapshot();
        let now = all.iter().find(|info| info.id == Handle::id(h)).unwrap();
        assert_eq!((now.misses, now.translations.len()), (before.misses, before.translations.len()));
        assert_eq!((now.bytes, now.reps.len()), (before.bytes, 1));
    }
    let inside = Inside::hold(h);
    assert_eq!(squall::info_of(Handle::id(h)).unwrap().reps[0].holds, 1);
    drop(inside);
    end(hits);
    assert!(squall::snapshot().iter().all(|info| info.id != Handle::id(h)));
}

#[test]
fn a_snapshot_shows_a_destroyed_object_while_a_call_holds_it() {
    for (hits, _) in both_kinds() {
        let h = hits.handle();
        let inside = Inside::hold(h);
        let destruction = Owned::destroy(hits);
        assert_held_up(destruction);
        let info = squall::info_of(Handle::id(h)).unwrap();
        assert_eq!((info.state, info.reps[0].holds), (squall::ObjectState::Ending, 1));
        assert!(squall::snapshot().iter().any(|info| info.id == Handle::id(h)));
        let before = squall::Id::from_parts(info.id.slot() - 1, u32::MAX);
        assert_eq!(squall::snapshot_after(before, 1)[0].id, info.id);
        assert!(squall::snapshot_after(Some(info.id), usize::MAX).iter().all(|other| other.id != info.id));
        drop(inside);
        destruction.wait().unwrap();
        assert!(squall::info_of(Handle::id(h)).is_none());
    }
}

#[test]
fn co_11_an_unshared_object_costs_little() {
    let object: Owned<dyn Count> = squall::shared(Never(1));
    let info = squall::info_of(Handle::id(object.handle())).unwrap();
    assert_eq!((info.value_bytes, info.reps.len(), info.kind), (8, 1, ObjectKind::Shared));
    let stats = squall::tables::stats();
    assert!(info.bytes - info.value_bytes + stats.slot_bytes <= 160, "{info:?}");
    assert_eq!(stats.entry_bytes, 8);
    Owned::destroy(object).wait().unwrap();
}

#[test]
fn pr_16_experts_override_each_stage_and_defaults_need_nothing() {
    // The shortest possible root: two types and one line.
    struct Plain;
    struct Part(RepContext<Plain>, AtomicU64);
    impl Root for Plain {
        type Interface = dyn Count;
        type Rep = Part;
        fn make_rep(&self, at: RepContext<Self>) -> Part {
            Part(at, AtomicU64::new(0))
        }
    }
    impl Count for Part {
        fn count(&self) -> u64 {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.reps().map(|part| part.1.load(Ordering::Relaxed)).sum()
        }
    }
    let object = Plain.create(ClusterSize::Core);
    assert_eq!((object.count(), object.count()), (1, 2));
    Owned::destroy(object).wait().unwrap();
}

// --- fallbacks ---

#[test]
fn the_tests_pass_under_each_fallback() {
    if common::is_child() {
        return;
    }
    for environment in [
        &[("SQUALL_RSEQ", "off")][..],
        &[("SQUALL_MEMBARRIER", "off")],
        &[("SQUALL_RECLAIMER", "off")],
        &[("SQUALL_RSEQ", "off"), ("SQUALL_MEMBARRIER", "off"), ("SQUALL_RECLAIMER", "off")],
        &[("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:4,threads:2")],
        &[("SQUALL_TOPOLOGY", "cores:1")],
        &[("SQUALL_TOPOLOGY", "nodes:8,cores:8")],
        &[("SQUALL_TOPOLOGY", "nodes:2,cores:2"), ("SQUALL_RECLAIMER", "off"), ("SQUALL_MEMBARRIER", "off")],
    ] {
        common::again(&["objects::", "--test-threads=2"], environment);
    }
}
