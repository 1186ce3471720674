//! The rivals, each used as its own documentation advises.
//!
//! The interfaces of the reclamation libraries are unsafe. Only the modules that call them may use `unsafe`
//! in this crate.

#[allow(unsafe_code)]
pub(crate) mod allocators;
pub(crate) mod arcdyn;
pub(crate) mod arcswap;
pub(crate) mod bags;
pub(crate) mod caches;
pub(crate) mod calls;
pub(crate) mod cells;
pub(crate) mod channels;
#[allow(unsafe_code)]
pub(crate) mod clones;
pub(crate) mod counters;
#[allow(unsafe_code)]
pub(crate) mod epoch;
#[allow(unsafe_code)]
pub(crate) mod faults;
pub(crate) mod frames;
pub(crate) mod gates;
pub(crate) mod hazarc;
#[allow(unsafe_code)]
pub(crate) mod hazard;
#[allow(unsafe_code)]
pub(crate) mod heap;
#[allow(unsafe_code)]
pub(crate) mod kernel_pages;
pub(crate) mod locks;
pub(crate) mod logs;
pub(crate) mod maps;
pub(crate) mod memcached;
pub(crate) mod object_pools;
pub(crate) mod queues;
pub(crate) mod rwlock;
pub(crate) mod rwlocks;
#[allow(unsafe_code)]
pub(crate) mod seize;
pub(crate) mod stores;
pub(crate) mod taking;
#[cfg(feature = "net")]
pub(crate) mod tarpc;
pub(crate) mod urcu;

/// Tries before the first yield of a rival that is polled.
const TRIES_BEFORE_YIELD: u32 = 64;

/// Spins a little, then yields, so that polling does not take the processor from the awaited reader.
pub(crate) fn spin_or_yield(tries: &mut u32) {
    *tries += 1;
    if *tries < TRIES_BEFORE_YIELD {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
