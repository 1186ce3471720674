//! Sources against a vector of bytes, across swaps and migrations, and under concurrent calls.

use crate::common::TempFile;
use squall_core::swap::{Replacement, State, StateFormats, Swap, SwapFailure, swap};
use squall_core::{Handle, Owned, swappable};
use squall_history::rng::Rng;
use squall_pager::source::{
    self, Contents, Filled, PAGE_BYTES, Source, SourceError, SourceErrorKind, SourceStatistics,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const PAGE: u64 = PAGE_BYTES as u64;
/// Enough for compressed memory that is never full.
const PLENTY: u64 = 1 << 30;

/// Reads a page as a fault would see it.
fn page(source: Handle<dyn Source>, number: u64) -> Result<Vec<u8>, SourceError> {
    let mut bytes = vec![0xa5; PAGE_BYTES];
    if source.fill(number, &mut bytes)? == Filled::Zeros {
        assert!(bytes.iter().all(|byte| *byte == 0xa5), "the buffer is unchanged");
        bytes.fill(0);
    }
    Ok(bytes)
}

/// A page of a kind: zeros, one byte, bytes that compress, or bytes that do not.
fn some_page(rng: &mut Rng) -> Vec<u8> {
    let kind = rng.below(4);
    let mut page = vec![0; PAGE_BYTES];
    match kind {
        0 => {}
        1 => page.fill(rng.below(256) as u8),
        2 => page.iter_mut().enumerate().for_each(|(n, byte)| *byte = (n / 16) as u8 ^ kind as u8),
        _ => page.iter_mut().for_each(|byte| *byte = rng.below(256) as u8),
    }
    page[rng.below(PAGE) as usize] = 1;
    if kind == 0 {
        page.fill(0);
    }
    page
}

/// A source, the bytes that it should have, and the counts.
struct Checked {
    source: Owned<dyn Source>,
    bytes: Vec<u8>,
    counts: SourceStatistics,
    /// Whether writes fail.
    is_fixed: bool,
    /// The file in use, and those before it, which may still be read.
    files: Vec<TempFile>,
    is_file: bool,
}

impl Checked {
    fn new(kind: u64, rng: &mut Rng) -> Checked {
        let len = rng.below(200 * PAGE);
        let zeros = vec![0; len as usize];
        let (source, bytes, files) = match kind {
            0 => (source::zero_fill(len), zeros, vec![]),
            1 => (source::compressed(len, PLENTY), zeros, vec![]),
            _ => {
                let bytes = Vec::from_iter((0..len).map(|_| rng.below(256) as u8));
                let file = TempFile::new(&bytes);
                (source::file(file.open(), "random").unwrap(), bytes, vec![file])
            }
        };
        let counts = SourceStatistics::default();
        Checked { source, bytes, counts, is_fixed: kind == 0, files, is_file: kind > 1 }
    }

    /// Returns the page that the model has, if it is not beyond the end.
    fn expected(&self, page: u64) -> Option<Vec<u8>> {
        let bytes = self.bytes.chunks(PAGE_BYTES).nth(page as usize)?;
        let mut page = bytes.to_vec();
        page.resize(PAGE_BYTES, 0);
        Some(page)
    }

    fn fill(&mut self, number: u64) {
        let mut bytes = vec![1; PAGE_BYTES];
        if self.source.is_zeros(number) {
            self.counts.zero_filled += 1;
            assert!(self.expected(number).is_some_and(|page| page.iter().all(|byte| *byte == 0)));
        }
        match (self.source.fill(number, &mut bytes), self.expected(number)) {
            (Ok(Filled::Zeros), Some(expected)) => {
                assert!(expected.iter().all(|byte| *byte == 0), "page {number} is not zeros");
                self.counts.zero_filled += 1;
            }
            (Ok(Filled::Read), Some(expected)) => {
                assert!(bytes == expected, "page {number} differs");
                self.counts.read += 1;
            }
            (Err(error), None) => {
                let len = self.bytes.len() as u64;
                assert!(matches!(error.kind(), SourceErrorKind::BeyondEnd { len: told } if *told == len));
            }
            (other, expected) => panic!("page {number}: {other:?}, expected one: {}", expected.is_some()),
        }
    }

    fn write(&mut self, number: u64, rng: &mut Rng) {
        let page = some_page(rng);
        let wrote = self.source.write(number, &page);
        let Some(bytes) = self.bytes.chunks_mut(PAGE_BYTES).nth(number as usize) else {
            return assert!(matches!(wrote.unwrap_err().kind(), SourceErrorKind::BeyondEnd { .. }));
        };
        if self.is_fixed {
            return assert!(matches!(wrote.unwrap_err().kind(), SourceErrorKind::KeepsNothing));
        }
        wrote.unwrap();
        self.counts.written += 1;
        bytes.copy_from_slice(&page[..bytes.len()]);
    }

    fn set_len(&mut self, len: u64) {
        self.source.set_len(len).unwrap();
        self.bytes.resize(len as usize, 0);
        assert_eq!((self.source.len(), self.source.is_empty()), (len, len == 0));
    }

    fn migrate(&mut self, pages: u64) {
        if self.source.migrate(pages).unwrap() == 0 && self.is_file {
            let file = self.files.split_off(self.files.len() - 1);
            assert!(std::fs::read(file[0].path()).unwrap() == self.bytes, "the file has all pages");
            // No other file is read any longer.
            self.files = file;
        }
    }

    fn swap(&mut self, kind: u64) {
        let (new, is_file) = match kind {
            0 => (source::new_zero_fill(), false),
            1 => (source::new_compressed(PLENTY), false),
            _ => {
                self.files.push(TempFile::new(&[]));
                (source::new_file(self.files.last().unwrap().open(), "random"), true)
            }
        };
        match swap(self.source.handle(), new) {
            Ok(_) => {
                assert!(kind != 0 || self.bytes.iter().all(|byte| *byte == 0), "pages would be lost");
                (self.is_fixed, self.is_file) = (kind == 0, is_file);
            }
            Err(error) => {
                assert!(matches!(error.failure(), SwapFailure::TransferFailed), "{error}");
                if is_file {
                    self.files.pop();
                }
                if kind != 0 {
                    assert!(error.to_string().contains("migrate"), "{error}");
                    self.migrate(u64::MAX);
                }
            }
        }
    }

    fn check_all(&mut self) {
        for page in 0..=self.bytes.len().div_ceil(PAGE_BYTES) as u64 {
            self.fill(page);
        }
        self.counts.stored_bytes = self.source.statistics().stored_bytes;
        assert_eq!(self.source.statistics(), self.counts);
    }
}

#[test]
fn any_sequence_on_a_source_is_one_on_a_vector() {
    let given = |name| std::env::var(name).ok().and_then(|number| number.parse().ok());
    let (first, rounds) = (given("SQUALL_SEED").unwrap_or(1), given("SQUALL_ROUNDS").unwrap_or(30));
    for seed in first..first + rounds {
        // Printed if the test fails.
        println!("SQUALL_SEED={seed}");
        let mut rng = Rng::new(seed, 0);
        let mut checked = Checked::new(seed % 3, &mut rng);
        for _ in 0..250 {
            let page = rng.below(checked.bytes.len() as u64 / PAGE + 2);
            match rng.below(40) {
                0..15 => checked.fill(page),
                15..30 => checked.write(page, &mut rng),
                30..32 => checked.set_len(rng.below(200 * PAGE)),
                // Cuts off the end of a page, or grows within it.
                32..34 => {
                    let len = (checked.bytes.len() as u64 + rng.below(2 * PAGE)).saturating_sub(PAGE);
                    checked.set_len(len);
                }
                34..36 => checked.swap(rng.below(3)),
                36 => checked.migrate(rng.below(300)),
                37 => checked.migrate(u64::MAX),
                38 => checked.source.sync().unwrap(),
                _ => checked.check_all(),
            }
        }
        checked.check_all();
        checked.migrate(u64::MAX);
        checked.check_all();
    }
}

#[test]
fn co_42_a_swap_moves_no_page_and_each_page_is_read_from_the_source_that_has_it() {
    let file = TempFile::new(&[1; 4 * PAGE_BYTES]);
    let source = source::file(file.open(), "old").unwrap();
    let swapped = TempFile::new(&[]);
    let report = swap(source.handle(), source::new_file(swapped.open(), "new")).unwrap();
    assert!(report.bytes < 200, "{} bytes moved", report.bytes);
    assert_eq!(source.statistics().stored_bytes, 8 * PAGE, "of both files");
    source.write(1, &[2; PAGE_BYTES]).unwrap();
    let on_disk = |file: &TempFile, page: usize| std::fs::read(file.path()).unwrap()[page * PAGE_BYTES];
    assert_eq!([0, 1].map(|page| on_disk(&swapped, page)), [0, 2]);
    assert_eq!([0, 1].map(|page| on_disk(&file, page)), [1, 1], "the old file is only read");
    assert_eq!([0, 1].map(|number| page(source.handle(), number).unwrap()[9]), [1, 2]);
    // The page that was written counts as one that is looked at.
    assert_eq!(source.migrate(3).unwrap(), 1);
    assert_eq!([0, 1, 2, 3].map(|page| on_disk(&swapped, page)), [1, 2, 1, 0]);
    assert_eq!(source.migrate(1).unwrap(), 0);
    assert_eq!(on_disk(&swapped, 3), 1);
    assert_eq!(source.statistics().stored_bytes, 4 * PAGE);
}

#[test]
fn a_page_that_is_cut_off_and_grown_again_is_zeros_in_both_layers() {
    let source = source::compressed(6 * PAGE, PLENTY);
    (0..6).for_each(|page| source.write(page, &[1; PAGE_BYTES]).unwrap());
    swap(source.handle(), source::new_compressed(PLENTY)).unwrap();
    source.write(3, &[2; PAGE_BYTES]).unwrap();
    source.write(4, &[2; PAGE_BYTES]).unwrap();
    // Page 2 is cut in its middle, in the old source. Page 4 goes, in the new one.
    source.set_len(2 * PAGE + 10).unwrap();
    source.set_len(6 * PAGE).unwrap();
    let sum =
        |number| page(source.handle(), number).unwrap().iter().map(|byte| u64::from(*byte)).sum::<u64>();
    assert_eq!([0, 1, 2, 3, 4, 5].map(sum), [PAGE, PAGE, 10, 0, 0, 0]);
    assert_eq!(source.migrate(100).unwrap(), 0);
    assert_eq!([0, 1, 2, 3, 4, 5].map(sum), [PAGE, PAGE, 10, 0, 0, 0]);
    // Page 1 is cut in its middle, in the new source.
    source.set_len(PAGE + 7).unwrap();
    source.set_len(2 * PAGE).unwrap();
    assert_eq!([0, 1].map(sum), [PAGE, 7]);
    source.set_len(0).unwrap();
    assert_eq!(source.statistics().stored_bytes, 0);
}

#[test]
fn the_largest_length_has_a_last_page() {
    let source = source::compressed(u64::MAX, PLENTY);
    let last = u64::MAX / PAGE;
    source.write(last, &[1; PAGE_BYTES]).unwrap();
    assert_eq!(page(source.handle(), last).unwrap()[PAGE_BYTES - 2..], [1, 0], "a byte is beyond the end");
    assert!(
        matches!(source.fill(last + 1, &mut [0; PAGE_BYTES]), Err(error) if error.page() == Some(last + 1))
    );
    assert!(source.fill(u64::MAX, &mut [0; PAGE_BYTES]).is_err());
    swap(source.handle(), source::new_compressed(PLENTY)).unwrap();
    assert_eq!(page(source.handle(), last).unwrap()[0], 1);
    assert_eq!(source.migrate(1).unwrap(), last);
    source.set_len(1).unwrap();
    assert_eq!(source.migrate(1).unwrap(), 0);
}

#[test]
fn co_76_fills_of_anonymous_memory_are_counted_where_they_are_made_and_swaps_keep_the_counts() {
    let source = source::zero_fill(1000 * PAGE);
    thread::scope(|scope| {
        for _ in 0..4 {
            let source = source.handle();
            scope.spawn(move || {
                for number in 0..100 {
                    assert_eq!(source.fill(number, &mut [0; PAGE_BYTES]).unwrap(), Filled::Zeros);
                }
            });
        }
    });
    assert_eq!(source.statistics().zero_filled, 400);
    swap(source.handle(), source::new_compressed(PLENTY)).unwrap();
    source.write(0, &[1; PAGE_BYTES]).unwrap();
    page(source.handle(), 0).unwrap();
    page(source.handle(), 1).unwrap();
    let statistics = source.statistics();
    assert_eq!((statistics.zero_filled, statistics.read, statistics.written), (401, 1, 1));
    assert!((1..100).contains(&statistics.stored_bytes), "{statistics:?}");
    source.write(0, &[0; PAGE_BYTES]).unwrap();
    assert_eq!(source.statistics().stored_bytes, 0);
    swap(source.handle(), source::new_zero_fill()).unwrap();
    assert_eq!(source.statistics().written, 2);
}

/// A source of the program's own: the bytes of each page are its number.
#[derive(Clone)]
struct Numbers(Arc<AtomicU64>);

impl Source for Numbers {
    fn len(&self) -> u64 {
        10 * PAGE
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        assert!(page != 5, "page 5 is cursed");
        into.fill(page as u8);
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, _: &[u8]) -> Result<(), SourceError> {
        Err(SourceError::new("numbers", Some(page), SourceErrorKind::KeepsNothing))
    }

    fn set_len(&self, _: u64) -> Result<(), SourceError> {
        Err(SourceError::new("numbers", None, SourceErrorKind::Other("they are ten".into())))
    }

    fn sync(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics::default()
    }
}

impl State for Numbers {
    fn formats(formats: &mut StateFormats<'_, Numbers>) {
        formats.export(|this| Ok(Contents::new(Arc::new(this.clone()))));
    }
}

#[test]
fn a_source_of_the_programs_own_is_swapped_and_its_panic_harms_its_caller_alone() {
    let fills = Arc::new(AtomicU64::new(0));
    let source = swappable::<dyn Source, _>(Numbers(fills.clone()));
    assert_eq!(source.migrate(1).unwrap(), 0);
    swap(source.handle(), source::new_compressed(PLENTY)).unwrap();
    assert_eq!([1, 9].map(|number| page(source.handle(), number).unwrap()[77]), [1, 9]);
    assert_eq!(fills.load(Ordering::Relaxed), 2);

    let handle = source.handle();
    assert!(thread::spawn(move || page(handle, 5).is_ok()).join().is_err());
    assert!(thread::spawn(move || handle.migrate(10).is_ok()).join().is_err());
    // All pages of one stripe are still there.
    assert_eq!([1, 4, 6, 9].map(|number| page(handle, number).unwrap()[77]), [1, 4, 6, 9]);
    source.write(5, &[50; PAGE_BYTES]).unwrap();
    assert_eq!(source.migrate(100).unwrap(), 0);
    let before = fills.load(Ordering::Relaxed);
    assert_eq!([1, 4, 5, 9].map(|number| page(handle, number).unwrap()[77]), [1, 4, 50, 9]);
    assert_eq!(fills.load(Ordering::Relaxed), before, "the old source is gone");
}

/// Pages that the threads of the test below share.
const PAGES: u64 = 96;
const THREADS: u64 = 4;

/// Makes a page that tells its number and version, with a sum over both. Even versions do not compress.
fn stamped(number: u64, version: u64) -> Vec<u8> {
    let mut rng = Rng::new(number, version);
    let words = PAGE_BYTES / 8;
    let mut bytes = Vec::with_capacity(PAGE_BYTES);
    for word in 0..words as u64 {
        let filler = if version.is_multiple_of(2) { rng.below(u64::MAX) } else { number ^ version };
        bytes.extend_from_slice(&[number, version, filler][word.min(2) as usize].to_le_bytes());
    }
    bytes
}

/// Returns the version of a page. Panics unless the page is whole.
fn version_of(bytes: &[u8], number: u64) -> u64 {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap());
    let version = word(1);
    assert!(bytes == stamped(number, version), "page {number} is torn: version {version}");
    version
}

/// Writes the thread's own pages and reads those of all, until the end.
fn write_and_read(source: Handle<dyn Source>, thread: u64, is_over: &AtomicBool) -> Vec<u64> {
    let mut rng = Rng::new(7, thread);
    let mut own = vec![0; PAGES as usize];
    let mut seen = vec![0; PAGES as usize];
    let mut buffer = vec![0; PAGE_BYTES];
    while !is_over.load(Ordering::Relaxed) {
        let number = rng.below(PAGES);
        let at = number as usize;
        if number % THREADS == thread && rng.below(2) == 0 {
            own[at] += 1;
            source.write(number, &stamped(number, own[at])).unwrap();
        } else {
            assert_eq!(source.fill(number, &mut buffer).unwrap(), Filled::Read);
            let version = version_of(&buffer, number);
            assert!(version >= seen[at], "page {number}: version {version} after {}", seen[at]);
            assert!(number % THREADS != thread || version == own[at], "a write of page {number} is lost");
            seen[at] = version;
        }
    }
    own
}

/// Sets a flag at the end, also of a panic.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_page_is_torn_or_lost_while_threads_write_and_the_source_is_swapped_to_and_fro() {
    let source = source::compressed(PAGES * PAGE, PLENTY);
    (0..PAGES).for_each(|number| source.write(number, &stamped(number, 0)).unwrap());
    let (handle, is_over) = (source.handle(), AtomicBool::new(false));
    // Each file is on disk as long as the test runs, since the source may read it.
    let files = Vec::from_iter((0..20).map(|_| TempFile::new(&[])));
    let versions = thread::scope(|scope| {
        let _over = Over(&is_over);
        let threads = Vec::from_iter((0..THREADS).map(|thread| {
            let is_over = &is_over;
            scope.spawn(move || write_and_read(handle, thread, is_over))
        }));
        let to = |new: Replacement<dyn Source>| {
            Swap::new(handle).drain_timeout(Duration::from_secs(600)).run(new).unwrap();
        };
        for (round, file) in files.iter().enumerate() {
            to(source::new_file(file.open(), "to and fro"));
            // Half of the pages, all, or not even one before the next swap.
            match round % 3 {
                0 => drop(handle.migrate(PAGES / 2).unwrap()),
                1 => while handle.migrate(5).unwrap() > 0 {},
                _ => {}
            }
            to(source::new_compressed(PLENTY));
            while round % 2 == 0 && handle.migrate(9).unwrap() > 0 {}
        }
        drop(_over);
        Vec::from_iter(threads.into_iter().map(|thread| thread.join().unwrap()))
    });
    while handle.migrate(1).unwrap() > 0 {}
    for number in 0..PAGES {
        let bytes = page(handle, number).unwrap();
        let last = versions[(number % THREADS) as usize][number as usize];
        assert_eq!(version_of(&bytes, number), last);
    }
}
