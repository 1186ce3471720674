//! Slots: the part of a [layout](crate::table::layout) that knows no types of keys and values.
//!
//! Problem: a program with many types of keys and values would contain the table's code once for each pair.
//! Idea: a slot's content, once loaded, is a *raw entry*: words or pointers. Lookups, writes, and moves to
//! another slab handle raw entries, by one of the four implementations here. They need keys in two places, to
//! compare and to hash one. There they call a closure on the raw entry, which the typed code provides.
//!
//! - I1. A raw entry may be given to such a closure in the operation in which it was loaded, or under the
//!   lock of its home. If the layout asks for it, the version was checked before (bucket/I3).

use crate::table::platform::store_with_barrier;
use crate::table::sites;
use crate::table::word::{WORDS, Words};
use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Compares the key of a raw entry with the wanted one (I1). `Copy`, so that the fast path can keep it in
/// registers even if the slow path gets a copy in memory.
pub(crate) trait IsKey<R>: Fn(R) -> bool + Copy {}

impl<R, F: Fn(R) -> bool + Copy> IsKey<R> for F {}

/// Compares the key of a raw entry with the wanted one, on slow paths (I1).
pub(crate) type DynIsKey<'a, S> = &'a dyn Fn(<S as Slots>::Raw) -> bool;
/// Hashes the key of a raw entry again, on slow paths (I1).
pub(crate) type DynHash<'a, S> = &'a dyn Fn(<S as Slots>::Raw) -> u64;

/// A kind of slots. `Raw` is the loaded content of a slot.
pub(crate) trait Slots: Sized + 'static {
    /// A slot; all zeros is a valid one.
    type Slot;
    /// The content of a slot, loaded.
    type Raw: Copy;

    /// Whether a loaded slot must be validated by the bucket's version.
    const VALIDATE: bool;
    /// Whether the validation comes before the comparison of the key.
    const VALIDATE_FIRST: bool = false;

    fn empty() -> Self::Slot;
    /// Loads the content of a slot.
    ///
    /// # Safety
    /// In an operation, or as the table's owner; the slot was filled before.
    unsafe fn load(slot: &Self::Slot) -> Self::Raw;
    /// Fills a slot that is unread, or has readers that will notice the change.
    fn store(slot: &Self::Slot, raw: Self::Raw);
    /// Replaces the entry `old` of the slot by `new`, an entry of the same key. The key of `old` stays if the
    /// layout keeps keys.
    ///
    /// # Safety
    /// `old` is in the slot, and the caller holds the lock of its home.
    unsafe fn replace(slot: &Self::Slot, old: Self::Raw, new: Self::Raw);
    /// Whether both are the same entry. An entry that was changed and changed back, or removed and inserted
    /// again, may count as the same.
    fn is_same(a: Self::Raw, b: Self::Raw) -> bool;
    /// Whether a slot still has the value of this entry, in layouts with the key in the slot
    /// ([`VALIDATE`](Slots::VALIDATE)).
    fn has_value(slot: &Self::Slot, raw: Self::Raw) -> bool {
        let _ = (slot, raw);
        false
    }
}

/// Slots with one word each for key and value.
pub(crate) struct FlatSlots;

#[repr(C)]
pub(crate) struct FlatSlot {
    key: AtomicU64,
    value: AtomicU64,
}

#[derive(Clone, Copy)]
pub(crate) struct FlatRaw {
    pub(crate) key: u64,
    pub(crate) value: u64,
}

impl Slots for FlatSlots {
    type Slot = FlatSlot;
    type Raw = FlatRaw;
    const VALIDATE: bool = true;

    fn empty() -> FlatSlot {
        FlatSlot { key: AtomicU64::new(0), value: AtomicU64::new(0) }
    }

    #[inline(always)]
    unsafe fn load(slot: &FlatSlot) -> FlatRaw {
        // Acquire, both: pairs with the releases of `store` and `replace`. So a reader of either word of a
        // new entry sees the removal before it (bucket/I3). A reader of a value sees its writer's earlier
        // writes.
        FlatRaw {
            key: slot.key.load(sites::LOAD_KEY.order(Ordering::Acquire)),
            value: slot.value.load(sites::LOAD.order(Ordering::Acquire)),
        }
    }

    #[inline(always)]
    fn store(slot: &FlatSlot, raw: FlatRaw) {
        // Release, both: pairs with the acquires of `load`.
        slot.key.store(raw.key, Ordering::Release);
        slot.value.store(raw.value, Ordering::Release);
    }

    #[inline(always)]
    unsafe fn replace(slot: &FlatSlot, _old: FlatRaw, new: FlatRaw) {
        // Release: as in `store`. The new key is equal, though perhaps not bit by bit; the present one stays.
        store_with_barrier!(slot.value, new.value, Ordering::Release);
    }

    #[inline(always)]
    fn is_same(a: FlatRaw, b: FlatRaw) -> bool {
        // The key is compared too, since slots are reused.
        a.key == b.key && a.value == b.value
    }

    #[inline(always)]
    fn has_value(slot: &FlatSlot, raw: FlatRaw) -> bool {
        // Relaxed: under the lock, like all stores to the value.
        slot.value.load(Ordering::Relaxed) == raw.value
    }
}

/// Slots with several words for the key and one for the value.
pub(crate) struct WideSlots;

#[repr(C)]
pub(crate) struct WideSlot {
    key: [AtomicPtr<()>; WORDS],
    value: AtomicU64,
}

#[derive(Clone, Copy)]
pub(crate) struct WideRaw {
    pub(crate) key: Words,
    pub(crate) value: u64,
}

impl Slots for WideSlots {
    type Slot = WideSlot;
    type Raw = WideRaw;
    const VALIDATE: bool = true;
    const VALIDATE_FIRST: bool = true;

    fn empty() -> WideSlot {
        WideSlot {
            key: std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut())),
            value: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    unsafe fn load(slot: &WideSlot) -> WideRaw {
        // Acquire, all: pairs with the releases of `store` and `replace`. So a reader of any word of a new
        // entry sees the removal before it (bucket/I3). A reader of a value sees its writer's earlier writes.
        WideRaw {
            key: std::array::from_fn(|word| slot.key[word].load(sites::LOAD_KEY.order(Ordering::Acquire))),
            value: slot.value.load(sites::LOAD.order(Ordering::Acquire)),
        }
    }

    #[inline(always)]
    fn store(slot: &WideSlot, raw: WideRaw) {
        // Release, all: pairs with the acquires of `load`.
        slot.key.iter().zip(raw.key).for_each(|(slot, word)| slot.store(word, Ordering::Release));
        slot.value.store(raw.value, Ordering::Release);
    }

    #[inline(always)]
    unsafe fn replace(slot: &WideSlot, _old: WideRaw, new: WideRaw) {
        // Release: as in `store`. The present key stays.
        store_with_barrier!(slot.value, new.value, Ordering::Release);
    }

    #[inline(always)]
    fn is_same(a: WideRaw, b: WideRaw) -> bool {
        // The key is compared too, since slots are reused.
        a.key == b.key && a.value == b.value
    }

    #[inline(always)]
    fn has_value(slot: &WideSlot, raw: WideRaw) -> bool {
        // Relaxed: under the lock, like all stores to the value.
        slot.value.load(Ordering::Relaxed) == raw.value
    }
}

/// Slots with a pointer to a node.
pub(crate) struct NodeSlots;

impl Slots for NodeSlots {
    type Slot = AtomicPtr<()>;
    type Raw = *mut ();
    const VALIDATE: bool = false;

    fn empty() -> AtomicPtr<()> {
        AtomicPtr::new(std::ptr::null_mut())
    }

    #[inline(always)]
    unsafe fn load(slot: &AtomicPtr<()>) -> *mut () {
        // Acquire: pairs with the releases of `store` and `replace`: the node is complete.
        slot.load(Ordering::Acquire)
    }

    #[inline(always)]
    fn store(slot: &AtomicPtr<()>, raw: *mut ()) {
        // Release: pairs with the acquire of `load`.
        slot.store(raw, Ordering::Release);
    }

    #[inline(always)]
    unsafe fn replace(slot: &AtomicPtr<()>, _old: *mut (), new: *mut ()) {
        // Release: as in `store`.
        store_with_barrier!(slot, new, Ordering::Release);
    }

    #[inline(always)]
    fn is_same(a: *mut (), b: *mut ()) -> bool {
        a == b
    }
}

/// Slots with a pointer to a node that has a pointer to its value.
pub(crate) struct SplitSlots;

/// The first field of each node of [`SplitSlots`]: the pointer to its value. It is null only in a node that
/// lost its value to another node.
#[repr(transparent)]
pub(crate) struct SplitHead {
    pub(crate) value: AtomicPtr<()>,
}

/// The content of a slot, and of the head of its node.
#[derive(Clone, Copy)]
pub(crate) struct SplitRaw {
    pub(crate) node: *mut SplitHead,
    pub(crate) value: *mut (),
}

impl Slots for SplitSlots {
    type Slot = AtomicPtr<SplitHead>;
    type Raw = SplitRaw;
    const VALIDATE: bool = false;

    fn empty() -> AtomicPtr<SplitHead> {
        AtomicPtr::new(std::ptr::null_mut())
    }

    #[inline(always)]
    unsafe fn load(slot: &AtomicPtr<SplitHead>) -> SplitRaw {
        // Acquire: pairs with the release of `store`: the node is complete.
        let node = slot.load(Ordering::Acquire);
        // Acquire: pairs with the release of `replace`.
        // SAFETY: a filled slot holds a node that is not freed before the operation ends (the caller,
        // layout/I1). The node begins with its head.
        SplitRaw { node, value: unsafe { (*node).value.load(Ordering::Acquire) } }
    }

    #[inline(always)]
    fn store(slot: &AtomicPtr<SplitHead>, raw: SplitRaw) {
        // Release: pairs with the acquire of `load`.
        slot.store(raw.node, Ordering::Release);
    }

    #[inline(always)]
    unsafe fn replace(_slot: &AtomicPtr<SplitHead>, old: SplitRaw, new: SplitRaw) {
        // Release: pairs with the acquire of `load`.
        // SAFETY: the old node is in the slot, and the caller holds the lock, so it is not retired.
        unsafe { store_with_barrier!((*old.node).value, new.value, Ordering::Release) };
    }

    #[inline(always)]
    fn is_same(a: SplitRaw, b: SplitRaw) -> bool {
        a.node == b.node && a.value == b.value
    }
}
