//! `monitor`: the cost for a thread to note one fact, for a later reader or for itself.
//!
//! The case follows KTK's comparison of a general monitor with a lock that monitors itself (Gheith et al.
//! 1994, section 5.2; KSR1). There, a sensor of 40 bytes took 118, 58 and 51 µs to create, insert and
//! retrieve. Another 38 µs passed until 8 bytes reached the monitor's thread. Monitoring and configuring an
//! attribute in the lock took 5.5 µs, an uncontended mutex 6 µs.
//!
//! `squall-general` writes a record into the thread's buffer; `squall-off` tries to, without a subscriber.
//! The rivals put records of equal size, with the time, into one bounded buffer for all threads. The threads
//! themselves empty the buffers outside the measured time, before they are full. `squall-in-object` takes and
//! leaves a configurable lock, which notes each wait in its own monitor. After each 64 sections the thread
//! that left the lock reads the monitor and sets an attribute of the lock.
//!
//! - I1. Records are read as they were written: a lost or doubled record ends the run with an error.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use squall::lock::{ConfigurableLock, Waiting};
use squall::policy::monitor::{self, CollectorState, Kind, Object, Record, Subscription, collect, now_ns};

use crate::case::{Case, Make, Missing, PLAIN, Scale, Setting, SliceEnd, Spec, Subject, Worker};
use crate::harness::quantile;
use crate::rivals::logs::{self, CHUNK, Log};
use crate::uncounted::uncounted;

pub(super) static CASE: Case = Case {
    name: "monitor",
    about: "one fact noted: for a reader elsewhere, or by a lock with a monitor of its own",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall-general", logging::<General>()),
        Spec::ours("squall-off", logging::<Off>()),
        Spec::ours("squall-in-object", logging::<InObject>()),
        Spec::rival("std-mutex", logging::<logs::Locked>()),
        Spec::rival("std-mpsc", logging::<logs::Channel>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[],
};

static FACT: Kind = Kind::new("bench.fact", ["n", ""]);

struct Logging<L> {
    log: L,
    read: AtomicU64,
}

/// Makes the subject that notes facts in `L`.
const fn logging<L: Log + 'static>() -> Make {
    fn make<L: Log + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Ok(Box::new(Logging { log: L::new(setting.threads), read: AtomicU64::new(0) }))
    }
    make::<L>
}

impl<L: Log> Subject for Logging<L> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        self.log.begin();
        Box::new(move |ops| {
            let mut n = 0;
            while n < ops {
                let end = L::CHUNK.map_or(ops, |chunk| ops.min(n + chunk as u64));
                for n in n..end {
                    self.log.note(thread, n);
                }
                n = end;
                if L::CHUNK.is_some() {
                    uncounted(|| self.read.fetch_add(self.log.read(), Ordering::Relaxed));
                }
            }
        })
    }

    fn end_slice(&self, _: u64) -> SliceEnd {
        self.read.fetch_add(self.log.end(), Ordering::Relaxed);
        SliceEnd::default()
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        let read = self.read.load(Ordering::Relaxed) + self.log.end();
        match self.log.wrong(ops, read) {
            0 => Ok(()),
            wrong => Err(format!("{ops} facts were noted, {read} were read, {wrong} are wrong")),
        }
    }
}

/// `squall-general`: subscribed from the making of the first worker to the end of the slice.
struct General {
    object: Object,
    subscription: Mutex<Option<Subscription>>,
}

/// A number of batches that is never reached.
const BATCHES_MAX: usize = 1 << 20;

impl General {
    fn subscription(&self) -> std::sync::MutexGuard<'_, Option<Subscription>> {
        self.subscription.lock().expect("a thread panicked under the lock")
    }

    fn count(&self, subscription: &Subscription) -> u64 {
        let batches = std::iter::from_fn(|| subscription.try_recv());
        batches
            .flat_map(|b| b.aggregates().to_vec())
            .filter(|a| a.object == self.object)
            .map(|a| a.count)
            .sum()
    }
}

impl Log for General {
    fn new(_: usize) -> General {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let object = Object::number(LAST.fetch_add(1, Ordering::Relaxed) + 1);
        General { object, subscription: Mutex::new(None) }
    }

    fn begin(&self) {
        self.subscription().get_or_insert_with(|| {
            monitor::subscribe_without_collector(BATCHES_MAX)
                .expect("no subscription: this process is the child of a fork")
        });
        // The thread's first record makes its buffer. It is about no object of the case, so it does not
        // count.
        monitor::emit(&FACT, Object::NONE, [0; 2]);
        collect();
    }

    #[inline(always)]
    fn note(&self, _: usize, n: u64) {
        monitor::emit(&FACT, self.object, [n, 0]);
    }

    fn read(&self) -> u64 {
        collect();
        self.subscription().as_ref().map_or(0, |subscription| self.count(subscription))
    }

    fn end(&self) -> u64 {
        self.subscription().take().map_or(0, |subscription| {
            subscription.close();
            self.count(&subscription)
        })
    }
}

/// `squall-off`: no fact is noted, since there is no subscriber.
struct Off {
    was_on: AtomicBool,
}

impl Log for Off {
    const CHUNK: Option<usize> = None;

    fn new(_: usize) -> Off {
        Off { was_on: AtomicBool::new(false) }
    }

    fn begin(&self) {
        self.was_on.fetch_or(monitor::is_on(), Ordering::Relaxed);
    }

    #[inline(always)]
    fn note(&self, _: usize, n: u64) {
        monitor::emit(&FACT, Object::NONE, [n, 0]);
    }

    fn end(&self) -> u64 {
        self.begin();
        0
    }

    fn wrong(&self, ops: u64, _: u64) -> u64 {
        if self.was_on.load(Ordering::Relaxed) { ops } else { 0 }
    }
}

/// `squall-in-object`: a lock that monitors and configures itself. Its value counts the sections.
struct InObject(ConfigurableLock<u64>);

/// Sections between two decisions about the attribute.
const DECIDE_AFTER: u64 = 64;

impl InObject {
    /// Reads the monitor and sets the way in which threads wait.
    #[inline(never)]
    fn decide(&self) {
        let seen = self.0.monitor();
        let spins = seen.spins_wasted <= seen.spins_used;
        self.0.set_waiting(if spins { Waiting::SPIN_THEN_BLOCK } else { Waiting::BLOCK });
    }
}

impl Log for InObject {
    const CHUNK: Option<usize> = None;

    fn new(_: usize) -> InObject {
        InObject(ConfigurableLock::new(0))
    }

    #[inline(always)]
    fn note(&self, _: usize, _: u64) {
        let mut sections = self.0.lock();
        *sections += 1;
        let is_due = sections.is_multiple_of(DECIDE_AFTER);
        drop(sections);
        if is_due {
            self.decide();
        }
    }

    /// Counts the sections that are missing, and waits of no section.
    fn wrong(&self, ops: u64, _: u64) -> u64 {
        ops.abs_diff(*self.0.lock()) + self.0.contended().saturating_sub(ops)
    }
}

/// Measures the parts that KTK distinguished, on one thread, and the way to a reader.
fn measure(_: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let (rounds, trips) = if quick { (20, 50) } else { (200, 500) };
    let told = |error: monitor::MonitorError| error.to_string();
    let mut parts = Parts::default();
    let subscription = monitor::subscribe_without_collector(BATCHES_MAX).map_err(told)?;
    for _ in 0..rounds {
        parts.round(&subscription)?;
    }
    drop(subscription);
    let subscription = monitor::subscribe(BATCHES_MAX).map_err(told)?;
    let trips_ours = Trips::ours(trips, &subscription);
    drop(subscription);
    let trips_rival = Trips::rival(trips);
    let metric = |name: &str, values: &[f64], q: f64| (name.to_owned(), quantile(values, q));
    Ok(vec![
        metric("create_ns", &parts.create_ns, 0.5),
        metric("insert_ns", &parts.insert_ns, 0.5),
        metric("retrieve_ns", &parts.retrieve_ns, 0.5),
        metric("decide_ns", &parts.decide_ns, 0.5),
        metric("mutex_ns", &parts.mutex_ns, 0.5),
        metric("to_reader_us", &trips_ours.way_us, 0.5),
        metric("to_reader_p99_us", &trips_ours.way_us, 0.99),
        metric("waking_emit_us", &trips_ours.insert_us, 0.5),
        metric("mpsc_to_reader_us", &trips_rival.way_us, 0.5),
        metric("mpsc_waking_send_us", &trips_rival.insert_us, 0.5),
    ])
}

/// Nanoseconds of each part, one figure per round.
#[derive(Default)]
struct Parts {
    create_ns: Vec<f64>,
    insert_ns: Vec<f64>,
    retrieve_ns: Vec<f64>,
    decide_ns: Vec<f64>,
    mutex_ns: Vec<f64>,
}

impl Parts {
    fn round(&mut self, subscription: &Subscription) -> Result<(), String> {
        let record = |n| Record::now(&FACT, Object::NONE, [n, 0]);
        let sample = record(0);
        self.create_ns.push(each_ns(|n| {
            black_box(record(n));
        }));
        self.insert_ns.push(each_ns(|_| monitor::insert(black_box(sample))));
        let mut read = 0;
        self.retrieve_ns.push(once_ns(|| {
            collect();
            while let Some(batch) = subscription.try_recv() {
                read += batch.records().len();
            }
        }));
        let object = InObject::new(1);
        self.decide_ns.push(each_ns(|_| black_box(&object).decide()));
        let mutex = Mutex::new(0u64);
        self.mutex_ns
            .push(each_ns(|n| *black_box(&mutex).lock().expect("a thread panicked under the lock") += n));
        if read == CHUNK {
            Ok(())
        } else {
            Err(format!("{CHUNK} records were inserted, and {read} were read"))
        }
    }
}

/// Nanoseconds of one of [`CHUNK`] calls.
fn each_ns(mut call: impl FnMut(u64)) -> f64 {
    once_ns(|| (0..CHUNK as u64).for_each(&mut call))
}

/// Nanoseconds of `all`, divided by [`CHUNK`].
fn once_ns(all: impl FnOnce()) -> f64 {
    let start = Instant::now();
    all();
    start.elapsed().as_nanos() as f64 / CHUNK as f64
}

/// Facts written one at a time, while their reader sleeps.
#[derive(Default)]
struct Trips {
    /// Microseconds from before a fact is written until the reader has it.
    way_us: Vec<f64>,
    /// Microseconds until the writer goes on.
    insert_us: Vec<f64>,
}

/// Time for which a reader is left alone, so that it sleeps.
const ALONE: Duration = Duration::from_millis(2);

impl Trips {
    fn ours(count: usize, subscription: &Subscription) -> Trips {
        let came = || subscription.recv().is_some_and(|batch| !batch.records().is_empty());
        let is_asleep = || monitor::stats().collector == CollectorState::Resting;
        Trips::made(count, |n| monitor::emit(&FACT, Object::NONE, [n, 0]), came, is_asleep)
    }

    fn rival(count: usize) -> Trips {
        let (sender, receiver) = mpsc::sync_channel(CHUNK);
        Trips::made(
            count,
            |n| sender.try_send([n; 5]).expect("the channel is full"),
            move || receiver.recv().is_ok(),
            || true,
        )
    }

    fn made(
        count: usize,
        write: impl Fn(u64),
        mut came: impl FnMut() -> bool + Send,
        is_asleep: impl Fn() -> bool,
    ) -> Trips {
        let mut trips = Trips::default();
        thread::scope(|scope| {
            let (tell, arrivals) = mpsc::channel();
            scope.spawn(move || {
                for _ in 0..count {
                    if !came() || tell.send(now_ns()).is_err() {
                        return;
                    }
                }
            });
            for n in 0..count as u64 {
                thread::sleep(ALONE);
                while !is_asleep() {
                    thread::sleep(ALONE);
                }
                let before = now_ns();
                write(n);
                let after = now_ns();
                let Ok(there) = arrivals.recv() else { return };
                trips.insert_us.push((after - before) as f64 / 1e3);
                trips.way_us.push(there.saturating_sub(before) as f64 / 1e3);
            }
        });
        trips
    }
}
