//! Shared code of the tests of per-VP data: modes in child processes, threads that move, small random
//! numbers.
#![allow(dead_code, reason = "tests/memory.rs uses a part")]

use squall_machine::pervp::PerVpWord;
use squall_machine::{Vp, machine, restartable};
use squall_sys::sync::atomic::{AtomicU64, Ordering};
use squall_sys::sync::thread;

use crate::this_program::this_program;

/// The modes in which a child process can run: a variable, its value, and the resulting text of
/// `restart_mode`.
pub(crate) const MODES: &[(&str, &str, &str)] = &[
    ("SQUALL_RSEQ", "off", "atomic (SQUALL_RSEQ=off)"),
    #[cfg(all(target_os = "linux", target_env = "gnu", not(squall_tsan)))]
    ("GLIBC_TUNABLES", "glibc.pthread.rseq=0", "atomic (the C library registered no restartable sequences)"),
    ("SQUALL_TOPOLOGY", "nodes:2,caches:2,cores:8,threads:2", "atomic (virtual topology)"),
];

/// Variable set in child processes: the expected text of `restart_mode`.
pub(crate) const EXPECT: &str = "SQUALL_TEST_EXPECT_MODE";

/// Runs this test program again with the variables and arguments. If it fails, panics with its output.
pub(crate) fn again(variables: &[(&str, &str)], arguments: &[&str]) {
    let mut command = this_program();
    command.args(arguments).args(["--nocapture", "--test-threads=2"]).env("SQUALL_TEST_CHILD", "1");
    // A mode chosen for this process must not be inherited.
    command.env_remove("SQUALL_RSEQ");
    for (name, value) in variables {
        command.env(name, value);
    }
    let output = command.output().expect("this program starts");
    assert!(
        output.status.success(),
        "{variables:?} {arguments:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains(" 0 passed"), "{variables:?} {arguments:?} ran no test\n{text}");
}

/// Divisor for operation counts: more than 1 under emulation, which is slow.
pub(crate) fn slowness() -> u64 {
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() { 10 } else { 1 }
}

/// True if this process was started by [`again`].
pub(crate) fn is_child() -> bool {
    std::env::var_os("SQUALL_TEST_CHILD").is_some()
}

/// A small generator of numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        (self.next() >> 11) % limit
    }
}

/// Moves the calling thread to another processor, or assigns it another VP in a virtual topology.
pub(crate) fn hop(random: &mut Random) {
    let limit = machine().vp_limit() as u64;
    let vp = random.below(limit);
    if machine().is_virtual() {
        Vp::assign_current(Vp::new(vp as u32)).expect("a VP below the limit");
    } else {
        // The kernel refuses a processor that is offline or not allowed; the thread then stays.
        let _ = squall_sys::affinity::restrict_to(&[vp as usize]);
    }
}

/// Undoes the restriction of [`hop`].
pub(crate) fn roam() {
    let all: Vec<usize> = (0..machine().vp_limit()).collect();
    let _ = squall_sys::affinity::restrict_to(&all);
}

/// Counts the rounds of each thread of a load, so that a test goes on when all threads have worked.
pub(crate) struct Rounds(Vec<AtomicU64>);

impl Rounds {
    pub(crate) fn new(threads: u64) -> Rounds {
        Rounds((0..threads).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts a round of this thread.
    pub(crate) fn count(&self, thread: u64) {
        self.0[thread as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until each thread has made ten more rounds.
    pub(crate) fn wait(&self) {
        let counts = || self.0.iter().map(|rounds| rounds.load(Ordering::Relaxed));
        let before: Vec<u64> = counts().collect();
        while counts().zip(&before).any(|(now, before)| now < before + 10) {
            thread::sleep(std::time::Duration::from_millis(1));
        }
    }
}

/// Adds one in a sequence so long that the kernel often preempts it.
pub(crate) fn add_slowly(word: &PerVpWord, laps: u64) {
    let home = word.home().as_ptr();
    // SAFETY: of `restartable!`: 1. only the last instruction stores. 2. Only outputs change. 3. The word's
    // home.
    unsafe {
        restartable! {
            in: [home = home, laps = laps],
            out: [count: u64],
            x86_64: [
                "mov {count}, qword ptr [{home} + {part}]",
                "mov {tmp}, {laps}",
                "41:",
                "sub {tmp}, 1",
                "jnz 41b",
                "add {count}, 1",
                "mov qword ptr [{home} + {part}], {count}",
            ],
            aarch64: [
                "ldr {count}, [{home}, {part}]",
                "mov {tmp}, {laps}",
                "41:",
                "subs {tmp}, {tmp}, #1",
                "b.ne 41b",
                "add {count}, {count}, #1",
                "str {count}, [{home}, {part}]",
            ],
            done: |_vp| { let _ = count; },
            fallback: word.add(1),
        }
    }
}

/// Takes back glibc's registration of the calling thread.
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri)))]
pub(crate) fn unregister() {
    use std::ffi::c_long;
    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }
    const RSEQ: c_long = 334;
    const UNREGISTER: c_long = 1;
    let offset = squall_sys::rseq::registered_area().expect("this thread is registered");
    let thread_pointer: usize;
    // SAFETY: word 0 at the thread pointer holds its own address.
    unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) thread_pointer) };
    let area = thread_pointer.wrapping_add_signed(offset);
    // SAFETY: takes back a registration of this thread; only Squall relies on it, and this test is about
    // that.
    let answer = [32, 20, 28, 33, 64]
        .into_iter()
        .map(|bytes: c_long| unsafe {
            syscall(RSEQ, area, bytes, UNREGISTER, c_long::from(squall_sys::rseq::SIGNATURE))
        })
        .find(|&answer| answer == 0);
    assert_eq!(answer, Some(0), "the registration could not be taken back");
    assert!(squall_sys::rseq::registered_area().is_err());
}
