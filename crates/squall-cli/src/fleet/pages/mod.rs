//! `squall fleet demo pages`: processes allocate pages of one segment from a fleet of servers, which grows,
//! shrinks and loses a server meanwhile.
//!
//! The clients take pages as in the thesis: in even shares, from 20 to 180 % of a share, light and heavy by
//! turns, and so in two phases. Each writes its stamp into its pages, and finds it there before it frees
//! them. Then a client is killed with its pages: the books name them, and a server frees them. All that is
//! repeated until the time is over.
//!
//! - I1. After each phase, the books say that each client has the pages that it took. After the frees, all
//!   pages are free, except those of a killed client. At the end, a client gets each page once. A difference
//!   makes the demo fail.
//! - I2. The demo leaves no process, no socket and no shared memory.

mod child;
mod process;

pub(crate) use self::child::{COMMAND, run as run_child};

use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use squall::fleet::pool::pages::{PageBooks, PageClient, PageLedger, PageMemory};
use squall::fleet::{GroupKey, HostTransport, Name, NodeBuilder};
use squall_bench::pool::Load;
use squall_stress::fleets::check_gone;

use self::child::{FLEET, PATIENCE};
use self::process::Process;
use crate::output::{Failure, line};

#[derive(Args)]
pub(crate) struct PagesArgs {
    /// Number of servers at the start.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(3..=16))]
    servers: u32,
    /// Number of client processes.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=24))]
    clients: u32,
    /// Number of pages for each server at the start. The thesis has 65,536.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(256..=65_536))]
    pages: u32,
    /// Duration of the loads in seconds. Each load runs at least once.
    #[arg(long, value_name = "S", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    seconds: u64,
}

/// A change of the fleet, halfway through a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    Start,
    /// The oldest server leaves: it has filled the pool.
    Leave,
    /// The oldest server is killed.
    Kill,
}

struct Demo {
    began: Instant,
    prefix: String,
    key: GroupKey,
    root: Option<String>,
    ledger: PageLedger,
    ledger_file: OwnedFd,
    memory_file: OwnedFd,
    pages: u32,
    servers: Vec<Process>,
    started: u32,
    /// The client processes, with their places and keys in the books.
    clients: Vec<Client>,
}

struct Client {
    process: Process,
    place: u32,
    key: u32,
}

pub(super) fn run(args: &PagesArgs) -> Result<(), Failure> {
    let pages = args.servers * args.pages;
    let failed = |error: std::io::Error| Failure::new(format!("there is no shared memory: {error}"));
    let (memory, memory_file) = PageMemory::create(pages).map_err(failed)?;
    let (ledger, ledger_file) = PageLedger::create(pages).map_err(failed)?;
    let mut demo = Demo {
        began: Instant::now(),
        prefix: format!("demo-pages-{}", std::process::id()),
        key: GroupKey::random(),
        root: None,
        ledger,
        ledger_file,
        memory_file,
        pages,
        servers: Vec::new(),
        started: 0,
        clients: Vec::new(),
    };
    line(format_args!("{pages} pages of 4 KiB in one segment, all at the first server."))?;
    for _ in 0..args.servers {
        demo.start_server()?;
    }
    for number in 0..args.clients {
        let client = demo.start_client(number)?;
        demo.clients.push(client);
    }
    line(format_args!("{} servers and {} clients are processes of their own.", args.servers, args.clients))?;
    let loads_began = Instant::now();
    loop {
        demo.run_loads(args)?;
        demo.kill_client(u64::from(pages / args.clients / 2))?;
        if loads_began.elapsed() >= Duration::from_secs(args.seconds) {
            break;
        }
    }
    let prefix = demo.prefix.clone();
    demo.end()?;
    drop(memory);
    check_gone(&prefix).map_err(Failure::new)?;
    line("The books balance. No process, socket or memory is left.")
}

/// The pages per client that a load leaves, as in the thesis for a pool of another size.
fn left(args: &PagesArgs) -> u64 {
    (u64::from(args.pages) * 256).div_ceil(65_536) * u64::from(args.servers)
}

/// The path by which other processes of this user open a file of this process.
fn path(file: &OwnedFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

impl Client {
    /// Returns the number of its pages in the books.
    fn held(&self, books: &PageBooks) -> u32 {
        books.clients.iter().find(|holder| holder.key == self.key).map_or(0, |holder| holder.pages)
    }
}

impl Demo {
    fn seeds(&self) -> String {
        let names: Vec<&str> = self.servers.iter().map(Process::name).collect();
        names.iter().map(|name| format!("host/{name}")).collect::<Vec<_>>().join(",")
    }

    fn tell(&self, text: &str) -> Result<(), Failure> {
        let books = self.ledger.books();
        let held: Vec<String> = self.clients.iter().map(|it| it.held(&books).to_string()).collect();
        line(format_args!(
            "{:7.2} s  {text:<34} {:>6} free  clients {}",
            self.began.elapsed().as_secs_f64(),
            books.free,
            held.join(" ")
        ))
    }

    fn start_server(&mut self) -> Result<(), Failure> {
        let name = format!("{}-{}", self.prefix, self.started);
        self.started += 1;
        let root = self.root.as_deref().unwrap_or("-");
        let (key, pages, file, seeds) = (self.key, self.pages, path(&self.ledger_file), self.seeds());
        let part = format!("server {key} {root} {name} {pages} {file} {seeds}");
        let server = Process::start(name, &part)?;
        if self.root.is_none() {
            self.root = Some(server.expect("founded")?);
        }
        server.expect("ready")?;
        self.servers.push(server);
        Ok(())
    }

    fn start_client(&self, number: u32) -> Result<Client, Failure> {
        let (key, pages, file, seeds) = (self.key, self.pages, path(&self.memory_file), self.seeds());
        let part = format!("client {key} {number} {pages} {file} {seeds}");
        let process = Process::start(format!("client {number}"), &part)?;
        let identity = process.expect("ready")?;
        let parsed =
            identity.split_once(' ').and_then(|(place, key)| place.parse().ok().zip(key.parse().ok()));
        let (place, key) =
            parsed.ok_or_else(|| Failure::new(format!("{} has no place: {identity:?}", process.name())))?;
        Ok(Client { process, place, key })
    }

    /// Runs each load once, with a change of the fleet in each.
    fn run_loads(&mut self, args: &PagesArgs) -> Result<(), Failure> {
        let events = [Event::Start, Event::Leave, Event::Kill, Event::Start];
        for (load, event) in Load::ALL.into_iter().zip(events) {
            let mut event = Some(event);
            for counts in load.counts(u64::from(self.pages), left(args), left(args), args.clients as usize) {
                self.take(load, &counts, event.take())?;
                self.free(0)?;
            }
        }
        Ok(())
    }

    /// Kills a client that has pages. The books name them, and a server frees them.
    fn kill_client(&mut self, pages: u64) -> Result<(), Failure> {
        let counts = vec![pages; self.clients.len()];
        self.take(Load::Uniform, &counts, None)?;
        let Client { process, place, key } = self.clients.remove(0);
        process.kill()?;
        self.free(pages)?;
        let books = self.ledger.books();
        let dead = books.clients.iter().find(|holder| holder.key == key);
        let dead = dead.ok_or_else(|| Failure::new("the books do not name the killed client"))?;
        self.tell(&format!("a client is killed with {} pages", dead.pages))?;
        let server = &mut self.servers[0];
        server.say(&format!("end {place} {key}"))?;
        let ended = server.expect("ended")?;
        if ended != pages.to_string() {
            return Err(Failure::new(format!("a server freed {ended} pages of a client that had {pages}")));
        }
        // A new client has the number of the killed one, and its stamp.
        let client = self.start_client(0)?;
        self.clients.insert(0, client);
        self.tell("a server has freed them")?;
        self.check_free(0)
    }

    fn act(&mut self, event: Event) -> Result<(), Failure> {
        match event {
            Event::Start => {
                self.start_server()?;
                self.tell("a server has joined")
            }
            Event::Leave => {
                let mut server = self.servers.remove(0);
                server.say("leave")?;
                server.expect("left")?;
                self.tell("the oldest server has left")
            }
            Event::Kill => {
                self.servers.remove(0).kill()?;
                self.tell("the oldest server is killed")
            }
        }
    }

    /// Lets the clients take so many pages, and compares the books.
    fn take(&mut self, load: Load, counts: &[u64], mut event: Option<Event>) -> Result<(), Failure> {
        for (client, count) in self.clients.iter_mut().zip(counts) {
            client.process.say(&format!("take {count}"))?;
        }
        for (at, count) in counts.iter().enumerate().take(self.clients.len()) {
            loop {
                let heard = self.clients[at].process.hear()?;
                let (word, number) = heard.split_once(' ').unwrap_or((&heard, ""));
                let is_halfway = word == "took" || number.parse::<u64>().is_ok_and(|it| it * 2 > *count);
                if is_halfway && let Some(event) = event.take() {
                    self.act(event)?;
                }
                match word {
                    "at" => {}
                    "took" => break,
                    _ => {
                        let name = self.clients[at].process.name();
                        return Err(Failure::new(format!("{name} says {heard:?}")));
                    }
                }
            }
        }
        self.tell(&format!("{} load: all pages taken", load.name()))?;
        let books = self.ledger.books();
        for (client, count) in self.clients.iter().zip(counts) {
            let (name, held) = (client.process.name(), u64::from(client.held(&books)));
            if held != *count {
                return Err(Failure::new(format!("{name} took {count} pages, and the books have {held}")));
            }
        }
        Ok(())
    }

    /// Lets the clients free all their pages, and compares the books. A killed client has so many pages.
    fn free(&mut self, of_killed: u64) -> Result<(), Failure> {
        for client in &mut self.clients {
            client.process.say("free")?;
        }
        for Client { process, .. } in &self.clients {
            let freed = process.expect("freed")?;
            if freed != "0 0" {
                let why = format!("{}: pages overwritten by others, and not freed: {freed}", process.name());
                return Err(Failure::new(why));
            }
        }
        if of_killed == 0 {
            self.tell("  all pages freed")?;
        }
        self.check_free(of_killed)
    }

    fn check_free(&self, of_killed: u64) -> Result<(), Failure> {
        let free = u64::from(self.ledger.books().free);
        match free + of_killed == u64::from(self.pages) {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "{free} pages of {} are free, and a killed client had {of_killed}",
                self.pages
            ))),
        }
    }

    /// Takes each page once, and ends all processes.
    fn end(mut self) -> Result<(), Failure> {
        for Client { mut process, .. } in std::mem::take(&mut self.clients) {
            process.say("close")?;
            process.expect("closed")?;
        }
        let seeds = self.seeds();
        let seeds: Vec<&str> = seeds.split(',').collect();
        let visitor = HostTransport::unnamed()
            .and_then(|transport| NodeBuilder::new(self.key).visit(transport, &seeds))
            .map_err(|error| Failure::new(format!("the group cannot be visited: {error}")))?;
        let lost = |error: squall::fleet::pool::pages::PageError| Failure::new(error.to_string());
        let fleet: Name = FLEET.parse().map_err(|_| Failure::new("the name of the fleet is malformed"))?;
        let client = PageClient::connect(Arc::new(visitor), &fleet, PATIENCE).map_err(lost)?;
        let mut found = BTreeSet::new();
        while let Some(page) = client.alloc(PATIENCE).map_err(lost)? {
            if !found.insert(page) {
                return Err(Failure::new(format!("{page} was given out twice")));
            }
        }
        client.close(PATIENCE).map_err(lost)?;
        drop(client);
        let books = self.ledger.books();
        if found.len() != self.pages as usize || books.free != self.pages || !books.clients.is_empty() {
            return Err(Failure::new(format!(
                "{} pages of {} were found: {books:?}",
                found.len(),
                self.pages
            )));
        }
        line(format_args!("A last client got each of the {} pages once.", self.pages))
    }
}
