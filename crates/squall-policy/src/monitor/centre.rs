//! The centre: who writes, who reads, and the collector between them.
//!
//! - I1. Rings are read, and queues filled, under the centre's lock alone (`ring/I1`); no code of users runs under it.
//! - I2. There is at most one collector: whether it runs is written under the lock, by who starts it and by itself when it
//!   ends, which it decides under the lock too. It runs while a subscription wants it.
//! - I3. A collector that sleeps without a time limit has seen every ring empty after it announced its rest, or is called.
//!
//! Argument for I3. The collector reads the event count, announces its rest, executes the heavy fence, and looks at the
//! rings; a writer moves its `tail`, executes the light fence, and looks whether the collector rests. By `asym/I1` the
//! collector sees the record, or the writer sees the rest, and then it signals, after the collector has read the count, so
//! that the sleep ends (`park/I1`). A buffer that is not known yet when the collector looks is joined after that, under the
//! lock, and its writer sees the rest by it.
//!
//! A collector that found something naps for [`NAP`] before it looks again, without asking to be called: so a stream of
//! records costs its writers no system call but one for half a buffer. Where the heavy fence is refused, rests are short.
//!
//! Cost of a round: a look at each buffer. At rest: nothing.

use std::fmt;
use std::io;
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Duration;

use squall_machine::asym;
use squall_machine::park::{EventCount, Seen};
use squall_sys::fork::{arm, forked};

use super::batch::{BATCH_RECORDS_MAX, Batch};
use super::buffer::{Buffer, take_homeless};
use super::record::Record;
use super::subscription::{Queue, Subscription};
use super::{COLLECTOR_NAME, ON, buffer_bytes};

/// How long the collector naps after it found something: what a record's way to the reader takes at most while others
/// come, the scheduler's part aside.
const NAP: Duration = Duration::from_millis(1);
/// How long it rests at most where it cannot be sure to be called.
const BLIND_REST: Duration = Duration::from_millis(10);

static CENTRE: Mutex<Centre> = Mutex::new(Centre {
    buffers: Vec::new(),
    queues: Vec::new(),
    collector: CollectorState::None,
    rounds: 0,
});

/// Odd while the collector rests and nobody has called it yet. Each rest has a number of its own, so that a thread that
/// called in one and was stopped cannot end another.
static RESTS: AtomicU64 = AtomicU64::new(0);
/// Something for the collector has happened.
static CALLED: EventCount = EventCount::new();

struct Centre {
    /// Those of living threads (`buffer/I1`).
    buffers: Vec<Arc<Buffer>>,
    queues: Vec<Arc<Queue>>,
    /// See I2.
    collector: CollectorState,
    rounds: u64,
}

/// What the collector's thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorState {
    /// There is none: nobody subscribed who wants it.
    None,
    /// It gathers, or naps.
    Working,
    /// It sleeps until somebody writes a record.
    Resting,
}

/// What the general monitor has and does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorStats {
    /// Open subscriptions; without one the monitor is off.
    pub subscriptions: usize,
    /// Threads that have a buffer.
    pub buffers: usize,
    /// Bytes of these buffers.
    pub bytes: usize,
    /// What the collector does.
    pub collector: CollectorState,
    /// Rounds that collectors of this process have made.
    pub rounds: u64,
}

/// Why one cannot subscribe.
#[derive(Debug)]
#[non_exhaustive]
pub enum MonitorError {
    /// The collector's thread could not be started.
    Thread(io::Error),
    /// This process is a forked child, in which other threads' locks may be held for ever.
    Forked,
}

impl fmt::Display for MonitorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MonitorError::Thread(error) => write!(
                f,
                "the monitor's collector thread could not be started: {error}; subscribe_without_collector needs none"
            ),
            MonitorError::Forked => f.write_str(
                "the monitor does not work in a forked child: subscribe in the parent, or after exec",
            ),
        }
    }
}

impl std::error::Error for MonitorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MonitorError::Thread(error) => Some(error),
            MonitorError::Forked => None,
        }
    }
}

fn centre() -> MutexGuard<'static, Centre> {
    CENTRE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Switches the monitor on, and receives what all threads emit from now on, gathered by the collector: a thread named
/// [`COLLECTOR_NAME`](super::COLLECTOR_NAME), which is there while any such subscription is, and sleeps while nobody emits.
///
/// The queue holds up to `batches_max` batches (one at least) of up to [`BATCH_RECORDS_MAX`] records; what comes when it is
/// full is counted as [missed](Subscription::missed).
///
/// # Errors
/// [`MonitorError`]: no thread could be started, or this is a forked child.
pub fn subscribe(batches_max: usize) -> Result<Subscription, MonitorError> {
    subscribe_as(Queue::new(batches_max, true))
}

/// As [`subscribe`], without a thread: the program calls [`collect`] when it sees fit, before the buffers are full.
///
/// # Errors
/// [`MonitorError`]: this is a forked child.
pub fn subscribe_without_collector(batches_max: usize) -> Result<Subscription, MonitorError> {
    subscribe_as(Queue::new(batches_max, false))
}

fn subscribe_as(queue: Queue) -> Result<Subscription, MonitorError> {
    arm();
    if forked() {
        return Err(MonitorError::Forked);
    }
    let queue = Arc::new(queue);
    let mut centre = centre();
    // What was written before is for those who were there before; if nobody was, for nobody.
    centre.gather();
    if queue.wants_collector && centre.collector == CollectorState::None {
        Builder::new().name(COLLECTOR_NAME.to_owned()).spawn(collector).map_err(MonitorError::Thread)?;
        centre.collector = CollectorState::Working;
    }
    centre.queues.push(queue.clone());
    // Relaxed: who has heard of the subscription has heard of this.
    ON.store(true, Ordering::Relaxed);
    drop(centre);
    Ok(Subscription { queue })
}

pub(super) fn unsubscribe(queue: &Arc<Queue>) {
    if forked() {
        return;
    }
    let mut centre = centre();
    let Some(place) = centre.queues.iter().position(|one| Arc::ptr_eq(one, queue)) else { return };
    centre.gather();
    centre.queues.swap_remove(place);
    // Relaxed: as in `subscribe_as`.
    ON.store(!centre.queues.is_empty(), Ordering::Relaxed);
    drop(centre);
    queue.close();
    if queue.wants_collector {
        CALLED.signal(1);
    }
}

/// Gathers, on the calling thread, what all threads have emitted, and hands it to all subscriptions. How many records
/// there were.
///
/// # Cost
/// A look at the buffer of each thread that ever emitted and still lives, and sorting what is there, under a lock.
pub fn collect() -> usize {
    if forked() { 0 } else { centre().gather() }
}

/// What the general monitor has and does.
pub fn stats() -> MonitorStats {
    if forked() {
        return MonitorStats { subscriptions: 0, buffers: 0, bytes: 0, collector: CollectorState::None, rounds: 0 };
    }
    let centre = centre();
    let resting = centre.collector == CollectorState::Working && is_rest(RESTS.load(Ordering::Relaxed));
    MonitorStats {
        subscriptions: centre.queues.len(),
        buffers: centre.buffers.len(),
        bytes: centre.buffers.len() * buffer_bytes(),
        collector: if resting { CollectorState::Resting } else { centre.collector },
        rounds: centre.rounds,
    }
}

/// A thread is about to write its first record.
pub(super) fn join(buffer: &Arc<Buffer>) {
    centre().buffers.push(buffer.clone());
}

/// A thread ends: hands over its last records, and nobody holds its buffer any more (`buffer/I2`).
pub(super) fn leave(buffer: &Arc<Buffer>) {
    let mut centre = centre();
    let Some(place) = centre.buffers.iter().position(|one| Arc::ptr_eq(one, buffer)) else { return };
    let buffer = centre.buffers.swap_remove(place);
    gather(&[buffer], &centre.queues);
}

/// Calls the collector if it rests.
#[inline]
pub(super) fn call_from_rest() {
    // Relaxed: ordered by the light fence before it (I3).
    let rest = RESTS.load(Ordering::Relaxed);
    if is_rest(rest) {
        end_rest(rest);
    }
}

const fn is_rest(rest: u64) -> bool {
    rest % 2 == 1
}

/// Signals first: whoever is stopped here keeps nobody else from calling.
#[cold]
fn end_rest(rest: u64) {
    CALLED.signal(1);
    // Relaxed: it spares others the call, and nothing else. If it fails, somebody did it, or the rest is over.
    let _ = RESTS.compare_exchange(rest, rest + 1, Ordering::Relaxed, Ordering::Relaxed);
}

/// Ends the collector's nap, or does nothing.
#[cold]
pub(super) fn call() {
    CALLED.signal(1);
}

impl Centre {
    fn gather(&mut self) -> usize {
        gather(&self.buffers, &self.queues)
    }

    fn is_quiet(&self) -> bool {
        self.buffers.iter().all(|buffer| buffer.ring.is_empty())
    }
}

/// Hands what is in `buffers` to `queues`. One look at each: a writer that goes on writing does not keep this from ending.
fn gather(buffers: &[Arc<Buffer>], queues: &[Arc<Queue>]) -> usize {
    let (mut records, mut dropped, mut count) = (Vec::new(), take_homeless(), 0);
    for buffer in buffers {
        dropped += buffer.ring.take_dropped();
        count += buffer.ring.take(|record| {
            records.push(record);
            if records.len() == BATCH_RECORDS_MAX {
                deliver(take(&mut records), take(&mut dropped), queues);
            }
        });
    }
    if !records.is_empty() || dropped > 0 {
        deliver(records, dropped, queues);
    }
    count
}

fn deliver(records: Vec<Record>, dropped: u64, queues: &[Arc<Queue>]) {
    if !queues.is_empty() {
        let batch = Arc::new(Batch::new(records, dropped));
        queues.iter().for_each(|queue| queue.push(&batch));
    }
}

/// The collector's thread.
fn collector() {
    loop {
        let seen = CALLED.prepare();
        let mut centre = centre();
        if !centre.queues.iter().any(|queue| queue.wants_collector) {
            centre.collector = CollectorState::None;
            return;
        }
        centre.rounds += 1;
        let count = centre.gather();
        drop(centre);
        if count > 0 {
            CALLED.wait(seen, Some(NAP));
        } else {
            rest(seen);
        }
    }
}

/// Sleeps until a record is written or a subscription ends (I3).
fn rest(seen: Seen) {
    // Relaxed: only the collector makes it odd, and it is even now.
    let rest = RESTS.fetch_add(1, Ordering::Relaxed) + 1;
    // Pairs with the light or full fence of a writer (I3).
    let sure = asym::heavy().is_ok();
    if centre().is_quiet() {
        CALLED.wait(seen, if sure { None } else { Some(BLIND_REST) });
    }
    // Relaxed: as in `end_rest`.
    let _ = RESTS.compare_exchange(rest, rest + 1, Ordering::Relaxed, Ordering::Relaxed);
}
