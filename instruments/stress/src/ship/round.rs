//! One round: the body of a thread, and the check at the end.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use squall::ship::{
    Choice, Events, PendingCall, SendError, ShipError, Target, serve, serve_here, ship, ship_each,
};
use squall::{Cluster, ClusterSize, Vp, machine};

use super::Break;
use super::books::{Books, Runs, Token};
use crate::run::{Rng, Violation};
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::{ExpectedPanic, raise_expected_panic};
use crate::skeleton::placement::switch_vp;

/// Maximum number of steps of a thread.
const STEPS_MAX: u64 = 400;
/// Maximum number of calls in a chain of calls that wait for each other.
const CHAIN_MAX: u64 = 6;
/// Longest wait of a thread that gives up, in microseconds.
const WAIT_US: u64 = 200;
/// A call that takes this long has been forgotten.
const WITHIN: Duration = Duration::from_secs(20);
/// Events that wait for one VP at most.
const EVENTS_MAX: usize = 16;
/// Calls that a thread keeps without looking at them.
const HELD_MAX: usize = 64;
/// A planned break happens once in this many chances.
const BREAK_ONE_IN: u64 = 64;

/// The counted events of all rounds.
#[derive(Default)]
pub(super) struct Counts {
    sent: AtomicU64,
    full: AtomicU64,
    panics: AtomicU64,
    given_up: AtomicU64,
    served: AtomicU64,
    to_all: AtomicU64,
    events: AtomicU64,
}

impl Counts {
    /// Returns the names and the counts.
    pub(super) fn lines(&self) -> Vec<(&'static str, u64)> {
        let lines = [
            ("calls sent", &self.sent),
            ("full inboxes", &self.full),
            ("panics", &self.panics),
            ("calls given up", &self.given_up),
            ("calls served on request", &self.served),
            ("calls to all clusters", &self.to_all),
            ("events", &self.events),
        ];
        lines.map(|(name, count)| (name, count.load(Ordering::Relaxed))).to_vec()
    }
}

fn count(place: &AtomicU64, more: usize) {
    place.fetch_add(more as u64, Ordering::Relaxed);
}

pub(super) struct Round<'a> {
    books: Arc<Books>,
    broken: Option<Break>,
    counts: &'a Counts,
}

/// A call with the facts that its sender knows.
struct Sent {
    pending: PendingCall<u64>,
    runs: Runs,
    number: u64,
    work: Work,
}

/// The end that a sender expects of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Return,
    Panic,
    /// Ships as many further calls, each from the one before, and waits for them.
    Chain(u64),
}

impl<'a> Round<'a> {
    pub(super) fn new(broken: Option<Break>, counts: &'a Counts) -> Round<'a> {
        Round { books: Arc::default(), broken, counts }
    }

    fn breaks(&self, what: Break, rng: &mut Rng) -> bool {
        self.broken == Some(what) && rng.one_in(BREAK_ONE_IN)
    }

    /// The body of a thread.
    pub(super) fn live(&self, rng: &mut Rng) {
        switch_vp(rng);
        let (mut serving, mut held) = (None, Vec::new());
        for _ in 0..1 + rng.below(STEPS_MAX) {
            if self.books.violation().is_some() {
                break;
            }
            match rng.below(32) {
                0..20 => self.call(&mut held, rng),
                20 | 21 if !held.is_empty() => {
                    let sent = held.swap_remove(rng.below(held.len() as u64) as usize);
                    self.finish(sent, rng);
                }
                22 => serving = if serving.is_some() { None } else { Some(serve_here()) },
                23..26 => count(&self.counts.served, serve()),
                26 | 27 => squall::rcu::pin(|_| delay(rng)),
                28 => switch_vp(rng),
                29 | 30 => self.post(rng),
                _ => self.call_all(rng),
            }
        }
        held.into_iter().for_each(|sent| self.finish(sent, rng));
    }

    fn target(rng: &mut Rng) -> Target {
        // Often one core, so that its inboxes become full.
        if rng.one_in(2) {
            return Target::from((ClusterSize::Core, Cluster::new(0)));
        }
        let sizes = ClusterSize::LEVELS;
        let size = sizes[rng.below(sizes.len() as u64) as usize];
        let cluster = Cluster::new(rng.below(machine().clusters(size).len() as u64) as u32);
        let target = Target::from((size, cluster));
        if rng.one_in(2) { target.choice(Choice::Idle) } else { target }
    }

    /// Ships a call, and ends it or keeps it for later.
    fn call(&self, held: &mut Vec<Sent>, rng: &mut Rng) {
        let (token, runs) = self.books.token();
        let number = token.number();
        let work = match rng.below(16) {
            0 => Work::Panic,
            1..4 => Work::Chain(1 + rng.below(CHAIN_MAX)),
            _ => Work::Return,
        };
        let (twice, wrong) = (self.breaks(Break::RunTwice, rng), self.breaks(Break::WrongResult, rng));
        if self.breaks(Break::LoseCall, rng) {
            return std::mem::forget(token);
        }
        let mut inner = Rng::new(rng.next(), number);
        let books = self.books.clone();
        let mut call = move || {
            token.note_run();
            if twice {
                token.note_run();
            }
            match work {
                Work::Return => delay(&mut inner),
                Work::Panic => raise_expected_panic(),
                Work::Chain(left) => chain(&books, &mut inner, left),
            }
            token.number() + u64::from(wrong)
        };
        let (target, large) = (Self::target(rng), rng.one_in(4).then_some([number; 40]));
        let send = || match large {
            Some(large) => {
                ship(target, move || call() + large[39] - number).map_err(|error| drop(error.into_call()))
            }
            None => ship(target, call).map_err(|error| match error {
                SendError::InboxFull(call) => drop(call),
                error => self.books.fail(error.to_string()),
            }),
        };
        // Inside an operation a call to the own cluster is queued, too.
        let sent = if rng.one_in(4) { squall::rcu::pin(|_| send()) } else { send() };
        match sent {
            Ok(pending) => {
                count(&self.counts.sent, 1);
                let sent = Sent { pending, runs, number, work };
                if held.len() < HELD_MAX && rng.one_in(2) { held.push(sent) } else { self.finish(sent, rng) }
            }
            Err(()) => {
                count(&self.counts.full, 1);
                if runs.count() > 0 {
                    self.books.fail(format!("call {number} ran although its inbox was full"));
                }
            }
        }
    }

    fn finish(&self, sent: Sent, rng: &mut Rng) {
        let Sent { mut pending, runs, number, work } = sent;
        let result = match rng.below(8) {
            0 => {
                count(&self.counts.given_up, 1);
                return drop(pending);
            }
            1 => return pending.detach(),
            2 => match pending.wait_timeout(Duration::from_micros(rng.below(WAIT_US))) {
                Some(result) => result,
                None => return count(&self.counts.given_up, 1),
            },
            _ => {
                let refused = squall::rcu::pin(|_| pending.wait_timeout(WITHIN));
                if !matches!(refused, Some(Err(ShipError::InOperation))) {
                    self.books.fail(format!("a wait inside an operation gave {refused:?}"));
                }
                match end_of(pending, rng) {
                    Some(result) => result,
                    None => return self.books.fail(format!("call {number} has no result after {WITHIN:?}")),
                }
            }
        };
        match (result, work) {
            (Ok(found), Work::Return | Work::Chain(_)) if found == number => {}
            (Err(ShipError::Panicked(payload)), Work::Panic) if payload.message() == "no message" => {
                if !payload.into_inner().is::<ExpectedPanic>() {
                    self.books.fail(format!("the panic of call {number} came back changed"));
                }
                count(&self.counts.panics, 1);
            }
            (result, _) => self.books.fail(format!("call {number} ended with {result:?}")),
        }
        if runs.count() != 1 {
            self.books.fail(format!("call {number} has a result and ran {} times", runs.count()));
        }
    }

    fn call_all(&self, rng: &mut Rng) {
        let size = ClusterSize::LEVELS[rng.below(ClusterSize::LEVELS.len() as u64) as usize];
        let mut pending = ship_each(size, |cluster| cluster.index());
        count(&self.counts.to_all, 1);
        match pending.wait_timeout(WITHIN) {
            Ok(Some(each)) => {
                let is_right = |(at, result): (usize, Result<usize, ShipError>)| match result {
                    Ok(index) => index == at,
                    Err(error) => matches!(error, ShipError::Full),
                };
                if !each.results.into_iter().enumerate().all(is_right) {
                    self.books.fail("a call to all clusters has the result of another cluster");
                }
            }
            Ok(None) => self.books.fail(format!("a call to all clusters has no result after {WITHIN:?}")),
            Err(error) => self.books.fail(error.to_string()),
        }
    }

    /// Posts events to one VP, from this thread and perhaps from another one. The numbers of each must arrive
    /// in order.
    fn post(&self, rng: &mut Rng) {
        let (books, last) = (self.books.clone(), [const { AtomicU64::new(0) }; 2]);
        let handles = AtomicBool::new(false);
        let handler = move |_, batch: Vec<(usize, u64, Token)>| {
            if handles.swap(true, Ordering::Relaxed) {
                books.fail("two threads handle the events of a VP");
            }
            for (poster, event, token) in batch {
                token.note_run();
                if last[poster].swap(event, Ordering::Relaxed) >= event {
                    books.fail(format!("event {event} was handled after a later one"));
                }
            }
            handles.store(false, Ordering::Relaxed);
        };
        let (events, vp) = (Arc::new(Events::new(EVENTS_MAX, handler)), random_vp(rng));
        let Some(vp) = vp else { return };
        let (books, shared) = (self.books.clone(), events.clone());
        let post = move |events: &Events<_>, poster, number| {
            events.post(vp, (poster, number, books.token().0)).is_ok()
        };
        let (post_here, count_there) = (post.clone(), rng.below(2 * EVENTS_MAX as u64));
        // The end of the round waits for the token, and so for the events that this call posts.
        let (token, _) = self.books.token();
        if let Some(there) = random_vp(rng)
            && let Ok(call) = ship(there, move || {
                token.note_run();
                (1..=count_there).for_each(|event| {
                    post(&shared, 1, event);
                });
            })
        {
            call.detach();
        }
        for event in 1..=1 + rng.below(2 * EVENTS_MAX as u64) {
            let number = if self.breaks(Break::SwapEvents, rng) { event.saturating_sub(1) } else { event };
            count(&self.counts.events, usize::from(post_here(&events, 0, number)));
        }
    }

    /// Waits for the calls that go on without their senders, and checks the books.
    pub(super) fn end(&self) -> Result<(), Violation> {
        let began = Instant::now();
        loop {
            // A call that makes tokens holds one meanwhile. So after the last one there are no more.
            let living = self.books.living();
            if let Some(violation) = self.books.violation() {
                return Err(Violation(violation));
            }
            if living == 0 {
                return Ok(());
            }
            if began.elapsed() >= WITHIN {
                let what = format!("{living} calls were never dropped, {WITHIN:?} after the end");
                return Err(Violation(what));
            }
            thread::sleep(Duration::from_micros(100));
        }
    }
}

/// Ships a call that does the same with one less, and waits for it.
fn chain(books: &Arc<Books>, rng: &mut Rng, left: u64) {
    if left == 0 {
        return delay(rng);
    }
    let Some(vp) = random_vp(rng) else { return };
    let mut inner = Rng::new(rng.next(), left);
    let shared = books.clone();
    let Ok(pending) = ship(vp, move || chain(&shared, &mut inner, left - 1)) else { return };
    match end_of(pending, rng) {
        Some(Ok(())) => {}
        Some(Err(error)) => books.fail(format!("a call in a chain ended with: {error}")),
        None => books.fail(format!("a call in a chain has no result after {WITHIN:?}")),
    }
}

fn random_vp(rng: &mut Rng) -> Option<Vp> {
    let vp = Vp::new(rng.below(machine().vp_limit() as u64) as u32);
    machine().vps().contains(vp).then_some(vp)
}

/// Waits for a call in one of the ways, for at most [`WITHIN`].
fn end_of<R: Send + 'static>(mut call: PendingCall<R>, rng: &mut Rng) -> Option<Result<R, ShipError>> {
    let began = Instant::now();
    let yields = || {
        thread::yield_now();
        began.elapsed() < WITHIN
    };
    match rng.below(8) {
        0 => loop {
            if let Some(result) = call.try_take() {
                return Some(result);
            }
            if !yields() {
                return None;
            }
        },
        1 => {
            while !call.is_finished() {
                if !yields() {
                    return None;
                }
            }
            Some(call.wait())
        }
        2 | 3 => {
            let waker = Waker::from(Arc::new(Unpark(thread::current())));
            loop {
                match Pin::new(&mut call).poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(result) => return Some(result),
                    Poll::Pending if began.elapsed() >= WITHIN => return None,
                    Poll::Pending => thread::park_timeout(WITHIN),
                }
            }
        }
        _ => call.wait_timeout(WITHIN),
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
