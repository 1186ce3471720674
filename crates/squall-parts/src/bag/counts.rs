//! Counts of a bag's rare steps: each shard has its own, written by its clients.

use squall_sys::sync::atomic::{AtomicU64, Ordering};

/// Makes the counts of a bag and of a shard.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// Counts of a bag's rare steps. Clients of one place that count at once may lose some.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The counts of a shard.
        #[derive(Default)]
        pub(super) struct OwnCounts {
            $(pub(super) $name: Count,)*
        }

        impl OwnCounts {
            pub(super) fn add_to(&self, sums: &mut Counts) {
                $(sums.$name = sums.$name.wrapping_add(self.$name.get());)*
            }
        }
    };
}

counts! {
    /// Transfers to a client that needed an element.
    demand_transfers
    /// Looks of such clients at another shard, or at the directory of shards with elements: the messages of
    /// the thesis.
    looks
    /// Transfers by idle clients to their own shard.
    pulls
    /// Transfers to another shard: by idle clients, of a shard that is too large, or of one that leaves.
    pushes
    /// Sizes told to other clients.
    estimates
    /// Elements moved between shards.
    moved
    /// Calls that found the bag empty.
    dry
    /// Shards that left.
    leaves
}

/// A count without atomic steps: threads that count at once may lose one.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, n: usize) {
        // A model has enough steps without them.
        if cfg!(loom) {
            return;
        }
        // Relaxed, not atomic together: statistics.
        self.0.store(self.get().wrapping_add(n as u64), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
