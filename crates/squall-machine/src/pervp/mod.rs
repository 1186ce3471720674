//! Per-VP data: words, lists, stacks and values with one copy per VP, and short operations on them without a
//! lock prefix.
//!
//! Problem: a counter, a free list or an object cache of one processor is touched by the threads of that
//! processor only. Yet a thread can be preempted or moved at any instruction. So each touch needs an atomic
//! instruction (4 to 6 ns), although no other thread contends.
//!
//! Idea: Linux restarts a marked instruction sequence that it disturbs. A sequence that reads the VP's words
//! and ends in one store is then as good as atomic, at the price of plain instructions.
//!
//! Words live in chunks with one part per VP. An object has the same offset in each part, so one address and
//! a shift give the word of any VP (`alloc`). Every operation also has an atomic form (`atomic`), for threads
//! without restartable sequences.
//!
//! - I1. A word of VP v is written either by restartable sequences that run on v, or by atomic instructions.
//!   One process never does both at the same time (I3).
//! - I2. A sequence commits by its last store, undisturbed since it read its VP's number. All that it read
//!   of its VP's words still holds at that store, because any other writer would have had to run on the
//!   VP in between.
//! - I3. In restartable mode all threads run sequences. A thread may lack a registration, for example if a
//!   sandbox was set up later. It must not use atomic instructions beside the sequences, because their plain
//!   stores would overwrite its updates.
//! - I4. Such a thread first gives the mode up for the whole process. It points `AREA_OFFSET` at our own
//!   blocks, which hold a negative `cpu_id`. Then it makes the kernel restart all sequences in flight. Each
//!   sequence reads `AREA_OFFSET` *inside*. So a sequence that restarts, or begins later, sees the negative
//!   number and takes the atomic path too. The mode never comes back. An atomic operation waits for this
//!   before its first access (`mode`).
//!
//! **Plain stores and atomic readers.** `sum` and `load` read words of other VPs with atomic loads while
//! sequences write them. The sequences are assembly, opaque to the memory model; their effect on memory
//! counts as any that Rust code could have had. An aligned eight-byte load or store is single-copy atomic on
//! both architectures, so each acts as a relaxed atomic access. Rust code never uses a plain access to a
//! word. The assembly is not marked `nomem`, so the compiler does not move its own accesses across it.
//!
//! Between processors there is no order, with one exception: a compare-and-store releases and `load`
//! acquires. That is free on x86-64 and one instruction on aarch64. Threads that run on one VP after each
//! other are ordered, because the kernel's switch between them is a full barrier. Lists depend on that order
//! to pass nodes on.
//!
//! Not promised: a thread may have left the VP that an operation reports; reads over VPs are not a consistent
//! snapshot. A Rust `dylib` cannot use the sequences, because they address `AREA_OFFSET` directly. A library
//! must not be unloaded while threads that ran its sequences live, because the kernel reads the last
//! descriptor once more.
//! Cost: `add` is eight instructions on x86-64, with one never-taken branch. Memory: eight bytes per word and
//! VP, in pages that exist only where they were touched. Giving the mode up: one system call, once.
//! Source: Tornado §4 (per-processor operations without disabling interrupts); Desnoyers' restartable
//! sequences; tcmalloc's per-CPU caches; the layout is the Linux kernel's `mm/percpu.c`.

mod alloc;
mod atomic;
mod biased;
mod gated;
mod gated_mark;
mod list;
mod magazine;
pub(crate) mod mode;
mod restart;
mod stack;
mod value;
mod word;

pub use alloc::{OutOfMemory, PerVpStats, stats};
pub use biased::BiasedWord;
pub use gated::GatedWord;
pub use gated_mark::GatedMark;
pub use list::{ListNode, PerVpList};
pub use magazine::PerVpMagazine;
pub use mode::{AtomicReason, RestartMode, restart_mode};
pub use stack::PerVpStack;
pub use value::PerVp;
pub use word::{CasError, PerVpWord, PerVpWords};

#[doc(hidden)]
pub use crate::current::AREA_OFFSET;
#[doc(hidden)]
pub use alloc::SHIFT;
#[doc(hidden)]
pub use mode::{force_downgrade, pretend_restartable};
#[doc(hidden)]
pub use restart::no_sequence;
#[doc(hidden)]
pub use squall_sys::rseq::SIGNATURE;

/// Ends restartable mode for the process, if it is on. The fallback of a [`restartable!`](crate::restartable)
/// sequence calls it first. After it returns, no sequence of any thread is in flight or will commit, so
/// atomic instructions on the words are safe.
///
/// # Cost
/// One load. Once per process that has to give restartable sequences up: a system call or, without
/// membarrier, a visit to each processor.
#[inline]
pub fn settle() {
    mode::settle();
}
