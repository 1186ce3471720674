//! Monitors. The general monitor is process-wide, so its tests take turns, and each test reads only records
//! of its own kinds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

#[cfg(all(target_os = "linux", not(miri)))]
#[path = "../../../squall-rcu/tests/forked/mod.rs"]
mod child;

use squall_machine::asym;
use squall_policy::monitor::{
    self, BUFFER_RECORDS, COLLECTOR_NAME, CollectorState, Kind, Object, Record, Subscription, collect, emit,
    stats, subscribe, subscribe_digest, subscribe_without_collector,
};

use squall_sys::trace::{self, Subject};

/// Serialises the tests of the general monitor. Waits until there is no subscription, no buffer and no
/// collector.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    until(|| {
        let stats = stats();
        (stats.subscriptions, stats.buffers, stats.collector) == (0, 0, CollectorState::None)
    });
    turn
}

/// Waits for a condition. If it never holds, the test hangs.
fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `f` on a thread of its own, and joins it, so that its buffer is gone. A scoped thread may outlive its
/// scope with its thread-locals.
fn apart(f: impl FnOnce() + Send + 'static) {
    thread::spawn(f).join().expect("it does not panic");
}

/// Returns two values, the second computed from the first, so that a torn record is detected.
fn sealed(n: u64) -> [u64; 2] {
    [n, n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ 0x5bd1_e995]
}

/// Takes the remaining records of one kind from a subscription. Returns them and the number of dropped
/// records.
fn rest(subscription: &Subscription, kind: &'static Kind) -> (Vec<Record>, u64) {
    let (mut records, mut dropped) = (Vec::new(), 0);
    while let Some(batch) = subscription.try_recv() {
        records.extend(batch.records().iter().filter(|record| std::ptr::eq(record.kind(), kind)));
        dropped += batch.dropped();
    }
    (records, dropped)
}

fn firsts(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.values()[0]).collect()
}

#[test]
fn off_allocates_nothing_and_starts_nothing() {
    static KIND: Kind = Kind::new("test.off", ["n", "seal"]);
    let _turn = turn();
    for _ in 0..8 {
        apart(|| {
            (0..100).for_each(|n| emit(&KIND, Object::NONE, sealed(n)));
            monitor::insert(Record::now(&KIND, Object::NONE, sealed(0)));
            let stats = stats();
            assert_eq!((stats.buffers, stats.bytes, stats.collector), (0, 0, CollectorState::None));
        });
    }
    assert!(!monitor::is_on());
    assert_eq!(collect(), 0);
}

#[test]
fn records_within_the_capacity_are_kept_and_surplus_ones_counted() {
    static KIND: Kind = Kind::new("test.capacity", ["n", "seal"]);
    let _turn = turn();
    apart(|| {
        let subscription = subscribe_without_collector(8).expect("it needs no thread");
        let full = BUFFER_RECORDS as u64;
        (0..full).for_each(|n| emit(&KIND, Object::NONE, sealed(n)));
        assert_eq!(collect(), BUFFER_RECORDS);
        (full..2 * full + 7).for_each(|n| emit(&KIND, Object::NONE, sealed(n)));
        assert_eq!(collect(), BUFFER_RECORDS);
        let (records, dropped) = rest(&subscription, &KIND);
        assert_eq!((firsts(&records), dropped), ((0..2 * full).collect(), 7));
        assert!(records.iter().all(|record| record.values() == sealed(record.values()[0])));
    });
}

#[test]
fn a_record_names_its_thread_object_and_time() {
    static KIND: Kind = Kind::new("test.record", ["n", "seal"]);
    let _turn = turn();
    apart(|| {
        let subscription = subscribe_without_collector(8).expect("it needs no thread");
        let before = monitor::now_ns();
        emit(&KIND, Object::number(5), sealed(1));
        collect();
        let record = rest(&subscription, &KIND).0[0];
        assert!((before..=monitor::now_ns()).contains(&record.at_ns()));
        assert_eq!(record.object(), Object::number(5));
        let this = format!("/proc/self/task/{}", record.thread());
        assert!(std::fs::exists(this).is_ok_and(|there| there), "{record} is of no thread of ours");
    });
}

#[test]
fn kt_18_no_record_is_torn_doubled_or_out_of_order_under_load() {
    static KIND: Kind = Kind::new("test.load", ["n", "seal"]);
    const WRITERS: u32 = 4;
    const RECORDS: u64 = if cfg!(miri) { 300 } else { 60_000 };
    let _turn = turn();
    let subscription = subscribe(1 << 20).expect("a thread can be started");
    let write = |writer| {
        for n in 0..RECORDS {
            emit(&KIND, Object::number(writer), sealed(n));
            // Every other stretch has no pauses, so that the buffer overflows.
            if n % 64 == 0 && n / 4096 % 2 == 0 {
                thread::yield_now();
            }
        }
    };
    let writers: Vec<_> = (1..=WRITERS).map(|writer| thread::spawn(move || write(writer))).collect();
    // Two threads gather: this one from time to time, and the collector.
    while !writers.iter().all(|writer| writer.is_finished()) {
        collect();
        thread::yield_now();
    }
    writers.into_iter().for_each(|writer| writer.join().expect("it does not panic"));
    subscription.close();
    assert_eq!(subscription.missed(), 0, "the queue was meant to be long enough");
    let (records, dropped) = rest(&subscription, &KIND);
    let mut next = [0; WRITERS as usize];
    for record in &records {
        let [n, _] = record.values();
        assert_eq!(record.values(), sealed(n), "torn");
        let writer = (1..=WRITERS).find(|&writer| Object::number(writer) == record.object());
        let next = &mut next[writer.expect("one of ours") as usize - 1];
        assert!(n >= *next, "{n} where {next} is the least that can come");
        *next = n + 1;
    }
    assert_eq!(records.len() as u64 + dropped, u64::from(WRITERS) * RECORDS);
}

#[test]
fn a_thread_that_ends_leaves_its_records_and_not_its_buffer() {
    static KIND: Kind = Kind::new("test.exit", ["n", "seal"]);
    const THREADS: u64 = 32;
    let _turn = turn();
    let subscription = subscribe_without_collector(THREADS as usize).expect("it needs no thread");
    (0..THREADS).for_each(|n| apart(move || emit(&KIND, Object::NONE, sealed(n))));
    assert_eq!(stats().buffers, 0);
    assert_eq!(firsts(&rest(&subscription, &KIND).0), (0..THREADS).collect::<Vec<_>>());
}

#[test]
fn a_record_of_a_thread_at_its_very_end_is_kept_or_counted() {
    static KIND: Kind = Kind::new("test.late", ["n", "seal"]);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            emit(&KIND, Object::NONE, sealed(2));
        }
    }
    thread_local!(static LATE: Late = const { Late });
    let _turn = turn();
    for late_first in [false, true] {
        let subscription = subscribe_without_collector(8).expect("it needs no thread");
        apart(move || {
            if late_first {
                LATE.with(|_| ());
            }
            emit(&KIND, Object::NONE, sealed(1));
            LATE.with(|_| ());
        });
        collect();
        let (records, dropped) = rest(&subscription, &KIND);
        assert_eq!((records.len() as u64 + dropped, stats().buffers), (2, 0));
    }
}

#[test]
fn events_of_lower_floors_arrive_with_their_subjects() {
    static KIND: Kind = Kind::new("test.trace", ["state", "ns"]).with_codes(0, &["open", "closed"]);
    let _turn = turn();
    apart(|| {
        let lock = 0_u64;
        trace::emit(&KIND, Subject::at(&lock), [0, 1]);
        let subscription = subscribe_without_collector(8).expect("it needs no thread");
        trace::emit(&KIND, Subject::at(&lock), [1, 20]);
        trace::emit(&KIND, Subject::id(17, 3), [0, 30]);
        subscription.close();
        trace::emit(&KIND, Subject::NONE, [0, 40]);
        let (records, _) = rest(&subscription, &KIND);
        let found: Vec<_> = records.iter().map(|record| (record.object(), record.values())).collect();
        let id = squall_core::Id::from_parts(17, 3).expect("it is one");
        assert_eq!(found, [(Object::at(&lock), [1, 20]), (id.into(), [0, 30])]);
        assert!(records[0].to_string().ends_with(" state=closed ns=20"), "{}", records[0]);
    });
}

#[test]
fn a_digest_has_exact_sums_apart_by_code_and_counts_its_losses() {
    static KIND: Kind = Kind::new("test.digest", ["state", "ns"]).with_codes(0, &["open", "closed"]);
    let _turn = turn();
    apart(|| {
        let digest = subscribe_digest(2, Duration::MAX).expect("a thread can be started");
        for n in 0..300 {
            emit(&KIND, Object::number(1), [n % 2, n]);
        }
        (0..7).for_each(|_| emit(&KIND, Object::number(2), [0, 1]));
        let sums = digest.take().expect("it is open");
        let found: Vec<_> = sums.aggregates.iter().map(|one| (one.codes[0], one.count, one.sums)).collect();
        let even = (Some(0), 150, [0, (0..300).step_by(2).sum()]);
        let odd = (Some(1), 150, [0, (1..300).step_by(2).sum()]);
        assert_eq!(found, [even, odd]);
        assert_eq!((sums.dropped, sums.missed), (0, 7), "there was room for two aggregates");
        let sums = digest.take().expect("it is open");
        assert_eq!((sums.aggregates.len(), sums.missed), (0, 0), "each take starts at zero");
    });
}

#[test]
fn a_digest_that_its_reader_abandons_switches_the_monitor_off() {
    let _turn = turn();
    let kept = subscribe_digest(8, Duration::MAX).expect("a thread can be started");
    let abandoned = subscribe_digest(8, Duration::ZERO).expect("a thread can be started");
    until(|| stats().subscriptions == 1);
    assert!(abandoned.take().is_none() && monitor::is_on() && kept.take().is_some());
    kept.set_idle_max(Duration::ZERO);
    until(|| stats().subscriptions == 0 && stats().collector == CollectorState::None);
    assert!(kept.take().is_none() && !monitor::is_on());
}

/// A child of a fork emits into its own copy of the buffer. The parent's records are as if it had not.
#[cfg(all(target_os = "linux", not(miri)))]
#[test]
fn records_of_a_forked_child_stay_there() {
    static KIND: Kind = Kind::new("test.fork", ["n", "seal"]);
    let _turn = turn();
    apart(|| {
        let subscription = subscribe_without_collector(8).expect("it needs no thread");
        trace::emit(&KIND, Subject::NONE, sealed(1));
        let fills = || {
            (0..2 * BUFFER_RECORDS as u64).for_each(|n| trace::emit(&KIND, Subject::NONE, sealed(n)));
            collect() == 0 && stats().buffers == 0 && subscription.recv().is_none()
        };
        assert!(child::in_forked_child(fills));
        // A thread without a buffer gets none in the child.
        apart(|| {
            assert!(child::in_forked_child(|| {
                trace::emit(&KIND, Subject::NONE, sealed(0));
                collect() == 0
            }));
        });
        trace::emit(&KIND, Subject::NONE, sealed(2));
        assert_eq!(collect(), 2);
        let (records, dropped) = rest(&subscription, &KIND);
        assert_eq!((firsts(&records), dropped), (vec![1, 2], 0));
    });
}

/// Returns `true` if a thread with the collector's name exists.
fn collector_is_there() -> bool {
    let mut tasks = std::fs::read_dir("/proc/self/task").expect("Linux has it").flatten();
    tasks.any(|task| {
        std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == COLLECTOR_NAME)
    })
}

/// Checks that the collector sleeps while no thread emits. A wake-up from before may come late, so the check
/// waits for a stretch without a round. A collector with a timer has no such stretch.
fn rests() {
    for _ in 0..20 {
        until(|| stats().collector == CollectorState::Resting);
        let rounds = stats().rounds;
        thread::sleep(Duration::from_millis(50));
        if stats().rounds == rounds {
            return;
        }
    }
    panic!("the collector wakes up while no thread emits");
}

#[test]
fn the_collector_is_woken_rests_and_ends_with_its_last_subscription() {
    static KIND: Kind = Kind::new("test.collector", ["n", "seal"]);
    let _turn = turn();
    let (one, two) = (subscribe(8).expect("a thread"), subscribe(64).expect("the same thread"));
    until(collector_is_there);
    // Each record finds the collector at rest and must wake it. The writer neither ends nor writes another
    // record meanwhile.
    let (to_writer, orders) = mpsc::channel();
    let writer = thread::spawn(move || orders.iter().for_each(|n| emit(&KIND, Object::NONE, sealed(n))));
    for n in 0..20 {
        until(|| stats().collector == CollectorState::Resting);
        to_writer.send(n).expect("it waits for orders");
        // Swaps in other tests emit records, too.
        let batches = std::iter::from_fn(|| one.recv());
        let mut records = batches.flat_map(|batch| batch.records().to_vec());
        let record = records.find(|record| std::ptr::eq(record.kind(), &KIND)).expect("it is open");
        assert_eq!(record.values(), sealed(n));
    }
    // The collector cannot rest without a time limit if the kernel refuses the heavy fence.
    if asym::heavy().is_ok() {
        rests();
    }
    one.close();
    assert!(monitor::is_on() && collector_is_there());
    assert!(one.recv().is_none() && one.try_recv().is_none(), "closed and empty");
    assert_eq!(firsts(&rest(&two, &KIND).0), (0..20).collect::<Vec<_>>());
    drop(two);
    assert!(!monitor::is_on());
    until(|| stats().collector == CollectorState::None && !collector_is_there());
    drop(to_writer);
    writer.join().expect("it does not panic");
}

#[test]
fn a_reader_that_does_not_read_misses_and_others_do_not() {
    static KIND: Kind = Kind::new("test.missed", ["n", "seal"]);
    let _turn = turn();
    apart(|| {
        let lazy = subscribe_without_collector(2).expect("it needs no thread");
        let keen = subscribe_without_collector(16).expect("it needs no thread");
        for n in 0..10 {
            emit(&KIND, Object::NONE, sealed(n));
            collect();
        }
        assert_eq!((lazy.missed(), keen.missed()), (8, 0));
        assert_eq!(firsts(&rest(&lazy, &KIND).0), [0, 1]);
        assert_eq!(firsts(&rest(&keen, &KIND).0), (0..10).collect::<Vec<_>>());
        emit(&KIND, Object::NONE, sealed(10));
        lazy.close();
        assert_eq!(firsts(&rest(&lazy, &KIND).0), [10], "closing gathers what was emitted before");
        assert_eq!(firsts(&rest(&keen, &KIND).0), [10]);
    });
}

#[test]
fn a_reader_gets_no_records_from_before_its_subscription() {
    static KIND: Kind = Kind::new("test.before", ["n", "seal"]);
    let _turn = turn();
    apart(|| {
        let first = subscribe_without_collector(8).expect("it needs no thread");
        emit(&KIND, Object::NONE, sealed(1));
        // Not gathered yet: the second subscription gathers it for the first.
        let second = subscribe_without_collector(8).expect("it needs no thread");
        emit(&KIND, Object::NONE, sealed(2));
        first.close();
        assert_eq!(firsts(&rest(&first, &KIND).0), [1, 2]);
        assert_eq!(firsts(&rest(&second, &KIND).0), [2]);
        drop(second);
        emit(&KIND, Object::NONE, sealed(3));
        let third = subscribe_without_collector(8).expect("it needs no thread");
        emit(&KIND, Object::NONE, sealed(4));
        collect();
        assert_eq!(firsts(&rest(&third, &KIND).0), [4]);
    });
}

/// Subscribes, writes a record, and closes. The record is received or counted as lost.
fn come_and_go(reader: u32, round: u32, kind: &'static Kind) {
    let subscription = match (round + reader) % 3 {
        0 => subscribe_without_collector(4).expect("it needs no thread"),
        _ => subscribe(4).expect("a thread can be started"),
    };
    let own = Object::number(1000 + reader);
    emit(kind, own, sealed(round.into()));
    let first = subscription.recv_timeout(Duration::from_micros(300));
    subscription.close();
    let (mut lost, mut found) = (subscription.missed(), false);
    for batch in first.into_iter().chain(std::iter::from_fn(|| subscription.try_recv())) {
        lost += batch.dropped();
        for record in batch.records() {
            assert_eq!(record.values(), sealed(record.values()[0]), "torn");
            found |= record.object() == own && record.values()[0] == u64::from(round);
        }
    }
    assert!(found || lost > 0, "reader {reader} has lost its record of round {round}");
}

#[test]
fn subscriptions_may_come_and_go_while_all_write() {
    static KIND: Kind = Kind::new("test.races", ["n", "seal"]);
    static STOP: AtomicBool = AtomicBool::new(false);
    const READERS: u32 = 3;
    const ROUNDS: u32 = if cfg!(miri) { 3 } else { 100 };
    let _turn = turn();
    let write = |writer| {
        let mut n = 0;
        while !STOP.load(Ordering::Relaxed) {
            emit(&KIND, Object::number(writer), sealed(n));
            n += 1;
        }
    };
    let writers: Vec<_> = (0..2).map(|writer| thread::spawn(move || write(writer))).collect();
    let readers: Vec<_> = (0..READERS)
        .map(|reader| thread::spawn(move || (0..ROUNDS).for_each(|round| come_and_go(reader, round, &KIND))))
        .collect();
    let results: Vec<_> = readers.into_iter().map(thread::JoinHandle::join).collect();
    STOP.store(true, Ordering::Relaxed);
    writers.into_iter().for_each(|writer| writer.join().expect("it does not panic"));
    assert!(results.iter().all(Result::is_ok));
    assert!(!monitor::is_on() && stats().subscriptions == 0 && stats().buffers == 0);
    until(|| stats().collector == CollectorState::None);
}

#[test]
fn closing_a_subscription_wakes_its_waiting_reader() {
    let _turn = turn();
    let subscription = subscribe(1).expect("a thread can be started");
    thread::scope(|scope| {
        let waiting = scope.spawn(|| subscription.recv().is_none());
        thread::yield_now();
        subscription.close();
        assert!(waiting.join().expect("it does not panic"));
    });
}
