//! What the threads did, counted by each for itself: a shared counter would be a fence where one must not be.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Calls,
    Blocking,
    Upcast,
    StaleErrors,
    StalePanics,
    Refusals,
    Additions,
    Audits,
    Known,
    Creates,
    CreatesFailed,
    Destroys,
    DestroysInside,
    EndsAwaited,
    Misses,
    Discards,
    Panics,
    Snapshots,
    DropsBusy,
    Farewells,
}

const NAMES: [(What, &str); COUNT] = [
    (What::Calls, "calls answered"),
    (What::Blocking, "of these blocking"),
    (What::Upcast, "of these upcast"),
    (What::StaleErrors, "stale calls that erred"),
    (What::StalePanics, "of these by a panic"),
    (What::Refusals, "calls refused by roots"),
    (What::Additions, "additions counted"),
    (What::Audits, "exact comparisons"),
    (What::Known, "calls of a known place"),
    (What::Creates, "objects created"),
    (What::CreatesFailed, "creations that failed"),
    (What::Destroys, "objects destroyed"),
    (What::DestroysInside, "of these inside methods"),
    (What::EndsAwaited, "destructions awaited"),
    (What::Misses, "misses met by roots"),
    (What::Discards, "tables discarded"),
    (What::Panics, "panics caught"),
    (What::Snapshots, "snapshots taken"),
    (What::DropsBusy, "drops that did something"),
    (What::Farewells, "calls by dying threads"),
];
const COUNT: usize = 20;

thread_local! {
    static MINE: [Cell<u64>; COUNT] = const { [const { Cell::new(0) }; COUNT] };
}

/// What all threads did that have handed in.
#[derive(Default)]
pub(super) struct Tally([AtomicU64; COUNT]);

/// One more of these, by the calling thread.
pub(super) fn count(what: What) {
    count_many(what, 1);
}

pub(super) fn count_many(what: What, more: u64) {
    MINE.with(|mine| mine[what as usize].set(mine[what as usize].get() + more));
}

impl Tally {
    /// Takes over what the calling thread has counted.
    pub(super) fn hand_in(&self) {
        MINE.with(|mine| {
            for (all, mine) in self.0.iter().zip(mine) {
                all.fetch_add(mine.take(), Ordering::Relaxed);
            }
        });
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = (&'static str, u64)> {
        NAMES.iter().map(|(what, name)| (*name, self.0[*what as usize].load(Ordering::Relaxed)))
    }
}
