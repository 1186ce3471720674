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
//!   epoch, unless that epoch is over. A [`Ledger::take`] of an older epoch was seen by it, or gives its page
//!   back. So a [`Ledger::list`] in an epoch that is not over names all pages of the client.
//! - I3. The epoch of a client's place only grows, over all clients that use the place. A call moves it on
//!   from exactly the epoch in which the place had its client. So a call of an earlier client touches neither
//!   the epoch nor a page of a later one.
//! - I4. A process that dies between two instructions leaves each page free, or with a holder that `settle`
//!   or [`Ledger::end`] finds.
//!
//! Argument for I2. `take` writes the page's word, fences, and reads the epoch. `settle` writes the epoch,
//! fences, and reads the words. The two SeqCst fences have one order. If the fence of `take` is first,
//! `settle` sees the page. If the fence of `settle` is first, `take` sees the new epoch. It then gives the
//! page back by a compare-exchange of the old word, and `settle` moves the page by another one: one of them
//! wins. A `settle` that a later one overtakes may move the page of such a take too late for the later one.
//! So it looks at the epoch after its moves, like a take. It cannot tell such a page from one that the later
//! settle has still to move, so it frees neither. It begins one more epoch, and the client settles again. If
//! the client was ended, all pages of the old epochs are free, and the overtaken settle frees them.
//!
//! Argument for I3. Each era of a place begins with a `register`, and ends with an `end`. The owner is the
//! same throughout. A call reads the epoch, then the owner, and moves on exactly the epoch that it read. The
//! Release of `register` makes the owner at least as new as the epoch. So the owner is that of the epoch's
//! era.
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
    /// Not an ordering: a settle that was overtaken by a later one begins one more epoch (I2).
    pub(super) const OVERTAKEN: Site = Site(5);
    /// Not an ordering: a settle that was overtaken frees no page of a client that was not ended (I2).
    pub(super) const KEEP: Site = Site(6);
    /// Not an ordering: a call looks at the owner again if the epoch has changed (I3).
    pub(super) const SAME_OWNER: Site = Site(7);
    /// The Release of an epoch. Partner: the Acquire in [`Ledger::advance`](super::Ledger::advance) (I3).
    pub(super) const ERA: Site = Site(8);
    /// Not an ordering: a list looks at the epoch after it (I2).
    pub(super) const LIST_LOOK: Site = Site(9);
    /// The fence in [`Ledger::list`](super::Ledger::list). Partner: [`SETTLE_FENCE`].
    pub(super) const LIST_FENCE: Site = Site(10);
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

/// The end of a [`Ledger::advance`].
enum Advance {
    /// The place has this epoch now.
    To(u32),
    /// The place has another client, or none.
    NoClient,
    /// The word of the epoch, if it has no next one.
    Refused(u32),
}

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
    ///
    /// A second call with a key returns the place of the first one. Two calls at the same time may return two
    /// places: then one of them stays in the books, without pages, until it is ended. So does the place of a
    /// call that comes after the client was ended.
    pub(super) fn register(&self, key: u32) -> Option<Holder> {
        debug_assert!(key != FREE && key != USED_UP);
        let places = || (0..self.clients).map(|step| 1 + (key % self.clients + step) % self.clients);
        // Relaxed: the epoch decides on calls.
        let mine = places().find(|place| self.owner(*place).load(Relaxed) == key);
        mine.into_iter().chain(places()).find_map(|place| {
            // Relaxed, like above.
            let claimed = self.owner(place).compare_exchange(FREE, key, Relaxed, Relaxed);
            if claimed.is_err_and(|owner| owner != key) {
                return None;
            }
            match self
                .advance(place, key, |old| (old & EPOCH_MAX < EPOCH_MAX - 1).then(|| (old & !ENDED) + 1))
            {
                Advance::To(epoch) => Some(Holder { place, epoch }),
                Advance::Refused(_) => {
                    let _ = self.owner(place).compare_exchange(key, USED_UP, Relaxed, Relaxed);
                    None
                }
                Advance::NoClient => None,
            }
        })
    }

    /// Moves the epoch of a client's place on to `next` of the present word, unless that is `None` (I3).
    fn advance(&self, place: u32, key: u32, next: impl Fn(u32) -> Option<u32>) -> Advance {
        let word = self.epoch(place);
        let mut is_again = false;
        loop {
            // Acquire: pairs with the Release below, in the `register` of the epoch's era (I3).
            let old = word.load(Acquire);
            let is_owner = self.owner(place).load(Relaxed) == key;
            if !(is_owner || is_again && sites::SAME_OWNER.is_weak()) {
                return Advance::NoClient;
            }
            let Some(new) = next(old) else { return Advance::Refused(old) };
            // Release: pairs with the Acquire above. The fence of `settle` follows where pages depend on it.
            if word.compare_exchange(old, new, sites::ERA.order(Release), Relaxed).is_ok() {
                return Advance::To(new & EPOCH_MAX);
            }
            is_again = true;
        }
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
        let Advance::To(epoch) = self.next_epoch(place, key) else { return Err(NoClient) };
        let holder = Holder { place, epoch };
        if !sites::SETTLE_FENCE.is_weak() {
            // SeqCst: pairs with the fence in `take`, and with that in `list` (I2).
            fence(SeqCst);
        }
        self.move_pages(holder, holder.word(), |_| ());
        // SeqCst: pairs with the fence of a later `settle` or `end`, like that in `take`. That one saw all
        // pages that were moved here, or the epoch below is its new one.
        fence(SeqCst);
        if self.is_outdated(holder) && !sites::OVERTAKEN.is_weak() {
            // The later settle may have missed a page that was moved here (I2). In the last epoch, the page
            // stays with its client until that is ended.
            let is_ended = match self.next_epoch(place, key) {
                Advance::To(_) => false,
                Advance::NoClient => true,
                Advance::Refused(word) => word & ENDED != 0,
            };
            if is_ended || sites::KEEP.is_weak() {
                let later = Holder { place, epoch: epoch + 1 };
                self.move_pages(later, FREE, |_| ());
            }
        }
        Ok(holder)
    }

    /// Begins a new epoch of a client, unless it was ended.
    fn next_epoch(&self, place: u32, key: u32) -> Advance {
        // The mark ENDED makes the word larger than each epoch.
        let next = |old| (old < EPOCH_MAX - 1).then_some(old + 1);
        if self.is_place(place) { self.advance(place, key, next) } else { Advance::NoClient }
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

    /// Returns pages of a client in its epoch, from `from` on and at most so many. `None` if the epoch is
    /// over (I2).
    pub(super) fn list(&self, holder: Holder, from: u32, count_max: usize) -> Option<Vec<u32>> {
        let pages = (from..self.pages).filter(|page| self.page(*page).load(Relaxed) == holder.word());
        let pages = pages.take(count_max).collect();
        if !sites::LIST_FENCE.is_weak() {
            // Acquire: pairs with the fence in `settle`, and with that in `end`. If a page has moved to a
            // later epoch, the epoch below is that one.
            fence(Acquire);
        }
        (!self.is_outdated(holder) || sites::LIST_LOOK.is_weak()).then_some(pages)
    }

    /// Ends a client. Frees its pages, which belong into the pool.
    pub(super) fn end(&self, place: u32, key: u32) -> Result<Vec<u32>, NoClient> {
        if !self.is_place(place) {
            return Err(NoClient);
        }
        // No client has the last epoch, so an end always finds a later one, or the place was ended there.
        let next = |old| (old & EPOCH_MAX < EPOCH_MAX).then(|| ((old & !ENDED) + 1) | ENDED);
        let epoch = match self.advance(place, key, next) {
            Advance::To(epoch) => epoch,
            Advance::Refused(_) => EPOCH_MAX,
            Advance::NoClient => return Err(NoClient),
        };
        // SeqCst: pairs with the fence in `take`, and with that in `list`, like that of `settle`.
        fence(SeqCst);
        let mut freed = Vec::new();
        self.move_pages(Holder { place, epoch }, FREE, |page| freed.push(page));
        // Relaxed: the next client of the place begins a later epoch (I3).
        let _ = self.owner(place).compare_exchange(key, FREE, Relaxed, Relaxed);
        Ok(freed)
    }

    /// Returns the pages that are free now, one after the other.
    pub(super) fn free_pages(&self) -> impl Iterator<Item = u32> {
        (0..self.pages).filter(|page| self.is_free(*page))
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
        let listed = ledger.list(settled, 0, 1).unwrap() == [0];
        let taken = server.join().unwrap();
        assert_eq!(listed, !ledger.is_free(0), "a page that the client does not know is not free");
        assert!(taken != Take::Held || listed, "the client has a page, and settled without it");
        assert!(taken != (Take::Outdated { is_free: true }) || !listed, "a held page goes into the pool");
    }

    /// Settles as a client does whose epoch may be over. Returns its pages.
    fn listed(ledger: &Shared, mut holder: Holder, count: usize) -> Vec<u32> {
        loop {
            match ledger.list(holder, 0, count) {
                Some(pages) => return pages,
                None => holder = ledger.settle(holder.place, KEY).unwrap(),
            }
        }
    }

    /// Settles here and in another thread. Returns the holder of the later epoch.
    fn settle_twice(ledger: &Shared, place: u32, meanwhile: impl FnOnce()) -> Holder {
        let other = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.settle(place, KEY).unwrap())
        };
        let settled = ledger.settle(place, KEY).unwrap();
        meanwhile();
        let other = other.join().unwrap();
        if other.epoch > settled.epoch { other } else { settled }
    }

    /// A call takes a page while two servers settle for its client. The client listens to the later epoch.
    fn settled_twice() {
        let ledger = ledger(1);
        let holder = ledger.register(KEY).unwrap();
        let server = {
            let ledger = ledger.clone();
            thread::spawn(move || _ = ledger.take(0, holder))
        };
        let settled = settle_twice(&ledger, holder.place, || server.join().unwrap());
        let listed = listed(&ledger, settled, 1) == [0];
        assert_eq!(listed, !ledger.is_free(0), "a page that the client does not know is not free");
    }

    /// Two servers settle for a client with a page. The client keeps it.
    fn kept() {
        let ledger = ledger(1);
        let holder = ledger.register(KEY).unwrap();
        assert_eq!(ledger.take(0, holder), Take::Held);
        let settled = settle_twice(&ledger, holder.place, || ());
        assert_eq!(listed(&ledger, settled, 1), [0], "a page that the client has is free");
    }

    /// A late copy of a request settles while a server lists the pages of the client.
    fn listed_in_full() {
        let ledger = ledger(2);
        let holder = ledger.register(KEY).unwrap();
        assert_eq!([0, 1].map(|page| ledger.take(page, holder)), [Take::Held; 2]);
        // Loom remembers the last access of a word alone: so the thread that only reads is the second one.
        let server = {
            let ledger = ledger.clone();
            thread::spawn(move || ledger.list(holder, 0, 2))
        };
        let _ = ledger.settle(holder.place, KEY).unwrap();
        if let Some(pages) = server.join().unwrap() {
            assert_eq!(pages, [0, 1], "the list lacks a page, and the epoch is not over");
        }
    }

    /// Makes a late call for a client that is ended meanwhile. A later client of the place has a page.
    fn late(call: impl FnOnce(&Ledger<Local>, u32) + Send + 'static) {
        let ledger = ledger(1);
        let place = ledger.register(KEY).unwrap().place;
        let late = {
            let ledger = ledger.clone();
            thread::spawn(move || call(&ledger, place))
        };
        let _ = ledger.end(place, KEY);
        // The place has a client still if the late end has not returned.
        let holder = ledger.register(KEY + 1);
        let taken = holder.is_some_and(|holder| ledger.take(0, holder) == Take::Held);
        late.join().unwrap();
        if let Some(holder) = holder.filter(|_| taken) {
            assert_eq!(ledger.list(holder, 0, 1), Some(vec![0]), "a call of an earlier client took the page");
        }
    }

    fn ended_late() {
        late(|ledger, place| _ = ledger.end(place, KEY));
    }

    fn settled_late() {
        late(|ledger, place| _ = ledger.settle(place, KEY));
    }

    fn registered_late() {
        late(|ledger, _| _ = ledger.register(KEY));
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
        kept: KEEP;
        listed_in_full: LIST_LOOK, LIST_FENCE;
        ended_late: SAME_OWNER, ERA;
        settled_late: SAME_OWNER, ERA;
        registered_late: SAME_OWNER;
        passed_on: TAKE_FENCE, FREE;
        freed_once: ;
    }
}
