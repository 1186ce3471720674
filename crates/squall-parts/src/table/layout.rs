//! Layouts: the four ways to store entries in slots.
//!
//! *Flat*: key and value are words of the slot. A slot may be reused for another key at once. So a reader
//! checks the bucket's version after the load (bucket/I3). *Wide*: like flat, for keys of several words that
//! may point to memory of their own. The reader checks the version before it compares the key, since the
//! words may be of two keys. *Boxed*: the slot is a pointer to a node with key and value. A new value is a
//! new node, to which the key's bits are copied. *Split*: like boxed, for keys that may change in place, such
//! as keys with a lock. Their bits cannot be copied while they are read. The node stays and has a pointer to
//! the value.
//!
//! - I1. A node or value is retired when no later operation can reach it, and freed after a grace period.
//! - I2. Boxed: the node that replaces another may take over the bits of its key. From then on the key is
//!   dropped with the new node, which is freed after the old one. So a reader of the old node still reads a
//!   live key. A shared key with stable bits never changes, so both nodes have equal bits.
//! - I3. Wide: the memory owned by a key is freed after a grace period that begins when its entry is removed.
//!   So a reader may follow the words of a key until the end of the operation in which it loaded them. Before
//!   that, the version must show that they are of one key.

use crate::table::platform::store_with_barrier;
use crate::table::sites;
use crate::table::word::{WORDS, Words, drop_only_frees, from_word, to_word, to_words, words_as_ref};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// Compares a key with the wanted one. `Copy`, so that the fast path can keep it in registers even if the
/// slow path gets a copy in memory.
pub(crate) trait IsKey<K>: Fn(&K) -> bool + Copy {}

impl<K, F: Fn(&K) -> bool + Copy> IsKey<K> for F {}

/// Compares a key with the wanted one, on slow paths. These are compiled once for all callers.
pub(crate) type DynIsKey<'a, K> = &'a dyn Fn(&K) -> bool;
/// Hashes a key again, on slow paths.
pub(crate) type DynHash<'a, K> = &'a dyn Fn(&K) -> u64;

/// A layout. `Raw` is the loaded content of a slot; references into it are valid within the operation of the
/// load.
pub(crate) trait Layout: Sized + 'static {
    type Key: Send + Sync + 'static;
    type Value: Send + Sync + 'static;
    /// A slot; all zeros is a valid one.
    type Slot;
    /// The content of a slot, loaded.
    type Raw: Copy;
    /// An entry that is not yet in a table.
    type NewEntry;

    /// Whether a loaded slot must be validated by the bucket's version.
    const VALIDATE: bool;
    /// Whether the validation comes before the comparison of the key.
    const VALIDATE_FIRST: bool = false;
    /// Whether the present key stays when the entry is replaced.
    const KEEPS_KEY: bool;

    fn empty() -> Self::Slot;
    fn new_entry(key: Self::Key, value: Self::Value) -> Self::NewEntry;
    /// Returns the content of a slot with this entry.
    fn as_raw(new_entry: &Self::NewEntry) -> Self::Raw;
    /// Takes apart an entry that was never in a table.
    fn into_parts(new_entry: Self::NewEntry) -> (Self::Key, Self::Value);
    /// Loads the content of a slot.
    ///
    /// # Safety
    /// In an operation, or as the table's owner; the slot was filled before.
    unsafe fn load(slot: &Self::Slot) -> Self::Raw;
    /// Fills a slot that is unread, or has readers that will notice the change.
    fn store(slot: &Self::Slot, new_entry: Self::NewEntry) -> Self::Raw;
    /// Replaces the entry `old` of the slot; the caller retires `old`. Returns the unused rest of the new
    /// entry, to be dropped under no lock.
    fn replace(slot: &Self::Slot, old: Self::Raw, new_entry: Self::NewEntry) -> Option<Self::NewEntry>;
    /// Like `replace`, with a value for the same key; the caller retires `old` by
    /// [`retire_value`](Layout::retire_value).
    ///
    /// # Safety
    /// `old` is in the slot, and the caller holds the bucket's lock.
    unsafe fn replace_value(slot: &Self::Slot, old: Self::Raw, value: Self::NewValue);
    /// A value that is not yet in a table.
    type NewValue;
    fn new_value(value: Self::Value) -> Self::NewValue;
    /// Stores a copy of an entry of another slab.
    fn copy(slot: &Self::Slot, raw: Self::Raw);
    /// Whether both are the same entry. An entry that was changed and changed back, or removed and inserted
    /// again, may count as the same.
    fn is_same(a: Self::Raw, b: Self::Raw) -> bool;
    /// Whether a slot still has the value of this entry, in layouts with the key in the slot
    /// ([`VALIDATE`](Layout::VALIDATE)).
    fn has_value(slot: &Self::Slot, raw: Self::Raw) -> bool {
        let _ = (slot, raw);
        false
    }

    /// Calls `f` with the key.
    ///
    /// # Safety
    /// `raw` was loaded in an operation that is still open, or the caller owns the table.
    unsafe fn key<R>(raw: Self::Raw, f: impl FnOnce(&Self::Key) -> R) -> R;
    /// Calls `f` with the value.
    ///
    /// # Safety
    /// The contract of [`key`](Layout::key).
    unsafe fn value<R>(raw: Self::Raw, f: impl FnOnce(&Self::Value) -> R) -> R;
    /// Frees an entry after a grace period.
    ///
    /// # Safety
    /// No later operation can reach a slot with this entry, and only this call retires it.
    unsafe fn retire(raw: Self::Raw);
    /// Frees an entry without its key, after a grace period.
    ///
    /// # Safety
    /// The contract of [`retire`](Layout::retire); and `replace_value` took over the key.
    unsafe fn retire_value(raw: Self::Raw);
    /// Frees an entry now.
    ///
    /// # Safety
    /// The caller is the only owner of the entry.
    unsafe fn free(raw: Self::Raw);
}

/// Key and value are words in the slot: types with bits that may be copied.
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
    type NewEntry = FlatRaw;
    type NewValue = u64;
    const VALIDATE: bool = true;
    const KEEPS_KEY: bool = true;

    fn empty() -> FlatSlot {
        FlatSlot { key: AtomicU64::new(0), value: AtomicU64::new(0) }
    }

    #[inline(always)]
    fn new_entry(key: K, value: V) -> FlatRaw {
        FlatRaw { key: to_word(&key), value: to_word(&value) }
    }

    #[inline(always)]
    fn as_raw(new_entry: &FlatRaw) -> FlatRaw {
        *new_entry
    }

    fn into_parts(new_entry: FlatRaw) -> (K, V) {
        // SAFETY: words made from these types by `new_entry`.
        unsafe { (from_word(new_entry.key), from_word(new_entry.value)) }
    }

    #[inline(always)]
    unsafe fn load(slot: &FlatSlot) -> FlatRaw {
        // Acquire, both: pairs with the releases of `store` and of the replacements. So a reader of either
        // word of a new entry sees the removal before it (bucket/I3). A reader of a value sees its writer's
        // earlier writes.
        FlatRaw {
            key: slot.key.load(sites::LOAD_KEY.order(Ordering::Acquire)),
            value: slot.value.load(sites::LOAD.order(Ordering::Acquire)),
        }
    }

    #[inline(always)]
    fn store(slot: &FlatSlot, new_entry: FlatRaw) -> FlatRaw {
        // Release, both: pairs with the acquires of `load`.
        slot.key.store(new_entry.key, Ordering::Release);
        slot.value.store(new_entry.value, Ordering::Release);
        new_entry
    }

    #[inline(always)]
    fn replace(slot: &FlatSlot, _old: FlatRaw, new_entry: FlatRaw) -> Option<FlatRaw> {
        // Release: as in `store`. The new key is equal, though perhaps not bit by bit; the present one stays.
        store_with_barrier!(slot.value, new_entry.value, Ordering::Release);
        None
    }

    #[inline(always)]
    unsafe fn replace_value(slot: &FlatSlot, _old: FlatRaw, value: u64) {
        // Release: as in `store`.
        store_with_barrier!(slot.value, value, Ordering::Release);
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
        // The key is compared too, since slots are reused.
        a.key == b.key && a.value == b.value
    }

    #[inline(always)]
    fn has_value(slot: &Self::Slot, raw: Self::Raw) -> bool {
        // Relaxed: under the lock, like all stores to the value.
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

    // Flat entries own no memory: types that fit a word have no drop.
    #[inline(always)]
    unsafe fn retire(_raw: FlatRaw) {}
    #[inline(always)]
    unsafe fn retire_value(_raw: FlatRaw) {}
    #[inline(always)]
    unsafe fn free(_raw: FlatRaw) {}
}

/// Key and value in the slot, with a key of several words.
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

/// An entry that is not yet in a table, and owns its key.
pub(crate) struct DetachedWords<K> {
    raw: WideRaw,
    key: PhantomData<K>,
}

impl<K> DetachedWords<K> {
    #[inline(always)]
    fn into_raw(self) -> WideRaw {
        ManuallyDrop::new(self).raw
    }
}

impl<K> Drop for DetachedWords<K> {
    fn drop(&mut self) {
        // SAFETY: made from a `K` by `new_entry`, and still owned by this value alone.
        drop(unsafe { self.raw.key.as_ptr().cast::<K>().read() });
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Wide<K, V> {
    type Key = K;
    type Value = V;
    type Slot = WideSlot;
    type Raw = WideRaw;
    type NewEntry = DetachedWords<K>;
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
    fn new_entry(key: K, value: V) -> DetachedWords<K> {
        DetachedWords { raw: WideRaw { key: to_words(key), value: to_word(&value) }, key: PhantomData }
    }

    #[inline(always)]
    fn as_raw(new_entry: &DetachedWords<K>) -> WideRaw {
        new_entry.raw
    }

    fn into_parts(new_entry: DetachedWords<K>) -> (K, V) {
        let raw = new_entry.into_raw();
        // SAFETY: words made from these types by `new_entry`; the key is moved out once.
        unsafe { (raw.key.as_ptr().cast::<K>().read(), from_word(raw.value)) }
    }

    #[inline(always)]
    unsafe fn load(slot: &WideSlot) -> WideRaw {
        // Acquire, all: pairs with the releases of `store` and of the replacements. So a reader of any word
        // of a new entry sees the removal before it (bucket/I3). A reader of a value sees its writer's
        // earlier writes.
        WideRaw {
            key: std::array::from_fn(|word| slot.key[word].load(sites::LOAD_KEY.order(Ordering::Acquire))),
            value: slot.value.load(sites::LOAD.order(Ordering::Acquire)),
        }
    }

    #[inline(always)]
    fn store(slot: &WideSlot, new_entry: DetachedWords<K>) -> WideRaw {
        let raw = new_entry.into_raw();
        Self::copy(slot, raw);
        raw
    }

    #[inline(always)]
    fn replace(slot: &WideSlot, _old: WideRaw, new_entry: DetachedWords<K>) -> Option<DetachedWords<K>> {
        // Release: as in `copy`. The present key stays; the new one was never published.
        store_with_barrier!(slot.value, new_entry.raw.value, Ordering::Release);
        Some(new_entry)
    }

    #[inline(always)]
    unsafe fn replace_value(slot: &WideSlot, _old: WideRaw, value: u64) {
        // Release: as in `copy`.
        store_with_barrier!(slot.value, value, Ordering::Release);
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
        // The key is compared too, since slots are reused.
        a.key == b.key && a.value == b.value
    }

    #[inline(always)]
    fn has_value(slot: &Self::Slot, raw: Self::Raw) -> bool {
        // Relaxed: under the lock, like all stores to the value.
        slot.value.load(Ordering::Relaxed) == raw.value
    }

    #[inline(always)]
    unsafe fn key<R>(raw: WideRaw, f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: the words are of one key (VALIDATE_FIRST, or the bucket's lock). The memory that it owns
        // lives until the operation ends (I3).
        f(unsafe { words_as_ref(&raw.key) })
    }

    #[inline(always)]
    unsafe fn value<R>(raw: WideRaw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: a slot that was ever filled holds a word of this type, stored whole (word/I1).
        f(&unsafe { from_word(raw.value) })
    }

    #[inline]
    unsafe fn retire(raw: WideRaw) {
        // SAFETY: the caller: only this call frees the memory of the entry's words.
        unsafe { crate::table::platform::retire_words::<K>(&raw.key) };
    }

    // The value owns no memory.
    #[inline(always)]
    unsafe fn retire_value(_raw: WideRaw) {}

    unsafe fn free(raw: WideRaw) {
        // SAFETY: made from a `K`, and the caller is the only owner of the entry.
        drop(unsafe { raw.key.as_ptr().cast::<K>().read() });
    }
}

/// The slot is a pointer to a node with key and value.
pub(crate) struct Boxed<K, V>(PhantomData<fn() -> (K, V)>);

/// An entry. Its drop leaves the key, which may live on in a later node; [`NodeWithKey`] drops the key too.
pub(crate) struct Node<K, V> {
    key: ManuallyDrop<K>,
    value: V,
}

/// A node that drops its key too.
#[repr(transparent)]
struct NodeWithKey<K, V>(Node<K, V>);

impl<K, V> Drop for NodeWithKey<K, V> {
    fn drop(&mut self) {
        // SAFETY: dropped once, here; the node's own drop leaves it.
        unsafe { ManuallyDrop::drop(&mut self.0.key) };
    }
}

/// A node that is not yet in a table. A pointer instead of a `Box`, since its key is read while the node goes
/// into the table.
pub(crate) struct DetachedNode<K, V>(NonNull<Node<K, V>>);

impl<K, V> DetachedNode<K, V> {
    fn into_raw(self) -> *mut Node<K, V> {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl<K, V> Drop for DetachedNode<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, of the same layout, and still owned by this value alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr().cast::<NodeWithKey<K, V>>()) });
    }
}

/// A node without the bits of its key. The node gets them when it replaces another node.
pub(crate) struct KeylessNode<K, V>(Box<std::mem::MaybeUninit<Node<K, V>>>);

impl<K, V> KeylessNode<K, V> {
    fn into_raw(self) -> *mut Node<K, V> {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once; `this` is not dropped.
        Box::into_raw(unsafe { std::ptr::read(&raw const this.0) }).cast()
    }
}

impl<K, V> Drop for KeylessNode<K, V> {
    fn drop(&mut self) {
        // SAFETY: the value was written by `new_value`, and the node was never in a table.
        unsafe { std::ptr::drop_in_place(&raw mut (*self.0.as_mut_ptr()).value) };
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Boxed<K, V> {
    type Key = K;
    type Value = V;
    type Slot = AtomicPtr<Node<K, V>>;
    type Raw = *mut Node<K, V>;
    type NewEntry = DetachedNode<K, V>;
    type NewValue = KeylessNode<K, V>;
    const VALIDATE: bool = false;
    const KEEPS_KEY: bool = false;

    fn empty() -> Self::Slot {
        AtomicPtr::new(std::ptr::null_mut())
    }

    #[inline]
    fn new_entry(key: K, value: V) -> Self::NewEntry {
        DetachedNode(NonNull::from(Box::leak(Box::new(Node { key: ManuallyDrop::new(key), value }))))
    }

    fn into_parts(new_entry: Self::NewEntry) -> (K, V) {
        // SAFETY: from `Box::into_raw`, with no other owner. A node's drop leaves its key, so both are moved
        // out once.
        let node = *unsafe { Box::from_raw(new_entry.into_raw()) };
        (ManuallyDrop::into_inner(node.key), node.value)
    }

    #[inline]
    fn as_raw(new_entry: &Self::NewEntry) -> Self::Raw {
        new_entry.0.as_ptr()
    }

    #[inline(always)]
    unsafe fn load(slot: &Self::Slot) -> Self::Raw {
        // Acquire: pairs with the release of `store` and the replacements: the node is complete.
        slot.load(Ordering::Acquire)
    }

    #[inline]
    fn store(slot: &Self::Slot, new_entry: Self::NewEntry) -> Self::Raw {
        let node = new_entry.into_raw();
        // Release: pairs with the acquire of `load`.
        slot.store(node, Ordering::Release);
        node
    }

    #[inline]
    fn replace(slot: &Self::Slot, _old: Self::Raw, new_entry: Self::NewEntry) -> Option<Self::NewEntry> {
        // Release: as in `store`.
        store_with_barrier!(slot, new_entry.into_raw(), Ordering::Release);
        None
    }

    #[inline]
    unsafe fn replace_value(slot: &Self::Slot, old: Self::Raw, value: Self::NewValue) {
        let node = value.into_raw();
        // SAFETY: 1. the old node is in the slot, and is not retired while the caller holds the lock. 2. the
        // key's bits are copied as bytes, without making a value of them. The old node's bits are never
        // dropped (I2).
        unsafe {
            std::ptr::copy_nonoverlapping(&raw const (*old).key, &raw mut (*node).key, 1);
        }
        // Release: as in `store`.
        store_with_barrier!(slot, node, Ordering::Release);
    }

    #[inline]
    fn new_value(value: V) -> Self::NewValue {
        let mut node = Box::<Node<K, V>>::new_uninit();
        // SAFETY: a field of a node under construction.
        unsafe { (&raw mut (*node.as_mut_ptr()).value).write(value) };
        KeylessNode(node)
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
        // SAFETY: the node was in a slot within the operation that is still open (the caller, I1). The slot
        // was occupied, so the pointer is not null. A node in a table never changes.
        f(unsafe { &(*raw).key })
    }

    #[inline(always)]
    unsafe fn value<R>(raw: Self::Raw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: as in `key`.
        f(unsafe { &(*raw).value })
    }

    unsafe fn retire(raw: Self::Raw) {
        // SAFETY: 1. from `Box::into_raw` in `store` or `replace_value`, of the same layout. 2. the caller.
        unsafe {
            crate::table::platform::retire(
                raw.cast::<NodeWithKey<K, V>>(),
                drop_only_frees::<K>() && drop_only_frees::<V>(),
            )
        };
    }

    unsafe fn retire_value(raw: Self::Raw) {
        // SAFETY: as in `retire`; the key belongs to another node.
        unsafe { crate::table::platform::retire(raw, drop_only_frees::<V>()) };
    }

    unsafe fn free(raw: Self::Raw) {
        // SAFETY: as in `retire`; the caller is the only owner.
        drop(unsafe { Box::from_raw(raw.cast::<NodeWithKey<K, V>>()) });
    }
}

/// The slot is a pointer to a node that keeps its key and has a pointer to the value.
pub(crate) struct Split<K, V>(PhantomData<fn() -> (K, V)>);

/// A key and a pointer to its value. The pointer is null only in a node that lost its value to another node.
pub(crate) struct SplitNode<K, V> {
    key: K,
    value: AtomicPtr<V>,
}

impl<K, V> Drop for SplitNode<K, V> {
    fn drop(&mut self) {
        // Relaxed: the node has no other owner.
        let value = self.value.load(Ordering::Relaxed);
        if !value.is_null() {
            // SAFETY: from `Box::into_raw`; the node owns its value.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

/// The content of a slot and its node.
pub(crate) struct SplitRaw<K, V> {
    node: *mut SplitNode<K, V>,
    value: *mut V,
}

impl<K, V> Clone for SplitRaw<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V> Copy for SplitRaw<K, V> {}

/// A split node that is not yet in a table.
pub(crate) struct DetachedSplit<K, V>(NonNull<SplitNode<K, V>>);

impl<K, V> DetachedSplit<K, V> {
    fn into_raw(self) -> *mut SplitNode<K, V> {
        ManuallyDrop::new(self).0.as_ptr()
    }
}

impl<K, V> Drop for DetachedSplit<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and still owned by this value alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Split<K, V> {
    type Key = K;
    type Value = V;
    type Slot = AtomicPtr<SplitNode<K, V>>;
    type Raw = SplitRaw<K, V>;
    type NewEntry = DetachedSplit<K, V>;
    type NewValue = Box<V>;
    const VALIDATE: bool = false;
    const KEEPS_KEY: bool = true;

    fn empty() -> Self::Slot {
        AtomicPtr::new(std::ptr::null_mut())
    }

    fn new_entry(key: K, value: V) -> Self::NewEntry {
        let value = AtomicPtr::new(Box::into_raw(Box::new(value)));
        DetachedSplit(NonNull::from(Box::leak(Box::new(SplitNode { key, value }))))
    }

    fn as_raw(new_entry: &Self::NewEntry) -> Self::Raw {
        let node = new_entry.0.as_ptr();
        // SAFETY: valid until it goes into a table, where operations keep it alive. Relaxed: no other thread
        // has it.
        SplitRaw { node, value: unsafe { (*node).value.load(Ordering::Relaxed) } }
    }

    fn into_parts(new_entry: Self::NewEntry) -> (K, V) {
        // SAFETY: from `Box::into_raw`, with no other owner; so is its value. Both are moved out once: the
        // node is not dropped.
        unsafe {
            let node = ManuallyDrop::new(*Box::from_raw(new_entry.into_raw()));
            let value = *Box::from_raw(node.value.load(Ordering::Relaxed));
            (std::ptr::read(&raw const node.key), value)
        }
    }

    #[inline]
    unsafe fn load(slot: &Self::Slot) -> Self::Raw {
        // Acquire: pairs with the release of `store`: the node is complete.
        let node = slot.load(Ordering::Acquire);
        // Acquire: pairs with the release of the replacements.
        // SAFETY: a filled slot holds a node that is not freed before the operation ends (the caller, I1).
        SplitRaw { node, value: unsafe { (*node).value.load(Ordering::Acquire) } }
    }

    fn store(slot: &Self::Slot, new_entry: Self::NewEntry) -> Self::Raw {
        let raw = Self::as_raw(&new_entry);
        // Release: pairs with the acquire of `load`.
        slot.store(new_entry.into_raw(), Ordering::Release);
        raw
    }

    fn replace(_slot: &Self::Slot, old: Self::Raw, new_entry: Self::NewEntry) -> Option<Self::NewEntry> {
        let node = new_entry.into_raw();
        // SAFETY: 1. the new node has no other owner and loses its value. It is freed as from
        // `Box::into_raw`, later, since its key's drop is user code and this runs under a lock. 2. the old
        // node is in the slot, and the caller holds the lock.
        unsafe {
            // Relaxed: no other thread has the new node.
            let value = (*node).value.swap(std::ptr::null_mut(), Ordering::Relaxed);
            // Release: pairs with the acquire of `load`.
            store_with_barrier!((*old.node).value, value, Ordering::Release);
            crate::table::platform::retire(node, drop_only_frees::<K>());
        }
        None
    }

    unsafe fn replace_value(_slot: &Self::Slot, old: Self::Raw, value: Box<V>) {
        // Release: as in `replace`.
        // SAFETY: the node is in the slot, and the caller holds the lock.
        unsafe { store_with_barrier!((*old.node).value, Box::into_raw(value), Ordering::Release) };
    }

    fn new_value(value: V) -> Box<V> {
        Box::new(value)
    }

    fn copy(slot: &Self::Slot, raw: Self::Raw) {
        // Release: as in `store`.
        slot.store(raw.node, Ordering::Release);
    }

    fn is_same(a: Self::Raw, b: Self::Raw) -> bool {
        a.node == b.node && a.value == b.value
    }

    #[inline]
    unsafe fn key<R>(raw: Self::Raw, f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: the node was in a slot within the operation (the caller, I1); its key is never written.
        f(unsafe { &(*raw.node).key })
    }

    #[inline]
    unsafe fn value<R>(raw: Self::Raw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: the value was in a node within the operation (the caller, I1).
        f(unsafe { &*raw.value })
    }

    unsafe fn retire(raw: Self::Raw) {
        // SAFETY: from `Box::into_raw`. The node's value is freed with it, and is `raw.value`: earlier
        // replacements ran under the same lock.
        unsafe { crate::table::platform::retire(raw.node, drop_only_frees::<K>() && drop_only_frees::<V>()) };
    }

    unsafe fn retire_value(raw: Self::Raw) {
        // SAFETY: from `Box::into_raw`; the node has another value now.
        unsafe { crate::table::platform::retire(raw.value, drop_only_frees::<V>()) };
    }

    unsafe fn free(raw: Self::Raw) {
        // SAFETY: from `Box::into_raw`; the caller is the only owner.
        drop(unsafe { Box::from_raw(raw.node) });
    }
}
