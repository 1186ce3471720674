//! Memory, the process's handler, and child processes with a role.

use squall_sys::fault::{self, Answer, Fault};
use squall_sys::uffd::{Features, Modes, Options, RangeError, Uffd};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Options of most operations.
pub(crate) const PLAIN: Options = Options { dont_wake: false, write_protected: false, allow_holes: false };
pub(crate) const MISSING: Modes = Modes { missing: true, minor: false, write_protect: false };
/// Modes for missing pages and write protection.
pub(crate) const BOTH: Modes = Modes { missing: true, minor: false, write_protect: true };

pub(crate) fn page() -> usize {
    // SAFETY: sysconf(3) with a name that it knows.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Pages of a test, unmapped on drop.
pub(crate) struct Memory {
    pub(crate) at: usize,
    pub(crate) pages: usize,
}

impl Memory {
    /// Private anonymous memory, without huge pages.
    pub(crate) fn private(pages: usize) -> Memory {
        let memory = Memory::map(pages, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
        // SAFETY: the memory just made.
        unsafe { libc::madvise(memory.pointer(0).cast(), memory.len(), libc::MADV_NOHUGEPAGE) };
        memory
    }

    /// A shared mapping of a file.
    pub(crate) fn of_file(pages: usize, file: &OwnedFd) -> Memory {
        Memory::map(pages, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(pages: usize, flags: i32, file: i32) -> Memory {
        let usable = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), pages * page(), usable, flags, file, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Memory { at: at.addr(), pages }
    }

    pub(crate) fn len(&self) -> usize {
        self.pages * page()
    }

    /// Address of a page.
    pub(crate) fn page(&self, number: usize) -> usize {
        assert!(number < self.pages);
        self.at + number * page()
    }

    pub(crate) fn pointer(&self, number: usize) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.page(number))
    }

    pub(crate) fn read(&self, number: usize) -> u8 {
        // SAFETY: memory of ours; a fault is resolved by the handler.
        unsafe { self.pointer(number).read_volatile() }
    }

    pub(crate) fn write(&self, number: usize, value: u8) {
        // SAFETY: memory of ours; a fault is resolved by the handler.
        unsafe { self.pointer(number).write_volatile(value) }
    }

    /// Writes a byte to each page: its number plus `first`.
    pub(crate) fn fill(&self, first: u8) {
        (0..self.pages).for_each(|number| self.write(number, first + number as u8));
    }

    /// True if each page of the range is in memory.
    pub(crate) fn is_present(&self, number: usize) -> bool {
        let mut present = 0u8;
        // SAFETY: mincore(2) of one page of ours, into a byte of ours.
        let result = unsafe { libc::mincore(self.pointer(number).cast(), page(), &raw mut present) };
        assert_eq!(result, 0);
        present & 1 != 0
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: memory of ours, no longer used.
        unsafe { libc::munmap(self.pointer(0).cast(), self.len()) };
    }
}

/// A file in memory.
pub(crate) fn file(pages: usize) -> OwnedFd {
    // SAFETY: memfd_create(2) and ftruncate(2) on a descriptor of ours.
    unsafe {
        let file = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
        assert!(file >= 0);
        assert_eq!(libc::ftruncate(file, (pages * page()) as i64), 0);
        OwnedFd::from_raw_fd(file)
    }
}

/// Opens a userfaultfd, or prints the reason for which the test is skipped.
pub(crate) fn open(wanted: Features) -> Option<Uffd> {
    match Uffd::open(wanted) {
        Ok(uffd) => Some(uffd),
        Err(error) => {
            println!("skipped: {error}");
            None
        }
    }
}

/// Registers memory of a test.
pub(crate) fn register(uffd: &Uffd, memory: &Memory, modes: Modes) {
    // SAFETY: the test's own memory, whose bytes may be any.
    unsafe { uffd.register(memory.at, memory.len(), modes) }.unwrap();
}

pub(crate) fn copy(
    uffd: &Uffd,
    to: usize,
    from: &Memory,
    first: usize,
    pages: usize,
) -> Result<usize, RangeError> {
    // SAFETY: memory of the test, of which any bytes are valid.
    unsafe { uffd.copy(to, from.pointer(first), pages * page(), PLAIN) }
}

/// Resolution of a fault by the handler of the tests.
#[derive(Clone, Copy)]
pub(crate) enum Plan {
    /// Passes faults.
    Pass,
    /// Copies the page of the same number of the source.
    Copy,
    /// Moves that page.
    Move,
    Zero,
    Resume,
    /// Resumes this number of pages, from the faulting one.
    ResumeMany(usize),
    Unprotect,
    /// Removes the page, and fills it with zeros.
    Heal,
    /// Writes to a missing page, in the handler.
    Nested,
}

struct Turn {
    uffd: Uffd,
    plan: Plan,
    at: usize,
    len: usize,
    source: usize,
}

/// The present turn, for the handler.
static TURN: AtomicPtr<Turn> = AtomicPtr::new(std::ptr::null_mut());
static FAULTS: AtomicUsize = AtomicUsize::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
/// -1 if unknown.
static WRITE: AtomicI32 = AtomicI32::new(-1);
static POISON: AtomicU32 = AtomicU32::new(0);

/// Turn of a test at the handler.
pub(crate) struct Faults {
    turn: Box<Turn>,
    _one_at_a_time: MutexGuard<'static, ()>,
}

/// Waits for the other tests. A test that failed keeps no other from running.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Faults {
    /// Lets the handler resolve faults in `memory` by this plan, until the value is dropped.
    pub(crate) fn handle(uffd: Uffd, plan: Plan, memory: &Memory, source: Option<&Memory>) -> Faults {
        let guard = one_at_a_time();
        install();
        let source = source.map_or(0, |source| source.at);
        let turn = Box::new(Turn { uffd, plan, at: memory.at, len: memory.len(), source });
        FAULTS.store(0, SeqCst);
        POISON.store(0, SeqCst);
        TURN.store(std::ptr::from_ref(&*turn).cast_mut(), SeqCst);
        Faults { turn, _one_at_a_time: guard }
    }

    pub(crate) fn uffd(&self) -> &Uffd {
        &self.turn.uffd
    }

    /// Number of faults of the turn.
    pub(crate) fn count(&self) -> usize {
        FAULTS.load(SeqCst)
    }

    /// Number of faults at poisoned pages.
    pub(crate) fn poison(&self) -> u32 {
        POISON.load(SeqCst)
    }

    /// Address of the last fault.
    pub(crate) fn address(&self) -> usize {
        ADDRESS.load(SeqCst)
    }
}

/// Asserts the direction of the last fault, where the processor tells it.
pub(crate) fn assert_write(write: bool) {
    let found = WRITE.load(SeqCst);
    let unknown = found == -1 && cfg!(not(target_arch = "x86_64"));
    if unknown {
        println!("skipped: the direction of a fault is unknown here");
    }
    assert!(unknown || found == i32::from(write), "{found}");
}

impl Drop for Faults {
    fn drop(&mut self) {
        TURN.store(std::ptr::null_mut(), SeqCst);
    }
}

/// Installs the handler of this program.
pub(crate) fn install() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        crate::handler::install_before();
        // SAFETY: 1. The handler uses atomics, userfaultfd and madvise(2). 2. It touches memory of the
        // program itself, but in the test of a fault within it. 3. No other test sets an action in this
        // process.
        unsafe { fault::install(resolve) }.unwrap();
    });
}

fn resolve(fault: &Fault) -> Answer {
    // SAFETY: a call that fails, so that `errno` changes.
    unsafe { libc::close(-1) };
    ADDRESS.store(fault.address, SeqCst);
    WRITE.store(fault.is_write.map_or(-1, i32::from), SeqCst);
    // SAFETY: null, or the turn of the test that runs, which outlives its faults.
    let Some(turn) = (unsafe { TURN.load(SeqCst).as_ref() }) else { return Answer::Pass };
    if !(turn.at..turn.at + turn.len).contains(&fault.address) {
        return Answer::Pass;
    }
    FAULTS.fetch_add(1, SeqCst);
    POISON.fetch_add(fault.is_poison().into(), SeqCst);
    let at = fault.address / page() * page();
    let from = turn.source + (at - turn.at);
    let source = std::ptr::with_exposed_provenance_mut::<u8>(from);
    let pointer = std::ptr::with_exposed_provenance_mut::<u8>(at);
    // SAFETY: memory of the test that runs, of which any bytes are valid.
    let done = unsafe {
        match turn.plan {
            Plan::Pass => return Answer::Pass,
            Plan::Copy => turn.uffd.copy(at, source, page(), PLAIN),
            Plan::Move => turn.uffd.move_pages(at, from, page(), PLAIN),
            Plan::Zero => turn.uffd.zero(at, page(), PLAIN),
            Plan::Resume => turn.uffd.resume(at, page(), PLAIN),
            Plan::ResumeMany(pages) => turn.uffd.resume(at, pages * page(), PLAIN),
            Plan::Unprotect => turn.uffd.write_protect(at, page(), false, PLAIN),
            Plan::Heal => {
                libc::madvise(pointer.cast(), page(), libc::MADV_DONTNEED);
                turn.uffd.zero(at, page(), PLAIN)
            }
            Plan::Nested => {
                pointer.write_volatile(1);
                Ok(0)
            }
        }
    };
    if done.is_ok() { Answer::Resume } else { Answer::Pass }
}

/// Returns a command that starts this program.
///
/// Under user-mode emulation the kernel cannot start it directly. `SQUALL_TEST_RUNNER="qemu-aarch64 -L …"`
/// then names the program that does, with its arguments.
fn this_program() -> Command {
    let runner = std::env::var("SQUALL_TEST_RUNNER").unwrap_or_default();
    let program = std::env::current_exe().unwrap().into_os_string();
    let mut words = runner.split_whitespace().map(std::ffi::OsString::from).chain([program]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words);
    command
}

/// Starts this program as a child that runs one test alone, with the role of that name.
pub(crate) fn child(role: &str, input: Option<OwnedFd>) -> Child {
    let mut command = this_program();
    command.args(["--exact", "--nocapture", role]).env("SQUALL_TEST_ROLE", role);
    command.stdin(input.map_or_else(Stdio::null, Stdio::from));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// True if this process is the child for this role. Otherwise the role's test passes at once.
pub(crate) fn has_role(role: &str) -> bool {
    std::env::var("SQUALL_TEST_ROLE").is_ok_and(|name| name == role)
}
