//! Stress of shipped calls: each runs as often as its sender may expect, and its closure is dropped once.
//!
//! Promised (`squall::ship`): a call that its sender waits for runs once, and the sender gets its result or
//! its panic. A call that is detached runs once. A call that is dropped before it began does not run, and
//! never runs twice. A full inbox gives the closure back. A call to all clusters has one result for each.
//! Events are handled once, in the order of their posts, by one thread at a time. Calls that wait for each
//! other, poll each other or await each other end. A wait inside an operation is an error.
//!
//! Tried: threads ship small and large closures to random VPs and clusters, also inside operations. They
//! wait, poll, await, give up, detach and drop them. They serve by opting in or by asking, and move to other
//! VPs. Closures return, panic, dawdle, or ship further calls and wait for those. Two threads post to one
//! VP. The inboxes have few slots, so many are full.
//!
//! - I1. Each closure owns a token. The books (`books.rs`) count its runs, and that it was dropped.
//! - I2. Each planned break must end the run with a violation.

mod books;
mod round;

use std::thread;

use squall::ship::set_slots;

use crate::run::{Report, Run, Stress, Violation, exclusive, threads_beyond_processors};
use crate::skeleton::breaks::{self, Breaks, breaks};
use crate::skeleton::placement::choose_machine;
use round::{Counts, Round};

pub(super) const STRESS: Stress = Stress {
    name: "ship",
    about: "each shipped call runs as often as its sender may expect, and its result comes back",
    run,
    threads: threads_beyond_processors,
};

breaks! {
    /// A call is sometimes counted as run twice.
    RunTwice = "run-twice",
    /// A call is sometimes leaked instead of sent.
    LoseCall = "lose-call",
    /// A result is sometimes changed on its way.
    WrongResult = "wrong-result",
    /// Two events sometimes change places.
    SwapEvents = "swap-events",
}

/// Distance between the random streams of two rounds.
const STREAMS: u64 = 1 << 20;
/// Slots of each inbox.
const SLOTS: usize = 8;

fn run(run: &Run) -> Result<Report, Violation> {
    let _alone = exclusive();
    choose_machine(run.real);
    set_slots(SLOTS);
    let broken = breaks::asked(Break::ALL)?;
    let counts = Counts::default();
    let mut rounds = 0;
    while !run.is_over() {
        let round = Round::new(broken, &counts);
        thread::scope(|scope| {
            for index in 0..run.threads {
                let mut rng = run.rng(rounds * STREAMS + index as u64);
                let round = &round;
                scope.spawn(move || round.live(&mut rng));
            }
        });
        round.end()?;
        rounds += 1;
    }
    let mut lines = vec![("rounds", rounds)];
    lines.extend(counts.lines());
    Ok(Report(lines))
}
