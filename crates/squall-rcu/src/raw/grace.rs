//! Grace periods: finding out that every operation that was open at some moment has ended.
//!
//! Problem: whoever unlinked something wants to know when nobody can still be reading it, at a cost that all who want
//! to know at once share, and that readers do not feel.
//!
//! Idea: one number counts grace periods (even: none under way; odd: one is). Whoever needs one takes the *driver's
//! role*, which one thread has at a time: it makes the heavy fence, looks once through all records, remembers the
//! operations it found open, and looks at those alone until each is over. Everybody else waits for the number. Because
//! an operation is told from the next one in the same thread by its own count (`record/I3`), one pass is enough: new
//! operations never delay the verdict, so the two swaps of two generations that K42 needs (its counters are shared by
//! all threads of a processor) become one here.
//!
//! - I1. `sequence` and `scan` are written only by the driver. `sequence` only grows, by one.
//! - I2. When `sequence` becomes even, every operation that was open when it became odd has ended, and what those
//!   operations did happens before the store (release).
//! - I3. A [`Marker`] taken at `sequence == s` elapses when `sequence >= s + 2` (s even) or `s + 3` (s odd): one whole
//!   grace period that began after the marker.
//! - I4. The driver's role is given up by whoever leaves a grace period unfinished, and every waiter is then woken, so a
//!   grace period that somebody waits for always has a driver or is about to get one.
//! - I5. A driver that sleeps has asked exactly one open operation's thread for attention (`WAITED_FOR`), and that
//!   thread's next outermost leave, or its exit, wakes it.
//!
//! Progress: `mark` and `elapsed` are wait-free; `poll` is lock-free; waiting blocks on readers, by definition.
//! Cost of a grace period: two stores, one heavy fence, one line read per record, and again one per operation found
//! open; a second heavy fence before sleeping. Source: Appavoo 2005, §5.4.3 (markers, generations); the sequence number
//! is that of Linux's polled grace periods. Deviation: no ring and no token; see the README beside this file for why.

use squall_machine::asym::{self, Unavailable};
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::hint::spin_loop;
use squall_sys::apart::Apart;
use std::time::{Duration, Instant};

use super::record::{Record, Seen, attention};
use super::registry::Registry;
use super::sites;

/// Looks at the open operations before the driver goes to sleep for one.
///
/// None in models: loom lets nothing stale be read after a spin, which would hide a lost wake-up.
const LOOKS: u32 = if cfg!(any(loom, miri)) { 0 } else { 7 };
/// The same for an expedited wait.
const LOOKS_EXPEDITED: u32 = if cfg!(any(loom, miri)) { 2 } else { 512 };
/// The longest pause between two looks, in turns of a spin, and for an expedited wait. Pauses double up to it: each look
/// may take the line from the reader who is to be done with it.
const PAUSE_MAX: u32 = 32;
const PAUSE_MAX_EXPEDITED: u32 = 8;

/// A point in time, in grace periods (I3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(pub(crate) u64);

/// How long a wait spins before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Sleeps soon.
    Normal,
    /// Spins long, for the shortest wait.
    Expedited,
}

/// Why a wait ended without its grace period.
#[derive(Debug)]
pub(crate) enum Unfinished<'a> {
    /// The time was over.
    Timeout,
    /// The heavy fence cannot be made any more.
    NoFence(Unavailable),
    /// One operation has held up the grace period for longer than the caller's patience. Said once per grace period.
    Stalled(Holdup<'a>),
}

/// What the driver remembers between two looks.
struct Scan {
    open: Vec<(*const Record, Seen)>,
    since: Option<Instant>,
    told: bool,
}

// SAFETY: the pointers are shared references to `Sync` records, which live as long as the registry (`registry/I1`).
unsafe impl Send for Scan {}

/// What holds up a grace period: the thread's record, its operation, and how long ago the driver first went to sleep.
#[derive(Debug)]
pub(crate) struct Holdup<'a> {
    pub(crate) record: &'a Record,
    pub(crate) seen: Seen,
    pub(crate) since: Duration,
}

/// The grace periods of a domain.
pub(crate) struct GracePeriods {
    // Written by the driver, twice for each grace period; read by everyone. Apart from what is written more often.
    course: Apart<Course>,
    // Written by whoever takes the role, and tries to.
    role: Apart<Role>,
    // Written by the driver, and by whoever sleeps.
    events: Apart<Events>,
}

struct Course {
    sequence: AtomicU64,
    /// What a heavy fence costs, in ns, smoothed: it depends on how many processors run threads of ours just now.
    fence_ns: AtomicU64,
}

struct Role {
    driven: AtomicBool,
    scan: UnsafeCell<Scan>,
}

struct Events {
    /// A thread whose attention was asked for has left its operation.
    left: EventCount,
    /// A grace period ended, or the driver gave up its role.
    changed: EventCount,
}

// SAFETY: `scan` is touched only by the driver (I1), who is one thread at a time (`Driver`).
unsafe impl Sync for GracePeriods {}

/// The driver's role, given up on drop.
struct Driver<'a> {
    grace: &'a GracePeriods,
}

impl GracePeriods {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> GracePeriods {
        GracePeriods {
            course: Apart::new(Course { sequence: AtomicU64::new(0), fence_ns: AtomicU64::new(0) }),
            role: Apart::new(Role {
                driven: AtomicBool::new(false),
                scan: UnsafeCell::new(Scan { open: Vec::new(), since: None, told: false }),
            }),
            events: Apart::new(Events { left: EventCount::new(), changed: EventCount::new() }),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> GracePeriods {
        GracePeriods {
            course: Apart::new(Course { sequence: AtomicU64::new(0), fence_ns: AtomicU64::new(0) }),
            role: Apart::new(Role {
                driven: AtomicBool::new(false),
                scan: UnsafeCell::new(Scan { open: Vec::new(), since: None, told: false }),
            }),
            events: Apart::new(Events { left: EventCount::new(), changed: EventCount::new() }),
        }
    }

    /// The moment after which everything that the caller unlinked so far is out of every reader's reach.
    pub(crate) fn mark(&self) -> Moment {
        if !sites::MARK_FENCE.is_weak() {
            // Partner: the heavy fence in `start`. If a later grace period is the one this moment asks for, its driver
            // wrote the sequence after this thread read it, so this fence precedes the driver's, and with it
            // everything unlinked before precedes what later operations read.
            fence(Ordering::SeqCst);
        }
        let sequence = self.course.sequence.load(Ordering::Relaxed);
        Moment((sequence + 3) & !1)
    }

    /// The next moment, for a model's driver that unlinked nothing and so needs no fence of its own.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn mark_unfenced(&self) -> Moment {
        Moment((self.course.sequence.load(Ordering::Relaxed) + 3) & !1)
    }

    /// Whether the moment has passed (I3).
    pub(crate) fn elapsed(&self, moment: Moment) -> bool {
        // Acquire: pairs with the release in `finish`: the operations that ended happen before what the caller frees.
        self.course.sequence.load(sites::ELAPSED_ACQUIRE.order(Ordering::Acquire)) >= moment.0
    }

    /// As [`GracePeriods::elapsed`], and moves the work on as far as that is possible without waiting.
    pub(crate) fn poll(&self, registry: &Registry, moment: Moment) -> Result<bool, Unavailable> {
        loop {
            if self.elapsed(moment) {
                return Ok(true);
            }
            let Some(driver) = self.try_drive() else { return Ok(false) };
            if !driver.step(registry, moment)? {
                return Ok(false);
            }
        }
    }

    /// Waits until the moment has passed.
    ///
    /// # Errors
    /// [`Unfinished`]; the caller may go on waiting by calling again.
    pub(crate) fn wait<'a>(
        &self,
        registry: &'a Registry,
        moment: Moment,
        limits: Limits,
    ) -> Result<(), Unfinished<'a>> {
        loop {
            // Before the checks, so that no change after them is missed (`park/I1`).
            let seen = self.events.changed.prepare();
            if self.elapsed(moment) {
                return Ok(());
            }
            if let Some(driver) = self.try_drive() {
                driver.run(registry, moment, limits)?;
                continue;
            }
            let remaining = remaining(limits.deadline)?;
            if !self.spin_for_change(moment, limits.haste) {
                self.events.changed.wait(seen, remaining);
            }
        }
    }

    /// Spins a little for another driver. Returns whether there is something to look at.
    fn spin_for_change(&self, moment: Moment, haste: Haste) -> bool {
        pauses(haste).any(|turns| {
            pause(turns);
            self.elapsed(moment) || !self.role.driven.load(Ordering::Relaxed)
        })
    }

    fn try_drive(&self) -> Option<Driver<'_>> {
        if self.role.driven.load(Ordering::Relaxed) {
            return None;
        }
        // Acquire: pairs with the release in `Driver::drop`: the scan is as the last driver left it.
        let order = sites::DRIVE_ACQUIRE.order(Ordering::Acquire);
        let taken = self.role.driven.compare_exchange(false, true, order, Ordering::Relaxed);
        // Not `then_some`: a driver that is built gives the role up when dropped.
        taken.is_ok().then(|| Driver { grace: self })
    }

    /// Called by a thread that was asked for attention, once its operation is over (I5).
    pub(crate) fn note_left(&self) {
        self.events.left.signal(1);
    }

    /// A heavy fence, whose cost is remembered. For the driver.
    fn timed_fence(&self) -> Result<(), Unavailable> {
        if cfg!(any(loom, miri)) {
            return asym::heavy();
        }
        let begun = Instant::now();
        asym::heavy()?;
        let ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX / 8).min(u64::MAX / 8);
        let smooth = (self.course.fence_ns.load(Ordering::Relaxed) * 7 + ns) / 8;
        self.course.fence_ns.store(smooth, Ordering::Relaxed);
        Ok(())
    }

    /// What a heavy fence has cost lately, in ns.
    pub(crate) fn fence_ns(&self) -> u64 {
        self.course.fence_ns.load(Ordering::Relaxed)
    }

    /// The latest moment that has passed.
    pub(crate) fn passed(&self) -> Moment {
        // Acquire: as in `elapsed`.
        Moment(self.course.sequence.load(sites::ELAPSED_ACQUIRE.order(Ordering::Acquire)) & !1)
    }

    /// How many grace periods have ended.
    pub(crate) fn completed(&self) -> u64 {
        self.course.sequence.load(Ordering::Relaxed) / 2
    }

    /// Threads that sleep until a grace period ends.
    pub(crate) fn sleepers(&self) -> u32 {
        self.events.changed.sleepers() + self.events.left.sleepers()
    }
}

/// How to wait, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) haste: Haste,
    pub(crate) deadline: Option<Instant>,
    /// After how long one operation is reported as a stall.
    pub(crate) patience: Duration,
}

/// The pauses before each look, in turns of a spin.
fn pauses(haste: Haste) -> impl Iterator<Item = u32> {
    let (looks, longest) = match haste {
        Haste::Normal => (LOOKS, PAUSE_MAX),
        Haste::Expedited => (LOOKS_EXPEDITED, PAUSE_MAX_EXPEDITED),
    };
    (0..looks).map(move |look| 1_u32.checked_shl(look).map_or(longest, |turns| turns.min(longest)))
}

fn pause(turns: u32) {
    (0..turns).for_each(|_| spin_loop());
}

fn remaining<'a>(deadline: Option<Instant>) -> Result<Option<Duration>, Unfinished<'a>> {
    let Some(deadline) = deadline else { return Ok(None) };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Unfinished::Timeout) } else { Ok(Some(left)) }
}

impl Driver<'_> {
    fn with_scan<R>(&self, f: impl FnOnce(&mut Scan) -> R) -> R {
        // SAFETY: the driver is one thread at a time, and no driver calls this within `f`.
        self.grace.role.scan.with_mut(|scan| f(unsafe { &mut *scan }))
    }

    /// Starts the grace period that is needed, or looks again at the one under way. Returns whether one ended.
    fn step(&self, registry: &Registry, moment: Moment) -> Result<bool, Unavailable> {
        if self.grace.course.sequence.load(Ordering::Relaxed) & 1 == 0 {
            if self.grace.elapsed(moment) {
                return Ok(true);
            }
            self.start(registry)?;
        } else {
            self.look();
        }
        let over = self.with_scan(|scan| scan.open.is_empty());
        if over {
            self.finish();
        }
        Ok(over)
    }

    fn start(&self, registry: &Registry) -> Result<(), Unavailable> {
        let sequence = self.grace.course.sequence.load(Ordering::Relaxed);
        // Relaxed: ordered before the scan by the heavy fence below.
        self.grace.course.sequence.store(sequence + 1, Ordering::Relaxed);
        if !sites::START_FENCE.is_weak() {
            // Partner: the light fence of `Record::enter_fast` (or the full one of `enter_slow`), and the fence of
            // `mark`. An operation that the scan below does not see open reads everything unlinked before any moment
            // that this grace period serves.
            if let Err(why) = self.grace.timed_fence() {
                // Nothing was concluded yet: as if it had not begun.
                self.grace.course.sequence.store(sequence, Ordering::Relaxed);
                return Err(why);
            }
        }
        self.with_scan(|scan| {
            debug_assert!(scan.open.is_empty());
            scan.since = None;
            scan.told = false;
            registry.for_each(|record| {
                if let Some(seen) = record.seen() {
                    scan.open.push((record, seen));
                }
            });
        });
        Ok(())
    }

    /// Looks again at the operations still open.
    fn look(&self) {
        self.with_scan(|scan| {
            // SAFETY: records live as long as the registry that the scan was made from (`registry/I1`).
            scan.open.retain(|(record, seen)| !unsafe { &**record }.is_over(*seen));
        });
    }

    fn finish(&self) {
        let sequence = self.grace.course.sequence.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `elapsed` (I2).
        self.grace.course.sequence.store(sequence + 1, sites::FINISH_RELEASE.order(Ordering::Release));
        self.grace.events.changed.signal(u32::MAX >> 1);
    }

    /// Drives until the moment has passed.
    fn run<'a>(&self, registry: &'a Registry, moment: Moment, limits: Limits) -> Result<(), Unfinished<'a>> {
        let mut has_slept = false;
        while !self.grace.elapsed(moment) {
            let mut over = self.step(registry, moment).map_err(Unfinished::NoFence)?;
            // Who is still in its operation after one sleep was preempted there, most likely.
            let spins = !has_slept || limits.haste == Haste::Expedited;
            for turns in pauses(limits.haste).take_while(|_| spins) {
                if over {
                    break;
                }
                pause(turns);
                over = self.step(registry, moment).map_err(Unfinished::NoFence)?;
            }
            if !over {
                self.sleep_for_first(remaining(limits.deadline)?, limits.patience)?;
                has_slept = true;
            }
        }
        Ok(())
    }

    /// Sleeps until the first of the open operations is over, or the time, or the patience.
    fn sleep_for_first<'a>(
        &self,
        remaining: Option<Duration>,
        patience: Duration,
    ) -> Result<(), Unfinished<'a>> {
        let seen_left = self.grace.events.left.prepare();
        let Some((record, seen)) = self.with_scan(|scan| scan.open.first().copied()) else { return Ok(()) };
        // SAFETY: records live as long as the registry that the scan was made from (`registry/I1`).
        let record = unsafe { &*record };
        record.request(attention::WAITED_FOR);
        if !sites::SLEEP_FENCE.is_weak() {
            // Partner: the light fence of `Record::leave` (or the full one of `leave_slow`): either this thread sees
            // the operation over, or its leave sees the request (I5).
            asym::heavy().map_err(Unfinished::NoFence)?;
        }
        if record.is_over(seen) {
            return Ok(());
        }
        let patience = self.patience_left(patience);
        if patience == Some(Duration::ZERO) {
            let since = self.with_scan(|scan| scan.since.map_or(Duration::ZERO, |since| since.elapsed()));
            return Err(Unfinished::Stalled(Holdup { record, seen, since }));
        }
        self.grace.events.left.wait(seen_left, [remaining, patience].into_iter().flatten().min());
        Ok(())
    }

    /// How long to sleep at most before a stall must be told: zero, once per grace period, when it is due now.
    fn patience_left(&self, patience: Duration) -> Option<Duration> {
        if cfg!(loom) {
            return None;
        }
        self.with_scan(|scan| {
            let lasted = scan.since.get_or_insert_with(Instant::now).elapsed();
            if scan.told {
                return None;
            }
            scan.told = lasted >= patience;
            Some(patience.saturating_sub(lasted))
        })
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        #[cfg(loom)]
        if std::thread::panicking() {
            // A model that has failed is over: its atomics are gone.
            return;
        }
        // Release: pairs with the acquire in `try_drive`.
        self.grace.role.driven.store(false, sites::DRIVE_RELEASE.order(Ordering::Release));
        // I4: those who waited for this driver look for work themselves. Even when all is done: a waiter may want the
        // next grace period.
        self.grace.events.changed.signal(u32::MAX >> 1);
    }
}
