//! Implementations of interfaces of two other crates: a shared one and a distributed one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use extended::Resettable;
use interfaces::Hits;
use squall::prelude::*;

#[derive(Default)]
struct Shared(AtomicU64);

impl Hits<u64> for Shared {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Resettable for Shared {
    fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

struct PerCpu;

struct Local {
    own: Shared,
    context: RepContext<PerCpu>,
}

impl Root for PerCpu {
    type Interface = dyn Resettable;
    type Rep = Local;
    fn make_rep(&self, context: RepContext<Self>) -> Local {
        Local { own: Shared::default(), context }
    }
}

impl Hits<u64> for Local {
    fn add(&self, n: u64) {
        self.own.add(n);
    }
    fn total(&self) -> u64 {
        self.context.reps().map(|rep| rep.own.total()).sum()
    }
}

impl Resettable for Local {
    fn reset(&self) {
        self.context.reps().for_each(|rep| rep.own.reset());
    }
}

fn main() {
    let shared: Owned<dyn Resettable> = squall::shared(Shared::default());
    let distributed: Owned<dyn Resettable> = PerCpu.create(ClusterSize::Cpu);
    for object in [shared, distributed] {
        let hits: Handle<dyn Hits<u64>> = Handle::upcast::<dyn Hits<u64>>(object.handle());
        hits.add(2);
        object.add(1);
        assert_eq!((hits.total(), object.total()), (3, 3));
        object.reset();
        assert_eq!(hits.total(), 0);
        drop(object);
        assert_eq!(hits.try_total().unwrap_err().interface(), "Hits");
    }
}
