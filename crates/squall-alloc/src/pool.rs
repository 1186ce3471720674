//! Memory by placement: a handle, and values that lie in it.
//!
//! - I1. A value in a `Placed` lies in a block of its own, which is freed when it is dropped.
//!
//! Source: K42's allocation classes (`DEFINE_LOCALSTRICT_NEW`, `DEFINE_GLOBAL_NEW`); Tornado §4.

use crate::classes;
use crate::ground::ground;
use crate::raw;
use std::alloc::Layout;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Where a block is to lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Placement {
    /// Packed with others of the VP where it is allocated, as the global allocator's are.
    General,
    /// For what the threads of one VP touch: packed with others of its kind of that VP, and never on a line with any other block. Of a size
    /// that is served by whole lines it may be one that another VP of the node had.
    Local,
    /// As `Local`, of the VP of this number wherever it is allocated: packed with others of its kind of that VP. One that is
    /// aligned to 64 bytes or more shares no line of that length with any other block.
    LocalOf(u32),
    /// For what many VPs touch: lines of its own, by pairs (128 bytes), near the VP where it is allocated.
    Shared,
    /// As `Shared`, near the VP of this number wherever it is allocated. Above 512 KiB it is a mapping of its own, of which the kernel is
    /// asked to take the pages from that VP's node.
    Near(u32),
}

/// There is no memory for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for.
    pub layout: Layout,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no memory for {} bytes aligned to {}", self.layout.size(), self.layout.align())
    }
}

impl std::error::Error for OutOfMemory {}

/// A handle to memory of one placement.
///
/// Every pool is served by the same caches; a handle costs nothing to make, and what was allocated through one may be freed through any.
/// With the feature `allocator-api2` it is an allocator for the collections that take one.
///
/// # Example
/// ```
/// use squall_alloc::{Placement, Pool};
///
/// let shared = Pool::new(Placement::Shared);
/// let (one, two) = (shared.place(1u64)?, shared.place(2u64)?);
/// assert_eq!(*one + *two, 3);
/// // No store to the one slows down a reader of the other.
/// assert!((&raw const *one).addr().abs_diff((&raw const *two).addr()) >= 128);
/// # Ok::<(), squall_alloc::OutOfMemory>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pool {
    placement: Placement,
}

impl Pool {
    /// The pool of this placement.
    pub const fn new(placement: Placement) -> Pool {
        Pool { placement }
    }

    /// Its placement.
    pub const fn placement(self) -> Placement {
        self.placement
    }

    /// A block for this layout, whose bytes are whatever they are. A size of 0 is served like a size of 1.
    ///
    /// # Errors
    /// [`OutOfMemory`]; but that what processors cached was sent home, nothing was changed then. A VP that the machine cannot have is
    /// taken as some VP, and a strictly local block of it is one of whole lines.
    /// # Cost
    /// As for [`LocalityAlloc`](crate::LocalityAlloc); of [`Placement::Near`] a lock, always, and of [`Placement::LocalOf`]
    /// where the caller is on another VP.
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

    /// Frees a block of whatever pool.
    ///
    /// # Safety
    /// 1. It was allocated by a pool or by [`LocalityAlloc`](crate::LocalityAlloc) for this layout, and not freed since.
    /// 2. Nobody uses it any more.
    #[inline(always)]
    pub unsafe fn free(self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on.
        unsafe { raw::put(block.as_ptr(), layout) };
    }

    /// Puts `value` into a block of its own.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the value is dropped.
    pub fn place<T>(self, value: T) -> Result<Placed<T>, OutOfMemory> {
        let at = self.allocate(Layout::new::<T>())?.cast::<T>();
        // SAFETY: a block of our own of that layout.
        unsafe { at.write(value) };
        Ok(Placed { at })
    }
}

impl Pool {
    /// `len` bytes, all `value`, in a block of their own.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn bytes(self, len: usize, value: u8) -> Result<PlacedBytes, OutOfMemory> {
        let layout = Layout::array::<u8>(len).map_err(|_| OutOfMemory { layout: Layout::new::<u8>() })?;
        let at = self.allocate(layout)?;
        // SAFETY: a block of our own of so many bytes.
        unsafe { at.as_ptr().write_bytes(value, len) };
        Ok(PlacedBytes { at, len })
    }
}

/// As `Shared`, from the heap of that VP.
#[cold]
fn take_near(vp: u32, layout: Layout) -> *mut u8 {
    let layout = raw::whole_lines(layout);
    let Some(ground) = ground() else { return std::ptr::null_mut() };
    let vp = (vp as usize % ground.parts) as u32;
    if !raw::is_of_slab(&layout) {
        let block = raw::take_slow(layout);
        if !block.is_null() {
            // To the end of its last page, which the kernel rounds to.
            ground.bind_near(block, layout.size(), vp);
        }
        return block;
    }
    if ground.debug {
        return raw::take_slow(layout);
    }
    raw::take_on(ground, vp, classes::general(layout.size(), layout.align()))
}

/// As `Local`, from the heap of that VP.
#[cold]
fn take_local_of(vp: u32, layout: Layout) -> *mut u8 {
    if layout.size() > classes::LOCAL_MAX || layout.align() > classes::LINE_BYTES {
        return take_near(vp, layout);
    }
    let Some(ground) = ground() else { return std::ptr::null_mut() };
    if vp as usize >= ground.parts {
        // Two numbers may mean one heap, and what is strictly local to the one may share no line with what is to the other.
        return take_near(vp, layout);
    }
    raw::take_local_of(ground, vp, layout)
}

/// A value in a block of its own, in the pool where it was put: like a `Box`.
pub struct Placed<T> {
    at: NonNull<T>,
}

// SAFETY: it owns its value, as a `Box` does.
unsafe impl<T: Send> Send for Placed<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Placed<T> {}

impl<T> Placed<T> {
    /// Where the value lies.
    pub fn as_ptr(&self) -> NonNull<T> {
        self.at
    }

    /// The value, out of its block.
    pub fn into_inner(self) -> T {
        let at = self.at;
        std::mem::forget(self);
        // SAFETY: the value is read once, and then its block freed, which we have forgotten (I1).
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
        /// Frees the block, also if the value's drop panics.
        struct Free<T>(NonNull<T>);
        impl<T> Drop for Free<T> {
            fn drop(&mut self) {
                // SAFETY: a block of that layout, of which the value was just dropped (I1).
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

/// Bytes in a block of their own: like a `Box<[u8]>`.
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
        // SAFETY: a block of the layout of so many bytes, which was one when it was made; freed once.
        unsafe { raw::put(self.at.as_ptr(), Layout::from_size_align_unchecked(self.len, 1)) };
    }
}

impl fmt::Debug for PlacedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:p}", self.len, self.at)
    }
}

#[cfg(feature = "allocator-api2")]
// SAFETY: blocks stay until they are freed, whichever copy of the handle is asked; any handle may free any block.
unsafe impl allocator_api2::alloc::Allocator for Pool {
    #[inline]
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, allocator_api2::alloc::AllocError> {
        let block = Pool::allocate(*self, layout).map_err(|_| allocator_api2::alloc::AllocError)?;
        Ok(NonNull::slice_from_raw_parts(block, layout.size()))
    }

    #[inline]
    unsafe fn deallocate(&self, block: NonNull<u8>, layout: Layout) {
        // SAFETY: passed on.
        unsafe { self.free(block, layout) };
    }
}
