//! Subject `squall` of the case `swap`: objects with and without state, and one that counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use squall::swap::{Replacement, RootFormats, State, StateFormats, Swap, SwapFailure};
use squall::{ClusterSize, Handle, ObjectState, Owned, RepContext, Root};

use crate::objects::{Field, Hits, Probe};
use crate::ours_core::PerProcessor;
use crate::ours_machine::on_processor;
use crate::work::replace::{Replace, Replaced, Shape, checked};

/// An object that is swapped for others of its shape.
pub(crate) struct Ours {
    owner: Owned<dyn Probe>,
    shape: Shape,
    /// Successful swaps.
    swaps: AtomicU64,
}

impl Ours {
    pub(crate) fn new(shape: Shape) -> Result<Ours, String> {
        let owner = new(&shape, true).create().map_err(|error| error.to_string())?;
        let ours = Ours { owner, shape, swaps: AtomicU64::new(0) };
        ours.settle();
        Ok(ours)
    }

    pub(crate) fn handle(&self) -> Handle<dyn Probe> {
        self.owner.handle()
    }

    fn info(&self) -> Option<squall::ObjectInfo> {
        squall::info_of(Handle::id(self.handle()))
    }

    /// Whether a swap of the object is under way.
    pub(crate) fn is_swapping(&self) -> bool {
        self.info().is_some_and(|info| info.state == ObjectState::Swapping)
    }

    /// Number of its representatives once all are made.
    pub(crate) fn reps(&self) -> usize {
        self.settle();
        self.info().map_or(0, |info| info.reps.len())
    }

    /// Checks that the object lives and serves calls.
    pub(crate) fn check(&self) -> Result<(), String> {
        let state = self.info().map(|info| info.state);
        let swaps = self.swaps.load(Ordering::Relaxed);
        if state == Some(ObjectState::Live) && swaps > 0 {
            return Ok(());
        }
        Err(format!("the object must be live after at least one swap; after {swaps} it is {state:?}"))
    }
}

/// Makes an implementation of this shape, with its state or ready to import it.
fn new(shape: &Shape, filled: bool) -> Replacement<dyn Probe> {
    let bytes = shape.state_bytes.unwrap_or(0);
    match shape.reps {
        Some(reps) => {
            let size = if reps == 1 { ClusterSize::Machine } else { ClusterSize::Cpu };
            Replacement::root(Spread { part_bytes: bytes / reps, filled }, size)
        }
        None if shape.state_bytes.is_none() => Replacement::shared(Field::new()),
        None if shape.by_pointer => Replacement::swappable(Pointed {
            field: Field::new(),
            state: fill(filled, || vec![1; bytes].into()),
        }),
        None => {
            Replacement::swappable(Copied { field: Field::new(), state: fill(filled, || vec![1; bytes]) })
        }
    }
}

fn fill<T>(filled: bool, state: impl FnOnce() -> T) -> OnceLock<T> {
    if filled { OnceLock::from(state()) } else { OnceLock::new() }
}

impl Replace for Ours {
    #[inline]
    fn calls(&self, count: u64) {
        let co = self.handle();
        checked(count, |n| std::hint::black_box(&co).get(n));
    }

    fn replace(&self) -> Result<Replaced, String> {
        let swap = match self.shape.state_bytes {
            Some(_) => Swap::new(self.handle()),
            None => Swap::new(self.handle()).without_state(),
        };
        match swap.run(new(&self.shape, false)) {
            Ok(report)
                if report.bytes == self.shape.state_bytes.map_or(0, |bytes| self.moved_bytes(bytes)) =>
            {
                self.swaps.fetch_add(1, Ordering::Relaxed);
                Ok(Replaced::swapped(report))
            }
            Ok(report) => Err(format!("{} bytes of state moved: {report:?}", report.bytes)),
            Err(error) => match error.failure() {
                SwapFailure::TimedOut(_) => Ok(Replaced::TIMED_OUT),
                _ => Err(error.to_string()),
            },
        }
    }

    fn settle(&self) {
        let co = self.handle();
        for index in 0..self.shape.reps.unwrap_or(1) {
            if self.shape.reps.is_some_and(|reps| reps > 1) {
                // The shape has a representative on each of these processors.
                let _ = on_processor(index, || co.get(0));
            } else {
                co.get(0);
            }
        }
    }
}

impl Ours {
    /// Number of bytes that the state format of this shape counts for `bytes`.
    fn moved_bytes(&self, bytes: usize) -> usize {
        if self.shape.by_pointer { size_of::<Arc<[u8]>>() } else { bytes }
    }
}

/// Error of an import that is called twice, or of an export without state.
const NOT_ONCE: &str = "the state was not moved exactly once";

/// State that a swap copies.
struct Copied {
    field: Field,
    state: OnceLock<Vec<u8>>,
}

impl Probe for Copied {
    fn get(&self, n: u64) -> u64 {
        self.field.get(n)
    }
}

impl State for Copied {
    fn formats(formats: &mut StateFormats<'_, Copied>) {
        formats
            .export(|this| Ok(this.state.get().ok_or(NOT_ONCE)?.clone()))
            .import(|this, state: Vec<u8>| Ok(this.state.set(state).map_err(|_| NOT_ONCE)?));
    }
}

/// State that a swap shares.
struct Pointed {
    field: Field,
    state: OnceLock<Arc<[u8]>>,
}

impl Probe for Pointed {
    fn get(&self, n: u64) -> u64 {
        self.field.get(n)
    }
}

impl State for Pointed {
    fn formats(formats: &mut StateFormats<'_, Pointed>) {
        formats
            .export(|this| Ok(Arc::clone(this.state.get().ok_or(NOT_ONCE)?)))
            .import(|this, state: Arc<[u8]>| Ok(this.state.set(state).map_err(|_| NOT_ONCE)?));
    }
}

/// State in parts.
struct Spread {
    part_bytes: usize,
    filled: bool,
}

/// The part of one representative. A representative made by a call after the transfer has no part.
struct SpreadPart {
    field: Field,
    state: OnceLock<Vec<u8>>,
    _at: RepContext<Spread>,
}

impl Root for Spread {
    type Interface = dyn Probe;
    type Rep = SpreadPart;

    fn make_rep(&self, at: RepContext<Spread>) -> SpreadPart {
        let state = fill(self.filled, || vec![1; self.part_bytes]);
        SpreadPart { field: Field::new(), state, _at: at }
    }

    fn formats(formats: &mut RootFormats<'_, Spread>) {
        formats
            .export_part(|_, rep| Ok(rep.state.get().cloned().unwrap_or_default()))
            .import_part(|_, rep, state: Vec<u8>| Ok(rep.state.set(state).map_err(|_| NOT_ONCE)?));
    }
}

impl Probe for SpreadPart {
    fn get(&self, n: u64) -> u64 {
        self.field.get(n)
    }
}

/// A distributed counter; each swap moves its counts.
pub(crate) struct Counting(Owned<dyn Hits>);

impl Counting {
    pub(crate) fn new() -> Counting {
        Counting(PerProcessor.create(ClusterSize::Cpu))
    }

    /// Checks that no call was lost or ran twice.
    pub(crate) fn check(&self, calls: u64) -> Result<(), String> {
        let counted = self.0.total();
        if counted == calls { Ok(()) } else { Err(format!("of {calls} calls {counted} were counted")) }
    }
}

impl Replace for Counting {
    #[inline]
    fn calls(&self, count: u64) {
        let co = self.0.handle();
        (0..count).for_each(|_| std::hint::black_box(&co).add(1));
    }

    fn replace(&self) -> Result<Replaced, String> {
        match Swap::new(self.0.handle()).run(Replacement::root(PerProcessor, ClusterSize::Cpu)) {
            Ok(report) => Ok(Replaced::swapped(report)),
            Err(error) => match error.failure() {
                SwapFailure::TimedOut(_) => Ok(Replaced::TIMED_OUT),
                _ => Err(error.to_string()),
            },
        }
    }
}
