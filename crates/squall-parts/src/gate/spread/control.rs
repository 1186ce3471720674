//! The control of a request counter that is spread over processors: it goes to all its gates. The argument is in the
//! [folder's](super) header.

use super::{FENCED, Gate, TAG, Tally, more_left_than_entered};
use crate::gate::phase::{self, BUSY, NORMAL, SHUTDOWN, STATE, STOP};
use crate::gate::{ControlError, Limits, State, sites, wait};
use squall_lock::{Steps, Undisturbed};
use squall_machine::asym;
use squall_machine::park::EventCount;
use squall_sys::sync::atomic::{AtomicPtr, AtomicU32, Ordering, fence};
use squall_sys::sync::Mutex;
use std::fmt;

/// The control of a [`SpreadRequests`](super::SpreadRequests): it stops, restarts and shuts down.
pub struct Control<T: Tally, S: Steps = Undisturbed, X: Send + Sync = ()> {
    /// The head of the list, and TAG.
    pub(super) current: AtomicPtr<Gate<T, S, X>>,
    pub(super) first: Gate<T, S, X>,
    /// The control waits here.
    pub(super) drained: EventCount,
    /// Requests wait here.
    pub(super) turn: EventCount,
    /// Of those that find more left than entered, one counts back at a time.
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

    /// The proxies of the list that `word` heads.
    fn list_of(&self, word: *mut Gate<T, S, X>) -> impl Iterator<Item = &Gate<T, S, X>> {
        // SAFETY: null or a proxy of this list, which is kept as long as `self` (spread/I6). The word was read with Acquire, or by
        // an exchange that acquires, so that the proxy is seen whole.
        let first = unsafe { head_of(word).as_ref() };
        // SAFETY: as above; each was pushed after its next one.
        std::iter::successors(first, |proxy| unsafe { proxy.next.as_ref() })
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = &Gate<T, S, X>> {
        // Acquire: pairs with the Release of who pushed.
        self.list_of(self.current.load(Ordering::Acquire))
    }

    fn all(&self) -> impl Iterator<Item = &Gate<T, S, X>> {
        std::iter::once(&self.first).chain(self.listed())
    }

    pub(in crate::gate) fn counts(&self) -> impl Iterator<Item = &T> {
        self.all().flat_map(|gate| [&gate.entered, &gate.left])
    }

    /// A proxy that nobody uses, or a new one, in the state that there is (spread/I2).
    pub(super) fn proxy(&self, fits: impl Fn(&T) -> bool, tally: impl FnMut() -> T) -> &Gate<T, S, X> {
        let free = |proxy: &&Gate<T, S, X>| {
            // Acquire: pairs with the Release of who gave it up.
            fits(&proxy.entered)
                && proxy.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if let Some(proxy) = self.listed().find(free) {
            return proxy;
        }
        // Acquire: pairs with the Release of who pushed, and of who changed the state.
        let mut word = self.current.load(Ordering::Acquire);
        let new = Gate::new(tally, tag_of(word), head_of(word), self.first.control);
        let new = Box::into_raw(Box::new(new));
        loop {
            S::step();
            let new_word = word_of(new, tag_of(word));
            // Release: pairs with the Acquire of who walks the list. Acquire: what is behind is seen as well.
            match self.current.compare_exchange(word, new_word, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: in the list from now on, and kept (spread/I6).
                Ok(_) => return unsafe { &*new },
                Err(now) => word = now,
            }
            // SAFETY: from `into_raw` above, and nobody else has it yet.
            let unseen = unsafe { &mut *new };
            unseen.next = head_of(word);
            unseen.state = AtomicU32::new(tag_of(word));
            if !sites::NEW_GATE.is_weak() {
                unseen.open_or_close(tag_of(word));
            }
        }
    }

    // --- the steps of the control ---

    /// Goes from one state of `first` to the next, or is refused (spread/I1).
    /// Returns the state before.
    fn begin(&self, next: fn(u32) -> Result<u32, ControlError>) -> Result<u32, ControlError> {
        let mut now = self.first.state.load(Ordering::Relaxed);
        loop {
            let new = next(now & !FENCED)? | now & FENCED;
            // Acquire: pairs with the Release of `end`; what the control operation before this did is seen.
            match self.first.state.compare_exchange_weak(now, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(now & STATE),
                Err(other) => now = other,
            }
        }
    }

    /// Ends a control operation, in this state.
    fn end(&self, state: u32) {
        let fenced = tag_of(self.current.load(Ordering::Relaxed)) & FENCED;
        // The gate before the state: as soon as that says so, another control operation may close it (spread/I1).
        if !sites::GATE_BEFORE_STATE.is_weak() {
            self.first.open_or_close(state | fenced);
            S::step();
        }
        // Release: pairs with the Acquire of `begin`, and of who enters here.
        self.first.state.store(state | fenced, sites::PASS_RELEASE.order(Ordering::Release));
        S::step();
        if sites::GATE_BEFORE_STATE.is_weak() {
            self.first.open_or_close(state | fenced);
        }
        self.turn.signal(u32::MAX);
    }

    /// Gives this state to the word, and then to the proxies that were in the list then (spread/I2). To `first` too, as far as that
    /// has a gate to be closed: its state is changed by `begin` and `end`.
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
            // Release: pairs with the Acquire of who enters.
            proxy.state.store(tag_of(word), sites::PASS_RELEASE.order(Ordering::Release));
            proxy.open_or_close(tag_of(word));
        }
    }

    /// Gives this state to the word, and returns that.
    fn replace_state(&self, state: u32) -> *mut Gate<T, S, X> {
        let mut word = self.current.load(Ordering::Relaxed);
        loop {
            let new = word_of(head_of(word), tag_of(word) & FENCED | state);
            // Release: a proxy is born in this state, and whoever enters there reads it through the word. Acquire: pairs with
            // the Release of who pushed.
            match self.current.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return new,
                Err(now) => word = now,
            }
        }
    }

    /// Ends in NORMAL, or in STOP after a shutdown that gave up; `first` last.
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

    /// Waits until nobody is inside.
    fn drain(&self, state: u32, limits: Limits<'_>) -> Result<(), ControlError> {
        S::step();
        self.heavy(state);
        let mut lost = false;
        let is_over = || {
            let inside = self.inside_at_most();
            lost = inside < 0;
            inside <= 0
        };
        let drained = wait::<S>(&self.drained, is_over, limits);
        if lost {
            self.end(state);
            self.drained.signal(u32::MAX);
            more_left_than_entered();
        }
        drained
    }

    /// How many are inside at most: none if none were at some moment meanwhile (spread/I4).
    pub(super) fn inside_at_most(&self) -> i64 {
        let sum =
            |of: fn(&Gate<T, S, X>) -> u64| self.all().fold(0u64, |sum, gate| sum.wrapping_add(of(gate)));
        if sites::LEFT_BEFORE_ENTERED.is_weak() {
            let entered = sum(|gate| gate.entered.read());
            // Acquire: as below.
            fence(Ordering::Acquire);
            return entered.wrapping_sub(sum(|gate| gate.left.read())).cast_signed();
        }
        let left = sum(|gate| gate.left.read());
        if !sites::SUM_ACQUIRE.is_weak() {
            // Acquire: pairs with the release fence of who left (spread/I4): its entry is in the sum that follows, and what it did
            // inside is seen by the control.
            fence(Ordering::Acquire);
        }
        S::step();
        sum(|gate| gate.entered.read()).wrapping_sub(left).cast_signed()
    }

    /// What is between the states and the sums: from here on nobody comes through a gate, and who looks at a state does so in an
    /// order with the sums. Partners: the gates, and the fences of requests (spread/I3, spread/I5).
    fn heavy(&self, state: u32) {
        // Where requests make full fences gates are never open.
        let is_fenced = tag_of(self.current.load(Ordering::Relaxed)) & FENCED != 0;
        let closed = is_fenced || sites::FINISH_CLOSING.is_weak() || T::finish_closing(self.counts()).is_ok();
        let passed = sites::HEAVY.is_weak() || asym::heavy().is_ok();
        if !(closed && passed) {
            self.without_membarrier(state);
        }
    }

    /// `membarrier` worked once and is refused now: a sandbox was entered. From here requests make full fences, and gates stay
    /// closed; those in the middle, who did not see that, are made to by a visit to their processors, which restarts sequences too.
    #[cold]
    pub(super) fn without_membarrier(&self, state: u32) {
        // For counters that are made from here on.
        #[cfg(not(loom))]
        super::REFUSED.store(true, Ordering::Relaxed);
        let fenced = |word: *mut Gate<T, S, X>| Some(word_of(head_of(word), tag_of(word) | FENCED));
        // Acquire, Release: as in `replace_state`.
        let before = self.current.fetch_update(Ordering::AcqRel, Ordering::Acquire, fenced);
        if before.is_ok_and(|word| tag_of(word) & FENCED == 0) {
            self.pass_on(state);
            self.first.state.fetch_or(FENCED, Ordering::Relaxed);
            super::super::visit_processors();
        }
        // Partner: the full fences of requests.
        fence(Ordering::SeqCst);
    }

    // --- what callers do ---

    /// Stops: requests that come from now on are refused for the time being. Returns when those inside have left.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    /// # Panics
    /// If more requests left than entered. It is then stopped.
    pub fn stop(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        if !sites::FIRST_STOPS_FIRST.is_weak() {
            self.begin(phase::stopped)?;
        }
        S::step();
        self.pass_on(STOP);
        if sites::FIRST_STOPS_FIRST.is_weak() {
            self.begin(phase::stopped)?;
        }
        let drained = self.drain(STOP, limits);
        if drained.is_err() {
            S::step();
            self.go_back(NORMAL);
        } else {
            self.end(STOP);
        }
        drained
    }

    /// Admits requests again, and wakes those that wait. Any thread may, not only the one that stopped.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed.
    pub fn restart(&self) -> Result<(), ControlError> {
        self.begin(phase::restarting)?;
        S::step();
        self.go_back(NORMAL);
        Ok(())
    }

    /// Shuts down: requests that come from now on, and those that wait, are refused for good. Returns when those inside have
    /// left. It may be stopped or not.
    ///
    /// # Errors
    /// [`ControlError`]. After [`TimedOut`](ControlError::TimedOut) it is shut down: [`inside`](Control::inside) tells how
    /// many have not left, and [`drained`](Control::drained) waits for them. After others nothing has changed; but requests
    /// that came before [`Interrupted`](ControlError::Interrupted) were refused.
    /// # Panics
    /// If more requests left than entered. It is then shut down.
    pub fn shutdown(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        let before = self.begin(phase::shut_down)?;
        S::step();
        self.pass_on(SHUTDOWN);
        self.turn.signal(u32::MAX);
        let drained = self.drain(SHUTDOWN, limits);
        if drained == Err(ControlError::Interrupted) {
            S::step();
            self.go_back(before);
        } else {
            self.end(SHUTDOWN);
        }
        // Those in `drained` wait for the end of this.
        self.drained.signal(u32::MAX);
        drained
    }

    /// After a shutdown whose time was over: waits for the last request. It may be called while another thread shuts down, and
    /// again and again.
    ///
    /// # Errors
    /// [`NotShutDown`](ControlError::NotShutDown), and what `limits` say; nothing has changed.
    /// # Panics
    /// If more requests left than entered.
    pub fn drained(&self, limits: Limits<'_>) -> Result<(), ControlError> {
        let (mut state, mut inside) = (SHUTDOWN, 0);
        let is_over = || {
            // Acquire: pairs with the Release of the shutdown's `end`: the sums come after its heavy fence (spread/I3, spread/I5).
            state = self.first.state.load(Ordering::Acquire) & !FENCED;
            if state & STATE == SHUTDOWN && state & BUSY == 0 {
                inside = self.inside_at_most();
            }
            state & STATE != SHUTDOWN || state & BUSY == 0 && inside <= 0
        };
        wait::<S>(&self.drained, is_over, limits)?;
        if state & STATE != SHUTDOWN {
            return Err(ControlError::NotShutDown);
        }
        if inside < 0 {
            more_left_than_entered();
        }
        Ok(())
    }

    /// Has those who wait look at their limits.
    pub fn wake(&self) {
        self.turn.signal(u32::MAX);
        self.drained.signal(u32::MAX);
    }

    /// How many requests are inside: exactly, while none enters or leaves.
    pub fn inside(&self) -> u64 {
        self.inside_at_most().max(0).cast_unsigned()
    }

    /// What a representative that is made now does with requests. The others come to it one after another: until the control
    /// operation has returned, some may still do what they did before.
    pub fn state(&self) -> State {
        State::of(tag_of(self.current.load(Ordering::Relaxed)))
    }

    /// What its user keeps with it, where gates find it.
    pub fn kept(&self) -> &X {
        &self.kept
    }

    /// Proxies, the first aside.
    #[doc(hidden)]
    pub fn proxies(&self) -> usize {
        self.listed().count()
    }
}

impl<T: Tally, S: Steps, X: Send + Sync> Drop for Control<T, S, X> {
    fn drop(&mut self) {
        // Acquire: pairs with the Release of who pushed.
        let mut next = head_of(self.current.load(Ordering::Acquire));
        while !next.is_null() {
            // SAFETY: from `Box::into_raw` in `proxy`, in the list once, and nobody borrows from the counter any more.
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
