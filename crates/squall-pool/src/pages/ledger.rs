//! The ledger of pages: a word for each page, which names its holder.
//!
//! Problem: servers and clients die at any instruction, and replies are lost. A page must then neither have
//! two holders nor be forgotten. A pool alone cannot say so: its numbers vanish with a killed member.
//! Idea: one word of shared memory decides on each page, by a compare-exchange. The pool only says where to
//! look. So a number that the pool lost, or has twice, does no harm.
//!
//! A held word names the client, and the *epoch* of the client in which the page was taken. A client that
//! misses a reply *settles*: it begins a new epoch, and learns its pages. No call of an older epoch has an
//! effect afterwards.
//!
//! - I1. A page has at most one holder. Only its word says which one.
//! - I2. Once [`Ledger::settle`] has returned, the pages of the client are those that it moved to the new
//!   epoch. A [`Ledger::take`] of an older epoch was seen by it, or gives its page back.
//! - I3. The epoch of a client's place only grows, over all clients that use the place. So a call of an
//!   earlier client touches no page of a later one.
//! - I4. A process that dies between two instructions leaves each page free, or with a holder that `settle`
//!   or [`Ledger::end`] finds.
//!
//! Argument for I2. `take` writes the page's word, fences, and reads the epoch. `settle` writes the epoch,
//! fences, and reads the words. The two SeqCst fences have one order. If the fence of `take` is first,
//! `settle` sees the page. If the fence of `settle` is first, `take` sees the new epoch. It then gives the
//! page back by a compare-exchange of the old word, and `settle` moves the page by another one: one of them
//! wins. A `settle` that a later one overtakes may move the page of such a take too late for the later one.
//! So it looks at the epoch after its moves, like a take, and frees the pages of its own epoch.
//!
//! Not promised: protection from a client that lies about its place. Callers are trusted, as in the thesis.
//! Cost: a take is two locked instructions, and a free is one. `settle` and `end` read all words.
//! Source: Wentzlaff, *fos*, 2012, §5.1 (DP-18), without such a ledger: there a lost number stays lost.

use squall_sys::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use squall_sys::sync::atomic::{AtomicU32, fence};
use squall_sys::sync::weaken::Site;

/// Sites of this protocol. Each model twin weakens one of them and must fail.
mod sites {
    use super::Site;
    /// The fence in [`Ledger::take`](super::Ledger::take). Partners: [`SETTLE_FENCE`] and [`FREE`].
    pub(super) const TAKE_FENCE: Site = Site(0);
    /// The fence in [`Ledger::settle`](super::Ledger::settle). Partner: [`TAKE_FENCE`].
    pub(super) const SETTLE_FENCE: Site = Site(1);
    /// The Release of a page. Partner: [`TAKE_FENCE`].
    pub(super) const FREE: Site = Site(2);
    /// Not an ordering: a take looks at the epoch after it (I2).
    pub(super) const LOOK: Site = Site(3);
    /// Not an ordering: a page that is given back must still have the old word (I2).
    pub(super) const OLD_WORD: Site = Site(4);
    /// Not an ordering: a settle that was overtaken by a later one frees the pages of its own epoch (I2).
    pub(super) const OVERTAKEN: Site = Site(5);
}

/// The words of a ledger.
pub(super) trait Words {
    fn word(&self, at: usize) -> &AtomicU32;
}

/// Number that marks a ledger of this format.
pub(super) const MAGIC: u32 = 0x5351_5047;
/// The most clients at a time: 12 bits of a held word, without 0.
pub(super) const CLIENTS_MAX: u32 = (1 << (32 - EPOCH_BITS)) - 1;
/// The most epochs of a client's place.
const EPOCH_BITS: u32 = 20;
const EPOCH_MAX: u32 = (1 << EPOCH_BITS) - 1;
/// Mark in the epoch's word: the client of the place was ended.
const ENDED: u32 = 1 << 31;
/// The word of a free page, and of a place without a client.
const FREE: u32 = 0;
/// The owner of a place without further epochs.
const USED_UP: u32 = u32::MAX;

/// Word 0 is the magic number, 1 the number of pages, 2 whether the pool was filled once, 3 the identity.
const PAGES: usize = 1;
const FILLED: usize = 2;
const IDENTITY: usize = 3;
/// The first word of the clients' places: each has an owner and an epoch.
const PLACES: usize = 16;

/// The words of a ledger with so many pages and places.
pub(super) fn words(pages: u32, clients: u32) -> usize {
    PLACES + 2 * clients as usize + pages as usize
}

/// A client as its calls name it: its place, from 1 on, and its epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) place: u32,
    pub(super) epoch: u32,
}

impl Holder {
    fn word(self) -> u32 {
        self.place << EPOCH_BITS | self.epoch
    }

    fn from(word: u32) -> Option<Holder> {
        let holder = Holder { place: word >> EPOCH_BITS, epoch: word & EPOCH_MAX };
        (holder.place != 0).then_some(holder)
    }
}

/// The end of a [`Ledger::take`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Take {
    Held,
    /// The page is not free: the pool had its number twice.
    NotFree,
    /// The client has a newer epoch. If `is_free`, the page is free again, and belongs into the pool.
    Outdated {
        is_free: bool,
    },
}

/// The end of a [`Ledger::free`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Free {
    /// The page is free, and belongs into the pool.
    Done,
    /// The client does not have the page.
    NotHeld,
    /// The client has a newer epoch. The call had no effect.
    Outdated,
    OutOfRange,
}

/// The client of a place was ended, or never was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoClient;

/// A ledger over words that processes share.
#[derive(Debug)]
pub(super) struct Ledger<W> {
    words: W,
    pages: u32,
    clients: u32,
}

impl<W: Words> Ledger<W> {
    /// Begins a ledger over zeroed words: all pages are free. `identity` is random.
    pub(super) fn begin(words: W, pages: u32, clients: u32, identity: u32) -> Ledger<W> {
        words.word(PAGES).store(pages, Relaxed);
        words.word(IDENTITY).store(identity, Relaxed);
        // Release: pairs with the Acquire in `open`.
        words.word(0).store(MAGIC, Release);
        Ledger { words, pages, clients }
    }

    /// Opens the ledger of another process, if it has so many pages.
    pub(super) fn open(words: W, pages: u32, clients: u32) -> Option<Ledger<W>> {
        // Acquire: pairs with the Release in `begin`.
        let is_ledger = words.word(0).load(Acquire) == MAGIC && words.word(PAGES).load(Relaxed) == pages;
        is_ledger.then_some(Ledger { words, pages, clients })
    }

    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns the number that tells this ledger from an earlier one under the same name.
    pub(super) fn identity(&self) -> u32 {
        // Relaxed: `open` comes first.
        self.words.word(IDENTITY).load(Relaxed)
    }

    /// Returns true once over all processes: the caller fills the pool.
    pub(super) fn fills(&self) -> bool {
        self.words.word(FILLED).compare_exchange(0, 1, Relaxed, Relaxed).is_ok()
    }

    /// The owner of a place: 0, or the key of a client.
    fn owner(&self, place: u32) -> &AtomicU32 {
        self.words.word(PLACES + 2 * (place as usize - 1))
    }

    fn epoch(&self, place: u32) -> &AtomicU32 {
        self.words.word(PLACES + 2 * (place as usize - 1) + 1)
    }

    fn page(&self, page: u32) -> &AtomicU32 {
        self.words.word(PLACES + 2 * self.clients as usize + page as usize)
    }

    fn is_place(&self, place: u32) -> bool {
        (1..=self.clients).contains(&place)
    }

    /// Gives a client a place. `key` is neither 0 nor the largest number. `None` if all places are in use.
    pub(super) fn register(&self, key: u32) -> Option<Holder> {
        debug_assert!(key != FREE && key != USED_UP);
        (0..self.clients).find_map(|step| {
            let place = 1 + (key % self.clients + step) % self.clients;
            // Relaxed: the epoch below decides on calls.
            let claimed = self.owner(place).compare_exchange(FREE, key, Relaxed, Relaxed);
            if claimed.is_err_and(|owner| owner != key) {
                return None;
            }
            match self.advance(place, EPOCH_MAX - 1, |old| (old & !ENDED) + 1) {
                Some(epoch) => Some(Holder { place, epoch }),
                None => {
                    self.owner(place).store(USED_UP, Relaxed);
                    None
                }
            }
        })
    }

    /// Moves the epoch of a place on, at most to `last`. Returns the new one.
    fn advance(&self, place: u32, last: u32, next: impl Fn(u32) -> u32) -> Option<u32> {
        let word = self.epoch(place);
        let mut old = word.load(Relaxed);
        while old & EPOCH_MAX < last {
            // Relaxed: the fence of `settle` follows where pages depend on it.
            match word.compare_exchange(old, next(old), Relaxed, Relaxed) {
                Ok(_) => return Some((old & EPOCH_MAX) + 1),
                Err(now) => old = now,
            }
        }
        None
    }

    /// Whether calls of this epoch are over.
    pub(super) fn is_outdated(&self, holder: Holder) -> bool {
        !self.is_place(holder.place) || self.epoch(holder.place).load(Relaxed) != holder.epoch
    }

    /// Takes a page for a client, if it is free.
    pub(super) fn take(&self, page: u32, holder: Holder) -> Take {
        if !self.is_place(holder.place) || holder.epoch > EPOCH_MAX {
            return Take::Outdated { is_free: true };
        }
        if page >= self.pages {
            return Take::NotFree;
        }
        let (word, mine) = (self.page(page), holder.word());
        // Relaxed: the fence below follows.
        if word.compare_exchange(FREE, mine, Relaxed, Relaxed).is_err() {
            return Take::NotFree;
        }
        if !sites::TAKE_FENCE.is_weak() {
            // SeqCst: pairs with the Release in `free`: the holder sees the last writes of the one before. It
            // also pairs with the fence in `settle` (I2).
            fence(SeqCst);
        }
        if self.epoch(holder.place).load(Relaxed) == holder.epoch || sites::LOOK.is_weak() {
            return Take::Held;
        }
        if sites::OLD_WORD.is_weak() {
            word.store(FREE, Relaxed);
            return Take::Outdated { is_free: true };
        }
        // Release: pairs with the fence of the next `take`.
        let given_back = word.compare_exchange(mine, FREE, Release, Relaxed);
        Take::Outdated { is_free: given_back.is_ok() }
    }

    /// Frees a page of a client.
    pub(super) fn free(&self, page: u32, holder: Holder) -> Free {
        if page >= self.pages {
            return Free::OutOfRange;
        }
        if !self.is_place(holder.place) || holder.epoch > EPOCH_MAX {
            return Free::Outdated;
        }
        // Release: pairs with the fence in `take`.
        let order = sites::FREE.order(Release);
        match self.page(page).compare_exchange(holder.word(), FREE, order, Relaxed) {
            Ok(_) => Free::Done,
            Err(_) if self.is_outdated(holder) => Free::Outdated,
            Err(_) => Free::NotHeld,
        }
    }

    /// Begins a new epoch of a client, and moves its pages there (I2).
    pub(super) fn settle(&self, place: u32, key: u32) -> Result<Holder, NoClient> {
        if !self.is_client(place, key) {
            return Err(NoClient);
        }
        let epoch = self.advance(place, EPOCH_MAX - 1, |old| old + 1).ok_or(NoClient)?;
        // The client may have been ended meanwhile, and the place may have another one: then the new epoch
        // makes that client settle, which does no harm.
        if !self.is_client(place, key) {
            return Err(NoClient);
        }
        let holder = Holder { place, epoch };
        if !sites::SETTLE_FENCE.is_weak() {
            // SeqCst: pairs with the fence in `take` (I2).
            fence(SeqCst);
        }
        self.move_pages(holder, holder.word(), |_| ());
        // SeqCst: pairs with the fence of a later `settle` or `end`, like that in `take`. That one saw all
        // pages that were moved here, or the epoch below is its new one.
        fence(SeqCst);
        if self.is_outdated(holder) && !sites::OVERTAKEN.is_weak() {
            // Only late takes are left in this epoch, and their client has settled without them.
            let later = Holder { place, epoch: epoch + 1 };
            self.move_pages(later, FREE, |_| ());
        }
        Ok(holder)
    }

    /// Whether a place has this client, and it was not ended.
    fn is_client(&self, place: u32, key: u32) -> bool {
        self.is_place(place)
            && self.owner(place).load(Relaxed) == key
            && self.epoch(place).load(Relaxed) & ENDED == 0
    }

    /// Moves the pages of earlier epochs of a place to another word.
    fn move_pages(&self, holder: Holder, to: u32, mut moved: impl FnMut(u32)) {
        for page in 0..self.pages {
            let word = self.page(page);
            let mut old = word.load(Relaxed);
            let earlier = |old: Holder| old.place == holder.place && old.epoch < holder.epoch;
            while Holder::from(old).is_some_and(earlier) {
                // Release: pairs with the fence in `take`, if the page becomes free.
                match word.compare_exchange(old, to, Release, Relaxed) {
                    Ok(_) => {
                        moved(page);
                        break;
                    }
                    Err(now) => old = now,
                }
            }
        }
    }

    /// Returns pages of a client in its epoch, from `from` on and at most so many.
    pub(super) fn held(&self, holder: Holder, from: u32, count_max: usize) -> Vec<u32> {
        let pages = (from..self.pages).filter(|page| self.page(*page).load(Relaxed) == holder.word());
        pages.take(count_max).collect()
    }

    /// Ends a client. Frees its pages, which belong into the pool.
    pub(super) fn end(&self, place: u32, key: u32) -> Result<Vec<u32>, NoClient> {
        if !self.is_place(place) || self.owner(place).load(Relaxed) != key {
            return Err(NoClient);
        }
        // No client has the last epoch, so an end always finds a later one, or the place was ended there.
        let epoch = self.advance(place, EPOCH_MAX, |old| ((old & !ENDED) + 1) | ENDED).unwrap_or(EPOCH_MAX);
        // SeqCst: pairs with the fence in `take`, like that of `settle`.
        fence(SeqCst);
        let mut freed = Vec::new();
        self.move_pages(Holder { place, epoch }, FREE, |page| freed.push(page));
        // Relaxed: the next client of the place begins a later epoch (I3).
        let _ = self.owner(place).compare_exchange(key, FREE, Relaxed, Relaxed);
        Ok(freed)
    }

    /// Returns the pages that are free now, one after the other.
    pub(super) fn free_pages(&self) -> Vec<u32> {
        (0..self.pages).filter(|page| self.is_free(*page)).collect()
    }

    pub(super) fn is_free(&self, page: u32) -> bool {
        page < self.pages && self.page(page).load(Relaxed) == FREE
    }

    /// Returns the places with a client or pages: the key and the number of pages.
    pub(super) fn clients(&self) -> Vec<(u32, u32, u32)> {
        let mut pages = vec![0; self.clients as usize + 1];
        for page in 0..self.pages {
            if let Some(holder) = Holder::from(self.page(page).load(Relaxed))
                && let Some(count) = pages.get_mut(holder.place as usize)
            {
                *count += 1;
            }
        }
        let places = (1..=self.clients).map(|place| (place, self.owner(place).load(Relaxed)));
        let with_pages = places.map(|(place, key)| (place, key, pages[place as usize]));
        with_pages.filter(|(_, key, pages)| *pages > 0 || (*key != FREE && *key != USED_UP)).collect()
    }
}

#[cfg(test)]
mod model {
    use super::*;
    use squall_sys::sync::{Arc, thread};

    struct Local(Vec<AtomicU32>);

    impl Words for Local {
        fn word(&self, at: usize) -> &AtomicU32 {
            &self.0[at]
        }
    }

    type Shared = Arc<Ledger<Local>>;

    fn ledger(pages: u32) -> Shared {
        let words = (0..words(pages, 1)).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Ledger::begin(Local(words), pages, 1, KEY))
    }

    const KEY: u32 = 7;

    /// A call takes a page while its client settles. Afterwards the client knows the page, or it is free.
    fn settled() {
        let ledger = ledger(1);
        let holder = ledger.register(KEY).unwrap();
        let server = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.take(0, holder))
        };
        let settled = ledger.settle(holder.place, KEY).unwrap();
        let listed = !ledger.held(settled, 0, 1).is_empty();
        let taken = server.join().unwrap();
        assert_eq!(listed, !ledger.is_free(0), "a page that the client does not know is not free");
        assert!(taken != Take::Held || listed, "the client has a page, and settled without it");
        assert!(taken != (Take::Outdated { is_free: true }) || !listed, "a held page goes into the pool");
    }

    /// A call takes a page while two servers settle for its client. The client listens to the later epoch.
    fn settled_twice() {
        let ledger = ledger(1);
        let holder = ledger.register(KEY).unwrap();
        let [server, other] = [false, true].map(|settles| {
            let ledger = ledger.clone();
            thread::spawn(move || match settles {
                true => ledger.settle(holder.place, KEY).map(|settled| {
                    let listed = !ledger.held(settled, 0, 1).is_empty();
                    (settled, listed)
                }),
                false => {
                    let _ = ledger.take(0, holder);
                    Err(NoClient)
                }
            })
        });
        let settled = ledger.settle(holder.place, KEY).unwrap();
        let listed = !ledger.held(settled, 0, 1).is_empty();
        let _ = server.join().unwrap();
        let (other, other_listed) = other.join().unwrap().unwrap();
        let knows = if other.epoch > settled.epoch { other_listed } else { listed };
        assert_eq!(knows, !ledger.is_free(0), "a page that the client does not know is not free");
    }

    /// A client writes to a page and frees it. The next holder sees the write.
    fn passed_on() {
        let ledger = ledger(1);
        let content = Arc::new(AtomicU32::new(0));
        let holder = ledger.register(KEY).unwrap();
        assert_eq!(ledger.take(0, holder), Take::Held);
        let other = {
            let (ledger, content) = (ledger.clone(), content.clone());
            thread::spawn(move || {
                content.store(1, Relaxed);
                assert_eq!(ledger.free(0, holder), Free::Done);
            })
        };
        if ledger.take(0, holder) == Take::Held {
            assert_eq!(content.load(Relaxed), 1, "the last write of the holder before is not there");
        }
        other.join().unwrap();
    }

    /// Two servers free one page, and a third call takes it: one free of the page alone has an effect.
    fn freed_once() {
        let ledger = ledger(1);
        let holder = ledger.register(KEY).unwrap();
        assert_eq!(ledger.take(0, holder), Take::Held);
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.free(0, holder))
        };
        let mine = ledger.free(0, holder);
        let frees = [mine, other.join().unwrap()];
        assert!(frees.contains(&Free::Done) && frees.contains(&Free::NotHeld), "{frees:?}");
    }

    use squall_sys::models;
    models! { "pages::ledger::model":
        settled: TAKE_FENCE, SETTLE_FENCE, LOOK, OLD_WORD;
        settled_twice: OVERTAKEN;
        passed_on: TAKE_FENCE, FREE;
        freed_once: ;
    }
}
