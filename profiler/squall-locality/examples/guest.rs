//! Programs that are hard to profile: `guest NAME ARGUMENT`. They close foreign descriptors, fork, call
//! `exec`, die, or run forever. Each exits with 0 if its own work succeeded. The tests profile them.

use std::ffi::{c_int, c_long, c_void};
use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, exit};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use squall_locality_plugin::mark;

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn setsid() -> c_int;
    fn getpid() -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn close(descriptor: c_int) -> c_int;
    fn _exit(status: c_int) -> !;
    fn setrlimit(resource: c_int, limit: *const [u64; 2]) -> c_int;
    fn mmap(
        at: *mut c_void,
        bytes: usize,
        rights: c_int,
        flags: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut c_void;
    fn munmap(at: *mut c_void, bytes: usize) -> c_int;
    fn malloc(bytes: usize) -> *mut c_void;
    fn free(block: *mut c_void);
    fn __errno_location() -> *mut c_int;
}

/// A word on its own line.
#[repr(align(128))]
struct Alone(AtomicU64);

static SHARED: Alone = Alone(AtomicU64::new(0));
static OTHER: Alone = Alone(AtomicU64::new(0));

fn add(to: &Alone, times: u64) {
    for _ in 0..times {
        to.0.fetch_add(1, Relaxed);
    }
}

/// Runs `f` in `count` threads at once.
fn threads(count: usize, f: impl Fn(usize) + Sync) {
    let barrier = Barrier::new(count);
    std::thread::scope(|scope| {
        for thread in 0..count {
            let (f, barrier) = (&f, &barrier);
            // Small stacks, because there may be many threads.
            let small = std::thread::Builder::new().stack_size(64 << 10);
            small
                .spawn_scoped(scope, move || {
                    barrier.wait();
                    f(thread);
                    barrier.wait();
                })
                .expect("a thread");
        }
    });
}

/// Forks; the child runs `f` and exits.
fn child(f: impl FnOnce()) -> c_int {
    // SAFETY: the process has a single thread.
    let pid = unsafe { fork() };
    if pid == 0 {
        f();
        // SAFETY: no cleanup is needed.
        unsafe { _exit(0) }
    }
    assert!(pid > 0, "it forks");
    pid
}

fn wait_for(pid: c_int) {
    let mut status = 0;
    // SAFETY: `status` has room for the status.
    let ended = unsafe { waitpid(pid, &raw mut status, 0) };
    assert_eq!((ended, status), (pid, 0));
}

/// The parent allocates a block that two threads of the child share.
fn inherits(times: u64) {
    let block = black_box(Box::new(Alone(AtomicU64::new(0))));
    wait_for(child(|| {
        threads(2, |_| {
            mark::begin();
            add(&block, times);
            mark::end();
        });
    }));
}

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let [_, name, argument] = &words[..] else {
        eprintln!("usage: guest NAME ARGUMENT");
        exit(2);
    };
    let number = || argument.parse().expect("a number");
    match name.as_str() {
        "closes" => closes(argument),
        "fork" => {
            let work = || {
                threads(2, |_| {
                    mark::begin();
                    add(&SHARED, number());
                    mark::end();
                });
            };
            let child = child(work);
            work();
            wait_for(child);
        }
        "fork-inside" => {
            mark::begin();
            wait_for(child(|| {
                add(&OTHER, number());
                mark::end();
                threads(2, |_| add(&SHARED, number()));
            }));
            mark::end();
        }
        "inherits" => inherits(number()),
        "children" => {
            for _ in 0..number() {
                wait_for(child(|| add(&SHARED, 10)));
            }
        }
        "exec-fails" | "exec" => {
            threads(2, |_| add(&SHARED, 5_000));
            let error = Command::new("/nonexistent/program").exec();
            assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
            if name == "exec" {
                let _ = Command::new(argument).exec();
                exit(3);
            }
        }
        "kill" => {
            threads(2, |_| add(&SHARED, number()));
            // SAFETY: sends the signal to this process.
            unsafe { kill(getpid(), 9) };
        }
        "crowd" => crowd(number() as usize),
        "idle" => idle(number()),
        "errno" => errno(),
        "remap" => remap(argument),
        "sleepers" => sleepers(number()),
        "never-ends" => never_ends(argument),
        "tail" => tail(number()),
        "phases" => phases(argument),
        "ends" => ends(argument),
        #[cfg(target_arch = "x86_64")]
        "stacks" => stacks(),
        "stack" => std::thread::spawn(|| stack(1_000)).join().expect("no panic"),
        "local" => std::thread::spawn(|| local(1_000)).join().expect("no panic"),
        other => {
            eprintln!("no program {other}");
            exit(2);
        }
    }
}

/// Closes all descriptors it did not open, then uses its own files while threads touch more and more lines.
fn closes(folder: &str) {
    let close_all = || {
        for descriptor in 3..1024 {
            // SAFETY: this program has no open file.
            unsafe { close(descriptor) };
        }
    };
    close_all();
    let first = File::create(format!("{folder}/first")).expect("a file");
    assert_eq!(first.as_raw_fd(), 3, "the lowest free number");
    drop(first);
    for round in 0..10 {
        close_all();
        let files: Vec<_> = (0..20).map(|at| format!("{folder}/{round}-{at}")).collect();
        let mut open: Vec<File> = files.iter().map(|path| File::create(path).expect("a file")).collect();
        let numbers: Vec<c_int> = open.iter().map(AsRawFd::as_raw_fd).collect();
        assert_eq!(numbers, (3..23).collect::<Vec<c_int>>(), "no other descriptor is open");
        threads(4, |_| {
            mark::begin();
            add(&SHARED, 100);
            mark::end();
            // New lines, so that tables grow.
            let mut block = vec![0u8; 2_000_000];
            block.iter_mut().step_by(64).for_each(|byte| *byte = 1);
            black_box(&block);
        });
        for (file, path) in open.iter_mut().zip(&files) {
            file.write_all(path.as_bytes()).expect("written");
        }
        for path in &files {
            assert_eq!(std::fs::read_to_string(path).expect("the file"), *path);
        }
    }
}

/// Runs `count` threads at once with almost no free descriptors.
fn crowd(count: usize) {
    // SAFETY: RLIMIT_NOFILE and two numbers.
    assert_eq!(unsafe { setrlimit(7, &[16, 16]) }, 0);
    threads(count, |_| {
        mark::begin();
        add(&SHARED, 20);
        mark::end();
    });
}

/// A thread that works before the first window, sleeps through it, and works in the second.
fn idle(ops: u64) {
    let turns: Arc<[Barrier; 4]> = Arc::new(std::array::from_fn(|_| Barrier::new(2)));
    let its = Arc::clone(&turns);
    let sleeper = std::thread::spawn(move || {
        add(&SHARED, ops);
        its[0].wait();
        its[1].wait();
        add(&SHARED, ops);
        its[2].wait();
    });
    turns[0].wait();
    // Mostly, the other thread is in its system call by then. The counts do not depend on it.
    std::thread::sleep(Duration::from_millis(100));
    mark::begin();
    add(&OTHER, ops);
    mark::end();
    mark::begin();
    turns[1].wait();
    add(&SHARED, ops);
    turns[2].wait();
    mark::end();
    sleeper.join().expect("no panic");
}

/// Allocating and freeing leaves `errno` unchanged.
fn errno() {
    for bytes in 1..200 {
        // SAFETY: the thread's own `errno`, and blocks that are freed once.
        unsafe {
            *__errno_location() = 42;
            let block = black_box(malloc(bytes));
            assert_eq!(*__errno_location(), 42);
            free(block);
            assert_eq!(*__errno_location(), 42);
        }
    }
}

/// Maps a page of one file, then replaces it by a page from the middle of another file, which threads share.
fn remap(folder: &str) {
    const PAGE: usize = 4096;
    let map = |at: usize, name: &str, pages: usize, fixed: c_int| {
        let path = format!("{folder}/{name}");
        std::fs::write(&path, vec![0; pages * PAGE]).expect("written");
        let file = File::options().read(true).write(true).open(path).expect("a file");
        // SAFETY: a new mapping (PROT_READ | PROT_WRITE, MAP_SHARED) in an unused range.
        unsafe { mmap(at as *mut c_void, pages * PAGE, 3, 1 | fixed, file.as_raw_fd(), 0) as usize }
    };
    let room = map(0, "room", 3, 0);
    let use_it = |at: usize| {
        threads(2, |_| {
            // SAFETY: mapped, and accessed only as an atomic.
            let word = unsafe { &*(at as *const Alone) };
            mark::begin();
            add(word, 500);
            mark::end();
        });
    };
    // SAFETY: the range is not in use.
    unsafe { munmap(room as *mut c_void, 3 * PAGE) };
    let first = map(room + PAGE, "first", 1, 0x10);
    assert_eq!(first, room + PAGE);
    // SAFETY: the range is not in use.
    unsafe { munmap(first as *mut c_void, PAGE) };
    assert_eq!(map(room, "second", 3, 0x10), room);
    use_it(first);
}

/// Threads that touch many lines and then sleep, while one works.
fn sleepers(lines: u64) {
    let (touched, done) = (Barrier::new(9), Barrier::new(9));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let (touched, done) = (&touched, &done);
            scope.spawn(move || {
                let mut block = vec![0u8; lines as usize * 64];
                block.iter_mut().step_by(64).for_each(|byte| *byte = 1);
                black_box(&block);
                touched.wait();
                done.wait();
            });
        }
        touched.wait();
        // Mostly, the other threads sleep by then. The report does not depend on it.
        std::thread::sleep(Duration::from_millis(100));
        add(&SHARED, 300_000);
        done.wait();
    });
}

/// A word on this thread's stack, shared by two others.
fn stack(times: u64) {
    let word = black_box(Alone(AtomicU64::new(0)));
    threads(2, |_| add(&word, times));
}

thread_local! {
    static LOCAL: Alone = const { Alone(AtomicU64::new(0)) };
}

/// A thread-local of this thread, shared by two others.
fn local(times: u64) {
    // `black_box` keeps the optimiser from removing a word that is never read.
    LOCAL.with(|word| threads(2, |_| add(black_box(word), times)));
}

/// Two threads add to one counter, then to another one, then to the first again. Before each change the
/// program creates a file and waits for the answer.
fn phases(folder: &str) {
    let ask = |question: &str| {
        File::create(format!("{folder}/{question}")).expect("a file");
        while !std::path::Path::new(&format!("{folder}/{question}-answer")).exists() {
            std::thread::yield_now();
        }
    };
    threads(2, |_| add(&OTHER, 1_000));
    ask("begin");
    threads(2, |_| add(&SHARED, 1_000));
    ask("end");
    threads(2, |_| add(&OTHER, 1_000));
}

/// Creates a file with the number of this process, and waits for a signal that ends it.
fn ends(folder: &str) {
    threads(2, |_| add(&SHARED, 1_000));
    std::fs::write(format!("{folder}/ready"), std::process::id().to_string()).expect("a file");
    loop {
        std::thread::park();
    }
}

/// Runs forever, with a child in another session and an orphaned grandchild. Each thread creates a file in
/// `folder` once it has added a thousand times.
fn never_ends(folder: &str) {
    let add_forever = |name: &str| {
        add(&SHARED, 1_001);
        File::create(format!("{folder}/{name}")).expect("a file");
        add(&SHARED, u64::MAX);
    };
    child(|| {
        // SAFETY: takes no arguments.
        unsafe { setsid() };
        child(|| add_forever("grandchild"));
        add_forever("child");
    });
    threads(2, |thread| add_forever(&thread.to_string()));
}

// Calls a function on another stack; a stack walk from there returns to this stack.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl call_on",
    ".type call_on, @function",
    "call_on: .cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "mov rsp, rdi",
    "call rsi",
    "mov rsp, rbp",
    "pop rbp",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size call_on, . - call_on",
);

/// Allocates on one stack, called from another that is then unmapped, and again, called from the main stack.
#[cfg(target_arch = "x86_64")]
fn stacks() {
    const BYTES: usize = 16 << 20;
    const PART: usize = 256 << 10;
    static INNER: AtomicU64 = AtomicU64::new(0);
    unsafe extern "C" {
        fn call_on(top: usize, f: extern "C" fn());
    }
    extern "C" fn ask() {
        // SAFETY: a block that is freed once.
        unsafe { free(black_box(malloc(100))) };
    }
    extern "C" fn ask_from_there() {
        // SAFETY: the end of an unused stack.
        unsafe { call_on(INNER.load(Relaxed) as usize, ask) };
    }
    // SAFETY: new private memory (PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS). Each end belongs to
    // an unused stack. The unmapped part is the upper stack, which is not used any more.
    unsafe {
        let start = mmap(std::ptr::null_mut(), BYTES, 3, 0x22, -1, 0) as usize;
        INNER.store((start + PART) as u64, Relaxed);
        call_on(start + BYTES, ask_from_there);
        munmap((start + BYTES - PART) as *mut c_void, PART);
        ask_from_there();
    }
}

// A function that calls, then jumps to the window's function, which calls, then jumps to another function.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl tail_front",
    ".type tail_front, @function",
    "tail_front: sub rsp, 8",
    "call {nothing}",
    "add rsp, 8",
    "jmp tail_window",
    ".size tail_front, . - tail_front",
    ".globl tail_window",
    ".type tail_window, @function",
    "tail_window: sub rsp, 8",
    "call {nothing}",
    "add rsp, 8",
    "jmp {inside}",
    ".size tail_window, . - tail_window",
    nothing = sym tail_nothing,
    inside = sym tail_inside,
);
#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl tail_front",
    ".type tail_front, @function",
    "tail_front: stp x29, x30, [sp, -16]!",
    "bl {nothing}",
    "ldp x29, x30, [sp], 16",
    "b tail_window",
    ".size tail_front, . - tail_front",
    ".globl tail_window",
    ".type tail_window, @function",
    "tail_window: stp x29, x30, [sp, -16]!",
    "bl {nothing}",
    "ldp x29, x30, [sp], 16",
    "b {inside}",
    ".size tail_window, . - tail_window",
    nothing = sym tail_nothing,
    inside = sym tail_inside,
);

unsafe extern "C" {
    fn tail_front();
}

extern "C" fn tail_nothing() {}

extern "C" fn tail_inside() {
    SHARED.0.fetch_add(1, Relaxed);
}

/// Alternates one operation inside the window and one outside.
fn tail(ops: u64) {
    threads(2, |_| {
        for _ in 0..ops {
            // SAFETY: takes no arguments and follows the calling convention.
            unsafe { tail_front() };
            OTHER.0.fetch_add(1, Relaxed);
        }
    });
}
