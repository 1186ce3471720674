//! Subjects `squall-*` of the cases about cluster sizes, used as an application would.

use squall::ClusterSize;
use squall::objects::directory::{self, OwnedDirectory, Parts};

/// Keys of the case `cluster-size`: a directory with a part of each key for each cluster.
pub(crate) struct Keys(OwnedDirectory<u64, (), u64>);

impl Keys {
    /// Makes keys from 0 on, with parts for clusters of `size` processors.
    pub(crate) fn new(size: u32, keys: u64) -> Keys {
        let directory = directory::distributed(ClusterSize::fixed(size), |()| 0);
        (0..keys).for_each(|key| directory.get_or_make(&key, || (), |(), _| ()));
        Keys(directory)
    }

    /// Makes the part of this cluster.
    pub(crate) fn settle(&self, key: u64) {
        self.0.update(&key, |(), _| ()).expect("the key is there");
    }

    /// Counts a use in the part of this cluster.
    #[inline]
    pub(crate) fn use_once(&self, key: u64) {
        self.0.update(&key, |(), uses| *uses += 1).expect("the key is there");
    }

    /// Sums the uses in all parts.
    #[inline]
    pub(crate) fn question(&self, key: u64) -> u64 {
        self.0.gather(&key, 0, |sum, (), uses| *sum += *uses).expect("the key is there")
    }
}
