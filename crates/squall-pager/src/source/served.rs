//! The object: representatives that count their calls, over one source.
//!
//! Statistics are written at every fill, so each representative has its own. All of them share the layers.

use squall_core::swap::{Replacement, RootFormats};
use squall_core::{Cleanup, Miss, MissAnswer, Owned, RepContext, Root};
use squall_machine::ClusterSize;
use squall_machine::pervp::BiasedWord;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::contents::Contents;
use super::error::SourceError;
use super::interface::{Filled, Source, SourceStatistics};
use super::layers::{Layers, Store};

/// Root.
pub(super) struct Served<S: Store> {
    /// Empty until a swap moves the contents in.
    layers: OnceLock<Arc<Layers<S>>>,
    /// The store of a replacement, until then.
    store: Mutex<Option<S>>,
    /// Counts of the sources before.
    earlier: OnceLock<SourceStatistics>,
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local<S: Store> {
    layers: Arc<Layers<S>>,
    zero_filled: BiasedWord,
    read: BiasedWord,
    written: BiasedWord,
    at: RepContext<Served<S>>,
}

impl<S: Store> Served<S> {
    /// Creates a source of a store that has its pages already.
    #[track_caller]
    pub(super) fn source(store: S, len: u64, size: ClusterSize) -> Owned<dyn Source> {
        let layers = OnceLock::from(Arc::new(Layers::new(store, len)));
        Served { layers, store: Mutex::new(None), earlier: OnceLock::new() }.create(size)
    }

    /// Makes a replacement of an empty store.
    pub(super) fn replacement(store: S, size: ClusterSize) -> Replacement<dyn Source> {
        let store = Mutex::new(Some(store));
        Replacement::root(Served { layers: OnceLock::new(), store, earlier: OnceLock::new() }, size)
    }

    /// Takes the contents over, in a swap.
    fn import(&self, contents: Contents) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).take();
        let store = store.ok_or("the replacement has contents already; make a new one for each swap")?;
        let earlier = contents.statistics();
        let layers = Layers::over(store, contents)?;
        let is_set = self.layers.set(Arc::new(layers)).is_ok() && self.earlier.set(earlier).is_ok();
        Ok(is_set.then_some(()).ok_or("the replacement has contents already")?)
    }
}

impl<S: Store> Root for Served<S> {
    type Interface = dyn Source;
    type Rep = Local<S>;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn make_rep(&self, at: RepContext<Self>) -> Local<S> {
        let layers = self.layers.get().expect("`handle_miss` refuses calls of an empty replacement").clone();
        let [zero_filled, read, written] = std::array::from_fn(|_| BiasedWord::new(at.vp()));
        Local { layers, zero_filled, read, written, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        match self.layers.get() {
            None => miss.refuse("no contents moved in; repeat the swap with its state"),
            Some(_) => miss.local().cached(),
        }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let root = whole.root();
                let layers = root.layers.get().ok_or("the source has no contents: no swap moved them in")?;
                let counted = whole.reps().fold(root.counted_earlier(), |sum, (_, rep)| rep.count(sum));
                let stored_bytes = layers.statistics().stored_bytes;
                Ok(layers.contents(SourceStatistics { stored_bytes, ..counted }))
            })
            .import(|whole, contents: Contents| whole.root().import(contents));
    }
}

impl<S: Store> Served<S> {
    fn counted_earlier(&self) -> SourceStatistics {
        self.earlier.get().copied().unwrap_or_default()
    }
}

impl<S: Store> Local<S> {
    /// Adds the counts of this representative.
    fn count(&self, sum: SourceStatistics) -> SourceStatistics {
        SourceStatistics {
            zero_filled: sum.zero_filled + self.zero_filled.load(),
            read: sum.read + self.read.load(),
            written: sum.written + self.written.load(),
            ..sum
        }
    }
}

impl<S: Store> Source for Local<S> {
    #[inline]
    fn len(&self) -> u64 {
        self.layers.len()
    }

    #[inline]
    fn is_zeros(&self, page: u64) -> bool {
        let is_zeros = self.layers.is_zeros(page);
        if is_zeros {
            self.zero_filled.add(1);
        }
        is_zeros
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        let filled = self.layers.fill(page, into)?;
        match filled {
            Filled::Zeros => self.zero_filled.add(1),
            Filled::Read => self.read.add(1),
        }
        Ok(filled)
    }

    fn write(&self, page: u64, from: &[u8]) -> Result<(), SourceError> {
        self.layers.write(page, from)?;
        self.written.add(1);
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<(), SourceError> {
        self.layers.set_len(bytes)
    }

    fn sync(&self) -> Result<(), SourceError> {
        self.layers.sync()
    }

    fn migrate(&self, pages: u64) -> Result<u64, SourceError> {
        self.layers.migrate(pages)
    }

    fn statistics(&self) -> SourceStatistics {
        let counted = self.at.reps().fold(self.at.root().counted_earlier(), |sum, rep| rep.count(sum));
        SourceStatistics { stored_bytes: self.layers.statistics().stored_bytes, ..counted }
    }
}
