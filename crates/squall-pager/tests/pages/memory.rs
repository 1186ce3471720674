//! A source of the tests: a file in a vector, with faults on demand.

use squall_core::Owned;
use squall_pager::cache::PAGE_BYTES;
use squall_pager::source::{self, Filled, Source, SourceError, SourceErrorKind, SourceStatistics};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Ends a thread of a test when dropped, also when an assertion fails.
pub(crate) struct End<'a>(pub(crate) &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The state of the source, which tests share with it.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) bytes: Mutex<Vec<u8>>,
    pub(crate) fills: AtomicU64,
    /// Fills by the thread that serves faults of others.
    pub(crate) fills_by_service: AtomicU64,
    /// Whether a page that cannot be read panics.
    pub(crate) panics: AtomicBool,
    pub(crate) writes: AtomicU64,
    /// Pages that cannot be read.
    pub(crate) bad_reads: Mutex<HashMap<u64, &'static str>>,
    /// Pages that cannot be written.
    pub(crate) bad_writes: Mutex<HashMap<u64, &'static str>>,
}

impl State {
    pub(crate) fn with_pages(pages: usize) -> Arc<State> {
        Arc::new(State { bytes: Mutex::new(vec![0; pages * PAGE_BYTES]), ..State::default() })
    }

    pub(crate) fn source(self: &Arc<State>) -> Owned<dyn Source> {
        squall_core::shared(Memory(self.clone()))
    }

    /// Returns the first byte of a page.
    pub(crate) fn first(&self, page: u64) -> u8 {
        self.bytes.lock().unwrap()[page as usize * PAGE_BYTES]
    }
}

struct Memory(Arc<State>);

fn failed(page: u64, why: &'static str) -> SourceError {
    SourceError::new("memory", Some(page), SourceErrorKind::Other(why.into()))
}

impl Source for Memory {
    fn len(&self) -> u64 {
        self.0.bytes.lock().unwrap().len() as u64
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        self.0.fills.fetch_add(1, Relaxed);
        if std::thread::current().name() == Some("squall-pager") {
            self.0.fills_by_service.fetch_add(1, Relaxed);
        }
        assert!(!self.0.panics.load(Relaxed), "the source has a bug");
        if let Some(why) = self.0.bad_reads.lock().unwrap().get(&page) {
            return Err(failed(page, why));
        }
        let bytes = self.0.bytes.lock().unwrap();
        let from = (page as usize * PAGE_BYTES).min(bytes.len());
        let count = PAGE_BYTES.min(bytes.len() - from);
        into[..count].copy_from_slice(&bytes[from..from + count]);
        into[count..].fill(0);
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, bytes: &[u8]) -> Result<(), SourceError> {
        self.0.writes.fetch_add(1, Relaxed);
        if let Some(why) = self.0.bad_writes.lock().unwrap().get(&page) {
            return Err(failed(page, why));
        }
        let mut all = self.0.bytes.lock().unwrap();
        let from = (page as usize * PAGE_BYTES).min(all.len());
        let count = PAGE_BYTES.min(all.len() - from);
        all[from..from + count].copy_from_slice(&bytes[..count]);
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<(), SourceError> {
        self.0.bytes.lock().unwrap().resize(bytes as usize, 0);
        Ok(())
    }

    fn sync(&self) -> Result<(), SourceError> {
        Ok(())
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics::default()
    }
}

/// Returns a source of `pages` pages of zeros, which keeps no page.
pub(crate) fn zeros(pages: u64) -> Owned<dyn Source> {
    source::zero_fill(pages * PAGE_BYTES as u64)
}
