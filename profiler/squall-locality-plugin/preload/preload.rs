//! What is preloaded into an emulated program: it tells the plugin which blocks the program's allocator gives out, and who
//! asked for them.
//!
//! Idea: wrap the allocator's functions, walk the stack by its unwind tables, and tell the plugin by a system call that does
//! not exist, which it sees and the emulator refuses. A walk is dear under emulation, so each thread keeps the walks it
//! made, with the number that the plugin has for their place, and uses one again when all its return addresses are still where they
//! were.
//!
//! - I1. Nothing here allocates, and what a wrapper calls cannot lead back into a walk.
//! - I2. Outside the emulator, where nobody answers the greeting, the wrappers do nothing but call what they wrap.
//! - I3. What a wrapper does besides leaves `errno` as it was: a program may look at it after a call that fails, and after one
//!   that does not. Its own system calls are instructions, and touch no `errno`.
//! - I4. What it does besides counts for nobody: the plugin leaves out the accesses of this library's instructions, and what they have others
//!   do (unwinder, linker, C library) is between `QUIET` and `LOUD`. The allocator's own work counts, as without this library.
//!
//! `reallocarray` is not wrapped: the C library's calls `realloc`, which is.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Frames of a walk at most; as in `format::call`.
const FRAMES_MAX: usize = 24;
/// Bytes of a stack, as far as a walk goes: what a thread has if nobody says otherwise.
const STACK_BYTES: usize = 8 << 20;
const HELLO: c_long = 0x0053_5100;
const QUIET: c_long = HELLO + 1;
const ALLOC: c_long = HELLO + 2;
const FREE: c_long = HELLO + 3;
const LOUD: c_long = HELLO + 4;
const KEPT: c_long = HELLO + 5;
const PLACE: c_long = HELLO + 6;
/// The number of a place that is not known; as in `format::call`.
const NO_PLACE: u32 = u32::MAX;

/// The next definition of a symbol in the search order.
const NEXT: *mut c_void = -1isize as *mut c_void;

#[repr(C)]
struct Context([u8; 0]);

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn __errno_location() -> *mut c_int;
    fn _Unwind_Backtrace(
        each: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
}

/// Tells the plugin, by a system call that does not exist.
#[inline]
fn tell(number: c_long, [a, b, c, d]: [usize; 4]) {
    // SAFETY: the kernel's convention for calls, of one that it refuses; what is stored to is stored to by the plugin alone.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number => _,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        std::arch::asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") a => _,
            in("x1") b, in("x2") c, in("x3") d,
            options(nostack),
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = (number, a, b, c, d);
}

/// From when this is made until it goes nothing counts (I4), and then `errno` is what it was (I3).
struct Quiet {
    errno: c_int,
    is_heard: bool,
}

impl Quiet {
    fn begin() -> Quiet {
        let is_heard = is_heard();
        if is_heard {
            tell(QUIET, [0; 4]);
        }
        // SAFETY: the address of this thread's `errno`, which is there as long as the thread is.
        Quiet { errno: unsafe { *__errno_location() }, is_heard }
    }

    /// Ends it by telling that `block` was given out, which is one call for both.
    fn end_with(self, block: *mut c_void, size: usize, place: u32) {
        // SAFETY: as above.
        unsafe { *__errno_location() = self.errno };
        tell(ALLOC, [block as usize, size, place as usize, 0]);
        std::mem::forget(self);
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *__errno_location() = self.errno };
        if self.is_heard {
            tell(LOUD, [0; 4]);
        }
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
    /// The plugin's number for it.
    place: u32,
}

const NO_WALK: Walk =
    Walk { stack: 0, frames: [0; FRAMES_MAX], places: [0; FRAMES_MAX], count: 0, place: NO_PLACE };
/// Walks that a thread keeps.
const WALKS: usize = 16;

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static KEPT_WALKS: Cell<[Walk; WALKS]> = const { Cell::new([NO_WALK; WALKS]) };
}

/// 0: not yet asked; 1: somebody listens; 2: nobody does.
static HEARD: AtomicU8 = AtomicU8::new(0);

fn is_heard() -> bool {
    match HEARD.load(Ordering::Relaxed) {
        0 => {
            let mut answer = 0u8;
            tell(HELLO, [&raw mut answer as usize, 0, 0, 0]);
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
        let ip = _Unwind_GetIP(context);
        if ip == 0 {
            // What called the program's entry: nothing, and nowhere on the stack, so that no walk with it would hold twice.
            return 5;
        }
        let at = walk.count;
        // The stack's address when this frame is returned to: the return address lies below it.
        let place = _Unwind_GetCFA(context).wrapping_sub(size_of::<usize>());
        if at > 0 && (place <= walk.places[at - 1] || place.wrapping_sub(walk.stack) > STACK_BYTES) {
            // Another stack: a handler's end, or a coroutine's. It may be gone when the walk is looked at again.
            return 5;
        }
        walk.frames[at] = ip;
        walk.places[at] = place;
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
            // SAFETY: the place was on the stack that is this one now, above where it is (`frame` goes to no other stack, as far as it
            // can tell: not below, and not beyond what a stack has), and so still is.
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
    tell(PLACE, [taken.frames.as_ptr() as usize, taken.count, &raw mut taken.place as usize, 0]);
    let at = (taken.frames.iter().fold(0usize, |sum, ip| sum.rotate_left(5) ^ ip) >> 2) % WALKS;
    walks[at] = taken;
    at
}

/// Tells that `block` was given out.
fn given(block: *mut c_void, size: usize) {
    if block.is_null() || !is_heard() {
        return;
    }
    let quiet = Quiet::begin();
    if BUSY.try_with(|busy| busy.replace(true)).unwrap_or(true) {
        return;
    }
    let place = KEPT_WALKS.try_with(|kept| {
        // SAFETY: the cell is this thread's, and `BUSY` keeps others of its calls out.
        let walks = unsafe { &mut *kept.as_ptr() };
        walks[walk(walks)].place
    });
    let _ = BUSY.try_with(|busy| busy.set(false));
    if let Ok(place) = place {
        quiet.end_with(block, size, place);
    }
}

/// Tells that `block` is about to be given back.
fn taken(block: *mut c_void) {
    if !block.is_null() && is_heard() {
        tell(FREE, [block as usize, 0, 0, 0]);
    }
}

/// Tells that `block` was not given back after all.
fn kept(block: *mut c_void) {
    if !block.is_null() && is_heard() {
        tell(KEPT, [block as usize, 0, 0, 0]);
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
        let _quiet = Quiet::begin();
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
    // What cannot be made longer stays; of no bytes it is given back.
    if block.is_null() && size > 0 {
        kept(old);
    }
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

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: forwarded, to the function whose type this is.
    let block = unsafe { real!(c"valloc" as Malloc)(size) };
    given(block, size);
    block
}

/// As the C library's.
///
/// # Safety
/// As the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    // SAFETY: forwarded, to the function whose type this is.
    let block = unsafe { real!(c"pvalloc" as Malloc)(size) };
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
