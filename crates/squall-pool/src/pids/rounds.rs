//! The rounds of process ids at one server, without pools, clocks or threads.
//!
//! Problem: a draw takes several steps over two pools, and servers hear of a new round late. Idea: the steps
//! are a state machine. A server runs it over its pools, and the simulator runs many of them over two sets.
//!
//! Round `r` draws from pool `r mod 2`. An id that is freed carries the first round in which it may be drawn,
//! and *rests* in the pool of that round.
//!
//! - I1. The rounds of the draws of one id grow. A draw is in the newest round of its server, which is not
//!   below the first round of the id. A free writes a first round above that of the draw.
//! - I2. A round *begins* when a draw finds the pool of the round before empty, at a server that knows of no
//!   later round. All other servers learn of it, from ids and from calls.
//! - I3. While an id rests in its pool, at most one round begins. The next one would need this pool empty.
//! - I4. A draw puts an id back only if a round began that it does not know. Then its server knows the round.
//!
//! Argument for I3. Round `r + 1` begins when the pool of `r` is empty, so an id that rests meanwhile is in
//! the other pool, that of `r + 1`. Round `r + 2` would begin when that pool is empty.
//!
//! Not promised: a round that all servers know. Cost: two comparisons. The simulator checks I1 to I4.

use super::wire::Resting;

/// The rounds that a server knows of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounds {
    newest: u64,
}

/// A step of a draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Step {
    /// Take an id from the pool of a round, and call [`Draw::got`].
    Get { round: u64 },
    /// Add the id to the pool of its round again, and begin another draw.
    PutBack(Resting),
    /// The draw has this id, in this round.
    Drawn { id: u32, round: u64 },
    /// Both pools were empty.
    AllInUse,
}

/// A draw on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draw {
    /// The round of the last get.
    round: u64,
    /// The pool of the round before was empty.
    looks_ahead: bool,
}

impl Rounds {
    pub(super) fn new(newest: u64) -> Rounds {
        Rounds { newest }
    }

    pub(super) fn newest(self) -> u64 {
        self.newest
    }

    /// Learns that a round has begun.
    pub(super) fn learn(&mut self, round: u64) {
        self.newest = self.newest.max(round);
    }

    /// Returns the form in which an id rests that was drawn in this round.
    pub(super) fn rest(&mut self, id: u32, drawn_in: u64) -> Resting {
        self.learn(drawn_in);
        Resting { id, round: self.newest + 1 }
    }
}

impl Draw {
    pub(super) fn begin(rounds: Rounds) -> (Draw, Step) {
        let round = rounds.newest;
        (Draw { round, looks_ahead: false }, Step::Get { round })
    }

    /// Goes on with the result of the last get.
    pub(super) fn got(&mut self, rounds: &mut Rounds, found: Option<Resting>) -> Step {
        let Some(resting) = found else {
            if self.looks_ahead {
                return Step::AllInUse;
            }
            (self.round, self.looks_ahead) = (self.round + 1, true);
            return Step::Get { round: self.round };
        };
        // The first get comes from a round that is known. The second one begins it (I2).
        rounds.learn(self.round);
        if resting.round <= rounds.newest {
            return Step::Drawn { id: resting.id, round: rounds.newest };
        }
        // The server that freed the id knew of the round before.
        rounds.learn(resting.round - 1);
        Step::PutBack(resting)
    }
}
