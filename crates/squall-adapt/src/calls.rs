//! Who calls an object, and what: counted by an arbiter, for a moment, only while someone looks.
//!
//! Problem: the hot path of a call counts nothing, so nobody can say afterwards how often an object was called. Idea: for
//! some hundred microseconds every call goes by way of a function that counts it by VP and method; then as before.
//! Between samples a call costs what it always costs.
//!
//! - I1. A board is counted on by one arbiter at a time: a sampler is borrowed for as long as its arbiter is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use squall_core::Id;
use squall_core::swap::{Arbiter, SwapError, arbitrate_object};
use squall_machine::{Vp, machine};

/// Methods that are told apart; calls of the others are counted together, as [`Calls::OTHERS`].
const METHODS: usize = 15;

/// The calls of an object, in one span.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Calls {
    /// How long they were counted.
    pub span: Duration,
    /// Calls by method, those that were seen.
    pub by_method: Vec<(&'static str, u64)>,
    /// Calls by VP, of those that called.
    pub by_vp: Vec<(Vp, u64)>,
    /// Calls by VP and method: a row for each of `by_vp`, a column for each of `by_method`.
    pub table: Vec<Vec<u64>>,
}

impl Calls {
    /// The name under which calls of methods beyond the first fifteen that were seen are counted.
    pub const OTHERS: &str = "others";

    /// All calls.
    pub fn count(&self) -> u64 {
        self.by_vp.iter().map(|(_, count)| count).sum()
    }

    /// Calls of one method in a second, on each VP that called at all.
    pub fn rates_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = (Vp, f64)> + 'a {
        let column = self.by_method.iter().position(|(name, _)| *name == method);
        let seconds = self.span.as_secs_f64().max(1e-9);
        self.by_vp
            .iter()
            .zip(&self.table)
            .map(move |((vp, _), row)| (*vp, column.map_or(0.0, |column| row[column] as f64 / seconds)))
    }

    /// Calls of one method in a second.
    pub fn rate_of(&self, method: &str) -> f64 {
        self.rates_of(method).map(|(_, rate)| rate).sum()
    }
}

/// Counts of one VP, on lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Row([AtomicU64; METHODS + 1]);

#[derive(Debug)]
struct Board {
    methods: [OnceLock<&'static str>; METHODS],
    rows: Box<[Row]>,
}

impl Board {
    fn new() -> Board {
        let rows = (0..machine().vp_limit()).map(|_| Row::default()).collect();
        Board { methods: Default::default(), rows }
    }

    /// The column of a method: names are compared as pointers first, since a method has one.
    fn column(&self, method: &'static str) -> usize {
        let is_it = |name: &str| std::ptr::eq(name, method) || name == method;
        for (column, place) in self.methods.iter().enumerate() {
            if is_it(place.get_or_init(|| method)) {
                return column;
            }
        }
        METHODS
    }

    fn count(&self, method: &'static str) {
        let column = self.column(method);
        // Beyond the limit there is no VP, but a row that is missed is no reason to fail a call.
        if let Some(row) = self.rows.get(Vp::current().index()) {
            row.0[column].fetch_add(1, Ordering::Relaxed);
        }
    }

    fn read(&self, span: Duration) -> Calls {
        let names: Vec<&'static str> = self.methods.iter().map_while(|name| name.get().copied()).collect();
        let mut columns: Vec<(usize, &'static str)> = names.into_iter().enumerate().collect();
        columns.push((METHODS, Calls::OTHERS));
        let counts = |row: &Row| -> Vec<u64> {
            columns.iter().map(|(column, _)| row.0[*column].load(Ordering::Relaxed)).collect()
        };
        let rows: Vec<(usize, Vec<u64>)> = self.rows.iter().map(counts).enumerate().collect();
        let seen: Vec<(usize, Vec<u64>)> =
            rows.into_iter().filter(|(_, row)| row.iter().any(|n| *n > 0)).collect();
        let sums: Vec<u64> = (0..columns.len()).map(|at| seen.iter().map(|(_, row)| row[at]).sum()).collect();
        let used: Vec<usize> = (0..columns.len()).filter(|at| sums[*at] > 0).collect();
        Calls {
            span,
            by_method: used.iter().map(|at| (columns[*at].1, sums[*at])).collect(),
            by_vp: seen.iter().map(|(vp, row)| (Vp::new(*vp as u32), row.iter().sum())).collect(),
            table: seen.iter().map(|(_, row)| used.iter().map(|at| row[*at]).collect()).collect(),
        }
    }
}

/// A count of an object's calls that is under way.
#[derive(Debug)]
pub(crate) struct Sampler {
    board: Arc<Board>,
    began: Instant,
    arbiter: Arbiter,
}

impl Sampler {
    pub(crate) fn begin(id: Id) -> Result<Sampler, SwapError> {
        let board = Arc::new(Board::new());
        let counting = Arc::clone(&board);
        let arbiter = arbitrate_object(id, move |call| counting.count(call.method()))?;
        Ok(Sampler { board, began: Instant::now(), arbiter })
    }

    pub(crate) fn end(self) -> Calls {
        let span = self.began.elapsed();
        self.arbiter.detach();
        self.board.read(span)
    }
}

/// Counts the calls of an object for so long, by VP and method. The calling thread sleeps meanwhile.
///
/// Meanwhile another function cannot arbitrate the object's calls ([`squall_core::swap::arbitrate`] errs): of objects that adapt
/// their policy counts now and then, for a fraction of a millisecond.
///
/// # Errors
/// [`SwapError`]: the object is gone, is being swapped, or somebody else's function arbitrates its calls.
/// # Panics
/// Inside an operation, where nothing may sleep.
/// # Cost
/// To the object's callers some tens of nanoseconds for each call meanwhile, and nothing before or after. Memory: 128 bytes
/// for each VP, meanwhile.
pub fn count_calls(id: Id, span: Duration) -> Result<Calls, SwapError> {
    assert!(
        !squall_rcu::in_operation(),
        "calls of an object were to be counted inside an operation, which must not sleep"
    );
    let sampler = Sampler::begin(id)?;
    std::thread::sleep(span);
    Ok(sampler.end())
}
