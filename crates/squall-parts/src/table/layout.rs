//! Layouts: the four ways to store entries in slots.
//!
//! A layout names the types of keys and values, and a kind of [slots](crate::table::slots), which know raw
//! entries alone. It makes raw entries of keys and values, views them, and frees them.
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
//! - I2. Boxed: a node with a new value has a copy of the bits of the key of the node that it is to replace.
//!   Once it has, the key is dropped with the new node, which is freed after the old one. So a reader of the
//!   old node still reads a live key. If the new node does not go into the table, its drop leaves the key. A
//!   shared key with stable bits never changes, so both nodes have equal bits.
//! - I3. Wide: the memory owned by a key is freed after a grace period that begins when its entry is removed.
//!   So a reader may follow the words of a key until the end of the operation in which it loaded them. Before
//!   that, the version must show that they are of one key.

use crate::table::compiled::Compiled;
use crate::table::slots::{
    FlatRaw, FlatSlots, NodeSlots, Slots, SplitHead, SplitRaw, SplitSlots, WideRaw, WideSlots,
};
use crate::table::word::{drop_only_frees, from_word, to_word, to_words, words_as_ref};
use squall_sys::sync::atomic::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

/// The loaded content of a layout's slots.
pub(crate) type RawOf<L> = <<L as Layout>::Slots as Slots>::Raw;

/// A layout: the types of keys and values, and their conversion from and to raw entries. References into a
/// raw entry are valid within the operation in which it was loaded.
pub(crate) trait Layout: Sized + 'static {
    type Slots: Compiled;
    type Key: Send + Sync + 'static;
    type Value: Send + Sync + 'static;
    /// An entry that is not yet in a table, and owns its key and value.
    type NewEntry;
    /// A value that is not yet in a table, for the key of an entry.
    type NewValue;

    fn new_entry(key: Self::Key, value: Self::Value) -> Self::NewEntry;
    /// Like `new_entry`, and moves key and value out of the option. A large value is moved only once, to its
    /// place. Returns `None` if the option is empty.
    fn take_entry(entry: &mut Option<(Self::Key, Self::Value)>) -> Option<Self::NewEntry> {
        entry.take().map(|(key, value)| Self::new_entry(key, value))
    }
    /// Returns the content of a slot with this entry.
    fn entry_raw(new_entry: &Self::NewEntry) -> RawOf<Self>;
    /// Takes apart an entry that was never in a table.
    fn into_parts(new_entry: Self::NewEntry) -> (Self::Key, Self::Value);
    /// Makes a value to replace that of the entry `seen`.
    ///
    /// # Safety
    /// The contract of [`key`](Layout::key). The value goes into a table only in the place of `seen`.
    unsafe fn new_value(seen: RawOf<Self>, value: Self::Value) -> Self::NewValue;
    /// Returns the raw entry by which [`Slots::replace`] stores this value.
    fn value_raw(new_value: &Self::NewValue) -> RawOf<Self>;

    /// Calls `f` with the key.
    ///
    /// # Safety
    /// `raw` was loaded in an operation that is still open, or the caller owns the table.
    unsafe fn key<R>(raw: RawOf<Self>, f: impl FnOnce(&Self::Key) -> R) -> R;
    /// Calls `f` with the value.
    ///
    /// # Safety
    /// The contract of [`key`](Layout::key).
    unsafe fn value<R>(raw: RawOf<Self>, f: impl FnOnce(&Self::Value) -> R) -> R;
    /// Frees an entry after a grace period.
    ///
    /// # Safety
    /// No later operation can reach a slot with this entry, and only this call retires it.
    unsafe fn retire(raw: RawOf<Self>);
    /// Frees an entry without its key, after a grace period.
    ///
    /// # Safety
    /// The contract of [`retire`](Layout::retire); and a [new value](Layout::new_value) replaced the entry.
    unsafe fn retire_value(raw: RawOf<Self>);
    /// Frees the entry `old`, which the entry `new` replaced, after a grace period. Also frees the unused
    /// rest of `new`, in layouts that keep the present key.
    ///
    /// # Safety
    /// The contract of [`retire`](Layout::retire). `new` has replaced `old` by [`Slots::replace`], and only
    /// this call frees its rest.
    unsafe fn retire_replaced(old: RawOf<Self>, new: RawOf<Self>);
    /// Frees an entry now.
    ///
    /// # Safety
    /// The caller is the only owner of the entry.
    unsafe fn free(raw: RawOf<Self>);
}

/// Key and value are words in the slot: types with bits that may be copied.
pub(crate) struct Flat<K, V>(PhantomData<fn() -> (K, V)>);

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Flat<K, V> {
    type Slots = FlatSlots;
    type Key = K;
    type Value = V;
    type NewEntry = FlatRaw;
    type NewValue = FlatRaw;

    #[inline(always)]
    fn new_entry(key: K, value: V) -> FlatRaw {
        FlatRaw { key: to_word(&key), value: to_word(&value) }
    }

    #[inline(always)]
    fn entry_raw(new_entry: &FlatRaw) -> FlatRaw {
        *new_entry
    }

    fn into_parts(new_entry: FlatRaw) -> (K, V) {
        // SAFETY: words made from these types by `new_entry`.
        unsafe { (from_word(new_entry.key), from_word(new_entry.value)) }
    }

    #[inline(always)]
    unsafe fn new_value(seen: FlatRaw, value: V) -> FlatRaw {
        FlatRaw { key: seen.key, value: to_word(&value) }
    }

    #[inline(always)]
    fn value_raw(new_value: &FlatRaw) -> FlatRaw {
        *new_value
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
    unsafe fn retire_replaced(_old: FlatRaw, _new: FlatRaw) {}
    #[inline(always)]
    unsafe fn free(_raw: FlatRaw) {}
}

/// Key and value in the slot, with a key of several words.
pub(crate) struct Wide<K, V>(PhantomData<fn() -> (K, V)>);

/// An entry that is not yet in a table, and owns its key.
pub(crate) struct DetachedWords<K> {
    raw: WideRaw,
    key: PhantomData<K>,
}

impl<K> Drop for DetachedWords<K> {
    fn drop(&mut self) {
        // SAFETY: made from a `K` by `new_entry`, and still owned by this value alone.
        drop(unsafe { self.raw.key.as_ptr().cast::<K>().read() });
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Wide<K, V> {
    type Slots = WideSlots;
    type Key = K;
    type Value = V;
    type NewEntry = DetachedWords<K>;
    type NewValue = WideRaw;

    #[inline(always)]
    fn new_entry(key: K, value: V) -> DetachedWords<K> {
        DetachedWords { raw: WideRaw { key: to_words(key), value: to_word(&value) }, key: PhantomData }
    }

    #[inline(always)]
    fn entry_raw(new_entry: &DetachedWords<K>) -> WideRaw {
        new_entry.raw
    }

    fn into_parts(new_entry: DetachedWords<K>) -> (K, V) {
        let raw = ManuallyDrop::new(new_entry).raw;
        // SAFETY: words made from these types by `new_entry`; the key is moved out once.
        unsafe { (raw.key.as_ptr().cast::<K>().read(), from_word(raw.value)) }
    }

    #[inline(always)]
    unsafe fn new_value(seen: WideRaw, value: V) -> WideRaw {
        WideRaw { key: seen.key, value: to_word(&value) }
    }

    #[inline(always)]
    fn value_raw(new_value: &WideRaw) -> WideRaw {
        *new_value
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

    #[inline(always)]
    unsafe fn retire_replaced(_old: WideRaw, new: WideRaw) {
        // SAFETY: made from a `K` by `new_entry`. The present key stays in the slot, so no other thread has
        // seen this one, and only this call frees it (the caller).
        drop(unsafe { new.key.as_ptr().cast::<K>().read() });
    }

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

impl<K, V> Drop for DetachedNode<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, of the same layout, and still owned by this value alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr().cast::<NodeWithKey<K, V>>()) });
    }
}

/// A node that is not yet in a table, with the bits of a key that belongs to another node. The node takes the
/// key over when it replaces the other one. A pointer, since the node goes into the table before its owner
/// forgets it.
pub(crate) struct KeylessNode<K, V>(NonNull<Node<K, V>>);

impl<K, V> Drop for KeylessNode<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and still owned by this value alone. A node's drop leaves its key.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Boxed<K, V> {
    type Slots = NodeSlots;
    type Key = K;
    type Value = V;
    type NewEntry = DetachedNode<K, V>;
    type NewValue = KeylessNode<K, V>;

    #[inline]
    fn new_entry(key: K, value: V) -> DetachedNode<K, V> {
        DetachedNode(NonNull::from(Box::leak(Box::new(Node { key: ManuallyDrop::new(key), value }))))
    }

    fn take_entry(entry: &mut Option<(K, V)>) -> Option<DetachedNode<K, V>> {
        let (key, value) = entry.as_mut()?;
        let node = Box::into_raw(Box::<Node<K, V>>::new_uninit()).cast::<Node<K, V>>();
        // SAFETY: 1. the fields of a node under construction, each copied whole from a value of its type. 2.
        // key and value are moved: `forget_content` drops neither, and no panic comes between. 3. the pointer
        // of a box is not null.
        unsafe {
            std::ptr::copy_nonoverlapping(key, (&raw mut (*node).key).cast(), 1);
            std::ptr::copy_nonoverlapping(value, &raw mut (*node).value, 1);
            forget_content(entry);
            Some(DetachedNode(NonNull::new_unchecked(node)))
        }
    }

    #[inline]
    fn entry_raw(new_entry: &DetachedNode<K, V>) -> *mut () {
        new_entry.0.as_ptr().cast()
    }

    fn into_parts(new_entry: DetachedNode<K, V>) -> (K, V) {
        // SAFETY: from `Box::into_raw`, with no other owner. A node's drop leaves its key, so both are moved
        // out once.
        let node = *unsafe { Box::from_raw(ManuallyDrop::new(new_entry).0.as_ptr()) };
        (ManuallyDrop::into_inner(node.key), node.value)
    }

    #[inline]
    unsafe fn new_value(seen: *mut (), value: V) -> KeylessNode<K, V> {
        let node = Box::into_raw(Box::<Node<K, V>>::new_uninit()).cast::<Node<K, V>>();
        // SAFETY: 1. the fields of a node under construction. 2. the old node is not freed in this operation
        // (the caller). Its key's bits are copied as bytes, without making a value of them. They do not
        // change until the new node replaces the old one, and are dropped with one node only (I2). 3. the
        // pointer of a box is not null.
        unsafe {
            (&raw mut (*node).value).write(value);
            let seen = seen.cast::<Node<K, V>>();
            std::ptr::copy_nonoverlapping(&raw const (*seen).key, &raw mut (*node).key, 1);
            KeylessNode(NonNull::new_unchecked(node))
        }
    }

    #[inline]
    fn value_raw(new_value: &KeylessNode<K, V>) -> *mut () {
        new_value.0.as_ptr().cast()
    }

    #[inline(always)]
    unsafe fn key<R>(raw: *mut (), f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: the node was in a slot within the operation that is still open (the caller, I1). The slot
        // was occupied, so the pointer is not null. A node in a table never changes.
        f(unsafe { &(*raw.cast::<Node<K, V>>()).key })
    }

    #[inline(always)]
    unsafe fn value<R>(raw: *mut (), f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: as in `key`.
        f(unsafe { &(*raw.cast::<Node<K, V>>()).value })
    }

    unsafe fn retire(raw: *mut ()) {
        // SAFETY: 1. from `Box::into_raw` in `new_entry` or `new_value`, of the same layout. 2. the caller.
        unsafe {
            crate::table::platform::retire(
                raw.cast::<NodeWithKey<K, V>>(),
                drop_only_frees::<K>() && drop_only_frees::<V>(),
            )
        };
    }

    unsafe fn retire_value(raw: *mut ()) {
        // SAFETY: as in `retire`; the key belongs to another node.
        unsafe { crate::table::platform::retire(raw.cast::<Node<K, V>>(), drop_only_frees::<V>()) };
    }

    #[inline]
    unsafe fn retire_replaced(old: *mut (), _new: *mut ()) {
        // SAFETY: the caller. The new node is in the slot, whole.
        unsafe { Self::retire(old) };
    }

    unsafe fn free(raw: *mut ()) {
        // SAFETY: as in `retire`; the caller is the only owner.
        drop(unsafe { Box::from_raw(raw.cast::<NodeWithKey<K, V>>()) });
    }
}

/// Empties an option without dropping its content. A function of its own, since an unoptimised build makes
/// room for a whole content on the stack.
///
/// # Safety
/// The content has been moved out.
unsafe fn forget_content<T>(option: &mut Option<T>) {
    // SAFETY: overwrites the content, which was moved out (the caller), with a valid value.
    unsafe { std::ptr::write(option, None) };
}

/// The slot is a pointer to a node that keeps its key and has a pointer to the value.
pub(crate) struct Split<K, V>(PhantomData<fn() -> (K, V)>);

/// A key and a pointer to its value. Begins with the pointer, so that a pointer to the node is one to a
/// [`SplitHead`].
#[repr(C)]
pub(crate) struct SplitNode<K, V> {
    head: SplitHead,
    key: K,
    value: PhantomData<V>,
}

impl<K, V> Drop for SplitNode<K, V> {
    fn drop(&mut self) {
        // Relaxed: the node has no other owner.
        let value = self.head.value.load(Ordering::Relaxed).cast::<V>();
        if !value.is_null() {
            // SAFETY: from `Box::into_raw`; the node owns its value.
            drop(unsafe { Box::from_raw(value) });
        }
    }
}

/// A split node that is not yet in a table.
pub(crate) struct DetachedSplit<K, V>(NonNull<SplitNode<K, V>>);

impl<K, V> DetachedSplit<K, V> {
    fn new(key: K, value: *mut V) -> DetachedSplit<K, V> {
        let head = SplitHead { value: AtomicPtr::new(value.cast()) };
        DetachedSplit(NonNull::from(Box::leak(Box::new(SplitNode { head, key, value: PhantomData }))))
    }
}

impl<K, V> Drop for DetachedSplit<K, V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and still owned by this value alone.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// A value that is not yet in a table, and the head of the node for which it was made.
pub(crate) struct DetachedValue<V> {
    node: *mut SplitHead,
    value: NonNull<V>,
}

impl<V> Drop for DetachedValue<V> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`, and still owned by this value alone.
        drop(unsafe { Box::from_raw(self.value.as_ptr()) });
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> Layout for Split<K, V> {
    type Slots = SplitSlots;
    type Key = K;
    type Value = V;
    type NewEntry = DetachedSplit<K, V>;
    type NewValue = DetachedValue<V>;

    fn new_entry(key: K, value: V) -> DetachedSplit<K, V> {
        DetachedSplit::new(key, Box::into_raw(Box::new(value)))
    }

    fn take_entry(entry: &mut Option<(K, V)>) -> Option<DetachedSplit<K, V>> {
        let (key, value) = entry.as_mut()?;
        let place = Box::into_raw(Box::<V>::new_uninit()).cast::<V>();
        // SAFETY: 1. a box under construction, and the value copied to it whole. 2. key and value are moved:
        // `forget_content` drops neither, and no panic comes between.
        let key = unsafe {
            std::ptr::copy_nonoverlapping(value, place, 1);
            let key = std::ptr::read(key);
            forget_content(entry);
            key
        };
        Some(DetachedSplit::new(key, place))
    }

    fn entry_raw(new_entry: &DetachedSplit<K, V>) -> SplitRaw {
        let node = new_entry.0.as_ptr().cast::<SplitHead>();
        // SAFETY: valid until it goes into a table, where operations keep it alive. It begins with its head.
        // Relaxed: no other thread has it.
        SplitRaw { node, value: unsafe { (*node).value.load(Ordering::Relaxed) } }
    }

    fn into_parts(new_entry: DetachedSplit<K, V>) -> (K, V) {
        // SAFETY: from `Box::into_raw`, with no other owner; so is its value. Both are moved out once: the
        // node is not dropped.
        unsafe {
            let node = ManuallyDrop::new(*Box::from_raw(ManuallyDrop::new(new_entry).0.as_ptr()));
            let value = *Box::from_raw(node.head.value.load(Ordering::Relaxed).cast::<V>());
            (std::ptr::read(&raw const node.key), value)
        }
    }

    unsafe fn new_value(seen: SplitRaw, value: V) -> DetachedValue<V> {
        DetachedValue { node: seen.node, value: NonNull::from(Box::leak(Box::new(value))) }
    }

    fn value_raw(new_value: &DetachedValue<V>) -> SplitRaw {
        SplitRaw { node: new_value.node, value: new_value.value.as_ptr().cast() }
    }

    #[inline]
    unsafe fn key<R>(raw: SplitRaw, f: impl FnOnce(&K) -> R) -> R {
        // SAFETY: the node was in a slot within the operation (the caller, I1); its key is never written. It
        // was made as a `SplitNode` of these types.
        f(unsafe { &(*raw.node.cast::<SplitNode<K, V>>()).key })
    }

    #[inline]
    unsafe fn value<R>(raw: SplitRaw, f: impl FnOnce(&V) -> R) -> R {
        // SAFETY: the value was in a node within the operation (the caller, I1).
        f(unsafe { &*raw.value.cast::<V>() })
    }

    unsafe fn retire(raw: SplitRaw) {
        // SAFETY: from `Box::into_raw`. The node's value is freed with it, and is `raw.value`: earlier
        // replacements ran under the same lock.
        unsafe {
            crate::table::platform::retire(
                raw.node.cast::<SplitNode<K, V>>(),
                drop_only_frees::<K>() && drop_only_frees::<V>(),
            )
        };
    }

    unsafe fn retire_value(raw: SplitRaw) {
        // SAFETY: from `Box::into_raw`; the node has another value now.
        unsafe { crate::table::platform::retire(raw.value.cast::<V>(), drop_only_frees::<V>()) };
    }

    unsafe fn retire_replaced(old: SplitRaw, new: SplitRaw) {
        // SAFETY: 1. the new node was never in a slot, so it has no other owner; its value is now that of the
        // old node. 2. it is from `Box::into_raw`, and retired as a box, since its key's drop is user code,
        // which may take long or panic. 3. the old value: the caller.
        unsafe {
            // Relaxed: no other thread has the new node.
            (*new.node).value.store(std::ptr::null_mut(), Ordering::Relaxed);
            crate::table::platform::retire(new.node.cast::<SplitNode<K, V>>(), drop_only_frees::<K>());
            Self::retire_value(old);
        }
    }

    unsafe fn free(raw: SplitRaw) {
        // SAFETY: from `Box::into_raw`; the caller is the only owner.
        drop(unsafe { Box::from_raw(raw.node.cast::<SplitNode<K, V>>()) });
    }
}
