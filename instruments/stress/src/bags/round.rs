//! One round: a bag, its tokens, and the body of a thread.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use squall::adapt::control::{self, ControlError};
use squall::objects::bag::{self as objects, Bag as Object, BagExt};
use squall::parts::bag::{Bag, Client, Strategy, Wait, WaitError};
use squall::swap::{Swap, SwapFailure};
use squall::{Handle, Owned};
use squall_machine::machine;

use super::Break;
use crate::run::{Rng, Violation};
use crate::skeleton::cleanup::drain_values;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::{ExpectedPanic, catch_silently, panic_message};
use crate::skeleton::placement::{AllowedCpus, switch_vp};
use crate::tokens::{Books, Token};

/// Maximum number of steps of a thread.
const STEPS_MAX: u64 = 4_000;
/// Maximum number of tokens that a thread holds.
const HELD_MAX: usize = 24;
/// Maximum number of tokens of a plentiful round beyond one more than the threads may hold.
const MORE_MAX: u64 = 200;
/// Maximum number of places beyond those of the VPs.
const PLACES_MAX: u64 = 64;
/// Longest wait of a thread that gives up, in microseconds.
const WAIT_US: u64 = 300;
/// A thread that waits this long with a token in the bag was not woken.
const WOKEN_WITHIN: Duration = Duration::from_secs(60);
/// One round in this many closes its bag.
const CLOSED_ONE_IN: u64 = 8;
/// A planned break happens once in this many chances.
const BREAK_ONE_IN: u64 = 256;

/// The counted events of all rounds.
#[derive(Default)]
pub(super) struct Counts {
    puts: AtomicU64,
    gets: AtomicU64,
    empty: AtomicU64,
    batches: AtomicU64,
    idle: AtomicU64,
    changes: AtomicU64,
    plentiful: AtomicU64,
    panics: AtomicU64,
    leaves: AtomicU64,
    gathers: AtomicU64,
    waits: AtomicU64,
    cancelled: AtomicU64,
    closed: AtomicU64,
    objects: AtomicU64,
    swaps: AtomicU64,
}

impl Counts {
    /// Returns the names and the counts.
    pub(super) fn lines(&self) -> Vec<(&'static str, u64)> {
        let lines = [
            ("tokens put", &self.puts),
            ("tokens got", &self.gets),
            ("gets that said empty", &self.empty),
            ("batches", &self.batches),
            ("idle events", &self.idle),
            ("attributes changed", &self.changes),
            ("plentiful rounds", &self.plentiful),
            ("panics in drops", &self.panics),
            ("shards that left", &self.leaves),
            ("gathers", &self.gathers),
            ("waits", &self.waits),
            ("waits cancelled", &self.cancelled),
            ("waits ended by a close", &self.closed),
            ("rounds with an object", &self.objects),
            ("swaps", &self.swaps),
        ];
        lines.map(|(name, count)| (name, count.load(Ordering::Relaxed))).to_vec()
    }
}

fn count(place: &AtomicU64, more: usize) {
    place.fetch_add(more as u64, Ordering::Relaxed);
}

/// The data that the threads of a round share. The books outlive the tokens.
pub(super) struct Round<'a> {
    bag: Arc<Bag<Token>>,
    /// The object that has the bag, in some rounds.
    object: Option<Owned<dyn Object<Token>>>,
    /// Whether the object is adaptive.
    adapts: bool,
    books: &'a Arc<Books>,
    tokens: usize,
    places: usize,
    /// Whether there are more tokens than all threads may hold (`bags/I1`).
    is_plentiful: bool,
    /// Whether a thread closes the bag in this round, and whether one began to.
    closes: bool,
    closing: AtomicBool,
    broken: Option<Break>,
    home: &'a AllowedCpus,
    counts: &'a Counts,
}

/// The most tokens of a round.
pub(super) fn tokens_max(threads: usize) -> usize {
    threads * HELD_MAX + MORE_MAX as usize
}

impl<'a> Round<'a> {
    pub(super) fn new(
        books: &'a Arc<Books>,
        threads: usize,
        broken: Option<Break>,
        home: &'a AllowedCpus,
        counts: &'a Counts,
        rng: &mut Rng,
    ) -> Round<'a> {
        let is_plentiful = rng.one_in(2);
        let tokens = if is_plentiful {
            count(&counts.plentiful, 1);
            threads * HELD_MAX + 1 + rng.below(MORE_MAX) as usize
        } else {
            1 + rng.below(2 * threads as u64) as usize
        };
        let adapts = rng.one_in(4);
        let object = match rng.below(4) {
            _ if adapts => Some(objects::adaptive()),
            0 => Some(objects::shared()),
            1 => Some(objects::distributed()),
            _ => None,
        };
        let more = if object.is_some() { 0 } else { rng.below(PLACES_MAX + 1) as usize };
        let places = machine().vp_limit() + more;
        let bag = match &object {
            Some(object) => object.contents_unarbitrated().0,
            None => Arc::new(Bag::with_places(places)),
        };
        count(&counts.objects, usize::from(object.is_some()));
        // The waits of an object end with the object only.
        let (closes, closing) = (object.is_none() && rng.one_in(CLOSED_ONE_IN), AtomicBool::new(false));
        let round = Round {
            bag,
            object,
            adapts,
            books,
            tokens,
            places,
            is_plentiful,
            closes,
            closing,
            broken,
            home,
            counts,
        };
        for _ in 0..8 {
            round.change(rng);
        }
        for number in 0..tokens {
            round.put(books.token(number), rng);
        }
        round
    }

    /// The body of a thread: a random number of steps. Then it puts back all tokens that it holds.
    pub(super) fn live(&self, rng: &mut Rng) {
        let mut held: Vec<Token> = Vec::with_capacity(HELD_MAX);
        for _ in 0..1 + rng.below(STEPS_MAX) {
            if self.books.violation().is_some() {
                break;
            }
            self.step(&mut held, rng);
        }
        self.put_all(&mut held, rng);
    }

    /// Puts back all tokens that the thread holds.
    fn put_all(&self, held: &mut Vec<Token>, rng: &mut Rng) {
        while let Some(token) = held.pop() {
            self.put(token, rng);
        }
    }

    fn step(&self, held: &mut Vec<Token>, rng: &mut Rng) {
        match rng.below(256) {
            0..100 if !held.is_empty() => {
                let token = held.swap_remove(rng.below(held.len() as u64) as usize);
                if self.breaks(Break::LoseToken, rng) {
                    return drop(token);
                }
                self.put(token, rng);
            }
            100..200 if held.len() < HELD_MAX => self.get(held, rng),
            200..210 if !held.is_empty() => self.put_batch(held, rng),
            210..220 if held.len() < HELD_MAX => self.get_batch(held, rng),
            220..240 => self.be_idle(rng),
            240..244 => self.change(rng),
            244 => {
                self.home.confine(None, rng);
                switch_vp(rng);
            }
            245..248 => delay(rng),
            249 => {
                let left = self.client(rng).leave();
                count(&self.counts.leaves, usize::from(left));
            }
            250 if rng.one_in(4) => {
                self.bag.gather(rng.below(self.places as u64) as usize);
                count(&self.counts.gathers, 1);
            }
            251 | 252 => self.wait(held, rng),
            253 if held.len() < HELD_MAX => self.poll_once(held, rng),
            254 if self.closes && rng.one_in(64) => {
                // Relaxed: the lock of the waiters orders it before each answer of a close.
                self.closing.store(true, Ordering::Relaxed);
                self.bag.close();
            }
            248 => {
                // Estimates: only their end is promised.
                let _ = (self.bag.len(), self.bag.is_empty(), self.client(rng).len());
            }
            255 => self.swap(rng),
            _ => {}
        }
    }

    /// Returns the client of the thread's VP, or of a random place.
    fn client(&self, rng: &mut Rng) -> Client<'_, Token> {
        if rng.one_in(2) { self.bag.here() } else { self.bag.client(rng.below(self.places as u64) as usize) }
    }

    /// Returns the object for half of the calls, if there is one.
    fn object(&self, rng: &mut Rng) -> Option<Handle<dyn Object<Token>>> {
        self.object.as_ref().filter(|_| rng.one_in(2)).map(Owned::handle)
    }

    fn put(&self, token: Token, rng: &mut Rng) {
        token.note_put();
        count(&self.counts.puts, 1);
        match self.object(rng) {
            Some(object) => BagExt::put(object, token),
            None => self.client(rng).put(token),
        }
    }

    fn take(&self, rng: &mut Rng) -> Option<Token> {
        match self.object(rng) {
            Some(object) => BagExt::get(object),
            None => self.client(rng).get(),
        }
    }

    fn put_batch(&self, held: &mut Vec<Token>, rng: &mut Rng) {
        let batch = held.split_off(rng.below(held.len() as u64) as usize);
        batch.iter().for_each(Token::note_put);
        count(&self.counts.puts, batch.len());
        count(&self.counts.batches, 1);
        match self.object(rng) {
            Some(object) => object.put_batch(batch),
            None => self.client(rng).put_batch(batch),
        }
    }

    fn get_batch(&self, held: &mut Vec<Token>, rng: &mut Rng) {
        let wanted = 1 + rng.below((HELD_MAX - held.len()) as u64) as usize;
        let before = held.len();
        let got = match self.object(rng) {
            Some(object) => {
                held.extend(object.get_batch(wanted));
                held.len() - before
            }
            None => self.client(rng).get_batch(wanted, held),
        };
        if got != held.len() - before || got > wanted {
            self.books.fail(format!("a batch of at most {wanted} says {got}"));
        }
        held[before..].iter().for_each(Token::note_got);
        count(&self.counts.gets, got);
        count(&self.counts.batches, 1);
        if got < wanted {
            self.note_empty();
        }
    }

    fn be_idle(&self, rng: &mut Rng) {
        let events = rng.below(8) as usize;
        match self.object(rng) {
            Some(object) => (0..events).for_each(|_| object.idle()),
            None => {
                let client = self.client(rng);
                (0..events).for_each(|_| client.idle());
            }
        }
        count(&self.counts.idle, events);
    }

    /// Swaps the object from its form to another one, or to a new object of the same form. An adaptive object
    /// stays adaptive: its policy swaps it too.
    fn swap(&self, rng: &mut Rng) {
        let Some(object) = self.object.as_ref().map(Owned::handle) else { return };
        let is_shared = rng.one_in(2);
        let swapped = if self.adapts {
            let form = if is_shared { objects::SHARED } else { objects::DISTRIBUTED };
            match control::swap(Handle::id(object), form) {
                Err(ControlError::Swap(error)) => Err(error),
                Ok(_) => Ok(()),
                Err(error) => return self.books.fail(format!("a swap by name failed: {error}")),
            }
        } else {
            let new = if is_shared { objects::new_shared() } else { objects::new_distributed() };
            // A thread may lose its processor inside a call for longer than the usual limit.
            let swap = Swap::new(object).timeout(WOKEN_WITHIN).drain_timeout(WOKEN_WITHIN);
            swap.run(new).map(|_| ())
        };
        match swapped.map_err(|error| (error.failure(), error)) {
            Ok(()) => {
                count(&self.counts.swaps, 1);
                self.break_swap(rng);
            }
            // Another thread swaps it, or the policy counts its calls.
            Err((SwapFailure::Busy | SwapFailure::Arbitrated, _)) => {}
            // A swap by name has a short deadline.
            Err((SwapFailure::TimedOut(_), _)) if self.adapts => {}
            Err((_, error)) => self.books.fail(format!("a swap failed: {error}")),
        }
    }

    /// Loses or doubles a token after a swap, if the run has such a planned break.
    fn break_swap(&self, rng: &mut Rng) {
        let Some(planned @ (Break::LoseInSwap | Break::DoubleInSwap)) = self.broken else { return };
        if !self.is_plentiful {
            // Threads would wait long for the only token.
            return;
        }
        let Some(token) = self.take(rng) else { return };
        token.note_got();
        if planned == Break::DoubleInSwap {
            self.client(rng).put(token.double());
            self.put(token, rng);
        }
    }

    fn get(&self, held: &mut Vec<Token>, rng: &mut Rng) {
        let got = self.take(rng);
        if let Some(token) = got {
            token.note_got();
            if self.breaks(Break::GetTwice, rng) {
                token.note_got();
            }
            count(&self.counts.gets, 1);
            held.push(token);
            if self.breaks(Break::SayEmpty, rng) {
                self.note_empty();
            }
        } else {
            self.note_empty();
        }
    }

    /// Waits for a token: for a moment, or until a thread puts one. In the second case the thread first puts
    /// back all its tokens. So one is in the bag as soon as all other threads wait or have ended.
    fn wait(&self, held: &mut Vec<Token>, rng: &mut Rng) {
        let gives_up = rng.one_in(2);
        if !gives_up || held.len() == HELD_MAX {
            self.put_all(held, rng);
        }
        let limit = if gives_up { Duration::from_micros(rng.below(WAIT_US)) } else { WOKEN_WITHIN };
        if self.breaks(Break::ForgetWaiter, rng) {
            return self.note_wait(Err(WaitError::TimedOut), false, held);
        }
        let answer = match self.object(rng) {
            Some(object) => object.get_for(limit).expect("the object exists").ok_or(WaitError::TimedOut),
            None => Wait::new(&*self.bag).block_for(limit),
        };
        self.note_wait(answer, gives_up, held);
    }

    /// Polls a wait once and drops it. If it was given a token meanwhile, the token goes back.
    fn poll_once(&self, held: &mut Vec<Token>, rng: &mut Rng) {
        let object = self.object(rng);
        let mut wait = pin!(async {
            match object {
                Some(object) => Ok(object.get_async().await.expect("the object exists")),
                None => Wait::new(&*self.bag).await,
            }
        });
        match wait.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => self.note_wait(answer.map_err(|_| WaitError::Closed), true, held),
            Poll::Pending => {
                delay(rng);
                count(&self.counts.cancelled, 1);
            }
        }
    }

    fn note_wait(&self, answer: Result<Token, WaitError>, gives_up: bool, held: &mut Vec<Token>) {
        count(&self.counts.waits, 1);
        match answer {
            Ok(token) => {
                token.note_got();
                count(&self.counts.gets, 1);
                held.push(token);
            }
            Err(WaitError::TimedOut) if gives_up => {}
            Err(WaitError::TimedOut) => {
                self.books.fail(format!("a wait was not woken within {WOKEN_WITHIN:?}"));
            }
            Err(WaitError::Closed) => {
                count(&self.counts.closed, 1);
                // Relaxed: see `step`.
                if !self.closing.load(Ordering::Relaxed) {
                    self.books.fail("a wait ended as if the bag were closed".to_owned());
                }
                self.note_empty();
            }
        }
    }

    /// Called after a get said empty.
    fn note_empty(&self) {
        count(&self.counts.empty, 1);
        if self.is_plentiful {
            self.books.fail(format!(
                "a get said empty although there are {} tokens and the threads hold at most {HELD_MAX} each",
                self.tokens
            ));
        }
    }

    /// Changes the strategy or a constant.
    fn change(&self, rng: &mut Rng) {
        let attributes = self.bag.attributes();
        let small = rng.below(64) as usize;
        match rng.below(8) {
            0 => attributes.set_bulk(small),
            1 => attributes.set_idle_events(small / 8),
            2 => attributes.set_pull_below(small),
            3 => attributes.set_push_above(small / 4),
            4 => attributes.set_estimate_step(small / 8),
            5 => attributes.set_push_margin(small / 8),
            _ => {
                attributes.set_strategy(Strategy::ALL[rng.below(Strategy::ALL.len() as u64) as usize]);
            }
        }
        count(&self.counts.changes, 1);
    }

    fn breaks(&self, planned: Break, rng: &mut Rng) -> bool {
        self.broken == Some(planned) && rng.one_in(BREAK_ONE_IN)
    }

    /// Checks the books, after all threads have ended.
    pub(super) fn end(self, rng: &mut Rng) -> Result<(), Violation> {
        // The rest is dropped with the bag.
        let wanted = if rng.one_in(2) { self.tokens } else { rng.below(self.tokens as u64 + 1) as usize };
        let mut got: Vec<Token> = Vec::new();
        while got.len() < wanted
            && let Some(token) = self.take(rng)
        {
            token.note_got();
            got.push(token);
        }
        if got.len() < wanted {
            let what =
                format!("{} of {} tokens are in the bag after all were put back", got.len(), self.tokens);
            self.books.fail(what);
        } else if got.len() == self.tokens && self.take(rng).is_some() {
            self.books.fail("a token is in the bag after all were taken".to_owned());
        }
        if self.broken == Some(Break::LeakToken) {
            std::mem::forget(got.pop());
        }
        // The bag drops the other tokens after a drop that panics.
        if let Some(mut token) = got.pop() {
            token.panics = true;
            self.put(token, rng);
        }
        drop(got);
        if let Some(object) = self.object {
            drop(object);
            // The tokens are dropped below, with the last reference.
            let others = || Arc::strong_count(&self.bag) as i64 - 1;
            if let Err(what) = drain_values(others, "references to the bag of an object") {
                self.books.fail(what);
            }
        }
        match catch_silently(|| drop(self.bag)) {
            Ok(()) => {}
            Err(panic) if panic.is::<ExpectedPanic>() => count(&self.counts.panics, 1),
            Err(panic) => self.books.fail(format!("the drop of a bag panicked: {}", panic_message(&*panic))),
        }
        let dropped = self.books.dropped();
        if dropped != self.tokens as u64 {
            self.books.fail(format!("{dropped} of {} tokens were dropped", self.tokens));
        }
        self.books.violation().map_or(Ok(()), |what| Err(Violation(what)))
    }
}
