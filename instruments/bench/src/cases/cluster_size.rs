//! `cluster-size`: keys that all threads use, in a directory. Each cluster has a part of each key.
//!
//! A use locks the part of its cluster. A question locks the parts of all clusters and reads them. So large
//! clusters share parts among many processors, and small ones make a question visit many parts. A variant
//! sets the processors of a cluster. Source: Unrau et al. 1995, figure 4.
//!
//! The case compares cluster sizes, so it has no rival. It needs a processor for each thread, or a virtual
//! topology.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::case::{Case, Make, Missing, Scale, Setting, Spec, Subject, Variant, Worker, variant};
use crate::ours_cluster::Keys;

pub(super) static CASE: Case = Case {
    name: "cluster-size",
    about: "one use of a key that all threads use, or a question to all clusters about it",
    variants: SIZES,
    subjects: &[Spec::ours("squall-uses", using::<0>()), Spec::ours("squall-mixed", using::<QUESTIONS>())],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

/// Cluster sizes, also of the case `matmul`.
pub(super) const SIZES: &[Variant] = &[
    variant("1", "clusters of one processor"),
    variant("2", "clusters of two processors"),
    variant("4", "clusters of four processors"),
    variant("8", "clusters of eight processors"),
    variant("16", "clusters of sixteen processors"),
];

/// Returns the number of processors in a cluster of the variant.
pub(super) fn size_of(setting: &Setting) -> Result<u32, Missing> {
    setting.variant.name.parse().map_err(|_| Missing("the variant names no cluster size".to_owned()))
}

/// One operation in this many of the mixed load is a question.
const QUESTIONS: u64 = 16;
/// Number of keys.
const KEYS: u64 = 16;

struct Using {
    keys: Keys,
    /// One operation in this many is a question; with zero all are uses.
    questions: u64,
    uses: AtomicU64,
}

const fn using<const QUESTIONS: u64>() -> Make {
    |setting| {
        let size = size_of(setting)?;
        Ok(Box::new(Using { keys: Keys::new(size, KEYS), questions: QUESTIONS, uses: AtomicU64::new(0) }))
    }
}

impl Subject for Using {
    fn worker(&self, thread: usize) -> Worker<'_> {
        // Makes the parts of the thread's cluster.
        (0..KEYS).for_each(|key| self.keys.settle(key));
        let mut at = thread as u64 * 5;
        Box::new(move |ops| {
            let mut uses = 0;
            for _ in 0..ops {
                // All keys in turn, and questions about each of them in turn.
                let key = (at + at / KEYS) % KEYS;
                if self.questions > 0 && at.is_multiple_of(self.questions) {
                    self.keys.question(key);
                } else {
                    self.keys.use_once(key);
                    uses += 1;
                }
                at += 1;
            }
            self.uses.fetch_add(uses, Ordering::Relaxed);
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        let made = self.uses.load(Ordering::Relaxed);
        let found: u64 = (0..KEYS).map(|key| self.keys.question(key)).sum();
        if made == found {
            Ok(())
        } else {
            Err(format!("{made} uses were made, and the parts count {found}"))
        }
    }
}
