//! Library preloaded into the emulated program. It reports heap blocks and their allocation sites to the
//! plugin.
//!
//! Idea: wrap the allocator's functions, walk the stack by its unwind tables, and report by system call
//! numbers that Linux does not have. The plugin sees them, and the kernel rejects them. A walk is expensive
//! under emulation. Each thread therefore caches its walks with their site numbers. It reuses a walk if all
//! its return addresses are still at their stack addresses.
//!
//! - I1. This code does not allocate, and no function called by a wrapper leads back into a walk.
//! - I2. Outside the emulator, the greeting stays unanswered, and wrappers only call the wrapped function.
//! - I3. A wrapper's additional work preserves `errno`, because programs may read it after any call. The
//!   wrapper's own system calls are inline instructions and do not set `errno`.
//! - I4. Additional work is not counted. The plugin ignores accesses of this library's instructions. Calls to
//!   other libraries (unwinder, linker, C library) lie between `BEGIN_UNCOUNTED` and `END_UNCOUNTED`. The
//!   allocator's own work counts as usual.
//!
//! `reallocarray` is not wrapped, because the C library implements it by `realloc`.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU8, Ordering};

/// Maximum number of frames in a walk; equals `format::call::FRAMES_MAX`.
const FRAMES_MAX: usize = 24;
/// Maximum stack depth of a walk in bytes: the default size of a stack.
const STACK_BYTES: usize = 8 << 20;
const HELLO: c_long = 0x0053_5100;
const BEGIN_UNCOUNTED: c_long = HELLO + 1;
const ALLOC: c_long = HELLO + 2;
const FREE: c_long = HELLO + 3;
const END_UNCOUNTED: c_long = HELLO + 4;
const FREE_FAILED: c_long = HELLO + 5;
const SITE: c_long = HELLO + 6;
/// Number of an unknown allocation site; equals `format::call::NO_SITE`.
const NO_SITE: u32 = u32::MAX;

/// Handle for the next definition of a symbol in the search order.
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

/// Reports to the plugin by a system call number that Linux does not have.
#[inline]
fn send(number: c_long, [a, b, c, d]: [usize; 4]) {
    // SAFETY: follows the kernel's calling convention. The kernel rejects the call; only the plugin stores to
    // memory.
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
    // SAFETY: follows the kernel's calling convention. The kernel rejects the call; only the plugin stores to
    // memory.
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

/// While this value exists, the thread does not count (I4). Dropping it restores `errno` (I3).
struct Quiet {
    errno: c_int,
    is_heard: bool,
}

impl Quiet {
    fn begin() -> Quiet {
        let is_heard = plugin_listens();
        if is_heard {
            send(BEGIN_UNCOUNTED, [0; 4]);
        }
        // SAFETY: the address of this thread's `errno`, valid as long as the thread lives.
        Quiet { errno: unsafe { *__errno_location() }, is_heard }
    }

    /// Ends the quiet span and reports the allocation of `block`, in a single call.
    fn end_with(self, block: *mut c_void, size: usize, place: u32) {
        // SAFETY: the address of this thread's `errno`.
        unsafe { *__errno_location() = self.errno };
        send(ALLOC, [block as usize, size, place as usize, 0]);
        std::mem::forget(self);
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // SAFETY: the address of this thread's `errno`.
        unsafe { *__errno_location() = self.errno };
        if self.is_heard {
            send(END_UNCOUNTED, [0; 4]);
        }
    }
}

/// A walk: return addresses, innermost first, and their stack addresses.
#[derive(Clone, Copy)]
struct Walk {
    /// Stack pointer during the walk; 0 for an empty slot.
    stack: usize,
    frames: [usize; FRAMES_MAX],
    places: [usize; FRAMES_MAX],
    count: usize,
    /// Site number given by the plugin.
    place: u32,
}

const NO_WALK: Walk =
    Walk { stack: 0, frames: [0; FRAMES_MAX], places: [0; FRAMES_MAX], count: 0, place: NO_SITE };
/// Number of walks cached per thread.
const WALKS: usize = 16;

thread_local! {
    static BUSY: Cell<bool> = const { Cell::new(false) };
    static KEPT_WALKS: Cell<[Walk; WALKS]> = const { Cell::new([NO_WALK; WALKS]) };
}

/// State: 0 unknown, 1 the plugin listens, 2 no plugin.
static HEARD: AtomicU8 = AtomicU8::new(0);

fn plugin_listens() -> bool {
    match HEARD.load(Ordering::Relaxed) {
        0 => {
            let mut answer = 0u8;
            send(HELLO, [&raw mut answer as usize, 0, 0, 0]);
            // SAFETY: a local byte, which the plugin may have stored to.
            let heard = unsafe { (&raw const answer).read_volatile() } == 1;
            HEARD.store(if heard { 1 } else { 2 }, Ordering::Relaxed);
            heard
        }
        heard => heard == 1,
    }
}

/// Adds one frame to a walk.
extern "C" fn frame(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: `walk` is the walk passed by the function `walk`, and `context` is the unwinder's. Both are
    // valid during this call.
    unsafe {
        let walk = &mut *walk.cast::<Walk>();
        if walk.count == FRAMES_MAX {
            return 5; // end of stack: stops the walk
        }
        let ip = _Unwind_GetIP(context);
        if ip == 0 {
            // The caller of the program's entry has no stack address, so a walk that includes it could never
            // be reused.
            return 5;
        }
        let at = walk.count;
        // Stack pointer after the return of this frame; the return address lies below it.
        let place = _Unwind_GetCFA(context).wrapping_sub(size_of::<usize>());
        if at > 0 && (place <= walk.places[at - 1] || place.wrapping_sub(walk.stack) > STACK_BYTES) {
            // Another stack: a signal handler's or a coroutine's. It may be gone when the walk is checked for
            // reuse.
            return 5;
        }
        walk.frames[at] = ip;
        walk.places[at] = place;
        walk.count += 1;
    }
    0
}

/// Whether the return addresses of the walk are still in place. On x86-64, a frame's return address lies just
/// below its canonical frame address. Elsewhere the place is unknown, and walks are never reused.
fn is_reusable(walk: &Walk, stack: usize) -> bool {
    cfg!(target_arch = "x86_64")
        && walk.stack == stack
        && (1..walk.count).all(|at| {
            // SAFETY: the address was on the current stack and lies above the current stack pointer, so it is
            // still mapped. `frame` stops at other stacks as far as it can tell: below the frame before, or
            // beyond a stack's size.
            walk.places[at] > stack && unsafe { (walk.places[at] as *const usize).read() } == walk.frames[at]
        })
}

#[inline(never)]
fn walk(walks: &mut [Walk; WALKS]) -> usize {
    let here = 0u8;
    let stack = &raw const here as usize;
    if let Some(at) = walks.iter().position(|walk| is_reusable(walk, stack)) {
        return at;
    }
    let mut taken = Walk { stack, ..NO_WALK };
    // SAFETY: `frame` receives the walk that it expects.
    unsafe { _Unwind_Backtrace(frame, (&raw mut taken).cast()) };
    send(SITE, [taken.frames.as_ptr() as usize, taken.count, &raw mut taken.place as usize, 0]);
    let at = (taken.frames.iter().fold(0usize, |sum, ip| sum.rotate_left(5) ^ ip) >> 2) % WALKS;
    walks[at] = taken;
    at
}

/// Reports that `block` was allocated.
fn report_alloc(block: *mut c_void, size: usize) {
    if block.is_null() || !plugin_listens() {
        return;
    }
    let quiet = Quiet::begin();
    if BUSY.try_with(|busy| busy.replace(true)).unwrap_or(true) {
        return;
    }
    let place = KEPT_WALKS.try_with(|kept| {
        // SAFETY: the cell belongs to this thread, and `BUSY` excludes its nested calls.
        let walks = unsafe { &mut *kept.as_ptr() };
        walks[walk(walks)].place
    });
    let _ = BUSY.try_with(|busy| busy.set(false));
    if let Ok(place) = place {
        quiet.end_with(block, size, place);
    }
}

/// Reports that `block` is about to be freed.
fn report_free(block: *mut c_void) {
    if !block.is_null() && plugin_listens() {
        send(FREE, [block as usize, 0, 0, 0]);
    }
}

/// Reports that `block` was not freed after all.
fn report_kept(block: *mut c_void) {
    if !block.is_null() && plugin_listens() {
        send(FREE_FAILED, [block as usize, 0, 0, 0]);
    }
}

/// A wrapped function of the allocator, looked up on its first call.
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
        // The function with this name has this type, by the C standard or POSIX.
        std::mem::transmute::<*mut c_void, $type>(address)
    }};
}

type Malloc = unsafe extern "C" fn(usize) -> *mut c_void;
type TwoSizes = unsafe extern "C" fn(usize, usize) -> *mut c_void;
type Realloc = unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void;
type Free = unsafe extern "C" fn(*mut c_void);
type Memalign = unsafe extern "C" fn(*mut *mut c_void, usize, usize) -> c_int;

/// Wraps the C library's `malloc`.
///
/// # Safety
/// Same as the C library's `malloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc(size: usize) -> *mut c_void {
    // SAFETY: forwards the arguments to the function with this type.
    let block = unsafe { real!(c"malloc" as Malloc)(size) };
    report_alloc(block, size);
    block
}

/// Wraps the C library's `calloc`.
///
/// # Safety
/// Same as the C library's `calloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn calloc(count: usize, size: usize) -> *mut c_void {
    // SAFETY: forwards the arguments to the function with this type.
    let block = unsafe { real!(c"calloc" as TwoSizes)(count, size) };
    report_alloc(block, count.saturating_mul(size));
    block
}

/// Wraps the C library's `realloc`.
///
/// # Safety
/// Same as the C library's `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(old: *mut c_void, size: usize) -> *mut c_void {
    report_free(old);
    // SAFETY: forwards the arguments to the function with this type.
    let block = unsafe { real!(c"realloc" as Realloc)(old, size) };
    // A failed `realloc` keeps the old block; with size 0 it frees the block.
    if block.is_null() && size > 0 {
        report_kept(old);
    }
    report_alloc(block, size);
    block
}

/// Wraps the C library's `free`.
///
/// # Safety
/// Same as the C library's `free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    report_free(block);
    // SAFETY: forwards the arguments to the function with this type.
    unsafe { real!(c"free" as Free)(block) };
}

/// Wraps the C library's `aligned_alloc`.
///
/// # Safety
/// Same as the C library's `aligned_alloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aligned_alloc(align: usize, size: usize) -> *mut c_void {
    // SAFETY: forwards the arguments to the function with this type.
    let block = unsafe { real!(c"aligned_alloc" as TwoSizes)(align, size) };
    report_alloc(block, size);
    block
}

/// Wraps the C library's `memalign`.
///
/// # Safety
/// Same as the C library's `memalign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn memalign(align: usize, size: usize) -> *mut c_void {
    // SAFETY: forwards the arguments to the function with this type.
    let block = unsafe { real!(c"memalign" as TwoSizes)(align, size) };
    report_alloc(block, size);
    block
}

/// Wraps the C library's `valloc`.
///
/// # Safety
/// Same as the C library's `valloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn valloc(size: usize) -> *mut c_void {
    // SAFETY: forwards the arguments to the function with this type.
    let block = unsafe { real!(c"valloc" as Malloc)(size) };
    report_alloc(block, size);
    block
}

/// Wraps the C library's `pvalloc`.
///
/// # Safety
/// Same as the C library's `pvalloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pvalloc(size: usize) -> *mut c_void {
    // SAFETY: forwards the arguments to the function with this type.
    let block = unsafe { real!(c"pvalloc" as Malloc)(size) };
    report_alloc(block, size);
    block
}

/// Wraps the POSIX function `posix_memalign`.
///
/// # Safety
/// Same as POSIX's `posix_memalign`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(to: *mut *mut c_void, align: usize, size: usize) -> c_int {
    // SAFETY: forwards the arguments to the function with this type.
    let error = unsafe { real!(c"posix_memalign" as Memalign)(to, align, size) };
    if error == 0 {
        // SAFETY: the call succeeded, so it stored a pointer.
        report_alloc(unsafe { *to }, size);
    }
    error
}
