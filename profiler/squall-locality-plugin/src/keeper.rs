//! The thread that opens the plugin's files.
//!
//! Problem: the emulated program's descriptors are the emulator's. A program may close every number from 3 on, and
//! then has the next of its own files under a number that a plugin believes to be its file; it may also leave no number free, change its
//! root, or count what it has open. Idea: Linux gives each thread the table of descriptors that it is started with, and only
//! by custom the same. The keeper is started without that custom: it has a table, a root and a folder of its own, with one
//! descriptor, the folder of the records. It opens, allocates and maps, and closes again; what it maps, all threads see,
//! since memory is in common.
//!
//! - I1. No thread but the keeper opens anything; its descriptors are in no table of the program's.
//! - I2. One request is under way at a time, under `ASKING`, which a fork holds, too; whoever asks waits for the answer, so that the
//!   memory that a request points to lives until then.
//! - I3. The keeper has the locals of the thread that started it: it makes the kernel's calls alone (sys/I1), and neither
//!   allocates nor panics.
//!
//! A forked child has no keeper until it starts one. Where none can be started, nothing is recorded, and whoever wanted it counts that.
//!
//! Cost: a request is two wake-ups, some tens of microseconds. They are made for new files and new parts of files, not for
//! records.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::lock::Lock;
use crate::sys::{self, call, number};

/// Bytes of its stack.
const STACK_BYTES: usize = 64 << 10;
/// Bytes that a page has on every machine, or a part of one.
const PAGE: usize = 4096;

/// States of the mailbox: nothing is asked.
const IDLE: u32 = 0;
/// Something is asked.
const ASKED: u32 = 1;
/// It is answered.
const ANSWERED: u32 = 2;

/// What can be asked.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// The bytes of a file in the folder from an offset on, allocated, as memory; the file may have to be new.
    Map { name: *const u8, offset: usize, bytes: usize, new: bool },
    /// A file's length.
    Cut { name: *const u8, bytes: usize },
    /// A file is wanted no more.
    Remove { name: *const u8 },
    /// The bytes of any file.
    Read { path: *const u8, to: *mut u8, bytes: usize },
}

struct Mailbox {
    state: AtomicU32,
    request: UnsafeCell<Request>,
    answer: UnsafeCell<isize>,
    /// The folder's path, for a keeper that starts.
    folder: UnsafeCell<*const u8>,
}

// SAFETY: the cells are reached by whoever asks while `state` is IDLE or ANSWERED, and by the keeper while it is ASKED (I2).
unsafe impl Sync for Mailbox {}

static MAILBOX: Mailbox = Mailbox {
    state: AtomicU32::new(IDLE),
    request: UnsafeCell::new(Request::Remove { name: c"".as_ptr().cast() }),
    answer: UnsafeCell::new(0),
    folder: UnsafeCell::new(c"/".as_ptr().cast()),
};

/// Whether there is a keeper, and whose turn it is to ask.
static ASKING: Lock<bool> = Lock::new(false);
/// Where the keeper's stack begins, once there is one; a forked child uses it again.
static STACK: AtomicUsize = AtomicUsize::new(0);

/// Starts the keeper, for this folder, and waits until it has opened it. The error's number if it cannot.
pub(crate) fn start(folder: &'static CStr) -> Result<(), isize> {
    ASKING.with(|there| {
        *there = false;
        let mut stack = STACK.load(Ordering::Relaxed);
        if stack == 0 {
            // SAFETY: new private memory (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS), where the kernel likes.
            let got = unsafe { call(number::MMAP, [0, STACK_BYTES, 3, 0x22, usize::MAX, 0]) };
            if got < 0 {
                return Err(-got);
            }
            stack = got as usize;
            STACK.store(stack, Ordering::Relaxed);
        }
        // SAFETY: no keeper runs, and the lock is held (I2).
        unsafe { *MAILBOX.folder.get() = folder.as_ptr().cast() };
        MAILBOX.state.store(ASKED, Ordering::Relaxed);
        // SAFETY: the stack is the keeper's alone: the one before, if any, was another process's. It touches no locals (I3).
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

/// Takes the keeper's lock, for a fork.
pub(crate) fn hold() {
    ASKING.hold();
}

/// Gives it back, after a fork.
pub(crate) fn release() {
    ASKING.release();
}

/// Waits for the answer to what was asked.
fn wait() -> isize {
    // Acquire: pairs with the Release store of ANSWERED in `keep`; we then see the answer.
    while MAILBOX.state.load(Ordering::Acquire) != ANSWERED {
        sys::sleep_on(&MAILBOX.state, ASKED);
    }
    // SAFETY: the state is ANSWERED, and the lock held (I2).
    let answer = unsafe { *MAILBOX.answer.get() };
    MAILBOX.state.store(IDLE, Ordering::Relaxed);
    answer
}

/// The keeper's answer, or the error's number.
fn ask(request: Request) -> Result<usize, isize> {
    ASKING.with(|there| {
        if !*there {
            return Err(sys::EIO);
        }
        // SAFETY: the state is IDLE, and the lock held (I2).
        unsafe { *MAILBOX.request.get() = request };
        // Release: pairs with the Acquire in `keep`; it then sees the request.
        MAILBOX.state.store(ASKED, Ordering::Release);
        sys::wake(&MAILBOX.state);
        let answer = wait();
        usize::try_from(answer).map_err(|_| -answer)
    })
}

/// The `bytes` of the file of this name in the folder, from `offset` on, which is a multiple of a page, as memory that is the
/// caller's; allocated, and zero where they are new.
pub(crate) fn map(name: &CStr, offset: usize, bytes: usize, new: bool) -> Result<*mut u8, isize> {
    ask(Request::Map { name: name.as_ptr().cast(), offset, bytes, new }).map(|at| at as *mut u8)
}

/// Makes the file so long.
pub(crate) fn cut(name: &CStr, bytes: usize) -> Result<(), isize> {
    ask(Request::Cut { name: name.as_ptr().cast(), bytes }).map(|_| ())
}

/// Removes the file.
pub(crate) fn remove(name: &CStr) {
    // It may be gone: whoever started us has given up.
    let _ = ask(Request::Remove { name: name.as_ptr().cast() });
}

/// What a file of the kernel's says, by its path.
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

/// The keeper.
extern "C" fn keep(_: *mut c_void) -> c_int {
    // PR_SET_NAME, so that whoever lists threads sees what this one is.
    // SAFETY: the name ends with a zero.
    unsafe { call(number::PRCTL, [15, c"squall-records".as_ptr() as usize, 0, 0, 0, 0]) };
    close_all();
    // SAFETY: the state is ASKED since before this thread (I2); the path ends with a zero.
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
        // SAFETY: the state is ASKED, and what the request points to lives until it is answered (I2).
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

/// Closes what was open where this thread comes from: copies, so that nobody else loses any.
fn close_all() {
    // SAFETY: the table is this thread's own (I1).
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
    // SAFETY: the caller's promise.
    unsafe { call(number::OPENAT, [folder, path as usize, flags, 0o600, 0, 0]) }
}

fn close(descriptor: usize) {
    // SAFETY: a descriptor of the keeper's table, which it opened.
    unsafe { call(number::CLOSE, [descriptor, 0, 0, 0, 0, 0]) };
}

/// # Safety
/// What the request points to is valid.
unsafe fn serve(folder: usize, request: Request) -> isize {
    // SAFETY: names end with a zero, and `to` has room for `bytes`: the caller's promise.
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
                    // A new shared mapping, where the kernel likes.
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

/// Has room for these bytes of the file set aside, so that a store to them cannot fail.
fn allocate(file: usize, offset: usize, bytes: usize) -> isize {
    loop {
        // SAFETY: a descriptor of the keeper's, and numbers.
        let result = unsafe { call(number::FALLOCATE, [file, 0, offset, bytes, 0, 0]) };
        if result == -sys::EINTR {
            continue;
        }
        if result != -sys::EOPNOTSUPP && result != -sys::ENOSYS {
            return result;
        }
        break;
    }
    // A file system that cannot: a zero to each page does it, where nothing was yet.
    for at in (offset..offset + bytes).step_by(PAGE) {
        // SAFETY: as above; one byte of our own.
        let result = unsafe { call(number::PWRITE, [file, c"".as_ptr() as usize, 1, at, 0, 0]) };
        if result < 0 {
            return result;
        }
    }
    // SAFETY: as above.
    unsafe { call(number::FTRUNCATE, [file, offset + bytes, 0, 0, 0, 0]) }
}

/// A folder for tests, and the keeper of it; it goes when the process ends.
#[cfg(test)]
pub(crate) fn folder_of_tests() -> &'static std::path::Path {
    static FOLDER: std::sync::OnceLock<std::path::PathBuf> = std::sync::OnceLock::new();
    unsafe extern "C" {
        fn atexit(f: extern "C" fn()) -> c_int;
    }
    extern "C" fn remove_folder() {
        if let Some(folder) = FOLDER.get() {
            // What cannot be removed is left to whoever cleans up temporary files.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
    FOLDER.get_or_init(|| {
        use std::os::unix::ffi::OsStrExt;
        // SAFETY: it only looks at a static that lasts as long as the process.
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
    fn what_the_keeper_maps_is_the_file_and_no_descriptor_of_ours() {
        let folder = folder_of_tests();
        let open = || std::fs::read_dir("/proc/thread-self/fd").expect("descriptors").count();
        let before = open();
        let start = map(c"mapped", GRAIN, 2 * GRAIN, true).expect("memory");
        // Other tests may come and go with descriptors of their own; a hundred maps would show.
        for _ in 0..100 {
            map(c"mapped", GRAIN, GRAIN, false).expect("memory");
        }
        assert!(open() < before + 50);
        // SAFETY: the memory is ours.
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
