//! Checks of the repository that a machine can do, each one command:
//!
//! - `cargo run -p xtask -- tidy`: the rules of STYLE.md that are marked T. `cargo test -p xtask` runs them too.
//! - `cargo run -p xtask -- sharing`: counts the accesses per operation to lines that several threads write.
//! - `cargo run -p xtask -- instructions`: counts the instructions of one operation.
//! - `cargo run -p xtask -- vm`: boots emulated machines of many processors and runs the stresses on them.
//!
//! A command exits with 0 when what it checks holds, with 1 when it does not. What cannot be checked here, because an
//! instrument is missing, is named on a line of its own that begins with `SKIP`, and is no failure.

#![forbid(unsafe_code)]

#[cfg(all(test, squall_global_alloc))]
use squall_alloc as _;

mod instructions;
mod model;
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
    /// Prints the circles of imports between the files of each crate, and the edges that make them
    Imports {
        /// The crate; all crates if absent
        name: Option<String>,
    },
    /// Counts accesses per operation to cache lines that several threads write, under emulation
    Sharing(sharing::Options),
    /// Holds the profiler's model of what sharing costs against measured times, by rank
    LocalityModel(model::Options),
    /// Counts the instructions of one operation, by callgrind
    Instructions(instructions::Options),
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
