//! Squall's only source of atomics, cells, locks and threads.
//!
//! In an ordinary build they are std's. With `--cfg loom` they are loom's, so that loom checks the code that
//! ships. Every crate of Squall that synchronises takes its primitives from here.

/// Atomic types and fences.
pub mod atomic {
    #[cfg(loom)]
    pub use loom::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
        AtomicUsize, Ordering, fence,
    };
    #[cfg(not(loom))]
    pub use std::sync::atomic::{
        AtomicBool, AtomicI32, AtomicI64, AtomicIsize, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64,
        AtomicUsize, Ordering, compiler_fence, fence,
    };
}

#[cfg(loom)]
pub use loom::sync::{Arc, Condvar, Mutex, MutexGuard};
// Loom has no `OnceLock`. A model uses std's, which loom sees as no step at all: in a model no thread ever
// waits in it.
/// The count of a waker or of a value that no protocol depends on: std's in models too.
pub use std::sync::Arc as StdArc;
#[cfg(loom)]
pub use std::sync::OnceLock;
#[cfg(not(loom))]
pub use std::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, Once, OnceLock, Weak};

/// Locks `mutex`, and ignores poison.
///
/// # Panics
/// In the child of a fork, if the mutex is held: its holder may not exist there. `data` names the data.
#[cfg(not(loom))]
#[track_caller]
pub fn lock<'a, T: ?Sized>(mutex: &'a Mutex<T>, data: &str) -> MutexGuard<'a, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(std::sync::TryLockError::Poisoned(poison)) => poison.into_inner(),
        Err(std::sync::TryLockError::WouldBlock) => {
            assert!(
                !crate::fork::forked(),
                "squall: {data} cannot be locked in the child of a fork, where the holder of the lock may not exist; \
                 such a child may only exec"
            );
            mutex.lock().unwrap_or_else(|poison| poison.into_inner())
        }
    }
}

/// Locks `mutex`, and ignores poison.
#[cfg(loom)]
pub fn lock<'a, T>(mutex: &'a Mutex<T>, _data: &str) -> MutexGuard<'a, T> {
    mutex.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Threads, from std or loom.
pub mod thread {
    #[cfg(loom)]
    pub use loom::thread::*;
    #[cfg(not(loom))]
    pub use std::thread::*;
}

/// Spin hints.
pub mod hint {
    #[cfg(loom)]
    pub use loom::hint::spin_loop;
    #[cfg(not(loom))]
    pub use std::hint::spin_loop;
}

/// Statics that loom creates anew for each execution of a model.
#[cfg(loom)]
pub use loom::lazy_static;

pub mod cell;
pub mod handed;
pub mod one_writer;
pub mod recheck;
pub mod safeguard;
pub mod weaken;
