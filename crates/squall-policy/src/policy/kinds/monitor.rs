//! Monitors: one call at a time, and conditions on which calls wait and let others in.
//!
//! - I1. `holder` is the thread that is in the monitor. It changes under the lock of `State` only: from nobody to who enters,
//!   and by who leaves to the next in line, or to nobody. So at most one thread is in, whatever implementation serves: the
//!   state is the policy's, and survives swaps.
//! - I2. A waiter is in one of the lines, or `granted`, or it has taken itself out. Who takes it out of a line for another one
//!   does both under the lock; a grant is made under it, and is not taken back.
//! - I3. Nobody is in a line for entry while there is no holder.
//! - I4. A thread that waits for a condition holds nothing of the monitor. It looks whether it shall leave after it is in the
//!   line, and sleeps only then; who wants it to leave says so, takes the lock, and wakes it: so it sees that or is woken.
//!
//! Source: Hoare 1974; KTK §2.2 (KT-05). Signals are Mesa's: who was signalled enters before all who come from outside, but
//! after the signaller.

use squall_core::wrap::{goes_on, in_transfer, shall_leave};
use squall_core::{Interrupted, Id};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::Instant;

use super::IN_OPERATION;
use crate::policy::{Block, Policy};

/// A monitor: one call of the object is active at a time, in its caller's thread. Calls enter in the order in which they came.
/// A call may wait for a [`Condition`], and lets others in meanwhile.
///
/// A call from inside the monitor to the object itself is refused, since it would wait for itself. Swaps keep all of this:
/// calls in the old implementation and in the new one exclude each other, and a call that waits for a condition leaves for the
/// swap and is made again on what serves then, if its arguments can be used again (see
/// [`RepContext::sleep_until`](squall_core::RepContext::sleep_until)).
///
/// # Cost
/// To enter and to leave, a lock each, held for some tens of nanoseconds; a thread that must wait allocates 40 bytes, and is
/// woken by the one that lets it in. Blocking: a thread that is stopped inside holds up all others.
/// # Example
/// ```
/// use squall_policy::{Binding, Condition, Monitor, governed};
/// use squall_core::{CallError, Interrupted, Owned};
/// use std::sync::Mutex;
///
/// #[squall_macros::interface(crate = squall_core)]
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
/// let co = queue.co();
/// let getter = std::thread::spawn(move || co.get());
/// queue.put(7);
/// assert_eq!(getter.join().unwrap(), Some(7));
/// ```
pub struct Monitor {
    gate: Arc<Gate>,
}

struct Gate {
    /// Known from the object's making on.
    id: OnceLock<Id>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holder: Option<ThreadId>,
    /// Those who were signalled, and enter first.
    signalled: VecDeque<Arc<Waiter>>,
    /// Those who enter then.
    entering: VecDeque<Arc<Waiter>>,
    conditions: Vec<Line>,
}

/// Those who wait for a condition.
struct Line {
    name: &'static str,
    waiting: VecDeque<Arc<Waiter>>,
}

struct Waiter {
    thread: Thread,
    /// It is the holder.
    granted: AtomicBool,
}

impl Waiter {
    fn new() -> Arc<Waiter> {
        Arc::new(Waiter { thread: thread::current(), granted: AtomicBool::new(false) })
    }

    fn is_granted(&self) -> bool {
        // Acquire: pairs with the Release in `grant`: what the last holder did is seen.
        self.granted.load(Ordering::Acquire)
    }

    /// Looks for a moment, before it sleeps: most calls are short, and to sleep and be woken takes much longer.
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

/// How often the next in line looks before it sleeps: some microseconds. Those behind it sleep at once.
const SPINS: u32 = if cfg!(miri) { 2 } else { 200 };

/// Takes a waiter out of a line; whether it was there.
fn take_out(line: &mut VecDeque<Arc<Waiter>>, waiter: &Arc<Waiter>) -> bool {
    let at = line.iter().position(|other| Arc::ptr_eq(other, waiter));
    at.and_then(|at| line.remove(at)).is_some()
}

impl State {
    /// The monitor is nobody's: gives it to the next in line. Returns whom to wake.
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

/// Which thread this is: kept, since `thread::current` counts references.
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

/// How an entry ended.
enum Entered {
    Inside,
    /// The thread is inside already.
    Again,
    /// The deadline passed.
    Late,
    /// The thread moves the state of an object, and would have to wait.
    InTransfer,
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under it panics between two changes that belong together.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, by: Option<Instant>) -> Entered {
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
                // Who is inside may be waiting for the swap in which this thread moves state.
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
            // If it is out of the line it is granted (I2).
            thread::park_timeout(left);
        }
        Entered::Inside
    }

    fn leave(&self) {
        let next = self.lock().pass_on();
        wake(next);
    }

    /// Whether the calling thread is inside.
    fn is_mine(&self, state: &State) -> bool {
        state.holder == Some(me())
    }

    /// Waits in the line of a condition, outside the monitor; inside again when this returns.
    fn wait(&self, condition: usize) -> Result<(), Interrupted> {
        let waiter = Waiter::new();
        let next = {
            let mut state = self.lock();
            assert!(
                self.is_mine(&state),
                "the condition \"{}\" of a monitor was waited for from outside its calls",
                state.conditions[condition].name
            );
            state.conditions[condition].waiting.push_back(Arc::clone(&waiter));
            state.pass_on()
        };
        wake(next);
        while !waiter.is_granted() {
            // After it is in the line (I4).
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

    /// The calling thread takes itself out of a condition's line, and enters the monitor again. Whether it did so: not if it
    /// was signalled meanwhile.
    fn leave_line(&self, condition: usize, waiter: &Arc<Waiter>) -> bool {
        let next = {
            let mut state = self.lock();
            if !take_out(&mut state.conditions[condition].waiting, waiter) {
                // Signalled, and granted soon if not now.
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

    /// If the call was told to leave, it goes on all the same.
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
            // From outside the monitor, perhaps while it is nobody's (I3).
            (count, if state.holder.is_none() { state.pass_on() } else { None })
        };
        wake(next);
        signalled
    }
}

impl Monitor {
    /// A monitor without conditions.
    pub fn new() -> Monitor {
        Monitor { gate: Arc::new(Gate { id: OnceLock::new(), state: Mutex::default() }) }
    }

    /// The condition of this name, made if there is none: implementations that are swapped for each other share it.
    pub fn condition(&self, name: &'static str) -> Condition {
        let mut state = self.gate.lock();
        let known = state.conditions.iter().position(|line| line.name == name);
        let index = known.unwrap_or_else(|| {
            state.conditions.push(Line { name, waiting: VecDeque::new() });
            state.conditions.len() - 1
        });
        Condition { gate: Arc::clone(&self.gate), index, name }
    }

    /// Whether a call is active.
    pub fn is_entered(&self) -> bool {
        self.gate.lock().holder.is_some()
    }

    /// How many calls wait to enter, those that were signalled among them.
    pub fn entering(&self) -> usize {
        let state = self.gate.lock();
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

/// Leaves, by a panic too.
struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Policy for Monitor {
    const WAITS: bool = true;

    fn invoke(&self, block: &mut Block<'_>) {
        if squall_rcu::in_operation() {
            return block.refuse(IN_OPERATION);
        }
        // The object serves, so its id is known to who waits in this call.
        self.gate.id.get_or_init(|| block.id());
        match self.gate.enter(block.deadline()) {
            Entered::Inside => {
                let _inside = Inside(&self.gate);
                block.proceed();
            }
            Entered::Again => {
                block.refuse("this thread is in the monitor already, and would wait for itself")
            }
            Entered::InTransfer => block.refuse("who moves an object's state waits for no other call"),
            // Says so itself.
            Entered::Late => block.proceed(),
        }
    }

    fn wake(&self) {
        // Under the lock, so that who is about to sleep has looked before, or looks again (I4).
        let state = self.gate.lock();
        for waiter in state.conditions.iter().flat_map(|line| &line.waiting) {
            waiter.thread.unpark();
        }
    }
}

/// A condition of a [`Monitor`]: a call that finds that it cannot go on waits for it, and lets others in; the call that makes
/// it true signals it. Cloning is cheap.
#[derive(Clone)]
pub struct Condition {
    gate: Arc<Gate>,
    index: usize,
    name: &'static str,
}

impl Condition {
    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits until it is signalled. Others are in the monitor meanwhile; when this returns, nobody but the calling thread is.
    /// Another call may have come between the signal and that: look again, or use [`wait_until`](Condition::wait_until).
    ///
    /// # Errors
    /// [`Interrupted`]: the object was destroyed, or a swap waits for this call. Return soon, and leave the object as if the method
    /// had not begun: see [`RepContext::sleep_until`](squall_core::RepContext::sleep_until). A call that cannot be made again waits on, and
    /// holds up a swap until that gives up.
    /// # Panics
    /// In a thread that is not in the monitor.
    pub fn wait(&self) -> Result<(), Interrupted> {
        self.gate.wait(self.index)
    }

    /// Waits until `ready` gives something: it is asked at once, and after each signal. It runs in the monitor.
    ///
    /// # Errors
    /// As [`wait`](Condition::wait).
    /// # Panics
    /// As [`wait`](Condition::wait).
    pub fn wait_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> Result<T, Interrupted> {
        loop {
            if let Some(result) = ready() {
                return Ok(result);
            }
            self.wait()?;
        }
    }

    /// Lets the call that waits for it longest go on, if there is one, when the calling one has left the monitor or waits
    /// itself. Returns whether there was one. It may be called from outside, too.
    pub fn signal(&self) -> bool {
        self.gate.signal(self.index, 1) > 0
    }

    /// The same for all that wait now; returns how many.
    pub fn signal_all(&self) -> usize {
        self.gate.signal(self.index, usize::MAX)
    }

    /// How many calls wait for it.
    pub fn waiting(&self) -> usize {
        self.gate.lock().conditions[self.index].waiting.len()
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Condition").field("name", &self.name).field("waiting", &self.waiting()).finish()
    }
}
