//! `alloc-memory`: resident memory under a churn of mixed sizes, and after all blocks were freed.
//!
//! Four threads each keep 20,000 blocks (a quick run: 4,000) of 16 bytes to 32 KiB, small ones more often.
//! They write all of each block, and replace blocks at random. Every fourth block is handed to the next
//! thread and freed there. For each subject:
//!
//! - `SUBJECT_churn_over_live`: growth of the resident set when the churn stops, divided by the bytes in live
//!   blocks.
//! - `SUBJECT_freed_mib`: growth left after all blocks were freed.
//! - `SUBJECT_idle_mib`: growth left after the allocator was asked to return memory, by its own call
//!   (jemalloc's purge of its arenas, `mi_collect`, `malloc_trim`, `trim`; snmalloc and tcmalloc are not
//!   asked).
//! - `squall_over_SUBJECT`: our growth divided by a rival's when the churn stops.
//!
//! Not promised: that the resident set grew by the subject alone. Subjects run one after the other, each
//! beside the memory kept by the earlier ones.

use crate::case::{Case, PLAIN, Scale, Setting};
use crate::cases::rcu_idle::resident_bytes;
use crate::rivals::allocators::{Allocator, Any, Glibc, Ours, Tcmalloc};
#[cfg(feature = "rivals")]
use crate::rivals::allocators::{Jemalloc, Mimalloc, Snmalloc};
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;

pub(in crate::cases) static CASE: Case = Case {
    name: "alloc-memory",
    about: "resident memory under a churn of mixed sizes, and after it; metrics only",
    variants: &[PLAIN],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1],
};

type Churn = fn(bool) -> Result<Growth, String>;

const SUBJECTS: &[(&str, Churn)] = &[
    ("squall", churn::<Ours>),
    #[cfg(feature = "rivals")]
    ("jemalloc", churn::<Jemalloc>),
    #[cfg(feature = "rivals")]
    ("mimalloc", churn::<Mimalloc>),
    #[cfg(feature = "rivals")]
    ("snmalloc", churn::<Snmalloc>),
    ("tcmalloc", churn::<Tcmalloc>),
    ("glibc", churn::<Glibc>),
];

const THREADS: usize = 4;
/// Blocks of each thread, in a full and in a quick run, and rounds over all of them.
const BLOCKS: (usize, usize) = (20_000, 4_000);
const ROUNDS: usize = 20;
const SIZE_MAX_SHIFT: usize = 11;

struct Growth {
    live: u64,
    churn: u64,
    freed: u64,
    idle: u64,
}

fn measure(_: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    const MIB: f64 = (1 << 20) as f64;
    let mut metrics = Vec::new();
    let mut ours = None;
    for (name, churn) in SUBJECTS {
        let Ok(growth) = churn(quick) else { continue };
        metrics.push((format!("{name}_churn_over_live"), growth.churn as f64 / growth.live as f64));
        metrics.push((format!("{name}_freed_mib"), growth.freed as f64 / MIB));
        metrics.push((format!("{name}_idle_mib"), growth.idle as f64 / MIB));
        match ours {
            None => ours = Some(growth.churn),
            Some(ours) => {
                metrics.push((format!("squall_over_{name}"), ours as f64 / growth.churn.max(1) as f64));
            }
        }
    }
    Ok(metrics)
}

fn churn<A: Allocator>(quick: bool) -> Result<Growth, String> {
    if let Some(why) = A::missing() {
        return Err(why);
    }
    let blocks = if quick { BLOCKS.1 } else { BLOCKS.0 };
    let barrier = Arc::new(Barrier::new(THREADS + 1));
    let mut channels: Vec<_> = (0..THREADS).map(|_| mpsc::sync_channel::<Any<A>>(64)).map(Some).collect();
    let senders: Vec<_> = channels.iter().flatten().map(|(send, _)| send.clone()).collect();
    let mut threads = Vec::new();
    // Memory of the threads and their tables is taken before the first reading.
    for index in 0..THREADS {
        let (_, receive) = channels[index].take().expect("a thread has no channel");
        let (send, barrier) = (senders[(index + 1) % THREADS].clone(), barrier.clone());
        threads.push(thread::spawn(move || keep::<A>(index, blocks, &barrier, &send, &receive)));
    }
    drop(senders);
    barrier.wait();
    let before = resident_bytes()?;
    barrier.wait();
    // The threads churn.
    barrier.wait();
    let churn = resident_bytes()?.saturating_sub(before);
    barrier.wait();
    let live = threads.into_iter().map(|thread| thread.join().expect("a thread of the churn panicked")).sum();
    let freed = resident_bytes()?.saturating_sub(before);
    A::collect();
    let idle = resident_bytes()?.saturating_sub(before);
    Ok(Growth { live, churn, freed, idle })
}

/// Runs one thread; returns the bytes that it kept at the end.
fn keep<A: Allocator>(
    index: usize,
    blocks: usize,
    barrier: &Barrier,
    send: &mpsc::SyncSender<Any<A>>,
    receive: &mpsc::Receiver<Any<A>>,
) -> u64 {
    let mut state = 0x9E37_79B9_7F4A_7C15 ^ index as u64;
    let mut kept: Vec<Option<(Any<A>, usize)>> = Vec::with_capacity(blocks);
    kept.resize_with(blocks, || None);
    barrier.wait();
    barrier.wait();
    for round in 0..ROUNDS * blocks {
        // Each doubling is equally frequent.
        let doubling = super::below(&mut state, SIZE_MAX_SHIFT);
        let size = (16 << doubling) + super::below(&mut state, 16 << doubling);
        let mut block = Any::new(size);
        block.fill(round as u8);
        let at = super::below(&mut state, blocks);
        let old = kept[at].replace((block, size));
        if let Some((old, _)) = old
            && round % 4 == 0
        {
            // A block that finds no room in the channel is freed here.
            let _ = send.try_send(old);
        }
        receive.try_iter().for_each(drop);
    }
    barrier.wait();
    let live = kept.iter().flatten().map(|(_, size)| *size as u64).sum();
    barrier.wait();
    drop(kept);
    receive.try_iter().for_each(drop);
    live
}
