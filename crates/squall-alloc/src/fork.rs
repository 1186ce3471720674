//! A fork while other threads hold our locks.
//!
//! Problem: the child has only the forking thread, and the memory says that others hold locks. Idea: the forking thread takes them
//! all before, and gives them back in both.
//!
//! - I1. Locks are taken in the order that every other thread keeps: that of turns, the ground's, emptying's, those of heaps by their
//!   VPs, that of growing, those of pools.
//! - I2. A sequence of another thread is in the child's memory whole or not at all: what it stores before its commit lies above the
//!   count. A block that it took is lost in the child, as what its thread had is, and so are units that were leaving (`units/I4`), and
//!   a segment that was coming. The child's pools count neither, lest who finds no memory waits for what nobody brings.
//!
//! Not promised: anything in the child of a `vfork`, or from within a signal handler. Nor in what a program has called before a fork
//! (pthread_atfork(3)) if it asked for that before the ground was laid, that is before the first block or the first representative of a
//! clustered object: the C library calls it after [`prepare`], when all is locked, and it would wait for itself.
//! Cost: a lock for each VP whose heap was used.

use crate::ground::{GROWTH, SETTING, known};

/// Before the fork.
pub(crate) extern "C" fn prepare() {
    crate::decay::TURN.lock();
    SETTING.lock();
    crate::drain::EMPTYING.lock();
    let Some(ground) = known() else { return };
    for (_, part) in ground.parts_made() {
        part.heap().lock().lock();
    }
    GROWTH.lock().lock();
    for pool in &ground.pools {
        pool.lock().lock();
    }
}

/// After it, in both.
fn release() {
    if let Some(ground) = known() {
        for pool in &ground.pools {
            pool.lock().unlock();
        }
        GROWTH.lock().unlock();
        for (_, part) in ground.parts_made() {
            part.heap().lock().unlock();
        }
    }
    crate::drain::EMPTYING.unlock();
    SETTING.unlock();
    crate::decay::TURN.unlock();
}

/// After it, in the parent.
pub(crate) extern "C" fn parent() {
    release();
}

/// After it, in the child.
pub(crate) extern "C" fn child() {
    if let Some(ground) = known() {
        for pool in &ground.pools {
            // SAFETY: its lock is held since `prepare`.
            unsafe { pool.forget_others() };
        }
    }
    release();
}
