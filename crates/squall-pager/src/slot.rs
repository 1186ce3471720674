//! Slots: a slot is the descriptor of one resident page, with the page's memory behind a latch. [`Frame`] and
//! [`FrameMut`] are the pins that users hold.
//!
//! Problem: a pin must keep its page resident, and it may not write memory that other processors write.
//! Idea: the latch is a reader-writer lock. Its readers leave a mark on a line of their own thread. A pin is
//! such a mark. An eviction takes the latch for writing, so it sees every pin.
//!
//! - I1. `memory` is `Some` from the creation of the slot until it is taken under the latch for writing. A
//!   slot without memory never gets memory again. Its page gets a new slot.
//! - I2. A share of a slot with memory is dropped only if another share *owns* it. The last owning share that
//!   is dropped takes the memory, or leaves the slot to `graves` while it is pinned. So the slot of a pin
//!   exists: its holder reads under the latch, and saw the memory.
//! - I3. Unlocking touches the slot. It happens inside an operation, and shares are dropped by deferred
//!   calls, so the slot outlives the unlocking too.
//!
//! - I4. A page of a window is `UNMAPPED`, `SHOWN` in mappings for reading, or `OPEN` in them for writing.
//!   The state changes under the latch for writing, except from `UNMAPPED` to `SHOWN`, under the latch for
//!   reading. A pin for reading needs that the page is not open, and one for writing that it is unmapped. So
//!   no thread writes bytes that a frame shows. The kernel takes a page out of mappings before its call
//!   returns.
//!
//! - I5. A page of a cache with replicas has a directory of them, and a replica is a slot too. It is made,
//!   taken away and ended as squall-parts' `directory.rs` demands: the slot's latch is the object's latch,
//!   and the replica's latch is that of the copy.
//!
//! - I6. The pager runs no deferred call of the program under a latch: the call may use the page.
//!
//! Cost: a pin is two stores to a line of the thread, and reads of the slot.
//! Source: Appavoo 2005, §4.1.4 (page descriptors); the latch: Dice and Kogan, "BRAVO", USENIX ATC 2019.

use squall_lock::{ReadBiasedReadGuard, ReadBiasedRwLock, ReadBiasedWriteGuard};
use squall_rcu::{Guard, RcuArc};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use crate::graves;
use crate::home::Home;
use crate::memory::Memory;
use crate::replicas::Spread;
use crate::writers::Writing;
use squall_objects::pages::Page;

/// States of a page in mappings (I4).
const UNMAPPED: u8 = 0;
const SHOWN: u8 = 1;
const OPEN: u8 = 2;

/// The descriptor of a resident page.
pub(crate) struct Slot {
    number: u64,
    /// The number of shares that own the slot (I2).
    owners: AtomicUsize,
    /// Set by users of the page, and cleared by the clock of evictions.
    is_referenced: AtomicBool,
    /// Set under the latch for writing, cleared under the latch for reading. Each change is counted at home.
    is_dirty: AtomicBool,
    /// The page was cut off its file, and is not written any more.
    is_cut: AtomicBool,
    /// UNMAPPED, SHOWN or OPEN (I4).
    mapping: AtomicU8,
    home: Arc<Home>,
    /// The replicas of the page (I5). `None` in a cache without them, and in a replica.
    spread: Option<Box<Spread>>,
    memory: ReadBiasedRwLock<Option<Memory>>,
}

/// The result of an attempt to latch a slot.
pub(crate) enum Latched<T> {
    Frame(T),
    /// Another thread has the latch.
    Busy,
    /// The page was evicted or cut off.
    Gone,
}

impl Slot {
    /// Makes the slot of a page, with the page's contents.
    pub(crate) fn new(number: u64, home: Arc<Home>, memory: Memory, spread: Option<Spread>) -> Slot {
        Slot {
            number,
            owners: AtomicUsize::new(0),
            is_referenced: AtomicBool::new(true),
            is_dirty: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            mapping: AtomicU8::new(UNMAPPED),
            home,
            spread: spread.map(Box::new),
            memory: ReadBiasedRwLock::new(Some(memory)),
        }
    }

    /// Returns the number of the page in its file.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the number of the cache that owns the slot.
    pub(crate) fn cache(&self) -> u64 {
        self.home.cache()
    }

    pub(crate) fn is_dirty(&self) -> bool {
        // Relaxed: the latch orders it for those who need an order.
        self.is_dirty.load(Ordering::Relaxed)
    }

    // Relaxed, in both: the lock of the file's length orders it.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    pub(crate) fn set_cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.end_replicas();
    }

    /// Lets no lookup find a replica from now on.
    pub(crate) fn end_replicas(&self) {
        if let Some(spread) = &self.spread {
            spread.end(self);
        }
    }

    pub(crate) fn spread(&self) -> Option<&Spread> {
        self.spread.as_deref()
    }

    /// Takes the mark of use. Returns whether the page was used since the last time.
    pub(crate) fn take_referenced(&self) -> bool {
        // Relaxed: a hint.
        let is_referenced =
            self.is_referenced.load(Ordering::Relaxed) && self.is_referenced.swap(false, Ordering::Relaxed);
        is_referenced || self.spread.as_ref().is_some_and(|spread| spread.take_referenced(self))
    }

    /// Reads first, since most uses find the mark set.
    fn set_referenced(&self) {
        // Relaxed: a hint.
        if !self.is_referenced.load(Ordering::Relaxed) {
            self.is_referenced.store(true, Ordering::Relaxed);
        }
    }

    /// Pins the page for reading, if no thread has the latch for writing.
    #[inline]
    pub(crate) fn try_read(&self) -> Latched<Frame> {
        match extend(self).memory.try_read() {
            None => Latched::Busy,
            Some(_) if self.mapping.load(Ordering::Relaxed) == OPEN => Latched::Busy,
            Some(guard) => self.pinned(guard),
        }
    }

    /// Waits for the latch and pins the page for reading. Returns `None` if the page is gone.
    pub(crate) fn read(self: &Arc<Slot>) -> Option<Frame> {
        loop {
            // The share of the caller keeps the slot while this waits.
            let guard = extend(self).memory.read();
            if self.mapping.load(Ordering::Relaxed) == OPEN {
                drop(guard);
                let _latch = self.memory.write();
                self.close();
                continue;
            }
            return match self.pinned(guard) {
                Latched::Frame(frame) => Some(frame),
                Latched::Busy | Latched::Gone => None,
            };
        }
    }

    /// Makes an open page a shown one. Called under the latch for writing.
    fn close(&self) {
        if self.mapping.load(Ordering::Relaxed) == OPEN {
            self.home.protect(self.number);
            self.mapping.store(SHOWN, Ordering::Relaxed);
        }
    }

    /// Makes an open page a shown one, unless a thread has the latch.
    pub(crate) fn try_close(&self) {
        if self.mapping.load(Ordering::Relaxed) == OPEN
            && let Some(_latch) = self.memory.try_write()
        {
            self.close();
        }
    }

    /// Makes an open page a shown one, after the threads that have the latch.
    pub(crate) fn wait_closed(&self) {
        if self.mapping.load(Ordering::Relaxed) == OPEN {
            let _latch = self.memory.write();
            self.close();
        }
    }

    /// Takes a page out of the mappings. Called under the latch for writing.
    fn unmap(&self) {
        if self.mapping.load(Ordering::Relaxed) != UNMAPPED {
            self.home.forget(self.number);
            self.mapping.store(UNMAPPED, Ordering::Relaxed);
        }
    }

    /// Shows the page in a mapping, by `show`. Returns `None` if another thread has the latch, or the page is
    /// gone.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(crate) fn try_show<R>(&self, show: impl FnOnce() -> R) -> Option<R> {
        let guard = self.memory.try_read()?;
        guard.as_ref()?;
        self.set_referenced();
        // Relaxed: the latch orders it, and several readers may set it.
        if self.mapping.load(Ordering::Relaxed) == UNMAPPED {
            self.mapping.store(SHOWN, Ordering::Relaxed);
        }
        Some(show())
    }

    /// Opens the page in a mapping, by `open`, after all pins are gone. Returns `None` if the page is gone.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(crate) fn open<R>(&self, open: impl FnOnce() -> R) -> Option<R> {
        let guard = self.memory.write();
        guard.as_ref()?;
        if self.is_cut() {
            return None;
        }
        self.set_referenced();
        self.set_dirty();
        self.mapping.store(OPEN, Ordering::Relaxed);
        Some(open())
    }

    #[inline]
    fn pinned(&self, guard: ReadBiasedReadGuard<'static, Option<Memory>>) -> Latched<Frame> {
        let frame = Frame { guard: ManuallyDrop::new(guard), slot: extend(self) };
        if frame.guard.is_none() {
            return Latched::Gone;
        }
        self.set_referenced();
        Latched::Frame(frame)
    }

    /// Waits for the latch and pins the page for writing, which marks it dirty. Returns `None` if the page is
    /// gone, or was cut off: a write would be lost.
    pub(crate) fn write(self: &Arc<Slot>, writing: Writing) -> Option<FrameMut> {
        // As in `read`.
        let guard = extend(self).memory.write();
        let frame = FrameMut { guard: ManuallyDrop::new(guard), slot: extend(self), _writing: writing };
        frame.guard.as_ref()?;
        if self.is_cut() {
            return None;
        }
        self.unmap();
        if let Some(spread) = &self.spread {
            // Operations end under the latch. Calls that fell due run after the thread's next operation (I6).
            let quiet = squall_rcu::__callback_free();
            spread.write(self);
            quiet.end_without_calls();
        }
        self.set_referenced();
        self.set_dirty();
        Some(frame)
    }

    /// Makes a replica of the page in the memory that `take_page` returns, unless a thread has the latch. No
    /// reader finds it before `publish` has returned true. Otherwise the replica loses its memory.
    pub(crate) fn replicate(
        &self,
        take_page: impl FnOnce() -> Option<Page>,
        publish: impl FnOnce(Arc<Slot>) -> bool,
    ) {
        // Held to the end (I5).
        let Some(latch) = self.memory.try_read() else { return };
        let Some(original) = &*latch else { return };
        let Some(mut page) = take_page() else { return };
        page.copy_from_slice(original.bytes());
        let replica = Arc::new(Slot::new(self.number, self.home.clone(), Memory::Page(page), None));
        // Declared first, so that the page returns to its pool after the latches are released.
        let _refused;
        let mut memory = replica.memory.write();
        let stays = publish(replica.clone());
        _refused = if stays { None } else { memory.take() };
        drop(memory);
        drop(latch);
        if !stays {
            // The replica may have been buried while it was latched here.
            graves::look();
        }
    }

    /// Called under the latch for writing, or before the slot is shared.
    pub(crate) fn set_dirty(&self) {
        if !self.is_dirty.swap(true, Ordering::Relaxed) {
            self.home.add_dirty();
        }
    }

    /// Marks the page as written to its file. Called under the latch.
    pub(crate) fn set_clean(&self) {
        if self.is_dirty.swap(false, Ordering::Relaxed) {
            self.home.remove_dirty();
        }
    }

    /// Takes the memory unless the page is pinned, or is dirty and `dirty` forbids it.
    pub(crate) fn try_take(&self, dirty: Dirty) -> Taken {
        match self.memory.try_write() {
            Some(latch) => self.take_from(latch, dirty),
            None => Taken::Pinned,
        }
    }

    /// Takes the memory, after all pins are gone. The contents are lost.
    pub(crate) fn take(&self) {
        drop(self.take_from(self.memory.write(), Dirty::Discard));
    }

    fn take_from(&self, latch: ReadBiasedWriteGuard<'_, Option<Memory>>, dirty: Dirty) -> Taken {
        squall_rcu::without_callbacks(|| self.take_latched(latch, dirty))
    }

    fn take_latched(&self, mut latch: ReadBiasedWriteGuard<'_, Option<Memory>>, dirty: Dirty) -> Taken {
        // An open page is dirty.
        if dirty == Dirty::Keep && self.is_dirty() {
            return Taken::Dirty;
        }
        if let Some(spread) = &self.spread
            && latch.is_some()
            && !spread.try_recall(self)
        {
            return Taken::Pinned;
        }
        match latch.take() {
            Some(memory) => {
                self.set_clean();
                self.unmap();
                Taken::Page(memory.retire())
            }
            None => Taken::Gone,
        }
    }
}

/// The treatment of a dirty page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// Its contents are needed.
    Keep,
    /// Its contents are not needed.
    Discard,
}

/// The result of an attempt to take the memory of a slot.
pub(crate) enum Taken {
    Page(Page),
    Pinned,
    Dirty,
    Gone,
}

/// A share of a slot, for an index.
pub(crate) struct Entry {
    slot: ManuallyDrop<RcuArc<Slot>>,
    is_owner: bool,
}

impl Entry {
    /// Makes a share that owns the slot.
    pub(crate) fn owner(slot: Arc<Slot>) -> Entry {
        // Relaxed: a count of shares. The drop of the last one orders.
        slot.owners.fetch_add(1, Ordering::Relaxed);
        Entry { slot: ManuallyDrop::new(slot.into()), is_owner: true }
    }

    /// Makes a share of a slot that another cache owns.
    pub(crate) fn borrower(slot: Arc<Slot>) -> Entry {
        Entry { slot: ManuallyDrop::new(slot.into()), is_owner: false }
    }

    /// Returns the slot for the rest of the operation.
    #[inline]
    pub(crate) fn lend<'o>(&self, guard: &'o Guard) -> &'o Slot {
        self.slot.lend(guard)
    }

    pub(crate) fn to_arc(&self) -> Arc<Slot> {
        self.slot.to_arc()
    }

    pub(crate) fn is(&self, slot: &Slot) -> bool {
        std::ptr::eq::<Slot>(&**self.slot, slot)
    }
}

impl Clone for Entry {
    fn clone(&self) -> Entry {
        let slot = self.slot.to_arc();
        if self.is_owner { Entry::owner(slot) } else { Entry::borrower(slot) }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // SAFETY: taken once; the field is not used afterwards.
        let slot = unsafe { ManuallyDrop::take(&mut self.slot) };
        // AcqRel: pairs with the same step of the other owners. All their uses come before the burial.
        if self.is_owner && slot.owners.fetch_sub(1, Ordering::AcqRel) == 1 {
            graves::bury(slot);
        }
    }
}

/// Extends the life of a slot to that of a pin.
fn extend(slot: &Slot) -> &'static Slot {
    // SAFETY: the result is used by a pin alone. While the pin holds the latch and saw memory, the slot is
    // not freed (I2). A pin without memory is dropped before its maker returns, and the maker's borrow or
    // operation covers that. The drop of a pin unlocks inside an operation, which keeps the slot to its end
    // (I3).
    unsafe { &*std::ptr::from_ref(slot) }
}

/// Unlocks inside an operation (I3), and frees buried slots that have no pin any more.
fn unpin(unlock: impl FnOnce()) {
    let mut unlock = Some(unlock);
    let _ = squall_rcu::try_pin(|_| unlock.take().map(|unlock| unlock()));
    // A thread that may open no operation is alone in the child of a fork, so no thread frees the slot.
    if let Some(unlock) = unlock {
        return unlock();
    }
    graves::look();
}

/// A pinned page, for reading. It dereferences to the bytes of the page. The page stays resident, and no
/// thread writes it, until this is dropped.
///
/// A frame stays on its thread. A thread that pins a page for writing while it holds a frame of the same page
/// waits for itself. So does a thread that pins a page a second time for reading, if another thread asks to
/// write the page in between. A thread that holds frames pins further pages in the order of their numbers.
/// Otherwise two threads may wait for each other.
///
/// If the page is cut off its file meanwhile, the frame keeps its bytes.
#[must_use = "the page may be evicted when this is dropped"]
pub struct Frame {
    guard: ManuallyDrop<ReadBiasedReadGuard<'static, Option<Memory>>>,
    slot: &'static Slot,
}

impl Frame {
    /// Returns the number of the page in its file.
    pub fn page(&self) -> u64 {
        self.slot.number
    }
}

impl Deref for Frame {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // Never empty in a frame that a user has (I1).
        self.guard.as_ref().map_or(&[], Memory::bytes)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped once; the field is not used afterwards.
        unpin(|| unsafe { ManuallyDrop::drop(&mut self.guard) });
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("page", &self.page()).finish_non_exhaustive()
    }
}

/// A pinned page, for writing. It dereferences to the bytes of the page. No other thread reads or writes the
/// page until this is dropped. The page counts as changed.
///
/// A frame stays on its thread. If the page is cut off its file meanwhile, what is written is lost.
#[must_use = "the page may be written to its file when this is dropped"]
pub struct FrameMut {
    guard: ManuallyDrop<ReadBiasedWriteGuard<'static, Option<Memory>>>,
    slot: &'static Slot,
    /// Dropped after the latch is released.
    _writing: Writing,
}

impl FrameMut {
    /// Returns the number of the page in its file.
    pub fn page(&self) -> u64 {
        self.slot.number
    }

    /// Returns whether the page was cut off its file.
    pub(crate) fn is_cut(&self) -> bool {
        self.slot.is_cut()
    }
}

impl Deref for FrameMut {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        self.guard.as_ref().map_or(&[], Memory::bytes)
    }
}

impl DerefMut for FrameMut {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        self.guard.as_mut().map_or(&mut [], Memory::bytes_mut)
    }
}

impl Drop for FrameMut {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: dropped once; the field is not used afterwards.
        unpin(|| unsafe { ManuallyDrop::drop(&mut self.guard) });
    }
}

impl fmt::Debug for FrameMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameMut").field("page", &self.page()).finish_non_exhaustive()
    }
}
