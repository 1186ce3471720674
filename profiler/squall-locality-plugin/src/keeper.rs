//! The keeper thread, which opens the plugin's files.
//!
//! Problem: the program shares its descriptors with the emulator. A program may close every descriptor from 3
//! on, and then receive a number that the plugin believes to be its own file. It may also use up all numbers,
//! change its root, or count its open descriptors. Idea: Linux shares the descriptor table between threads
//! only on request. The keeper is started without sharing: it has its own table, root and working directory,
//! and one descriptor, the folder of the files. It opens, allocates and maps files, then closes them. All
//! threads see its mappings, because memory is shared.
//!
//! - I1. Only the keeper opens files; its descriptors are not in the program's table.
//! - I2. One request is in progress at a time, under the lock `ASKING`, which a fork also holds. The
//!   requesting thread waits for the answer, so memory that a request points to stays valid until then.
//! - I3. The keeper has the thread-locals of the thread that started it. It makes only raw system calls
//!   (sys/I1), and neither allocates nor panics.
//!
//! A forked child has no keeper until it starts one. If none can be started, no file is written, and the
//! caller counts the loss.
//!
//! Cost: two wake-ups per request, some tens of microseconds. Requests are made for new files and new parts
//! of files, not for records.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::sys::{self, call, number};

/// Bytes of the keeper's stack.
const STACK_BYTES: usize = 64 << 10;
/// Smallest page size of any machine.
const PAGE: usize = 4096;

/// State of the mailbox: no request.
const IDLE: u32 = 0;
/// State of the mailbox: request pending.
const ASKED: u32 = 1;
/// State of the mailbox: answer available.
const ANSWERED: u32 = 2;

/// Requests to the keeper.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// Allocates a range of a file in the folder and maps it; `new` requires that the file does not exist.
    Map { name: *const u8, offset: usize, bytes: usize, new: bool },
    /// Sets the length of a file.
    Cut { name: *const u8, bytes: usize },
    /// Removes a file.
    Remove { name: *const u8 },
    /// Reads any file.
    Read { path: *const u8, to: *mut u8, bytes: usize },
}

struct Mailbox {
    state: AtomicU32,
    request: UnsafeCell<Request>,
    answer: UnsafeCell<isize>,
    /// Path of the folder, for a starting keeper.
    folder: UnsafeCell<*const u8>,
}

// SAFETY: the requesting thread accesses the cells while `state` is IDLE or ANSWERED, the keeper while it is
// ASKED (I2).
unsafe impl Sync for Mailbox {}

static MAILBOX: Mailbox = Mailbox {
    state: AtomicU32::new(IDLE),
    request: UnsafeCell::new(Request::Remove { name: c"".as_ptr().cast() }),
    answer: UnsafeCell::new(0),
    folder: UnsafeCell::new(c"/".as_ptr().cast()),
};

/// Serialises requests. The value tells whether a keeper runs.
static ASKING: Lock<bool> = Lock::new(false);
/// Start of the keeper's stack, once allocated. A forked child reuses it.
static STACK: AtomicUsize = AtomicUsize::new(0);

/// Starts the keeper for this folder and waits until it has opened the folder. Fails with an error number.
pub(crate) fn start(folder: &'static CStr) -> Result<(), isize> {
    ASKING.with(|there| {
        *there = false;
        let mut stack = STACK.load(Ordering::Relaxed);
        if stack == 0 {
            // SAFETY: new private memory (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS) at any
            // address.
            let got = unsafe { call(number::MMAP, [0, STACK_BYTES, 3, 0x22, usize::MAX, 0]) };
            if got < 0 {
                return Err(-got);
            }
            stack = got as usize;
            STACK.store(stack, Ordering::Relaxed);
        }
        // SAFETY: no keeper runs, and this thread holds the lock (I2).
        unsafe { *MAILBOX.folder.get() = folder.as_ptr().cast() };
        MAILBOX.state.store(ASKED, Ordering::Relaxed);
        // SAFETY: only the keeper uses the stack; an earlier keeper ran in another process. It touches no
        // thread-locals (I3).
        unsafe { sys::start_apart(keep, (stack + STACK_BYTES) as *mut c_void) }?;
        match wait() {
            answer if answer < 0 => Err(-answer),
            _ => {
                *there = true;
                Ok(())
            }
        }
    })
}

/// Takes the keeper's lock before a fork.
pub(crate) fn hold() {
    ASKING.hold();
}

/// Releases the keeper's lock after a fork.
pub(crate) fn release() {
    ASKING.release();
}

/// Waits for the answer to the pending request.
fn wait() -> isize {
    // Acquire: pairs with the Release store of ANSWERED in `answer`, so that this thread sees the answer.
    while MAILBOX.state.load(Ordering::Acquire) != ANSWERED {
        sys::sleep_on(&MAILBOX.state, ASKED);
    }
    // SAFETY: the state is ANSWERED, and this thread holds the lock (I2).
    let answer = unsafe { *MAILBOX.answer.get() };
    MAILBOX.state.store(IDLE, Ordering::Relaxed);
    answer
}

/// Sends a request and returns the answer, or an error number.
fn ask(request: Request) -> Result<usize, isize> {
    ASKING.with(|there| {
        if !*there {
            return Err(sys::EIO);
        }
        // SAFETY: the state is IDLE, and this thread holds the lock (I2).
        unsafe { *MAILBOX.request.get() = request };
        // Release: pairs with the Acquire in `keep`, so that the keeper sees the request.
        MAILBOX.state.store(ASKED, Ordering::Release);
        sys::wake(&MAILBOX.state);
        let answer = wait();
        usize::try_from(answer).map_err(|_| -answer)
    })
}

/// Maps `bytes` bytes of a file in the folder, from `offset` (a multiple of the page size). If `new` is set,
/// the file must not exist; otherwise it must. The range is allocated, and zero where it is new. The caller
/// owns the mapping.
pub(crate) fn map(name: &CStr, offset: usize, bytes: usize, new: bool) -> Result<*mut u8, isize> {
    ask(Request::Map { name: name.as_ptr().cast(), offset, bytes, new }).map(|at| at as *mut u8)
}

/// Sets the length of a file in the folder.
pub(crate) fn cut(name: &CStr, bytes: usize) -> Result<(), isize> {
    ask(Request::Cut { name: name.as_ptr().cast(), bytes }).map(|_| ())
}

/// Removes a file in the folder.
pub(crate) fn remove(name: &CStr) {
    // An error means that the file is already gone, because the starter of the run has given up.
    let _ = ask(Request::Remove { name: name.as_ptr().cast() });
}

/// Reads a kernel file by its path.
pub(crate) fn read(path: &CStr) -> Result<Vec<u8>, isize> {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let (to, length) = (bytes.as_mut_ptr(), bytes.len());
        let got = ask(Request::Read { path: path.as_ptr().cast(), to, bytes: length })?;
        if got < length {
            bytes.truncate(got);
            return Ok(bytes);
        }
        bytes.resize(2 * length, 0);
    }
}

/// Main function of the keeper.
extern "C" fn keep(_: *mut c_void) -> c_int {
    // PR_SET_NAME, so that lists of threads show the keeper's purpose.
    // SAFETY: the name ends with a zero.
    unsafe { call(number::PRCTL, [15, c"squall-records".as_ptr() as usize, 0, 0, 0, 0]) };
    close_all();
    // SAFETY: the state has been ASKED since before this thread started (I2); the path ends with a zero.
    let folder = unsafe { open(sys::CWD, *MAILBOX.folder.get(), sys::DIRECTORY) };
    answer(folder);
    if folder < 0 {
        return 0;
    }
    loop {
        // Acquire: pairs with the Release in `ask`.
        while MAILBOX.state.load(Ordering::Acquire) != ASKED {
            let state = MAILBOX.state.load(Ordering::Relaxed);
            if state != ASKED {
                sys::sleep_on(&MAILBOX.state, state);
            }
        }
        // SAFETY: the state is ASKED, and the request's memory stays valid until the answer (I2).
        answer(unsafe { serve(folder as usize, *MAILBOX.request.get()) });
    }
}

fn answer(result: isize) {
    // SAFETY: the state is ASKED (I2).
    unsafe { *MAILBOX.answer.get() = result };
    // Release: pairs with the Acquire in `wait`.
    MAILBOX.state.store(ANSWERED, Ordering::Release);
    sys::wake(&MAILBOX.state);
}

/// Closes the inherited descriptors. They are copies; those of the other threads stay open.
fn close_all() {
    // SAFETY: the descriptor table belongs to this thread alone (I1).
    unsafe {
        if call(number::CLOSE_RANGE, [0, u32::MAX as usize, 0, 0, 0, 0]) < 0 {
            for descriptor in 0..65_536 {
                call(number::CLOSE, [descriptor, 0, 0, 0, 0, 0]);
            }
        }
    }
}

/// # Safety
/// `path` ends with a zero.
unsafe fn open(folder: usize, path: *const u8, flags: usize) -> isize {
    let flags = flags | sys::CLOSE_ON_EXEC;
    // SAFETY: promised by the caller.
    unsafe { call(number::OPENAT, [folder, path as usize, flags, 0o600, 0, 0]) }
}

fn close(descriptor: usize) {
    // SAFETY: a descriptor that the keeper opened in its own table.
    unsafe { call(number::CLOSE, [descriptor, 0, 0, 0, 0, 0]) };
}

/// # Safety
/// Pointers in the request are valid.
unsafe fn serve(folder: usize, request: Request) -> isize {
    // SAFETY: names end with a zero, and `to` has room for `bytes`, as the caller promises.
    unsafe {
        match request {
            Request::Map { name, offset, bytes, new } => {
                let kind = if new { sys::CREATE | sys::EXCLUSIVE } else { 0 };
                let file = open(folder, name, sys::READ_AND_WRITE | kind);
                if file < 0 {
                    return file;
                }
                let mut result = allocate(file as usize, offset, bytes);
                if result >= 0 {
                    // A new shared mapping at any address.
                    result = call(number::MMAP, [0, bytes, 3, 1, file as usize, offset]);
                }
                close(file as usize);
                result
            }
            Request::Cut { name, bytes } => {
                let file = open(folder, name, sys::READ_AND_WRITE);
                if file < 0 {
                    return file;
                }
                let result = call(number::FTRUNCATE, [file as usize, bytes, 0, 0, 0, 0]);
                close(file as usize);
                result
            }
            Request::Remove { name } => call(number::UNLINKAT, [folder, name as usize, 0, 0, 0, 0]),
            Request::Read { path, to, bytes } => {
                let file = open(sys::CWD, path, 0);
                if file < 0 {
                    return file;
                }
                let mut at = 0;
                while at < bytes {
                    let got = call(number::PREAD, [file as usize, to as usize + at, bytes - at, at, 0, 0]);
                    if got == -sys::EINTR {
                        continue;
                    }
                    if got <= 0 {
                        break;
                    }
                    at += got as usize;
                }
                close(file as usize);
                at as isize
            }
        }
    }
}

/// Allocates the range of the file, so that a store to it cannot fail for want of space.
fn allocate(file: usize, offset: usize, bytes: usize) -> isize {
    loop {
        // SAFETY: a descriptor of the keeper, and numbers.
        let result = unsafe { call(number::FALLOCATE, [file, 0, offset, bytes, 0, 0]) };
        if result == -sys::EINTR {
            continue;
        }
        if result != -sys::EOPNOTSUPP && result != -sys::ENOSYS {
            return result;
        }
        break;
    }
    // Fallback for file systems without `fallocate`: writes a zero to each page of the new range.
    for at in (offset..offset + bytes).step_by(PAGE) {
        // SAFETY: a descriptor of the keeper, and a single byte of static memory.
        let result = unsafe { call(number::PWRITE, [file, c"".as_ptr() as usize, 1, at, 0, 0]) };
        if result < 0 {
            return result;
        }
    }
    // SAFETY: a descriptor of the keeper, and numbers.
    unsafe { call(number::FTRUNCATE, [file, offset + bytes, 0, 0, 0, 0]) }
}

/// A folder for tests, with its keeper. It is removed when the process exits.
#[cfg(test)]
pub(crate) fn folder_of_tests() -> &'static std::path::Path {
    static FOLDER: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    unsafe extern "C" {
        fn atexit(f: extern "C" fn()) -> c_int;
    }
    extern "C" fn remove_folder() {
        if let Some(folder) = FOLDER.get() {
            // Files that cannot be removed are left to the cleanup of temporary files.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    FOLDER.get_or_init(|| {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: the function only reads a static.
        unsafe { atexit(remove_folder) };
        let folder = std::env::temp_dir().join(format!("squall-plugin-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = std::ffi::CString::new(folder.as_os_str().as_bytes()).expect("no zero");
        start(Box::leak(path.into_boxed_c_str())).expect("a keeper");
        folder
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::GRAIN;

    #[test]
    fn the_keeper_maps_files_without_a_descriptor() {
        let folder = folder_of_tests();
        let open = || std::fs::read_dir("/proc/thread-self/fd").expect("descriptors").count();
        let before = open();
        let start = map(c"mapped", GRAIN, 2 * GRAIN, true).expect("memory");
        // Other tests may open descriptors meanwhile; a leak of one per map would exceed the margin.
        for _ in 0..100 {
            map(c"mapped", GRAIN, GRAIN, false).expect("memory");
        }
        assert!(open() < before + 50);
        // SAFETY: this test owns the mapping.
        unsafe { start.write(7) };
        let bytes = std::fs::read(folder.join("mapped")).expect("the file");
        assert_eq!((bytes.len(), bytes[GRAIN]), (3 * GRAIN, 7));
        assert!(map(c"mapped", 0, GRAIN, true).is_err(), "it is not new");
        cut(c"mapped", GRAIN).expect("it is shorter");
        assert_eq!(std::fs::metadata(folder.join("mapped")).expect("the file").len(), GRAIN as u64);
        remove(c"mapped");
        assert!(!folder.join("mapped").exists());
        assert!(map(c"mapped", 0, GRAIN, false).is_err());
        assert!(read(c"/proc/thread-self/maps").expect("mappings").len() > 100);
    }
}
