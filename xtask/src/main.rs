//! Checks of the repository that a machine can do, each one command:
//!
//! - `cargo run -p xtask -- tidy` checks the rules of STYLE.md that are marked T. `cargo test -p xtask` runs
//!   it too.
//! - `cargo run -p xtask -- imports` prints the circles of imports between files.
//! - `cargo run -p xtask -- sharing` counts the accesses per operation to cache lines that several threads
//!   write.
//! - `cargo run -p xtask -- instructions` counts the instructions of one operation.
//! - `cargo run -p xtask -- compile-cost` measures the cost of compiling programs that use Squall.
//! - `cargo run -p xtask -- locality-model` compares the profiler's model of sharing with measured times.
//! - `cargo run -p xtask -- mutations` breaks the protocols and checks that a test fails.
//! - `cargo run -p xtask -- header` writes the C header of the pool; `--check` compares it.
//! - `cargo run -p xtask -- vm` boots emulated machines of many processors and runs the stresses on them.
//!
//! A command exits with 0 if its check holds and with 1 if it fails. A check that lacks its instrument prints
//! a line that begins with `SKIP`, and does not fail.

#![forbid(unsafe_code)]

#[cfg(all(test, squall_global_alloc))]
use squall_alloc as _;

mod compile_cost;
mod header;
mod instructions;
mod model;
mod mutations;
mod sharing;
mod shell;
mod tidy;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(about = "Checks of the repository that a machine can do")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks the rules of STYLE.md that are marked T
    Tidy(tidy::Options),
    /// Prints the circles of imports between the files of each crate, and the edges to cut
    Imports {
        /// The crate; all crates if absent
        name: Option<String>,
    },
    /// Counts accesses per operation to cache lines that several threads write, under emulation
    Sharing(sharing::Options),
    /// Compares the profiler's model of the cost of sharing with measured times, by rank
    LocalityModel(model::Options),
    /// Counts the instructions of one operation with callgrind
    Instructions(instructions::Options),
    /// Measures the processor time, memory and binary size of builds, beside those of other crates
    CompileCost(compile_cost::Options),
    /// Breaks the protocols, one line at a time, and checks that a test fails
    Mutations(mutations::Options),
    /// Writes the C header of the pool, or checks it
    Header(header::Options),
    /// Boots emulated machines of many processors and runs the stresses on them
    Vm(vm::Options),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Tidy(options) => tidy::command(&options),
        Task::Imports { name } => tidy::imports_command(name.as_deref()),
        Task::Sharing(options) => sharing::command(&options),
        Task::LocalityModel(options) => model::command(&options),
        Task::Instructions(options) => instructions::command(&options),
        Task::CompileCost(options) => compile_cost::command(&options),
        Task::Mutations(options) => mutations::command(&options),
        Task::Header(options) => header::command(&options),
        Task::Vm(options) => vm::command(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
