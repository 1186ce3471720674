//! Runs each program with the allocators in turn, and prints medians with their spread and Squall's ratio to
//! each.
//!
//! Usage: `compare [ROUNDS [PROGRAM...]]`; the default is 15 rounds. Fails if the programs do unequal work.

use squall_bench_programs::{ALLOCATORS, PROGRAMS};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Figures of one run.
#[derive(Clone, Copy)]
struct Run {
    ms: f64,
    cpu_ms: f64,
    kib: f64,
    sum: u64,
}

fn run(folder: &Path, allocator: &str, program: &str) -> Result<Run, String> {
    let name = format!("{allocator} {program}");
    let output = Command::new(folder.join(allocator)).arg(program).output();
    let output = output.map_err(|error| format!("{name}: {error} (build all binaries: --bins)"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words: Vec<&str> = text.split_whitespace().collect();
    let parsed = match words[..] {
        [ms, cpu, kib, sum] if output.status.success() => {
            ms.parse().ok().zip(cpu.parse().ok()).zip(kib.parse().ok()).zip(sum.parse().ok())
        }
        _ => None,
    };
    let (((ms, cpu_ms), kib), sum) = parsed.ok_or_else(|| {
        format!("{name}: {} {text}{}", output.status, String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(Run { ms, cpu_ms, kib, sum })
}

/// The three quartiles.
fn quartiles(mut numbers: Vec<f64>) -> [f64; 3] {
    numbers.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| numbers[(numbers.len() - 1) * quarter / 4])
}

fn compare(folder: &Path, program: &str, rounds: usize) -> Result<(), String> {
    let mut runs: [Vec<Run>; ALLOCATORS.len()] = Default::default();
    for round in 0..=rounds {
        for turn in 0..ALLOCATORS.len() {
            let which = (round + turn) % ALLOCATORS.len();
            let run = run(folder, ALLOCATORS[which], program)?;
            // The first round only warms up the file cache.
            if round > 0 {
                runs[which].push(run);
            }
        }
    }
    let sum = runs[0][0].sum;
    println!("{program}: {rounds} rounds, sum {sum}");
    println!(
        "  {:10} {:>9} {:>19} {:>9} {:>9} {:>29} {:>29}",
        "", "ms", "quartiles", "ms of CPU", "MiB", "squall's time by its", "squall's CPU by its"
    );
    for (allocator, of) in ALLOCATORS.iter().zip(&runs) {
        if let Some(other) = of.iter().find(|run| run.sum != sum) {
            return Err(format!("{program}: the sum with {allocator} is {}, not {sum}", other.sum));
        }
        let [low, ms, high] = quartiles(of.iter().map(|run| run.ms).collect());
        let of_half = |f: fn(&Run) -> f64| quartiles(of.iter().map(f).collect())[1];
        // Ratios are taken within a round, so that other load affects both sides.
        let ratio = |f: fn(&Run) -> f64| {
            let [low, half, high] =
                quartiles(runs[0].iter().zip(of).map(|(ours, theirs)| f(ours) / f(theirs)).collect());
            format!("{half:.3} ({low:.3}-{high:.3})")
        };
        println!(
            "  {allocator:10} {ms:9.1} {low:9.1}-{high:9.1} {:9.0} {:9.1} {:>29} {:>29}",
            of_half(|run| run.cpu_ms),
            of_half(|run| run.kib) / 1024.0,
            ratio(|run| run.ms),
            ratio(|run| run.cpu_ms),
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let rounds = match arguments.next().map(|text| text.parse()) {
        None => 15,
        Some(Ok(rounds)) if rounds > 0 => rounds,
        _ => {
            eprintln!("usage: compare [ROUNDS [PROGRAM...]], of {PROGRAMS:?}");
            return ExitCode::from(2);
        }
    };
    let mut chosen: Vec<String> = arguments.collect();
    if chosen.is_empty() {
        chosen = PROGRAMS.map(str::to_owned).to_vec();
    }
    let folder = match std::env::current_exe().map(|path| path.parent().map(Path::to_path_buf)) {
        Ok(Some(folder)) => folder,
        _ => {
            eprintln!("compare: this program has no path");
            return ExitCode::FAILURE;
        }
    };
    for program in chosen {
        if let Err(error) = compare(&folder, &program, rounds) {
            eprintln!("compare: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
