//! What all processes of a run have in common: one page of a file, which forked children inherit.
//!
//! Problem: a program may have thousands of threads and of children, and each table is small; the bound is on them all
//! together. Idea: counts of what there is lie in memory that all share. Entries are counted by the sample that their table has, so that what
//! those that sleep have yet to drop is known: the sample is made coarser when what will be left is too much, and
//! not once more for as long as somebody sleeps.
//!
//! - I1. `TAKEN` is the bytes of all files of records and of the index of each table that lives; nothing is taken beyond `BYTES_MAX`.
//! - I2. What is not recorded for want of room, or for any other reason, is counted here, so that the report says so.
//!
//! Not promised: that what was taken is given back by a process that is killed. It is only ever counted as too much.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use crate::format::{self, HEAD_BYTES, file, run as at};
use crate::keeper;

/// Bytes of the file.
const BYTES: usize = 4096;
/// Its name in the folder.
const NAME: &CStr = c"run";
/// Bytes that an entry takes, its share of the index included.
pub(crate) const ENTRY_BYTES_ALL: u64 = 96;
/// What may be taken at least, however few entries are wanted: room for some hundred small threads.
const BYTES_MIN: u64 = 8 << 20;
/// The coarsest sample: one line in 2^30.
const SAMPLE_MAX: u32 = 30;

/// The page, as longs.
#[derive(Clone, Copy)]
pub(crate) struct Run<'a>(&'a [AtomicU64; BYTES / 8]);

static PAGE: AtomicPtr<[AtomicU64; BYTES / 8]> = AtomicPtr::new(std::ptr::null_mut());
/// For tests, which have no run, and so no bounds.
static NOWHERE: [AtomicU64; BYTES / 8] = [const { AtomicU64::new(0) }; BYTES / 8];

/// The run that this process is part of.
#[inline]
pub(crate) fn here() -> Run<'static> {
    // SAFETY: null, or the page, which is mapped for good, and which nobody touches but as atomics.
    Run(unsafe { PAGE.load(Ordering::Relaxed).as_ref() }.unwrap_or(&NOWHERE))
}

/// Begins a run in which sampling begins at so many entries.
pub(crate) fn begin(entries_max: u64) -> Result<(), isize> {
    let page = keeper::map(NAME, 0, BYTES, true)?;
    let mut head = [0; HEAD_BYTES];
    head[format::head::MAGIC..][..8].copy_from_slice(&format::MAGIC.to_le_bytes());
    head[format::head::KIND..][..4].copy_from_slice(&file::RUN.to_le_bytes());
    // SAFETY: the page was just mapped, and nobody else has it.
    unsafe { page.cast::<[u8; HEAD_BYTES]>().write(head) };
    PAGE.store(page.cast(), Ordering::Relaxed);
    here().limit(entries_max);
    Ok(())
}

impl Run<'_> {
    fn long(&self, place: usize) -> &AtomicU64 {
        debug_assert!(place.is_multiple_of(8), "a field of the page");
        &self.0[place / 8]
    }

    /// Sets the bounds.
    fn limit(self, entries_max: u64) {
        self.long(at::ENTRIES_MAX).store(entries_max, Ordering::Relaxed);
        let bytes = entries_max.saturating_mul(2 * ENTRY_BYTES_ALL).max(BYTES_MIN);
        self.long(at::BYTES_MAX).store(bytes, Ordering::Relaxed);
    }

    /// One line in 2^this is kept, of all from now on.
    pub(crate) fn sample(self) -> u32 {
        self.long(at::SAMPLE).load(Ordering::Relaxed) as u32
    }

    /// A number that no other process of the run has.
    pub(crate) fn new_process(self) -> u32 {
        self.long(at::PROCESSES).fetch_add(1, Ordering::Relaxed) as u32
    }

    /// Takes room for so many bytes. Whether there was any.
    pub(crate) fn take(self, bytes: usize) -> bool {
        let max = self.long(at::BYTES_MAX).load(Ordering::Relaxed);
        let before = self.long(at::TAKEN).fetch_add(bytes as u64, Ordering::Relaxed);
        // Without a bound there is no run: tests.
        if max == 0 || before.saturating_add(bytes as u64) <= max {
            return true;
        }
        self.give(bytes);
        false
    }

    /// Gives room back.
    pub(crate) fn give(self, bytes: usize) {
        self.long(at::TAKEN).fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    /// Takes room for so many bytes of logs. Whether there was any: blocks may take a quarter of all, the rest another.
    pub(crate) fn take_log(self, bytes: usize) -> bool {
        let max = self.long(at::BYTES_MAX).load(Ordering::Relaxed);
        let before = self.long(at::LOGS).load(Ordering::Relaxed);
        if max != 0 && before.saturating_add(bytes as u64) > max / 2 || !self.take(bytes) {
            return false;
        }
        self.long(at::LOGS).fetch_add(bytes as u64, Ordering::Relaxed);
        true
    }

    /// Whether blocks may still be written down.
    pub(crate) fn has_room_for_blocks(self) -> bool {
        let max = self.long(at::BYTES_MAX).load(Ordering::Relaxed);
        max == 0 || self.long(at::LOGS).load(Ordering::Relaxed) < max / 4
    }

    /// So many entries more in a table of this sample.
    pub(crate) fn add_entries(self, sample: u32, count: u64) {
        self.long(at::ENTRIES + 8 * sample as usize).fetch_add(count, Ordering::Relaxed);
    }

    /// So many fewer.
    pub(crate) fn remove_entries(self, sample: u32, count: u64) {
        self.long(at::ENTRIES + 8 * sample as usize).fetch_sub(count, Ordering::Relaxed);
    }

    /// Entries that there will be once every table has this sample.
    fn entries_at(self, sample: u32) -> u64 {
        (0..=sample)
            .map(|level| {
                self.long(at::ENTRIES + 8 * level as usize).load(Ordering::Relaxed) >> (sample - level)
            })
            .fold(0, u64::saturating_add)
    }

    /// Makes the sample coarser if there will be too many entries with the one there is. Whether it did.
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

    /// An access of a thread that has no table.
    pub(crate) fn miss_access(self) {
        self.long(at::ACCESSES_UNSEEN).fetch_add(1, Ordering::Relaxed);
    }

    /// A thread that has no table.
    pub(crate) fn miss_thread(self) {
        self.long(at::THREADS_UNSEEN).fetch_add(1, Ordering::Relaxed);
    }

    /// A process that has no log.
    pub(crate) fn miss_process(self) {
        self.long(at::PROCESSES_UNSEEN).fetch_add(1, Ordering::Relaxed);
    }

    /// A record that is not in the log.
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
    fn the_sample_is_made_coarser_once_for_those_that_sleep() {
        run(1_000, |run| {
            run.add_entries(0, 1_001);
            assert!(run.sample_less_if_full());
            // All sleep, and nothing was dropped yet: it will be half.
            assert!(!run.sample_less_if_full());
            assert_eq!(run.sample(), 1);
            // Half of what there was, and as much again at the new sample, is too much.
            run.add_entries(1, 501);
            assert!(run.sample_less_if_full());
            assert_eq!((run.sample(), run.sample_less_if_full()), (2, false));
        });
    }

    #[test]
    fn no_more_is_taken_than_there_is_and_logs_leave_room_for_counts() {
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
