//! `serve`: a cache server on loopback, asked by so many connections, one request of each at a time.
//!
//! The server is that of `examples/cache`, with its entries in our map or in a rival's: all else is the same program. Each has a
//! runtime of its own, with as many threads as there are processors, in this process. Beside them memcached, where it is installed.
//!
//! - What is asked is drawn beforehand, the same for all: 10,000 keys, by Zipf's law, all of which are there.
//! - The rows are the time of a turn over the requests of all connections in it. Each request is clocked for `p50_us` and `p99_us`.
//! - `squall/best-store` is over the fastest of the same server on rivals' maps, which memcached is not; which one that is, is found in
//!   other rounds than those in which it is compared.
//! - `squall-again` is our server once more: `squall/again` and `squall/again-p99` tell by how much a server differs from itself.
//!
//! - I1. Every answer is checked: a value must be its key's, whole.
//! - I2. In each round every server has one turn, in an order that is rotated from round to round; a ratio is only ever taken between
//!   turns of the same round.

mod client;
mod rounds;
mod subjects;

use crate::case::{Case, PLAIN, Scale, Setting, Variant};
use crate::harness::{Plan, RunError, Step, Table};
use client::Load;

pub(super) static CASE: Case = Case {
    name: "serve",
    about: "a request to a cache server over loopback, which each of the threads waits for",
    variants: VARIANTS,
    subjects: subjects::SPECS,
    scale: Scale::Own(run),
    slice_ms: (0, 0),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

static VARIANTS: &[Variant] = &[
    Variant { name: "100b-90-10", about: "values of 100 bytes; of a hundred requests 10 are `set`", ..PLAIN },
    Variant {
        name: "100b-50-50",
        about: "values of 100 bytes; of a hundred requests 50 are `set`",
        thorough: true,
        ..PLAIN
    },
    Variant {
        name: "4k-90-10",
        about: "values of 4096 bytes; of a hundred requests 10 are `set`",
        thorough: true,
        ..PLAIN
    },
];

/// What a variant's name says.
fn load(variant: &Variant) -> Load {
    match variant.name {
        "100b-50-50" => Load { value_bytes: 100, sets_of_100: 50 },
        "4k-90-10" => Load { value_bytes: 4096, sets_of_100: 10 },
        _ => Load { value_bytes: 100, sets_of_100: 10 },
    }
}

fn run(setting: &Setting, plan: &Plan, progress: &mut dyn FnMut(Step<'_>)) -> Result<Table, RunError> {
    let Setting { threads, variant, .. } = *setting;
    let failed = |why| RunError(format!("case {} {}: {why}", CASE.name, variant.name));
    let mut rounds = rounds::Rounds::begin(threads, load(variant), plan.quick).map_err(failed)?;
    for round in 1..=plan.rounds() {
        rounds.round().map_err(failed)?;
        progress(Step { case: CASE.name, variant: variant.name, threads, round, rounds: plan.rounds() });
    }
    let mut table = Table {
        case: &CASE,
        variant,
        threads,
        pinned: false,
        subjects: Vec::new(),
        ratios: Vec::new(),
        metrics: Vec::new(),
        rounds: 0,
        disturbed: 0,
        kept_disturbed: false,
    };
    rounds.tell(&mut table);
    Ok(table)
}
