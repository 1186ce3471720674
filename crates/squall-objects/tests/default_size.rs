//! Objects that follow the default cluster size.
//!
//! A program of its own: the machine and its default belong to the process.
#![cfg(not(any(loom, miri)))]

use squall_adapt::control;
use squall_core::{Handle, RepContext, Root};
use squall_machine::{ClusterSize, Machine, machine};
use squall_macros::interface;
use squall_objects::map::{self, Map};
use squall_objects::read_mostly::{self, COPIED, ReadMostly};
use std::hash::RandomState;

/// An object that tells its cluster size.
#[interface(crate = squall_core)]
trait Clustered: Send + Sync {
    fn size(&self) -> ClusterSize;
}

struct Spread;

struct Rep(RepContext<Spread>);

impl Clustered for Rep {
    fn size(&self) -> ClusterSize {
        self.0.clusters().size()
    }
}

impl Root for Spread {
    type Interface = dyn Clustered;
    type Rep = Rep;

    fn make_rep(&self, at: RepContext<Spread>) -> Rep {
        Rep(at)
    }
}

/// Returns the cluster sizes of a new object without a size, a new partitioned map, and a new adaptive value
/// in its form with copies.
fn sizes_of_new() -> [ClusterSize; 3] {
    let parts = map::partitioned::<u64, u64>(4, |key| key as usize);
    let value = read_mostly::adaptive(5);
    assert_eq!(value.cluster_size(), ClusterSize::Machine, "an adaptive value starts central");
    control::swap(Handle::id(value.handle()), COPIED).unwrap();
    [Spread.create_default().size(), parts.cluster_size(), value.cluster_size()]
}

#[test]
fn x_30_objects_without_a_size_follow_the_default_while_it_changes() {
    Machine::set_virtual("nodes:2,cores:4".parse().unwrap()).unwrap();
    // Each object has a good size of its own until a default is set.
    assert_eq!(sizes_of_new(), [ClusterSize::Core, ClusterSize::Cpu, ClusterSize::Cache]);
    let earlier = map::partitioned::<u64, u64>(4, |key| key as usize);
    for size in [ClusterSize::Node, ClusterSize::fixed(3), ClusterSize::Machine, ClusterSize::Cpu] {
        machine().set_default_cluster_size(size);
        assert_eq!(sizes_of_new(), [size; 3]);
        assert_eq!(earlier.cluster_size(), ClusterSize::Cpu, "an existing object keeps its size");
        // Explicit sizes stay explicit.
        let explicit = ClusterSize::fixed(2);
        let parts = map::partitioned_with::<u64, u64, _>(4, |key| key as usize, explicit, RandomState::new());
        let value = read_mostly::distributed(5, explicit);
        let sizes = [Spread.create(explicit).size(), parts.cluster_size(), value.cluster_size()];
        assert_eq!(sizes, [explicit; 3]);
        // A central form has one representative by its nature.
        assert_eq!(read_mostly::shared(5).cluster_size(), ClusterSize::Machine);
    }
}
