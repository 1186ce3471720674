//! The client threads: they call shards by their name, and the echo through an imported object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use squall::Handle;
use squall::fleet::{Fate, Node};

use super::books::{Account, Accounts, Books, ECHO, Point, SHARDS};
use super::breaks::Break;
use super::member::{COUNT, COUNT_LATE, Echo, mixed};
use super::state::words;
use super::{CALL_LIMIT, COUNTERS, LATE_MAX, name};
use crate::run::Rng;

/// The end of one attempt of a call.
enum End {
    Done(Point),
    Unsure,
    NotRun,
    Wrong(String),
}

/// The data of a client thread.
pub(super) struct Client {
    pub(super) number: u64,
    pub(super) node: Arc<Node>,
    pub(super) echo: Handle<dyn Echo>,
    pub(super) books: Arc<Books>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) broken: Option<Break>,
    pub(super) rng: Rng,
    /// The longest rest between two calls, in microseconds.
    pub(super) rest: u64,
}

impl Client {
    /// Calls until the flag is set. Returns the ends of all calls.
    pub(super) fn run(mut self) -> Accounts {
        let mut accounts: Accounts = std::array::from_fn(|_| Account::default());
        // Relaxed: the flag publishes no other data.
        while !self.stop.load(Ordering::Relaxed) && self.books.wrong().is_none() {
            let place = self.rng.below(u64::from(SHARDS) + 1) as u32;
            self.call(place, &mut accounts[place as usize]);
            std::thread::sleep(Duration::from_micros(self.rng.below(self.rest.max(1))));
        }
        accounts
    }

    fn call(&mut self, place: u32, account: &mut Account) {
        account.last += 1;
        let number = account.last;
        let mut end = self.attempt(place, number);
        if self.broken == Some(Break::RetryLost) && matches!(end, End::Unsure) {
            end = self.attempt(place, number);
        }
        if self.broken == Some(Break::ForgetUnsure) && matches!(end, End::Unsure) {
            end = End::NotRun;
        }
        // Relaxed: only the sums matter.
        let count = |count: &AtomicU64| _ = count.fetch_add(1, Ordering::Relaxed);
        let ends = &self.books.ends;
        match end {
            End::Done((life, _)) => {
                account.done(number, life);
                count(&ends.done);
            }
            End::Unsure => {
                account.unsure(number);
                count(&ends.unsure);
            }
            End::NotRun => {
                account.not_run(number);
                count(&ends.not_run);
            }
            End::Wrong(why) => {
                let client = self.number;
                self.books.fail(format!("call {number} of client {client} to place {place}: {why}"));
                account.unsure(number);
            }
        }
    }

    fn attempt(&mut self, place: u32, number: u64) -> End {
        if place == ECHO {
            return match self.echo.try_echo(self.number, number) {
                Ok(result) if result == mixed(self.number, number) => End::Done((0, 0)),
                Ok(result) => End::Wrong(format!("the echo returned {result:x}")),
                Err(error) if error.may_have_run() => End::Unsure,
                Err(_) => End::NotRun,
            };
        }
        let method = if self.rng.one_in(8) { COUNT_LATE } else { COUNT };
        // Some calls are given up early.
        let limit = match self.rng.below(16) {
            0 => Duration::from_micros(self.rng.below(20_000)),
            _ => CALL_LIMIT,
        };
        let before = self.books.newest(place);
        let began = Instant::now();
        let body = [self.number.to_le_bytes(), number.to_le_bytes()].concat();
        let result = self.node.call_shard(&name(COUNTERS), place, method, &body, limit);
        let mut took = began.elapsed();
        if self.broken == Some(Break::EndLate) {
            took += limit + LATE_MAX;
        }
        if took > limit + LATE_MAX {
            self.books.fail(format!("a call of shard {place} with a limit of {limit:?} took {took:?}"));
        }
        match result {
            Ok(result) => match words(&result).as_deref() {
                Some(&[life, count]) => {
                    self.books.see(place, before, (life, count));
                    End::Done((life, count))
                }
                _ => End::Wrong(format!("a counter returned {result:x?}")),
            },
            Err(lost) => match lost.fate {
                fate @ (Fate::TooLarge | Fate::Closed | Fate::Dropped) => {
                    End::Wrong(format!("it ended so: {fate}"))
                }
                fate if fate.may_have_run() => End::Unsure,
                _ => End::NotRun,
            },
        }
    }
}
