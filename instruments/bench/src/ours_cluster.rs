//! Subjects `squall-*` of the cases about cluster sizes, used as an application would.

use squall::ClusterSize;
use squall::objects::cached::{self, CachedMapExt, Form, OwnedCachedMap};
use squall::objects::directory::{self, OwnedDirectory, Parts};

use crate::cases::matmul::Block;

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

/// Blocks of the case `matmul`: a map with copies in each cluster that reads them.
pub(crate) struct Blocks(OwnedCachedMap<usize, Block>);

impl Blocks {
    /// Makes a map with copies for clusters of `size` processors.
    pub(crate) fn new(size: u32) -> Blocks {
        Blocks(cached::map(Form::distributed(ClusterSize::fixed(size))))
    }

    /// Replaces a block.
    #[inline]
    pub(crate) fn set(&self, number: usize, block: Block) {
        self.0.set(number, block);
    }

    /// Calls `f` with a block.
    #[inline]
    pub(crate) fn with<R>(&self, number: usize, f: impl FnOnce(&Block) -> R) -> R {
        self.0.with(&number, f).expect("the block is there")
    }
}
