//! The page shared by all processes of a run; forked children inherit the mapping.
//!
//! Problem: a program may have thousands of threads and children with small tables, and the memory limit
//! applies to all together. Idea: shared counters hold the totals. A sleeping thread cannot drop entries
//! after the sample has become coarser. So entries are counted per sample of their table, and the number that
//! will stay is predicted. The sample becomes coarser again only if the predicted number is too large.
//!
//! - I1. `TAKEN` is the size of all files and of the indexes of live tables. It never exceeds `BYTES_MAX`.
//! - I2. Every unrecorded access, thread, process and record is counted here, so that the report can tell.
//!
//! Not promised: room returned by a killed process. `TAKEN` is then too large, never too small.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::format::{self, HEAD_BYTES, file, run as at};
use crate::keeper;

/// Bytes of the file.
const BYTES: usize = 4096;
/// Name of the file in the folder.
const NAME: &CStr = c"run";
/// Bytes per entry, including its share of the index.
pub(crate) const ENTRY_BYTES_ALL: u64 = 96;
/// Minimum for `BYTES_MAX`: room for some hundred small threads, however few entries are allowed.
const BYTES_MIN: u64 = 8 << 20;
/// Coarsest sample: one line in 2^30.
const SAMPLE_MAX: u32 = 30;

/// The page as `u64` fields.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a>(&'a [AtomicU64; BYTES / 8]);

static PAGE: AtomicPtr<[AtomicU64; BYTES / 8]> = AtomicPtr::new(std::ptr::null_mut());
/// Page for tests, which have no run and therefore no limits.
static NOWHERE: [AtomicU64; BYTES / 8] = [const { AtomicU64::new(0) }; BYTES / 8];

/// Run of this process.
#[inline]
pub(crate) fn current() -> Run<'static> {
    // SAFETY: the pointer is null or leads to the page, which stays mapped and is accessed only through
    // atomics.
    Run(unsafe { PAGE.load(Ordering::Relaxed).as_ref() }.unwrap_or(&NOWHERE))
}

/// Begins a run that samples lines above this number of entries.
pub(crate) fn begin(entries_max: u64) -> Result<(), isize> {
    let page = keeper::map(NAME, 0, BYTES, true)?;
    let mut head = [0; HEAD_BYTES];
    head[format::head::MAGIC..][..8].copy_from_slice(&format::MAGIC.to_le_bytes());
    head[format::head::KIND..][..4].copy_from_slice(&file::RUN.to_le_bytes());
    // SAFETY: the page was just mapped, and no other thread has it yet.
    unsafe { page.cast::<[u8; HEAD_BYTES]>().write(head) };
    PAGE.store(page.cast(), Ordering::Relaxed);
    current().limit(entries_max);
    Ok(())
}

impl Run<'_> {
    fn long(&self, place: usize) -> &AtomicU64 {
        debug_assert!(
            place.is_multiple_of(8),
            "offset {place} of a field of the page is not a multiple of 8"
        );
        &self.0[place / 8]
    }

    /// Whether no access counts, until the profiler changes it.
    pub(crate) fn is_paused(self) -> bool {
        self.long(at::PAUSED).load(Ordering::Relaxed) != 0
    }

    /// Lets no access count, until the profiler changes it.
    pub(crate) fn pause(self) {
        self.long(at::PAUSED).store(1, Ordering::Relaxed);
    }

    /// Sets the limits.
    fn limit(self, entries_max: u64) {
        self.long(at::ENTRIES_MAX).store(entries_max, Ordering::Relaxed);
        let bytes = entries_max.saturating_mul(2 * ENTRY_BYTES_ALL).max(BYTES_MIN);
        self.long(at::BYTES_MAX).store(bytes, Ordering::Relaxed);
    }

    /// Current sample: one line in 2^this is kept.
    pub(crate) fn sample(self) -> u32 {
        self.long(at::SAMPLE).load(Ordering::Relaxed) as u32
    }

    /// Returns a new process number, unique in the run.
    pub(crate) fn new_process(self) -> u32 {
        self.long(at::PROCESSES).fetch_add(1, Ordering::Relaxed) as u32
    }

    /// Reserves room. Returns whether there was enough.
    pub(crate) fn take(self, bytes: usize) -> bool {
        let max = self.long(at::BYTES_MAX).load(Ordering::Relaxed);
        let before = self.long(at::TAKEN).fetch_add(bytes as u64, Ordering::Relaxed);
        // A limit of zero means that there is no run (tests).
        if max == 0 || before.saturating_add(bytes as u64) <= max {
            return true;
        }
        self.give(bytes);
        false
    }

    /// Returns room.
    pub(crate) fn give(self, bytes: usize) {
        self.long(at::TAKEN).fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Reserves room for logs. Blocks may use a quarter of all room, other records another quarter. Returns
    /// whether there was enough.
    pub(crate) fn take_log(self, bytes: usize) -> bool {
        let max = self.long(at::BYTES_MAX).load(Ordering::Relaxed);
        let before = self.long(at::LOGS).load(Ordering::Relaxed);
        if max != 0 && before.saturating_add(bytes as u64) > max / 2 || !self.take(bytes) {
            return false;
        }
        self.long(at::LOGS).fetch_add(bytes as u64, Ordering::Relaxed);
        true
    }

    /// Whether there is room for records of blocks.
    pub(crate) fn has_room_for_blocks(self) -> bool {
        let max = self.long(at::BYTES_MAX).load(Ordering::Relaxed);
        max == 0 || self.long(at::LOGS).load(Ordering::Relaxed) < max / 4
    }

    /// Counts new entries in a table of this sample.
    pub(crate) fn add_entries(self, sample: u32, count: u64) {
        self.long(at::ENTRIES + 8 * sample as usize).fetch_add(count, Ordering::Relaxed);
    }

    /// Counts removed entries in a table of this sample.
    pub(crate) fn remove_entries(self, sample: u32, count: u64) {
        self.long(at::ENTRIES + 8 * sample as usize).fetch_sub(count, Ordering::Relaxed);
    }

    /// Predicted number of entries after every table has adopted this sample.
    fn entries_at(self, sample: u32) -> u64 {
        (0..=sample)
            .map(|level| {
                self.long(at::ENTRIES + 8 * level as usize).load(Ordering::Relaxed) >> (sample - level)
            })
            .fold(0, u64::saturating_add)
    }

    /// Makes the sample coarser if the prediction for the current one exceeds the limit. Returns whether it
    /// did.
    pub(crate) fn sample_less_if_full(self) -> bool {
        let max = self.long(at::ENTRIES_MAX).load(Ordering::Relaxed);
        let now = self.sample();
        if max == 0 || now >= SAMPLE_MAX || self.entries_at(now) <= max {
            return false;
        }
        self.long(at::SAMPLE)
            .compare_exchange(now.into(), u64::from(now) + 1, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Counts an access of a thread without a table.
    pub(crate) fn miss_access(self) {
        self.long(at::ACCESSES_UNSEEN).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a thread without a table.
    pub(crate) fn miss_thread(self) {
        self.long(at::THREADS_UNSEEN).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a process without a log.
    pub(crate) fn miss_process(self) {
        self.long(at::PROCESSES_UNSEEN).fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a lost record.
    pub(crate) fn miss_record(self) {
        self.long(at::RECORDS_LOST).fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(entries_max: u64, test: impl FnOnce(Run<'_>)) {
        let page = [const { AtomicU64::new(0) }; BYTES / 8];
        Run(&page).limit(entries_max);
        test(Run(&page));
    }

    #[test]
    fn sleeping_threads_make_the_sample_coarser_once() {
        run(1_000, |run| {
            run.add_entries(0, 1_001);
            assert!(run.sample_less_if_full());
            // All threads sleep and have not dropped entries yet; the prediction is half.
            assert!(!run.sample_less_if_full());
            assert_eq!(run.sample(), 1);
            // Half of the old entries plus the new ones exceed the limit.
            run.add_entries(1, 501);
            assert!(run.sample_less_if_full());
            assert_eq!((run.sample(), run.sample_less_if_full()), (2, false));
        });
    }

    #[test]
    fn logs_leave_room_for_counts() {
        run(100_000, |run| {
            let all = 100_000 * 2 * ENTRY_BYTES_ALL as usize;
            assert!(run.has_room_for_blocks() && run.take_log(all / 4));
            assert!(!run.has_room_for_blocks() && run.take_log(all / 4) && !run.take_log(1));
            assert!(run.take(all / 2) && !run.take(1));
            run.give(10);
            assert!(run.take(10) && !run.take(1));
        });
    }
}
