//! A round in which elements circulate: the body of a thread.

use std::sync::Mutex;
use std::time::Duration;

use squall::parts::queue::{Closed, End, Wait, WaitError, WaitTaken};

use super::Break;
use super::ground::{Element, Ground, Held};
use super::waits::{WOKEN_WITHIN, block_on, poll_once};
use crate::run::{Rng, lock};
use crate::skeleton::delay::delay;
use crate::skeleton::expected_panic::{ExpectedPanic, catch_silently, panic_message};
use crate::tokens::Token;

/// Maximum number of steps of a thread.
const STEPS_MAX: u64 = 3_000;
/// Maximum number of elements that a thread holds.
const HELD_MAX: usize = 16;
/// Maximum number of elements of a plentiful round beyond one more than the threads may hold.
const MORE_MAX: u64 = 200;
/// Maximum number of elements that are dropped as taken ones, for each thread. New ones replace them.
const REPLACED_MAX: usize = 500;
/// Longest wait of a thread that gives up, in microseconds.
const WAIT_US: u64 = 300;

/// Returns the most tokens of a round.
pub(super) fn tokens_max(threads: usize) -> usize {
    threads * (HELD_MAX + REPLACED_MAX) + MORE_MAX as usize + 1
}

/// Answer of a wait.
enum Answer {
    Got(Held),
    /// No element came in time.
    TimedOut,
    Ended(End),
}

impl Answer {
    fn got((priority, element): (u64, Element), unfinished: bool) -> Answer {
        Answer::Got(Held { element, priority, unfinished })
    }
}

pub(super) struct Flow<'a> {
    ground: &'a Ground<'a>,
    elements: usize,
    /// Whether there are more elements than all threads may hold (`queue/I1`).
    is_plentiful: bool,
    /// Tokens that a closed queue rejected at the end of a thread.
    kept: Mutex<Vec<Token>>,
}

impl<'a> Flow<'a> {
    pub(super) fn new(ground: &'a Ground<'a>, threads: usize, rng: &mut Rng) -> Flow<'a> {
        let is_plentiful = rng.one_in(2);
        let elements = if is_plentiful {
            ground.counts.plentiful.add(1);
            threads * HELD_MAX + 1 + rng.below(MORE_MAX) as usize
        } else {
            1 + rng.below(2 * threads as u64) as usize
        };
        let flow = Flow { ground, elements, is_plentiful, kept: Mutex::new(Vec::new()) };
        for _ in 0..elements {
            if let Some(Err(_)) = ground.token().map(|token| ground.put(token, rng)) {
                ground.fail("a new queue rejected an element");
            }
        }
        flow
    }

    /// Returns the number of elements, and the tokens that threads still hold.
    pub(super) fn end(self) -> (usize, Vec<Token>) {
        (self.elements, self.kept.into_inner().unwrap_or_else(|poison| poison.into_inner()))
    }

    /// The body of a thread: a random number of steps. Then it puts back all elements that it holds.
    pub(super) fn live(&self, rng: &mut Rng) {
        let mut held: Vec<Held> = Vec::with_capacity(HELD_MAX);
        for _ in 0..1 + rng.below(STEPS_MAX) {
            if self.ground.is_over() {
                break;
            }
            self.step(&mut held, rng);
        }
        self.put_all(&mut held, rng);
        // A closed queue has rejected these.
        for Held { element, unfinished, .. } in held {
            self.finish(unfinished, rng);
            lock(&self.kept).push(element.token);
        }
    }

    fn step(&self, held: &mut Vec<Held>, rng: &mut Rng) {
        let ground = self.ground;
        let has_room = held.len() < HELD_MAX;
        match rng.below(256) {
            0..100 if !held.is_empty() => {
                let chosen = held.swap_remove(rng.below(held.len() as u64) as usize);
                if self.is_plentiful && ground.breaks(Break::LoseElement, rng) {
                    return self.finish(chosen.unfinished, rng);
                }
                held.extend(self.put(chosen, rng));
            }
            100..170 if has_room => match ground.client(rng).get() {
                Some(found) => self.note_got(Answer::got(found, false), held, rng),
                None => self.note_empty(),
            },
            170..210 if has_room => self.take(held, rng),
            210..216 if !held.is_empty() => {
                let chosen = rng.below(held.len() as u64) as usize;
                self.finish(std::mem::take(&mut held[chosen].unfinished), rng);
            }
            216..222 => ground.change(rng),
            222 => self.change_and_lose(rng),
            223 => ground.migrate(rng),
            224..228 => delay(rng),
            228..232 => self.look(held),
            232..236 => self.wait(held, rng),
            236..240 if has_room => self.try_wait(held, rng),
            240..242 if !self.is_plentiful && held.is_empty() => self.drain(rng),
            242 if rng.one_in(32) => ground.close(),
            _ => {}
        }
    }

    /// Puts an element and finishes it. Returns it if the queue rejects it.
    fn put(&self, Held { element, priority, unfinished }: Held, rng: &mut Rng) -> Option<Held> {
        match self.ground.put(element.token, rng) {
            Ok(()) => {
                // All that follows from the element has been put.
                self.finish(unfinished, rng);
                None
            }
            Err(token) => Some(Held { element: Element { token, priority }, priority, unfinished }),
        }
    }

    /// Puts back all elements that the thread holds, unless the queue is closed.
    fn put_all(&self, held: &mut Vec<Held>, rng: &mut Rng) {
        let all = std::mem::take(held);
        held.extend(all.into_iter().filter_map(|one| self.put(one, rng)));
    }

    fn finish(&self, unfinished: bool, rng: &mut Rng) {
        if unfinished {
            self.ground.client(rng).finish(1);
        }
    }

    /// Takes an element. Some are dropped as taken ones, and new elements replace them.
    fn take(&self, held: &mut Vec<Held>, rng: &mut Rng) {
        let ground = self.ground;
        let client = ground.client(rng);
        ground.counts.takes.add(1);
        if rng.one_in(2) {
            return match client.take_raw() {
                Some(found) => self.note_got(Answer::got(found, true), held, rng),
                None => self.note_empty(),
            };
        }
        // The new token comes first, since there may be none left.
        let Some(new) = ground.token() else { return };
        let new = Held { element: Element { token: new, priority: 0 }, priority: 0, unfinished: false };
        let Some(mut taken) = client.take() else {
            self.note_empty();
            // The spare token leaves the round.
            return drop(new);
        };
        ground.note_got(taken.priority(), &taken, rng);
        self.ground.check_unfinished();
        delay(rng);
        taken.token.panics = rng.one_in(8);
        // The new one follows from the taken one, so it is there before that is finished.
        held.extend(self.put(new, rng));
        match catch_silently(|| drop(taken)) {
            Ok(()) => {}
            Err(panic) if panic.is::<ExpectedPanic>() => ground.counts.panics.add(1),
            Err(panic) => ground.fail(format!("a taken element panicked: {}", panic_message(&*panic))),
        }
    }

    /// Checks estimates that are exact for this thread.
    fn look(&self, held: &[Held]) {
        let queue = &self.ground.queue;
        if self.is_plentiful && queue.is_empty() {
            self.note_empty();
        }
        if held.iter().any(|one| one.unfinished) {
            self.ground.check_unfinished();
        }
        let _ = (queue.len(), queue.first_priority(), queue.counts(), queue.waiting());
    }

    /// Changes the form, and loses an element if the run has such a planned break.
    fn change_and_lose(&self, rng: &mut Rng) {
        self.ground.change(rng);
        if self.is_plentiful
            && self.ground.broken == Some(Break::LoseInChange)
            && let Some((_, element)) = self.ground.client(rng).get()
        {
            element.token.note_got();
        }
    }

    /// Removes all elements, in the order of the queue, and puts them back.
    fn drain(&self, rng: &mut Rng) {
        let ground = self.ground;
        ground.counts.drains.add(1);
        for (priority, element) in ground.queue.drain() {
            ground.note_got(priority, &element, rng);
            if let Err(token) = ground.put(element.token, rng) {
                lock(&self.kept).push(token);
            }
        }
    }

    /// Waits for an element: for a moment, or until a thread puts one. In the second case the thread first
    /// puts back all its elements. So one is in the queue as soon as all other threads wait or have ended.
    fn wait(&self, held: &mut Vec<Held>, rng: &mut Rng) {
        let ground = self.ground;
        let gives_up = rng.one_in(2);
        if !gives_up || held.len() >= HELD_MAX {
            self.put_all(held, rng);
        }
        if held.len() >= HELD_MAX {
            // The queue is closed.
            return;
        }
        let limit = if gives_up { Duration::from_micros(rng.below(WAIT_US)) } else { WOKEN_WITHIN };
        if ground.breaks(Break::ForgetWaiter, rng) {
            return self.note_wait(Answer::TimedOut, false, held, rng);
        }
        let (queue, place) = (&ground.queue, ground.place(rng));
        let answer = match rng.below(5) {
            0 => plain(Wait::new(&**queue).block_for(limit)),
            1 => plain(ground.client(rng).get_for(limit)),
            2 => plain(Wait::at(queue.clone(), place).block_for(limit)),
            3 => match block_on(Wait::new(queue.clone()), limit) {
                Some(answer) => plain(answer.map_err(|Closed| WaitError::Closed)),
                None => Answer::TimedOut,
            },
            _ => taken(block_on(WaitTaken::at(&**queue, place), limit)),
        };
        self.note_wait(answer, gives_up, held, rng);
    }

    /// Polls a wait once and drops it. If it was woken meanwhile, another wait is.
    fn try_wait(&self, held: &mut Vec<Held>, rng: &mut Rng) {
        let (ground, ends) = (self.ground, rng.one_in(2));
        let answer = if ends {
            poll_once(WaitTaken::new(&*ground.queue), || delay(rng)).map(|answer| taken(Some(answer)))
        } else {
            let answer = poll_once(Wait::new(&*ground.queue), || delay(rng));
            answer.map(|answer| plain(answer.map_err(|Closed| WaitError::Closed)))
        };
        match answer {
            Some(answer) => self.note_wait(answer, true, held, rng),
            None => ground.counts.cancelled.add(1),
        }
    }

    fn note_wait(&self, answer: Answer, gives_up: bool, held: &mut Vec<Held>, rng: &mut Rng) {
        let ground = self.ground;
        ground.counts.waits.add(1);
        match answer {
            Answer::TimedOut if gives_up => ground.counts.timed_out.add(1),
            Answer::TimedOut => ground.fail(format!("a wait was not woken within {WOKEN_WITHIN:?}")),
            Answer::Ended(End::Closed) => {
                ground.counts.closed.add(1);
                ground.check_closing("a wait ended as if the queue were closed");
                self.note_empty();
            }
            Answer::Ended(End::Done) => {
                ground.counts.ends.add(1);
                self.note_empty();
            }
            got @ Answer::Got(_) => self.note_got(got, held, rng),
        }
    }

    fn note_got(&self, answer: Answer, held: &mut Vec<Held>, rng: &mut Rng) {
        let Answer::Got(one) = answer else { return };
        self.ground.note_got(one.priority, &one.element, rng);
        if one.unfinished {
            self.ground.check_unfinished();
        }
        held.push(one);
        if self.ground.breaks(Break::SayEmpty, rng) {
            self.note_empty();
        }
    }

    /// Called after a get said empty.
    fn note_empty(&self) {
        self.ground.counts.empty.add(1);
        if self.is_plentiful && !self.ground.is_over() {
            self.ground.fail(format!(
                "a get said empty although there are {} elements and the threads hold at most {HELD_MAX} each",
                self.elements
            ));
        }
    }
}

/// Returns the answer of a wait for an element.
fn plain(answer: Result<(u64, Element), WaitError>) -> Answer {
    match answer {
        Ok(found) => Answer::got(found, false),
        Err(WaitError::TimedOut) => Answer::TimedOut,
        Err(WaitError::Closed) => Answer::Ended(End::Closed),
    }
}

/// Returns the answer of a wait for an element or the end.
fn taken(answer: Option<Result<(u64, Element), End>>) -> Answer {
    match answer {
        Some(Ok(found)) => Answer::got(found, true),
        Some(Err(end)) => Answer::Ended(end),
        None => Answer::TimedOut,
    }
}
