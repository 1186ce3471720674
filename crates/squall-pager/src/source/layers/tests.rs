//! Stores that fail in the middle of a write, and calls that take no lock.

use super::*;
use crate::source::compressed::Compressed;
use crate::source::zeros::Zeros;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::thread;

/// A store in plain memory, of which one write fails when it is half done. In the middle of each call it lets
/// other threads run.
#[derive(Default)]
struct Frail {
    bytes: RwLock<Vec<u8>>,
    /// The page of which the next write fails, and whether by a panic.
    breaks: RwLock<Option<(u64, bool)>>,
}

impl Store for Frail {
    fn name(&self) -> &str {
        "frail"
    }

    fn begin(&self, len: u64) -> Result<(), SourceErrorKind> {
        self.set_len(0, len)
    }

    fn is_blank(&self, _: u64) -> bool {
        false
    }

    fn has_zeros(&self, _: u64) -> bool {
        false
    }

    fn fill(&self, page: u64, into: &mut [u8], len: u64) -> Result<Filled, SourceErrorKind> {
        let within = bytes_within(page, len);
        for half in [0..within / 2, within / 2..within] {
            let bytes = &self.bytes.read().unwrap()[page as usize * PAGE_BYTES..];
            into[half.clone()].copy_from_slice(&bytes[half]);
            thread::yield_now();
        }
        into[within..].fill(0);
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, from: &[u8], _: u64) -> Result<(), SourceErrorKind> {
        let fails = self.breaks.write().unwrap().take_if(|(at, _)| *at == page);
        let half = if fails.is_some() { from.len() / 2 } else { from.len() };
        for part in [0..half / 2, half / 2..half] {
            let bytes = &mut self.bytes.write().unwrap()[page as usize * PAGE_BYTES..];
            bytes[part.clone()].copy_from_slice(&from[part]);
            thread::yield_now();
        }
        match fails {
            None => Ok(()),
            Some((_, false)) => {
                Err(SourceErrorKind::Io { action: "write the page", error: io::Error::other("frail") })
            }
            Some((_, true)) => panic!("the store breaks"),
        }
    }

    fn set_len(&self, _: u64, new: u64) -> Result<(), SourceErrorKind> {
        self.bytes.write().unwrap().resize(new as usize, 0);
        Ok(())
    }

    fn forget(&self, _: u64) {}

    fn sync(&self) -> Result<(), SourceErrorKind> {
        Ok(())
    }

    fn stored_bytes(&self, len: u64) -> u64 {
        len
    }
}

const PAGE: u64 = PAGE_BYTES as u64;

fn byte(source: &dyn Source, page: u64) -> u8 {
    let mut bytes = vec![0; PAGE_BYTES];
    assert!(source.fill(page, &mut bytes).unwrap() == Filled::Read || bytes[0] == 0);
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "page {page} is torn");
    bytes[0]
}

/// Makes a frail source of four pages above a source in which page 1 has been written.
fn frail() -> Layers<Frail> {
    let below = Layers::new(Compressed::new(1 << 20), 4 * PAGE);
    below.write(1, &[1; PAGE_BYTES]).unwrap();
    Layers::over(Frail::default(), Contents::new(Arc::new(below))).unwrap()
}

#[test]
fn a_write_that_fails_half_way_leaves_the_page_of_the_base() {
    for panics in [false, true] {
        for page in [1, 2] {
            let source = frail();
            *source.store.breaks.write().unwrap() = Some((page, panics));
            let fails = catch_unwind(AssertUnwindSafe(|| source.write(page, &[7; PAGE_BYTES])));
            assert!(fails.map_or(panics, |wrote| !panics && wrote.is_err()));
            assert_eq!([1, 2].map(|page| byte(&source, page)), [1, 0]);
            // The migration writes over the half, also with zeros.
            assert_eq!(source.migrate(4).unwrap(), 0);
            assert_eq!([0, 1, 2, 3].map(|page| byte(&source, page)), [0, 1, 0, 0]);
        }
    }
}

#[test]
fn a_migration_that_fails_goes_on_at_its_page() {
    let source = frail();
    *source.store.breaks.write().unwrap() = Some((1, false));
    assert_eq!(source.migrate(4).unwrap_err().page(), Some(1));
    assert_eq!(byte(&source, 1), 1);
    assert_eq!(source.migrate(1).unwrap(), 2);
    assert_eq!([0, 1, 2, 3].map(|page| byte(&source, page)), [0, 1, 0, 0]);
}

#[test]
fn a_base_that_is_cut_off_below_the_cursor_is_dropped_with_its_bits() {
    let source = frail();
    source.write(3, &[3; PAGE_BYTES]).unwrap();
    assert_eq!(source.migrate(2).unwrap(), 2);
    source.set_len(2 * PAGE + 1).unwrap();
    assert!(source.base.read().is_some(), "a byte of page 2 is in the base");
    source.set_len(2 * PAGE).unwrap();
    assert!(source.base.read().is_none());
    assert!(source.stripes.iter().all(|stripe| stripe.lock().here.is_empty()));
    assert_eq!(source.statistics().stored_bytes, 2 * PAGE);
    assert_eq!((source.migrate(1).unwrap(), byte(&source, 1)), (0, 1));
}

#[test]
fn the_bits_of_migrated_blocks_are_dropped() {
    let below = Layers::new(Compressed::new(1 << 20), 200 * PAGE);
    below.write(0, &[1; PAGE_BYTES]).unwrap();
    let source = Layers::over(Compressed::new(1 << 20), Contents::new(Arc::new(below))).unwrap();
    (0..200).for_each(|page| source.write(page, &[2; PAGE_BYTES]).unwrap());
    let blocks = || source.stripes.iter().map(|stripe| stripe.lock().here.len()).sum::<usize>();
    assert_eq!(blocks(), 4);
    assert_eq!((source.migrate(130).unwrap(), blocks()), (70, 2));
    source.write(0, &[3; PAGE_BYTES]).unwrap();
    assert_eq!(blocks(), 2);
}

#[test]
fn calls_of_one_page_exclude_each_other_and_migrations() {
    for round in 0..30 {
        let below = Layers::new(Frail::default(), 2 * PAGE);
        below.store.set_len(0, 2 * PAGE).unwrap();
        (0..2).for_each(|page| below.write(page, &[1; PAGE_BYTES]).unwrap());
        let source = Layers::over(Frail::default(), Contents::new(Arc::new(below))).unwrap();
        let start = Barrier::new(3);
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                while source.migrate(1).unwrap() > 0 {}
            });
            scope.spawn(|| {
                start.wait();
                (0..100).for_each(|_| assert!(byte(&source, round % 2) > 0));
            });
            start.wait();
            for value in 2..=100 {
                source.write(round % 2, &[value; PAGE_BYTES]).unwrap();
                assert_eq!(byte(&source, round % 2), value, "the write is lost");
            }
        });
        assert_eq!([round % 2, 1 - round % 2].map(|page| byte(&source, page)), [100, 1]);
    }
}

/// All locks are held by this thread, so a call that takes one would wait forever, or panic.
#[test]
fn co_42_a_first_touch_of_anonymous_memory_takes_no_lock() {
    fn check<S: Store>(store: S) {
        let source = Layers::new(store, 100 * PAGE);
        let zeros = Cell::new(0);
        let fill = |page| {
            assert!(source.is_zeros(page));
            assert_eq!(source.fill(page, &mut [0; PAGE_BYTES]).unwrap(), Filled::Zeros);
            zeros.set(zeros.get() + 1);
        };
        let lengths = source.lengths.lock();
        let base = source.base.write();
        let stripes = Vec::from_iter(source.stripes.iter().map(Stripe::lock));
        (0..100).for_each(fill);
        assert!(!source.is_zeros(100));
        assert_eq!((source.len(), zeros.get()), (100 * PAGE, 100));
        drop((lengths, base, stripes));
    }
    check(Zeros);
    check(Compressed::new(1 << 20));
}
