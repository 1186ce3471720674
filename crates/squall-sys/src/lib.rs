//! What Linux gives to Squall, each with the portable fallback that keeps the floors above correct without it.
//!
//! Invariant of the crate: a function here does what its name says or returns an error; nothing here chooses a policy,
//! keeps a thread, or knows what a virtual processor, an operation or an object is.
//!
//! Does not know: virtual processors, operations, objects.
//!
//! Which kernel features are used, and since when: `membarrier` private expedited (4.14) and its restartable-sequence
//! form (5.10), restartable sequences (4.18, registered by glibc 2.35 and later), wipe-on-fork pages (4.14), futex.

pub mod affinity;
pub mod apart;
pub mod area;
pub mod fetch;
pub mod fork;
pub mod futex;
pub mod huge;
pub mod membarrier;
pub mod near;
pub mod nodes;
pub mod pages;
pub mod peer;
pub mod rseq;
pub mod rseq_memory;
pub mod sync;
pub mod tls;
