//! `alloc-remote`: blocks that one thread allocates and another frees.
//!
//! Pairs of threads hand blocks of 64 bytes to each other through rings of 1,024 slots. In `one-way`, one
//! thread of each pair allocates and writes, the other reads and frees. In `both-ways`, each thread
//! alternately does both. An operation is one block that the thread allocated or, in `one-way`, freed. The
//! ring's own cost is in every subject's figure.

use super::allocators;
use crate::case::{Case, Make, Missing, PLAIN, Scale, Spec, Subject, Variant, Worker};
use crate::rivals::allocators::{Allocator, Fixed, Glibc, Ours, Ring, Tcmalloc, spin_or_yield};
#[cfg(feature = "rivals")]
use crate::rivals::allocators::{Jemalloc, Mimalloc, Snmalloc};
use std::sync::atomic::{AtomicU64, Ordering};

pub(in crate::cases) static CASE: Case = Case {
    name: "alloc-remote",
    about: "one block allocated by one thread and freed by another",
    variants: &[
        Variant { name: "one-way", about: "one allocates, one frees", threads: Some(2), ..PLAIN },
        Variant {
            name: "both-ways",
            about: "both allocate, each frees the other's",
            threads: Some(2),
            ..PLAIN
        },
    ],
    subjects: allocators!(make),
    scale: Scale::Latency,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[2],
};

const fn make<A: Allocator>() -> Make {
    |setting| {
        if let Some(why) = A::missing() {
            return Err(Missing(why));
        }
        if !setting.threads.is_multiple_of(2) {
            return Err(Missing("needs an even number of threads".to_owned()));
        }
        Ok(Box::new(Pairs::<A> {
            counted: setting.counted,
            both: setting.variant.name == "both-ways",
            rings: (0..setting.threads).map(|_| Ring::new()).collect(),
            freed: AtomicU64::new(0),
        }))
    }
}

const SIZE: usize = 64;

struct Pairs<A: Allocator> {
    counted: bool,
    both: bool,
    /// The ring into which thread `i` sends.
    rings: Vec<Ring<A, SIZE>>,
    /// Sum of the words read in blocks that did not hold their number.
    freed: AtomicU64,
}

impl<A: Allocator> Subject for Pairs<A> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        A::begin_thread(self.counted, thread);
        super::warm_up::<A>();
        let (mine, theirs) = (&self.rings[thread], &self.rings[thread ^ 1]);
        let (mut sent, mut received) = (0u64, 0u64);
        let sends = self.both || thread.is_multiple_of(2);
        let receives = self.both || !sends;
        Box::new(move |ops| {
            let mut wrong = 0;
            let end = if sends { sent + ops } else { received + ops };
            let mut tries = 0;
            while (sends && sent < end) || (receives && received < end) {
                let before = (sent, received);
                if sends && sent < end {
                    let mut block = Fixed::new();
                    block.write(sent);
                    // If the ring is full, the thread waits with the block in hand.
                    let mut left = Some(block);
                    while let Some(block) = left.take() {
                        match mine.send(sent, block) {
                            Ok(()) => sent += 1,
                            Err(block) => {
                                left = Some(block);
                                if receives
                                    && received < end
                                    && let Some(block) = theirs.receive(received)
                                {
                                    wrong += u64::from(block.read() != received);
                                    received += 1;
                                } else {
                                    spin_or_yield(&mut tries);
                                }
                            }
                        }
                    }
                }
                if receives
                    && received < end
                    && let Some(block) = theirs.receive(received)
                {
                    wrong += u64::from(block.read() != received);
                    received += 1;
                }
                match before == (sent, received) {
                    true => spin_or_yield(&mut tries),
                    false => tries = 0,
                }
            }
            // Relaxed: read after all threads have ended.
            self.freed.fetch_add(wrong, Ordering::Relaxed);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        match self.freed.load(Ordering::Relaxed) {
            0 => Ok(()),
            wrong => Err(format!("{wrong} blocks lost the word written to them")),
        }
    }
}
