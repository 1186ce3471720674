//! The processes of the demo: a server of pages, and a client.

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Signal, set_parent_process_death_signal};
use squall::fleet::pool::pages::{PageClient, PageLedger, PageMemory, PageNumber, PageServer};
use squall::fleet::{GroupKey, HostTransport, Name, NodeBuilder};

use crate::output::Failure;

/// The hidden command of a process of the demo.
pub(crate) const COMMAND: &str = "__pages-process";
/// The name of the fleet.
pub(super) const FLEET: &str = "/pages";
/// The longest time for a step of a process.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// A client tells its progress after so many pages.
const TELL_EVERY: u64 = 32;

type Result<T> = std::result::Result<T, Failure>;

fn failed(what: &str) -> impl FnOnce(io::Error) -> Failure + '_ {
    move |error| Failure::new(format!("{what}: {error}"))
}

/// Tells the parent a line. The process ends if the parent has closed the pipe.
fn tell(text: &str) {
    let mut out = io::stdout().lock();
    if out.write_all(format!("{text}\n").as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

/// Runs a process of the demo. Its part is the first line of its input, since arguments are no secret.
pub(crate) fn run() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::new(format!("the process cannot end with its parent: {error}")))?;
    let mut lines = io::stdin().lock().lines().map_while(io::Result::ok);
    let part = lines.next().unwrap_or_default();
    let fields: Vec<&str> = part.split(' ').collect();
    match fields[..] {
        ["server", key, root, endpoint, pages, file, seeds] => {
            serve(key, root, endpoint, pages, file, seeds, &mut lines)
        }
        ["client", key, number, pages, file, seeds] => call(key, number, pages, file, seeds, &mut lines),
        _ => Err(Failure::new("the input is not that of a process of the demo of pages")),
    }
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| Failure::new(format!("{text:?} is malformed in the part of a process")))
}

fn open(file: &str) -> Result<File> {
    let file = File::options().read(true).write(true).open(file);
    file.map_err(failed("the shared memory cannot be opened"))
}

fn seeds(seeds: &str) -> Vec<&str> {
    seeds.split(',').filter(|seed| !seed.is_empty()).collect()
}

fn serve(
    key: &str,
    root: &str,
    endpoint: &str,
    pages: &str,
    file: &str,
    all_seeds: &str,
    lines: &mut dyn Iterator<Item = String>,
) -> Result<()> {
    let ledger = PageLedger::open(&open(file)?, parse(pages)?);
    let ledger = ledger.map_err(failed("the ledger cannot be opened"))?;
    let builder = NodeBuilder::new(parse::<GroupKey>(key)?);
    let transport = HostTransport::bind(endpoint).map_err(failed("there is no transport"))?;
    let (node, root) = if root == "-" {
        let (node, root) = builder.found(transport, &[]).map_err(failed("the group cannot begin"))?;
        tell(&format!("founded {root}"));
        (node, root)
    } else {
        let node = builder.join(transport, &seeds(all_seeds)).map_err(failed("the server cannot join"))?;
        let joined = node.wait_joined(PATIENCE);
        joined.map_err(|error| Failure::new(format!("the server has not joined: {error}")))?;
        (node, parse(root)?)
    };
    let server = PageServer::start(&node, &parse::<Name>(FLEET)?, &root, ledger);
    let server = server.map_err(|error| Failure::new(error.to_string()))?;
    tell("ready");
    for line in lines {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["end", place, key] => {
                let freed = server.end_client(parse(place)?, parse(key)?);
                tell(&format!("ended {}", freed.map_err(|error| Failure::new(error.to_string()))?));
            }
            ["leave"] => {
                let left = server.shutdown(&node, PATIENCE);
                left.map_err(|error| Failure::new(error.to_string()))?;
                let left = node.leave(PATIENCE);
                left.map_err(|error| Failure::new(format!("the server cannot leave: {error}")))?;
                tell("left");
                break;
            }
            _ => break,
        }
    }
    Ok(())
}

/// The stamp of a client in one of its pages.
fn stamp(number: u32, page: PageNumber) -> [u8; 8] {
    let mut stamp = [0; 8];
    stamp[..4].copy_from_slice(&number.to_le_bytes());
    stamp[4..].copy_from_slice(&page.0.to_le_bytes());
    stamp
}

fn call(
    key: &str,
    number: &str,
    pages: &str,
    file: &str,
    all_seeds: &str,
    lines: &mut dyn Iterator<Item = String>,
) -> Result<()> {
    let memory = PageMemory::open(&open(file)?, parse(pages)?);
    let memory = memory.map_err(failed("the pages cannot be mapped"))?;
    let number: u32 = parse(number)?;
    let transport = HostTransport::unnamed().map_err(failed("there is no transport"))?;
    let node = NodeBuilder::new(parse::<GroupKey>(key)?).visit(transport, &seeds(all_seeds));
    let node = Arc::new(node.map_err(failed("the client cannot visit the group"))?);
    let lost = |error: squall::fleet::pool::pages::PageError| Failure::new(error.to_string());
    let client = PageClient::connect(node, &parse::<Name>(FLEET)?, PATIENCE).map_err(lost)?;
    let (place, key) = client.identity();
    tell(&format!("ready {place} {key}"));
    let mut mine: Vec<PageNumber> = Vec::new();
    for line in lines {
        match line.split_once(' ') {
            Some(("take", count)) => {
                let count: u64 = parse(count)?;
                for taken in 1..=count {
                    // All pages that are free may be on their way for a moment.
                    let page = loop {
                        if let Some(page) = client.alloc(PATIENCE).map_err(lost)? {
                            break page;
                        }
                    };
                    memory.zero(page);
                    memory.write(page, 0, &stamp(number, page));
                    mine.push(page);
                    if taken.is_multiple_of(TELL_EVERY) {
                        tell(&format!("at {taken}"));
                    }
                }
                tell("took");
            }
            _ if line == "free" => {
                let is_clobbered = |page: &&PageNumber| {
                    let mut found = [0; 8];
                    memory.read(**page, 0, &mut found);
                    found != stamp(number, **page)
                };
                let clobbered = mine.iter().filter(is_clobbered).count();
                let refused = client.free_batch(&mine, PATIENCE).map_err(lost)?.len();
                mine.clear();
                tell(&format!("freed {clobbered} {refused}"));
            }
            _ => break,
        }
    }
    client.close(PATIENCE).map_err(lost)?;
    tell("closed");
    Ok(())
}
