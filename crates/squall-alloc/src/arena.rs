//! Arenas: memory by placement, and values that own a block.
//!
//! - I1. A value in a `Placed` lies in a block of its own, which is freed when the value is dropped.
//!
//! Source: K42's allocation classes (`DEFINE_LOCALSTRICT_NEW`, `DEFINE_GLOBAL_NEW`); Tornado §4.

use crate::bound::Full;
use crate::classes;
use crate::raw;
use crate::setup::address_space;
use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// The placement of a block.
///
/// # Example
/// ```
/// use squall::alloc::{Arena, Placement};
///
/// // Each of four workers gets a counter that lies near its processor, on lines of its own.
/// let counters: Result<Vec<_>, _> = (0..4).map(|vp| Arena::new(Placement::Near(vp)).place(0u64)).collect();
/// assert_eq!(counters?.len(), 4);
/// # Ok::<(), squall::alloc::OutOfMemory>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Packed with other blocks of the allocating VP, like blocks of the global allocator.
    General,
    /// For data of one VP's threads: packed with other strictly local blocks of the allocating VP. No other
    /// kind of block shares its lines. If the block consists of whole lines, another VP of the node may have
    /// used it before.
    Local,
    /// Like `Local`, but from the heap of the given VP, also if the caller runs on another VP. A block that
    /// is aligned to 64 bytes or more shares no 64-byte line with any other block.
    LocalOf(u32),
    /// For data that many VPs use: whole pairs of lines (128 bytes), near the allocating VP.
    Shared,
    /// Like `Shared`, but near the given VP. Above 512 KiB the block is a mapping, and the kernel is asked to
    /// take its pages from that VP's node.
    Near(u32),
}

/// Error: there is no memory for a block.
///
/// # Example
/// ```
/// use squall::alloc::{Arena, OutOfMemory, Placement};
/// use std::alloc::Layout;
///
/// let layout = Layout::array::<u8>(isize::MAX as usize / 2).unwrap();
/// let error: OutOfMemory = Arena::new(Placement::General).allocate(layout).unwrap_err();
/// assert_eq!(error.layout, layout);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The requested layout.
    pub layout: Layout,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for {} bytes aligned to {}", self.layout.size(), self.layout.align())?;
        match Full::now().filter(|_| classes::is_of_slab(&self.layout)) {
            Some(full) => write!(f, ": {full}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for OutOfMemory {}

/// A handle to memory of one placement.
///
/// All arenas share the same caches. A handle is free to make, and a block of one arena may be freed through
/// any other. With the feature `allocator-api2`, an arena is an allocator for collections that take one.
///
/// # Example
/// ```
/// use squall::alloc::{Arena, Placement};
///
/// let shared = Arena::new(Placement::Shared);
/// let (one, two) = (shared.place(1u64)?, shared.place(2u64)?);
/// assert_eq!(*one + *two, 3);
/// // A store to one of them does not slow down a reader of the other.
/// assert!((&raw const *one).addr().abs_diff((&raw const *two).addr()) >= 128);
/// # Ok::<(), squall::alloc::OutOfMemory>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Arena {
    placement: Placement,
}

impl Arena {
    /// Returns an arena for this placement.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    ///
    /// const LOCAL: Arena = Arena::new(Placement::Local);
    /// assert_eq!(LOCAL.placement(), Placement::Local);
    /// ```
    pub const fn new(placement: Placement) -> Arena {
        Arena { placement }
    }

    /// Returns the placement of the arena.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    ///
    /// assert_eq!(Arena::new(Placement::Near(3)).placement(), Placement::Near(3));
    /// ```
    pub const fn placement(self) -> Placement {
        self.placement
    }

    /// Allocates a block for this layout. Its bytes are uninitialized. For a size of 0 the block has at least
    /// 1 byte.
    ///
    /// If the placement names a VP that the machine does not have, the arena uses the heap of another VP. A
    /// [`Placement::LocalOf`] block then occupies whole lines.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory. The allocator may then have sent cached blocks home; otherwise
    /// it is unchanged.
    ///
    /// # Cost
    /// The cost of [`LocalityAlloc`](crate::LocalityAlloc). In addition, [`Placement::Near`] always takes a
    /// lock, and [`Placement::LocalOf`] takes one if the caller is on another VP.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    /// use std::alloc::Layout;
    ///
    /// let arena = Arena::new(Placement::Shared);
    /// let layout = Layout::new::<[u64; 4]>();
    /// let block = arena.allocate(layout)?;
    /// // SAFETY: the block was allocated for this layout, and is freed once.
    /// unsafe { arena.free(block, layout) };
    /// # Ok::<(), squall::alloc::OutOfMemory>(())
    /// ```
    #[inline(always)]
    pub fn allocate(self, layout: Layout) -> Result<NonNull<u8>, OutOfMemory> {
        let block = match self.placement {
            Placement::General => raw::take(layout),
            Placement::Local => raw::take_local(layout),
            Placement::LocalOf(vp) => take_local_of(vp, layout),
            Placement::Shared => raw::take_shared(layout),
            Placement::Near(vp) => take_near(vp, layout),
        };
        NonNull::new(block).ok_or(OutOfMemory { layout })
    }

    /// Frees a block of any arena.
    ///
    /// # Safety
    /// 1. The block was allocated by an arena or by [`LocalityAlloc`](crate::LocalityAlloc) for this layout,
    ///    and not freed since.
    /// 2. The block has no users any more.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    /// use std::alloc::Layout;
    ///
    /// let layout = Layout::new::<u64>();
    /// let block = Arena::new(Placement::Local).allocate(layout)?;
    /// // SAFETY: the block was allocated for this layout, and is freed once. Any arena may free it.
    /// unsafe { Arena::new(Placement::General).free(block, layout) };
    /// # Ok::<(), squall::alloc::OutOfMemory>(())
    /// ```
    #[inline(always)]
    pub unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on.
        unsafe { raw::put(block.as_ptr(), layout) };
    }

    /// Moves `value` into a block of its own.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory; the value is dropped.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    ///
    /// let mut name = Arena::new(Placement::Local).place(String::from("squall"))?;
    /// name.push('!');
    /// assert_eq!(*name, "squall!");
    /// # Ok::<(), squall::alloc::OutOfMemory>(())
    /// ```
    pub fn place<T>(self, value: T) -> Result<Placed<T>, OutOfMemory> {
        let at = self.allocate(Layout::new::<T>())?.cast::<T>();
        // SAFETY: a block of our own of that layout.
        unsafe { at.write(value) };
        Ok(Placed { at })
    }
}

impl Arena {
    /// Allocates `len` bytes in a block of their own, each with the value `value`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    ///
    /// let mut buffer = Arena::new(Placement::Local).bytes(4096, 0)?;
    /// buffer[0] = 1;
    /// assert_eq!(buffer.iter().map(|byte| u32::from(*byte)).sum::<u32>(), 1);
    /// # Ok::<(), squall::alloc::OutOfMemory>(())
    /// ```
    pub fn bytes(self, len: usize, value: u8) -> Result<PlacedBytes, OutOfMemory> {
        let layout = Layout::array::<u8>(len).map_err(|_| OutOfMemory { layout: Layout::new::<u8>() })?;
        let at = self.allocate(layout)?;
        // SAFETY: a block of our own of so many bytes.
        unsafe { at.as_ptr().write_bytes(value, len) };
        Ok(PlacedBytes { at, len })
    }
}

/// Allocates like `Shared`, from the heap of that VP.
#[cold]
fn take_near(vp: u32, layout: Layout) -> *mut u8 {
    let layout = raw::whole_lines(layout);
    let Some(space) = address_space() else { return std::ptr::null_mut() };
    let vp = (vp as usize % space.parts) as u32;
    if !classes::is_of_slab(&layout) {
        let block = raw::take_slow(layout);
        if !block.is_null() {
            // Up to the end of the last page, to which the kernel rounds.
            space.bind_near(block, layout.size(), vp);
        }
        return block;
    }
    if space.debug {
        return raw::take_slow(layout);
    }
    raw::take_on(space, vp, classes::general(layout.size(), layout.align()))
}

/// Allocates like `Local`, from the heap of that VP.
#[cold]
fn take_local_of(vp: u32, layout: Layout) -> *mut u8 {
    if layout.size() > classes::LOCAL_MAX || layout.align() > classes::LINE_BYTES {
        return take_near(vp, layout);
    }
    let Some(space) = address_space() else { return std::ptr::null_mut() };
    if vp as usize >= space.parts {
        // Two such numbers may mean one heap, and their strictly local blocks must not share a line.
        return take_near(vp, layout);
    }
    raw::take_local_of(space, vp, layout)
}

/// A value in a block of its own, allocated by an arena, like a `Box`.
///
/// # Example
/// ```
/// use squall::alloc::{Arena, Placed, Placement};
///
/// let mut numbers: Placed<Vec<u32>> = Arena::new(Placement::Local).place(vec![3, 1, 2])?;
/// numbers.sort();
/// assert_eq!(*numbers, [1, 2, 3]);
/// # Ok::<(), squall::alloc::OutOfMemory>(())
/// ```
pub struct Placed<T> {
    at: NonNull<T>,
}

// SAFETY: it owns its value, like a `Box`.
unsafe impl<T: Send> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Placed<T> {}

impl<T> Placed<T> {
    /// Returns the address of the value.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    ///
    /// let value = Arena::new(Placement::Shared).place(1u8)?;
    /// assert!(value.as_ptr().addr().get().is_multiple_of(128));
    /// # Ok::<(), squall::alloc::OutOfMemory>(())
    /// ```
    pub fn as_ptr(&self) -> NonNull<T> {
        self.at
    }

    /// Moves the value out and frees the block.
    ///
    /// # Example
    /// ```
    /// use squall::alloc::{Arena, Placement};
    ///
    /// let name = Arena::new(Placement::Local).place(String::from("squall"))?;
    /// assert_eq!(name.into_inner(), "squall");
    /// # Ok::<(), squall::alloc::OutOfMemory>(())
    /// ```
    pub fn into_inner(self) -> T {
        let at = self.at;
        std::mem::forget(self);
        // SAFETY: the value is read once, and then its block is freed; `self` was forgotten (I1).
        unsafe {
            let value = at.read();
            raw::put(at.as_ptr().cast(), Layout::new::<T>());
            value
        }
    }
}

impl<T> Deref for Placed<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: it owns a value (I1).
        unsafe { self.at.as_ref() }
    }
}

impl<T> DerefMut for Placed<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: it owns a value (I1).
        unsafe { self.at.as_mut() }
    }
}

impl<T> Drop for Placed<T> {
    fn drop(&mut self) {
        /// Frees the block, also if the drop of the value panics.
        struct Free<T>(NonNull<T>);
        impl<T> Drop for Free<T> {
            fn drop(&mut self) {
                // SAFETY: a block of that layout; its value was just dropped (I1).
                unsafe { raw::put(self.0.as_ptr().cast(), Layout::new::<T>()) };
            }
        }
        let free = Free(self.at);
        // SAFETY: the value is dropped once.
        unsafe { free.0.drop_in_place() };
    }
}

impl<T: fmt::Debug> fmt::Debug for Placed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Bytes in a block of their own, like a `Box<[u8]>`.
///
/// # Example
/// ```
/// use squall::alloc::{Arena, PlacedBytes, Placement};
///
/// let page: PlacedBytes = Arena::new(Placement::Shared).bytes(100, 7)?;
/// assert_eq!((page.len(), page[99]), (100, 7));
/// # Ok::<(), squall::alloc::OutOfMemory>(())
/// ```
pub struct PlacedBytes {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: it owns its bytes.
unsafe impl Send for PlacedBytes {}
// SAFETY: as above.
unsafe impl Sync for PlacedBytes {}

impl Deref for PlacedBytes {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        // SAFETY: it owns so many bytes, written when it was made.
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len) }
    }
}

impl DerefMut for PlacedBytes {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), self.len) }
    }
}

impl Drop for PlacedBytes {
    fn drop(&mut self) {
        // SAFETY: the block was allocated for a valid layout of so many bytes; it is freed once.
        unsafe { raw::put(self.at.as_ptr(), Layout::from_size_align_unchecked(self.len, 1)) };
    }
}

impl fmt::Debug for PlacedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.len, self.at)
    }
}

#[cfg(feature = "allocator-api2")]
// SAFETY: a block stays valid until it is freed, whichever copy of the handle is used; any arena may free any
// block.
unsafe impl allocator_api2::alloc::Allocator for Arena {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, allocator_api2::alloc::AllocError> {
        let block = Arena::allocate(*self, layout).map_err(|_| allocator_api2::alloc::AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on.
        unsafe { self.free(block, layout) };
    }
}
