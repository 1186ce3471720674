//! The source of a file under stress. It has contents instead of bytes, fails at random, and checks each
//! page that it gets.
//!
//! - I1. The writes of a page that a source gets come in the order in which threads made them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use squall::pager::cache::PAGE_BYTES;
use squall::pager::source::{Filled, Source, SourceError, SourceErrorKind, SourceStatistics};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::pattern::Content;
use crate::run::{Rng, lock};
use crate::violations::Violations;

/// The reason of a planned failure.
pub(super) const REFUSAL: &str = "refused by the stress";

/// A planned break happens once in this many chances.
const BREAK_ONE_IN: u64 = 128;

/// A page in the source.
#[derive(Clone, Copy, Default)]
struct Stored {
    content: Content,
    /// The contents before the last write.
    former: Content,
}

/// The source's state, which the stress shares with it.
pub(super) struct Store {
    pages: Mutex<HashMap<u64, Stored>>,
    bytes: AtomicU64,
    /// One call in this many fails, or no call if this is 0.
    fails_one_in: AtomicU64,
    seed: u64,
    draws: AtomicU64,
    broken: Option<Break>,
    violations: Arc<Violations>,
}

impl Store {
    pub(super) fn new(
        bytes: u64,
        fails_one_in: u64,
        broken: Option<Break>,
        violations: &Arc<Violations>,
        seed: u64,
    ) -> Store {
        Store {
            pages: Mutex::default(),
            bytes: AtomicU64::new(bytes),
            fails_one_in: AtomicU64::new(fails_one_in),
            seed,
            draws: AtomicU64::new(0),
            broken,
            violations: violations.clone(),
        }
    }

    /// Lets all calls succeed from now on.
    pub(super) fn heal(&self) {
        self.fails_one_in.store(0, Ordering::Relaxed);
    }

    /// Returns the contents of a page, if it was written.
    pub(super) fn content(&self, page: u64) -> Option<Content> {
        lock(&self.pages).get(&page).map(|stored| stored.content)
    }

    /// Returns the random numbers of a call.
    fn rng(&self) -> Rng {
        Rng::new(self.seed, self.draws.fetch_add(1, Ordering::Relaxed))
    }

    fn breaks(&self, planned: Break, rng: &mut Rng) -> bool {
        self.broken == Some(planned) && rng.one_in(BREAK_ONE_IN)
    }

    /// Fails at random. An error without a page is a planned break, unless the call concerns no page.
    fn refuse(&self, page: Option<u64>, rng: &mut Rng) -> Result<(), SourceError> {
        let fails_one_in = self.fails_one_in.load(Ordering::Relaxed);
        if fails_one_in == 0 || !rng.one_in(fails_one_in) {
            return Ok(());
        }
        count(Stat::Refusals);
        let page = page.filter(|_| self.broken != Some(Break::UnnamedError));
        Err(SourceError::new("stress", page, SourceErrorKind::Other(REFUSAL.into())))
    }
}

/// The words of a page that lie before the end of its file.
pub(super) fn words_within(page: u64, bytes: u64) -> u64 {
    bytes.saturating_sub(page * PAGE_BYTES as u64).min(PAGE_BYTES as u64) / 8
}

/// The object of a source.
pub(super) struct Stress(pub(super) Arc<Store>);

impl Source for Stress {
    fn len(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    fn fill(&self, page: u64, into: &mut [u8]) -> Result<Filled, SourceError> {
        let (store, mut rng) = (&*self.0, self.0.rng());
        store.refuse(Some(page), &mut rng)?;
        count(Stat::Fills);
        let pages = lock(&store.pages);
        let len = store.bytes.load(Ordering::Relaxed);
        if page * PAGE_BYTES as u64 >= len {
            return Err(SourceError::new("stress", Some(page), SourceErrorKind::BeyondEnd { len }));
        }
        let stored = pages.get(&page).copied().unwrap_or_default();
        let mut content = stored.content;
        if store.breaks(Break::StaleFill, &mut rng) {
            content = stored.former;
        }
        if content.is_zero() && rng.one_in(2) {
            return Ok(Filled::Zeros);
        }
        content.write(page, into);
        if store.breaks(Break::WrongPage, &mut rng) {
            content.write(page + 1, into);
        }
        if !content.is_zero() && store.breaks(Break::TearPage, &mut rng) {
            Content::new(1, 1, super::pattern::WORDS).write(page, &mut into[..PAGE_BYTES / 2]);
        }
        Ok(Filled::Read)
    }

    fn write(&self, page: u64, from: &[u8]) -> Result<(), SourceError> {
        let (store, mut rng) = (&*self.0, self.0.rng());
        store.refuse(Some(page), &mut rng)?;
        count(Stat::Writes);
        let content = match Content::read(page, from) {
            Ok(content) => content,
            Err(what) => {
                store.violations.fail(format!("a source was asked to write a bad page: {what}"));
                return Ok(());
            }
        };
        let mut pages = lock(&store.pages);
        let words = words_within(page, store.bytes.load(Ordering::Relaxed));
        if words == 0 {
            store.violations.fail(format!("page {page} was written to its file after it was cut off"));
            return Ok(());
        }
        if store.breaks(Break::LoseWrite, &mut rng) {
            return Ok(());
        }
        let stored = pages.entry(page).or_default();
        let content = content.cut(words);
        if content.serial() < stored.content.serial() && !content.is_zero() {
            let (new, old) = (content.serial(), stored.content.serial());
            store.violations.fail(format!("write {new} of page {page} came to the source after write {old}"));
        }
        if content != stored.content {
            *stored = Stored { content, former: stored.content };
        }
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> Result<(), SourceError> {
        let (store, mut rng) = (&*self.0, self.0.rng());
        store.refuse(None, &mut rng)?;
        let mut pages = lock(&store.pages);
        store.bytes.store(bytes, Ordering::Relaxed);
        if store.broken == Some(Break::KeepCut) {
            return Ok(());
        }
        for (page, stored) in &mut *pages {
            stored.content = stored.content.cut(words_within(*page, bytes));
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), SourceError> {
        self.0.refuse(None, &mut self.0.rng())
    }

    fn statistics(&self) -> SourceStatistics {
        SourceStatistics::default()
    }
}
