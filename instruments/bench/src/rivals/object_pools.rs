//! Pools of buffers, each used as its documentation advises.

use lockfree_object_pool::LinearObjectPool;

use crate::case::Setting;
use crate::work::object_pool::{AsyncBuffers, Buffer, Buffers, objects};

/// `object-pool-crate`: the crate `object-pool`, a stack under a lock.
pub(crate) struct ObjectPoolCrate(object_pool::Pool<Buffer>);

impl Buffers for ObjectPoolCrate {
    fn new(setting: &Setting) -> Self {
        ObjectPoolCrate(object_pool::Pool::new(objects(setting), Buffer::new))
    }

    #[inline(always)]
    fn touch_one(&self) -> u64 {
        self.0.pull(Buffer::new).touch()
    }
}

/// `lockfree-object-pool`: the fastest of its three pools.
pub(crate) struct LockfreeObjectPool(LinearObjectPool<Buffer>);

impl Buffers for LockfreeObjectPool {
    fn new(_: &Setting) -> Self {
        LockfreeObjectPool(LinearObjectPool::new(Buffer::new, |_| ()))
    }

    #[inline(always)]
    fn touch_one(&self) -> u64 {
        self.0.pull().touch()
    }
}

/// `opool`: a bounded queue of objects.
pub(crate) struct Opool(opool::Pool<Maker, Buffer>);

pub(crate) struct Maker;

impl opool::PoolAllocator<Buffer> for Maker {
    #[inline(always)]
    fn allocate(&self) -> Buffer {
        Buffer::new()
    }
}

impl Buffers for Opool {
    fn new(setting: &Setting) -> Self {
        Opool(opool::Pool::new_prefilled(objects(setting), Maker))
    }

    #[inline(always)]
    fn touch_one(&self) -> u64 {
        self.0.get().touch()
    }
}

/// `locked-vec`: a stack under a lock of `parking_lot`.
pub(crate) struct LockedVec(parking_lot::Mutex<Vec<Buffer>>);

impl Buffers for LockedVec {
    fn new(setting: &Setting) -> Self {
        LockedVec(parking_lot::Mutex::new((0..objects(setting)).map(|_| Buffer::new()).collect()))
    }

    #[inline(always)]
    fn touch_one(&self) -> u64 {
        let got = self.0.lock().pop();
        let mut buffer = got.unwrap_or_else(Buffer::new);
        let uses = buffer.touch();
        self.0.lock().push(buffer);
        uses
    }
}

/// `deadpool`, unmanaged: a queue behind a semaphore of tokio.
pub(crate) struct Deadpool(deadpool::unmanaged::Pool<Buffer>);

impl AsyncBuffers for Deadpool {
    fn new(setting: &Setting) -> Self {
        Deadpool((0..objects(setting)).map(|_| Buffer::new()).collect::<Vec<_>>().into())
    }

    async fn touch_one(&self) -> u64 {
        self.0.get().await.expect("the pool is open").touch()
    }
}
