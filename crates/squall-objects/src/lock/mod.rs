//! A lock that adapts to its load: how threads wait for it, and which waiter gets it next.
//! Feature: `adaptive-lock`.
//!
//! | form | waiting | next owner | suited to |
//! |---|---|---|---|
//! | `turns` | one waiter spins, the others sleep | any, in turns of 0.5 ms | threads outnumber processors |
//! | `stand-by` | one waiter polls seldom, the others sleep | the last owner, in turns | holds below 1 µs |
//! | `hand-off` | all waiters spin for a while | a spinning waiter | holds of some µs |
//! | `block` | all waiters sleep | any, in turns | holds above 50 µs |
//!
//! The form `hand-off` needs a processor for each thread.
//!
//! A lock starts as `turns`. A thread that had to wait runs the policy after it has released the lock, at
//! most every two milliseconds. The policy reads the lock's monitor and sets the attributes of the
//! [`squall_lock::ConfigurableLock`]. The KTK papers call such a policy *closely coupled*.
//!
//! [`AdaptiveLock::history`] and [`squall::adapt::control::recent`](squall_adapt::control::recent) list the
//! decisions with their reasons.
//! From its first decision on, the lock is also a clustered object for browsers ([`LockView`]). The
//! attributes `freeze`, `dry-run`, `cooldown` and `form` of that object control the policy.
//! [`AdaptiveLock::set_form`] does the same from the program.
//!
//! ```
//! use squall::objects::lock::AdaptiveLock;
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

use squall_adapt::control;
use squall_adapt::decision::{self, Decision, Held, Verdict};
use squall_adapt::hysteresis::Hysteresis;
use squall_adapt::settings::{DRY, FREEZE};
use squall_core::Handle;
use squall_lock::{ConfigurableGuard, ConfigurableLock, LockError, MonitorReading, Request};
use squall_policy::attribute::{Attribute, ClassValues, InstanceValues, Schema, attach, choices};

use policy::{FORMS, Seen, TURNS};
pub use view::LockView;
use view::{Facts, Shown};

choices! {
    /// Requested form of a lock: a fixed one, or the policy's choice.
    pub enum Wanted {
        /// The policy chooses.
        Auto = "auto",
        /// The form `turns`.
        Turns = "turns",
        /// The form `stand-by`.
        StandBy = "stand-by",
        /// The form `hand-off`.
        HandOff = "hand-off",
        /// The form `block`.
        Block = "block",
    }
}

/// Attribute: the form of the lock. The default is the policy's choice.
pub static FORM: Attribute<Wanted> =
    Attribute::new("form", Wanted::Auto).about("form of the lock; `auto` leaves the choice to its policy");

/// Attribute: the minimum time between two changes. If the load was steady for this long before it changed,
/// the lock follows the change at once. Default: 10 ms.
///
/// The default is shorter than that of objects that are swapped, since a lock changes by a few stores.
pub static COOLDOWN: Attribute<Duration> = Attribute::new("cooldown", Duration::from_millis(10))
    .between(Duration::from_micros(100), Duration::from_secs(3600))
    .about("minimum time between two changes, and the time after which a steady load is followed at once");

/// Attributes of adaptive locks.
pub static SCHEMA: Schema = Schema::new("adaptive lock", &[&FREEZE, &DRY, &COOLDOWN, &FORM]);

/// Attribute values for all adaptive locks.
///
/// ```
/// use squall::adapt::settings::FREEZE;
/// use squall::objects::lock;
///
/// lock::ALL.set(&FREEZE, true).unwrap();
/// assert!(lock::ALL.get(&FREEZE));
/// ```
pub static ALL: ClassValues = ClassValues::new(&SCHEMA);

/// Number of contended acquisitions between two runs of the policy.
const LOOK_EVERY: u64 = 32;
/// Minimum time between two runs of the policy.
const LOOK_AFTER: Duration = Duration::from_millis(2);

/// An adaptive lock. The [module](self) describes its forms.
///
/// A panic while the lock is held releases it; there is no poisoning. Waiters are in no order except for the
/// turns. Use a [`ConfigurableLock`] for priorities and registration.
///
/// ```
/// use squall::objects::lock::AdaptiveLock;
///
/// let total = AdaptiveLock::new(0);
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| *total.lock() += 1);
///     }
/// });
/// assert_eq!(total.into_inner(), 4);
/// ```
///
/// # Cost
/// Uncontended, like a [`ConfigurableLock`]: one compare-and-swap to lock and one to unlock. At most 320
/// bytes besides the value. Contention adds some hundred bytes, and the first decision adds the object of the
/// view.
///
/// The guard of a thread that had to wait may run the policy when it is dropped. A run takes some
/// microseconds, at most every 2 ms; the first decision also creates an object. With the feature `tracing` of
/// `squall-adapt`, subscribers are called there, under no lock of Squall.
pub struct AdaptiveLock<T: ?Sized> {
    policy: Policy,
    lock: ConfigurableLock<T>,
}

/// State of the policy.
struct Policy {
    name: &'static str,
    /// Present form, an index into `FORMS`.
    form: AtomicUsize,
    /// Number of contended acquisitions at which the policy runs next.
    next: AtomicU64,
    state: Mutex<Option<Box<State>>>,
    shown: OnceLock<Option<Shown>>,
    values: OnceLock<Arc<InstanceValues>>,
}

/// Memory of the policy between two runs.
struct State {
    began: Instant,
    looked: Instant,
    before: MonitorReading,
    temper: Hysteresis,
    /// The form found best in the last runs, and the number of those runs in a row.
    agreed: (usize, u32),
    /// `regrets` counts how often in a row a risky form (`policy::is_bold`) lasted for less than `LASTS`.
    /// `chosen` is the time of the last change of form.
    regrets: u32,
    chosen: Instant,
    /// Last decision recorded, so that it is recorded once.
    noted: Option<(usize, Verdict)>,
}

impl<T> AdaptiveLock<T> {
    /// Creates a free lock.
    pub const fn new(value: T) -> AdaptiveLock<T> {
        AdaptiveLock::named("", value)
    }

    /// Creates a free lock with a name for decisions and browsers.
    ///
    /// ```
    /// use squall::objects::lock::AdaptiveLock;
    ///
    /// static QUEUE: AdaptiveLock<Vec<u32>> = AdaptiveLock::named("queue", Vec::new());
    /// QUEUE.lock().push(1);
    /// assert!(QUEUE.try_lock().is_some_and(|queue| queue.len() == 1));
    /// ```
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

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.lock.into_inner()
    }
}

impl<T: ?Sized> AdaptiveLock<T> {
    /// Waits for the lock without a time limit.
    ///
    /// # Panics
    /// In debug builds, on a deadlock, like [`ConfigurableLock::lock`].
    #[track_caller]
    #[inline]
    pub fn lock(&self) -> AdaptiveGuard<'_, T> {
        self.guard(self.lock.lock())
    }

    /// Takes the lock if it is free and not reserved for a waiter.
    ///
    /// ```
    /// use squall::objects::lock::AdaptiveLock;
    ///
    /// let lock = AdaptiveLock::new(1);
    /// let guard = lock.lock();
    /// assert!(lock.is_locked() && lock.try_lock().is_none());
    /// drop(guard);
    /// assert_eq!(*lock.try_lock().unwrap(), 1);
    /// ```
    #[track_caller]
    #[inline]
    pub fn try_lock(&self) -> Option<AdaptiveGuard<'_, T>> {
        self.lock.try_lock().map(|guard| self.guard(guard))
    }

    /// Waits for the lock for at most `limit`.
    ///
    /// ```
    /// use squall::objects::lock::AdaptiveLock;
    /// use std::time::Duration;
    ///
    /// let lock = AdaptiveLock::new(1);
    /// let _guard = lock.lock();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| assert!(lock.try_lock_for(Duration::from_millis(1)).is_none()));
    /// });
    /// ```
    #[track_caller]
    pub fn try_lock_for(&self, limit: Duration) -> Option<AdaptiveGuard<'_, T>> {
        self.lock.try_lock_for(limit).map(|guard| self.guard(guard))
    }

    /// Waits for the lock until `deadline`.
    #[track_caller]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<AdaptiveGuard<'_, T>> {
        self.lock.try_lock_until(deadline).map(|guard| self.guard(guard))
    }

    /// Waits for the lock as `request` says.
    ///
    /// # Errors
    /// The errors of [`ConfigurableLock::lock_with`]. The lock has no registered threads.
    #[track_caller]
    pub fn lock_with(&self, request: &Request<'_>) -> Result<AdaptiveGuard<'_, T>, LockError> {
        self.lock.lock_with(request).map(|guard| self.guard(guard))
    }

    #[inline(always)]
    fn guard<'a>(&'a self, guard: ConfigurableGuard<'a, T>) -> AdaptiveGuard<'a, T> {
        let waited = guard.waited();
        AdaptiveGuard { guard, _look: Look { lock: self, due: waited && self.is_due() } }
    }

    /// Returns whether the policy is due. Called by the owner.
    fn is_due(&self) -> bool {
        // Relaxed: a hint, since `look` takes a lock of its own.
        self.lock.contended() >= self.policy.next.load(Ordering::Relaxed)
    }

    /// Returns whether a thread holds the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.lock.is_locked()
    }

    /// Returns the value, for an exclusive reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }

    /// Returns the readings of the lock's monitor.
    ///
    /// ```
    /// use squall::objects::lock::AdaptiveLock;
    ///
    /// let lock = AdaptiveLock::new(());
    /// drop(lock.lock());
    /// assert_eq!(lock.monitor().contended, 0);
    /// ```
    pub fn monitor(&self) -> MonitorReading {
        self.lock.monitor()
    }

    /// Returns the name of the present form.
    pub fn form(&self) -> &'static str {
        FORMS[self.policy.form.load(Ordering::Relaxed)].name
    }

    /// Fixes the form of the lock. [`Wanted::Auto`] returns the choice to the policy.
    ///
    /// ```
    /// use squall::objects::lock::{AdaptiveLock, Wanted};
    ///
    /// let lock = AdaptiveLock::new(());
    /// lock.set_form(Wanted::Block);
    /// assert_eq!((lock.form(), lock.history().len()), ("block", 1));
    /// ```
    pub fn set_form(&self, form: Wanted) {
        // The attribute accepts every value of its own type.
        let set = self.policy.values().set(&FORM, form);
        debug_assert!(set.is_ok(), "the attribute `form` rejected {form:?}: {set:?}");
        self.look_now();
    }

    /// Returns the object that shows the lock to browsers. It exists from the policy's first decision on.
    ///
    /// ```
    /// use squall::objects::lock::{AdaptiveLock, LockView, Wanted};
    ///
    /// let lock = AdaptiveLock::named("queue", ());
    /// assert!(lock.view().is_none());
    /// lock.set_form(Wanted::HandOff);
    /// let view = lock.view().unwrap();
    /// assert_eq!((view.name(), view.form()), ("queue", "hand-off"));
    /// ```
    pub fn view(&self) -> Option<Handle<dyn LockView>> {
        Some(self.policy.shown.get()?.as_ref()?.handle())
    }

    /// Returns the recorded decisions about the lock, oldest first. The log drops the oldest decisions when
    /// it is full.
    pub fn history(&self) -> Vec<Decision> {
        self.view().map(|view| decision::history(Handle::id(view))).unwrap_or_default()
    }

    #[cold]
    fn look_if_due(&self) {
        // In the child of a fork, locks of the view and of decisions may be held for ever.
        if squall_sys::fork::forked() {
            return;
        }
        // One thread runs the policy; the others go on. A panic leaves no partial change under this lock.
        let mut state = match self.policy.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poison)) => poison.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let now = Instant::now();
        if state.as_ref().is_some_and(|state| now - state.looked < LOOK_AFTER) {
            // Too early: the policy is due again after `LOOK_EVERY` more contended acquisitions.
            self.policy.next.store(self.lock.contended() + LOOK_EVERY, Ordering::Relaxed);
            return;
        }
        let noted = self.look(&mut state, now);
        drop(state);
        self.tell(noted);
    }

    /// Runs the policy on request.
    fn look_now(&self) {
        if squall_sys::fork::forked() {
            return;
        }
        let mut state = self.policy.state.lock().unwrap_or_else(|poison| poison.into_inner());
        let noted = self.look(&mut state, Instant::now());
        drop(state);
        self.tell(noted);
    }

    /// Records a decision and updates the view. Runs under no lock, since listeners of decisions may do
    /// anything.
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

/// A decision to record.
struct Noted {
    from: usize,
    to: usize,
    verdict: Verdict,
    why: String,
}

/// Number of runs in a row that must find a form best, since a single run may see an unusual moment.
const AGREED: u32 = 2;
/// Like `AGREED`, for risky forms (`policy::is_bold`). The number doubles each time such a form did not last
/// for `LASTS`.
const AGREED_IF_BOLD: u32 = 4;
const LASTS: Duration = Duration::from_secs(1);
const REGRETS_MAX: u32 = 10;

impl State {
    /// Returns the form found best, if enough runs agree, else the present form.
    fn settle(&mut self, best: usize, form: usize) -> usize {
        let looks = if self.agreed.0 == best { self.agreed.1.saturating_add(1) } else { 1 };
        self.agreed = (best, looks);
        let needed = if policy::is_bold(best) { AGREED_IF_BOLD << self.regrets } else { AGREED };
        if looks < needed { form } else { best }
    }

    /// Records a change of form.
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

    /// Decides which form the lock should have, and changes it if the settings allow that. Returns the
    /// decision to record.
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
        // The hysteresis needs times above zero.
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
        // A decision that is held back, or is a dry run, is recorded once between two changes.
        let is_change = matches!(verdict, Verdict::Swapped | Verdict::ByHand);
        state.noted = if is_change { None } else { Some(news) };
        let why = match asked {
            Some(_) => "the program or a user asked for it".to_owned(),
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
        // Without room for an object there is no id to record the decision under.
        let Some(shown) = shown else { return };
        let (from, to) = (FORMS[from].name, FORMS[to].name);
        decision::note(Decision::new(shown.id(), "lock", from, to, verdict, why));
    }
}

/// Returns the number of processors that this process may use, limited by its quota. Falls back to std's
/// answer if the machine cannot be examined.
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

/// Guard of a held lock. Dropping it releases the lock, and sometimes runs the lock's policy.
///
/// ```
/// use squall::objects::lock::AdaptiveLock;
///
/// let names = AdaptiveLock::new(vec!["a"]);
/// {
///     let mut guard = names.lock();
///     guard.push("b");
/// }
/// assert!(!names.is_locked());
/// ```
#[must_use = "the lock is free again when the guard is dropped"]
pub struct AdaptiveGuard<'a, T: ?Sized> {
    // The fields are dropped in this order, so the policy runs after the release.
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
