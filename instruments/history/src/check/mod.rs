//! The checker: searches for an order of all calls in which the specification gives the recorded answers.
//!
//! Problem: n calls have n! orders. Idea: build the order from the front (Wing and Gong). A call may be next
//! if all calls before it are done, and if the specification gives its recorded answer. A search node is the
//! set of done calls and the state; no node is visited twice (Lowe). A long history is divided into windows
//! between moments without a call in progress. Each window is searched from all states in which the previous
//! one may end.
//!
//! - I1. A call is done once, and after all calls that were before it.
//! - I2. A call that never returned may be done at any time after the calls before it, in this window or a
//!   later one, or never.
//! - I3. A call that fits and only reads is done at once, without alternatives. In any order that has the
//!   call later, the call can be moved to this place: it changes nothing for the calls that it passes, and
//!   all calls before it are done. The rule does not cover a write that happens to change nothing at this
//!   place, such as a write of the present value. Such a write may have to come later, where it does change
//!   the state.
//! - I4. A history is refused as wrong only after a complete search. Lack of time or space has other variants
//!   of the error.
//!
//! Cost: exponential in the number of overlapping calls. 30 calls of four threads on one key take some
//! hundreds of steps.

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

/// Maximum number of calls in a window: the bits of a word.
pub const WINDOW_CALLS_MAX: usize = 64;
/// Maximum number of calls without a return, in total.
pub const PENDING_CALLS_MAX: usize = 64;
/// Default limit for the steps of a search.
const STEPS_MAX: u64 = 2_000_000;

/// Reason why a history was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Refused {
    /// The history is not linearizable. The text shows a sufficient subset of the calls.
    Wrong(String),
    /// Undecided: this many calls overlap or never returned.
    TooLong(usize),
    /// Undecided after this many steps.
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

/// A checker: specification, start state and limit.
#[derive(Clone, Debug)]
pub struct Checker<S, T> {
    spec: S,
    start: T,
    steps_max: u64,
}

impl<S: Spec> Checker<S, S::State> {
    /// Checker for histories of objects with this specification that begin in state `start`.
    pub fn new(spec: S, start: S::State) -> Self {
        Checker { spec, start, steps_max: STEPS_MAX }
    }

    /// Sets the number of steps after which a window is given up. Default: 2,000,000.
    pub fn steps_max(self, steps_max: u64) -> Self {
        Checker { steps_max, ..self }
    }

    /// Checks that the calls could have been made one after the other.
    ///
    /// # Errors
    ///
    /// [`Refused::Wrong`] if they could not; the other variants if the question is undecided.
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

    /// Checks the calls on each key separately; all keys begin in the same state.
    ///
    /// # Errors
    ///
    /// The errors of [`check`](Checker::check), with the key.
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
