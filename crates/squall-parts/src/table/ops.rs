//! The table's operations, for any layout. Each function runs within an operation that its caller has opened;
//! the `unsafe` ones require it.
//!
//! - I1. The closures made here get raw entries of the table alone (slots/I1), in whose layout they read
//!   them. So the types are those with which the entries were made.

use crate::table::compiled::Compiled;
use crate::table::compute::{Compute, Computed};
use crate::table::fast::{FastFind, NeedsSlowPath};
use crate::table::layout::{Layout, RawOf};
use crate::table::raw::{Found, Raw};
use crate::table::sample::Sample;
use crate::table::slots::IsKey;
use crate::table::tags::SLOTS;
use crate::table::write::Change;
use std::hash::{BuildHasher, Hash};
use std::mem::ManuallyDrop;

/// Compares a key with the wanted one. `Copy`, as [`IsKey`].
pub(crate) trait IsTypedKey<K>: Fn(&K) -> bool + Copy {}

impl<K, F: Fn(&K) -> bool + Copy> IsTypedKey<K> for F {}

/// Compares a key with the wanted one, on slow paths. These are compiled once for all callers.
pub(crate) type DynIsTypedKey<'a, K> = &'a dyn Fn(&K) -> bool;

/// A table with the types of its entries.
pub(crate) struct Typed<'a, L: Layout> {
    pub(crate) raw: &'a Raw<L::Slots>,
}

impl<L: Layout> Clone for Typed<'_, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for Typed<'_, L> {}

/// A new entry or value, offered to a write. The drop frees it, unless the write has taken it (write/I2).
struct Offer<T> {
    content: ManuallyDrop<T>,
    is_taken: bool,
}

impl<T> Offer<T> {
    fn new(content: T) -> Offer<T> {
        Offer { content: ManuallyDrop::new(content), is_taken: false }
    }

    /// Returns the content, unless the write has taken it.
    fn into_rest(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: taken once: `this` is not dropped.
        (!this.is_taken).then(|| unsafe { ManuallyDrop::take(&mut this.content) })
    }
}

impl<T> Drop for Offer<T> {
    fn drop(&mut self) {
        if !self.is_taken {
            // SAFETY: dropped once, here; the table has not taken it.
            unsafe { ManuallyDrop::drop(&mut self.content) };
        }
    }
}

/// Frees a table and its entries.
///
/// # Safety
/// The table's entries are of this layout.
pub(crate) unsafe fn free<L: Layout>(raw: Raw<L::Slots>) {
    // SAFETY: the caller. The table is the only owner of its entries, and ends here.
    unsafe { L::Slots::free(raw, &mut |entry| L::free(entry)) };
}

/// Returns a function that compares the key of a raw entry.
#[inline(always)]
fn compares<L: Layout>(is_key: impl IsTypedKey<L::Key>) -> impl IsKey<RawOf<L>> {
    // SAFETY: loaded in an operation that is still open (slots/I1), from a table of this layout (I1).
    move |raw| unsafe { L::key(raw, is_key) }
}

/// Returns a function that compares the key of a raw entry with that of `entry`.
///
/// # Safety
/// The function is called only while the contract of [`Layout::key`] is met for `entry`.
#[inline(always)]
unsafe fn compares_with<L: Layout<Key: Eq>>(entry: RawOf<L>) -> impl IsKey<RawOf<L>> {
    // SAFETY: the caller; as in `compares`.
    move |found| unsafe { L::key(found, |found| L::key(entry, |key| key == found)) }
}

/// Returns a function that hashes the key of a raw entry.
#[inline(always)]
fn hashes<L: Layout<Key: Hash>>(hasher: &impl BuildHasher) -> impl Fn(RawOf<L>) -> u64 {
    // SAFETY: as in `compares`.
    move |raw| unsafe { L::key(raw, |key| hasher.hash_one(key)) }
}

// --- fast paths; `slow` is the slow path, if it is not here ---

impl<L: Layout> Typed<'_, L> {
    /// Calls `f` with key and value of an entry.
    ///
    /// # Safety
    /// The contract of [`Layout::key`].
    #[inline(always)]
    pub(crate) unsafe fn both<R>(self, entry: RawOf<L>, f: impl FnOnce(&L::Key, &L::Value) -> R) -> R {
        // SAFETY: the caller.
        unsafe { L::key(entry, |key| L::value(entry, |value| f(key, value))) }
    }

    /// Returns the content of a key's slot.
    #[inline(always)]
    pub(crate) unsafe fn find(self, hash: u64, is_key: impl IsTypedKey<L::Key>) -> Option<RawOf<L>> {
        // SAFETY: the caller.
        unsafe { self.raw.find_raw(hash, compares::<L>(is_key)) }
    }

    #[inline(always)]
    pub(crate) unsafe fn read<R>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        f: impl FnOnce(&L::Value) -> R,
    ) -> Option<R> {
        // Not through `try_read`: matching its result again would cost two instructions per lookup.
        // SAFETY: the caller.
        unsafe {
            match self.raw.find_fast(hash, compares::<L>(is_key)) {
                FastFind::Found(found) => Some(L::value(found.raw(), f)),
                FastFind::Absent => None,
                FastFind::Unknown => self.read_slow(hash, is_key, f),
            }
        }
    }

    /// Fast path of `read`, without a slow path.
    #[inline(always)]
    pub(crate) unsafe fn try_read<R, F: FnOnce(&L::Value) -> R>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        f: F,
    ) -> Result<Option<R>, F> {
        // SAFETY: the caller.
        unsafe {
            match self.raw.find_fast(hash, compares::<L>(is_key)) {
                FastFind::Found(found) => Ok(Some(L::value(found.raw(), f))),
                FastFind::Absent => Ok(None),
                FastFind::Unknown => Err(f),
            }
        }
    }

    /// Fast path of `read` for a key that is present.
    #[inline(always)]
    pub(crate) unsafe fn try_find<R, F: FnOnce(&L::Value) -> R>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        f: F,
    ) -> Result<R, F> {
        // SAFETY: the caller.
        unsafe {
            match self.raw.find_fast(hash, compares::<L>(is_key)) {
                FastFind::Found(found) => Ok(L::value(found.raw(), f)),
                FastFind::Absent | FastFind::Unknown => Err(f),
            }
        }
    }

    #[inline(always)]
    pub(crate) unsafe fn put<R>(
        self,
        hash: u64,
        key: L::Key,
        value: L::Value,
        hasher: &impl BuildHasher,
        f: impl FnOnce(&L::Value) -> R,
    ) -> Option<R>
    where
        L::Key: Eq + Hash,
    {
        // SAFETY: the caller.
        unsafe {
            match self.put_entry(hash, L::new_entry(key, value)) {
                Ok(old) => old.map(|entry| L::value(entry, f)),
                Err(new_entry) => self.put_slow(hash, new_entry, hasher).map(|entry| L::value(entry, f)),
            }
        }
    }

    /// Fast path of `put`, without a slow path.
    #[inline(always)]
    pub(crate) unsafe fn try_put<R>(
        self,
        hash: u64,
        key: L::Key,
        value: L::Value,
        f: impl FnOnce(&L::Value) -> R,
    ) -> Result<Option<R>, (L::Key, L::Value)>
    where
        L::Key: Eq,
    {
        // SAFETY: the caller.
        unsafe {
            match self.put_entry(hash, L::new_entry(key, value)) {
                Ok(old) => Ok(old.map(|entry| L::value(entry, f))),
                Err(new_entry) => Err(L::into_parts(new_entry)),
            }
        }
    }

    #[inline(always)]
    unsafe fn put_entry(self, hash: u64, new_entry: L::NewEntry) -> Result<Option<RawOf<L>>, L::NewEntry>
    where
        L::Key: Eq,
    {
        let new = L::entry_raw(&new_entry);
        // SAFETY: the caller; `new` is compared before it goes into the table.
        unsafe { self.raw.put_fast::<L>(hash, new_entry, compares_with::<L>(new)) }
    }

    #[inline(always)]
    pub(crate) unsafe fn take<R, F: FnOnce(&L::Value) -> R>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        hasher: &impl BuildHasher,
        f: F,
        slow: impl FnOnce(F) -> Option<R>,
    ) -> Option<R>
    where
        L::Key: Hash,
    {
        // SAFETY: the caller.
        unsafe { self.try_take(hash, is_key, hasher, f).unwrap_or_else(slow) }
    }

    /// Fast path of `take`, without a slow path.
    #[inline(always)]
    pub(crate) unsafe fn try_take<R, F: FnOnce(&L::Value) -> R>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        hasher: &impl BuildHasher,
        f: F,
    ) -> Result<Option<R>, F>
    where
        L::Key: Hash,
    {
        // SAFETY: the caller.
        unsafe {
            match self.raw.remove_fast::<L>(hash, compares::<L>(is_key), &hashes::<L>(hasher)) {
                Ok(entry) => Ok(entry.map(|entry| L::value(entry, f))),
                Err(NeedsSlowPath) => Err(f),
            }
        }
    }

    /// Changes the entry of a key that is present, as `f` decides from its value.
    #[inline(always)]
    pub(crate) unsafe fn change<F: FnMut(&L::Value) -> Compute<L::Value>>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        hasher: &impl BuildHasher,
        f: F,
        slow: impl FnOnce(F) -> Computed,
    ) -> Computed
    where
        L::Key: Hash,
    {
        // SAFETY: the caller.
        unsafe { self.try_change(hash, is_key, hasher, f).unwrap_or_else(slow) }
    }

    /// Fast path of `change`, for a key in the home's own bucket.
    #[inline(always)]
    pub(crate) unsafe fn try_change<F: FnMut(&L::Value) -> Compute<L::Value>>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        hasher: &impl BuildHasher,
        mut f: F,
    ) -> Result<Computed, F>
    where
        L::Key: Hash,
    {
        // SAFETY: the caller; it changes the entry that it found.
        unsafe {
            let found = match self.raw.find_fast(hash, compares::<L>(is_key)) {
                FastFind::Found(found) => found,
                FastFind::Absent => return Ok(Computed::Kept),
                FastFind::Unknown => return Err(f),
            };
            let computed = match L::value(found.raw(), &mut f) {
                Compute::Keep => Some(Computed::Kept),
                Compute::Put(value) => {
                    let new = L::new_value(found.raw(), value);
                    let is_replaced = match self.raw.change_value_fast::<L>(&found, new) {
                        Ok(()) => true,
                        Err(new) => self.replace_found(found, &is_key, hasher, new),
                    };
                    is_replaced.then_some(Computed::Updated)
                }
                Compute::Remove => self.remove_found(found, &is_key, hasher).then_some(Computed::Removed),
            };
            computed.ok_or(f)
        }
    }
}

// --- slow paths ---

impl<L: Layout> Typed<'_, L> {
    /// Slow path of `read`. It takes the closure along: an entry returned from a call would go through
    /// memory, on the fast path too. A few of 100 reads come here, so the only virtual calls are of `is_key`.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn read_slow<R>(
        self,
        hash: u64,
        is_key: impl IsTypedKey<L::Key>,
        f: impl FnOnce(&L::Value) -> R,
    ) -> Option<R> {
        // SAFETY: the caller.
        unsafe {
            let found = L::Slots::find(self.raw, hash, &compares::<L>(is_key));
            found.map(|found| L::value(found.raw(), f))
        }
    }

    /// Slow path of a read of key and value.
    pub(crate) unsafe fn read_entry_slow(
        self,
        hash: u64,
        is_key: DynIsTypedKey<'_, L::Key>,
        f: &mut dyn FnMut(&L::Key, &L::Value),
    ) -> bool {
        // SAFETY: the caller.
        unsafe {
            let found = L::Slots::find(self.raw, hash, &compares::<L>(is_key));
            found.map(|found| self.both(found.raw(), f)).is_some()
        }
    }

    /// Slow path of `put`. Returns the replaced entry, which stays until the operation ends.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn put_slow(
        self,
        hash: u64,
        new_entry: L::NewEntry,
        hasher: &impl BuildHasher,
    ) -> Option<RawOf<L>>
    where
        L::Key: Eq + Hash,
    {
        let new = L::entry_raw(&new_entry);
        let mut offer = Offer::new(new_entry);
        let rehash = hashes::<L>(hasher);
        // SAFETY: the caller; `new` is compared before it goes into the table. The write has replaced the
        // entry that it found; the thread that did so is the only one to retire it.
        unsafe {
            let is_key = compares_with::<L>(new);
            let change = Change::Put(new);
            let written = L::Slots::write(self.raw, hash, &is_key, &rehash, &change, &mut offer.is_taken);
            if let Some(old) = written.found {
                L::retire_replaced(old, new);
            }
            if written.check_size {
                L::Slots::resize(self.raw, &rehash);
            }
            written.found
        }
    }

    /// Like `put`, for an entry in an option, which is empty afterwards. Returns whether the key was present.
    pub(crate) unsafe fn put_option(
        self,
        hash: u64,
        entry: &mut Option<(L::Key, L::Value)>,
        hasher: &impl BuildHasher,
        old: &mut dyn FnMut(&L::Value),
    ) -> bool
    where
        L::Key: Eq + Hash,
    {
        let Some(new_entry) = L::take_entry(entry) else { return false };
        // SAFETY: the caller.
        unsafe {
            let replaced = self.put_slow(hash, new_entry, hasher);
            replaced.map(|entry| L::value(entry, old)).is_some()
        }
    }

    /// Like `put_option`, but calls `old` before the change, with the value that is then replaced. If another
    /// thread changes the entry meanwhile, `old` is called again. If it panics, the table is unchanged.
    pub(crate) unsafe fn put_seen(
        self,
        hash: u64,
        entry: &mut Option<(L::Key, L::Value)>,
        hasher: &impl BuildHasher,
        old: &mut dyn FnMut(&L::Value),
    ) -> bool
    where
        L::Key: Eq + Hash,
    {
        let Some(new_entry) = L::take_entry(entry) else { return false };
        let new = L::entry_raw(&new_entry);
        let mut offer = Offer::new(new_entry);
        let rehash = hashes::<L>(hasher);
        // SAFETY: the caller, as in `put_slow`.
        unsafe {
            let is_key = compares_with::<L>(new);
            loop {
                let seen = L::Slots::find(self.raw, hash, &is_key).map(|found| found.raw());
                let change = match seen {
                    Some(seen) => {
                        L::value(seen, &mut *old);
                        Change::Replace { seen, new }
                    }
                    None => Change::Insert(new),
                };
                let written = L::Slots::write(self.raw, hash, &is_key, &rehash, &change, &mut offer.is_taken);
                if let Some(seen) = seen.filter(|_| offer.is_taken) {
                    L::retire_replaced(seen, new);
                }
                if written.check_size {
                    L::Slots::resize(self.raw, &rehash);
                }
                if offer.is_taken {
                    return seen.is_some();
                }
            }
        }
    }

    /// Inserts an entry if its key is absent, and takes it out of the option. Otherwise calls `there` with
    /// the present value. Returns whether it was inserted. The caller has searched for the key: making an
    /// entry that is not inserted may cost an allocation.
    pub(crate) unsafe fn insert(
        self,
        hash: u64,
        entry: &mut Option<(L::Key, L::Value)>,
        hasher: &impl BuildHasher,
        there: &mut dyn FnMut(&L::Value),
    ) -> bool
    where
        L::Key: Eq + Hash,
    {
        // SAFETY: the caller, as in `put_slow`.
        unsafe {
            let Some(new_entry) = L::take_entry(entry) else { return false };
            let new = L::entry_raw(&new_entry);
            let mut offer = Offer::new(new_entry);
            let (is_key, rehash) = (compares_with::<L>(new), hashes::<L>(hasher));
            let change = Change::Insert(new);
            let written = L::Slots::write(self.raw, hash, &is_key, &rehash, &change, &mut offer.is_taken);
            if written.check_size {
                L::Slots::resize(self.raw, &rehash);
            }
            let Some(rest) = offer.into_rest() else { return true };
            *entry = Some(L::into_parts(rest));
            if let Some(found) = written.found {
                L::value(found, there);
            }
            false
        }
    }

    /// Slow path of `take`.
    pub(crate) unsafe fn take_slow(
        self,
        hash: u64,
        is_key: DynIsTypedKey<'_, L::Key>,
        hasher: &impl BuildHasher,
        f: &mut dyn FnMut(&L::Value),
    ) -> bool
    where
        L::Key: Hash,
    {
        // SAFETY: the caller.
        unsafe {
            let removed = self.remove(hash, &compares::<L>(is_key), hasher, &Change::Remove);
            removed.map(|entry| L::value(entry, f)).is_some()
        }
    }

    /// Removes the entry that was found, if it is unchanged. Returns whether it did.
    pub(crate) unsafe fn remove_seen(self, hash: u64, seen: RawOf<L>, hasher: &impl BuildHasher) -> bool
    where
        L::Key: Eq + Hash,
    {
        // SAFETY: the caller; the key of the entry stays until the operation ends.
        unsafe { self.remove(hash, &compares_with::<L>(seen), hasher, &Change::RemoveSeen(seen)).is_some() }
    }

    /// Makes a change that removes an entry. Returns the removed entry, which stays until the operation ends.
    unsafe fn remove(
        self,
        hash: u64,
        is_key: &dyn Fn(RawOf<L>) -> bool,
        hasher: &impl BuildHasher,
        change: &Change<L::Slots>,
    ) -> Option<RawOf<L>>
    where
        L::Key: Hash,
    {
        let rehash = hashes::<L>(hasher);
        let mut is_made = false;
        // SAFETY: the caller. The slot of a removed entry is empty; the thread that removed it is the only
        // one to retire it.
        unsafe {
            let written = L::Slots::write(self.raw, hash, is_key, &rehash, change, &mut is_made);
            let removed = written.found.filter(|_| is_made)?;
            L::retire(removed);
            if written.check_size {
                L::Slots::resize(self.raw, &rehash);
            }
            Some(removed)
        }
    }

    /// Removes an entry that was found, without a second lookup, if it is unchanged. Returns whether it did.
    #[inline(never)]
    unsafe fn remove_found(
        self,
        found: Found<'_, L::Slots>,
        is_key: DynIsTypedKey<'_, L::Key>,
        hasher: &impl BuildHasher,
    ) -> bool
    where
        L::Key: Hash,
    {
        let (is_key, rehash) = (compares::<L>(is_key), hashes::<L>(hasher));
        let seen = found.raw();
        let mut is_made = false;
        // SAFETY: the caller; it changes the entry that it found. Retired as in `remove`.
        unsafe {
            let written = L::Slots::change(self.raw, found, &is_key, &rehash, None, &mut is_made);
            if is_made {
                L::retire(seen);
            }
            if written.check_size {
                L::Slots::resize(self.raw, &rehash);
            }
        }
        is_made
    }

    /// Replaces the value of an entry that was found, if it is unchanged. Returns whether it did.
    #[cold]
    #[inline(never)]
    unsafe fn replace_found(
        self,
        found: Found<'_, L::Slots>,
        is_key: DynIsTypedKey<'_, L::Key>,
        hasher: &impl BuildHasher,
        new_value: L::NewValue,
    ) -> bool
    where
        L::Key: Hash,
    {
        let (is_key, rehash) = (compares::<L>(is_key), hashes::<L>(hasher));
        let seen = found.raw();
        // SAFETY: the caller; it changes the entry that it found. The entry has another value when the old
        // one is retired. The thread that replaced it is the only one to retire it.
        unsafe {
            let new = L::value_raw(&new_value);
            let mut offer = Offer::new(new_value);
            _ = L::Slots::change(self.raw, found, &is_key, &rehash, Some(new), &mut offer.is_taken);
            if offer.is_taken {
                L::retire_value(seen);
            }
            offer.is_taken
        }
    }

    /// Slow path of `change`, for a key in any bucket. Returns `None` if the key is absent.
    pub(crate) unsafe fn change_slow(
        self,
        hash: u64,
        is_key: DynIsTypedKey<'_, L::Key>,
        hasher: &impl BuildHasher,
        f: &mut dyn FnMut(&L::Value) -> Compute<L::Value>,
    ) -> Option<Computed>
    where
        L::Key: Hash,
    {
        loop {
            // SAFETY: the caller; it changes the entry that it found.
            unsafe {
                let found = L::Slots::find(self.raw, hash, &compares::<L>(is_key))?;
                match L::value(found.raw(), &mut *f) {
                    Compute::Keep => return Some(Computed::Kept),
                    Compute::Put(value) => {
                        let new = L::new_value(found.raw(), value);
                        if self.replace_found(found, is_key, hasher, new) {
                            return Some(Computed::Updated);
                        }
                    }
                    Compute::Remove => {
                        if self.remove_found(found, is_key, hasher) {
                            return Some(Computed::Removed);
                        }
                    }
                }
            }
        }
    }

    /// Makes room for this many entries in all, or shrinks: see [`Raw::resize_to`].
    pub(crate) unsafe fn resize_to(self, entries: usize, less: bool, hasher: &impl BuildHasher) -> bool
    where
        L::Key: Hash,
    {
        // SAFETY: the caller.
        unsafe { L::Slots::resize_to(self.raw, entries, less, &hashes::<L>(hasher)) }
    }

    // --- all entries ---

    /// Calls `f` for the entries of the home that contains this position, starting there. Returns the
    /// position behind the home.
    pub(crate) unsafe fn visit(
        self,
        from: u64,
        hasher: &impl BuildHasher,
        f: &mut dyn FnMut(&L::Key, &L::Value),
    ) -> Option<u64>
    where
        L::Key: Hash,
    {
        // SAFETY: the caller; the entries were loaded in this operation.
        unsafe {
            L::Slots::visit(self.raw, from, &hashes::<L>(hasher), &mut |entry| self.both(entry, &mut *f))
        }
    }

    /// Removes the entries for which `f` returns `false`. Otherwise like `visit`.
    pub(crate) unsafe fn retain(
        self,
        from: u64,
        hasher: &impl BuildHasher,
        f: &mut dyn FnMut(&L::Key, &L::Value) -> bool,
    ) -> Option<u64>
    where
        L::Key: Eq + Hash,
    {
        let rehash = hashes::<L>(hasher);
        // SAFETY: the caller; the entries were loaded in this operation.
        unsafe { L::Slots::visit(self.raw, from, &rehash, &mut |entry| self.keep_if(entry, hasher, &mut *f)) }
    }

    /// Removes the entry unless `f` returns `true`. If another thread changed it meanwhile, `f` is called
    /// again.
    unsafe fn keep_if(
        self,
        entry: RawOf<L>,
        hasher: &impl BuildHasher,
        f: &mut dyn FnMut(&L::Key, &L::Value) -> bool,
    ) where
        L::Key: Eq + Hash,
    {
        // Before `f`, which may have effects: a hash may panic.
        let hash = hashes::<L>(hasher)(entry);
        let mut seen = entry;
        // SAFETY: the caller; the key of the entry stays until the operation ends.
        unsafe {
            while !self.both(seen, &mut *f) && !self.remove_seen(hash, seen, hasher) {
                // Another thread changed it meanwhile.
                match L::Slots::find(self.raw, hash, &compares_with::<L>(entry)) {
                    Some(found) => seen = found.raw(),
                    None => return,
                }
            }
        }
    }

    /// Shows entries to `sample`, home by home, and removes the one that it chooses. Returns whether it did.
    pub(crate) unsafe fn remove_sampled(
        self,
        mut from: u64,
        hasher: &impl BuildHasher,
        sample: &mut dyn Sample<L::Key, L::Value>,
    ) -> bool
    where
        L::Key: Eq + Hash,
    {
        let mut shown = Vec::with_capacity(2 * SLOTS);
        // SAFETY: the caller; the entries were loaded in this operation.
        unsafe {
            'all: loop {
                let before = shown.len();
                let next = L::Slots::collect(self.raw, from, &mut shown);
                let home = &mut shown[before..];
                // A sample that ends early shall not always see the first slots of a home.
                home.rotate_left(from as usize % home.len().max(1));
                for entry in home {
                    if !self.both(*entry, |key, value| sample.look(key, value)) {
                        break 'all;
                    }
                }
                match sample.next(next) {
                    Some(next) => from = next,
                    None => break,
                }
            }
            let Some(entry) = sample.choose().and_then(|index| shown.get(index).copied()) else {
                return false;
            };
            // Before `take`, which may have effects: a hash may panic.
            let hash = hashes::<L>(hasher)(entry);
            self.both(entry, |key, value| sample.take(key, value)) && self.remove_seen(hash, entry, hasher)
        }
    }
}
