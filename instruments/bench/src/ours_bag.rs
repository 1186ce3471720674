//! Subjects `squall` of the cases of pools.

use squall::parts::bag::Bag;

use crate::rivals::bags::Direct;
use crate::work::bag::{Access, Unordered};
use crate::work::object_pool::{Buffer, Buffers, OBJECTS};

impl Unordered for Bag<u64> {
    fn new(_: usize) -> Self {
        Bag::new()
    }

    fn access(&self, _: usize) -> impl Access + '_ {
        Direct(self)
    }

    fn take_left(&self) -> Option<u64> {
        self.here().get()
    }
}

/// Each call finds out where the thread is, since it may have moved.
impl Access for Direct<'_, Bag<u64>> {
    #[inline(always)]
    fn put(&mut self, value: u64) {
        self.0.here().put(value);
    }

    #[inline(always)]
    fn get(&mut self) -> Option<u64> {
        self.0.here().get()
    }
}

impl Buffers for Bag<Buffer> {
    fn new() -> Self {
        let bag = Bag::new();
        bag.here().put_batch((0..OBJECTS).map(|_| Buffer::new()));
        bag
    }

    #[inline(always)]
    fn touch_one(&self) -> u64 {
        let mut buffer = self.here().get().unwrap_or_else(Buffer::new);
        let uses = buffer.touch();
        self.here().put(buffer);
        uses
    }
}
