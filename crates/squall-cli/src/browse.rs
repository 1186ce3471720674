//! `squall browse PID|NAME`: a web page of a running program's objects, over the socket of `squall top`.

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use squall::browse::{Target, programs};
use squall_web::{End, Options, Print, Site, WebError};

use crate::output::{Failure, line, printable, printable_json};

#[derive(Args)]
pub(crate) struct BrowseArgs {
    /// The process, by its number, by the name of its program, or by the path of its socket. The program must
    /// call `squall::browse::serve()`.
    #[arg(value_name = "PID|NAME")]
    target: String,
    /// Port on 127.0.0.1; 0 takes a free port. Other machines cannot connect.
    #[arg(long, value_name = "P", default_value_t = 0)]
    port: u16,
    /// Print JSON, one object per line: the address, then all objects, then each object that changes. An
    /// object that is gone has the state "gone". A line {"lost": REASON} says that there is no connection
    /// now, and {"lost": null} that there is one again.
    #[arg(long)]
    json: bool,
    /// Refuse all changes from the page. It cannot count calls either, because a count slows these calls.
    #[arg(long)]
    read_only: bool,
    /// Shortest time between two polls in milliseconds, while a page or a script reads.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(50..=60_000))]
    interval: u64,
}

/// Serves the page until the program ends. The first line of the output is the address, with its token.
pub(crate) fn run(args: &BrowseArgs) -> Result<(), Failure> {
    let site = Site::open(Options {
        target: find(&args.target)?,
        port: args.port,
        read_only: args.read_only,
        interval: Duration::from_millis(args.interval),
        timeout: Duration::from_secs(10),
        author: squall::browse::author("squall browse"),
    })?;
    let print: Option<Print> = if args.json {
        line(serde_json::json!({ "address": site.address() }))?;
        Some(Box::new(|row| {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", printable_json(row))?;
            out.flush()
        }))
    } else {
        line(site.address())?;
        None
    };
    match site.serve(print)? {
        // The program ended while it was watched. That is a success.
        End::Program(ended) => eprintln!("squall: {}", printable(&ended)),
        End::Output(error) => return Err(error.into()),
        other => return Err(Failure::new(format!("the server ended: {other:?}"))),
    }
    Ok(())
}

/// Returns the program that a number, a path or a name means.
fn find(text: &str) -> Result<Target, Failure> {
    if let Ok(target) = text.parse() {
        return Ok(target);
    }
    let serving = programs();
    let of_name: Vec<_> = serving.iter().filter(|program| program.program == text).collect();
    let list = |numbers: Vec<String>| numbers.join(", ");
    match of_name.as_slice() {
        [program] => Ok(Target::Process(program.pid)),
        [] if serving.is_empty() => Err(Failure::new(format!(
            "no program of this user serves inspection, so none is named {text:?} (a program enables it with \
             squall::browse::serve())"
        ))),
        [] => {
            let known = serving.iter().map(|known| format!("{} ({})", known.program, known.pid)).collect();
            Err(Failure::new(format!(
                "no program named {text:?} serves inspection; these serve it: {}",
                list(known)
            )))
        }
        several => {
            let pids = several.iter().map(|program| program.pid.to_string()).collect();
            Err(Failure::new(format!("several programs are named {text:?}; give a number: {}", list(pids))))
        }
    }
}

impl From<WebError> for Failure {
    fn from(error: WebError) -> Failure {
        Failure::new(error.to_string())
    }
}
