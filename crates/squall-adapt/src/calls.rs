//! Call samples: counts of an object's calls by VP and method, over a short span and only on request.
//!
//! Problem: the fast path of a call counts no calls, so past call rates are unknown. Idea: for some hundred
//! microseconds every call passes through an arbiter that counts it by VP and method. Between samples a call
//! has its usual cost.
//!
//! - I1. A board has one arbiter at a time: the sampler owns the board's arbiter as long as it counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use squall_core::Id;
use squall_core::swap::{Arbiter, SwapError, arbitrate_object};
use squall_machine::{Vp, machine};

/// Largest number of methods that are counted separately. Calls of the others are counted together, as
/// [`Calls::OTHERS`].
const METHODS: usize = 15;

/// Calls of an object, counted over one span. Returned by [`count_calls`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Calls {
    /// Duration of the count.
    pub span: Duration,
    /// Calls by method, for the methods that were called.
    pub by_method: Vec<(&'static str, u64)>,
    /// Calls by VP, for the VPs that called.
    pub by_vp: Vec<(Vp, u64)>,
    /// Calls by VP and method: a row for each entry of `by_vp`, a column for each entry of `by_method`.
    pub table: Vec<Vec<u64>>,
}

impl Calls {
    /// Name for the calls of all methods beyond the first fifteen that were called.
    pub const OTHERS: &str = "others";

    /// Returns the number of calls.
    pub fn count(&self) -> u64 {
        self.by_vp.iter().map(|(_, count)| count).sum()
    }

    /// Returns the calls of one method per second, for each VP that called the object.
    pub fn rates_of<'a>(&'a self, method: &'a str) -> impl Iterator<Item = (Vp, f64)> + 'a {
        let column = self.by_method.iter().position(|(name, _)| *name == method);
        let seconds = self.span.as_secs_f64().max(1e-9);
        self.by_vp
            .iter()
            .zip(&self.table)
            .map(move |((vp, _), row)| (*vp, column.map_or(0.0, |column| row[column] as f64 / seconds)))
    }

    /// Returns the calls of one method per second.
    pub fn rate_of(&self, method: &str) -> f64 {
        self.rates_of(method).map(|(_, rate)| rate).sum()
    }
}

/// Counts of one VP, on cache lines of their own.
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

    /// Returns the column of a method. Names are compared as pointers first, because a method normally has
    /// one name pointer.
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
        // A VP beyond the limit cannot occur. If it did, its call would go uncounted rather than fail.
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

/// A count of an object's calls in progress.
#[derive(Debug)]
pub(crate) struct Sampler {
    board: Arc<Board>,
    /// Start of the count, on the caller's clock.
    began: Duration,
    arbiter: Arbiter,
}

impl Sampler {
    pub(crate) fn begin(id: Id, now: Duration) -> Result<Sampler, SwapError> {
        let board = Arc::new(Board::new());
        let counting = Arc::clone(&board);
        let arbiter = arbitrate_object(id, move |call| counting.count(call.method()))?;
        Ok(Sampler { board, began: now, arbiter })
    }

    pub(crate) fn end(self, now: Duration) -> Calls {
        let span = now.saturating_sub(self.began);
        self.arbiter.detach();
        self.board.read(span)
    }
}

/// Counts the calls of an object for a span, by VP and method. The calling thread sleeps during the span.
///
/// Only one arbiter can be attached to an object, so [`squall_core::swap::arbitrate`] returns an error during
/// the span. For an adaptive object the engine counts from time to time, for a fraction of a millisecond.
///
/// # Errors
/// [`SwapError`]: the object was destroyed, is being swapped, or has another arbiter.
/// # Panics
/// Inside an operation, where a thread must not sleep.
/// # Cost
/// Callers of the object pay some tens of nanoseconds for each call during the span, and no extra time before
/// or after. Memory: 128 bytes for each VP during the span.
///
/// ```
/// use squall::Handle;
/// use squall::adapt::calls::count_calls;
/// use std::time::Duration;
/// # #[squall::interface]
/// # trait Hits: Send + Sync { fn add(&self) -> u32; }
/// # struct Count;
/// # impl Hits for Count { fn add(&self) -> u32 { 1 } }
/// # let hits: squall::Owned<dyn Hits> = squall::shared(Count);
/// let calls = count_calls(Handle::id(hits.handle()), Duration::from_micros(300))?;
/// assert_eq!((calls.count(), calls.rate_of("add")), (0, 0.0));
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub fn count_calls(id: Id, span: Duration) -> Result<Calls, SwapError> {
    assert!(
        !squall_rcu::in_operation(),
        "count_calls was called inside an operation, where a thread must not sleep; call it outside"
    );
    let began = Instant::now();
    let sampler = Sampler::begin(id, Duration::ZERO)?;
    std::thread::sleep(span);
    Ok(sampler.end(began.elapsed()))
}
