//! A server's table of request rates, whose form its operator changes while it serves.
//!
//! Each request looks up the limit of its client and counts itself. One table for everybody is the smallest, and is right
//! while one thread serves. With many, a part for each core takes no line from another core. The operator switches
//! between the two under load; tries an upgrade that cannot take the state over, and nothing happens; refuses a client for
//! a while by an arbiter; and has every request counted once at the end, whichever form it met.
//!
//! `cargo run --release -p squall --example live_rates`

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use squall::prelude::*;
use squall::swap::{
    self, Format, StateFormats, Replacement, RootFormats, State, Swap, SwapFailure, SwapReport, Transferred,
};

/// Client to requests.
type Counts = BTreeMap<u32, u64>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half done under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the server calls.
#[squall::interface]
trait Rates: Send + Sync {
    /// A request of this client. Returns an error if it is not served.
    fn request(&self, client: u32) -> Result<(), CallError>;
    /// All requests so far.
    fn counts(&self) -> Counts;
}

/// The state on its way: what one part has counted.
struct Counted(Counts);

impl Format for Counted {
    fn bytes(&self) -> usize {
        self.0.len() * size_of::<(u32, u64)>()
    }
}

/// One table for everybody.
#[derive(Default)]
struct Shared(Mutex<Counts>);

fn merge(into: &Mutex<Counts>, from: Counts) -> Transferred<()> {
    let mut into = lock(into);
    from.into_iter().for_each(|(client, count)| *into.entry(client).or_default() += count);
    Ok(())
}

impl Rates for Shared {
    fn request(&self, client: u32) -> Result<(), CallError> {
        *lock(&self.0).entry(client).or_default() += 1;
        Ok(())
    }
    fn counts(&self) -> Counts {
        lock(&self.0).clone()
    }
}

impl State for Shared {
    fn formats(formats: &mut StateFormats<'_, Shared>) {
        // A copy goes, since this one may have to serve on.
        formats
            .export_part(|this| Ok(Counted(this.counts())))
            .import_part(|this, Counted(counts)| merge(&this.0, counts));
    }
}

/// A table for each core.
struct PerCore;

struct Part {
    counts: Mutex<Counts>,
    at: RepContext<PerCore>,
}

impl Root for PerCore {
    type Interface = dyn Rates;
    type Rep = Part;

    fn make_rep(&self, at: RepContext<PerCore>) -> Part {
        Part { counts: Mutex::default(), at }
    }

    fn formats(formats: &mut RootFormats<'_, PerCore>) {
        formats
            .export_part(|_, part| Ok(Counted(lock(&part.counts).clone())))
            .import_part(|_, part, Counted(counts)| merge(&part.counts, counts));
    }
}

impl Rates for Part {
    fn request(&self, client: u32) -> Result<(), CallError> {
        *lock(&self.counts).entry(client).or_default() += 1;
        Ok(())
    }
    fn counts(&self) -> Counts {
        let mut all = Counts::new();
        for part in self.at.reps() {
            lock(&part.counts).iter().for_each(|(&client, count)| *all.entry(client).or_default() += count);
        }
        all
    }
}

/// The next release: it counts in 16 bits, and notices only on the way that this state does not fit.
#[derive(Default)]
struct Compact(Mutex<BTreeMap<u32, u16>>);

impl Rates for Compact {
    fn request(&self, client: u32) -> Result<(), CallError> {
        let mut counts = lock(&self.0);
        let count = counts.entry(client).or_default();
        *count = count.saturating_add(1);
        Ok(())
    }
    fn counts(&self) -> Counts {
        lock(&self.0).iter().map(|(&client, &count)| (client, count.into())).collect()
    }
}

impl State for Compact {
    fn formats(formats: &mut StateFormats<'_, Compact>) {
        formats.import_part(|this, Counted(counts)| {
            for (client, count) in counts {
                let count = u16::try_from(count)
                    .map_err(|_| format!("client {client} has {count} requests, and 65535 is the most"))?;
                lock(&this.0).insert(client, count);
            }
            Ok(())
        });
    }
}

fn print(title: &str, report: &SwapReport) {
    println!(
        "{title}: {:?} in {} part(s), {} bytes; {} calls passed through, {} waited, at most {:?}\n    \
         attach {:?}, forward {:?}, block {:?}, transfer {:?}, complete {:?}",
        report.outcome,
        report.parts,
        report.bytes,
        report.forwarded,
        report.blocked,
        report.longest_pause,
        report.attach,
        report.forward,
        report.block,
        report.transfer,
        report.complete,
    );
}

/// Serves until it is told to stop. Returns the requests that were served, and refused.
fn serve(rates: Handle<dyn Rates>, worker: u32, stop: &AtomicBool) -> (u64, u64) {
    let (mut served, mut refused) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        for client in 0..4 {
            match rates.request(100 * worker + client) {
                Ok(()) => served += 1,
                Err(_) => refused += 1,
            }
        }
    }
    (served, refused)
}

/// What the operator does, while the workers serve.
fn operate(rates: Handle<dyn Rates>) -> Result<(), Box<dyn Error>> {
    let pause = || thread::sleep(Duration::from_millis(50));
    // Workers outnumber processors, and one that is in a call may wait for its turn.
    let patient = || Swap::new(rates).drain_timeout(Duration::from_secs(2));
    for round in 1..=5 {
        pause();
        print(
            &format!("{round}. to a part for each core"),
            &patient().run(Replacement::root(PerCore, ClusterSize::Core))?,
        );
        pause();
        print(&format!("{round}. back to one table"), &patient().run(Replacement::swappable(Shared::default()))?);
    }
    // A client has had enough requests by now for the upgrade to fail. It is rolled back, and the workers see nothing of it.
    let began = Instant::now();
    while rates.counts().values().all(|&count| count <= u64::from(u16::MAX)) {
        if began.elapsed() > Duration::from_secs(20) {
            return Err("nobody was served often enough".into());
        }
        pause();
    }
    let error = match patient().run(Replacement::swappable(Compact::default())) {
        Err(error) if error.failure() == SwapFailure::TransferFailed => error,
        other => return Err(format!("this upgrade cannot be: {other:?}").into()),
    };
    println!("the upgrade did not happen: {error}");
    if let Some(report) = error.report() {
        print("it was rolled back", report);
    }
    // For a while nobody is served.
    let arbiter = swap::arbitrate_method(rates, "request", |call| call.refuse("maintenance"))?;
    pause();
    arbiter.detach();
    pause();
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let workers = thread::available_parallelism().map_or(1, usize::from).clamp(2, 8) as u32;
    let rates: Owned<dyn Rates> = squall::swappable(Shared::default());
    let (co, stop) = (rates.handle(), AtomicBool::new(false));
    let (outcome, all) = thread::scope(|scope| {
        let threads: Vec<_> = (1..=workers)
            .map(|worker| {
                (
                    worker,
                    scope.spawn({
                        let stop = &stop;
                        move || serve(co, worker, stop)
                    }),
                )
            })
            .collect();
        let outcome = operate(co);
        stop.store(true, Ordering::Relaxed);
        let all: Vec<_> = threads.into_iter().map(|(worker, thread)| (worker, thread.join())).collect();
        (outcome, all)
    });
    outcome?;
    let counts = rates.counts();
    for (worker, result) in all {
        let (served, refused) = result.map_err(|_| "a worker panicked")?;
        let counted: u64 = counts.range(100 * worker..100 * (worker + 1)).map(|(_, count)| count).sum();
        println!("worker {worker}: {served} served, {refused} refused, {counted} counted");
        assert_eq!(served, counted, "nothing is lost and nothing is counted twice");
    }
    println!("{} swaps are on record", swap::recent().len());
    Ok(())
}
