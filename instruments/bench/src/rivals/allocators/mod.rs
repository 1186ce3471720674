//! Allocators behind one interface, each by its own functions; the program's global allocator is a separate
//! matter.
//!
//! - I1. A block is freed once, by the allocator it came from, for the layout it was asked for.
//! - I2. All allocators get equal compile-time knowledge of a block. Each is called like its own Rust wrapper
//!   calls it, with a constant layout if the case's layout is constant.

mod owned;
mod tcmalloc;

pub use owned::Owned;
pub(crate) use tcmalloc::Tcmalloc;

use std::alloc::{GlobalAlloc, Layout, System};
use std::marker::PhantomData;
use std::ptr::NonNull;

/// An allocator.
pub(crate) trait Allocator: Sync + Send + 'static {
    /// Reason why the allocator is missing here, if it is.
    fn missing() -> Option<String> {
        None
    }

    /// Called on a thread before it allocates. With `counted`, an instrument counts, and this thread alone is
    /// on its VP.
    fn begin_thread(_counted: bool, _index: usize) {}

    /// Returns unused memory to the system, if the allocator has a call for that.
    fn collect() {}

    /// Allocates a block.
    ///
    /// # Safety
    /// The layout is not empty, and [`missing`](Allocator::missing) has reported that the allocator is here.
    unsafe fn take(layout: Layout) -> *mut u8;

    /// Frees it.
    ///
    /// # Safety
    /// I1.
    unsafe fn put(block: *mut u8, layout: Layout);
}

macro_rules! by_global_alloc {
    ($(#[$attribute:meta])* $name:ident, $allocator:expr, $collect:expr $(, $begin:item)?) => {
        $(#[$attribute])*
        pub(crate) struct $name;

        $(#[$attribute])*
        impl Allocator for $name {
            fn collect() {
                $collect
            }

            $($begin)?

            #[inline(always)]
            unsafe fn take(layout: Layout) -> *mut u8 {
                // SAFETY: passed on.
                unsafe { $allocator.alloc(layout) }
            }

            #[inline(always)]
            unsafe fn put(block: *mut u8, layout: Layout) {
                // SAFETY: passed on.
                unsafe { $allocator.dealloc(block, layout) }
            }
        }
    };
}

by_global_alloc!(
    Ours,
    squall::alloc::LocalityAlloc,
    {
        let _ = squall::alloc::trim();
    },
    fn begin_thread(counted: bool, index: usize) {
        // Instruments run without restartable sequences, on a virtual machine.
        if counted && squall_machine::machine().is_virtual() {
            // SAFETY: a counted loop has one thread on each VP, and each begins here.
            let _pretends = unsafe { squall::alloc::pretend_restartable(index as u32) };
        }
    }
);
by_global_alloc!(Glibc, System, glibc_trim());
by_global_alloc!(
    #[cfg(feature = "rivals")]
    Jemalloc,
    tikv_jemallocator::Jemalloc,
    jemalloc_purge()
);
by_global_alloc!(
    #[cfg(feature = "rivals")]
    Mimalloc,
    mimalloc::MiMalloc,
    mimalloc_collect()
);
by_global_alloc!(
    #[cfg(feature = "rivals")]
    Snmalloc,
    snmalloc_rs::SnMalloc,
    ()
);

fn glibc_trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) takes the allocator's own locks.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Live bytes of glibc's allocator, modulo 2^32. Blocks in the caches of threads count as live.
pub(crate) fn glibc_live_bytes() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo(3) takes the allocator's own locks.
        let info = unsafe { libc::mallinfo() };
        Some(u64::from((info.uordblks as u32).wrapping_add(info.hblkhd as u32)))
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

#[cfg(feature = "rivals")]
fn jemalloc_purge() {
    // All arenas' dirty and muzzy pages. SAFETY: mallctl with a name of jemalloc's that takes and returns no
    // data.
    let _ = unsafe {
        tikv_jemalloc_sys::mallctl(
            c"arena.4096.purge".as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            0,
        )
    };
}

#[cfg(feature = "rivals")]
fn mimalloc_collect() {
    // SAFETY: `mi_collect` may be called by any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// A block of `SIZE` bytes, known at compile time.
pub(crate) struct Fixed<A: Allocator, const SIZE: usize>(NonNull<u8>, PhantomData<A>);

// SAFETY: a block is plain memory, which its owner may use and free on any thread.
unsafe impl<A: Allocator, const SIZE: usize> Send for Fixed<A, SIZE> {}

impl<A: Allocator, const SIZE: usize> Fixed<A, SIZE> {
    const LAYOUT: Layout = match Layout::from_size_align(SIZE, 8) {
        Ok(layout) if SIZE >= 8 => layout,
        _ => panic!("a block holds a word"),
    };

    /// Allocates a block. Ends the program if memory is exhausted.
    #[inline(always)]
    pub(crate) fn new() -> Fixed<A, SIZE> {
        // SAFETY: at least eight bytes.
        let block = unsafe { A::take(Self::LAYOUT) };
        // Not checked for null: freeing null is harmless, and writing to it faults. SAFETY: a null `NonNull`
        // would be wrong. Each of the allocators would have ended the program instead of returning null, for
        // the few megabytes requested here.
        Fixed(unsafe { NonNull::new_unchecked(block) }, PhantomData)
    }

    /// Writes its first word, as a user would.
    #[inline(always)]
    pub(crate) fn write(&mut self, value: u64) {
        // SAFETY: our own block of at least eight bytes, aligned to eight.
        unsafe { self.0.cast::<u64>().write(value) };
    }

    /// Writes a byte that the compiler must not leave out.
    #[inline(always)]
    pub(crate) fn touch(&mut self) {
        // SAFETY: our own block.
        unsafe { self.0.as_ptr().write_volatile(1) };
    }

    /// Reads the word written before.
    #[inline(always)]
    pub(crate) fn read(&self) -> u64 {
        // SAFETY: our own block, written once before.
        unsafe { self.0.cast::<u64>().read_volatile() }
    }

    /// Its address, to be handed on and made a block again by [`from_pointer`](Fixed::from_pointer).
    pub(crate) fn into_pointer(self) -> *mut u8 {
        let block = self.0.as_ptr();
        std::mem::forget(self);
        block
    }

    /// The block of a pointer from [`into_pointer`](Fixed::into_pointer).
    ///
    /// # Safety
    /// The pointer is from `into_pointer`, and this is its only use since.
    unsafe fn from_pointer(block: *mut u8) -> Option<Fixed<A, SIZE>> {
        Some(Fixed(NonNull::new(block)?, PhantomData))
    }
}

impl<A: Allocator, const SIZE: usize> Drop for Fixed<A, SIZE> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: our own block, freed once (I1).
        unsafe { A::put(self.0.as_ptr(), Self::LAYOUT) };
    }
}

/// A block of a size known at run time.
pub(crate) struct Any<A: Allocator>(NonNull<u8>, usize, PhantomData<A>);

// SAFETY: a block is plain memory, which its owner may use and free on any thread.
unsafe impl<A: Allocator> Send for Any<A> {}

impl<A: Allocator> Any<A> {
    #[inline(always)]
    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("the size of a block is too large for a layout")
    }

    /// Allocates a block of `size` bytes, at least 8.
    #[inline(always)]
    pub(crate) fn new(size: usize) -> Any<A> {
        assert!(size >= 8, "a block holds a word");
        // SAFETY: at least eight bytes.
        let block = unsafe { A::take(Self::layout(size)) };
        Any(NonNull::new(block).expect("memory is exhausted"), size, PhantomData)
    }

    /// Writes its first word.
    #[inline(always)]
    pub(crate) fn write(&mut self, value: u64) {
        // SAFETY: our own block of at least eight bytes, aligned to eight.
        unsafe { self.0.cast::<u64>().write(value) };
    }

    /// Writes all of it.
    pub(crate) fn fill(&mut self, byte: u8) {
        // SAFETY: our own block of this size.
        unsafe { self.0.as_ptr().write_bytes(byte, self.1) };
    }
}

impl<A: Allocator> Drop for Any<A> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: our own block, freed once (I1).
        unsafe { A::put(self.0.as_ptr(), Self::layout(self.1)) };
    }
}

/// A ring through which one thread hands blocks to another; both threads write its words alternately.
pub(crate) struct Ring<A: Allocator, const SIZE: usize> {
    slots: Box<[crossbeam_utils::CachePadded<[std::sync::atomic::AtomicPtr<u8>; ROW]>]>,
    of: PhantomData<A>,
}

/// Slots per line.
const ROW: usize = 8;
/// Lines per ring.
const ROWS: usize = 128;

impl<A: Allocator, const SIZE: usize> Ring<A, SIZE> {
    pub(crate) fn new() -> Ring<A, SIZE> {
        Ring { slots: (0..ROWS).map(|_| Default::default()).collect(), of: PhantomData }
    }

    fn slot(&self, number: u64) -> &std::sync::atomic::AtomicPtr<u8> {
        let slot = number as usize % (ROW * ROWS);
        &self.slots[slot / ROW][slot % ROW]
    }

    /// Puts in block `number`, if there is room. One thread at a time calls it, with rising numbers.
    pub(crate) fn send(&self, number: u64, block: Fixed<A, SIZE>) -> Result<(), Fixed<A, SIZE>> {
        let slot = self.slot(number);
        // Acquire: pairs with the Release in `receive`.
        if !slot.load(std::sync::atomic::Ordering::Acquire).is_null() {
            return Err(block);
        }
        // Release: pairs with the Acquire in `receive`.
        slot.store(block.into_pointer(), std::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Takes block `number` out, if it is in. One thread at a time calls it, with rising numbers.
    pub(crate) fn receive(&self, number: u64) -> Option<Fixed<A, SIZE>> {
        let slot = self.slot(number);
        // Acquire: pairs with the Release in `send`.
        let block = slot.load(std::sync::atomic::Ordering::Acquire);
        if block.is_null() {
            return None;
        }
        // Release: pairs with the Acquire in `send`.
        slot.store(std::ptr::null_mut(), std::sync::atomic::Ordering::Release);
        // SAFETY: `send` put it in, and it is taken out once.
        unsafe { Fixed::from_pointer(block) }
    }
}

impl<A: Allocator, const SIZE: usize> Drop for Ring<A, SIZE> {
    fn drop(&mut self) {
        for slot in self.slots.iter_mut().flat_map(|row| row.iter_mut()) {
            // SAFETY: `send` put it in, and it is taken out once.
            drop(unsafe { Fixed::<A, SIZE>::from_pointer(*slot.get_mut()) });
        }
    }
}

/// Spins a little, then yields.
pub(crate) fn spin_or_yield(tries: &mut u32) {
    super::spin_or_yield(tries);
}

/// Forks; the child runs `body` and exits with its result. Returns whether the child returned true and exited
/// by itself.
///
/// # Errors
/// The error of fork(2) or waitpid(2).
pub fn in_child(body: impl FnOnce() -> bool) -> std::io::Result<bool> {
    // SAFETY: the child has only this thread; it runs `body` and exits without running destructors. The
    // author of `body` ensures that it waits for no thread of the parent.
    unsafe {
        match libc::fork() {
            -1 => Err(std::io::Error::last_os_error()),
            0 => {
                let said = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or(false);
                libc::_exit(i32::from(!said));
            }
            child => {
                let mut status = -1;
                if libc::waitpid(child, &raw mut status, 0) != child {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0)
            }
        }
    }
}
