//! Three programs of size from the package registry, each of which a main function per allocator runs.
//!
//! - `format`: `syn` and `prettyplease` read and write Squall's own sources again and again, on one thread: boxes by the million, of a
//!   tree that is dropped whole.
//! - `script`: the interpreter `rhai` runs a script of strings, arrays, maps and closures, on two threads.
//! - `index`: the search engine `tantivy` indexes documents with two writers, merges, and answers queries, on some eight threads.
//!
//! Each does the same work at every run, and says by a sum that it did.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

mod format;
mod index;
mod script;

/// The names of the programs.
pub const PROGRAMS: [&str; 3] = ["format", "script", "index"];
/// The names of the allocators, each that of a binary.
pub const ALLOCATORS: [&str; 4] = ["squall", "jemalloc", "mimalloc", "glibc"];

/// Numbers that are the same at every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// Runs the program that the first argument names, and prints milliseconds, those of all its threads' running, the most
/// memory that was resident in KiB, and the sum.
pub fn run() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let (elapsed, cpu, sum) = match name.as_str() {
        "format" => {
            timed(format::sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crates")), format::run)
        }
        "script" => timed((), |()| script::run()),
        "index" => timed(index::documents(), index::run),
        _ => {
            eprintln!("usage: PROGRAM, one of {PROGRAMS:?}; not {name:?}");
            return ExitCode::from(2);
        }
    };
    println!("{elapsed:.3} {cpu:.0} {} {sum}", resident_kib_max());
    ExitCode::SUCCESS
}

/// How many milliseconds `f` took, how many its threads ran in it, and what it makes of `input`.
fn timed<T>(input: T, f: impl FnOnce(T) -> u64) -> (f64, f64, u64) {
    let (begin, before) = (Instant::now(), cpu_ms());
    let sum = f(input);
    (begin.elapsed().as_secs_f64() * 1e3, cpu_ms() - before, sum)
}

/// What all threads of this process ran so far, in steps of ten milliseconds.
fn cpu_ms() -> f64 {
    const TICK_MS: f64 = 10.0;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have spaces: proc(5), the fields 14 and 15, and the first is 3.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks * TICK_MS
}

fn resident_kib_max() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
