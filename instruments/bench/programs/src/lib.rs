//! Three large programs from the package registry; each is run by one main function per allocator.
//!
//! - `format`: `syn` and `prettyplease` read and write Squall's own sources repeatedly, on one thread. They
//!   allocate boxes by the million, of trees that are dropped whole.
//! - `script`: the interpreter `rhai` runs a script of strings, arrays, maps and closures, on two threads.
//! - `index`: the search engine `tantivy` indexes documents with two writers, merges, and answers queries, on
//!   some eight threads.
//!
//! Each does equal work in every run, and proves it by a sum.

#![forbid(unsafe_code)]

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

mod format;
mod index;
mod script;

/// The names of the programs.
pub const PROGRAMS: [&str; 3] = ["format", "script", "index"];
/// The names of the allocators, each the name of a binary.
pub const ALLOCATORS: [&str; 4] = ["squall", "jemalloc", "mimalloc", "glibc"];

/// Pseudo-random numbers, equal in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % bound
    }
}

/// Runs the program named by the first argument. Prints its milliseconds, the processor milliseconds of all
/// its threads, the peak resident memory in KiB, and the sum.
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

/// Runs `f` on `input`. Returns its milliseconds, the processor milliseconds of its threads, and its result.
fn timed<T>(input: T, f: impl FnOnce(T) -> u64) -> (f64, f64, u64) {
    let (begin, before) = (Instant::now(), cpu_ms());
    let sum = f(input);
    (begin.elapsed().as_secs_f64() * 1e3, cpu_ms() - before, sum)
}

/// Processor time of all threads of this process so far, in steps of ten milliseconds.
fn cpu_ms() -> f64 {
    const TICK_MS: f64 = 10.0;
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name, which may contain spaces: proc(5), fields 14 and 15; the first here is 3.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks * TICK_MS
}

fn resident_kib_max() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
