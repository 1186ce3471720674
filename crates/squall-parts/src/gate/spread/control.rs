//! The control of a request counter that is spread over processors: it visits all gates. The argument is in
//! the [folder's](super) header.

use super::{FENCED, Gate, TAG, Tally, more_left_than_entered};
use crate::gate::phase::{self, BUSY, NORMAL, SHUTDOWN, STATE, STOP};
use crate::gate::records::{By, Closed, closed, drained, opened};
use crate::gate::{
    GateError, GateState, Limits, Operation, Step, TakeBack, TaskPlace, Tasks, refuse_in_operation, sites,
    wait,
};
use squall_lock::{NoSteps, Steps};
use squall_machine::asym;
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use squall_sys::sync::{Arc, Mutex};
use std::fmt;
use std::mem;

/// The control of a [`SpreadRequests`](super::SpreadRequests): it stops, restarts and shuts down the counter.
///
/// # Example
/// ```
/// use squall::parts::gate::{Limits, SpreadRequests};
/// use std::sync::atomic::AtomicU64;
/// use std::time::Duration;
///
/// let requests = SpreadRequests::new(|| AtomicU64::new(0));
/// requests.stop(Limits::NONE).unwrap();
/// requests.restart().unwrap();
/// requests.shutdown(Limits::after(Duration::from_secs(1))).unwrap();
/// ```
pub struct Control<T: Tally, S: Steps = NoSteps, X: Send + Sync = ()> {
    /// The head of the list, and the bits of TAG.
    pub(super) current: AtomicPtr<Gate<T, S, X>>,
    pub(super) first: Gate<T, S, X>,
    /// The control waits here.
    pub(super) drained: EventCount,
    /// Requests wait here.
    pub(super) turn: EventCount,
    pub(super) tasks: TaskPlace,
    /// Held by a thread that counts back one leave too many.
    pub(super) counting_back: Mutex<()>,
    pub(super) kept: X,
}

pub(super) fn tag_of<G>(word: *mut G) -> u32 {
    word.addr() as u32 & TAG
}

pub(super) fn head_of<G>(word: *mut G) -> *const G {
    word.map_addr(|bits| bits & !(TAG as usize)).cast_const()
}

pub(super) fn word_of<G>(head: *const G, tag: u32) -> *mut G {
    head.cast_mut().map_addr(|bits| bits | tag as usize)
}

impl<T: Tally, S: Steps, X: Send + Sync> Control<T, S, X> {
    // --- the proxies ---

    /// Iterates over the proxies of the list headed by `word`.
    fn list_of(&self, word: *mut Gate<T, S, X>) -> impl Iterator<Item = &Gate<T, S, X>> {
        // SAFETY: the pointer is null or a proxy of this list, which lives as long as `self` (spread/I6). The
        // word was read with Acquire, or by an exchange that acquires, so the proxy is initialized here.
        let first = unsafe { head_of(word).as_ref() };
        // SAFETY: the pointer is null or a proxy of this list. Each proxy was pushed after its next one.
        std::iter::successors(first, |proxy| unsafe { proxy.next.as_ref() })
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = &Gate<T, S, X>> {
        // Acquire: pairs with the Release of the thread that pushed the proxy.
        self.list_of(self.current.load(Ordering::Acquire))
    }

    fn all(&self) -> impl Iterator<Item = &Gate<T, S, X>> {
        std::iter::once(&self.first).chain(self.listed())
    }

    pub(in crate::gate) fn counts(&self) -> impl Iterator<Item = &T> {
        self.all().flat_map(|gate| [&gate.entered, &gate.left])
    }

    /// Returns a proxy without a user, or a new one, in the present state (spread/I2).
    pub(super) fn proxy(&self, fits: impl Fn(&T) -> bool, tally: impl FnMut() -> T) -> &Gate<T, S, X> {
        let free = |proxy: &&Gate<T, S, X>| {
            // Acquire: pairs with the Release of the user that gave the proxy up.
            fits(&proxy.entered)
                && proxy.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if let Some(proxy) = self.listed().find(free) {
            return proxy;
        }
        // Acquire: pairs with the Release of pushing a proxy, and of changing the state.
        let mut word = self.current.load(Ordering::Acquire);
        let new = Gate::new(tally, tag_of(word), head_of(word), self.first.control);
        let new = Box::into_raw(Box::new(new));
        loop {
            S::step();
            let new_word = word_of(new, tag_of(word));
            // Release: pairs with the Acquire of threads that walk the list. Acquire: the later proxies are
            // visible too.
            match self.current.compare_exchange(word, new_word, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: the proxy is in the list from now on, and kept (spread/I6).
                Ok(_) => return unsafe { &*new },
                Err(now) => word = now,
            }
            // SAFETY: the pointer is from `into_raw` above, and no other thread has it yet.
            let unseen = unsafe { &mut *new };
            unseen.next = head_of(word);
            unseen.state = AtomicU32::new(tag_of(word));
            if !sites::NEW_GATE.is_weak() {
                unseen.open_or_close(tag_of(word));
            }
        }
    }

    // --- the steps of the control ---

    /// Changes `first`'s state by `next`, or returns its error (spread/I1). Returns the previous state.
    fn begin(&self, next: fn(u32) -> Result<u32, GateError>) -> Result<u32, GateError> {
        let mut now = self.first.state.load(Ordering::Relaxed);
        loop {
            let new = next(now & !FENCED)? | now & FENCED;
            // Acquire: pairs with the Release of `end`, so that the writes of the previous control operation
            // are visible.
            match self.first.state.compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(now & STATE),
                Err(other) => now = other,
            }
        }
    }

    /// Ends a control operation, in this state.
    fn end(&self, state: u32) {
        let fenced = tag_of(self.current.load(Ordering::Relaxed)) & FENCED;
        // Change the gate before the state: once the state is set, another control operation may close the
        // gate (spread/I1).
        if !sites::GATE_BEFORE_STATE.is_weak() {
            self.first.open_or_close(state | fenced);
            S::step();
        }
        // Release: pairs with the Acquire of `begin`, and of requests that enter here.
        self.first.state.store(state | fenced, sites::PASS_RELEASE.order(Ordering::Release));
        S::step();
        if sites::GATE_BEFORE_STATE.is_weak() {
            self.first.open_or_close(state | fenced);
        }
        self.signal_turn();
    }

    /// Wakes the waiting requests: threads and tasks.
    fn signal_turn(&self) {
        self.turn.signal(u32::MAX);
        // The fence of `signal` pairs with the fence of `Watch::register`: a task that makes the list only
        // now sees the change.
        if let Some(tasks) = self.tasks.get() {
            tasks.wake_turn();
        }
    }

    /// Wakes the threads and tasks that wait for the last request.
    pub(super) fn signal_drained(&self) {
        self.drained.signal(u32::MAX);
        // The fence of `signal`: as in `signal_turn`.
        if let Some(tasks) = self.tasks.get() {
            tasks.wake_drained();
        }
    }

    /// Sets this state in the word, and then in the proxies that were in the list at that moment (spread/I2).
    /// Also closes `first`'s gate if needed; `begin` and `end` change its state.
    fn pass_on(&self, state: u32) {
        if sites::WORD_BEFORE_PROXIES.is_weak() {
            self.listed().for_each(|proxy| proxy.state.store(state, Ordering::Relaxed));
            let _ = self.replace_state(state);
            return;
        }
        let word = self.replace_state(state);
        if tag_of(word) != NORMAL {
            self.first.open_or_close(tag_of(word));
        }
        for proxy in self.list_of(word) {
            S::step();
            // Release: pairs with the Acquire of entering requests.
            proxy.state.store(tag_of(word), sites::PASS_RELEASE.order(Ordering::Release));
            proxy.open_or_close(tag_of(word));
        }
    }

    /// Sets this state in the word, and returns the new word.
    fn replace_state(&self, state: u32) -> *mut Gate<T, S, X> {
        let mut word = self.current.load(Ordering::Relaxed);
        loop {
            let new = word_of(head_of(word), tag_of(word) & FENCED | state);
            // Release: a proxy is made in this state, and requests that enter there read it through the word.
            // Acquire: pairs with the Release of pushing a proxy.
            match self.current.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return new,
                Err(now) => word = now,
            }
        }
    }

    /// Ends in NORMAL, or in STOP after a shutdown that gave up. `first` comes last (X-04).
    fn go_back(&self, state: u32) {
        if !sites::FIRST_RESTARTS_LAST.is_weak() {
            self.pass_on(state);
            S::step();
            self.end(state);
        } else {
            self.end(state);
            self.pass_on(state);
        }
    }

    /// Waits until no request is inside. Returns whether more requests left than entered.
    fn drain(&self, state: u32, limits: Limits<'_>) -> Result<bool, GateError> {
        S::step();
        self.heavy(state);
        let mut lost = false;
        let is_over = || {
            let inside = self.inside_at_most();
            lost = inside < 0;
            inside <= 0
        };
        wait::<S>(&self.drained, is_over, limits)?;
        Ok(lost)
    }

    /// Returns an upper bound of the requests inside. It is zero if at some moment of this call no request
    /// was inside (spread/I4).
    pub(super) fn inside_at_most(&self) -> i64 {
        let sum =
            |of: fn(&Gate<T, S, X>) -> u64| self.all().fold(0u64, |sum, gate| sum.wrapping_add(of(gate)));
        if sites::LEFT_BEFORE_ENTERED.is_weak() {
            let entered = sum(|gate| gate.entered.read());
            // Acquire: pairs with the release fence of requests that left.
            fence(Ordering::Acquire);
            return entered.wrapping_sub(sum(|gate| gate.left.read())).cast_signed();
        }
        let left = sum(|gate| gate.left.read());
        if !sites::SUM_ACQUIRE.is_weak() {
            // Acquire fence: pairs with the release fence of requests that left (spread/I4). The later sum
            // includes their entries, and the control sees their writes.
            fence(Ordering::Acquire);
        }
        S::step();
        sum(|gate| gate.entered.read()).wrapping_sub(left).cast_signed()
    }

    /// Makes the fences between the states and the sums. From here on no request passes a gate, and reads of
    /// a state are ordered with the sums. Partners: the gates, and the fences of requests (spread/I3,
    /// spread/I5).
    fn heavy(&self, state: u32) {
        // Gates are never open while requests make full fences.
        let is_fenced = tag_of(self.current.load(Ordering::Relaxed)) & FENCED != 0;
        let closed = is_fenced || sites::FINISH_CLOSING.is_weak() || T::finish_closing(self.counts()).is_ok();
        let passed = sites::HEAVY.is_weak() || asym::heavy().is_ok();
        if !(closed && passed) {
            self.without_membarrier(state);
        }
    }

    /// Handles a refusal of `membarrier`, which worked before: the process entered a sandbox. From here on
    /// requests make full fences, and gates stay closed. A visit to each processor makes requests that did
    /// not see this pass a barrier, and restarts sequences.
    #[cold]
    pub(super) fn without_membarrier(&self, state: u32) {
        // For counters made later.
        #[cfg(not(loom))]
        super::REFUSED.store(true, Ordering::Relaxed);
        let fenced = |word: *mut Gate<T, S, X>| Some(word_of(head_of(word), tag_of(word) | FENCED));
        // Acquire and Release: for the partners of `replace_state`.
        let before = self.current.fetch_update(Ordering::AcqRel, Ordering::Acquire, fenced);
        if before.is_ok_and(|word| tag_of(word) & FENCED == 0) {
            self.pass_on(state);
            self.first.state.fetch_or(FENCED, Ordering::Relaxed);
            asym::visit_processors();
        }
        // Full fence: pairs with the full fences of requests.
        fence(Ordering::SeqCst);
    }

    // --- operations for callers ---

    /// Stops the counter: requests that arrive from now on are rejected until the restart. Returns when the
    /// requests inside have left.
    ///
    /// # Errors
    /// [`GateError`]; the counter is unchanged.
    ///
    /// # Panics
    /// If more requests left than entered. The counter is then stopped. In builds with debug assertions, also
    /// inside an operation. The counter is then unchanged.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{GateError, Limits, SpreadRequests};
    /// use std::sync::atomic::AtomicU64;
    /// use std::time::Duration;
    ///
    /// let requests = SpreadRequests::new(|| AtomicU64::new(0));
    /// requests.first().try_enter().unwrap();
    /// let limits = Limits::after(Duration::from_millis(1));
    /// assert_eq!(requests.stop(limits), Err(GateError::TimedOut));
    /// requests.first().leave();
    /// assert_eq!(requests.stop(limits), Ok(()));
    /// ```
    pub fn stop(&self, limits: Limits<'_>) -> Result<(), GateError> {
        refuse_in_operation();
        if !sites::FIRST_STOPS_FIRST.is_weak() {
            self.begin(phase::stopped)?;
        }
        S::step();
        self.pass_on(STOP);
        if sites::FIRST_STOPS_FIRST.is_weak() {
            self.begin(phase::stopped)?;
        }
        let take_back = TakeBack(|| {
            S::step();
            self.go_back(NORMAL);
            opened(self, By::GiveUp);
        });
        closed(self, Closed::Stopped, || self.inside());
        let lost = self.drain(STOP, limits)?;
        mem::forget(take_back);
        self.end(STOP);
        drained(self, Closed::Stopped);
        if lost {
            more_left_than_entered();
        }
        Ok(())
    }

    /// Restarts the counter: admits requests again, and wakes those that wait. Any thread may call this, not
    /// only the one that stopped.
    ///
    /// # Errors
    /// [`GateError`]; the counter is unchanged.
    pub fn restart(&self) -> Result<(), GateError> {
        self.begin(phase::restarting)?;
        S::step();
        self.go_back(NORMAL);
        opened(self, By::Restart);
        Ok(())
    }

    /// Shuts the counter down, whether it is stopped or not. Later requests, and those that wait, are
    /// rejected for good. Returns when the requests inside have left.
    ///
    /// # Errors
    /// [`GateError`]. After [`TimedOut`](GateError::TimedOut) the counter is shut down.
    /// [`inside`](Control::inside) returns the number of requests that have not left, and
    /// [`drained`](Control::drained) waits for them. After other errors the counter is unchanged. Requests
    /// that arrived before [`Interrupted`](GateError::Interrupted) were rejected.
    ///
    /// # Panics
    /// If more requests left than entered. The counter is then shut down. In builds with debug assertions,
    /// also inside an operation. The counter is then unchanged.
    pub fn shutdown(&self, limits: Limits<'_>) -> Result<(), GateError> {
        refuse_in_operation();
        let before = self.begin(phase::shut_down)?;
        // Threads in `drained` wait for the end of this operation.
        let take_back = TakeBack(|| {
            S::step();
            self.go_back(before);
            self.signal_drained();
            match before {
                STOP => closed(self, Closed::Stopped, || self.inside()),
                _ => opened(self, By::GiveUp),
            }
        });
        S::step();
        self.pass_on(SHUTDOWN);
        self.signal_turn();
        closed(self, Closed::ShutDown, || self.inside());
        let end = self.drain(SHUTDOWN, limits);
        if let Ok(_) | Err(GateError::TimedOut) = end {
            mem::forget(take_back);
            self.end_shutdown();
        }
        let lost = end?;
        drained(self, Closed::ShutDown);
        if lost {
            more_left_than_entered();
        }
        Ok(())
    }

    /// Waits for the last request, after a shutdown that timed out. Callable while another thread shuts down,
    /// and repeatedly.
    ///
    /// # Errors
    /// [`NotShutDown`](GateError::NotShutDown), [`TimedOut`](GateError::TimedOut) or
    /// [`Interrupted`](GateError::Interrupted); the counter is unchanged.
    ///
    /// # Panics
    /// If more requests left than entered. In builds with debug assertions, also inside an operation.
    ///
    /// # Example
    /// ```
    /// use squall::parts::gate::{GateError, Limits, SpreadRequests};
    /// use std::sync::atomic::AtomicU64;
    ///
    /// let requests = SpreadRequests::new(|| AtomicU64::new(0));
    /// assert_eq!(requests.drained(Limits::NONE), Err(GateError::NotShutDown));
    /// requests.shutdown(Limits::NONE).unwrap();
    /// assert_eq!(requests.drained(Limits::NONE), Ok(()));
    /// ```
    pub fn drained(&self, limits: Limits<'_>) -> Result<(), GateError> {
        refuse_in_operation();
        let mut is_drained = Ok(false);
        let is_over = || {
            is_drained = self.is_drained();
            is_drained != Ok(false)
        };
        wait::<S>(&self.drained, is_over, limits)?;
        is_drained.map(drop)
    }

    /// Returns whether a shutdown has ended and its last request has left.
    fn is_drained(&self) -> Result<bool, GateError> {
        // Acquire: pairs with the Release of the shutdown's `end`, so the sums come after its heavy fence
        // (spread/I3, spread/I5).
        let state = self.first.state.load(Ordering::Acquire) & !FENCED;
        if state & STATE != SHUTDOWN {
            return Err(GateError::NotShutDown);
        }
        if state & BUSY != 0 {
            return Ok(false);
        }
        let inside = self.inside_at_most();
        if inside < 0 {
            more_left_than_entered();
        }
        Ok(inside == 0)
    }

    /// Ends a shutdown, drained or not. It stays in force.
    fn end_shutdown(&self) {
        self.end(SHUTDOWN);
        self.signal_drained();
    }

    /// Wakes the waiting threads, so that they check their limits, and the waiting tasks.
    pub fn wake(&self) {
        self.signal_turn();
        self.signal_drained();
    }

    /// Returns the tasks that wait here.
    #[doc(hidden)]
    pub fn tasks(&self) -> &Arc<Tasks> {
        self.tasks.get_or_make()
    }

    /// Makes a step of a future's operation.
    ///
    /// # Panics
    /// If more requests left than entered, when the operation finishes.
    #[doc(hidden)]
    pub fn step(&self, step: Step) -> Result<bool, GateError> {
        match step {
            Step::Begin(Operation::Stop) => {
                self.begin(phase::stopped)?;
                S::step();
                self.pass_on(STOP);
                S::step();
                self.heavy(STOP);
                closed(self, Closed::Stopped, || self.inside());
            }
            Step::Begin(Operation::Shutdown) => {
                self.begin(phase::shut_down)?;
                S::step();
                self.pass_on(SHUTDOWN);
                self.heavy(SHUTDOWN);
                self.signal_turn();
                closed(self, Closed::ShutDown, || self.inside());
            }
            Step::Look(Operation::Drain) => return self.is_drained(),
            Step::Look(_) => return Ok(self.inside_at_most() <= 0),
            Step::Finish(Operation::Stop) => {
                self.end(STOP);
                drained(self, Closed::Stopped);
            }
            Step::Finish(Operation::Shutdown) => {
                self.end_shutdown();
                drained(self, Closed::ShutDown);
            }
            Step::GiveUp(Operation::Shutdown) => self.end_shutdown(),
            Step::GiveUp(Operation::Stop) => {
                S::step();
                self.go_back(NORMAL);
                opened(self, By::GiveUp);
            }
            Step::Begin(Operation::Drain)
            | Step::Finish(Operation::Drain)
            | Step::GiveUp(Operation::Drain) => {}
        }
        if matches!(step, Step::Finish(_)) && self.inside_at_most() < 0 {
            more_left_than_entered();
        }
        Ok(false)
    }

    /// Returns the number of requests inside. Exact while no request enters or leaves.
    pub fn inside(&self) -> u64 {
        self.inside_at_most().max(0).cast_unsigned()
    }

    /// Returns the way a newly made gate treats requests. During a control operation, older gates may still
    /// have the previous state.
    pub fn state(&self) -> GateState {
        GateState::of(tag_of(self.current.load(Ordering::Relaxed)))
    }

    /// Returns the value that the user keeps with the counter; see
    /// [`SpreadRequests::with`](super::SpreadRequests::with).
    pub fn kept(&self) -> &X {
        &self.kept
    }

    /// Internal: returns the number of proxies, without the first.
    #[doc(hidden)]
    pub fn proxies(&self) -> usize {
        self.listed().count()
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> Drop for Control<T, S, X> {
    fn drop(&mut self) {
        // Acquire: pairs with the Release of the thread that pushed the proxy.
        let mut next = head_of(self.current.load(Ordering::Acquire));
        while !next.is_null() {
            // SAFETY: the pointer is from `Box::into_raw` in `proxy`, and is in the list once. The counter is
            // no longer borrowed.
            let proxy = unsafe { Box::from_raw(next.cast_mut()) };
            next = proxy.next;
        }
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> fmt::Debug for Control<T, S, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("state", &self.state())
            .field("inside", &self.inside())
            .field("proxies", &self.proxies())
            .finish()
    }
}
