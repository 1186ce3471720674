//! Subjects `squall-*` of the case `cell`, used as an application would.

use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use squall::objects::read_mostly::{self, OwnedReadMostly, ReadMostly, ReadMostlyExt};
use squall::{ClusterSize, Handle};
use squall_parts::replica::{Master, Replica};

use crate::rivals::cells::{Kept, Value, value};

/// `squall-embedded`: the master alone, as embedded in another structure; the threads keep no replica.
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

/// `squall-replicas`: a master with one replica per thread, like one per processor or cluster in a user's own
/// representatives.
pub(crate) struct Replicated {
    master: CachePadded<Master<Value>>,
    replicas: Vec<CachePadded<Replica<Value>>>,
    /// Number of readers that have received a replica.
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

/// Makes one form of the object.
pub(crate) trait Form: Send + Sync + 'static {
    fn make(value: Value) -> OwnedReadMostly<Value>;
}

/// `squall-shared`.
pub(crate) struct Shared;

impl Form for Shared {
    fn make(value: Value) -> OwnedReadMostly<Value> {
        read_mostly::shared(value)
    }
}

/// `squall-distributed`: one replica per processor, so that a small machine too has replicas to update.
pub(crate) struct Distributed;

impl Form for Distributed {
    fn make(value: Value) -> OwnedReadMostly<Value> {
        read_mostly::distributed(value, ClusterSize::Cpu)
    }
}

/// `squall-adaptive`.
pub(crate) struct Adaptive;

impl Form for Adaptive {
    fn make(value: Value) -> OwnedReadMostly<Value> {
        read_mostly::adaptive(value)
    }
}

/// An object, called through a handle that all threads copy.
pub(crate) struct Object<F> {
    co: Handle<dyn ReadMostly<Value>>,
    _owner: OwnedReadMostly<Value>,
    form: std::marker::PhantomData<F>,
}

impl<F: Form> Kept for Object<F> {
    type Reader<'a> = ();

    fn new(_: usize) -> Object<F> {
        let owner = F::make(value(1));
        Object { co: owner.handle(), _owner: owner, form: std::marker::PhantomData }
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
