//! `serve`: a cache server on loopback and a number of connections, each with one request at a time.
//!
//! The server is that of `examples/cache`, with its entries in our map or in a rival's; the rest of the
//! program is fixed. Each server has a runtime of its own in this process, with as many threads as there are
//! processors. memcached runs beside them if it is installed.
//!
//! - The requests are drawn beforehand and are equal for all: 10,000 present keys, by Zipf's law.
//! - The rows are the time of a turn divided by the requests of all connections. Each request is timed for
//!   `p50_us` and `p99_us`.
//! - `squall/best-store` divides by the fastest server on a rival's map, so not by memcached. That server is
//!   chosen in other rounds than the compared ones.
//! - `squall-again` is a second instance of our server: `squall/again` and `squall/again-p99` show how much a
//!   server differs from itself.
//!
//! - I1. Every answer is checked: a value must be its key's, whole.
//! - I2. In each round every server has one turn, in an order rotated from round to round. Ratios are taken
//!   only between turns of one round.

mod client;
mod rounds;
mod subjects;

use crate::case::{Case, PLAIN, Scale, Setting, Variant};
use crate::harness::{Plan, RunError, Step, Table};
use client::Load;

pub(super) static CASE: Case = Case {
    name: "serve",
    about: "one request to a cache server over loopback, until its answer is there",
    variants: VARIANTS,
    subjects: subjects::SPECS,
    scale: Scale::Own(run),
    slice_ms: (0, 0),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2, 8],
};

static VARIANTS: &[Variant] = &[
    Variant { name: "100b-90-10", about: "values of 100 bytes; 10 % of the requests are `set`", ..PLAIN },
    Variant {
        name: "100b-50-50",
        about: "values of 100 bytes; 50 % of the requests are `set`",
        thorough: true,
        ..PLAIN
    },
    Variant {
        name: "4k-90-10",
        about: "values of 4096 bytes; 10 % of the requests are `set`",
        thorough: true,
        ..PLAIN
    },
];

fn run(setting: &Setting, plan: &Plan, progress: &mut dyn FnMut(Step<'_>)) -> Result<Table, RunError> {
    let Setting { threads, variant, .. } = *setting;
    let failed = |why| RunError(format!("case {} {}: {why}", CASE.name, variant.name));
    let mut rounds = rounds::Rounds::begin(threads, Load::of(variant), plan.quick).map_err(failed)?;
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
    rounds.fill_table(&mut table);
    Ok(table)
}
