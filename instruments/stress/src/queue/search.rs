//! A search: each element leads to others, and waits say when the work is done.

use squall::parts::queue::{End, Taken, WaitTaken};

use super::Break;
use super::ground::{Element, Ground};
use super::waits::{WOKEN_WITHIN, block_on, poll_once};
use crate::run::Rng;
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::{ExpectedPanic, catch_silently, panic_message};

/// Number of elements of a search at most.
pub(super) const TOKENS_MAX: usize = 2_000;
/// Number of elements that follow from one at most.
const CHILDREN_MAX: u64 = 3;
/// A thread takes this many steps for one change or move.
const CHANGE_ONE_IN: u64 = 64;
/// A thread takes this many steps before it closes the queue, in a round that may.
const CLOSE_ONE_IN: u64 = 1024;

/// An element that is to be finished.
enum Work<'a> {
    Taken(Taken<'a, Element>),
    Raw(u64, Element),
}

pub(super) struct Search<'a> {
    ground: &'a Ground<'a>,
}

impl<'a> Search<'a> {
    pub(super) fn new(ground: &'a Ground<'a>, rng: &mut Rng) -> Search<'a> {
        ground.counts.searches.add(1);
        let search = Search { ground };
        // The first elements are there before the first wait.
        for _ in 0..1 + rng.below(8) {
            search.put_next(rng);
        }
        search
    }

    /// Puts a new element, unless there were enough or the queue is closed.
    fn put_next(&self, rng: &mut Rng) {
        if let Some(token) = self.ground.token() {
            drop(self.ground.put(token, rng));
        }
    }

    /// The body of a thread: works until the end. The first thread waits with a limit, so it notices if no
    /// wait ends.
    pub(super) fn live(&self, index: usize, rng: &mut Rng) {
        let ground = self.ground;
        while !ground.is_over() {
            if rng.one_in(CHANGE_ONE_IN) {
                ground.change(rng);
                ground.migrate(rng);
            }
            if rng.one_in(CLOSE_ONE_IN) {
                ground.close();
            }
            match self.next(index > 0, rng) {
                Some(Ok(work)) => self.work(work, rng),
                Some(Err(end)) => return self.note_end(end),
                None => {}
            }
        }
    }

    /// Looks or waits for an element or the end. `blocks` allows waits without a limit.
    fn next(&self, blocks: bool, rng: &mut Rng) -> Option<Result<Work<'_>, End>> {
        let (ground, queue, client) = (self.ground, &*self.ground.queue, self.ground.client(rng));
        let raw = |(priority, element)| Work::Raw(priority, element);
        match rng.below(8) {
            0 | 1 if blocks => return Some(client.take_wait().map(Work::Taken)),
            2 if blocks => return Some(WaitTaken::new(queue).block().map(raw)),
            3 => return client.take().map(|taken| Ok(Work::Taken(taken))),
            4 => return client.take_raw().map(|found| Ok(raw(found))),
            5 => {
                let answer = poll_once(WaitTaken::at(queue, ground.place(rng)), || delay(rng));
                ground.counts.cancelled.add(usize::from(answer.is_none()));
                return answer.map(|answer| answer.map(raw));
            }
            _ => {}
        }
        ground.counts.waits.add(1);
        let answer = block_on(WaitTaken::at(queue, ground.place(rng)), WOKEN_WITHIN);
        if answer.is_none() {
            self.fail_missed();
        }
        answer.map(|answer| answer.map(raw))
    }

    fn fail_missed(&self) {
        self.ground.fail(format!("a wait for the end of the work was not woken within {WOKEN_WITHIN:?}"));
    }

    /// Puts the elements that follow from one, and finishes that.
    fn work(&self, work: Work<'_>, rng: &mut Rng) {
        let ground = self.ground;
        match &work {
            Work::Taken(taken) => ground.note_got(taken.priority(), taken, rng),
            Work::Raw(priority, element) => ground.note_got(*priority, element, rng),
        }
        ground.counts.takes.add(1);
        if ground.breaks(Break::EarlyEnd, rng) {
            self.note_end(End::Done);
        }
        delay(rng);
        (0..rng.below(CHILDREN_MAX + 1)).for_each(|_| self.put_next(rng));
        ground.check_unfinished();
        match work {
            Work::Taken(mut taken) => {
                taken.token.panics = rng.one_in(8);
                match catch_silently(|| drop(taken)) {
                    Ok(()) => {}
                    Err(panic) if panic.is::<ExpectedPanic>() => ground.counts.panics.add(1),
                    Err(panic) => {
                        ground.fail(format!("a taken element panicked: {}", panic_message(&*panic)));
                    }
                }
            }
            Work::Raw(_, element) => {
                // The token is gone before the element is finished (`queue/I4`).
                drop(element);
                ground.client(rng).finish(1);
            }
        }
    }

    fn note_end(&self, end: End) {
        let ground = self.ground;
        let living = ground.books.living();
        match end {
            End::Done => {
                ground.counts.ends.add(1);
                if living != 0 {
                    ground.fail(format!(
                        "a wait says that the work is done, although {living} elements are not finished"
                    ));
                } else if !ground.queue.is_done() {
                    ground.fail("the work was done, and then it was not");
                }
                if ground.broken == Some(Break::MissEnd) {
                    self.fail_missed();
                }
            }
            End::Closed => {
                ground.counts.closed.add(1);
                ground.check_closing("a wait ended as if the queue were closed");
                if !ground.queue.is_empty() && !ground.is_over() {
                    ground.fail("a wait ended by a close, although the queue was not empty");
                }
            }
        }
    }

    /// Checks the books, after all threads have ended.
    pub(super) fn end(self) {
        let living = self.ground.books.living();
        if living != 0 && !self.ground.is_over() {
            self.ground.fail(format!("{living} elements exist after the end of the work"));
        }
    }
}
