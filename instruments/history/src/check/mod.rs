//! The checker: is there an order of all calls in which the specification gives the answers that were given?
//!
//! Problem: n calls have n! orders.
//! Idea: build the order from the front (Wing and Gong). A call may be next if all that were before it have been; it must be answered by
//! the specification as it was in the history. What is reached is the set of calls done and the state; no such pair is searched
//! twice (Lowe). A long history is cut into windows where nobody was inside, and each is searched from every state in which the one
//! before it may have ended.
//!
//! - I1. A call is done once, and after all calls that were before it.
//! - I2. A call that never returned may be done at any time after those that were before it, in this window or a later one, or never.
//! - I3. A call that fits and only reads is done at once, and nothing else is tried instead: any order that has it later is still one
//!   with it moved here, since it changes nothing for those it passes, and all before it are done. This does not hold for a call
//!   that happens to change nothing here, as a write of what is there: it may have to come later, where it does.
//! - I4. What is refused as wrong was searched to its end. Whoever has no time or space says so by another name.
//!
//! Cost: exponential in the calls that overlap. 30 calls of four threads on one key are some hundreds of steps.

mod search;
mod show;
mod shrink;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Debug, Display};

use crate::history::{Call, History};
use crate::spec::Spec;
use search::{Found, Mark, Start, Window};

/// Calls that a window may have: as many as a word has bits.
pub const WINDOW_CALLS_MAX: usize = 64;
/// Calls that may stay without a return, in all.
pub const PENDING_CALLS_MAX: usize = 64;
/// Steps of a search, unless told.
const STEPS_MAX: u64 = 2_000_000;

/// Why a history was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Refused {
    /// There is no such order. The text shows the calls that are enough to see it.
    Wrong(String),
    /// Not decided: this many calls lie between two moments at which nobody was inside, or never returned.
    TooLong(usize),
    /// Not decided: so many steps were not enough.
    TooHard(u64),
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Wrong(text) => write!(f, "not linearizable\n{text}"),
            Refused::TooLong(calls) => {
                write!(f, "not decided: {calls} calls overlap, {WINDOW_CALLS_MAX} are allowed")
            }
            Refused::TooHard(steps) => write!(f, "not decided after {steps} steps"),
        }
    }
}

impl Error for Refused {}

/// A specification, the state at the beginning, and a limit.
#[derive(Clone, Debug)]
pub struct Checker<S, T> {
    spec: S,
    start: T,
    steps_max: u64,
}

impl<S: Spec> Checker<S, S::State> {
    /// Checks histories of objects of this specification that begin in this state.
    pub fn new(spec: S, start: S::State) -> Self {
        Checker { spec, start, steps_max: STEPS_MAX }
    }

    /// Gives up a window after so many steps.
    pub fn steps_max(self, steps_max: u64) -> Self {
        Checker { steps_max, ..self }
    }

    /// Whether these calls could have been made one after the other.
    ///
    /// # Errors
    ///
    /// [`Refused::Wrong`] if they could not; the others if it is not known.
    pub fn check(&self, history: &History<S::Op, S::Ret>) -> Result<(), Refused> {
        let pending: Vec<_> = history.calls().iter().filter(|call| call.ret.is_none()).collect();
        if pending.len() > PENDING_CALLS_MAX {
            return Err(Refused::TooLong(pending.len()));
        }
        let mut starts = vec![Start { late: 0, state: self.start.clone() }];
        let windows = history.windows();
        for (at, returned) in windows.iter().enumerate() {
            if returned.len() > WINDOW_CALLS_MAX {
                return Err(Refused::TooLong(returned.len()));
            }
            let later = |call: &Call<S::Op, S::Ret>| {
                windows[at + 1..].iter().flatten().any(|later| later.is_before(call))
            };
            let here = pending.iter().map(|call| if later(call) { Mark::NotYet } else { Mark::Pending });
            let marked = returned.iter().map(|call| (*call, Mark::Returned));
            let calls: Vec<_> = marked.chain(pending.iter().copied().zip(here)).collect();
            let window = Window::new(&self.spec, &calls);
            match window.search(&starts, self.steps_max) {
                Found::Ends(ends) => starts = ends,
                Found::TooHard => return Err(Refused::TooHard(self.steps_max)),
                Found::None(_) => {
                    return Err(Refused::Wrong(shrink::explain(&self.spec, calls, &starts, self.steps_max)));
                }
            }
        }
        Ok(())
    }

    /// Whether the calls on each key could have been made one after the other; all keys begin in the same state.
    ///
    /// # Errors
    ///
    /// As [`check`](Checker::check), with the key.
    pub fn check_keys<K, O>(
        &self,
        history: &History<O, S::Ret>,
        key: impl Fn(&O) -> K,
        op: impl Fn(&O) -> S::Op,
    ) -> Result<(), Refused>
    where
        K: Ord + Debug,
        O: Clone,
    {
        let keys: BTreeMap<K, History<O, S::Ret>> = history.split(key);
        for (key, history) in keys {
            self.check(&history.map(&op)).map_err(|refused| match refused {
                Refused::Wrong(text) => Refused::Wrong(format!("key {key:?}\n{text}")),
                other => other,
            })?;
        }
        Ok(())
    }
}
