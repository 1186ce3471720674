//! Stress of bags: tokens go through a bag with many shards, and each is got as often as it was put.
//!
//! Promised (`squall::parts::bag`): an element that was put is got exactly once. A get says empty only if at
//! one moment of the call the bag was empty and no element was on its way. This holds while strategies and
//! constants change, while idle clients move elements, and while shards leave. A wait gets an element or
//! ends, and one that is dropped gives its element back. A bag that is dropped drops its elements, even if
//! one of them panics. All this holds for the bag of an object too (`squall::objects::bag`), while it is
//! swapped.
//!
//! Tried: a round has a new bag with up to 64 more places than VPs, and new threads. Each thread holds some
//! tokens. It puts and gets single ones and batches, as the client of its VP or of a random place. In between
//! it is idle, waits, gives up or cancels waits, or lets shards leave. It gathers all elements in one shard,
//! changes the strategy or a constant, or moves to another processor. Some rounds close the bag. In others
//! the bag belongs to an object: threads call the object too, and swap it from form to form. At the end of a
//! round all tokens are counted.
//!
//! - I1. A round is *plentiful* or *scarce*. A plentiful one has more tokens than all threads may hold. So
//!   at each moment one is in the bag, and no get may say empty.
//! - I2. The state of a token (`tokens.rs`) changes before it is put, and after it was got. A token that
//!   comes out twice, or that was not put, is found at once.
//! - I3. Each planned break must end the run with a violation.

mod round;

use std::sync::Arc;
use std::thread;

use crate::run::{Report, Run, Stress, Violation, threads_beyond_processors};
use crate::skeleton::breaks::{self, Breaks, breaks};
use crate::skeleton::placement::AllowedCpus;
use crate::tokens::Books;
use round::{Counts, Round, tokens_max};

pub(super) const STRESS: Stress = Stress {
    name: "bags",
    about: "each element of a bag is got exactly once, and a get says empty only if no element is there",
    run,
    threads: threads_beyond_processors,
};

breaks! {
    /// A token is sometimes not put back.
    LoseToken = "lose-token",
    /// A token is sometimes counted as got twice.
    GetTwice = "get-twice",
    /// A get sometimes says empty.
    SayEmpty = "say-empty",
    /// A wait sometimes seems to be forgotten.
    ForgetWaiter = "forget-waiter",
    /// A token is sometimes leaked at the end of a round.
    LeakToken = "leak-token",
    /// A swap loses a token.
    LoseInSwap = "lose-in-swap",
    /// A swap doubles a token.
    DoubleInSwap = "double-in-swap",
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
        let books = Arc::new(Books::new(tokens_max(run.threads)));
        let round =
            Round::new(&books, run.threads, broken, &home, &counts, &mut run.rng(stream + STREAMS - 1));
        thread::scope(|scope| {
            for index in 0..run.threads {
                let mut rng = run.rng(stream + index as u64);
                let round = &round;
                scope.spawn(move || round.live(&mut rng));
            }
        });
        round.end(&mut run.rng(stream + STREAMS - 2))?;
        rounds += 1;
    }
    let mut lines = vec![("rounds", rounds)];
    lines.extend(counts.lines());
    Ok(Report(lines))
}
