//! Measures the cost of counting: runs memory-bound programs under the emulator alone and with the plugin.
//!
//! `cargo run --release -p squall-locality --example overhead -- [RUNS] [LIMIT]` prints the smallest of RUNS
//! times (default 3) for each program, and the ratio. It exits with 1 if a ratio exceeds LIMIT (default 25).

use std::collections::HashMap;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio, exit};
use std::time::Instant;

use squall_locality::emulator::Emulator;
use squall_locality::run::{Outcome, run};
use squall_locality::{Options, Window};

/// Programs and their descriptions.
const PROGRAMS: &[(&str, &str)] = &[
    ("nothing", "starts and ends"),
    ("stream", "reads and writes 32 MiB in order, 8 bytes at a time, 4 times"),
    ("strided", "adds to one word of each line of 32 MiB, 32 times"),
    ("random", "adds to 16 million words of 32 MiB at random"),
    ("map", "asks and changes a hash map of 131072 keys 1 million times"),
    ("threads", "the random one, in 4 threads, each in 8 MiB of its own"),
    (
        "blocks",
        "asks for 1 million blocks of 16 to 1039 bytes, writes to each, and gives it back 256 blocks later",
    ),
    ("calls", "adds to one of 4096 words in each of 4 million calls of a function, which is the window"),
    ("clears", "as blocks, each cleared by the C library"),
];

/// Window function of the program `calls`.
const WINDOW: &str = "add_one";

fn main() {
    let words: Vec<String> = std::env::args().collect();
    let number =
        |at: usize, default: f64| words.get(at).map_or(default, |word| word.parse().expect("a number"));
    match words.get(1).map(String::as_str) {
        Some("work") => work(&words[2]),
        _ => compare(number(1, 3.0) as usize, number(2, 25.0)),
    }
}

fn compare(runs: usize, limit: f64) {
    let emulator = Emulator::find(None).unwrap_or_else(|error| {
        println!("SKIP: {error}");
        exit(0)
    });
    let program = std::env::current_exe().expect("the path of this program");
    println!("{}; seconds, the least of {runs}", emulator.version);
    println!("{:8} {:>9} {:>9} {:>7}", "program", "emulated", "counted", "ratio");
    let mut above = false;
    for (name, what) in PROGRAMS {
        let least = |f: &dyn Fn() -> f64| (0..runs).map(|_| f()).fold(f64::INFINITY, f64::min);
        let alone = least(&|| alone(&emulator, &program, name));
        let counted = least(&|| counted(&program, name));
        println!("{name:8} {alone:9.3} {counted:9.3} {:7.1}  {what}", counted / alone);
        above |= counted / alone > limit;
    }
    if above {
        println!("more than {limit} times");
        exit(1);
    }
}

fn alone(emulator: &Emulator, program: &Path, name: &str) -> f64 {
    let begin = Instant::now();
    let status =
        Command::new(&emulator.path).arg(program).args(["work", name]).stdout(Stdio::null()).status();
    assert!(status.expect("a run").success());
    begin.elapsed().as_secs_f64()
}

fn counted(program: &Path, name: &str) -> f64 {
    let window = if name == "calls" { Window::Function(WINDOW.to_owned()) } else { Window::Auto };
    let mut options = Options::new(program);
    options.arguments = vec!["work".into(), name.into()];
    options.window = window;
    options.quiet = true;
    let run = run(&options).expect("a run");
    assert_eq!(run.outcome, Outcome::Exited(0));
    run.seconds
}

const WORDS: usize = 4 << 20;

fn work(name: &str) {
    match name {
        "nothing" => {}
        "stream" => {
            let mut words = vec![0u64; WORDS];
            for round in 0..4 {
                for word in &mut words {
                    *word = black_box(*word) + round;
                }
            }
            black_box(words);
        }
        "strided" => {
            let mut words = vec![0u64; WORDS];
            for _ in 0..32 {
                for word in words.iter_mut().step_by(8) {
                    *word = black_box(*word) + 1;
                }
            }
            black_box(words);
        }
        "random" => random(WORDS, 16_000_000),
        "map" => {
            let mut map = HashMap::new();
            let mut random = 1u64;
            for _ in 0..1_000_000 {
                random = next(random);
                *map.entry(random >> 20 & 0x1_ffff).or_insert(0u64) += random;
            }
            black_box(map);
        }
        "threads" => std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| random(WORDS / 4, 4_000_000));
            }
        }),
        "blocks" => blocks(Vec::with_capacity),
        "clears" => blocks(|bytes| vec![0; bytes]),
        "calls" => {
            let mut words = vec![0u64; 4096];
            let mut random = 1u64;
            for _ in 0..4_000_000 {
                random = next(random);
                add_one(&mut words[(random >> 52) as usize]);
            }
            black_box(words);
        }
        other => panic!("no program {other}"),
    }
}

/// Allocates blocks with room for at least one byte.
fn blocks(mut ask: impl FnMut(usize) -> Vec<u8>) {
    let mut blocks = vec![Vec::new(); 256];
    let mut random = 1u64;
    for i in 0..1_000_000 {
        random = next(random);
        let mut block = ask(16 + (random >> 54) as usize);
        block.clear();
        block.push(i as u8);
        blocks[i % 256] = black_box(block);
    }
}

#[inline(never)]
fn add_one(word: &mut u64) {
    *word = black_box(*word) + 1;
}

fn next(random: u64) -> u64 {
    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

fn random(count: usize, times: usize) {
    let mut words = vec![0u64; count];
    let mut random = 1u64;
    for _ in 0..times {
        random = next(random);
        words[(random >> 33) as usize % count] += 1;
    }
    black_box(words);
}
