// A counter in two implementations, for the examples of the documentation.

use squall::swap::{RootFormats, State, StateFormats};
use squall::{RepContext, Root};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts events.
#[squall::interface]
pub trait Counter: Send + Sync {
    fn add(&self, n: u64);
    fn get(&self) -> u64;
}

/// One atomic for all callers.
#[derive(Default)]
pub struct Central(pub AtomicU64);

impl Counter for Central {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl State for Central {
    fn formats(formats: &mut StateFormats<'_, Central>) {
        formats.export_part(|this| Ok(this.get())).import_part(|this, n: u64| Ok(this.add(n)));
    }
}

/// The root of a counter with one atomic for each cluster.
pub struct Spread;

/// The representative of one cluster.
pub struct Local {
    pub context: RepContext<Spread>,
    pub count: AtomicU64,
}

impl Counter for Local {
    fn add(&self, n: u64) {
        self.count.fetch_add(n, Ordering::Relaxed);
    }
    fn get(&self) -> u64 {
        self.context.reps().map(|rep| rep.count.load(Ordering::Relaxed)).sum()
    }
}

impl Root for Spread {
    type Interface = dyn Counter;
    type Rep = Local;

    fn make_rep(&self, context: RepContext<Spread>) -> Local {
        Local { context, count: AtomicU64::new(0) }
    }
    fn formats(formats: &mut RootFormats<'_, Spread>) {
        formats
            .export_part(|_, rep| Ok(rep.count.load(Ordering::Relaxed)))
            .import_part(|_, rep, n: u64| Ok(rep.add(n)));
    }
}
