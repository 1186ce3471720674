//! A fork while other threads hold locks of the allocator.
//!
//! Problem: the child has only the forking thread, and its memory says that other threads hold locks. Idea:
//! the forking thread takes all locks before the fork, and releases them in both processes.
//!
//! - I1. The locks are taken in the order that every other thread keeps. First the lock of passes, the setup
//!   lock and the lock of draining; then the locks of heaps by VP, the lock of growth, and the locks of page
//!   pools.
//! - I2. A sequence of another thread is in the child's memory completely or not at all: its stores before
//!   the commit lie above the count. A block that it took is lost in the child, like all blocks of its
//!   thread. Units that were leaving (`page_pool/I4`) and a segment in preparation are lost, too. The child's
//!   pools count neither, so a thread without memory does not wait for them.
//!
//! Not promised: use in the child of a `vfork`, or in a signal handler. A `pthread_atfork` handler may have
//! been registered before the first allocation, or before the first representative of a clustered object. It
//! then runs after [`prepare`], while all locks are held. An allocation in such a handler deadlocks.
//! Cost: a lock for each VP with a used heap.

use crate::address_space::{GROWTH, SETUP, if_set_up};

/// Takes all locks before the fork.
pub(crate) extern "C" fn prepare() {
    crate::decay::PASS.lock();
    SETUP.lock();
    crate::drain::DRAINING.lock();
    let Some(space) = if_set_up() else { return };
    for (_, part) in space.parts_made() {
        part.heap().lock().lock();
    }
    GROWTH.lock().lock();
    for pool in &space.pools {
        pool.lock().lock();
    }
}

/// Releases all locks after the fork, in parent and child.
fn release() {
    if let Some(space) = if_set_up() {
        for pool in &space.pools {
            pool.lock().unlock();
        }
        GROWTH.lock().unlock();
        for (_, part) in space.parts_made() {
            part.heap().lock().unlock();
        }
    }
    crate::drain::DRAINING.unlock();
    SETUP.unlock();
    crate::decay::PASS.unlock();
}

/// Runs after the fork in the parent.
pub(crate) extern "C" fn parent() {
    release();
}

/// Runs after the fork in the child.
pub(crate) extern "C" fn child() {
    if let Some(space) = if_set_up() {
        for pool in &space.pools {
            // SAFETY: `prepare` took its lock, and it is held still.
            unsafe { pool.forget_others() };
        }
    }
    release();
}
