//! Centre of the general monitor: the writers' buffers, the readers' queues, and the collector between them.
//!
//! - I1. Rings are read, and queues filled, only under the centre's lock (`ring/I1`). User code does not run
//!   under it.
//! - I2. There is at most one collector. Its state is written under the lock: by the subscriber that starts
//!   it, and by the collector when it ends. It decides under the lock to end. It runs while a subscription
//!   wants it.
//! - I3. A collector that sleeps without a time limit saw every ring empty after it announced its rest, or a
//!   writer calls it.
//!
//! Argument for I3. The collector reads the event count, announces its rest, executes the heavy fence, and
//! checks the rings. A writer stores its `tail`, executes the light fence, and checks whether the collector
//! rests. By `asym/I1` the collector sees the record, or the writer sees the rest. A writer that sees the
//! rest signals after the collector has read the count, so the sleep ends (`park/I1`). A buffer that is
//! unknown when the collector checks joins later, under the lock, so its writer sees the rest.
//!
//! A collector that found records naps for [`NAP`] and then checks again. A nap is no rest: a half-full
//! buffer ends it, a single record does not. So in a stream of records a writer makes one system call per
//! half a buffer. If the system refuses the heavy fence, rests are short.
//!
//! Cost of a round: one check of each buffer. At rest: zero.

use std::fmt;
use std::io;
use std::mem::take;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use squall_machine::asym;
use squall_machine::park::{EventCount, Seen};
use squall_sys::fork::{arm, forked};
use squall_sys::trace;

use super::batch::{BATCH_RECORDS_MAX, Batch};
use super::buffer::{Buffer, Inside, sink, take_unbuffered};
use super::digest::{Digest, Totals};
use super::record::Record;
use super::subscription::{Queue, Subscription};
use super::{COLLECTOR_NAME, buffer_bytes};

/// Nap of the collector after it found records. It bounds the time from a record to its reader while more
/// records come, apart from scheduling.
const NAP: Duration = Duration::from_millis(1);
/// Longest rest if the collector cannot rely on being called.
const BLIND_REST: Duration = Duration::from_millis(10);

static CENTRE: Mutex<Centre> = Mutex::new(Centre {
    buffers: Vec::new(),
    readers: Vec::new(),
    collector: CollectorState::None,
    rounds: 0,
});

/// Odd while the collector rests and has not been called. Each rest has its own number, so a thread that was
/// delayed in an earlier rest cannot end a later one.
static RESTS: AtomicU64 = AtomicU64::new(0);
/// Event count on which the collector sleeps.
static CALLED: EventCount = EventCount::new();

struct Centre {
    /// Buffers of living threads (`buffer/I1`).
    buffers: Vec<Arc<Buffer>>,
    readers: Vec<Reader>,
    /// State of the collector (I2).
    collector: CollectorState,
    rounds: u64,
}

/// The centre's end of a subscription.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    Queue(Arc<Queue>),
    Digest(Arc<Totals>),
}

impl Reader {
    fn is(&self, other: &Reader) -> bool {
        match (self, other) {
            (Reader::Queue(one), Reader::Queue(other)) => Arc::ptr_eq(one, other),
            (Reader::Digest(one), Reader::Digest(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    fn wants_collector(&self) -> bool {
        match self {
            Reader::Queue(queue) => queue.wants_collector,
            Reader::Digest(_) => true,
        }
    }

    /// Returns the time at which the subscription ends by itself.
    fn ends_at(&self) -> Option<Instant> {
        match self {
            Reader::Queue(_) => None,
            Reader::Digest(totals) => totals.ends_at(),
        }
    }

    fn push(&self, batch: &Arc<Batch>) {
        match self {
            Reader::Queue(queue) => queue.push(batch),
            Reader::Digest(totals) => totals.add(batch),
        }
    }

    fn close(&self) {
        match self {
            Reader::Queue(queue) => queue.close(),
            Reader::Digest(totals) => totals.close(),
        }
    }
}

/// State of the collector's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorState {
    /// There is no collector, because no subscription wants one.
    None,
    /// The collector gathers records, or naps.
    Working,
    /// The collector sleeps until a thread writes a record.
    Resting,
}

/// Statistics of the general monitor. Returned by [`stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MonitorStats {
    /// Open subscriptions. Without one the monitor is off.
    pub subscriptions: usize,
    /// Threads that have a buffer.
    pub buffers: usize,
    /// Bytes of these buffers.
    pub bytes: usize,
    /// State of the collector.
    pub collector: CollectorState,
    /// Rounds that collectors of this process have made.
    pub rounds: u64,
}

/// Reason why a subscription failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum MonitorError {
    /// The collector's thread could not be started.
    Thread(io::Error),
    /// The process is a forked child, in which locks of other threads may be held for ever.
    Forked,
}

impl fmt::Display for MonitorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MonitorError::Thread(error) => write!(
                f,
                "the monitor's collector thread could not be started: {error}; use subscribe_without_collector"
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

/// The centre under its lock. Its holder is inside the monitor (`buffer/I3`).
struct Locked {
    // Dropped first: the thread leaves the monitor after it released the lock.
    centre: MutexGuard<'static, Centre>,
    _inside: Inside,
}

impl Deref for Locked {
    type Target = Centre;

    fn deref(&self) -> &Centre {
        &self.centre
    }
}

impl DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut Centre {
        &mut self.centre
    }
}

fn centre() -> Locked {
    let inside = Inside::enter();
    Locked { centre: CENTRE.lock().unwrap_or_else(PoisonError::into_inner), _inside: inside }
}

/// Switches the monitor on. The subscription receives the records of all threads from now on.
///
/// The collector gathers them: a thread named [`COLLECTOR_NAME`](super::COLLECTOR_NAME) that exists while
/// such a subscription is open, and sleeps while no thread writes records.
///
/// The queue holds up to `batches_max` batches (at least one) of up to [`BATCH_RECORDS_MAX`] records. Records
/// that arrive while it is full are counted as [missed](Subscription::missed).
///
/// # Errors
/// [`MonitorError`]: the thread could not be started, or this is a forked child.
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// let reader = monitor::subscribe(16)?;
/// monitor::emit(&REFILL, Object::NONE, [32, 0]);
/// assert_eq!(reader.recv().expect("the subscription is open").records().len(), 1);
/// # Ok::<(), monitor::MonitorError>(())
/// ```
pub fn subscribe(batches_max: usize) -> Result<Subscription, MonitorError> {
    subscribe_as(Queue::new(batches_max, true))
}

/// Like [`subscribe`], but without a thread: the program calls [`collect`] often enough that buffers do not
/// fill up.
///
/// # Errors
/// [`MonitorError`]: this is a forked child.
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// let reader = monitor::subscribe_without_collector(16)?;
/// monitor::emit(&REFILL, Object::NONE, [32, 0]);
/// assert_eq!(monitor::collect(), 1);
/// assert!(reader.try_recv().is_some());
/// # Ok::<(), monitor::MonitorError>(())
/// ```
pub fn subscribe_without_collector(batches_max: usize) -> Result<Subscription, MonitorError> {
    subscribe_as(Queue::new(batches_max, false))
}

/// Switches the monitor on, for a reader that polls and needs sums alone: [`Digest`]. Has a collector, like
/// [`subscribe`].
///
/// The digest holds up to `groups_max` aggregates (at least one). Records that need a further one are counted
/// as missed. The digest ends if it is not taken for `idle_max`: an abandoned one switches the monitor off.
///
/// # Errors
/// [`MonitorError`]: the thread could not be started, or this is a forked child.
///
/// # Cost
/// Memory: about 100 bytes for each aggregate.
///
/// ```
/// use squall::policy::monitor;
/// use std::time::Duration;
///
/// let digest = monitor::subscribe_digest(100, Duration::from_secs(60))?;
/// assert!(monitor::is_on());
/// digest.close();
/// assert!(!monitor::is_on() && digest.take().is_none());
/// # Ok::<(), monitor::MonitorError>(())
/// ```
pub fn subscribe_digest(groups_max: usize, idle_max: Duration) -> Result<Digest, MonitorError> {
    let totals = Arc::new(Totals::new(groups_max, idle_max));
    add_reader(Reader::Digest(Arc::clone(&totals)))?;
    Ok(Digest { totals })
}

fn subscribe_as(queue: Queue) -> Result<Subscription, MonitorError> {
    let queue = Arc::new(queue);
    add_reader(Reader::Queue(Arc::clone(&queue)))?;
    Ok(Subscription { queue })
}

fn add_reader(reader: Reader) -> Result<(), MonitorError> {
    arm();
    if forked() {
        return Err(MonitorError::Forked);
    }
    // Fails only if a program installed a sink of its own; the monitor's own records still arrive.
    let _ = trace::install(sink);
    let mut centre = centre();
    // Delivers older records to the older subscriptions. Without any, the records are discarded.
    centre.gather();
    if reader.wants_collector() && centre.collector == CollectorState::None {
        Builder::new().name(COLLECTOR_NAME.to_owned()).spawn(collector).map_err(MonitorError::Thread)?;
        centre.collector = CollectorState::Working;
    }
    centre.readers.push(reader);
    trace::switch(true);
    drop(centre);
    // A collector at rest must learn when the new reader ends.
    CALLED.signal(1);
    Ok(())
}

pub(super) fn unsubscribe(reader: &Reader) {
    if forked() {
        return;
    }
    let mut centre = centre();
    let Some(place) = centre.readers.iter().position(|one| one.is(reader)) else { return };
    centre.gather();
    centre.readers.swap_remove(place);
    trace::switch(!centre.readers.is_empty());
    drop(centre);
    reader.close();
    if reader.wants_collector() {
        CALLED.signal(1);
    }
}

/// Gathers the records of all threads on the calling thread, and delivers them to all subscriptions. Returns
/// their number.
///
/// # Cost
/// Under a lock: one check of the buffer of each living thread that has written, and a sort of the records.
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// let reader = monitor::subscribe_without_collector(16)?;
/// assert_eq!(monitor::collect(), 0);
/// monitor::emit(&REFILL, Object::NONE, [32, 0]);
/// assert_eq!(monitor::collect(), 1);
/// # Ok::<(), monitor::MonitorError>(())
/// ```
pub fn collect() -> usize {
    if forked() { 0 } else { centre().gather() }
}

/// Returns statistics of the general monitor.
///
/// ```
/// use squall::policy::monitor::{self, CollectorState};
///
/// assert_eq!(monitor::stats().collector, CollectorState::None);
/// let reader = monitor::subscribe_without_collector(16)?;
/// assert_eq!(monitor::stats().subscriptions, 1);
/// # Ok::<(), monitor::MonitorError>(())
/// ```
pub fn stats() -> MonitorStats {
    if forked() {
        return MonitorStats {
            subscriptions: 0,
            buffers: 0,
            bytes: 0,
            collector: CollectorState::None,
            rounds: 0,
        };
    }
    let centre = centre();
    let resting = centre.collector == CollectorState::Working && is_rest(RESTS.load(Ordering::Relaxed));
    MonitorStats {
        subscriptions: centre.readers.len(),
        buffers: centre.buffers.len(),
        bytes: centre.buffers.len() * buffer_bytes(),
        collector: if resting { CollectorState::Resting } else { centre.collector },
        rounds: centre.rounds,
    }
}

/// Registers the buffer of a thread that is about to write its first record.
pub(super) fn join(buffer: &Arc<Buffer>) {
    centre().buffers.push(buffer.clone());
}

/// Gathers the last records of an ending thread and forgets its buffer (`buffer/I2`).
pub(super) fn leave(buffer: &Arc<Buffer>) {
    let mut centre = centre();
    let Some(place) = centre.buffers.iter().position(|one| Arc::ptr_eq(one, buffer)) else { return };
    let buffer = centre.buffers.swap_remove(place);
    gather(&[buffer], &centre.readers);
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

/// Signals first, so that a thread that is delayed between the two steps does not keep other threads from
/// calling.
#[cold]
fn end_rest(rest: u64) {
    CALLED.signal(1);
    // Relaxed: this only spares other threads the call. If it fails, another thread did it, or the rest is
    // over.
    let _ = RESTS.compare_exchange(rest, rest + 1, Ordering::Relaxed, Ordering::Relaxed);
}

/// Ends the collector's nap, if it naps.
#[cold]
pub(super) fn call() {
    CALLED.signal(1);
}

impl Centre {
    fn gather(&mut self) -> usize {
        gather(&self.buffers, &self.readers)
    }

    /// Ends the subscriptions that their readers have abandoned. Returns the time until the next one ends.
    fn expire(&mut self, now: Instant) -> Option<Duration> {
        let left = |reader: &Reader| reader.ends_at().map(|end| end.saturating_duration_since(now));
        if self.readers.iter().any(|reader| left(reader) == Some(Duration::ZERO)) {
            self.gather();
            self.readers.retain(|reader| {
                let stays = left(reader) != Some(Duration::ZERO);
                if !stays {
                    reader.close();
                }
                stays
            });
            trace::switch(!self.readers.is_empty());
        }
        self.readers.iter().filter_map(left).min()
    }

    fn is_quiet(&self) -> bool {
        self.buffers.iter().all(|buffer| buffer.ring.is_empty())
    }
}

/// Delivers the contents of `buffers` to `readers`. Each buffer is read once, so a busy writer cannot keep
/// this from ending.
fn gather(buffers: &[Arc<Buffer>], readers: &[Reader]) -> usize {
    let (mut records, mut dropped, mut count) = (Vec::new(), take_unbuffered(), 0);
    for buffer in buffers {
        dropped += buffer.ring.take_dropped();
        count += buffer.ring.take(|record| {
            records.push(record);
            if records.len() == BATCH_RECORDS_MAX {
                deliver(take(&mut records), take(&mut dropped), readers);
            }
        });
    }
    if !records.is_empty() || dropped > 0 {
        deliver(records, dropped, readers);
    }
    count
}

fn deliver(records: Vec<Record>, dropped: u64, readers: &[Reader]) {
    if !readers.is_empty() {
        let batch = Arc::new(Batch::new(records, dropped));
        readers.iter().for_each(|reader| reader.push(&batch));
    }
}

/// Body of the collector's thread.
fn collector() {
    loop {
        let seen = CALLED.prepare();
        let mut centre = centre();
        let until_end = centre.expire(Instant::now());
        if !centre.readers.iter().any(Reader::wants_collector) {
            centre.collector = CollectorState::None;
            return;
        }
        centre.rounds += 1;
        let count = centre.gather();
        drop(centre);
        if count > 0 {
            CALLED.wait(seen, Some(NAP));
        } else {
            rest(seen, until_end);
        }
    }
}

/// Sleeps until a thread writes a record or a subscription ends (I3), for at most `limit`.
fn rest(seen: Seen, limit: Option<Duration>) {
    // Relaxed: only the collector makes the number odd, and it is even now.
    let rest = RESTS.fetch_add(1, Ordering::Relaxed) + 1;
    // Pairs with the light or full fence of a writer (I3).
    let sure = asym::heavy().is_ok();
    if centre().is_quiet() {
        let blind = if sure { None } else { Some(BLIND_REST) };
        CALLED.wait(seen, limit.into_iter().chain(blind).min());
    }
    // Relaxed: as in `end_rest`.
    let _ = RESTS.compare_exchange(rest, rest + 1, Ordering::Relaxed, Ordering::Relaxed);
}
