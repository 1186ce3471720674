//! Monitors: one call runs at a time, and calls wait for conditions outside.
//!
//! - I1. `holder` is the thread inside the monitor. It changes only under the lock of `State`. An entering
//!   thread sets it if it is empty. A leaving thread passes it to the next in line, or empties it. So at most
//!   one thread is inside, whichever implementation serves: the state belongs to the policy and survives
//!   swaps.
//! - I2. A waiter is in exactly one line, or is `granted`, or has removed itself. A thread that moves it to
//!   another line does so in one critical section. A grant is made under the lock and never withdrawn.
//! - I3. While the monitor is free, both lines for entry are empty.
//! - I4. A thread that waits for a condition holds no part of the monitor. It checks whether it must leave
//!   after it has joined the line, and sleeps only then. The thread that wants it to leave sets the signal,
//!   takes the lock and wakes it. So the waiter sees the signal or is woken.
//!
//! Source: Hoare 1974; KTK §2.2 (KT-05). Signals follow Mesa: a signalled thread enters before all that come
//! from outside, but after the signaller.

use squall_core::wrap::{goes_on, in_transfer, shall_leave};
use squall_core::{Id, Interrupted};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::Instant;

use super::IN_OPERATION;
use crate::invoke::{Dispatch, Mode, TRY};
use crate::policy::{Block, Policy};

/// Monitor: one call of the object runs at a time, on its caller's thread. Calls enter in order of arrival. A
/// call may wait for a [`Condition`]; other calls enter during the wait.
///
/// A call from inside the monitor to the same object is refused, because it would wait for itself. In the
/// mode [`TRY`] a call does not wait to enter: it is refused if another call is inside.
///
/// Swaps keep these rules. Calls in the old and the new implementation exclude each other. A call that waits
/// for a condition leaves for the swap and is repeated on the new implementation, if its arguments can be
/// used again. See [`RepContext::sleep_until`](squall_core::RepContext::sleep_until).
///
/// # Cost
/// Entering and leaving take a lock each, held for some tens of nanoseconds. A thread that must wait
/// allocates 40 bytes, and the thread that lets it in wakes it. Blocking: a thread that is stopped inside
/// delays all others.
/// # Example
/// ```
/// use squall::policy::{Binding, Condition, Monitor, governed};
/// use squall::{CallError, Interrupted, Owned};
/// use std::sync::Mutex;
///
/// #[squall::interface]
/// trait Queue: Send + Sync {
///     #[blocking]
///     fn put(&self, n: u64);
///     #[blocking]
///     fn get(&self) -> Option<u64>;
/// }
/// struct Fifo {
///     // Never waited for: the monitor lets one in.
///     numbers: Mutex<Vec<u64>>,
///     not_empty: Condition,
/// }
/// impl Queue for Fifo {
///     fn put(&self, n: u64) {
///         self.numbers.lock().unwrap().insert(0, n);
///         self.not_empty.signal();
///     }
///     fn get(&self) -> Option<u64> {
///         // `None` is seen only if the object ends: in a swap, the call is made again.
///         self.not_empty.wait_until(|| self.numbers.lock().unwrap().pop()).ok()
///     }
/// }
///
/// let queue: Owned<dyn Queue> = governed(Monitor::new(), |monitor| Fifo {
///     numbers: Mutex::default(),
///     not_empty: monitor.condition("not empty"),
/// });
/// let handle = queue.handle();
/// let getter = std::thread::spawn(move || handle.get());
/// queue.put(7);
/// assert_eq!(getter.join().unwrap(), Some(7));
/// ```
pub struct Monitor {
    inner: Arc<Inner>,
}

struct Inner {
    /// Known once the object serves.
    id: OnceLock<Id>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holder: Option<ThreadId>,
    /// Signalled threads, which enter first.
    signalled: VecDeque<Arc<Waiter>>,
    /// Threads that arrived from outside, which enter after the signalled ones.
    entering: VecDeque<Arc<Waiter>>,
    conditions: Vec<Line>,
}

/// Threads that wait for one condition.
struct Line {
    name: &'static str,
    waiting: VecDeque<Arc<Waiter>>,
}

struct Waiter {
    thread: Thread,
    /// `true` once the thread is the holder.
    granted: AtomicBool,
}

impl Waiter {
    fn new() -> Arc<Waiter> {
        Arc::new(Waiter { thread: thread::current(), granted: AtomicBool::new(false) })
    }

    fn is_granted(&self) -> bool {
        // Acquire: pairs with the Release in `pass_on`. The waiter sees all that the last holder did.
        self.granted.load(Ordering::Acquire)
    }

    /// Spins briefly before the thread sleeps: most calls are short, and sleeping and waking takes much
    /// longer.
    fn spin(&self) {
        for _ in 0..SPINS {
            if self.is_granted() {
                return;
            }
            std::hint::spin_loop();
        }
    }

    fn sleep_until_granted(&self) {
        while !self.is_granted() {
            thread::park();
        }
    }
}

/// Iterations for which the next thread in line spins: some microseconds. Threads behind it sleep at once.
const SPINS: u32 = if cfg!(miri) { 2 } else { 200 };

/// Removes a waiter from a line. Returns `true` if it was there.
fn take_out(line: &mut VecDeque<Arc<Waiter>>, waiter: &Arc<Waiter>) -> bool {
    let at = line.iter().position(|other| Arc::ptr_eq(other, waiter));
    at.and_then(|at| line.remove(at)).is_some()
}

impl State {
    /// Passes the free monitor to the next in line. Returns the waiter to wake.
    #[must_use]
    fn pass_on(&mut self) -> Option<Arc<Waiter>> {
        let next = self.signalled.pop_front().or_else(|| self.entering.pop_front());
        self.holder = next.as_ref().map(|next| next.thread.id());
        if let Some(next) = &next {
            // Release: pairs with the Acquire in `is_granted`.
            next.granted.store(true, Ordering::Release);
        }
        next
    }
}

/// Returns the id of this thread. Cached, because `thread::current` counts references.
fn me() -> ThreadId {
    thread_local! {
        static ME: ThreadId = thread::current().id();
    }
    ME.try_with(|me| *me).unwrap_or_else(|_| thread::current().id())
}

fn wake(waiter: Option<Arc<Waiter>>) {
    if let Some(waiter) = waiter {
        waiter.thread.unpark();
    }
}

/// Result of an attempt to enter.
enum Entered {
    Inside,
    /// The thread is inside already.
    Again,
    /// The deadline passed.
    Late,
    /// The thread moves the state of an object and must not wait.
    InTransfer,
    /// Another call is inside, and this one does not wait.
    Busy,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The code under the lock does not panic between two changes that belong together, so a poisoned lock
        // is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters for a call. `waits` is false in the mode [`TRY`].
    fn enter(&self, by: Option<Instant>, waits: bool) -> Entered {
        let me = me();
        let first;
        let waiter = {
            let mut state = self.lock();
            match state.holder {
                None => {
                    state.holder = Some(me);
                    return Entered::Inside;
                }
                Some(holder) if holder == me => return Entered::Again,
                Some(_) if !waits => return Entered::Busy,
                // The holder may be waiting for the swap in which this thread moves state.
                Some(_) if in_transfer() => return Entered::InTransfer,
                Some(_) => {}
            }
            let waiter = Waiter::new();
            state.entering.push_back(Arc::clone(&waiter));
            first = state.entering.len() == 1;
            waiter
        };
        if first {
            waiter.spin();
        }
        while !waiter.is_granted() {
            let Some(by) = by else {
                thread::park();
                continue;
            };
            let left = by.saturating_duration_since(Instant::now());
            if left.is_zero() && take_out(&mut self.lock().entering, &waiter) {
                return Entered::Late;
            }
            // A waiter that is gone from the line was granted (I2).
            thread::park_timeout(left);
        }
        Entered::Inside
    }

    fn leave(&self) {
        let next = self.lock().pass_on();
        wake(next);
    }

    /// Returns `true` if the calling thread is inside.
    fn is_mine(&self, state: &State) -> bool {
        state.holder == Some(me())
    }

    /// Leaves the monitor, waits in the line of a condition, and is inside again on return.
    fn wait(&self, condition: usize) -> Result<(), Interrupted> {
        let waiter = Waiter::new();
        let next = {
            let mut state = self.lock();
            assert!(
                self.is_mine(&state),
                "the condition \"{}\" of a monitor was waited for from outside its calls; wait inside a method of the object",
                state.conditions[condition].name
            );
            state.conditions[condition].waiting.push_back(Arc::clone(&waiter));
            state.pass_on()
        };
        wake(next);
        while !waiter.is_granted() {
            // Checked after joining the line (I4).
            if self.id.get().is_some_and(|id| shall_leave(*id)) && self.leave_line(condition, &waiter) {
                return Err(Interrupted);
            }
            if !waiter.is_granted() {
                thread::park();
            }
        }
        self.go_on();
        Ok(())
    }

    /// Removes the calling thread from a condition's line and enters the monitor again. Returns `false` if
    /// the thread was signalled meanwhile.
    fn leave_line(&self, condition: usize, waiter: &Arc<Waiter>) -> bool {
        let next = {
            let mut state = self.lock();
            if !take_out(&mut state.conditions[condition].waiting, waiter) {
                // Signalled: the grant has come, or comes soon.
                drop(state);
                waiter.sleep_until_granted();
                return false;
            }
            state.signalled.push_back(Arc::clone(waiter));
            match state.holder {
                None => state.pass_on(),
                Some(_) => None,
            }
        };
        wake(next);
        waiter.sleep_until_granted();
        true
    }

    /// Continues the call, even if it was told to leave.
    fn go_on(&self) {
        if let Some(id) = self.id.get() {
            goes_on(*id);
        }
    }

    fn signal(&self, condition: usize, count: usize) -> usize {
        let (signalled, next) = {
            let mut state = self.lock();
            let state = &mut *state;
            let line = &mut state.conditions[condition].waiting;
            let count = count.min(line.len());
            state.signalled.extend(line.drain(..count));
            // The caller may be outside while the monitor is free (I3).
            (count, if state.holder.is_none() { state.pass_on() } else { None })
        };
        wake(next);
        signalled
    }
}

impl Monitor {
    /// Creates a monitor without conditions.
    pub fn new() -> Monitor {
        Monitor { inner: Arc::new(Inner { id: OnceLock::new(), state: Mutex::default() }) }
    }

    /// Returns the condition with this name, and creates it if needed. Implementations that replace each
    /// other share it.
    ///
    /// ```
    /// use squall::policy::Monitor;
    ///
    /// let monitor = Monitor::new();
    /// let (full, again) = (monitor.condition("full"), monitor.condition("full"));
    /// assert_eq!((full.name(), full.waiting(), again.waiting()), ("full", 0, 0));
    /// ```
    pub fn condition(&self, name: &'static str) -> Condition {
        let mut state = self.inner.lock();
        let known = state.conditions.iter().position(|line| line.name == name);
        let index = known.unwrap_or_else(|| {
            state.conditions.push(Line { name, waiting: VecDeque::new() });
            state.conditions.len() - 1
        });
        Condition { inner: Arc::clone(&self.inner), index, name }
    }

    /// Returns `true` while a call is inside.
    pub fn is_entered(&self) -> bool {
        self.inner.lock().holder.is_some()
    }

    /// Returns the number of calls that wait to enter, including signalled ones.
    pub fn entering(&self) -> usize {
        let state = self.inner.lock();
        state.entering.len() + state.signalled.len()
    }
}

impl Default for Monitor {
    fn default() -> Monitor {
        Monitor::new()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("entered", &self.is_entered()).finish_non_exhaustive()
    }
}

/// Guard of a call inside. Dropping it, also in a panic, leaves the monitor.
struct Inside<'a>(&'a Inner);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Policy for Monitor {
    const WAITS: bool = true;
    const MODES: &'static [&'static Mode] = &[&TRY];

    fn invoke_mode(&self, _try: &'static Mode, call: Dispatch) {
        // The calls inside see the mode in `invoke`.
        call.run();
    }

    fn invoke(&self, block: &mut Block<'_>) {
        if squall_rcu::in_operation() {
            return block.refuse(IN_OPERATION);
        }
        // The object serves, so its id is known to all calls that wait here.
        self.inner.id.get_or_init(|| block.id());
        match self.inner.enter(block.deadline(), !block.is_in(&TRY)) {
            Entered::Inside => {
                let _inside = Inside(&self.inner);
                block.proceed();
            }
            Entered::Busy => block.refuse("another call is in the monitor, and this one does not wait"),
            Entered::Again => block.refuse("this thread is in the monitor already and would wait for itself"),
            Entered::InTransfer => block
                .refuse("another call is inside, but this thread moves an object's state and must not wait"),
            // `proceed` checks the deadline and refuses.
            Entered::Late => block.proceed(),
        }
    }

    fn wake(&self) {
        // Under the lock: a thread about to sleep has joined the line and checks after that, or is woken here
        // (I4).
        let state = self.inner.lock();
        for waiter in state.conditions.iter().flat_map(|line| &line.waiting) {
            waiter.thread.unpark();
        }
    }
}

/// Condition of a [`Monitor`]. A call that cannot go on waits for it and lets other calls in. The call that
/// makes the condition true signals it. Cloning is cheap.
///
/// For an example see [`Monitor`].
#[derive(Clone)]
pub struct Condition {
    inner: Arc<Inner>,
    index: usize,
    name: &'static str,
}

impl Condition {
    /// Returns the name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until the condition is signalled. Other calls may enter during the wait. On return the calling
    /// thread is alone inside again. Another call may have run between the signal and the return: check
    /// again, or use [`wait_until`](Condition::wait_until).
    ///
    /// # Errors
    /// [`Interrupted`]: the object was destroyed, or a swap waits for this call. Return soon, and leave the
    /// object as if the method had not begun; see
    /// [`RepContext::sleep_until`](squall_core::RepContext::sleep_until). A call that cannot be repeated
    /// keeps waiting, and holds up the swap until the swap gives up.
    /// # Panics
    /// On a thread that is outside the monitor.
    pub fn wait(&self) -> Result<(), Interrupted> {
        self.inner.wait(self.index)
    }

    /// Waits until `ready` returns a value. Calls `ready` at once and after each signal, inside the monitor.
    ///
    /// # Errors
    /// [`Interrupted`], as for [`wait`](Condition::wait).
    /// # Panics
    /// On a thread that is outside the monitor.
    pub fn wait_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> Result<T, Interrupted> {
        loop {
            if let Some(result) = ready() {
                return Ok(result);
            }
            self.wait()?;
        }
    }

    /// Signals the call that has waited longest. It goes on once the calling thread has left the monitor or
    /// waits itself. Returns `true` if a call was waiting. May be called from outside the monitor.
    ///
    /// ```
    /// use squall::policy::Monitor;
    ///
    /// let full = Monitor::new().condition("full");
    /// assert!(!full.signal());
    /// assert_eq!(full.signal_all(), 0);
    /// ```
    pub fn signal(&self) -> bool {
        self.inner.signal(self.index, 1) > 0
    }

    /// Signals all calls that wait now. Returns their number.
    pub fn signal_all(&self) -> usize {
        self.inner.signal(self.index, usize::MAX)
    }

    /// Returns the number of calls that wait.
    pub fn waiting(&self) -> usize {
        self.inner.lock().conditions[self.index].waiting.len()
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition").field("name", &self.name).field("waiting", &self.waiting()).finish()
    }
}
