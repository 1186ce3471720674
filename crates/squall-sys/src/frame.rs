//! Page frames: pages of 4 KiB with one owner each, mapped in chunks.
//!
//! Problem: a pool of pages wants an owned type without `unsafe`. A mapping per page is too slow, and a count
//! of references per page costs an atomic operation each time that a page changes hands.
//! Idea: a frame knows its chunk, and is moved. Only the creation and the drop of a frame touch the chunk.
//!
//! - I1. The bytes of a frame belong to that frame alone. They are initialised: mapped memory reads as zeros.
//! - I2. `left` of a chunk counts its frames that exist. The thread that drops the last one unmaps the chunk.
//! - I3. `used` of a source counts the frames that exist or are about to. It never exceeds the limit that
//!   a call of `chunk` read.
//!
//! A dropped frame returns its memory to the system before it stops to count, and its addresses with the
//! last frame of its chunk. If the system's pages are larger than a frame, or if it keeps the memory (a
//! locked page), then the memory returns with the last frame, too. So `used` can be less than the memory
//! that is mapped. A frame is meant to be kept in a list, not to be dropped.
//!
//! Cost: two words per frame. A move is free; a drop is a system call.

use crate::sync::atomic::{AtomicUsize, Ordering, fence};
use std::fmt;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

/// The size of a frame in bytes. The system's pages may be larger.
pub const FRAME_BYTES: usize = 4096;

/// The largest number of frames in a chunk: 128 MiB.
pub const CHUNK_FRAMES: usize = 1 << 15;

/// A page of [`FRAME_BYTES`], owned.
///
/// # Example
/// ```
/// use squall_sys::frame::Source;
/// use std::sync::Arc;
///
/// let source = Arc::new(Source::new(100));
/// let mut frames = source.chunk(4, 0, None);
/// assert_eq!((frames.len(), source.used()), (4, 4));
/// let mut frame = frames.pop().unwrap();
/// frame.as_mut_slice()[7] = 1;
/// assert_eq!(frame.as_slice()[..8], [0, 0, 0, 0, 0, 0, 0, 1]);
/// drop(frame);
/// assert_eq!(source.used(), 3);
/// ```
pub struct Frame {
    at: NonNull<u8>,
    chunk: NonNull<Chunk>,
}

/// A mapping of several frames.
struct Chunk {
    at: NonNull<u8>,
    bytes: usize,
    label: u32,
    left: AtomicUsize,
    source: Arc<Source>,
}

/// Frames that count as used and do not exist yet. Dropped, it releases them.
struct Reserved<'a> {
    source: &'a Source,
    count: usize,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        self.source.used.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// The source of frames: it maps chunks, up to a limit.
pub struct Source {
    used: AtomicUsize,
    max: AtomicUsize,
}

// SAFETY: a frame owns its bytes (I1), and its chunk's fields are shared by reference only.
unsafe impl Send for Frame {}
// SAFETY: a shared frame is only read.
unsafe impl Sync for Frame {}

impl Source {
    /// Makes a source of at most `max` frames at a time.
    pub fn new(max: usize) -> Source {
        Source { used: AtomicUsize::new(0), max: AtomicUsize::new(max) }
    }

    /// Returns the number of frames that exist.
    pub fn used(&self) -> usize {
        // Relaxed: no order is promised.
        self.used.load(Ordering::Relaxed)
    }

    /// Returns the limit.
    pub fn max(&self) -> usize {
        self.max.load(Ordering::Relaxed)
    }

    /// Sets the limit. Frames beyond a lower limit stay.
    pub fn set_max(&self, max: usize) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Maps up to `count` frames in one chunk, [`CHUNK_FRAMES`] at most. Fewer come if the limit is near. The
    /// result is empty if the limit is reached or the system lacks memory.
    ///
    /// The frames carry the number `label`. Their memory comes from `node` if it has some, and else from the
    /// node that touches it first.
    ///
    /// # Cost
    /// A system call, and another one if a node is given.
    pub fn chunk(self: &Arc<Source>, count: usize, label: u32, node: Option<usize>) -> Vec<Frame> {
        let reserved = self.reserve(count.min(CHUNK_FRAMES));
        let count = reserved.count;
        let mut frames = Vec::new();
        if count == 0 || frames.try_reserve_exact(count).is_err() {
            return Vec::new();
        }
        // At most `CHUNK_FRAMES`, so no overflow.
        let bytes = count * FRAME_BYTES;
        let Some(at) = memory::map(bytes) else { return Vec::new() };
        if let Some(node) = node {
            // Without a preference the memory comes from the node of the first toucher.
            let _ = crate::nodes::prefer(at.as_ptr(), bytes, node);
        }
        let chunk = Chunk { at, bytes, label, left: AtomicUsize::new(count), source: self.clone() };
        let chunk = NonNull::from(Box::leak(Box::new(chunk)));
        // SAFETY: within the mapping of `bytes` bytes.
        frames.extend((0..count).map(|index| Frame { at: unsafe { at.add(index * FRAME_BYTES) }, chunk }));
        // From here on the frames count.
        mem::forget(reserved);
        frames
    }

    /// Counts up to `count` frames as used.
    fn reserve(&self, count: usize) -> Reserved<'_> {
        let mut granted = 0;
        // Relaxed, here and elsewhere: the word guards no other data.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            granted = count.min(self.max().saturating_sub(used));
            Some(used + granted)
        });
        Reserved { source: self, count: granted }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("used", &self.used()).field("max", &self.max()).finish()
    }
}

impl Frame {
    /// Returns the bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: the frame's own initialised bytes (I1).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), FRAME_BYTES) }
    }

    /// Returns the bytes, to write.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the frame's own initialised bytes (I1), borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr(), FRAME_BYTES) }
    }

    /// Returns the number that the maker of the chunk gave to its frames.
    #[inline]
    pub fn label(&self) -> u32 {
        self.chunk().label
    }

    fn chunk(&self) -> &Chunk {
        // SAFETY: the chunk exists as long as one of its frames does (I2).
        unsafe { self.chunk.as_ref() }
    }
}

impl fmt::Debug for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frame").field("at", &self.at).field("label", &self.label()).finish_non_exhaustive()
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        let chunk = self.chunk();
        // Relaxed: the number only falls, so 1 means that this frame is the only one left.
        let is_only = chunk.left.load(Ordering::Relaxed) == 1;
        if !is_only {
            // SAFETY: the frame's own bytes, which are not used any more (I1).
            unsafe { memory::discard(self.at) };
            chunk.source.used.fetch_sub(1, Ordering::Relaxed);
        }
        // Release: pairs with the fence of the thread that drops the last frame.
        if chunk.left.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        // Acquire: pairs with the Release of all other drops. Their accesses to the chunk came before.
        fence(Ordering::Acquire);
        // SAFETY: made by `Box::leak`, and no frame is left that could reach it (I2).
        let chunk = unsafe { Box::from_raw(self.chunk.as_ptr()) };
        // SAFETY: the chunk's whole mapping; no frame of it is left.
        unsafe { memory::unmap(chunk.at, chunk.bytes) };
        if is_only {
            chunk.source.used.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod memory {
    use super::FRAME_BYTES;
    use crate::{pages, system};
    use std::ptr::NonNull;

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // The alignment asks for no more than the system's pages have, so no end is cut off.
        pages::map(bytes, FRAME_BYTES, |_, _| {}).ok()
    }

    /// # Safety
    /// The bytes of a frame, whose contents are no longer needed.
    pub(super) unsafe fn discard(at: NonNull<u8>) {
        // A larger page of the system has other frames too.
        if system::page_bytes() == Some(FRAME_BYTES) {
            // SAFETY: passed on. If it fails, the memory stays until the chunk is unmapped.
            let _ = unsafe { pages::discard(at.as_ptr(), FRAME_BYTES) };
        }
    }

    /// # Safety
    /// A whole mapping of [`map`], which is no longer used.
    pub(super) unsafe fn unmap(at: NonNull<u8>, bytes: usize) {
        let page = system::page_bytes().unwrap_or(FRAME_BYTES);
        // SAFETY: passed on. If it fails, the addresses stay mapped.
        let _ = unsafe { pages::unmap(at.as_ptr(), bytes.next_multiple_of(page)) };
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod memory {
    use super::FRAME_BYTES;
    use std::alloc::{GlobalAlloc, Layout, System};
    use std::ptr::NonNull;

    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes, FRAME_BYTES).ok()
    }

    pub(super) fn map(bytes: usize) -> Option<NonNull<u8>> {
        // SAFETY: callers ask for at least one frame.
        NonNull::new(unsafe { System.alloc_zeroed(layout(bytes)?) })
    }

    pub(super) unsafe fn discard(_at: NonNull<u8>) {}

    pub(super) unsafe fn unmap(at: NonNull<u8>, bytes: usize) {
        if let Some(layout) = layout(bytes) {
            // SAFETY: allocated by `map` with this layout.
            unsafe { System.dealloc(at.as_ptr(), layout) };
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn frames_are_zeroed_and_apart() {
        let source = Arc::new(Source::new(usize::MAX));
        let mut frames = source.chunk(3, 7, None);
        for (index, frame) in frames.iter_mut().enumerate() {
            assert!(frame.as_slice().iter().all(|byte| *byte == 0));
            assert_eq!((frame.label(), frame.as_slice().as_ptr().addr() % FRAME_BYTES), (7, 0));
            frame.as_mut_slice().fill(index as u8 + 1);
        }
        for (index, frame) in frames.iter().enumerate() {
            assert!(frame.as_slice().iter().all(|byte| *byte == index as u8 + 1));
        }
    }

    #[test]
    fn a_source_has_a_limit() {
        let source = Arc::new(Source::new(5));
        let first = source.chunk(3, 0, Some(0));
        let second = source.chunk(3, 0, None);
        assert_eq!((first.len(), second.len(), source.chunk(1, 0, None).len()), (3, 2, 0));
        drop(second);
        assert_eq!(source.used(), 3);
        source.set_max(2);
        assert_eq!((source.max(), source.chunk(1, 0, None).len()), (2, 0));
        drop(first);
        assert_eq!((source.used(), source.chunk(9, 0, None).len()), (0, 2));
    }

    #[test]
    #[cfg_attr(miri, ignore = "allocates 128 MiB")]
    fn a_chunk_is_limited_and_no_count_overflows() {
        let source = Arc::new(Source::new(usize::MAX));
        for count in [usize::MAX, usize::MAX / FRAME_BYTES + 2, CHUNK_FRAMES + 1] {
            let frames = source.chunk(count, 0, None);
            assert_eq!((frames.len(), source.used()), (CHUNK_FRAMES, CHUNK_FRAMES));
            drop(frames);
            assert_eq!(source.used(), 0);
        }
        let source = Source::new(9);
        let unwound = std::panic::catch_unwind(|| {
            let _reserved = source.reserve(4);
            assert_eq!(source.used(), 4);
            panic!("between the reservation and the frames");
        });
        assert!(unwound.is_err());
        assert_eq!(source.used(), 0, "the reservation is released");
    }

    #[test]
    fn the_last_frame_of_a_chunk_may_be_dropped_by_any_thread() {
        let source = Arc::new(Source::new(8));
        let mut frames = source.chunk(8, 0, None);
        std::thread::scope(|threads| {
            for mut frame in frames.drain(..) {
                threads.spawn(move || frame.as_mut_slice().fill(1));
            }
        });
        assert_eq!(source.used(), 0);
        assert!(Arc::into_inner(source).is_some(), "a chunk was not freed");
    }
}
