//! Statistics of a server with a thousand routes: a few are busy, and others are busy later.
//!
//! Each route counts its requests and bytes with adaptive counters. All counters start as one word, which is
//! small. The engine distributes the counters that several processors share, and shrinks them again when
//! their load ends. The totals are exact at the end. The log shows each decision and its reason.
//!
//! `cargo run --release -p squall --example adaptive_stats`

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use squall::adapt::control::{self, Verdict};
use squall::adapt::settings;
use squall::objects::counter::{self, Counter};
use squall::prelude::*;

const ROUTES: usize = 1000;
const WORKERS: usize = 4;

/// The statistics of one route, as its handler holds them: two handles, `Copy`.
#[derive(Clone, Copy)]
struct Route {
    requests: Handle<dyn Counter>,
    bytes: Handle<dyn Counter>,
}

/// The owners of all counters.
struct Stats(Vec<(Owned<dyn Counter>, Owned<dyn Counter>)>);

impl Stats {
    fn new() -> Stats {
        Stats((0..ROUTES).map(|_| (counter::adaptive(), counter::adaptive())).collect())
    }

    fn route(&self, index: usize) -> Route {
        let (requests, bytes) = &self.0[index];
        Route { requests: requests.handle(), bytes: bytes.handle() }
    }

    /// Requests and bytes of all routes.
    fn total(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(r, b), (requests, bytes)| (r + requests.total(), b + bytes.total()))
    }

    /// Bytes of memory that all counters take.
    fn memory(&self) -> usize {
        let of = |counter: &Owned<dyn Counter>| {
            squall::info_of(Handle::id(counter.handle())).map_or(0, |info| info.bytes)
        };
        self.0.iter().map(|(requests, bytes)| of(requests) + of(bytes)).sum()
    }
}

/// Serves requests until `stop` is set: nine in ten for the four popular routes, the others for any route.
fn serve(stats: &Stats, popular: &AtomicUsize, stop: &AtomicBool, seed: u64) -> (u64, u64) {
    let routes: Vec<Route> = (0..ROUTES).map(|index| stats.route(index)).collect();
    let (mut state, mut served) = (seed | 1, (0, 0));
    while !stop.load(Ordering::Relaxed) {
        // xorshift: a fast random number.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let any = (state >> 8) as usize;
        let index =
            if state.is_multiple_of(10) { any % ROUTES } else { popular.load(Ordering::Relaxed) + any % 4 };
        let bytes = 200 + state % 1000;
        routes[index].requests.inc();
        routes[index].bytes.add(bytes);
        served = (served.0 + 1, served.1 + bytes);
    }
    served
}

fn main() -> Result<(), Box<dyn Error>> {
    // Counters shrink after 0.3 s without load, so that this short program shows it.
    settings::ALL.set(&settings::QUIET, Duration::from_millis(300))?;
    let stats = Stats::new();
    let small = stats.memory();
    println!("{ROUTES} routes, {} bytes for each", small / ROUTES);

    let (popular, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let served = thread::scope(|scope| {
        let worker = |seed| {
            let (stats, popular, stop) = (&stats, &popular, &stop);
            scope.spawn(move || serve(stats, popular, stop, seed))
        };
        let workers: Vec<_> = (0..WORKERS as u64).map(|n| worker(n * 7919 + 17)).collect();
        for first in [0, 500] {
            popular.store(first, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(1500));
            let grown =
                control::statuses().iter().filter(|status| status.form == counter::DISTRIBUTED).count();
            println!(
                "routes {first} to {} are popular: {grown} counters are distributed, {} bytes in all",
                first + 3,
                stats.memory()
            );
        }
        stop.store(true, Ordering::Relaxed);
        let served = workers.into_iter().map(|worker| worker.join().expect("a worker panicked"));
        served.fold((0, 0), |(r, b), (requests, bytes)| (r + requests, b + bytes))
    });
    assert_eq!(stats.total(), served, "each request and each byte is counted once");
    println!("{} requests and {} bytes were served and counted", served.0, served.1);

    thread::sleep(Duration::from_millis(1500));
    let grown = control::statuses().iter().filter(|status| status.form == counter::DISTRIBUTED).count();
    println!(
        "quiet: {grown} counters are distributed, {} bytes in all, {small} at the start",
        stats.memory()
    );

    let decisions = control::recent();
    let swaps: Vec<_> = decisions.iter().filter(|decision| decision.verdict == Verdict::Swapped).collect();
    println!("{} swaps; the first and the last:", swaps.len());
    for decision in [swaps.first(), swaps.last()].into_iter().flatten() {
        println!("  {decision}");
    }
    Ok(())
}
