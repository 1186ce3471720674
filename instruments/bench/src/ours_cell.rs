//! Squall in the case `cell`, as an application would use it.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use squall::objects::cell::{self, Published, ReadMostly, Reading};
use squall::{ClusterSize, CoRef};
use squall_parts::replica::{Master, Replica};

use crate::cases::cell::{Kept, Value, value};

/// `squall-embedded`: the constituent alone, in somebody's own structure; no thread keeps anything.
pub(crate) struct Embedded(Master<Value>);

impl Kept for Embedded {
    type Reader<'a> = ();

    fn new(_: usize) -> Embedded {
        Embedded(Master::new(value(1)))
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, (): &mut ()) -> u64 {
        self.0.read(|value| value[0])
    }

    fn set(&self, value: Value) {
        self.0.set(value, |_| ());
    }
}

/// `squall-replicas`: the same with a replica for each thread, as for each processor or cluster in somebody's own
/// representatives.
pub(crate) struct Replicated {
    master: CachePadded<Master<Value>>,
    replicas: Vec<CachePadded<Replica<Value>>>,
    /// Readers that were given one.
    given: AtomicUsize,
}

impl Kept for Replicated {
    type Reader<'a> = &'a Replica<Value>;

    fn new(threads: usize) -> Replicated {
        let master = CachePadded::new(Master::new(value(1)));
        let replicas = (0..threads).map(|_| CachePadded::new(master.replica())).collect();
        Replicated { master, replicas, given: AtomicUsize::new(0) }
    }

    fn reader(&self) -> &Replica<Value> {
        let given = self.given.fetch_add(1, Ordering::Relaxed);
        &self.replicas[given % self.replicas.len()]
    }

    #[inline(always)]
    fn read(&self, reader: &mut &Replica<Value>) -> u64 {
        reader.read(&self.master, |value| value[0])
    }

    fn set(&self, value: Value) {
        self.master.set(value, |reach| self.replicas.iter().for_each(|replica| reach(replica)));
    }
}

/// How an object is made.
pub(crate) trait Form: Send + Sync + 'static {
    fn make(value: Value) -> ReadMostly<Value>;
}

/// `squall-shared`.
pub(crate) struct Shared;

impl Form for Shared {
    fn make(value: Value) -> ReadMostly<Value> {
        cell::shared(value)
    }
}

/// `squall-distributed`: a replica for each processor, so that there are some to update on a small machine too.
pub(crate) struct Distributed;

impl Form for Distributed {
    fn make(value: Value) -> ReadMostly<Value> {
        cell::distributed(value, ClusterSize::Cpu)
    }
}

/// `squall-adaptive`.
pub(crate) struct Adaptive;

impl Form for Adaptive {
    fn make(value: Value) -> ReadMostly<Value> {
        cell::adaptive(value)
    }
}

/// An object, called by a reference that all have.
pub(crate) struct Object<F> {
    co: CoRef<dyn Published<Value>>,
    _owner: ReadMostly<Value>,
    form: std::marker::PhantomData<F>,
}

impl<F: Form> Kept for Object<F> {
    type Reader<'a> = ();

    fn new(_: usize) -> Object<F> {
        let owner = F::make(value(1));
        Object { co: owner.co(), _owner: owner, form: std::marker::PhantomData }
    }

    fn reader(&self) {}

    #[inline(always)]
    fn read(&self, (): &mut ()) -> u64 {
        self.co.read(|value| value[0])
    }

    fn set(&self, value: Value) {
        self.co.set(value);
    }
}
