//! Data that each VP keeps for itself, and short operations on it that need no lock prefix.
//!
//! Problem: a counter, a free list, a cache of objects per processor is touched by the threads of one processor only,
//! yet a thread can be preempted or moved at any instruction, so each touch needs an atomic instruction (4 to 6 ns)
//! although nobody else is there. Idea: Linux restarts a marked sequence that it disturbs. A sequence that reads the
//! VP's words and ends in one store is then as good as atomic, at the price of plain instructions.
//!
//! Words live in chunks with one part per VP; an object has the same offset in each part, so one handle and a shift find
//! the word of any VP (`alloc`). Every operation has an atomic form (`atomic`) for threads without such sequences.
//!
//! - I1. A word of VP v is written by restartable sequences only while they run on v, or by atomic instructions, never
//!   by both in one process at one time (I3).
//! - I2. A sequence commits by its last store, undisturbed since it read its VP's number. All that it read of its VP's
//!   words still holds at that store, because every other writer of them would have had to run there in between.
//! - I3. In restartable mode all threads run sequences. A thread that may not (it came without a registration, say under
//!   a sandbox set up later) must not mix atomic instructions in, which the plain ones of others would overwrite.
//! - I4. It gives the mode up for the whole process first: it points `AREA_OFFSET` at our own blocks, whose `cpu_id` is
//!   negative, and has the kernel restart all sequences in flight. Each sequence reads `AREA_OFFSET` *inside*, so a
//!   restarted one, or one that begins later, sees the negative number and takes the atomic path as well. The mode never
//!   comes back. An atomic operation waits for this before its first access (`mode`).
//!
//! **Plain stores and atomic readers.** `sum` and `load` read words of other VPs with atomic loads while
//! sequences write them. The sequences are assembly, which the language's memory model does not look into; what it does
//! to memory counts as whatever Rust code could have done there. An aligned eight-byte load or store is single-copy
//! atomic on both processors, so each acts as a relaxed atomic access, and no word is ever accessed by a plain Rust
//! access. The assembly is not marked `nomem`, so the compiler keeps its own accesses on the right side of it.
//! Between processors no order is promised, with one exception: a compare-and-store releases and `load` acquires, which
//! is free on x86-64 and one instruction on aarch64. Among threads that meet on one VP there is order, as the kernel's
//! switch from one to the next is a full barrier; that is what lets a list pass nodes on.
//!
//! Not promised: that a thread is still on the VP an operation reports; a consistent snapshot over VPs; use from a Rust
//! `dylib` (the sequences address `AREA_OFFSET` directly), or from a library that is unloaded while threads that ran its
//! sequences live (the kernel looks at the last one's descriptor once more).
//! Cost: `add` is eight instructions on x86-64, one never-taken branch among them. Memory: eight bytes per word and VP,
//! in pages that exist where they were touched. Giving the mode up: a system call, once.
//! Source: Tornado §4 (per-processor operations without disabling interrupts); Desnoyers' restartable sequences;
//! tcmalloc's per-CPU caches; the layout is the Linux kernel's `mm/percpu.c`.

mod alloc;
mod atomic;
mod biased;
mod gated;
mod list;
mod magazine;
pub(crate) mod mode;
mod restart;
mod stack;
mod value;
mod word;

pub use alloc::{OutOfMemory, Stats, stats};
pub use biased::BiasedWord;
pub use gated::GatedWord;
pub use list::{ListNode, PerVpList};
pub use magazine::PerVpMagazine;
pub use mode::{RestartMode, WhyAtomic, restart_mode};
pub use stack::PerVpStack;
pub use value::PerVp;
pub use word::{CasError, PerVpWord, PerVpWords};

#[doc(hidden)]
pub use crate::vp::AREA_OFFSET;
#[doc(hidden)]
pub use alloc::SHIFT;
#[doc(hidden)]
pub use mode::{force_downgrade, pretend_restartable};
#[doc(hidden)]
pub use restart::no_sequence;
#[doc(hidden)]
pub use squall_sys::rseq::SIGNATURE;

/// To be called first by the fallback of a [`restartable!`](crate::restartable) sequence: when it returns, no sequence
/// of any thread is in flight or will commit, so that atomic instructions on the words are safe.
///
/// # Cost
/// One load. Once in the life of a process that has to give restartable sequences up, a system call or, without
/// membarrier, a visit to each processor.
#[inline]
pub fn settle() {
    mode::settle();
}
