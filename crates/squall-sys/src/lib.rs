//! Linux facilities that Squall builds on, each with a portable fallback that keeps the upper layers correct.
//!
//! Invariant of the crate: a function does its stated work or returns an error. The crate decides no policy
//! and starts no thread.
//!
//! Layering: the crate knows no virtual processors, operations or objects.
//!
//! Kernel features in use, with their first version: `membarrier` private expedited (4.14) and its
//! restartable-sequence form (5.10), restartable sequences (4.18, registered by glibc 2.35 and later),
//! wipe-on-fork pages (4.14), sealed files in memory (3.17), futex.
//!
//! Of userfaultfd (4.3): missing pages of shared memory (4.11), faults as SIGBUS (4.14), write protection
//! (5.7), minor faults of shared memory (5.14), /dev/userfaultfd (6.1), poison (6.6), asynchronous write
//! protection (6.7), moves (6.8).

pub mod affinity;
pub mod area;
pub mod branch;
pub mod fault;
pub mod fork;
pub mod frame;
pub mod futex;
pub mod huge;
pub mod membarrier;
pub mod near;
pub mod nodes;
pub mod padded;
pub mod pages;
pub mod panics;
pub mod pause;
pub mod peer;
pub mod prefetch;
pub mod process_local;
pub mod rseq;
pub mod rseq_memory;
pub mod scheduling;
pub mod shared;
pub mod signals;
pub mod sync;
mod system;
pub mod tls;
pub mod trace;
pub mod uffd;
pub mod waits;
pub mod window;
