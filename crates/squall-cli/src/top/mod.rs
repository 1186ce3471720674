//! `squall top PID`: shows and controls the objects of a running program through its inspection server.
//!
//! On a terminal it opens a screen (`screen.rs`; `state.rs` and `draw.rs` do not depend on a terminal). With
//! `--once` or without a terminal it prints a table. With `--json` it prints lines for scripts. With an
//! option that names an object it runs one command and ends (`command.rs`).

mod args;
mod command;
mod draw;
mod fit;
mod keys;
mod nodes;
mod print;
mod records;
mod screen;
mod state;
#[cfg(test)]
mod tests;
mod text;
mod watch;

use std::io::IsTerminal;

use squall::browse::Client;

use crate::output::Failure;
use args::TIMEOUT;
pub(crate) use args::TopArgs;
use watch::Watch;

pub(crate) fn run(args: &TopArgs) -> Result<(), Failure> {
    let mut client = Client::connect_within(&args.target, TIMEOUT)?;
    client.set_author(squall::browse::author("squall top"));
    if let Some(command) = command::parse(&args.command)? {
        return command::run(&mut client, &command, args);
    }
    let mut watch = Watch::new(args.limit as usize, args.interface.clone(), args.name.clone());
    if args.json && !args.once {
        return print::stream(&mut client, &mut watch, args);
    }
    if args.json || args.once || !std::io::stdout().is_terminal() {
        return print::once(&mut client, &mut watch, args);
    }
    screen::run(client, watch, args)
}
