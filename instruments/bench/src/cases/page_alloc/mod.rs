//! `page-alloc`: clients take pages of 4 KiB, write the first byte of each, and free them all at the end.
//!
//! The load is the uniform one of the thesis: each client takes 63 of 64 pages of an even share. A client is
//! a thread of this process. A rate is the sum of all pages divided by the time of the slowest client. Takes
//! and frees are timed apart. Source: Wentzlaff, *fos*, 2012, §6.2, figure 6-7.
//!
//! - `kernel`: a client maps its share of anonymous memory, and touches it. Each page is a page fault, and
//!   the kernel fills it with zeros. Free unmaps the share.
//! - `squall-pool`: the pool of `squall::objects::pages`, distributed. Its pages stay in the process. A take
//!   fills the page with zeros.
//! - `squall-service`: a fleet of one page server, `squall_pool::pages`, at a node of its own. A take is a
//!   call of the server, and fills the page with zeros. The shared memory is resident. A free is a call, too.
//! - `squall-service-batch`: the same server. A free is a call for 1024 pages. No call takes several pages,
//!   so its takes are those of `squall-service`.
//! - `squall-service-2`: a fleet of two such servers. The first one has all pages at the start.
//!
//! Nodes, servers and clients are threads of this process, and talk over `HostTransport` as processes do. So
//! clients share one address space, and calls switch between threads alone.
//!
//! - I1. Between takes and frees, each first byte is the number of its client. So no page has two holders.
//! - I2. Each round has a turn of each subject. Their order rotates by one in each round.

mod service;

use std::sync::Barrier;
use std::time::Instant;

use squall::Owned;
use squall::objects::pages::{self, Page, PagePool, PagePoolExt, Supply};

use crate::case::{Case, PLAIN, Scale, Setting, Variant};
use crate::harness::{median, paired_ratio, spread};
use crate::rivals::kernel_pages::Anonymous;
use service::{Fleet, Frees};

pub(super) static CASE: Case = Case {
    name: "page-alloc",
    about: "a page of 4 KiB taken, its first byte written: the kernel, a pool, and servers of pages",
    variants: &[Variant { threads_are: "client", ..PLAIN }],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[],
};

const PAGE_BYTES: usize = 4096;

/// Pages of all clients and counted rounds: in a full run, and in a quick one.
const FULL: (usize, usize) = (8192, 15);
const QUICK: (usize, usize) = (1024, 5);

/// A client of an allocator of pages.
trait Client: Send {
    /// Takes so many pages, and writes this byte to the begin of each.
    fn take(&mut self, pages: usize, stamp: u8) -> Result<(), String>;
    /// Number of its pages that begin with this byte.
    fn stamped(&mut self, stamp: u8) -> usize;
    /// Frees all its pages.
    fn free(&mut self) -> Result<(), String>;
    /// Ends the client.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The kernel: a share of anonymous memory.
#[derive(Default)]
struct Kernel(Option<Anonymous>);

impl Client for Kernel {
    fn take(&mut self, pages: usize, stamp: u8) -> Result<(), String> {
        let mapped = Anonymous::new(pages * PAGE_BYTES);
        let mut mapped = mapped.map_err(|error| format!("the kernel maps no memory: {error}"))?;
        mapped.bytes().chunks_exact_mut(PAGE_BYTES).for_each(|page| page[0] = stamp);
        self.0 = Some(mapped);
        Ok(())
    }

    fn stamped(&mut self, stamp: u8) -> usize {
        let bytes = self.0.as_mut().map_or(&mut [][..], Anonymous::bytes);
        bytes.chunks_exact(PAGE_BYTES).filter(|page| page[0] == stamp).count()
    }

    fn free(&mut self) -> Result<(), String> {
        self.0 = None;
        Ok(())
    }
}

/// The pool of pages of this process.
struct Pool<'pool> {
    pool: &'pool Owned<dyn PagePool>,
    held: Vec<Page>,
}

impl Client for Pool<'_> {
    fn take(&mut self, pages: usize, stamp: u8) -> Result<(), String> {
        for _ in 0..pages {
            let mut page = self.pool.get_zeroed().ok_or("the pool has too few pages")?;
            page[0] = stamp;
            self.held.push(page);
        }
        Ok(())
    }

    fn stamped(&mut self, stamp: u8) -> usize {
        self.held.iter().filter(|page| page[0] == stamp).count()
    }

    fn free(&mut self) -> Result<(), String> {
        self.held.clear();
        Ok(())
    }
}

/// A subject while it is measured: its clients, and the pages per millisecond of each round.
struct Entrant<'a> {
    name: &'static str,
    clients: Vec<Box<dyn Client + 'a>>,
    takes: Vec<f64>,
    frees: Vec<f64>,
}

impl<'a> Entrant<'a> {
    fn new<C: Client + 'a>(name: &'static str, clients: impl IntoIterator<Item = C>) -> Entrant<'a> {
        let clients = clients.into_iter().map(|client| Box::new(client) as Box<dyn Client + 'a>);
        Entrant { name, clients: clients.collect(), takes: Vec::new(), frees: Vec::new() }
    }

    /// Runs a round, in which each client takes so many pages.
    fn run(&mut self, each: usize) -> Result<(f64, f64), String> {
        let (barrier, all) = (Barrier::new(self.clients.len()), (self.clients.len() * each) as f64);
        let ended: Vec<Result<(f64, f64), String>> = std::thread::scope(|scope| {
            let barrier = &barrier;
            let spawn = |(number, client)| {
                let client: &mut Box<dyn Client + 'a> = client;
                scope.spawn(move || turn(&mut **client, each, number as u8 + 1, barrier))
            };
            let threads: Vec<_> = self.clients.iter_mut().enumerate().map(spawn).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err("a client panicked".to_owned()))
            };
            threads.into_iter().map(join).collect()
        });
        let ended = ended.into_iter().collect::<Result<Vec<_>, _>>();
        let ended = ended.map_err(|why| format!("case page-alloc, subject {}: {why}", self.name))?;
        let slowest = |ms: fn(&(f64, f64)) -> f64| ended.iter().map(ms).fold(0.0, f64::max);
        Ok((all / slowest(|it| it.0), all / slowest(|it| it.1)))
    }
}

/// The turn of a client in a round. Returns the milliseconds of its takes and of its frees.
fn turn(client: &mut dyn Client, pages: usize, stamp: u8, barrier: &Barrier) -> Result<(f64, f64), String> {
    barrier.wait();
    let began = Instant::now();
    let taken = client.take(pages, stamp);
    let took = began.elapsed();
    // All clients have their pages, so one that has another's page finds another byte. A client that failed
    // waits too, so that the others go on.
    barrier.wait();
    let stamped = client.stamped(stamp);
    barrier.wait();
    let began = Instant::now();
    let freed = client.free();
    let free = began.elapsed();
    taken.and(freed)?;
    if stamped != pages {
        return Err(format!("a client took {pages} pages, and {stamped} of them begin with its number"));
    }
    Ok((took.as_secs_f64() * 1e3, free.as_secs_f64() * 1e3))
}

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let (clients, (pages, rounds)) = (setting.threads, if quick { QUICK } else { FULL });
    let each = pages / clients * 63 / 64;
    if each == 0 || clients > usize::from(u8::MAX) {
        return Err(format!("the case page-alloc cannot have {clients} clients; choose at most 255"));
    }
    let pool = pages::distributed(Supply::system(pages));
    let [one, two] = [Fleet::start(1, pages)?, Fleet::start(2, pages)?];
    let mut entrants = [
        Entrant::new(KERNEL, (0..clients).map(|_| Kernel::default())),
        Entrant::new("squall-pool", (0..clients).map(|_| Pool { pool: &pool, held: Vec::new() })),
        Entrant::new("squall-service", one.clients(clients, Frees::Single)?),
        Entrant::new("squall-service-batch", one.clients(clients, Frees::Batch)?),
        Entrant::new("squall-service-2", two.clients(clients, Frees::Single)?),
    ];
    let count = entrants.len();
    // The first round is not counted: code, sockets and the pages of the pool are cold.
    for round in 0..=rounds {
        for place in 0..count {
            let entrant = &mut entrants[(place + round) % count];
            let (takes, frees) = entrant.run(each)?;
            if round > 0 {
                entrant.takes.push(takes);
                entrant.frees.push(frees);
            }
        }
    }
    for entrant in &mut entrants {
        entrant.clients.iter_mut().try_for_each(|client| client.close())?;
    }
    let mut metrics = Vec::new();
    for entrant in &entrants {
        let columns = [
            ("takes_per_ms", median(&entrant.takes)),
            ("takes_spread", spread(&entrant.takes)),
            ("takes_of_kernel", paired_ratio(&entrant.takes, &entrants[0].takes)),
            ("frees_per_ms", median(&entrant.frees)),
            ("frees_spread", spread(&entrant.frees)),
        ];
        metrics.extend(columns.map(|(column, value)| (format!("{}/{column}", entrant.name), value)));
    }
    drop(entrants);
    one.end()?;
    two.end()?;
    Ok(metrics)
}

/// Name of the subject that the others are compared with.
const KERNEL: &str = "kernel";

#[cfg(test)]
mod tests {
    use super::*;

    /// A round fails if a page has two holders.
    #[test]
    fn two_clients_with_one_page_are_found() {
        struct Same<'a>(&'a std::sync::atomic::AtomicU8);
        impl Client for Same<'_> {
            fn take(&mut self, _: usize, stamp: u8) -> Result<(), String> {
                self.0.store(stamp, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
            fn stamped(&mut self, stamp: u8) -> usize {
                usize::from(self.0.load(std::sync::atomic::Ordering::Relaxed) == stamp)
            }
            fn free(&mut self) -> Result<(), String> {
                Ok(())
            }
        }
        let byte = std::sync::atomic::AtomicU8::new(0);
        let why = Entrant::new("same", [Same(&byte), Same(&byte)]).run(1).expect_err("two holders");
        assert!(why.contains("subject same") && why.contains("0 of them"), "{why}");
        assert!(Entrant::new("same", [Same(&byte)]).run(1).is_ok());
    }

    #[test]
    fn each_subject_has_its_figures_with_one_and_with_two_clients() {
        for threads in [1, 2] {
            let setting = Setting { threads, variant: &CASE.variants[0], counted: false };
            let metrics = measure(&setting, true).expect("figures");
            assert_eq!(metrics.len(), 5 * 5);
            let is_count = |(name, value): &(String, f64)| name.ends_with("spread") || *value > 0.0;
            assert!(metrics.iter().all(is_count), "{metrics:?}");
        }
    }

    #[test]
    fn more_clients_than_pages_are_refused() {
        let setting = Setting { threads: 256, variant: &CASE.variants[0], counted: false };
        assert!(measure(&setting, true).expect_err("256 clients").contains("at most 255"));
    }
}
