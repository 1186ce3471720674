//! What is preloaded into an emulated program: it tells the plugin which blocks the program's allocator gives out, and who
//! asked for them.
//!
//! Idea: wrap the allocator's functions, walk the stack by its unwind tables, and tell the plugin by a system call that does
//! not exist, which it sees and the emulator refuses. A walk is dear under emulation, so each thread keeps the walks it
//! made, and uses one again when all its return addresses are still where they were.
//!
//! - I1. Nothing here allocates, and what a wrapper calls cannot lead back into a walk.
//! - I2. Outside the emulator, where nobody answers the greeting, the wrappers do nothing but call what they wrap.
//! - I3. What a wrapper does besides leaves `errno` as it was: a program may look at it after a call that fails, and after one
//!   that does not.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Frames of a walk at most; as in `format::call`.
const FRAMES_MAX: usize = 24;
const HELLO: c_long = 0x0053_5100;
const QUIET: c_long = HELLO + 1;
const ALLOC: c_long = HELLO + 2;
const FREE: c_long = HELLO + 3;

/// The next definition of a symbol in the search order.
const NEXT: *mut c_void = -1isize as *mut c_void;

#[repr(C)]
struct Context([u8; 0]);

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn syscall(number: c_long, ...) -> c_long;
    fn __errno_location() -> *mut c_int;
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
}

/// The thread's `errno`, which is stored again when this goes (I3).
struct Errno(c_int);

impl Errno {
    fn keep() -> Errno {
        // SAFETY: the address of this thread's `errno`, which is there as long as the thread is.
        Errno(unsafe { *__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *__errno_location() = self.0 };
    }
}

/// A walk: return addresses, innermost first, and where on the stack each was.
#[derive(Clone, Copy)]
struct Walk {
    /// Where the stack was; 0 for none.
    stack: usize,
    frames: [usize; FRAMES_MAX],
    places: [usize; FRAMES_MAX],
    count: usize,
}

const NO_WALK: Walk = Walk { stack: 0, frames: [0; FRAMES_MAX], places: [0; FRAMES_MAX], count: 0 };
/// Walks that a thread keeps.
const WALKS: usize = 16;

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static KEPT: Cell<[Walk; WALKS]> = const { Cell::new([NO_WALK; WALKS]) };
}

/// 0: not yet asked; 1: somebody listens; 2: nobody does.
static HEARD: AtomicU8 = AtomicU8::new(0);

fn is_heard() -> bool {
    match HEARD.load(Ordering::Relaxed) {
        0 => {
            let mut answer = 0u8;
            // SAFETY: a system call that does not exist; the plugin stores to `answer`, the kernel to nothing.
            unsafe { syscall(HELLO, &raw mut answer) };
            // SAFETY: a byte of our own, which may have been stored to from outside.
            let heard = unsafe { (&raw const answer).read_volatile() } == 1;
            HEARD.store(if heard { 1 } else { 2 }, Ordering::Relaxed);
            heard
        }
        heard => heard == 1,
    }
}

/// One frame of a walk.
extern "C" fn frame(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: `walk` is the walk that `take_walk` gave, and `context` the unwinder's, both for the length of this call.
    unsafe {
        let walk = &mut *walk.cast::<Walk>();
        if walk.count == FRAMES_MAX {
            return 5; // the end of the stack, as far as we are concerned
        }
        let at = walk.count;
        walk.frames[at] = _Unwind_GetIP(context);
        // The stack's address when this frame is returned to: the return address lies below it.
        walk.places[at] = _Unwind_GetCFA(context).wrapping_sub(size_of::<usize>());
        walk.count += 1;
    }
    0
}

/// Whether the return addresses of this walk are still where they were. On x86-64 a frame's lies just below the address
/// that the unwinder calls canonical; elsewhere that is not known, and no walk is used twice.
fn still_holds(walk: &Walk, stack: usize) -> bool {
    cfg!(target_arch = "x86_64")
        && walk.stack == stack
        && (1..walk.count).all(|at| {
            // SAFETY: the place was on this thread's stack, above where the stack is now, and so still is.
            walk.places[at] > stack && unsafe { (walk.places[at] as *const usize).read() } == walk.frames[at]
        })
}

#[inline(never)]
fn walk(walks: &mut [Walk; WALKS]) -> usize {
    let here = 0u8;
    let stack = &raw const here as usize;
    if let Some(at) = walks.iter().position(|walk| still_holds(walk, stack)) {
        return at;
    }
    let mut taken = Walk { stack, ..NO_WALK };
    // SAFETY: `frame` is given the walk that it expects.
    unsafe { _Unwind_Backtrace(frame, (&raw mut taken).cast()) };
    let at = (taken.frames.iter().fold(0usize, |sum, ip| sum.rotate_left(5) ^ ip) >> 2) % WALKS;
    walks[at] = taken;
    at
}

/// Tells that `block` was given out.
fn given(block: *mut c_void, size: usize) {
    let _errno = Errno::keep();
    if block.is_null() || !is_heard() || BUSY.try_with(|busy| busy.replace(true)).unwrap_or(true) {
        return;
    }
    // SAFETY: system calls that do not exist.
    unsafe { syscall(QUIET) };
    let _ = KEPT.try_with(|kept| {
        // SAFETY: the cell is this thread's, and `BUSY` keeps others of its calls out.
        let walks = unsafe { &mut *kept.as_ptr() };
        let at = walk(walks);
        // SAFETY: a system call that does not exist.
        unsafe { syscall(ALLOC, block, size, walks[at].frames.as_ptr(), walks[at].count) };
    });
    let _ = BUSY.try_with(|busy| busy.set(false));
}

/// Tells that `block` is about to be given back.
fn taken(block: *mut c_void) {
    let _errno = Errno::keep();
    if !block.is_null() && is_heard() {
        // SAFETY: a system call that does not exist.
        unsafe { syscall(FREE, block) };
    }
}

/// A function of the allocator that is wrapped, looked up when it is first called.
struct Real(AtomicPtr<c_void>, &'static std::ffi::CStr);

impl Real {
    fn get(&self) -> *mut c_void {
        let known = self.0.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let _errno = Errno::keep();
        // SAFETY: the name ends with a zero.
        let found = unsafe { dlsym(NEXT, self.1.as_ptr()) };
        self.0.store(found, Ordering::Relaxed);
        found
    }
}

macro_rules! real {
    ($name:literal as $type:ty) => {{
        static REAL: Real = Real(AtomicPtr::new(std::ptr::null_mut()), $name);
        let address = REAL.get();
        if address.is_null() {
            std::process::abort();
        }
        // The function of this name has this type, by the C standard or POSIX.
        std::mem::transmute::<*mut c_void, $type>(address)
    }};
}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type TwoSizes = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Memalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: forwarded, to the function whose type this is.
    let block = unsafe { real!(c"malloc" as Malloc)(size) };
    given(block, size);
    block
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: forwarded, to the function whose type this is.
    let block = unsafe { real!(c"calloc" as TwoSizes)(count, size) };
    given(block, count.saturating_mul(size));
    block
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    taken(old);
    // SAFETY: forwarded, to the function whose type this is.
    let block = unsafe { real!(c"realloc" as Realloc)(old, size) };
    given(block, size);
    block
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    taken(block);
    // SAFETY: forwarded, to the function whose type this is.
    unsafe { real!(c"free" as Free)(block) };
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: forwarded, to the function whose type this is.
    let block = unsafe { real!(c"aligned_alloc" as TwoSizes)(align, size) };
    given(block, size);
    block
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: forwarded, to the function whose type this is.
    let block = unsafe { real!(c"memalign" as TwoSizes)(align, size) };
    given(block, size);
    block
}

/// As POSIX has it.
///
/// # Safety
/// As POSIX has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: forwarded, to the function whose type this is.
    let error = unsafe { real!(c"posix_memalign" as Memalign)(to, align, size) };
    if error == 0 {
        // SAFETY: without an error it was stored to.
        given(unsafe { *to }, size);
    }
    error
}
