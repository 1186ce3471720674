//! The subject of `object-pool`: an object taken from a pool, used once, and given back.

use std::any::Any;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use tokio::runtime::Builder;

use crate::case::{Make, Missing, Setting, Subject, Worker};

/// Objects in the pool, unless there are more threads.
const OBJECTS: usize = 16;

/// Returns the number of objects in the pool: at least one for each thread.
pub(crate) fn objects(setting: &Setting) -> usize {
    OBJECTS.max(setting.threads)
}

/// A pooled object: a buffer of 1 KiB, with a word that each user changes.
pub(crate) struct Buffer(Box<[u64; 128]>);

impl Buffer {
    pub(crate) fn new() -> Buffer {
        Buffer(Box::new([0; 128]))
    }

    /// Uses the buffer once. Returns the number of uses before.
    #[inline(always)]
    pub(crate) fn touch(&mut self) -> u64 {
        let before = self.0[0];
        self.0[0] = before + 1;
        before
    }
}

/// A pool of buffers. There are as many buffers as threads or more, so no thread waits.
pub(crate) trait Buffers: Send + Sync {
    /// Makes a pool for [`objects`] buffers.
    fn new(setting: &Setting) -> Self
    where
        Self: Sized;

    /// Takes a buffer, uses it once, and gives it back. Returns the result of [`Buffer::touch`].
    fn touch_one(&self) -> u64;

    /// Takes a buffer, and gives it back when the result is dropped. For a pool that makes its buffers, so
    /// that each thread has one.
    fn hold(&self) -> Option<Box<dyn Any>> {
        None
    }
}

/// A pool for tasks, which may wait for a buffer.
pub(crate) trait AsyncBuffers: Send + Sync {
    /// Makes a pool for [`objects`] buffers.
    fn new(setting: &Setting) -> Self
    where
        Self: Sized;

    /// Takes a buffer, uses it once, and gives it back. Returns the result of [`Buffer::touch`].
    fn touch_one(&self) -> impl Future<Output = u64>
    where
        Self: Sized;
}

/// The variant in tasks.
pub(crate) const ASYNC: &str = "async";
/// Operations of a task.
const TASK: u64 = 256;

struct Lending<P> {
    pool: CachePadded<P>,
    objects: usize,
    /// The most uses of a buffer that a thread saw.
    most: CachePadded<AtomicU64>,
}

/// Makes the subject that uses the buffers of `P`.
pub(crate) const fn lending<P: Buffers + 'static>() -> Make {
    fn make<P: Buffers + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        if setting.variant.name == ASYNC {
            return Err(Missing::no_part());
        }
        let pool = CachePadded::new(P::new(setting));
        Ok(Box::new(Lending::<P> { pool, objects: objects(setting), most: CachePadded::default() }))
    }
    make::<P>
}

/// Makes the subject that uses the buffers of `P` in tasks, each thread in a runtime of its own.
pub(crate) const fn lending_async<P: AsyncBuffers + 'static>() -> Make {
    fn make<P: AsyncBuffers + 'static>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        if setting.variant.name != ASYNC {
            return Err(Missing::no_part());
        }
        let pool = CachePadded::new(P::new(setting));
        Ok(Box::new(LendingAsync::<P> { pool, objects: objects(setting), most: CachePadded::default() }))
    }
    make::<P>
}

/// Makes the subject that uses the buffers of `S`, or those of `A` in tasks, as the variant asks.
pub(crate) const fn lending_both<S: Buffers + 'static, A: AsyncBuffers + 'static>() -> Make {
    fn make<S: Buffers + 'static, A: AsyncBuffers + 'static>(
        setting: &Setting,
    ) -> Result<Box<dyn Subject>, Missing> {
        if setting.variant.name == ASYNC { lending_async::<A>()(setting) } else { lending::<S>()(setting) }
    }
    make::<S, A>
}

/// A buffer is not made anew for each use.
fn check_uses(most: &AtomicU64, objects: usize, ops: u64) -> Result<(), String> {
    let (least, most) = (ops / objects as u64 / 2, most.load(Ordering::Relaxed));
    if most >= least { Ok(()) } else { Err(format!("no buffer was used {least} times, but at most {most}")) }
}

impl<P: Buffers> Subject for Lending<P> {
    fn worker(&self, _: usize) -> Worker<'_> {
        // Makes everything that the thread's first use makes.
        black_box(self.pool.touch_one());
        let mut held = self.pool.hold();
        Box::new(move |ops| {
            drop(held.take());
            let most = (0..ops).map(|_| black_box(&*self.pool).touch_one()).max();
            self.most.fetch_max(most.unwrap_or(0), Ordering::Relaxed);
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        check_uses(&self.most, self.objects, ops)
    }
}

struct LendingAsync<P> {
    pool: CachePadded<P>,
    objects: usize,
    most: CachePadded<AtomicU64>,
}

impl<P: AsyncBuffers> Subject for LendingAsync<P> {
    fn worker(&self, _: usize) -> Worker<'_> {
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        black_box(runtime.block_on(self.pool.touch_one()));
        Box::new(move |ops| {
            let (mut most, mut left) = (0, ops);
            while left > 0 {
                let count = left.min(TASK);
                let task = async {
                    for _ in 0..count {
                        most = most.max(black_box(&*self.pool).touch_one().await);
                    }
                };
                runtime.block_on(task);
                left -= count;
            }
            self.most.fetch_max(most, Ordering::Relaxed);
        })
    }

    fn check(&self, ops: u64) -> Result<(), String> {
        check_uses(&self.most, self.objects, ops)
    }
}
