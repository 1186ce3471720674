//! The lock of a duel, which only the threads of the duel use.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use squall::parts::gate::{GateError, ShutDown};

use super::super::disturbed::calmly;
use super::super::gates::{Counter, Make};
use super::super::lock_types::{Attempt, Exclusive, Outcome, SharedAccess};
use super::round::{Kind, Round, Wish};
use crate::run::{Rng, lock};

/// More than the number of uncontended releases after which a lock becomes biased.
const QUIET: usize = 100;
const MEDDLES_MAX: u64 = 3;

/// A counter, which is replaced after a shutdown.
pub(super) struct Gate {
    pub(super) name: &'static str,
    pub(super) make: Make,
    pub(super) now: Mutex<Arc<dyn Counter>>,
}

pub(super) enum Arena {
    One(Box<dyn Exclusive>),
    Several(Box<dyn SharedAccess>),
    Gate(Gate),
}

impl Arena {
    pub(super) fn gate(name: &'static str, make: Make) -> Arena {
        Arena::Gate(Gate { name, make, now: Mutex::new(Arc::from(make())) })
    }

    pub(super) fn kind(&self) -> Kind {
        match self {
            Arena::One(lock) if lock.can_cancel() => Kind::Configurable,
            Arena::One(_) => Kind::One,
            Arena::Several(_) => Kind::Several,
            Arena::Gate(_) => Kind::Gate,
        }
    }

    /// Prepares the lock for a round. The first thread calls it while it is alone.
    pub(super) fn prepare(&self, round: &Round, rng: &mut Rng) {
        if round.meddles {
            (0..rng.below(MEDDLES_MAX)).for_each(|_| self.meddle(rng));
        }
        if let (Arena::One(lock), true) = (self, round.quiet) {
            calmly(|| {
                for _ in 0..QUIET {
                    let _ = lock.enter(&Attempt::Wait, &mut |_| ());
                }
            });
        }
        if let Arena::Gate(gate) = self {
            let mut now = lock(&gate.now);
            calmly(|| match now.enter_now() {
                Ok(()) => now.leave(),
                // The previous round has shut it down.
                Err(_) => *now = Arc::from((gate.make)()),
            });
        }
    }

    /// Changes the lock's attributes.
    pub(super) fn meddle(&self, rng: &mut Rng) {
        if let Arena::One(lock) = self {
            lock.meddle(rng);
        }
    }

    /// Requests the lock, and runs `inside` if that is granted.
    ///
    /// # Errors
    /// The request has ended in a wrong way.
    pub(super) fn ask(&self, wish: Wish, round: &Round, inside: &mut dyn FnMut()) -> Result<(), String> {
        let until = |us| Attempt::Until(Instant::now() + Duration::from_micros(us));
        let outcome = match (self, wish) {
            (Arena::Gate(gate), _) => {
                let counter = Arc::clone(&lock(&gate.now));
                return ask_counter(&*counter, wish, round, inside);
            }
            (Arena::Several(lock), Wish::Read) => lock.read(&Attempt::Wait, &mut |_| inside()),
            (Arena::Several(lock), Wish::ReadWithin(us)) => lock.read(&until(us), &mut |_| inside()),
            (Arena::Several(lock), Wish::WriteWithin(us)) => lock.write(&until(us), &mut |_| inside()),
            (Arena::Several(lock), _) => lock.write(&Attempt::Wait, &mut |_| inside()),
            (Arena::One(lock), _) => {
                let attempt = match wish {
                    Wish::HaveWithin(us) => until(us),
                    Wish::HaveUnlessCancelled => Attempt::Cancel(Arc::clone(&round.cancel)),
                    Wish::HaveBy(priority, waiting) => Attempt::As(priority, waiting),
                    _ => Attempt::Wait,
                };
                lock.enter(&attempt, &mut |_| inside())
            }
        };
        use Wish::*;
        match (outcome, wish) {
            (Outcome::Inside | Outcome::Over, _)
            | (Outcome::TimedOut, HaveWithin(_) | ReadWithin(_) | WriteWithin(_))
            | (Outcome::NotRegistered, HaveBy(..)) => Ok(()),
            (Outcome::Cancelled, HaveUnlessCancelled) if round.cancel.is_cancelled() => Ok(()),
            _ => Err(format!("{wish:?} ended with {outcome:?}, which it does not allow")),
        }
    }
}

fn ask_counter(
    counter: &dyn Counter,
    wish: Wish,
    round: &Round,
    inside: &mut dyn FnMut(),
) -> Result<(), String> {
    let limit = match wish {
        Wish::StopWithin(us) => Some(Duration::from_micros(us)),
        _ => None,
    };
    if wish == Wish::Enter {
        return match counter.enter() {
            Ok(()) => {
                inside();
                counter.leave();
                Ok(())
            }
            Err(ShutDown) if round.first == Wish::ShutDown => Ok(()),
            Err(ShutDown) => Err("the counter reports a shutdown that no thread requested".to_owned()),
        };
    }
    match counter.stop(limit) {
        Ok(()) => inside(),
        Err(GateError::TimedOut) if limit.is_some() => return Ok(()),
        Err(error) => return Err(format!("a stop failed: {error}")),
    }
    let ended = if wish == Wish::ShutDown { counter.shutdown(None) } else { counter.restart() };
    ended.map_err(|error| format!("{wish:?} failed after the stop: {error}"))
}

/// Prints name and attributes.
impl fmt::Display for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arena::One(lock) => write!(f, "{}{}", lock.name(), lock.attributes()),
            Arena::Several(lock) => f.write_str(lock.name()),
            Arena::Gate(gate) => f.write_str(gate.name),
        }
    }
}
