//! The map below its interface: which slab is the current one, how entries change, and how they move to another slab.
//!
//! Problem: a table must grow and shrink while all read and write it, and no reader may wait for that. Idea: a slab that is to be
//! replaced names the `next` one; from then on whoever wants to write to a home moves it there first, entries and all, under the
//! home's lock, and a reader that finds nothing in a home asks whether it has moved. Writers move a few homes more each, and the
//! one that moves the last makes the next slab the current one.
//!
//! - I1. Only the current slab is given a next one, once, by who has taken that on; and a slab becomes the current one when all homes of the one before have moved.
//! - I2. What changes an entry holds the lock of its home in the one slab where the home has not moved. It looks at `next` under that
//!   lock: a home of a slab that has a next one is moved before anything else is done to it. Who moves a home holds that lock, too, and has seen
//!   `next`; so who sees none, under the lock, has a home that has not moved.
//! - I3. Of a home that moves, all entries are in the next slab before `MOVED` is set; then nothing of the old home is changed any more,
//!   and nothing of it is cleared. So a reader that loaded its state before reads, whatever it finds there, what was so at one moment
//!   between that load and the setting of `MOVED`, which is within its operation.
//! - I4. An entry stays in its slot until it is removed or its home has moved; so who finds nothing, in a home that had not moved when
//!   it began, missed nothing that was there all the time.
//! - I5. Slabs and nodes are retired when nothing that a later operation can come to names them: slabs after another is the
//!   current one, nodes after the slot has another or none. An old slab still names nodes, but those of homes that have moved,
//!   at which no operation looks that began after.
//! - I6. No code of the user's runs under a lock, but the comparison and the hashing of keys. Where one of these panics, the write that
//!   it is for either has not begun, or is done and what panicked was the move of other homes.
//!
//! Progress: readers are lock-free (a look begins anew only when an entry was removed from the bucket meanwhile); writers of one home exclude each
//! other. A thread that stalls in a write holds up the writers of its home, and nobody else; one that stalls while it makes the next slab, those
//! who ask for a size (`fit`), and all others go on with longer chains.
//! Linearization: a read that finds, at its load of the slot; one that does not, at its load of the state of the bucket in which the
//! key would be; a write at its store of the slot or the state, which all processors see before the write returns (`show`).
//! Source: Appavoo 2005, §4.1.4 (DHash: fine-grained, each table resizes by itself), §7 (RCU in place of counts, CO-66); buckets of a
//! line with tags after the hash tables of memory-optimised caches (Fan et al., MemC3, 2013); sixteen tags compared at once after Abseil's
//! (Kulukundis 2017); our own: the proof above.

use crate::table::bucket::{Bucket, Look, SLOTS, is_moved};
use crate::table::ground::{self, Count};
use crate::table::home::Here;
use crate::table::layout::{IsKey, Layout};
use crate::table::sites;
use crate::table::slab::{Place, Slab, mix, tag};
use squall_lock::LockGuard;
use squall_sys::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Homes of the smallest slab.
const FEWEST: usize = if cfg!(loom) { 2 } else { 1 };
/// Homes that a writer moves for others.
const HELP: usize = if cfg!(loom) { 0 } else { 8 };
/// Of those that find no room where they should, and of those that empty a bucket, so many ask whether it is time for another size
/// ([`Slab::is_sampled`]).
const CROWDED: u32 = 3;
pub(crate) const EMPTIED: u32 = 2;
/// Entries of a hundred slots from which on the table grows: the more, the longer the chains.
const FULL: usize = 80;
/// The same, below which it shrinks.
const SPARSE: usize = 15;

pub(crate) struct Raw<L: Layout> {
    current: AtomicPtr<Slab<L>>,
    /// Not fewer homes than this.
    fewest: AtomicUsize,
    pub(crate) count: Count,
}

// SAFETY: it owns entries, which are `Send + Sync`.
unsafe impl<L: Layout> Send for Raw<L> {}
// SAFETY: as above: to all threads it shows `&` to them.
unsafe impl<L: Layout> Sync for Raw<L> {}

/// What a write does to the entry that it found, or did not find.
pub(crate) enum Change<L: Layout> {
    Nothing,
    /// A new entry, or all of an old one replaced.
    Put(L::Fresh),
    /// Another value for the key that was found.
    Value(L::NewValue),
    Remove,
}

/// An entry that was found, and where.
pub(crate) struct Found<'a, L: Layout> {
    pub(crate) place: Place<'a, L>,
    pub(crate) slab: &'a Slab<L>,
    pub(crate) mixed: u64,
}

impl<L: Layout> Found<'_, L> {
    #[inline(always)]
    pub(crate) fn raw(&self) -> L::Raw {
        self.place.raw
    }
}

/// Why a write did not happen yet.
enum Again<F> {
    /// The home has moved to the next slab.
    Moved(F),
    /// The bucket has no version left for a removal.
    Worn(F),
}

/// Whether a slab has a next one.
#[derive(PartialEq, Eq)]
enum Begun {
    Here,
    /// Another thread is about to give it one; or it is not the current one any more.
    Elsewhere,
    NoMemory,
}

/// What a write leaves to be done when the lock is free.
struct Done<L: Layout, R> {
    result: R,
    /// What was replaced or removed, and whether the key went on.
    dead: Option<(L::Raw, bool)>,
    /// What was put in, and is not all needed.
    spare: Option<L::Fresh>,
    added: i8,
    /// Whether it may be time for another size.
    ask: bool,
}

/// What a mover of a slab's homes writes down of one, to be used again for the next; and how many it has moved. It says so to the slab in the
/// end, once for all: that word is one for all who move.
struct Moving<'s, L: Layout> {
    slab: &'s Slab<L>,
    found: Vec<L::Raw>,
    entries: Vec<(u64, L::Raw)>,
    homes: usize,
}

impl<L: Layout> Moving<'_, L> {
    fn new(slab: &Slab<L>) -> Moving<'_, L> {
        let (found, entries) = (Vec::with_capacity(2 * SLOTS), Vec::with_capacity(2 * SLOTS));
        Moving { slab, found, entries, homes: 0 }
    }
}

impl<L: Layout> Drop for Moving<'_, L> {
    fn drop(&mut self) {
        if self.homes != 0 {
            // Release: pairs with the acquire of `finish`.
            self.slab.movers.moved.fetch_add(self.homes, Ordering::AcqRel);
        }
    }
}

/// Homes for so many entries.
fn homes_for(entries: usize) -> usize {
    let slots = entries.saturating_mul(100) / FULL + 1;
    slots.div_ceil(SLOTS).max(FEWEST).checked_next_power_of_two().unwrap_or(1 << 40)
}

impl<L: Layout> Raw<L> {
    /// # Panics
    /// If there is no memory for so many.
    pub(crate) fn new(entries: usize) -> Raw<L> {
        let homes = homes_for(entries);
        let slab = Slab::new(homes).expect("no memory for a table of this size");
        Raw {
            current: AtomicPtr::new(Box::into_raw(slab)),
            fewest: AtomicUsize::new(homes),
            count: Count::new(),
        }
    }

    /// Begins to move to a slab of twice as many homes.
    #[cfg(all(test, loom))]
    pub(crate) fn grow(&self) {
        // SAFETY: nothing is freed in a model.
        let slab = unsafe { self.current() };
        assert!(self.begin(slab, 2 * slab.homes()) == Begun::Here);
    }

    /// The same, if nobody else does; and moves all.
    #[cfg(all(test, loom))]
    pub(crate) fn grow_perhaps(&self, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: nothing is freed in a model.
        let slab = unsafe { self.current() };
        if self.begin(slab, 2 * slab.homes()) == Begun::Here {
            self.settle(rehash);
        }
    }

    /// Moves all that has not moved.
    #[cfg(all(test, loom))]
    pub(crate) fn settle(&self, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: nothing is freed in a model.
        unsafe { self.move_all(self.current(), rehash) };
    }

    pub(crate) fn len(&self) -> usize {
        self.count.sum()
    }

    /// The current slab.
    ///
    /// # Safety
    /// In an operation, for as long as that, or in an exclusive borrow of the table.
    #[inline(always)]
    pub(crate) unsafe fn current(&self) -> &Slab<L> {
        // Acquire: pairs with the release of `finish` and of `new`'s publication.
        // SAFETY: never null; retired only after another has its place (I5).
        unsafe { &*self.current.load(Ordering::Acquire) }
    }

    /// The slab to which a home has moved.
    #[inline]
    fn next(slab: &Slab<L>) -> &Slab<L> {
        // Acquire: pairs with the release of `begin`.
        // SAFETY: a home moves only to a slab that is there (I3), which is retired after this one.
        unsafe { &*slab.next.load(Ordering::Acquire) }
    }

    // --- reading ---

    /// What a key's slot holds. As `find`, for those who change nothing.
    ///
    /// # Safety
    /// As [`find`](Raw::find).
    #[inline(always)]
    pub(crate) unsafe fn find_raw(&self, hash: u64, is_key: impl IsKey<L::Key>) -> Option<L::Raw> {
        // SAFETY: the caller.
        unsafe {
            match self.find_here(hash, is_key) {
                Here::Found(found) => Some(found.raw()),
                Here::Absent => None,
                Here::Perhaps => self.find(hash, is_key).map(|found| found.raw()),
            }
        }
    }

    /// Finds a key.
    ///
    /// # Safety
    /// In an operation; what is returned is valid within it.
    #[inline(never)]
    pub(crate) unsafe fn find(&self, hash: u64, is_key: impl IsKey<L::Key>) -> Option<Found<'_, L>> {
        // SAFETY: the caller.
        unsafe { Self::find_later(self.current(), mix(hash), is_key) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn find_later(mut slab: &Slab<L>, mixed: u64, is_key: impl IsKey<L::Key>) -> Option<Found<'_, L>> {
        loop {
            let home = slab.home(mixed);
            let bucket = slab.bucket(home);
            let state = bucket.state();
            if !is_moved(state) {
                // SAFETY: as in `find`.
                let place = unsafe { slab.look(home, state, mixed, is_key) };
                return place.map(|place| Found { place, slab, mixed });
            }
            slab = Self::next(slab);
        }
    }

    // --- writing ---

    /// Looks for a key and changes what is there, under its home's lock. `decide` gets what was found; nothing of the user's
    /// may run in it.
    ///
    /// # Safety
    /// In an operation. Who changes a value or removes an entry found it.
    #[inline(always)]
    pub(crate) unsafe fn write<R>(
        &self,
        hash: u64,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
        decide: impl FnOnce(Option<L::Raw>) -> (Change<L>, R),
    ) -> R {
        let mixed = mix(hash);
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        // Before the lock, which nothing passes: the slots come while it does.
        let (bucket, _) = slab.fetch(mixed);
        let lock = bucket.lock();
        let state = bucket.state();
        let found = 'here: {
            // Acquire: pairs with the release of `begin` (I2).
            if !bucket.is_worn_in(state) && slab.next.load(Ordering::Acquire).is_null() {
                // SAFETY: the caller. What is not here is not there if no bucket follows; what is here is nowhere else.
                match unsafe { bucket.look(state, mixed, is_key) } {
                    Look::Found { slot, raw, state } => break 'here Some(Place { bucket, slot, raw, state }),
                    Look::Absent { chained: false } => break 'here None,
                    Look::Absent { chained: true } => {}
                }
            }
            // SAFETY: the caller.
            return unsafe { self.write_slowly(slab, mixed, lock, is_key, rehash, decide) };
        };
        let (change, result) = decide(found.as_ref().map(|place| place.raw));
        // SAFETY: found here, under the lock.
        let done = unsafe { Self::apply(slab, bucket, mixed, change, found, result) };
        drop(lock);
        // SAFETY: the caller.
        unsafe { self.done(done, rehash) }
    }

    /// The same where it may be in a bucket that follows, the entries move, or a version is used up; `lock` is the home's.
    #[inline(never)]
    unsafe fn write_slowly<R>(
        &self,
        mut slab: &Slab<L>,
        mixed: u64,
        lock: LockGuard<'_, ()>,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
        mut decide: impl FnOnce(Option<L::Raw>) -> (Change<L>, R),
    ) -> R {
        let mut lock = Some(lock);
        let done = loop {
            let home = slab.home(mixed);
            let lock = lock.take().unwrap_or_else(|| slab.bucket(home).lock());
            // SAFETY: the caller.
            match unsafe { Self::write_here(slab, mixed, lock, is_key, rehash, decide) } {
                Ok(done) => break done,
                Err(Again::Moved(back)) => {
                    // SAFETY: the caller.
                    unsafe { self.help(slab, rehash) };
                    decide = back;
                    slab = Self::next(slab);
                }
                Err(Again::Worn(back)) => {
                    // SAFETY: the caller.
                    unsafe { self.renew(slab, rehash) };
                    decide = back;
                }
            }
        };
        // SAFETY: the caller.
        unsafe { self.done(done, rehash) }
    }

    /// Changes an entry that was found, if it is still what it was then, without a second look for it. Returns whether it was;
    /// if not, nothing was done.
    ///
    /// # Errors
    /// The home moves, or the bucket is worn: that is for [`write`](Raw::write). The change comes back.
    /// # Safety
    /// In the operation in which it was found.
    #[inline(always)]
    pub(crate) unsafe fn change(
        &self,
        found: Found<'_, L>,
        change: Change<L>,
        rehash: &impl Fn(&L::Key) -> u64,
    ) -> Result<bool, Change<L>> {
        let Found { slab, mixed, place } = found;
        let home = slab.home(mixed);
        let first = slab.bucket(home);
        let lock = first.lock();
        // Acquire: pairs with the release of `begin` (I2).
        let moves = !slab.next.load(Ordering::Acquire).is_null();
        let is_worn = matches!(change, Change::Remove) && place.bucket.is_worn();
        if moves && !sites::ASK.is_weak() || is_worn {
            return Err(change);
        }
        if !place.bucket.is_still(place.slot, place.raw) && !sites::STILL.is_weak() {
            return Ok(false);
        }
        // SAFETY: found, and still there, under the lock.
        let done = unsafe { Self::apply(slab, first, mixed, change, Some(place), true) };
        drop(lock);
        // SAFETY: the caller.
        Ok(unsafe { self.done(done, rehash) })
    }

    /// What remains of a write when the lock is free.
    ///
    /// # Safety
    /// In an operation; the write is done.
    #[inline(always)]
    unsafe fn done<R>(&self, done: Done<L, R>, rehash: &impl Fn(&L::Key) -> u64) -> R {
        if done.added != 0 {
            self.count.add(i64::from(done.added).cast_unsigned());
        }
        match done.dead {
            // SAFETY: the slot has another or none, which is before this; who changed it has it alone.
            Some((raw, false)) => unsafe { L::retire(raw) },
            // SAFETY: as above; `replace_value` took the key.
            Some((raw, true)) => unsafe { L::retire_value(raw) },
            None => {}
        }
        drop(done.spare);
        if done.ask {
            // SAFETY: the caller.
            unsafe { self.resize(rehash) };
        }
        done.result
    }

    /// As [`write`](Raw::write), in this slab, if the home is still here; `_lock` is its lock.
    unsafe fn write_here<R, D: FnOnce(Option<L::Raw>) -> (Change<L>, R)>(
        slab: &Slab<L>,
        mixed: u64,
        _lock: LockGuard<'_, ()>,
        is_key: impl IsKey<L::Key>,
        rehash: &impl Fn(&L::Key) -> u64,
        decide: D,
    ) -> Result<Done<L, R>, Again<D>> {
        let home = slab.home(mixed);
        let first = slab.bucket(home);
        let state = first.state();
        // Acquire: pairs with the release of `begin` (I2).
        if is_moved(state) && !sites::ASK.is_weak() || !slab.next.load(Ordering::Acquire).is_null() {
            if !is_moved(state) {
                // SAFETY: the caller; under the home's lock.
                unsafe { Self::move_home(home, rehash, &mut Moving::new(slab)) };
            }
            return Err(Again::Moved(decide));
        }
        // SAFETY: the caller.
        let found = unsafe { slab.look(home, state, mixed, is_key) };
        if found.as_ref().is_some_and(|place| place.bucket.is_worn()) {
            return Err(Again::Worn(decide));
        }
        let (change, result) = decide(found.as_ref().map(|place| place.raw));
        // SAFETY: found here, under the lock.
        Ok(unsafe { Self::apply(slab, first, mixed, change, found, result) })
    }

    /// Does what was decided, under the home's lock; `first` is its bucket.
    ///
    /// # Safety
    /// In an operation; what was found is there.
    #[inline(always)]
    unsafe fn apply<R>(
        slab: &Slab<L>,
        first: Bucket<'_, L>,
        mixed: u64,
        change: Change<L>,
        found: Option<Place<'_, L>>,
        result: R,
    ) -> Done<L, R> {
        let mut done = Done { result, dead: None, spare: None, added: 0, ask: false };
        match (change, found) {
            (Change::Nothing, _) => {}
            (Change::Put(fresh), None) => {
                let (bucket, slot, own) = slab.room(first, mixed);
                bucket.publish(slot, tag(mixed), |slot| _ = L::store(slot, fresh));
                done.added = 1;
                // Asked by some of those who find no room where they should: the fuller, the more.
                done.ask =
                    !own && (slab.is_sampled(mixed, CROWDED) || slab.chain_length(slab.home(mixed)) > 1);
            }
            (Change::Put(fresh), Some(Place { bucket, slot, raw, .. })) => {
                done.spare = bucket.change(slot, |slot| L::replace(slot, raw, fresh));
                done.dead = Some((raw, L::KEEPS_KEY));
            }
            (Change::Value(value), Some(Place { bucket, slot, raw, .. })) => {
                // SAFETY: the caller.
                bucket.change(slot, |slot| unsafe { L::replace_value(slot, raw, value) });
                done.dead = Some((raw, true));
            }
            (Change::Remove, Some(Place { bucket, slot, raw, .. })) => {
                bucket.remove(slot);
                // Of the first nothing follows from it for the others.
                if !bucket.is(first) {
                    slab.has_lost(slab.home(mixed), first);
                }
                done.dead = Some((raw, false));
                done.added = -1;
                // In this order: few are empty, and who is sampled cannot be foretold.
                done.ask = first.is_empty() && slab.is_sampled(mixed, EMPTIED);
            }
            (Change::Value(_) | Change::Remove, None) => unreachable!("nothing was found"),
        }
        done
    }

    // --- moving ---

    /// Moves a home to the next slab, and counts it. [`finish`](Raw::finish) is to be asked after.
    ///
    /// # Safety
    /// In an operation, under the home's lock; there is a next slab, and the home has not moved.
    unsafe fn move_home(home: usize, rehash: &impl Fn(&L::Key) -> u64, moving: &mut Moving<'_, L>) {
        let slab = moving.slab;
        let next = Self::next(slab);
        moving.found.clear();
        moving.entries.clear();
        // SAFETY: the caller.
        unsafe { slab.collect(home, &mut moving.found) };
        // All hashes before the first entry moves: they are the user's code, which may panic.
        // SAFETY: read in this operation.
        let hash = |raw| (unsafe { L::key(raw, |key| mix(rehash(key))) }, raw);
        moving.entries.extend(moving.found.iter().copied().map(hash));
        // Of a larger slab this home's homes are nobody else's, and nobody comes there before this one has moved.
        let shared = next.homes() < slab.homes();
        // A hasher that now says otherwise than when the entry came shall not lead into a home of others.
        let (first, last) = slab.range(home);
        // All go into one home then: its range is larger. The order of locks is that of slabs. The next slab's homes do not move yet (I1).
        let _lock = shared.then(|| next.bucket(next.home(first)).lock());
        for &(mixed, raw) in &moving.entries {
            let mixed = mixed.clamp(first, last);
            let (bucket, slot, _) = next.room(next.bucket(next.home(mixed)), mixed);
            bucket.publish_again(slot, tag(mixed), |slot| L::copy(slot, raw));
        }
        slab.bucket(home).set_moved();
        moving.homes += 1;
    }

    /// Moves some homes of a slab that has a next one, and finishes if those were the last.
    ///
    /// # Safety
    /// In an operation.
    #[cold]
    #[inline(never)]
    unsafe fn help(&self, slab: &Slab<L>, rehash: &impl Fn(&L::Key) -> u64) {
        // Relaxed: a ticket. Around and around, for whoever had a home before may have been stopped in its midst.
        let first = slab.movers.cursor.fetch_add(HELP, Ordering::Relaxed);
        let mut moving = Moving::new(slab);
        for home in (0..HELP).map(|step| first.wrapping_add(step) & (slab.homes() - 1)) {
            // The look first: all have moved but a few, at the end.
            if !is_moved(slab.bucket(home).state()) {
                // SAFETY: the caller.
                unsafe { Self::move_if_here(home, rehash, &mut moving) };
            }
        }
        drop(moving);
        self.finish(slab);
    }

    /// # Safety
    /// In an operation; there is a next slab.
    unsafe fn move_if_here(home: usize, rehash: &impl Fn(&L::Key) -> u64, moving: &mut Moving<'_, L>) {
        let bucket = moving.slab.bucket(home);
        let _lock = bucket.lock();
        if !is_moved(bucket.state()) {
            // SAFETY: the caller; under the lock.
            unsafe { Self::move_home(home, rehash, moving) };
        }
    }

    /// Makes the next slab the current one, if all homes of this one have moved and nobody did it before.
    fn finish(&self, slab: &Slab<L>) {
        // Acquire: pairs with the release of each `Moving`: all its entries are in the next slab.
        if slab.movers.moved.load(Ordering::Acquire) < slab.homes() {
            return;
        }
        let old = std::ptr::from_ref(slab).cast_mut();
        let next = slab.next.load(Ordering::Acquire);
        // AcqRel: release pairs with the acquire of `current`; acquire with the one that made `slab` current.
        if let Ok(old) = self.current.compare_exchange(old, next, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: from `Box::into_raw`; the exchange cut the only path to it (I5), and only one exchange succeeds: a slab
            // becomes the current one once.
            unsafe { ground::retire_much(old, slab.bytes()) };
        }
    }

    /// Moves all homes that have not moved; says whether there was a next slab for them.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn move_all(&self, slab: &Slab<L>, rehash: &impl Fn(&L::Key) -> u64) -> bool {
        // Acquire: pairs with the release of `begin`.
        if slab.next.load(Ordering::Acquire).is_null() {
            return false;
        }
        let mut moving = Moving::new(slab);
        for home in 0..slab.homes() {
            if !is_moved(slab.bucket(home).state()) {
                // SAFETY: the caller.
                unsafe { Self::move_if_here(home, rehash, &mut moving) };
            }
        }
        drop(moving);
        // Acquire: as in `finish`.
        if slab.movers.moved.load(Ordering::Acquire) < slab.homes() {
            // Somebody has just moved one, and is about to say so: our callers would ask again and again.
            squall_sys::sync::thread::yield_now();
        }
        self.finish(slab);
        true
    }

    // --- another size ---

    /// Begins to move to another size, if the count of entries asks for it.
    ///
    /// # Safety
    /// In an operation.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn resize(&self, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        let (len, slots) = (self.len(), slab.slots());
        // Relaxed: a hint.
        let fewest = self.fewest.load(Ordering::Relaxed);
        let full = len.saturating_mul(100) / FULL > slots;
        let sparse = len.saturating_mul(100) / SPARSE < slots && slab.homes() > fewest;
        if full || sparse {
            // Room for half as many again, or for twice as many: not at the edge of the next change.
            // Without memory the chains grow.
            if self.begin(slab, homes_for(len + len / 2).max(fewest)) == Begun::Here {
                // SAFETY: the caller.
                unsafe { self.help(slab, rehash) };
            }
        }
    }

    /// Gives a slab a next one, if it is the current one and nobody else does.
    fn begin(&self, slab: &Slab<L>, homes: usize) -> Begun {
        // Acquire: pairs with the release further down.
        if !slab.next.load(Ordering::Acquire).is_null() {
            return Begun::Here;
        }
        // One makes it: a large one takes a while, and of all who find meanwhile that it is time each would make one of its own. They go on with
        // this one.
        // Relaxed: a ticket. Who has it does not find that the slab is not the current one: it would have a next one.
        // Acquire: pairs with the release of `finish`.
        if !std::ptr::eq(self.current.load(Ordering::Acquire), slab)
            || slab.movers.is_taken.swap(true, Ordering::Relaxed) && !sites::TAKEN.is_weak()
        {
            return Begun::Elsewhere;
        }
        let Some(new) = Slab::new(homes) else {
            slab.movers.is_taken.store(false, Ordering::Relaxed);
            return Begun::NoMemory;
        };
        // Release: pairs with the acquire of `next` and of `write_here`.
        slab.next.store(Box::into_raw(new), Ordering::Release);
        Begun::Here
    }

    /// Replaces a slab of which a bucket is worn out by one as large.
    #[cold]
    #[inline(never)]
    unsafe fn renew(&self, slab: &Slab<L>, rehash: &impl Fn(&L::Key) -> u64) {
        // SAFETY: the caller. A slab that is not the current one yet becomes it.
        unsafe {
            let current = self.current();
            if !std::ptr::eq(current, slab) {
                self.move_all(current, rehash);
            }
        }
        match self.begin(slab, slab.homes()) {
            Begun::Here => {}
            // Our caller asks again.
            Begun::Elsewhere => squall_sys::sync::thread::yield_now(),
            // A version that came again might be taken for the one before.
            Begun::NoMemory => std::alloc::handle_alloc_error(std::alloc::Layout::new::<Slab<L>>()),
        }
    }

    /// Makes room for so many entries in all, or, with `less`, for no more than there are. Returns whether there was memory for it.
    ///
    /// # Safety
    /// In an operation.
    pub(crate) unsafe fn fit(&self, entries: usize, less: bool, rehash: &impl Fn(&L::Key) -> u64) -> bool {
        loop {
            // SAFETY: the caller.
            let slab = unsafe { self.current() };
            // A change that is under way comes to its end first.
            // SAFETY: the caller.
            if unsafe { self.move_all(slab, rehash) } {
                continue;
            }
            let homes = homes_for(entries.max(self.len()));
            if less {
                self.fewest.store(FEWEST, Ordering::Relaxed);
            }
            if homes != slab.homes() && (less || homes > slab.homes()) {
                match self.begin(slab, homes) {
                    Begun::Here => {}
                    Begun::Elsewhere => squall_sys::sync::thread::yield_now(),
                    Begun::NoMemory => return false,
                }
                continue;
            }
            if !less {
                self.fewest.fetch_max(homes, Ordering::Relaxed);
            }
            return true;
        }
    }

    pub(crate) fn slots(&self) -> usize {
        // SAFETY: see the callers: in an operation.
        unsafe { self.current() }.slots() * FULL / 100
    }

    // --- all entries ---

    /// Copies the entries of the home in which the mixed hash `from` is, from there on. Returns the first mixed hash
    /// after them, or nothing after the last.
    ///
    /// # Safety
    /// In an operation; what is copied is valid within it.
    pub(crate) unsafe fn visit(
        &self,
        from: u64,
        rehash: &impl Fn(&L::Key) -> u64,
        entries: &mut Vec<L::Raw>,
    ) -> Option<u64> {
        // SAFETY: the caller.
        let slab = unsafe { self.current() };
        let (_, last) = slab.range(slab.home(from));
        let mut found = Vec::new();
        // SAFETY: the caller.
        unsafe { Self::visit_range(slab, (from, last), rehash, &mut found, entries) };
        last.checked_add(1)
    }

    /// As `visit`, for a range.
    unsafe fn visit_range(
        slab: &Slab<L>,
        (first, last): (u64, u64),
        rehash: &impl Fn(&L::Key) -> u64,
        found: &mut Vec<L::Raw>,
        entries: &mut Vec<L::Raw>,
    ) {
        for home in slab.home(first)..=slab.home(last) {
            let (from, to) = slab.range(home);
            let part = (first.max(from), last.min(to));
            let bucket = slab.bucket(home);
            if !is_moved(bucket.state()) {
                found.clear();
                // SAFETY: the caller of `visit`.
                unsafe { slab.collect(home, found) };
                let all = part == (from, to);
                // SAFETY: as above.
                let within =
                    |raw| unsafe { all || L::key(raw, |key| (part.0..=part.1).contains(&mix(rehash(key)))) };
                entries.extend(found.drain(..).filter(|&raw| within(raw)));
                continue;
            }
            // SAFETY: as above.
            unsafe { Self::visit_range(Self::next(slab), part, rehash, found, entries) };
        }
    }
}

impl<L: Layout> Drop for Raw<L> {
    fn drop(&mut self) {
        // Relaxed: nobody else has the table.
        let mut slab = self.current.load(Ordering::Relaxed);
        while !slab.is_null() {
            // SAFETY: this table's, which nobody else has any more; its successor too.
            let whole = unsafe { Box::from_raw(slab) };
            let mut entries = Vec::new();
            for home in 0..whole.homes() {
                if !is_moved(whole.bucket(home).state()) {
                    // SAFETY: as above.
                    unsafe { whole.collect(home, &mut entries) };
                    // SAFETY: an entry is in one home that has not moved (I2, I3).
                    entries.drain(..).for_each(|entry| unsafe { L::free(entry) });
                }
            }
            slab = whole.next.load(Ordering::Relaxed);
        }
    }
}
