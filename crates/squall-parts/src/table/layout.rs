//! The four ways in which entries lie in a table.
//!
//! *Flat*: key and value are words of the slot. A slot may be used again for another key at once, so that whoever read one must ask the
//! bucket whether a key was removed from it meanwhile (bucket/I3). *Wide*: the same for keys of several words, which may lead to memory of
//! theirs: whoever read one must ask before the key is looked at, for the words may be of two keys. *Boxed*: the slot is a pointer to a node of key and value; another
//! value is another node, to which the key's bits go over. *Split*: as boxed, for keys whose bits cannot go over while they are read,
//! since they may change in place (a key may have a lock in it): the node stays, and has a pointer to the value.
//!
//! - I1. What a node or a value is freed by begins when nothing that an operation could still come to names it, and ends after a grace
//!   period.
//! - I2. Boxed: the bits of a node's key may be taken over by the node that replaces it. From then on the key is dropped with the
//!   new one, which is freed later than the old: a reader of the old one was there before either went. Of a key that is `stays`
//!   nothing changes while it is shared, so both have the same.
//! - I3. Wide: what a key owns is given back after a grace period that begins when its entry was removed. So who read its words in one
//!   operation, and was told by the version that they are one key's, may follow them until the operation ends.

use crate::table::ground::show;
use crate::table::sites;
use crate::table::word::{WORDS, Words, from_word, is_memory, of_words, to_word, to_words};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Whether a key is the one that is looked for. `Copy`: so that what asks often has it in registers, though what asks seldom is given
/// a copy in memory.
pub(crate) trait IsKey<K>: Fn(&K) -> bool + Copy {}

impl<K, F: Fn(&K) -> bool + Copy> IsKey<K> for F {}

/// A layout. `Raw` is what was read of a slot; references into it are valid within the operation in which it was read.
pub(crate) trait Layout: Sized + 'static {
    type Key: Send + Sync + 'static;
    type Value: Send + Sync + 'static;
    /// A slot; all zeros is a valid one.
    type Slot;
    /// What a slot holds, copied out.
    type Raw: Copy;
    /// An entry that is in no table yet.
    type Fresh;

    /// Whether what was read of a slot must be asked about by the version.
    const VALIDATE: bool;
    /// Whether that comes before the key is looked at.
    const VALIDATE_FIRST: bool = false;
    /// Whether a key that is there stays when the entry is replaced.
    const KEEPS_KEY: bool;

    fn empty() -> Self::Slot;
    fn fresh(key: Self::Key, value: Self::Value) -> Self::Fresh;
    /// What a slot would hold.
    fn peek(fresh: &Self::Fresh) -> Self::Raw;
    /// Takes an entry apart that never was in a table.
    fn unmake(fresh: Self::Fresh) -> (Self::Key, Self::Value);
    /// What a slot holds.
    ///
    /// # Safety
    /// In an operation, or as the table's owner; the slot was filled once.
    unsafe fn load(slot: &Self::Slot) -> Self::Raw;
    /// Fills a slot that nobody reads, or whose readers will be told that it changed.
    fn store(slot: &Self::Slot, fresh: Self::Fresh) -> Self::Raw;
    /// Puts another value in the place of `old`, which the slot holds; the caller retires `old`. What is left of the new entry comes
    /// back, to be dropped under no lock.
    fn replace(slot: &Self::Slot, old: Self::Raw, fresh: Self::Fresh) -> Option<Self::Fresh>;
    /// As `replace`, with a value for the same key; the caller retires what [`retire_value`](Layout::retire_value) says.
    ///
    /// # Safety
    /// `old` is in the slot, and the caller holds the bucket's lock.
    unsafe fn replace_value(slot: &Self::Slot, old: Self::Raw, value: Self::NewValue);
    /// A value that is in no table yet.
    type NewValue;
    fn new_value(value: Self::Value) -> Self::NewValue;
    /// A copy of what an entry of another table of the same map holds.
    fn copy(slot: &Self::Slot, raw: Self::Raw);
    /// Whether both are the same entry: if it was changed and changed back, or taken out and put in again meanwhile, that may be.
    fn is_same(a: Self::Raw, b: Self::Raw) -> bool;
    /// Whether a slot has this value, where the key is in the slot too ([`VALIDATE`](Layout::VALIDATE)), and is the entry's.
    fn has_value(slot: &Self::Slot, raw: Self::Raw) -> bool {
        let _ = (slot, raw);
        false
    }

    /// Runs `f` on the key.
    ///
    /// # Safety
    /// `raw` was read in an operation that is still open, or the caller owns the table.
    unsafe fn key<R>(raw: Self::Raw, f: impl FnOnce(&Self::Key) -> R) -> R;
    /// Runs `f` on the value.
    ///
    /// # Safety
    /// As [`key`](Layout::key).
    unsafe fn value<R>(raw: Self::Raw, f: impl FnOnce(&Self::Value) -> R) -> R;
    /// Frees an entry when no operation can see it any more.
    ///
    /// # Safety
    /// No slot that an operation that begins later can come to holds it, and nobody else retires it.
    unsafe fn retire(raw: Self::Raw);
    /// Frees all of an entry but the key, which went on.
    ///
    /// # Safety
    /// As [`retire`](Layout::retire); and `replace_value` took the key over.
    unsafe fn retire_value(raw: Self::Raw);
    /// Frees an entry now.
    ///
    /// # Safety
    /// The caller owns the entry alone.
    unsafe fn free(raw: Self::Raw);
}

/// Key and value in the slot: types of which a copy of the bits is as good as the value.
pub(crate) struct Flat<K, V>(PhantomData<fn() -> (K, V)>);

#[repr(C)]
pub(crate) struct FlatSlot {
    key: AtomicU64,
    value: AtomicU64,
}

#[derive(Clone, Copy)]
pub(crate) struct FlatRaw {
    key: u64,
    value: u64,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Flat<K, V> {
    type Key = K;
    type Value = V;
    type Slot = FlatSlot;
    type Raw = FlatRaw;
    type Fresh = FlatRaw;
    type NewValue = u64;
    const VALIDATE: bool = true;
    const KEEPS_KEY: bool = true;

    fn empty() -> FlatSlot {
        FlatSlot { key: AtomicU64::new(0), value: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn fresh(key: K, value: V) -> FlatRaw {
        FlatRaw { key: to_word(&key), value: to_word(&value) }
    }

    #[inline(always)]
    fn peek(fresh: &FlatRaw) -> FlatRaw {
        *fresh
    }

    fn unmake(fresh: FlatRaw) -> (K, V) {
        // SAFETY: words made of these types by `fresh`.
        unsafe { (from_word(fresh.key), from_word(fresh.value)) }
    }

    #[inline(always)]
    unsafe fn load(slot: &FlatSlot) -> FlatRaw {
        // Acquire, both: pairs with the releases of `store` and of the replacements, so that who reads either of a new entry sees the
        // removal before it (bucket/I3), and who reads a value sees what its writer had done before.
        FlatRaw {
            key: slot.key.load(sites::LOAD_KEY.order(Ordering::Acquire)),
            value: slot.value.load(sites::LOAD.order(Ordering::Acquire)),
        }
    }

    #[inline(always)]
    fn store(slot: &FlatSlot, fresh: FlatRaw) -> FlatRaw {
        // Release, both: pairs with the acquires of `load`.
        slot.key.store(fresh.key, Ordering::Release);
        slot.value.store(fresh.value, Ordering::Release);
        fresh
    }

    #[inline(always)]
    fn replace(slot: &FlatSlot, _old: FlatRaw, fresh: FlatRaw) -> Option<FlatRaw> {
        // Release: as in `store`. The key is the same, though perhaps not to the bit; the one that is here stays.
        show!(slot.value, fresh.value, Ordering::Release);
        None
    }

    #[inline(always)]
    unsafe fn replace_value(slot: &FlatSlot, _old: FlatRaw, value: u64) {
        // Release: as in `store`.
        show!(slot.value, value, Ordering::Release);
    }

    #[inline(always)]
    fn new_value(value: V) -> u64 {
        to_word(&value)
    }

    fn copy(slot: &FlatSlot, raw: FlatRaw) {
        Self::store(slot, raw);
    }

    #[inline(always)]
    fn is_same(a: FlatRaw, b: FlatRaw) -> bool {
        // The key, too: a slot is used again.
        a.key == b.key && a.value == b.value
    }

    #[inline(always)]
    fn has_value(slot: &Self::Slot, raw: Self::Raw) -> bool {
        // Relaxed: under the lock, as all that is written there.
        slot.value.load(Ordering::Relaxed) == raw.value
    }

    #[inline(always)]
    unsafe fn key<R>(raw: FlatRaw, f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: a slot that was ever filled holds words of these types, each stored whole (word/I1).
        f(&unsafe { from_word(raw.key) })
    }

    #[inline(always)]
    unsafe fn value<R>(raw: FlatRaw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: as in `key`.
        f(&unsafe { from_word(raw.value) })
    }

    // Nothing of a flat entry is to be freed: types that fit a word have no drop.
    #[inline(always)]
    unsafe fn retire(_raw: FlatRaw) {}
    #[inline(always)]
    unsafe fn retire_value(_raw: FlatRaw) {}
    #[inline(always)]
    unsafe fn free(_raw: FlatRaw) {}
}

/// Key and value in the slot, the key in several words.
pub(crate) struct Wide<K, V>(PhantomData<fn() -> (K, V)>);

#[repr(C)]
pub(crate) struct WideSlot {
    key: [AtomicPtr<()>; WORDS],
    value: AtomicU64,
}

pub(crate) struct WideRaw {
    key: Words,
    value: u64,
}

impl Clone for WideRaw {
    fn clone(&self) -> Self {
        *self
    }
}

impl Copy for WideRaw {}

/// An entry that is in no table yet, and has its key.
pub(crate) struct LooseWords<K> {
    raw: WideRaw,
    key: PhantomData<K>,
}

impl<K> LooseWords<K> {
    #[inline(always)]
    fn into_raw(self) -> WideRaw {
        ManuallyDrop::new(self).raw
    }
}

impl<K> Drop for LooseWords<K> {
    fn drop(&mut self) {
        // SAFETY: made of a `K` by `fresh`, and still this value's alone.
        drop(unsafe { self.raw.key.as_ptr().cast::<K>().read() });
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Wide<K, V> {
    type Key = K;
    type Value = V;
    type Slot = WideSlot;
    type Raw = WideRaw;
    type Fresh = LooseWords<K>;
    type NewValue = u64;
    const VALIDATE: bool = true;
    const VALIDATE_FIRST: bool = true;
    const KEEPS_KEY: bool = true;

    fn empty() -> WideSlot {
        WideSlot {
            key: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            value: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn fresh(key: K, value: V) -> LooseWords<K> {
        LooseWords { raw: WideRaw { key: to_words(key), value: to_word(&value) }, key: PhantomData }
    }

    #[inline(always)]
    fn peek(fresh: &LooseWords<K>) -> WideRaw {
        fresh.raw
    }

    fn unmake(fresh: LooseWords<K>) -> (K, V) {
        let raw = fresh.into_raw();
        // SAFETY: words made of these types by `fresh`; the key is moved out once.
        unsafe { (raw.key.as_ptr().cast::<K>().read(), from_word(raw.value)) }
    }

    #[inline(always)]
    unsafe fn load(slot: &WideSlot) -> WideRaw {
        // Acquire, all: pairs with the releases of `store` and of the replacements, so that who reads any word of a new entry sees the
        // removal before it (bucket/I3), and who reads a value sees what its writer had done before.
        WideRaw {
            key: std::array::from_fn(|word| slot.key[word].load(sites::LOAD_KEY.order(Ordering::Acquire))),
            value: slot.value.load(sites::LOAD.order(Ordering::Acquire)),
        }
    }

    #[inline(always)]
    fn store(slot: &WideSlot, fresh: LooseWords<K>) -> WideRaw {
        let raw = fresh.into_raw();
        Self::copy(slot, raw);
        raw
    }

    #[inline(always)]
    fn replace(slot: &WideSlot, _old: WideRaw, fresh: LooseWords<K>) -> Option<LooseWords<K>> {
        // Release: as in `copy`. The key that is here stays; the new one has not been shown to anybody.
        show!(slot.value, fresh.raw.value, Ordering::Release);
        Some(fresh)
    }

    #[inline(always)]
    unsafe fn replace_value(slot: &WideSlot, _old: WideRaw, value: u64) {
        // Release: as in `copy`.
        show!(slot.value, value, Ordering::Release);
    }

    #[inline(always)]
    fn new_value(value: V) -> u64 {
        to_word(&value)
    }

    #[inline(always)]
    fn copy(slot: &WideSlot, raw: WideRaw) {
        // Release, all: pairs with the acquires of `load`.
        slot.key.iter().zip(raw.key).for_each(|(slot, word)| slot.store(word, Ordering::Release));
        slot.value.store(raw.value, Ordering::Release);
    }

    #[inline(always)]
    fn is_same(a: WideRaw, b: WideRaw) -> bool {
        // The key, too: a slot is used again.
        a.key == b.key && a.value == b.value
    }

    #[inline(always)]
    fn has_value(slot: &Self::Slot, raw: Self::Raw) -> bool {
        // Relaxed: under the lock, as all that is written there.
        slot.value.load(Ordering::Relaxed) == raw.value
    }

    #[inline(always)]
    unsafe fn key<R>(raw: WideRaw, f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: words of one key (VALIDATE_FIRST, or the bucket's lock), which owns what it owned for as long as the operation (I3).
        f(unsafe { of_words(&raw.key) })
    }

    #[inline(always)]
    unsafe fn value<R>(raw: WideRaw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: a slot that was ever filled holds a word of this type, stored whole (word/I1).
        f(&unsafe { from_word(raw.value) })
    }

    #[inline]
    unsafe fn retire(raw: WideRaw) {
        // SAFETY: the caller: the entry's words are nobody else's.
        unsafe { crate::table::ground::retire_words::<K>(&raw.key) };
    }

    // The value owns nothing.
    #[inline(always)]
    unsafe fn retire_value(_raw: WideRaw) {}

    unsafe fn free(raw: WideRaw) {
        // SAFETY: made of a `K`, and the caller owns the entry alone.
        drop(unsafe { raw.key.as_ptr().cast::<K>().read() });
    }
}

/// The slot is a pointer to a node.
pub(crate) struct Boxed<K, V>(PhantomData<fn() -> (K, V)>);

/// An entry. Its drop leaves the key, which a later node may have; [`Whole`] drops that too.
pub(crate) struct Node<K, V> {
    key: ManuallyDrop<K>,
    value: V,
}

/// A node with its key, for what frees it.
#[repr(transparent)]
struct Whole<K, V>(Node<K, V>);

impl<K, V> Drop for Whole<K, V> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here; the node's own drop leaves it.
        unsafe { ManuallyDrop::drop(&mut self.0.key) };
    }
}

/// A node that is in no table yet. A pointer and not a `Box`: its key is read while it goes into the table.
pub(crate) struct Loose<K, V>(NonNull<Node<K, V>>);

impl<K, V> Loose<K, V> {
    fn into_raw(self) -> *mut Node<K, V> {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl<K, V> Drop for Loose<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, of the same layout, and still this value's alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr().cast::<Whole<K, V>>()) });
    }
}

/// A node that lacks its key's bits until it replaces another.
pub(crate) struct Keyless<K, V>(Box<std::mem::MaybeUninit<Node<K, V>>>);

impl<K, V> Keyless<K, V> {
    fn into_raw(self) -> *mut Node<K, V> {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once; `this` is not dropped.
        Box::into_raw(unsafe { std::ptr::read(&raw const this.0) }).cast()
    }
}

impl<K, V> Drop for Keyless<K, V> {
    fn drop(&mut self) {
        // SAFETY: the value was written by `new_value`, and the node never came to a table.
        unsafe { std::ptr::drop_in_place(&raw mut (*self.0.as_mut_ptr()).value) };
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Boxed<K, V> {
    type Key = K;
    type Value = V;
    type Slot = AtomicPtr<Node<K, V>>;
    type Raw = *mut Node<K, V>;
    type Fresh = Loose<K, V>;
    type NewValue = Keyless<K, V>;
    const VALIDATE: bool = false;
    const KEEPS_KEY: bool = false;

    fn empty() -> Self::Slot {
        AtomicPtr::new(std::ptr::null_mut())
    }

    #[inline]
    fn fresh(key: K, value: V) -> Self::Fresh {
        Loose(NonNull::from(Box::leak(Box::new(Node { key: ManuallyDrop::new(key), value }))))
    }

    fn unmake(fresh: Self::Fresh) -> (K, V) {
        // SAFETY: from `Box::into_raw`, and nobody else's. A node's drop leaves its key, so both are moved out once.
        let node = *unsafe { Box::from_raw(fresh.into_raw()) };
        (ManuallyDrop::into_inner(node.key), node.value)
    }

    #[inline]
    fn peek(fresh: &Self::Fresh) -> Self::Raw {
        fresh.0.as_ptr()
    }

    #[inline(always)]
    unsafe fn load(slot: &Self::Slot) -> Self::Raw {
        // Acquire: pairs with the release of `store` and the replacements: the node is whole.
        slot.load(Ordering::Acquire)
    }

    #[inline]
    fn store(slot: &Self::Slot, fresh: Self::Fresh) -> Self::Raw {
        let node = fresh.into_raw();
        // Release: pairs with the acquire of `load`.
        slot.store(node, Ordering::Release);
        node
    }

    #[inline]
    fn replace(slot: &Self::Slot, _old: Self::Raw, fresh: Self::Fresh) -> Option<Self::Fresh> {
        // Release: as in `store`.
        show!(slot, fresh.into_raw(), Ordering::Release);
        None
    }

    #[inline]
    unsafe fn replace_value(slot: &Self::Slot, old: Self::Raw, value: Self::NewValue) {
        let node = value.into_raw();
        // SAFETY: 1. the old node is in the slot, and nobody retires it while the caller holds the lock. 2. the key's bits are
        // copied as bytes, without making a value of them, and the old node's are dropped by nobody (I2).
        unsafe {
            std::ptr::copy_nonoverlapping(&raw const (*old).key, &raw mut (*node).key, 1);
        }
        // Release: as in `store`.
        show!(slot, node, Ordering::Release);
    }

    #[inline]
    fn new_value(value: V) -> Self::NewValue {
        let mut node = Box::<Node<K, V>>::new_uninit();
        // SAFETY: a field of a node that is being made.
        unsafe { (&raw mut (*node.as_mut_ptr()).value).write(value) };
        Keyless(node)
    }

    fn copy(slot: &Self::Slot, raw: Self::Raw) {
        // Release: as in `store`.
        slot.store(raw, Ordering::Release);
    }

    #[inline]
    fn is_same(a: Self::Raw, b: Self::Raw) -> bool {
        a == b
    }

    #[inline(always)]
    unsafe fn key<R>(raw: Self::Raw, f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: a node that a slot held within the operation that is still open (the caller, I1); of a slot that was
        // occupied, so not null. Nothing of a node in a table is changed.
        f(unsafe { &(*raw).key })
    }

    #[inline(always)]
    unsafe fn value<R>(raw: Self::Raw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: as in `key`.
        f(unsafe { &(*raw).value })
    }

    unsafe fn retire(raw: Self::Raw) {
        // SAFETY: 1. from `Box::into_raw` in `store` or `replace_value`, of the same layout. 2. the caller.
        unsafe { crate::table::ground::retire(raw.cast::<Whole<K, V>>(), is_memory::<K>() && is_memory::<V>()) };
    }

    unsafe fn retire_value(raw: Self::Raw) {
        // SAFETY: as in `retire`; the key is another's.
        unsafe { crate::table::ground::retire(raw, is_memory::<V>()) };
    }

    unsafe fn free(raw: Self::Raw) {
        // SAFETY: as in `retire`, and now.
        drop(unsafe { Box::from_raw(raw.cast::<Whole<K, V>>()) });
    }
}

/// A pointer to a node that stays with its key, and has a pointer to the value.
pub(crate) struct Split<K, V>(PhantomData<fn() -> (K, V)>);

/// A key, and where its value is: never null, but in a node that lost it to another.
pub(crate) struct Stem<K, V> {
    key: K,
    value: AtomicPtr<V>,
}

impl<K, V> Drop for Stem<K, V> {
    fn drop(&mut self) {
        // Relaxed: nobody else has the stem.
        let value = self.value.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: from `Box::into_raw`; what a stem holds is its own.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

/// What a slot and its stem hold.
pub(crate) struct SplitRaw<K, V> {
    stem: *mut Stem<K, V>,
    value: *mut V,
}

impl<K, V> Clone for SplitRaw<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for SplitRaw<K, V> {}

/// A stem that is in no table yet.
pub(crate) struct LooseStem<K, V>(NonNull<Stem<K, V>>);

impl<K, V> LooseStem<K, V> {
    fn into_raw(self) -> *mut Stem<K, V> {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl<K, V> Drop for LooseStem<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and still this value's alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Split<K, V> {
    type Key = K;
    type Value = V;
    type Slot = AtomicPtr<Stem<K, V>>;
    type Raw = SplitRaw<K, V>;
    type Fresh = LooseStem<K, V>;
    type NewValue = Box<V>;
    const VALIDATE: bool = false;
    const KEEPS_KEY: bool = true;

    fn empty() -> Self::Slot {
        AtomicPtr::new(std::ptr::null_mut())
    }

    fn fresh(key: K, value: V) -> Self::Fresh {
        let value = AtomicPtr::new(Box::into_raw(Box::new(value)));
        LooseStem(NonNull::from(Box::leak(Box::new(Stem { key, value }))))
    }

    fn peek(fresh: &Self::Fresh) -> Self::Raw {
        let stem = fresh.0.as_ptr();
        // SAFETY: valid until it goes into a table, where operations keep it. Relaxed: nobody else has it.
        SplitRaw { stem, value: unsafe { (*stem).value.load(Ordering::Relaxed) } }
    }

    fn unmake(fresh: Self::Fresh) -> (K, V) {
        // SAFETY: from `Box::into_raw`, and nobody else's; so is its value. Both are moved out once: the stem is not dropped.
        unsafe {
            let stem = ManuallyDrop::new(*Box::from_raw(fresh.into_raw()));
            let value = *Box::from_raw(stem.value.load(Ordering::Relaxed));
            (std::ptr::read(&raw const stem.key), value)
        }
    }

    #[inline]
    unsafe fn load(slot: &Self::Slot) -> Self::Raw {
        // Acquire: pairs with the release of `store`: the stem is whole.
        let stem = slot.load(Ordering::Acquire);
        // Acquire: pairs with the release of the replacements.
        // SAFETY: a slot that was filled holds a stem that is not freed before the operation ends (the caller, I1).
        SplitRaw { stem, value: unsafe { (*stem).value.load(Ordering::Acquire) } }
    }

    fn store(slot: &Self::Slot, fresh: Self::Fresh) -> Self::Raw {
        let raw = Self::peek(&fresh);
        // Release: pairs with the acquire of `load`.
        slot.store(fresh.into_raw(), Ordering::Release);
        raw
    }

    fn replace(_slot: &Self::Slot, old: Self::Raw, fresh: Self::Fresh) -> Option<Self::Fresh> {
        let stem = fresh.into_raw();
        // SAFETY: 1. the new stem is nobody else's, and loses its value; freed as from `Box::into_raw`, later: its key's drop is the user's
        // code, and this is under a lock. 2. the old one is in the slot, and the caller holds the lock.
        unsafe {
            // Relaxed: as above.
            let value = (*stem).value.swap(std::ptr::null_mut(), Ordering::Relaxed);
            // Release: pairs with the acquire of `load`.
            show!((*old.stem).value, value, Ordering::Release);
            crate::table::ground::retire(stem, is_memory::<K>());
        }
        None
    }

    unsafe fn replace_value(_slot: &Self::Slot, old: Self::Raw, value: Box<V>) {
        // Release: as in `replace`.
        // SAFETY: the stem is in the slot, and the caller holds the lock.
        unsafe { show!((*old.stem).value, Box::into_raw(value), Ordering::Release) };
    }

    fn new_value(value: V) -> Box<V> {
        Box::new(value)
    }

    fn copy(slot: &Self::Slot, raw: Self::Raw) {
        // Release: as in `store`.
        slot.store(raw.stem, Ordering::Release);
    }

    fn is_same(a: Self::Raw, b: Self::Raw) -> bool {
        a.stem == b.stem && a.value == b.value
    }

    #[inline]
    unsafe fn key<R>(raw: Self::Raw, f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: a stem that a slot held within the operation (the caller, I1); nobody writes to its key.
        f(unsafe { &(*raw.stem).key })
    }

    #[inline]
    unsafe fn value<R>(raw: Self::Raw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: a value that a stem held within the operation (the caller, I1).
        f(unsafe { &*raw.value })
    }

    unsafe fn retire(raw: Self::Raw) {
        // SAFETY: from `Box::into_raw`; the value that the stem holds goes with it, and is `raw.value`: what replaced that before was
        // done under the same lock.
        unsafe { crate::table::ground::retire(raw.stem, is_memory::<K>() && is_memory::<V>()) };
    }

    unsafe fn retire_value(raw: Self::Raw) {
        // SAFETY: from `Box::into_raw`; the stem has another now.
        unsafe { crate::table::ground::retire(raw.value, is_memory::<V>()) };
    }

    unsafe fn free(raw: Self::Raw) {
        // SAFETY: from `Box::into_raw`; the caller owns it alone.
        drop(unsafe { Box::from_raw(raw.stem) });
    }
}
