//! `first-touch`: each thread touches keys for the first time, as page faults of new memory do.
//!
//! A touch finds no entry, makes one, and counts itself in it. Each thread has its own keys in one structure
//! that all threads share. No key is touched twice, so a copy of an entry never pays for itself. Source:
//! Appavoo 2005, figure 4.18.
//!
//! The case has no rival: it compares the forms of Squall.
//!
//! - I1. After each slice the structure has exactly the touched keys. Then an empty one takes its place, so
//!   that slices are alike.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use crossbeam_utils::CachePadded;

use crate::case::{Case, Make, PLAIN, Scale, SliceEnd, Spec, Subject, Worker};
use crate::ours_touch::{Central, Distributed, Locked, Partitioned};

pub(super) static CASE: Case = Case {
    name: "first-touch",
    about: "one touch of a new key by the thread that alone uses it, in a structure of all threads",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall-locked", touching::<Locked>()),
        Spec::ours("squall-central", touching::<Central>()),
        Spec::ours("squall-distributed", touching::<Distributed>()),
        Spec::ours("squall-partitioned", touching::<Partitioned>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[],
};

/// A structure with an entry per key.
pub(crate) trait Touch: Send + Sync + 'static {
    /// Makes an empty structure for this number of threads.
    fn new(threads: usize) -> Self;
    /// Makes the entry of an absent key, and counts the touch in it.
    fn touch(&self, key: u64);
    /// Number of keys.
    fn len(&self) -> usize;
}

/// Number of the thread in a key: the bits from this one on.
pub(crate) const THREAD_SHIFT: u32 = 32;
/// Keys of a thread that no slice reaches; the first touches of a thread use them.
const SPARE: u64 = 1 << 31;

struct Touching<T> {
    threads: usize,
    kept: CachePadded<RwLock<T>>,
    /// Touched keys of the structure, except [`SPARE`].
    touched: CachePadded<AtomicU64>,
    wrong: Mutex<Option<String>>,
}

const fn touching<T: Touch>() -> Make {
    |setting| {
        let threads = setting.threads;
        Ok(Box::new(Touching {
            threads,
            kept: CachePadded::new(RwLock::new(T::new(threads))),
            touched: CachePadded::new(AtomicU64::new(0)),
            wrong: Mutex::new(None),
        }))
    }
}

impl<T: Touch> Touching<T> {
    /// Checks that the structure has the touched keys, and one spare key of each thread.
    fn check_keys(&self, kept: &T) -> Result<(), String> {
        let (found, touched) = (kept.len() as u64, self.touched.load(Ordering::Relaxed));
        let expected = touched + self.threads as u64;
        if found == expected {
            Ok(())
        } else {
            Err(format!("{expected} keys were touched, and {found} are there"))
        }
    }
}

impl<T: Touch> Subject for Touching<T> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        let first = (thread as u64) << THREAD_SHIFT;
        // Makes the thread's representative.
        self.kept.read().unwrap_or_else(PoisonError::into_inner).touch(first + SPARE);
        let mut next = first;
        Box::new(move |ops| {
            let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
            for _ in 0..ops {
                kept.touch(next);
                next += 1;
            }
            drop(kept);
            self.touched.fetch_add(ops, Ordering::Relaxed);
        })
    }

    fn end_slice(&self, _: u64) -> SliceEnd {
        let mut kept = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = self.check_keys(&kept) {
            *self.wrong.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
        *kept = T::new(self.threads);
        self.touched.store(0, Ordering::Relaxed);
        SliceEnd::default()
    }

    fn check(&self, _: u64) -> Result<(), String> {
        if let Some(why) = self.wrong.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(why);
        }
        // After timed slices the structure is empty. After an exact run it has the keys.
        let kept = self.kept.read().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == 0 { Ok(()) } else { self.check_keys(&kept) }
    }
}
