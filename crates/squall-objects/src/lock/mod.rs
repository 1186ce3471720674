//! A lock that changes how it is waited for, and how it passes from thread to thread, with its load.
//!
//! | form | who waits | who is next | right for |
//! |---|---|---|---|
//! | `turns` | one spins a little, the others sleep | whoever comes first, by turns of 0.5 ms | more threads than processors |
//! | `stand-by` | one looks seldom, the others sleep | whoever had it, by turns | sections below a microsecond |
//! | `hand-off` | all spin, a while | whoever spins | sections of microseconds, with a processor for each thread |
//! | `block` | all sleep | whoever comes first, by turns | sections above some 50 microseconds |
//!
//! It begins as `turns`. The policy is closely coupled (KTK's word): a thread that had to wait looks at the lock's own monitor after
//! it has released the lock, at most every two milliseconds, and changes the attributes of
//! [`squall_lock::ConfigurableLock`]. There is no thread for it, and a lock that nobody waits for never looks.
//!
//! What was decided, and why, is in [`AdaptiveLock::history`] and [`squall_adapt::control::recent`]; the lock is a clustered object for
//! those who look ([`LockView`]) from its first decision on. It can be frozen, or given a form, through that object's attributes
//! `freeze`, `dry-run`, `cooldown` and `form`, which a browser shows, or by [`AdaptiveLock::set_form`].
//!
//! ```
//! use squall_objects::lock::AdaptiveLock;
//!
//! static LOG: AdaptiveLock<Vec<String>> = AdaptiveLock::named("log", Vec::new());
//! std::thread::scope(|scope| {
//!     for thread in 0..4 {
//!         scope.spawn(move || LOG.lock().push(format!("from {thread}")));
//!     }
//! });
//! assert_eq!(LOG.lock().len(), 4);
//! assert_eq!(LOG.form(), "turns");
//! ```

mod policy;
mod view;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, TryLockError};
use std::time::{Duration, Instant};

use squall_policy::attribute::{Attribute, ClassValues, InstanceValues, Schema, attach, choices};
use squall_adapt::control;
use squall_adapt::decision::{self, Decision, Held, Verdict};
use squall_adapt::settings::{DRY, FREEZE};
use squall_adapt::hysteresis::Hysteresis;
use squall_core::Handle;
use squall_lock::{ConfigurableGuard, ConfigurableLock, LockError, MonitorReading, Request};

use policy::{FORMS, Seen, TURNS};
pub use view::LockView;
use view::{Facts, Shown};

choices! {
    /// The form that a lock is to have.
    pub enum Wanted {
        /// What its policy thinks best.
        Auto = "auto",
        /// `turns`.
        Turns = "turns",
        /// `stand-by`.
        StandBy = "stand-by",
        /// `hand-off`.
        HandOff = "hand-off",
        /// `block`.
        Block = "block",
    }
}

/// The form that the lock is to have, whatever its policy thinks.
pub static FORM: Attribute<Wanted> = Attribute::new("form", Wanted::Auto)
    .about("the form that the lock is to have, whatever its policy thinks");

/// The least time between two changes, and the time for which a load must have been steady to be followed at once. Shorter than that
/// of objects that are swapped: a lock changes at the cost of a few stores.
pub static COOLDOWN: Attribute<Duration> = Attribute::new("cooldown", Duration::from_millis(10))
    .between(Duration::from_micros(100), Duration::from_secs(3600))
    .about("the least time between two changes, and the time for which a load must have been steady to be followed at once");

/// The attributes of adaptive locks.
pub static SCHEMA: Schema = Schema::new("adaptive lock", &[&FREEZE, &DRY, &COOLDOWN, &FORM]);

/// What is set for all adaptive locks.
pub static ALL: ClassValues = ClassValues::new(&SCHEMA);

/// The policy looks when so many acquisitions had to wait,
const LOOK_EVERY: u64 = 32;
/// and not more often than this.
const LOOK_AFTER: Duration = Duration::from_millis(2);

/// A lock that adapts: see the [module](self).
///
/// A panic while it is held frees it, and poisons nothing. Waiting threads are not in any order but that of turns; for priorities
/// and registration take a [`ConfigurableLock`].
///
/// # Cost
/// Free, as a [`ConfigurableLock`]: a compare-and-swap to lock and one to unlock. At most 320 bytes besides the value; some hundreds
/// more once threads had to wait, and the object that shows it once something was decided. The guard of a thread that had to wait
/// may look when it is dropped: some microseconds, at most each 2 ms; the first time, what makes an object. With the feature
/// `tracing` of `squall-adapt` subscribers are called there, too, under none of our locks.
pub struct AdaptiveLock<T: ?Sized> {
    policy: Policy,
    lock: ConfigurableLock<T>,
}

/// What is the policy's.
struct Policy {
    name: &'static str,
    /// The form that the lock has.
    form: AtomicUsize,
    /// How many had to wait when the policy looks again.
    next: AtomicU64,
    state: Mutex<Option<Box<State>>>,
    shown: OnceLock<Option<Shown>>,
    values: OnceLock<Arc<InstanceValues>>,
}

/// What the policy remembers from look to look.
struct State {
    began: Instant,
    looked: Instant,
    before: MonitorReading,
    temper: Hysteresis,
    /// What was thought best at the last looks, and at how many of them.
    agreed: (usize, u32),
    /// How often in a row a bold form did not last, and when it was chosen.
    regrets: u32,
    chosen: Instant,
    /// What was noted last, so that it is noted once.
    noted: Option<(usize, Verdict)>,
}

impl<T> AdaptiveLock<T> {
    /// A free lock.
    pub const fn new(value: T) -> AdaptiveLock<T> {
        AdaptiveLock::named("", value)
    }

    /// A free lock with a name, for decisions and browsers.
    pub const fn named(name: &'static str, value: T) -> AdaptiveLock<T> {
        let form = &FORMS[TURNS];
        AdaptiveLock {
            policy: Policy {
                name,
                form: AtomicUsize::new(TURNS),
                next: AtomicU64::new(LOOK_EVERY),
                state: Mutex::new(None),
                shown: OnceLock::new(),
                values: OnceLock::new(),
            },
            lock: ConfigurableLock::with(value, form.waiting, form.scheduling),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }
}

impl<T: ?Sized> AdaptiveLock<T> {
    /// Waits for the lock, however long.
    ///
    /// # Panics
    /// As [`ConfigurableLock::lock`]: in debug builds, in a deadlock.
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> AdaptiveGuard<'_, T> {
        self.guard(self.lock.lock())
    }

    /// Takes the lock if it is free now, and not kept for somebody who waits.
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<AdaptiveGuard<'_, T>> {
        self.lock.try_lock().map(|guard| self.guard(guard))
    }

    /// Waits for the lock for so long.
    #[track_caller]
    pub fn try_lock_for(&self, limit: Duration) -> Option<AdaptiveGuard<'_, T>> {
        self.lock.try_lock_for(limit).map(|guard| self.guard(guard))
    }

    /// Waits for the lock until then.
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<AdaptiveGuard<'_, T>> {
        self.lock.try_lock_until(deadline).map(|guard| self.guard(guard))
    }

    /// Waits for the lock as the request says.
    ///
    /// # Errors
    /// As [`ConfigurableLock::lock_with`]; the lock registers nobody.
    #[track_caller]
    pub fn lock_with(&self, request: &Request<'_>) -> Result<AdaptiveGuard<'_, T>, LockError> {
        self.lock.lock_with(request).map(|guard| self.guard(guard))
    }

    #[inline(always)]
    fn guard<'a>(&'a self, guard: ConfigurableGuard<'a, T>) -> AdaptiveGuard<'a, T> {
        let waited = guard.waited();
        AdaptiveGuard { guard, _look: Look { lock: self, due: waited && self.is_due() } }
    }

    /// Whether the policy is to look. Called by the holder.
    fn is_due(&self) -> bool {
        // Relaxed: a hint; `look` has a lock of its own.
        self.lock.contended() >= self.policy.next.load(Ordering::Relaxed)
    }

    /// Whether somebody has the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// The value, of a lock that nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    /// What the monitor says.
    pub fn monitor(&self) -> MonitorReading {
        self.lock.monitor()
    }

    /// The name of the form that it has.
    pub fn form(&self) -> &'static str {
        FORMS[self.policy.form.load(Ordering::Relaxed)].name
    }

    /// Gives the lock a form that its policy leaves alone, or with [`Wanted::Auto`] leaves it to its policy again.
    pub fn set_form(&self, form: Wanted) {
        // A choice of the attribute's own type is never refused.
        let set = self.policy.values().set(&FORM, form);
        debug_assert!(set.is_ok(), "{set:?}");
        self.look_now();
    }

    /// The object that shows the lock, once its policy has decided something.
    pub fn view(&self) -> Option<Handle<dyn LockView>> {
        Some(self.policy.shown.get()?.as_ref()?.handle())
    }

    /// What was decided of it, as far as it is remembered.
    pub fn history(&self) -> Vec<Decision> {
        self.view().map(|view| decision::history(Handle::id(view))).unwrap_or_default()
    }

    #[cold]
    fn look_if_due(&self) {
        // One looks; others have better things to do. Nothing is left half done under this lock.
        let mut state = match self.policy.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let now = Instant::now();
        if state.as_ref().is_some_and(|state| now - state.looked < LOOK_AFTER) {
            // The next so many need not ask.
            self.policy.next.store(self.lock.contended() + LOOK_EVERY, Ordering::Relaxed);
            return;
        }
        let noted = self.look(&mut state, now);
        drop(state);
        self.tell(noted);
    }

    /// A look that somebody asked for.
    fn look_now(&self) {
        let mut state = self.policy.state.lock().unwrap_or_else(|poison| poison.into_inner());
        let noted = self.look(&mut state, Instant::now());
        drop(state);
        self.tell(noted);
    }

    /// Remembers what was decided, and shows what was seen. Under no lock: who listens to decisions may do what he likes.
    fn tell(&self, noted: Option<Noted>) {
        if let Some(noted) = noted {
            self.policy.note(noted);
        }
        if let Some(Some(shown)) = self.policy.shown.get() {
            shown.facts.tell(self.form(), self.lock.monitor());
        }
    }

    fn look(&self, state: &mut Option<Box<State>>, now: Instant) -> Option<Noted> {
        let monitor = self.lock.monitor();
        let form = self.policy.form.load(Ordering::Relaxed);
        let state = state.get_or_insert_with(|| {
            Box::new(State {
                began: now,
                looked: now,
                before: MonitorReading::default(),
                temper: Hysteresis::new(form),
                agreed: (form, 0),
                regrets: 0,
                chosen: now,
                noted: None,
            })
        });
        let seen = Seen::between(&state.before, &monitor, self.lock.take_peak());
        (state.looked, state.before) = (now, monitor);
        self.policy.next.store(monitor.contended + LOOK_EVERY, Ordering::Relaxed);
        self.policy.decide(state, &seen, form, now, |form| {
            self.lock.set_waiting(FORMS[form].waiting);
            self.lock.set_scheduling(FORMS[form].scheduling);
        })
    }
}

/// A decision that is news.
struct Noted {
    from: usize,
    to: usize,
    verdict: Verdict,
    why: String,
}

/// A form must be thought best at so many looks: one alone may have met an odd moment,
const AGREED: u32 = 2;
/// and more where much is lost if it is wrong; twice as many each time that it was, unless it lasted for so long.
const AGREED_IF_BOLD: u32 = 4;
const LASTS: Duration = Duration::from_secs(1);
const REGRETS_MAX: u32 = 10;

impl State {
    /// What is thought best now, and was before if that is needed; else the form that it has.
    fn settle(&mut self, best: usize, form: usize) -> usize {
        let looks = if self.agreed.0 == best { self.agreed.1.saturating_add(1) } else { 1 };
        self.agreed = (best, looks);
        let needed = if policy::is_bold(best) { AGREED_IF_BOLD << self.regrets } else { AGREED };
        if looks < needed { form } else { best }
    }

    /// Notes a change.
    fn changed(&mut self, from: usize, now: Instant) {
        if policy::is_bold(from) {
            let lasted = now - self.chosen >= LASTS;
            self.regrets = if lasted { 0 } else { (self.regrets + 1).min(REGRETS_MAX) };
        }
        self.chosen = now;
    }
}

impl Policy {
    fn values(&self) -> &Arc<InstanceValues> {
        self.values.get_or_init(|| Arc::new(InstanceValues::of_class(&ALL)))
    }

    /// Settles which form the lock should have, and has it changed if that may be.
    fn decide(
        &self,
        state: &mut State,
        seen: &Seen,
        form: usize,
        now: Instant,
        change: impl FnOnce(usize),
    ) -> Option<Noted> {
        let processors = processors();
        let values = self.values.get();
        let get = |attribute| values.map_or_else(|| ALL.get(attribute), |values| values.get(attribute));
        let base = values.map_or_else(|| ALL.get(&COOLDOWN), |values| values.get(&COOLDOWN));
        let asked = values.map_or_else(|| ALL.get(&FORM), |values| values.get(&FORM));
        let asked = match asked {
            Wanted::Auto => None,
            Wanted::Turns => Some(TURNS),
            Wanted::HandOff => Some(policy::HAND_OFF),
            Wanted::StandBy => Some(policy::STAND_BY),
            Wanted::Block => Some(policy::BLOCK),
        };
        let best = asked.unwrap_or_else(|| state.settle(policy::judge(seen, processors, form), form));
        // The temper's times do not begin at nothing.
        let clock = now - state.began + LOOK_AFTER;
        if asked.is_none() {
            state.temper.prefer(clock, best, base);
        }
        if best == form {
            return None;
        }
        let verdict = if asked.is_some() {
            Verdict::ByHand
        } else if get(&FREEZE) || control::all_frozen() {
            Verdict::Held(Held::Frozen)
        } else if let Err(held) = state.temper.may_swap(clock, base) {
            Verdict::Held(held)
        } else if get(&DRY) || control::all_dry_run() {
            Verdict::DryRun
        } else {
            Verdict::Swapped
        };
        if matches!(verdict, Verdict::Swapped | Verdict::ByHand) {
            change(best);
            self.form.store(best, Ordering::Relaxed);
            state.temper.swapped(clock, best);
            state.changed(form, now);
        }
        let news = (best, verdict.clone());
        if state.noted.as_ref() == Some(&news) {
            return None;
        }
        // What is held, or would be done, is said once from one change to the next.
        let is_change = matches!(verdict, Verdict::Swapped | Verdict::ByHand);
        state.noted = if is_change { None } else { Some(news) };
        let why = match asked {
            Some(_) => "somebody asked for it".to_owned(),
            None => seen.explain(processors),
        };
        Some(Noted { from: form, to: best, verdict, why })
    }

    fn note(&self, noted: Noted) {
        let Noted { from, to, verdict, why } = noted;
        let shown = self.shown.get_or_init(|| {
            let facts =
                Facts { name: self.name, last: Mutex::new((FORMS[to].name, MonitorReading::default())) };
            let shown = Shown::make(facts)?;
            attach(shown.id(), self.values().clone());
            Some(shown)
        });
        // Where there is no room for an object there is no id to note it by.
        let Some(shown) = shown else { return };
        let (from, to) = (FORMS[from].name, FORMS[to].name);
        decision::note(Decision::of(shown.id(), "lock", from, to, verdict, why));
    }
}

/// Processors that this process may use, with what its quota allows. Of a machine that cannot be made out, what std says.
fn processors() -> u32 {
    let known = squall_machine::try_machine().map(|machine| machine.allowance().parallelism());
    known.unwrap_or_else(|_| std::thread::available_parallelism().map_or(1, usize::from)) as u32
}

impl<T: Default> Default for AdaptiveLock<T> {
    fn default() -> AdaptiveLock<T> {
        AdaptiveLock::new(T::default())
    }
}

impl<T> From<T> for AdaptiveLock<T> {
    fn from(value: T) -> AdaptiveLock<T> {
        AdaptiveLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for AdaptiveLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("AdaptiveLock");
        match self.lock.try_lock() {
            Some(guard) => shown.field("value", &&*guard),
            None => shown.field("value", &format_args!("<locked>")),
        };
        shown.field("form", &self.form()).finish_non_exhaustive()
    }
}

/// The lock, held. Dropping it frees the lock, and now and then has the lock's policy look.
#[must_use = "the lock is free again when the guard is dropped"]
pub struct AdaptiveGuard<'a, T: ?Sized> {
    // Dropped in this order: the policy looks when the lock is free.
    guard: ConfigurableGuard<'a, T>,
    _look: Look<'a, T>,
}

struct Look<'a, T: ?Sized> {
    lock: &'a AdaptiveLock<T>,
    due: bool,
}

impl<T: ?Sized> Drop for Look<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.due {
            self.lock.look_if_due();
        }
    }
}

impl<T: ?Sized> Deref for AdaptiveGuard<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for AdaptiveGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for AdaptiveGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for AdaptiveGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, f)
    }
}
