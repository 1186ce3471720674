//! The one door of Squall to atomics, cells and threads.
//!
//! Every crate of Squall that synchronises takes its primitives from here, so that a model checker can put its own in
//! their place (`--cfg loom`) and check the code in the form that ships.

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
// Loom has none. In a model std's is one step, which loom does not see: no thread ever waits in it there.
#[cfg(loom)]
pub use std::sync::OnceLock;
#[cfg(not(loom))]
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, OnceLock};

/// Threads.
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

/// What a model keeps for the whole of one execution.
#[cfg(loom)]
pub use loom::lazy_static;

pub mod cell;
pub mod weaken;
