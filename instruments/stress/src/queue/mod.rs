//! Stress of priority queues: each element is got as often as it was put, in the promised order, and waits
//! end when they should.
//!
//! Promised (`squall::parts::queue`): an element that was put is got exactly once, with its priority. A get
//! says empty only if at one moment of the call the queue was empty. The work is done only if at one moment
//! each element was removed and each taken one was finished. The strict form returns the first element. All
//! this holds while form, order and attributes change. A wait gets an element or ends, and one that is
//! dropped loses no element. A closed queue rejects puts and gives the rest. A queue that is dropped drops
//! its elements, even if one of them panics.
//!
//! Tried: each round has a new queue with up to 64 more places than VPs, and new threads. Two kinds take
//! turns at random. In a round of *flow* (`flow.rs`) elements circulate. A thread puts and gets, takes and
//! finishes, waits, gives up or cancels waits, drains, changes the form, the order or an attribute, and moves
//! to another processor. Some rounds close the queue. In a *search* (`search.rs`) each element leads to
//! others, until waits say that the work is done. At the end of a round threads empty the queue (`rest.rs`).
//!
//! - I1. A round of flow is *plentiful* or *scarce*. A plentiful one has more elements than all threads may
//!   hold. So at each moment one is in the queue: no get may say empty, and no wait may end.
//! - I2. The state of a token (`tokens.rs`) changes before it is put, and after it was got.
//! - I3. While threads empty the queue, no thread puts. So the elements that one thread gets from the strict
//!   form are sorted, and after one get has said empty, all later ones must.
//! - I4. In a search, a token exists from before it is put until before it is finished. So the work is done
//!   only if no token exists.
//! - I5. Each planned break must end the run with a violation.

mod counts;
mod flow;
mod ground;
mod rest;
mod search;
mod waits;

use std::thread;

use crate::run::{Report, Rng, Run, Stress, Violation, threads_beyond_processors};
use crate::skeleton::breaks::{self, Breaks, breaks};
use crate::skeleton::placement::AllowedCpus;
use counts::Counts;
use flow::Flow;
use ground::Ground;
use rest::Rest;
use search::Search;

pub(super) const STRESS: Stress = Stress {
    name: "queue",
    about: "each element of a priority queue is got exactly once, and no get or wait ends without a reason",
    run,
    threads: threads_beyond_processors,
};

breaks! {
    /// An element is sometimes not put.
    LoseElement = "lose-element",
    /// An element is sometimes counted as got twice.
    GetTwice = "get-twice",
    /// A get sometimes says empty.
    SayEmpty = "say-empty",
    /// An element sometimes comes with another priority.
    WrongPriority = "wrong-priority",
    /// The strict form sometimes returns two elements in the wrong order.
    WrongOrder = "wrong-order",
    /// A change of the form sometimes loses an element.
    LoseInChange = "lose-in-change",
    /// A wait sometimes seems to be forgotten.
    ForgetWaiter = "forget-waiter",
    /// A closed queue seems to accept an element.
    AcceptClosed = "accept-closed",
    /// The work sometimes seems to be done before it is.
    EarlyEnd = "early-end",
    /// The end of the work sometimes seems to be missed.
    MissEnd = "miss-end",
    /// An element is sometimes leaked at the end of a round.
    LeakElement = "leak-element",
}

/// Distance between the random streams of two rounds.
const STREAMS: u64 = 1 << 20;

fn run(run: &Run) -> Result<Report, Violation> {
    let broken = breaks::asked(Break::ALL)?;
    let home = AllowedCpus::find()?;
    let counts = Counts::default();
    let mut rounds = 0;
    while !run.is_over() {
        let stream = rounds * STREAMS;
        let mut rng = run.rng(stream + STREAMS - 1);
        let searches = rng.one_in(3);
        let ground = Ground::new(searches, run.threads, broken, &home, &counts, &mut rng);
        let crew = |first: u64, body: &(dyn Fn(usize, &mut Rng) + Sync)| {
            thread::scope(|scope| {
                for index in 0..run.threads {
                    let mut rng = run.rng(stream + first + index as u64);
                    scope.spawn(move || body(index, &mut rng));
                }
            });
        };
        let (elements, kept) = if searches {
            let search = Search::new(&ground, &mut rng);
            crew(0, &|index, rng| search.live(index, rng));
            search.end();
            (0, Vec::new())
        } else {
            let flow = Flow::new(&ground, run.threads, &mut rng);
            crew(0, &|_, rng| flow.live(rng));
            flow.end()
        };
        let rest = Rest::new(ground, elements, kept, &mut rng);
        crew(STREAMS / 2, &|_, rng| rest.live(rng));
        rest.end(&mut rng)?;
        rounds += 1;
    }
    let mut lines = vec![("rounds", rounds)];
    lines.extend(counts.lines());
    Ok(Report(lines))
}
