//! Faults that a program resolves by userfaultfd, each with one copy of a page.
//!
//! - `uffd-in-thread`: the fault is a signal. Its handler copies the page, or a batch of pages.
//! - `uffd-handler`: the thread sleeps, and another thread reads the fault and copies the page, as monitors
//!   of virtual machines do.
//!
//! The first word of a page is its address, so neither handler needs a table of the memory.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::thread;

use libc::{c_int, c_void, siginfo_t};
use squall_sys::uffd::{Event, Features, Modes, Options, Uffd};

use super::{PAGE_BYTES, Paged, once, refused};
use crate::case::Missing;
use crate::rivals::kernel_pages::Anonymous;

/// Modes of memory with absent pages.
const MISSING: Modes = Modes { missing: true, minor: false, write_protect: false };
/// The largest number of pages that one copy resolves.
const BATCH_MAX: usize = 64;

/// Memory that is registered with a descriptor.
struct Registered {
    _memory: Anonymous,
    start: NonNull<u8>,
}

impl Registered {
    fn new(uffd: &Uffd, pages: usize) -> Result<Registered, Missing> {
        let (missing, bytes) =
            (|error: &dyn std::fmt::Display| Missing(error.to_string()), pages * PAGE_BYTES);
        let mut memory = Anonymous::new(bytes).map_err(|error| missing(&error))?;
        let start = NonNull::from(memory.bytes()).cast::<u8>();
        // SAFETY: the memory is new. The case expects that its pages get their addresses, and that accesses
        // wait or raise SIGBUS. The descriptor stays open.
        unsafe { uffd.register(start.addr().get(), bytes, MISSING) }.map_err(|error| missing(&error))?;
        Ok(Registered { _memory: memory, start })
    }

    fn expected(&self, page: usize) -> u64 {
        (self.start.addr().get() + page * PAGE_BYTES) as u64
    }
}

/// Copies the pages of a block to their addresses, from a buffer.
fn copy(uffd: &Uffd, buffer: &mut [u8], block: usize, pages: usize) -> bool {
    for page in 0..pages {
        let address = block + page * PAGE_BYTES;
        buffer[page * PAGE_BYTES..][..8].copy_from_slice(&address.to_ne_bytes());
    }
    let bytes = pages * PAGE_BYTES;
    // SAFETY: the buffer is of this thread alone, and has these bytes. The case expects them.
    unsafe { uffd.copy(block, buffer.as_ptr(), bytes, Options::default()) }.is_ok()
}

/// The memory of `uffd-in-thread` that a thread touches.
#[derive(Clone, Copy)]
struct Touched {
    start: usize,
    bytes: usize,
    batch: usize,
}

const NO_MEMORY: Touched = Touched { start: 0, bytes: 0, batch: 1 };

thread_local! {
    static TOUCHED: Cell<Touched> = const { Cell::new(NO_MEMORY) };
    /// Filled before the first fault. Then used by the handler alone, which does not interrupt itself. On the
    /// heap, since the memory of thread-locals is a part of each stack.
    static BUFFER: UnsafeCell<Vec<u8>> = const { UnsafeCell::new(Vec::new()) };
}

/// The descriptor of `uffd-in-thread`, and the action of SIGBUS from before.
struct Installed {
    uffd: Uffd,
    before: libc::sigaction,
}

static INSTALLED: OnceLock<Result<Installed, Missing>> = OnceLock::new();

extern "C" fn on_bus(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let touched = TOUCHED.get();
    // SAFETY: the kernel passes a filled structure to a handler with `SA_SIGINFO`.
    let address = unsafe { (*info).si_addr() }.addr();
    let Some(Ok(installed)) = INSTALLED.get() else { return };
    let Some(offset) = address.checked_sub(touched.start).filter(|offset| *offset < touched.bytes) else {
        // SAFETY: the arguments are the kernel's, and the action is the one that it had.
        return unsafe { pass(&installed.before, signal, info, context) };
    };
    let block = touched.start + offset / (touched.batch * PAGE_BYTES) * (touched.batch * PAGE_BYTES);
    BUFFER.with(|buffer| {
        // SAFETY: this handler alone uses the buffer of its thread, and does not interrupt itself.
        let buffer = unsafe { &mut *buffer.get() };
        if !copy(&installed.uffd, buffer, block, touched.batch) {
            // SAFETY: abort(3) may be called in a handler.
            unsafe { libc::abort() };
        }
    });
}

/// Calls the handler from before.
///
/// # Safety
/// The arguments are those of a running handler of the signal, and `before` was its action.
unsafe fn pass(before: &libc::sigaction, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        // The thread repeats its access, and the process ends by the signal.
        // SAFETY: sigaction(2) with the action from before.
        unsafe { libc::sigaction(signal, before, ptr::null_mut()) };
        return;
    }
    // SAFETY: with `SA_SIGINFO`, as Squall's handler has it, a handler has this form. `install` checks it.
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
        unsafe { std::mem::transmute(ptr::with_exposed_provenance::<()>(before.sa_sigaction)) };
    handler(signal, info, context);
}

/// Opens the descriptor, and installs the handler above the one of Squall (faults/I2).
fn install() -> Result<Installed, Missing> {
    let uffd = Uffd::open(Features::SIGBUS).map_err(|error| refused(&error))?;
    // A mapping of one page installs Squall's handler, unless the system refuses it.
    let _ = super::Region::new(1, 1);
    // SAFETY: zeros are a valid action.
    let [mut action, mut before] = unsafe { MaybeUninit::<[libc::sigaction; 2]>::zeroed().assume_init() };
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_bus;
    // SAFETY: sigaction(2) with actions of our own.
    unsafe {
        libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before);
        action.sa_mask = before.sa_mask;
    }
    let is_plain = before.sa_flags & libc::SA_SIGINFO == 0;
    if is_plain && !matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return Err(Missing("another part of the program handles SIGBUS".to_owned()));
    }
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    let installed = Installed { uffd, before };
    // SAFETY: sigaction(2) with an action of our own. The handler waits for `INSTALLED` nowhere: until it is
    // set, a fault repeats.
    match unsafe { libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) } {
        0 => Ok(installed),
        _ => Err(Missing(format!("SIGBUS has no handler: {}", std::io::Error::last_os_error()))),
    }
}

/// `uffd-in-thread`.
pub(crate) struct InThread(Registered);

impl Paged for InThread {
    fn new(pages: usize, batch: usize) -> Result<InThread, Missing> {
        let memory = Registered::new(&once(&INSTALLED, install)?.uffd, pages)?;
        // SAFETY: this thread has no page yet for which the handler would use the buffer.
        BUFFER.with(|buffer| unsafe { (*buffer.get()).resize(BATCH_MAX * PAGE_BYTES, 0) });
        TOUCHED.set(Touched { start: memory.start.addr().get(), bytes: pages * PAGE_BYTES, batch });
        Ok(InThread(memory))
    }

    fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    fn expected(&self, page: usize) -> u64 {
        self.0.expected(page)
    }
}

impl Drop for InThread {
    fn drop(&mut self) {
        TOUCHED.set(NO_MEMORY);
    }
}

/// Opens the descriptor of `uffd-handler`, and starts the thread that serves it.
fn serve() -> Result<Uffd, Missing> {
    let uffd = Uffd::open(Features::EMPTY).map_err(|error| refused(&error))?;
    let fd = std::os::fd::AsFd::as_fd(&uffd).try_clone_to_owned().and_then(Uffd::from_fd);
    let served = fd.map_err(|error| Missing(format!("the descriptor is not shared: {error}")))?;
    let serve = move || {
        let mut buffer = vec![0; PAGE_BYTES];
        let mut events: [Event; 16] = std::array::from_fn(|_| Event::Empty);
        while served.wait(None).is_ok() {
            let count = served.read_events(&mut events).unwrap_or(0);
            for event in &events[..count] {
                if let Event::PageFault { address, .. } = event {
                    copy(&served, &mut buffer, address / PAGE_BYTES * PAGE_BYTES, 1);
                }
            }
        }
    };
    let thread = thread::Builder::new().name("uffd-handler".to_owned()).spawn(serve);
    thread.map_err(|error| Missing(format!("no thread serves faults: {error}")))?;
    Ok(uffd)
}

/// `uffd-handler`. One thread serves the faults of all threads.
pub(crate) struct ByThread(Registered);

impl Paged for ByThread {
    fn new(pages: usize, _: usize) -> Result<ByThread, Missing> {
        static SERVED: OnceLock<Result<Uffd, Missing>> = OnceLock::new();
        Ok(ByThread(Registered::new(once(&SERVED, serve)?, pages)?))
    }

    fn start(&self) -> NonNull<u8> {
        self.0.start
    }

    fn expected(&self, page: usize) -> u64 {
        self.0.expected(page)
    }
}
