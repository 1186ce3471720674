//! Statistics of a server with many routes, a few of which are busy, and which are not the same all day.
//!
//! Each route counts its requests and its bytes. Counters that are spread over the processors would make busy routes fast, and
//! cost memory for each of the others; one word for each would be small, and slow where it matters. These begin small: the
//! ones that several processors are seen counting on grow, and go back when their time is over. At the end everything is
//! counted exactly, and the log says what was done, and why.
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

/// The statistics of one route, as its handler holds them: two words, `Copy`.
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

    /// All requests and all bytes.
    fn total(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(r, b), (requests, bytes)| (r + requests.total(), b + bytes.total()))
    }

    /// Bytes of memory that all of the counters take.
    fn memory(&self) -> usize {
        let of = |counter: &Owned<dyn Counter>| {
            squall::info_of(Handle::id(counter.handle())).map_or(0, |info| info.bytes)
        };
        self.0.iter().map(|(requests, bytes)| of(requests) + of(bytes)).sum()
    }
}

/// A worker: nine in ten requests are for the routes that are popular now, the others for any.
fn serve(stats: &Stats, popular: &AtomicUsize, stop: &AtomicBool, seed: u64) -> (u64, u64) {
    let routes: Vec<Route> = (0..ROUTES).map(|index| stats.route(index)).collect();
    let (mut state, mut served) = (seed | 1, (0, 0));
    while !stop.load(Ordering::Relaxed) {
        // xorshift: what a benchmark of a server would use.
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
    // So that it goes back within this program's few seconds.
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
            let grown = control::statuses().iter().filter(|status| status.form == counter::DISTRIBUTED).count();
            println!(
                "routes {first} to {} are popular: {grown} counters are grown, {} bytes in all",
                first + 3,
                stats.memory()
            );
        }
        stop.store(true, Ordering::Relaxed);
        let served = workers.into_iter().map(|worker| worker.join().expect("it only counts"));
        served.fold((0, 0), |(r, b), (requests, bytes)| (r + requests, b + bytes))
    });
    assert_eq!(stats.total(), served, "every request and every byte is counted once");
    println!("{} requests and {} bytes served, and as many counted", served.0, served.1);

    thread::sleep(Duration::from_millis(1500));
    let grown = control::statuses().iter().filter(|status| status.form == counter::DISTRIBUTED).count();
    println!("quiet: {grown} counters are grown, {} bytes in all, {small} at first", stats.memory());

    let decisions = control::recent();
    let swaps: Vec<_> = decisions.iter().filter(|decision| decision.verdict == Verdict::Swapped).collect();
    println!("{} swaps; the first and the last:", swaps.len());
    for decision in [swaps.first(), swaps.last()].into_iter().flatten() {
        println!("  {decision}");
    }
    Ok(())
}
