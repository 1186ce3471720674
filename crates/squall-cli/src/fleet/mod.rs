//! `squall fleet`: two demos of groups of processes, and two views of a running group.

mod demo;
mod group;
mod list;
mod pages;
mod top;

pub(crate) use self::pages::{COMMAND as PAGES_PROCESS, run_child as run_pages_process};

use clap::{Args, Subcommand};

use crate::output::Failure;

#[derive(Args)]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Call a fleet of several processes while members join, leave and are killed, and balance the books.
    Demo(demo::DemoArgs),
    /// Print the members, names, fleets and shards of a running group.
    Ls(list::ListArgs),
    /// Watch the members, names, fleets and shards of a running group.
    Top(top::TopArgs),
}

pub(crate) fn run(args: &FleetArgs) -> Result<(), Failure> {
    match &args.command {
        Command::Demo(args) => demo::run(args),
        Command::Ls(args) => list::run(args),
        Command::Top(args) => top::run(args),
    }
}
