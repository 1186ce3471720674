//! Profiles aarch64 programs with their emulator on this machine: checks that the plugin knows the
//! instructions, marks and system calls of aarch64. The programs are compiled from the text below. If a tool
//! is missing, the tests print SKIP and pass.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use squall_locality::lines::Sharing;
use squall_locality::objects::Object;
use squall_locality::report::{LineReport, Report};
use squall_locality::run::Outcome;
use squall_locality::{Options, Window};

use crate::common::{emulator, look, skip};

const COMPILER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";
const THREADS: usize = 4;
const OPS: u64 = 500;

/// Each thread works between marks. Threads take turns where an instruction may have to be retried.
const SOURCE: &str = r#"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS_MAX = 64 };
static struct { _Alignas(128) uint64_t word; } shared_word, padded[THREADS_MAX], lock_word;
static _Alignas(128) uint64_t unpadded[THREADS_MAX];
static long ops;
static int threads, alone;
static _Alignas(128) volatile int turn;
static pthread_barrier_t barrier;
static void (*work)(uint64_t *at);

#define ATOMIC(name, text) \
    __attribute__((noinline)) static void name(uint64_t *at) { \
        for (long i = ops; i > 0; i--) { \
            uint64_t old, failed; \
            __asm__ volatile(".arch_extension lse\n" text \
                : "=&r"(old), "=&r"(failed) : "r"(at), "r"(1ul) : "memory"); \
            (void)old, (void)failed; \
        } \
    }

ATOMIC(add, "ldadd %3, %0, [%2]")
ATOMIC(add_without_result, "stadd %3, [%2]")
ATOMIC(swap, "swpal %3, %0, [%2]")
ATOMIC(compare, "mov %0, #0\n cas %0, xzr, [%2]")
ATOMIC(exclusive, ".p2align 5\n1: ldxr %0, [%2]\n add %0, %0, #1\n stxr %w1, %0, [%2]\n cbnz %w1, 1b")
ATOMIC(lock, "swpa %3, %0, [%2]\n stlr xzr, [%2]")
ATOMIC(plain, "ldr %0, [%2]\n add %0, %0, #1\n str %0, [%2]")

/* As compilers do it that do not know the processor: each calls a helper. */
__attribute__((noinline)) static void outlined_add(uint64_t *at)
{
    for (long i = ops; i > 0; i--) __atomic_fetch_add(at, 1, __ATOMIC_ACQ_REL);
}
__attribute__((noinline)) static void outlined_lock(uint64_t *at)
{
    for (long i = ops; i > 0; i--) {
        uint64_t none = 0;
        __atomic_compare_exchange_n(at, &none, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
        __atomic_store_n(at, 0, __ATOMIC_RELEASE);
    }
}

static const struct { const char *name; void (*work)(uint64_t *); char place; int alone; } programs[] = {
    { "shared", add, 's', 0 }, { "stadd", add_without_result, 's', 0 }, { "swap", swap, 's', 0 },
    { "compare", compare, 's', 0 }, { "exclusive", exclusive, 's', 1 }, { "lock", lock, 'l', 0 },
    { "outlined-add", outlined_add, 's', 0 }, { "outlined-lock", outlined_lock, 'l', 0 },
    { "padded", add, 'p', 0 }, { "unpadded", plain, 'u', 0 },
};
static char place;

static void *run(void *argument)
{
    int self = (int)(intptr_t)argument;
    uint64_t *at = place == 's' ? &shared_word.word : place == 'l' ? &lock_word.word
        : place == 'p' ? &padded[self].word : &unpadded[self];
    pthread_barrier_wait(&barrier);
    while (alone && turn != self) {}
    __asm__ volatile(".inst 0xd28a6a3f" ::: "memory");
    work(at);
    __asm__ volatile(".inst 0xd28a6a5f" ::: "memory");
    turn = self + 1;
    pthread_barrier_wait(&barrier);
    return NULL;
}

int main(int count, char **words)
{
    pthread_t started[THREADS_MAX];
    if (count != 4) return 2;
    threads = atoi(words[2]);
    ops = atol(words[3]);
    for (unsigned i = 0; i < sizeof programs / sizeof programs[0]; i++)
        if (!strcmp(programs[i].name, words[1]))
            work = programs[i].work, place = programs[i].place, alone = programs[i].alone;
    if (!work || threads > THREADS_MAX || pthread_barrier_init(&barrier, NULL, threads)) return 2;
    for (int i = 0; i < threads; i++)
        if (pthread_create(&started[i], NULL, run, (void *)(intptr_t)i)) return 3;
    for (int i = 0; i < threads; i++) pthread_join(started[i], NULL);
    return 0;
}
"#;

/// Compiles a static program with threads in a private folder, then moves it into place. Concurrent users
/// always find a complete program.
fn compile(text: &str, program: &Path) -> Result<(), String> {
    let folder = program.with_extension(std::process::id().to_string());
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let (source, made) = (folder.join("aarch64.c"), folder.join("made"));
    std::fs::write(&source, text).map_err(failed)?;
    let output = Command::new(COMPILER)
        .args(["-O2", "-g", "-static", "-pthread", "-moutline-atomics", "-o"])
        .args([&made, &source])
        .output()
        .map_err(|error| format!("{COMPILER}: {error}"))?;
    let done = if output.status.success() {
        std::fs::rename(&made, program).map_err(failed)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    };
    std::fs::remove_dir_all(&folder).map_err(failed)?;
    done
}

/// The compiled programs, or the reason why they cannot be compiled or run.
fn compiled() -> Result<&'static Path, &'static str> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        emulator(Some(Path::new(EMULATOR)))?;
        // The program stays there; the next run compiles it again.
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // The compiler may lack the C library or the thread library.
        let least = "#include <pthread.h>\nint main(void) { return pthread_equal(pthread_self(), pthread_self()) == 0; }\n";
        compile(least, &folder.join("aarch64-least")).map_err(|said| format!("{COMPILER} cannot compile with threads: {said}"))?;
        let program = folder.join("aarch64-programs");
        compile(SOURCE, &program).unwrap_or_else(|said| panic!("{said}"));
        Ok(program)
    });
    program.as_deref().map_err(String::as_str)
}

/// Report on one of the programs, on a processor with all features.
fn count(name: &str, window: Window) -> Option<Report> {
    count_on("max", name, window)
}

/// Report on one of the programs, on this processor.
fn count_on(processor: &str, name: &str, window: Window) -> Option<Report> {
    let program = match compiled() {
        Ok(program) => program,
        Err(why) => {
            skip("aarch64", why);
            return None;
        }
    };
    let mut options = Options::new(program);
    options.arguments = [name, &THREADS.to_string(), &OPS.to_string()].map(Into::into).to_vec();
    options.window = window;
    options.timeout = Some(Duration::from_secs(300));
    // The preloaded library is built for this machine, and the program is static.
    options.preload = false;
    options.emulator = Some(EMULATOR.into());
    options.emulator_arguments = ["-cpu", processor].map(Into::into).to_vec();
    options.quiet = true;
    let report = look(&options, Some(OPS), 10);
    assert_eq!((&report.outcome, report.threads), (&Outcome::Exited(0), THREADS), "{name}");
    Some(report)
}

/// The only line, and its accesses per operation.
fn only_line(report: &Report) -> (&LineReport, f64) {
    let [line] = &report.lines[..] else { panic!("{:?}", report.lines) };
    (line, report.write_shared_accesses_per_op.expect("operations are given"))
}

#[test]
fn aarch64_atomic_instructions_are_one_write_each() {
    for name in ["shared", "stadd", "swap", "compare"] {
        let Some(report) = count(name, Window::Auto) else { return };
        let (line, shared) = only_line(&report);
        assert_eq!(shared.to_bits(), 1.0f64.to_bits(), "{name}: {shared}");
        assert_eq!(report.transfers_at_most, THREADS as u64 * OPS, "{name}");
        assert_eq!((line.sharing, line.content.as_str()), (Sharing::True, "atomic"), "{name}");
        assert_eq!((line.reads, line.writes), (0, THREADS as u64 * OPS), "{name}");
        let Object::Static { names, .. } = &line.object else { panic!("{:?}", line.object) };
        assert!(names.iter().any(|known| known.contains("shared_word")), "{names:?}");
        let frames = line.code.iter().flat_map(|code| &code.frames);
        let files: Vec<_> = frames.filter_map(|frame| frame.file.as_deref()).collect();
        assert!(files.iter().any(|file| file.ends_with("aarch64.c")), "{files:?}");
    }
}

#[test]
fn aarch64_exclusive_pairs_are_a_read_and_a_write() {
    let Some(report) = count("exclusive", Window::Auto) else { return };
    let (line, shared) = only_line(&report);
    assert_eq!(shared.to_bits(), 2.0f64.to_bits(), "{shared}");
    assert_eq!((line.reads, line.writes), (THREADS as u64 * OPS, THREADS as u64 * OPS));
    assert_eq!(line.content, "atomic");
}

/// Functions that access the line, innermost frame of each instruction.
fn touched_in(line: &LineReport) -> Vec<&str> {
    line.code.iter().filter_map(|code| Some(code.frames.first()?.function.as_str())).collect()
}

#[test]
fn aarch64_helper_accesses_count_for_the_caller() {
    let Some(report) = count("outlined-add", Window::Auto) else { return };
    let (line, shared) = only_line(&report);
    assert_eq!((shared.to_bits(), line.content.as_str()), (1.0f64.to_bits(), "atomic"));
    assert_eq!(touched_in(line), ["outlined_add"], "{:?}", line.code);
    let file = line.code[0].frames[0].file.as_deref().expect("it has debug information");
    assert!(file.ends_with("aarch64.c"), "{file}");
    let Some(report) = count("outlined-lock", Window::Auto) else { return };
    let line = report.lines.iter().find(|line| line.content == "lock").expect("a lock");
    assert!(touched_in(line).iter().all(|function| *function == "outlined_lock"), "{:?}", line.code);
    // A processor without atomic instructions uses exclusive pairs.
    let Some(report) = count_on("cortex-a57", "outlined-add", Window::Auto) else { return };
    let (line, _) = only_line(&report);
    assert!(
        line.writes >= THREADS as u64 * OPS && line.reads >= line.writes,
        "{} {}",
        line.reads,
        line.writes
    );
    assert!(touched_in(line).iter().all(|function| *function == "outlined_add"), "{:?}", line.code);
}

#[test]
fn aarch64_swapped_and_released_words_are_locks() {
    let Some(report) = count("lock", Window::Auto) else { return };
    let (line, shared) = only_line(&report);
    assert_eq!(shared.to_bits(), 2.0f64.to_bits(), "{shared}");
    assert_eq!(line.content, "lock");
}

#[test]
fn aarch64_only_unpadded_words_share_falsely() {
    let Some(report) = count("padded", Window::Auto) else { return };
    assert_eq!((report.write_shared_accesses, report.transfers_at_most), (0, 0));
    // Each thread also reads the work and the number of operations.
    let all = THREADS as u64 * OPS;
    assert!((all..all + 4 * THREADS as u64).contains(&report.accesses), "{}", report.accesses);
    let Some(report) = count("unpadded", Window::Auto) else { return };
    let (line, shared) = only_line(&report);
    assert_eq!((shared.to_bits(), line.sharing), (2.0f64.to_bits(), Sharing::False));
    assert_eq!(report.falsely_shared_accesses, report.write_shared_accesses);
    assert_eq!((line.words.len(), line.content.as_str()), (THREADS, "data"));
}

#[test]
fn aarch64_function_is_a_window() {
    let Some(report) = count("shared", Window::Function("add".into())) else { return };
    let (line, shared) = only_line(&report);
    assert_eq!((shared.to_bits(), line.writes), (1.0f64.to_bits(), THREADS as u64 * OPS));
}
