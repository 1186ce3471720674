//! The parts that all rounds have in common: the queue, its books, and the calls with their checks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use squall::parts::queue::{Client, Form, Insertion, Queue, Rejected, Topology, WhichPriority};
use squall_machine::machine;

use super::Break;
use super::counts::Counts;
use super::flow;
use super::search;
use crate::run::Rng;
use crate::skeleton::placement::{AllowedCpus, switch_vp};
use crate::tokens::{Books, Token};

/// Maximum number of places beyond those of the VPs.
const PLACES_MAX: u64 = 64;
/// One round in this many may close its queue.
const CLOSED_ONE_IN: u64 = 4;
/// A planned break happens once in this many chances.
const BREAK_ONE_IN: u64 = 256;

/// An element: a token, and the priority with which it was put.
pub(super) struct Element {
    pub(super) token: Token,
    pub(super) priority: u64,
}

/// An element that a thread holds.
pub(super) struct Held {
    pub(super) element: Element,
    /// The priority with which it came out.
    pub(super) priority: u64,
    /// Whether the element is to be finished.
    pub(super) unfinished: bool,
}

/// The data that all threads of a round share.
pub(super) struct Ground<'a> {
    pub(super) queue: Arc<Queue<Element>>,
    pub(super) books: Arc<Books>,
    places: usize,
    /// The number of the next token, and the number of all.
    next: AtomicUsize,
    tokens_max: usize,
    /// Whether a thread may close the queue in this round.
    closes: bool,
    /// Whether a thread began to close the queue, and whether it has.
    closing: AtomicBool,
    closed: AtomicBool,
    pub(super) broken: Option<Break>,
    home: &'a AllowedCpus,
    pub(super) counts: &'a Counts,
}

impl<'a> Ground<'a> {
    pub(super) fn new(
        searches: bool,
        threads: usize,
        broken: Option<Break>,
        home: &'a AllowedCpus,
        counts: &'a Counts,
        rng: &mut Rng,
    ) -> Ground<'a> {
        let tokens_max = if searches { search::TOKENS_MAX } else { flow::tokens_max(threads) };
        let places = machine().vp_limit() + rng.below(PLACES_MAX + 1) as usize;
        let ground = Ground {
            queue: Arc::new(Queue::with_places(form(rng), places)),
            books: Arc::new(Books::new(tokens_max)),
            places,
            next: AtomicUsize::new(0),
            tokens_max,
            closes: rng.one_in(CLOSED_ONE_IN),
            closing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            broken,
            home,
            counts,
        };
        for _ in 0..8 {
            ground.change(rng);
        }
        ground
    }

    /// Makes a token, unless all numbers are used up.
    pub(super) fn token(&self) -> Option<Token> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.tokens_max).then(|| self.books.token(number))
    }

    pub(super) fn fail(&self, what: impl Into<String>) {
        self.books.fail(what.into());
        // All waits end, so that the round does.
        self.queue.close();
    }

    pub(super) fn is_over(&self) -> bool {
        self.books.violation().is_some()
    }

    pub(super) fn breaks(&self, planned: Break, rng: &mut Rng) -> bool {
        self.broken == Some(planned) && rng.one_in(BREAK_ONE_IN)
    }

    /// Returns the client of the thread's VP, or of a random place.
    pub(super) fn client(&self, rng: &mut Rng) -> Client<'_, Element> {
        if rng.one_in(2) { self.queue.here() } else { self.queue.client(self.place(rng)) }
    }

    pub(super) fn place(&self, rng: &mut Rng) -> usize {
        rng.below(self.places as u64) as usize
    }

    /// Puts a token with a random priority. Returns it if the queue rejects it.
    pub(super) fn put(&self, token: Token, rng: &mut Rng) -> Result<(), Token> {
        // Acquire: pairs with the Release of `close`.
        let was_closed = self.closed.load(Ordering::Acquire);
        let priority = priority(rng);
        token.note_put();
        match self.client(rng).put(priority, Element { token, priority }) {
            Ok(()) => {
                self.counts.puts.add(1);
                if was_closed {
                    self.fail("a closed queue accepted an element");
                }
                Ok(())
            }
            Err(Rejected { priority: said, value }) => {
                value.token.note_rejected();
                self.counts.rejected.add(1);
                if self.breaks(Break::AcceptClosed, rng) {
                    self.fail("a closed queue accepted an element");
                }
                self.check_closing("a put was rejected");
                self.check_priority(said, value.priority);
                Err(value.token)
            }
        }
    }

    /// Notes an element that was got.
    pub(super) fn note_got(&self, priority: u64, element: &Element, rng: &mut Rng) {
        element.token.note_got();
        if self.breaks(Break::GetTwice, rng) {
            element.token.note_got();
        }
        let said = if self.breaks(Break::WrongPriority, rng) { priority ^ 1 } else { priority };
        self.check_priority(said, element.priority);
        self.counts.gets.add(1);
    }

    fn check_priority(&self, said: u64, put: u64) {
        if said != put {
            self.fail(format!("an element that was put with priority {put} came out with priority {said}"));
        }
    }

    /// Checks that the work is not done. The thread has an unfinished element.
    pub(super) fn check_unfinished(&self) {
        if self.queue.is_done() {
            self.fail("the work is said to be done, although a thread has an unfinished element");
        }
    }

    /// Checks that a thread closes the queue: the reason of an answer.
    pub(super) fn check_closing(&self, what: &str) {
        // Relaxed: the lock of a heap orders it before each answer of a close.
        if !self.closing.load(Ordering::Relaxed) && !self.is_over() {
            self.fail(format!("{what}, although no thread closed the queue"));
        }
    }

    /// Returns whether a thread began to close the queue.
    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Closes the queue, if the round may.
    pub(super) fn close(&self) {
        if self.closes {
            self.closing.store(true, Ordering::Relaxed);
            self.queue.close();
            // Release: pairs with the Acquire of `put`.
            self.closed.store(true, Ordering::Release);
        }
    }

    /// Moves the thread to another processor.
    pub(super) fn migrate(&self, rng: &mut Rng) {
        self.home.confine(None, rng);
        switch_vp(rng);
    }

    /// Changes the form, the order or an attribute.
    pub(super) fn change(&self, rng: &mut Rng) {
        let attributes = self.queue.attributes();
        match rng.below(8) {
            0 => {
                self.queue.set_form(form(rng));
                self.counts.forms.add(1);
            }
            1 => {
                self.queue.set_which_priority(which(rng));
                self.counts.orders.add(1);
            }
            2 | 3 => attributes.set_topology(Topology::ALL[rng.below(4) as usize]),
            4 | 5 => attributes.set_insertion(Insertion::ALL[rng.below(2) as usize]),
            6 => attributes.set_balance_every(rng.below(6) as usize),
            _ => attributes.set_stickiness(rng.below(12) as usize),
        }
        self.counts.changes.add(1);
    }
}

fn form(rng: &mut Rng) -> Form {
    Form::ALL[rng.below(3) as usize]
}

fn which(rng: &mut Rng) -> WhichPriority {
    WhichPriority::ALL[rng.below(2) as usize]
}

/// Returns a random priority: one of few, so that many are equal, or any, or the first or the last one.
fn priority(rng: &mut Rng) -> u64 {
    match rng.below(8) {
        0 => u64::MAX,
        1 => 0,
        2..5 => rng.below(16),
        _ => rng.next(),
    }
}
