//! The handler from before, and processes that end by a fault.

use crate::support::{
    Faults, MISSING, Memory, Plan, assert_write, child, file, has_role, install, one_at_a_time, open, page,
    register,
};
use squall_sys::fault::{self, Answer, Fault};
use std::io::Read as _;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Child;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};

/// File that the handler from before makes longer.
static FILE: AtomicI32 = AtomicI32::new(-1);
static CALLS: AtomicUsize = AtomicUsize::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static BUS_BLOCKED: AtomicBool = AtomicBool::new(false);
static USR1_BLOCKED: AtomicBool = AtomicBool::new(false);
static USR2_BLOCKED: AtomicBool = AtomicBool::new(false);

/// Sets the action of SIGBUS.
fn set_action(handler: usize, flags: i32, blocked: Option<i32>) {
    set_action_of(libc::SIGBUS, handler, flags, blocked);
}

fn set_action_of(signal: i32, handler: usize, flags: i32, blocked: Option<i32>) {
    // SAFETY: sigaction(2) with an action of our own, for which zeros are valid.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = flags;
        if let Some(signal) = blocked {
            libc::sigaddset(&raw mut action.sa_mask, signal);
        }
        assert_eq!(libc::sigaction(signal, &raw const action, std::ptr::null_mut()), 0);
    }
}

/// Installs the handler that stands for one of another library, with SIGUSR1 in its mask.
pub(crate) fn install_before() {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = before;
    set_action(handler as *const () as usize, libc::SA_SIGINFO, Some(libc::SIGUSR1));
}

extern "C" fn before(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    assert_eq!(signal, libc::SIGBUS);
    CALLS.fetch_add(1, SeqCst);
    // SAFETY: the arguments are the kernel's; pthread_sigmask(3) fills a set of ours; ftruncate(2) of the
    // test's file.
    unsafe {
        ADDRESS.store((*info).si_addr().addr(), SeqCst);
        let mut mask = MaybeUninit::zeroed().assume_init();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        BUS_BLOCKED.store(libc::sigismember(&raw const mask, libc::SIGBUS) == 1, SeqCst);
        USR1_BLOCKED.store(libc::sigismember(&raw const mask, libc::SIGUSR1) == 1, SeqCst);
        USR2_BLOCKED.store(libc::sigismember(&raw const mask, libc::SIGUSR2) == 1, SeqCst);
        let file: RawFd = FILE.load(SeqCst);
        if file >= 0 {
            assert_eq!(libc::ftruncate(file, page() as i64), 0);
        }
    }
}

#[test]
fn a_fault_of_another_library_goes_to_its_handler_under_its_mask() {
    let _one = one_at_a_time();
    install();
    let file = file(0);
    FILE.store(file.as_raw_fd(), SeqCst);
    let memory = Memory::of_file(1, &file);
    let calls = CALLS.load(SeqCst);
    // The file has no page here until the handler makes it longer.
    assert_eq!(memory.read(0), 0);
    assert_write(false);
    assert_eq!((CALLS.load(SeqCst), ADDRESS.load(SeqCst)), (calls + 1, memory.at));
    let blocked = [&BUS_BLOCKED, &USR1_BLOCKED, &USR2_BLOCKED].map(|flag| flag.load(SeqCst));
    assert_eq!(blocked, [true, true, false]);
    // SAFETY: ftruncate(2) of the test's file, whose page is mapped and no longer read.
    assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 0) }, 0);
    memory.write(0, 1);
    assert_write(true);
    assert_eq!((CALLS.load(SeqCst), memory.read(0)), (calls + 2, 1));
    FILE.store(-1, SeqCst);
    // A signal that a process sent goes there too.
    // SAFETY: raise(3) of a signal that has a handler.
    assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
    assert_eq!(CALLS.load(SeqCst), calls + 3);
    // The mask of the thread is as before.
    // SAFETY: pthread_sigmask(3) fills a set of ours.
    let bus = unsafe {
        let mut mask = MaybeUninit::zeroed().assume_init();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut mask);
        libc::sigismember(&raw const mask, libc::SIGBUS)
    };
    assert_eq!(bus, 0);
}

#[test]
fn a_second_handler_is_refused() {
    let _one = one_at_a_time();
    install();
    // SAFETY: the handler does no work.
    let error = unsafe { fault::install(pass) }.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists);
    // SAFETY: the handler does no work.
    assert!(unsafe { fault::install_with_segv(pass) }.is_err());
}

fn pass(_fault: &Fault) -> Answer {
    Answer::Pass
}

fn install_pass() {
    // SAFETY: the handler does no work, and no other thread sets an action.
    unsafe { fault::install(pass) }.unwrap();
}

/// Reads a page that its file lacks.
fn read_beyond_the_file() {
    let file = file(0);
    Memory::of_file(1, &file).read(0);
}

/// Runs a role, and returns the signal that ended it and its output.
fn end_of(role: &str) -> (Option<i32>, String) {
    let output = child(role, None).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.signal(), text.into_owned())
}

/// Asserts that a role ends by a signal.
fn ends_by(signal: i32, role: &str) {
    // An emulator may end by a signal of its own instead.
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        println!("skipped: this program is emulated");
        return;
    }
    let (found, text) = end_of(role);
    assert!(found == Some(signal) || text.contains("skipped: "), "{role}: {found:?}, {text}");
}

#[test]
fn role_default() {
    if has_role("handler::role_default") {
        set_action(libc::SIG_DFL, 0, None);
        install_pass();
        read_beyond_the_file();
    }
}

#[test]
fn role_std() {
    if has_role("handler::role_std") {
        install_pass();
        read_beyond_the_file();
    }
}

#[test]
fn role_once() {
    if has_role("handler::role_once") {
        let handler: extern "C" fn(i32) = plain;
        set_action(handler as *const () as usize, libc::SA_RESETHAND, None);
        install_pass();
        // SAFETY: raise(3) of a signal with a handler.
        unsafe { libc::raise(libc::SIGBUS) };
        assert_eq!(CALLS.load(SeqCst), 1);
        println!("called once");
        // SAFETY: the same signal; its handler was for one time.
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

extern "C" fn plain(_signal: i32) {
    CALLS.fetch_add(1, SeqCst);
}

#[test]
fn role_sent() {
    if has_role("handler::role_sent") {
        set_action(libc::SIG_DFL, 0, None);
        install_pass();
        // SAFETY: raise(3).
        unsafe { libc::raise(libc::SIGBUS) };
    }
}

#[test]
fn role_ignored() {
    if has_role("handler::role_ignored") {
        set_action(libc::SIG_IGN, 0, None);
        install_pass();
        // SAFETY: raise(3) of a signal that is ignored.
        unsafe { libc::raise(libc::SIGBUS) };
        println!("survived");
        read_beyond_the_file();
    }
}

#[test]
fn role_segv() {
    if has_role("handler::role_segv") {
        set_action_of(libc::SIGSEGV, libc::SIG_DFL, 0, None);
        // SAFETY: the handler does no work, and no other thread sets an action.
        unsafe { fault::install_with_segv(pass) }.unwrap();
        let memory = Memory::private(1);
        // SAFETY: memory of ours.
        unsafe { libc::mprotect(memory.pointer(0).cast(), page(), libc::PROT_NONE) };
        memory.read(0);
    }
}

#[test]
fn role_nested() {
    if has_role("handler::role_nested") {
        let Some(uffd) = open(squall_sys::uffd::Features::SIGBUS) else { return };
        let memory = Memory::private(1);
        register(&uffd, &memory, MISSING);
        let _faults = Faults::handle(uffd, Plan::Nested, &memory, None);
        memory.read(0);
    }
}

#[test]
fn a_fault_that_has_no_other_handler_ends_the_process() {
    let _one = one_at_a_time();
    for role in ["default", "once", "sent", "ignored"] {
        ends_by(libc::SIGBUS, &format!("handler::role_{role}"));
    }
    // The address sanitizer has a handler in place of that of std, and ends otherwise.
    if cfg!(not(squall_asan)) {
        ends_by(libc::SIGBUS, "handler::role_std");
    }
    ends_by(libc::SIGSEGV, "handler::role_segv");
}

#[test]
fn a_signal_that_a_process_sent_has_the_effect_from_before() {
    let _one = one_at_a_time();
    assert!(end_of("handler::role_once").1.contains("called once"));
    assert!(end_of("handler::role_ignored").1.contains("survived"));
}

#[test]
fn a_fault_in_the_handler_ends_the_process() {
    let _one = one_at_a_time();
    ends_by(libc::SIGBUS, "handler::role_nested");
}

#[test]
fn role_account() {
    if has_role("handler::role_account") {
        set_action(libc::SIG_DFL, 0, None);
        install_pass();
        // SAFETY: ptrace(2) that makes the parent our tracer; gettid(2).
        let thread = unsafe {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                println!("skipped: no tracer\n<thread 0 page 0");
                return;
            }
            libc::gettid()
        };
        let file = file(0);
        let memory = Memory::of_file(1, &file);
        println!("<thread {thread} page {}", memory.at);
        memory.read(0);
    }
}

/// Reads the output of a child until it names its thread and its page.
fn thread_and_page(child: &mut Child) -> (i32, usize) {
    let mut text = String::new();
    let mut bytes = [0; 1];
    let output = child.stdout.as_mut().unwrap();
    loop {
        output.read_exact(&mut bytes).expect("the child ended early");
        text.push(bytes[0].into());
        // The harness may have begun the line.
        if let Some((_, line)) = text.split_once("<thread ")
            && let Some(line) = line.strip_suffix('\n')
        {
            let (thread, at) = line.split_once(" page ").unwrap();
            return (thread.parse().unwrap(), at.parse().unwrap());
        }
    }
}

/// A tracer sees both signals: that of the fault, and the one that ends the process.
#[test]
fn a_process_ends_with_the_kernels_account_of_the_fault() {
    let _one = one_at_a_time();
    let mut child = child("handler::role_account", None);
    let (thread, at) = thread_and_page(&mut child);
    if thread == 0 {
        println!("skipped: no tracer here");
        child.wait().unwrap();
        return;
    }
    for _ in 0..2 {
        let mut status = 0;
        // SAFETY: waitpid(2) and ptrace(2) for the child's thread, with places of ours. Zeros are a valid
        // account.
        let info = unsafe {
            assert_eq!(libc::waitpid(thread, &raw mut status, libc::__WALL), thread);
            assert!(libc::WIFSTOPPED(status), "status {status:#x}");
            assert_eq!(libc::WSTOPSIG(status), libc::SIGBUS);
            let mut info: libc::siginfo_t = MaybeUninit::zeroed().assume_init();
            assert_eq!(libc::ptrace(libc::PTRACE_GETSIGINFO, thread, 0, &raw mut info), 0);
            assert_eq!(libc::ptrace(libc::PTRACE_CONT, thread, 0, libc::SIGBUS), 0);
            info
        };
        // SAFETY: the account of a fault has an address.
        assert_eq!((info.si_code, unsafe { info.si_addr() }.addr()), (libc::BUS_ADRERR, at));
    }
    let mut status = 0;
    // The process is gone only when its tracer has seen the end of the thread.
    // SAFETY: waitpid(2) for the child's thread, with a place of ours.
    assert_eq!(unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL) }, thread);
    assert!(libc::WIFSIGNALED(status));
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGBUS));
}
