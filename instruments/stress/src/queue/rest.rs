//! The end of a round: threads empty the queue, and the books are compared.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use squall::parts::queue::{Form, WhichPriority};

use super::Break;
use super::ground::{Element, Ground};
use crate::run::{Rng, Violation, lock};
use crate::skeleton::expected_panic::{ExpectedPanic, catch_silently, panic_message};
use crate::tokens::Token;

/// Number of elements that a thread gets at most, in half of the rounds. Others are left.
const WANTED_MAX: u64 = 40;

pub(super) struct Rest<'a> {
    ground: Ground<'a>,
    /// Number of elements that exist.
    elements: usize,
    kept: Vec<Token>,
    /// The form is strict.
    is_strict: bool,
    which: WhichPriority,
    /// Number of elements that each thread gets at most.
    wanted: u64,
    /// A get said empty.
    is_dry: AtomicBool,
    got: Mutex<Vec<Element>>,
}

/// Returns the key of a priority: the lowest one comes first.
fn key(which: WhichPriority, priority: u64) -> u64 {
    match which {
        WhichPriority::Lowest => priority,
        WhichPriority::Highest => !priority,
    }
}

impl<'a> Rest<'a> {
    pub(super) fn new(ground: Ground<'a>, elements: usize, kept: Vec<Token>, rng: &mut Rng) -> Rest<'a> {
        if rng.one_in(2) {
            ground.queue.set_form(Form::Strict);
        }
        let rest = Rest {
            elements,
            kept,
            is_strict: ground.queue.form() == Form::Strict,
            which: ground.queue.which_priority(),
            wanted: if rng.one_in(2) { u64::MAX } else { rng.below(WANTED_MAX) },
            is_dry: AtomicBool::new(false),
            got: Mutex::new(Vec::new()),
            ground,
        };
        rest.check_len("after all were put back");
        rest
    }

    /// Compares the length of the queue with the books. No thread calls the queue.
    fn check_len(&self, when: &str) {
        let outside = self.kept.len() + lock(&self.got).len();
        let found = self.ground.queue.len();
        if found + outside != self.elements {
            let wanted = self.elements - outside;
            self.ground.fail(format!("{found} of {wanted} elements are in the queue {when}"));
        }
    }

    /// The body of a thread: gets elements until the queue is empty, or it has enough.
    pub(super) fn live(&self, rng: &mut Rng) {
        let ground = &self.ground;
        let (mut last, mut got) = (0, Vec::new());
        let mut unfinished = 0;
        for _ in 0..self.wanted {
            // Acquire: pairs with the Release below.
            let was_dry = self.is_dry.load(Ordering::Acquire);
            let takes = rng.one_in(4);
            let client = ground.client(rng);
            let Some((priority, element)) = (if takes { client.take_raw() } else { client.get() }) else {
                // Release: pairs with the Acquire above.
                self.is_dry.store(true, Ordering::Release);
                ground.counts.empty.add(1);
                break;
            };
            unfinished += usize::from(takes);
            ground.note_got(priority, &element, rng);
            got.push(element);
            if was_dry {
                ground
                    .fail("a get found an element after another one had said empty, although no thread put");
            }
            if self.is_strict {
                let key = if ground.breaks(Break::WrongOrder, rng) { 0 } else { key(self.which, priority) };
                if key < last {
                    ground.fail("the strict form returned an element after one that comes later");
                }
                last = key;
                ground.counts.sorted.add(1);
            }
        }
        ground.client(rng).finish(unfinished);
        lock(&self.got).append(&mut got);
    }

    /// Checks the books, after all threads have ended.
    pub(super) fn end(self, rng: &mut Rng) -> Result<(), Violation> {
        self.check_len("after threads got some");
        let Rest { ground, kept, which, got, .. } = self;
        if ground.queue.is_empty() && !ground.queue.is_done() {
            ground.fail("the work is not done, although all elements were got and finished");
        }
        let mut got = got.into_inner().unwrap_or_else(|poison| poison.into_inner());
        if ground.broken == Some(Break::LeakElement) {
            std::mem::forget(got.pop());
        }
        if let Some(Element { mut token, .. }) = got.pop() {
            token.panics = !ground.is_closing() && !ground.is_over();
            drop(ground.put(token, rng));
        }
        drop((kept, got));
        let drained = if rng.one_in(2) { ground.queue.drain() } else { Vec::new() };
        if !drained.is_sorted_by_key(|(priority, _)| key(which, *priority)) {
            ground.fail("a drain returned elements in the wrong order");
        }
        let (books, counts) = (ground.books.clone(), ground.counts);
        let fail = |what: String| books.fail(what);
        let Some(queue) = Arc::into_inner(ground.queue) else {
            return Err(Violation("a wait that has ended keeps the queue".to_owned()));
        };
        // The elements are dropped after a drop that panics.
        for drops in [catch_silently(|| drop(drained)), catch_silently(|| drop(queue))] {
            match drops {
                Ok(()) => {}
                Err(panic) if panic.is::<ExpectedPanic>() => counts.panics.add(1),
                Err(panic) => fail(format!("the drop of a queue panicked: {}", panic_message(&*panic))),
            }
        }
        let living = books.living();
        if living != 0 {
            fail(format!("{living} elements were never dropped"));
        }
        books.violation().map_or(Ok(()), |what| Err(Violation(what)))
    }
}
