//! Subjects `squall-*` of the case `first-touch`, used as an application would.

use squall::ClusterSize;
use squall::objects::directory::{self, OwnedDirectory, Parts};
use squall::objects::map::{self, MapExt, OwnedMap};

use crate::cases::first_touch::{THREAD_SHIFT, Touch};

/// `squall-locked`: one table under one lock.
pub(crate) struct Locked(OwnedMap<u64, u64>);

/// `squall-central`: one table for all threads, changed without a lock.
pub(crate) struct Central(OwnedMap<u64, u64>);

/// `squall-partitioned`: a table for each thread's keys.
pub(crate) struct Partitioned(OwnedMap<u64, u64>);

/// `squall-distributed`: a master table, and a table of parts for each processor.
pub(crate) struct Distributed(OwnedDirectory<u64, u64, u64>);

fn touch(map: &OwnedMap<u64, u64>, key: u64) {
    assert_eq!(map.get_or_insert_with(key, || 1), 1);
}

impl Touch for Locked {
    fn new(_: usize) -> Locked {
        Locked(map::locked())
    }

    #[inline]
    fn touch(&self, key: u64) {
        touch(&self.0, key);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Touch for Central {
    fn new(_: usize) -> Central {
        Central(map::shared())
    }

    #[inline]
    fn touch(&self, key: u64) {
        touch(&self.0, key);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Touch for Partitioned {
    fn new(threads: usize) -> Partitioned {
        Partitioned(map::partitioned(threads, |key| (key >> THREAD_SHIFT) as usize))
    }

    #[inline]
    fn touch(&self, key: u64) {
        touch(&self.0, key);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl Touch for Distributed {
    fn new(_: usize) -> Distributed {
        Distributed(directory::distributed(ClusterSize::Cpu, |_| 0))
    }

    #[inline]
    fn touch(&self, key: u64) {
        let count = |entry: &u64, part: &mut u64| {
            *part += entry;
            *part
        };
        assert_eq!(self.0.get_or_make(&key, || 1, count), 1);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}
