//! Grace periods: the detection that every operation open at some moment has ended.
//!
//! Problem: a thread that unlinked an object needs to know when no operation can still read it. All threads
//! that need to know at the same time should share the cost, and readers should not notice.
//!
//! Idea: one number counts grace periods. It is odd while one is under way, and even otherwise. A thread that
//! needs a grace period takes the *driver's role*, which one thread has at a time. The driver makes the heavy
//! fence, reads all records once, and remembers the operations it found open. Then it looks at those alone
//! until each is over. All other threads wait for the number. An operation is told from the next one in the
//! same thread by its own count (`record/I3`), so one pass is enough: new operations never delay the verdict.
//! K42 needs two swaps of two generations, because all threads of a processor share its counters.
//!
//! - I1. `sequence` and `scan` are written only by the driver. `sequence` only grows, by one.
//! - I2. When `sequence` becomes even, every operation that was open when it became odd has ended. The
//!   effects of those operations happen before the store (release).
//! - I3. A [`Moment`] marked at `sequence == s` has passed when `sequence >= s + 2` (s even) or `s + 3` (s
//!   odd): one whole grace period that began after the mark.
//! - I4. A driver that leaves a grace period unfinished gives up its role, and every waiter is then woken. So
//!   a grace period with a waiter always has a driver or is about to get one.
//! - I5. A driver that sleeps has asked exactly one open operation's thread for attention (`WAITED_FOR`).
//!   That thread's next outermost leave, or its exit, wakes the driver.
//!
//! Progress: `mark` and `elapsed` are wait-free; `poll` is lock-free; waiting blocks on readers, by
//! definition.
//! Cost of a grace period: two stores, one heavy fence, one cache line read per record, and again one per
//! operation found open; a second heavy fence before sleeping.
//! Source: Appavoo 2005, §5.4.3 (markers, generations); the sequence number is that of Linux's polled grace
//! periods.
//! Deviation: no ring and no token; the `README.md` beside this file gives the reasons.

use squall_machine::asym::{self, Unavailable};
use squall_machine::park::EventCount;
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::hint::spin_loop;
use std::time::{Duration, Instant};

use super::moment::Moment;
use super::record::{Record, Seen, attention};
use super::registry::Registry;
use super::sites;

/// Number of times that the driver looks at the open operations before it sleeps.
///
/// Zero in models: loom lets no stale value be read after a spin, which would hide a lost wake-up.
const LOOKS: u32 = if cfg!(any(loom, miri)) { 0 } else { 7 };
/// Number of looks before an expedited wait sleeps.
const LOOKS_EXPEDITED: u32 = if cfg!(any(loom, miri)) { 2 } else { 512 };
/// Longest pause between two looks, in spin iterations; the second constant is for an expedited wait. Pauses
/// double up to this length: each look may take the cache line away from the reader that is about to leave.
const PAUSE_MAX: u32 = 32;
const PAUSE_MAX_EXPEDITED: u32 = 8;

/// How long a wait spins before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Sleeps after a short spin.
    Normal,
    /// Spins long, for the shortest wait.
    Expedited,
}

/// The reason why a wait ended before its grace period did.
#[derive(Debug)]
pub(crate) enum Unfinished<'a> {
    /// The deadline passed.
    Timeout,
    /// The heavy fence cannot be made any more.
    NoFence(Unavailable),
    /// One operation has delayed the grace period for longer than the caller's stall timeout. Returned once
    /// per grace period.
    Stalled(Holdup<'a>),
}

/// The driver's state between two looks.
struct Scan {
    open: Vec<(*const Record, Seen)>,
    since: Option<Instant>,
    reported: bool,
}

// SAFETY: the pointers are shared references to `Sync` records, which live as long as the registry
// (`registry/I1`).
unsafe impl Send for Scan {}

/// An operation that delays a grace period: its thread's record, the operation, and the time since the driver
/// first slept.
#[derive(Debug)]
pub(crate) struct Holdup<'a> {
    pub(crate) record: &'a Record,
    pub(crate) seen: Seen,
    pub(crate) since: Duration,
}

/// The grace periods of a domain.
pub(crate) struct GracePeriods {
    // Written by the driver, twice per grace period; read by all threads. On a cache line of its own, apart
    // from data written more often.
    course: CachePadded<Course>,
    // Written by threads that take the driver's role or try to.
    role: CachePadded<Role>,
    // Written by the driver, and by threads that sleep.
    events: CachePadded<Events>,
}

struct Course {
    sequence: AtomicU64,
    /// Smoothed cost of a heavy fence, in ns. It depends on how many processors run threads of this process.
    fence_ns: AtomicU64,
}

struct Role {
    driven: AtomicBool,
    scan: UnsafeCell<Scan>,
}

struct Events {
    /// Signalled when a thread asked for attention has left its operation.
    left: EventCount,
    /// Signalled when a grace period ends, and when the driver gives up its role.
    changed: EventCount,
}

// SAFETY: only the driver touches `scan` (I1), and the driver is one thread at a time (`Driver`).
unsafe impl Sync for GracePeriods {}

/// The driver's role, given up on drop.
struct Driver<'a> {
    grace: &'a GracePeriods,
}

impl GracePeriods {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> GracePeriods {
        GracePeriods {
            course: CachePadded::new(Course { sequence: AtomicU64::new(0), fence_ns: AtomicU64::new(0) }),
            role: CachePadded::new(Role {
                driven: AtomicBool::new(false),
                scan: UnsafeCell::new(Scan { open: Vec::new(), since: None, reported: false }),
            }),
            events: CachePadded::new(Events { left: EventCount::new(), changed: EventCount::new() }),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> GracePeriods {
        GracePeriods {
            course: CachePadded::new(Course { sequence: AtomicU64::new(0), fence_ns: AtomicU64::new(0) }),
            role: CachePadded::new(Role {
                driven: AtomicBool::new(false),
                scan: UnsafeCell::new(Scan { open: Vec::new(), since: None, reported: false }),
            }),
            events: CachePadded::new(Events { left: EventCount::new(), changed: EventCount::new() }),
        }
    }

    /// Returns the moment after which no operation can reach the objects that the caller has unlinked so far.
    pub(crate) fn mark(&self) -> Moment {
        if !sites::MARK_FENCE.is_weak() {
            // Pairs with the heavy fence in `start`. Consider the later grace period that this moment waits
            // for. Its driver wrote the sequence after this thread read it, so this fence precedes the
            // driver's. So everything unlinked before this fence precedes the reads of later operations.
            fence(Ordering::SeqCst);
        }
        let sequence = self.course.sequence.load(Ordering::Relaxed);
        Moment((sequence + 3) & !1)
    }

    /// Returns the next moment, for a model's driver that unlinked no object and so needs no fence of its
    /// own.
    #[cfg(all(test, any(loom, squall_model)))]
    pub(crate) fn mark_unfenced(&self) -> Moment {
        Moment((self.course.sequence.load(Ordering::Relaxed) + 3) & !1)
    }

    /// Returns whether the moment has passed (I3).
    pub(crate) fn elapsed(&self, moment: Moment) -> bool {
        // Acquire: pairs with the release in `finish`: the ended operations happen before the caller frees
        // memory.
        self.course.sequence.load(sites::ELAPSED_ACQUIRE.order(Ordering::Acquire)) >= moment.0
    }

    /// Returns whether the moment has passed, after doing all work towards it that is possible without
    /// waiting.
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
            // Before the checks, so that no later change is missed (`park/I1`).
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

    /// Spins briefly while another thread drives. Returns whether the moment has passed or the role is free.
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
        // Acquire: pairs with the release in `Driver::drop`: this driver sees the scan as the last driver
        // left it.
        let order = sites::DRIVE_ACQUIRE.order(Ordering::Acquire);
        let taken = self.role.driven.compare_exchange(false, true, order, Ordering::Relaxed);
        // Not `then_some`: its argument would be built in any case, and a `Driver` gives the role up when
        // dropped.
        taken.is_ok().then(|| Driver { grace: self })
    }

    /// Wakes the driver. Called by a thread that was asked for attention, once its operation is over (I5).
    pub(crate) fn note_left(&self) {
        self.events.left.signal(1);
    }

    /// Makes a heavy fence and records its cost. For the driver.
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

    /// Returns the recent cost of a heavy fence, in ns.
    pub(crate) fn fence_ns(&self) -> u64 {
        self.course.fence_ns.load(Ordering::Relaxed)
    }

    /// Returns the latest moment that has passed.
    pub(crate) fn passed(&self) -> Moment {
        // Acquire: as in `elapsed`: pairs with the release in `finish`.
        Moment(self.course.sequence.load(sites::ELAPSED_ACQUIRE.order(Ordering::Acquire)) & !1)
    }

    /// Returns the number of grace periods that have ended.
    pub(crate) fn completed(&self) -> u64 {
        self.course.sequence.load(Ordering::Relaxed) / 2
    }

    /// Returns the number of threads that sleep until a grace period ends.
    pub(crate) fn sleepers(&self) -> u32 {
        self.events.changed.sleepers() + self.events.left.sleepers()
    }
}

/// How long, and how eagerly, a wait goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) haste: Haste,
    pub(crate) deadline: Option<Instant>,
    /// How long one operation may delay the grace period before it is reported as a stall.
    pub(crate) stall_timeout: Duration,
}

/// Returns the pauses before each look, in spin iterations.
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
        // SAFETY: the driver is one thread at a time, and `f` never calls this function again.
        self.grace.role.scan.with_mut(|scan| f(unsafe { &mut *scan }))
    }

    /// Starts the grace period that is needed, or looks again at the one under way. Returns whether one
    /// ended.
    fn step(&self, registry: &Registry, moment: Moment) -> Result<bool, Unavailable> {
        if self.grace.course.sequence.load(Ordering::Relaxed) & 1 == 0 {
            if self.grace.elapsed(moment) {
                return Ok(true);
            }
            self.start(registry)?;
        } else {
            self.recheck();
        }
        let over = self.with_scan(|scan| scan.open.is_empty());
        if over {
            self.finish();
        }
        Ok(over)
    }

    fn start(&self, registry: &Registry) -> Result<(), Unavailable> {
        let sequence = self.grace.course.sequence.load(Ordering::Relaxed);
        // The heavy fence below orders this store before the scan.
        // Release: pairs with the acquire in `elapsed`. It may read this store instead of that of `finish`,
        // which this driver has seen.
        self.grace.course.sequence.store(sequence + 1, sites::START_RELEASE.order(Ordering::Release));
        if !sites::START_FENCE.is_weak() {
            // Pairs with the light fence of `Record::enter_fast` (or the full one of `enter_slow`), and with
            // the fence of `mark`. An operation that the scan below does not see open reads everything
            // unlinked before any moment that this grace period serves.
            if let Err(why) = self.grace.timed_fence() {
                // The grace period has concluded no operation yet: withdraw it. Release: as above.
                self.grace.course.sequence.store(sequence, Ordering::Release);
                return Err(why);
            }
        }
        self.with_scan(|scan| {
            debug_assert!(scan.open.is_empty());
            scan.since = None;
            scan.reported = false;
            registry.for_each(|record| {
                if let Some(seen) = record.seen() {
                    scan.open.push((record, seen));
                }
            });
        });
        Ok(())
    }

    /// Drops the operations that have ended from the scan.
    fn recheck(&self) {
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
        if cfg!(test) {
            squall_sys::pause::point("drive");
        }
        let mut has_slept = false;
        while !self.grace.elapsed(moment) {
            let mut over = self.step(registry, moment).map_err(Unfinished::NoFence)?;
            // A reader that is still in its operation after one sleep was most likely preempted there:
            // spinning is of no use.
            let spins = !has_slept || limits.haste == Haste::Expedited;
            for turns in pauses(limits.haste).take_while(|_| spins) {
                if over {
                    break;
                }
                pause(turns);
                over = self.step(registry, moment).map_err(Unfinished::NoFence)?;
            }
            if !over {
                self.sleep_for_first(remaining(limits.deadline)?, limits.stall_timeout)?;
                has_slept = true;
            }
        }
        Ok(())
    }

    /// Sleeps until the first open operation is over, the deadline passes, or the stall timeout passes.
    fn sleep_for_first<'a>(
        &self,
        remaining: Option<Duration>,
        stall_timeout: Duration,
    ) -> Result<(), Unfinished<'a>> {
        let seen_left = self.grace.events.left.prepare();
        let Some((record, seen)) = self.with_scan(|scan| scan.open.first().copied()) else { return Ok(()) };
        // SAFETY: records live as long as the registry that the scan was made from (`registry/I1`).
        let record = unsafe { &*record };
        record.request(attention::WAITED_FOR);
        if !sites::SLEEP_FENCE.is_weak() {
            // Pairs with the light fence of `Record::leave` (or the full one of `leave_slow`): either this
            // thread sees the operation over, or the operation's leave sees the request (I5).
            asym::heavy().map_err(Unfinished::NoFence)?;
        }
        if record.is_over(seen) {
            return Ok(());
        }
        let stall_timeout = self.stall_timeout_left(stall_timeout);
        if stall_timeout == Some(Duration::ZERO) {
            let since = self.with_scan(|scan| scan.since.map_or(Duration::ZERO, |since| since.elapsed()));
            return Err(Unfinished::Stalled(Holdup { record, seen, since }));
        }
        self.grace.events.left.wait(seen_left, [remaining, stall_timeout].into_iter().flatten().min());
        Ok(())
    }

    /// Returns how long to sleep at most before a stall must be reported. Returns zero once per grace period,
    /// when the report is due.
    fn stall_timeout_left(&self, stall_timeout: Duration) -> Option<Duration> {
        if cfg!(loom) {
            return None;
        }
        self.with_scan(|scan| {
            let lasted = scan.since.get_or_insert_with(Instant::now).elapsed();
            if scan.reported {
                return None;
            }
            scan.reported = lasted >= stall_timeout;
            Some(stall_timeout.saturating_sub(lasted))
        })
    }
}

impl Drop for Driver<'_> {
    fn drop(&mut self) {
        #[cfg(loom)]
        if std::thread::panicking() {
            // A failed model is over: its atomics are gone.
            return;
        }
        // Release: pairs with the acquire in `try_drive`.
        self.grace.role.driven.store(false, sites::DRIVE_RELEASE.order(Ordering::Release));
        // Wakes the threads that waited for this driver, so that they look for work themselves (I4). Needed
        // even if the grace period is complete: a waiter may want the next one.
        self.grace.events.changed.signal(u32::MAX >> 1);
    }
}
