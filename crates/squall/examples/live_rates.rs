//! Request counts of a server's clients. The operator changes their implementation while the server runs.
//!
//! One table is the smallest form, and right for one thread. A table for each core avoids sharing cache lines
//! between cores. Under load the operator:
//!
//! - swaps one form for the other and back, five times;
//! - tries an upgrade that cannot import the state, so that the swap is rolled back;
//! - rejects all requests for a while, by an arbiter.
//!
//! At the end every request is counted once.
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
    self, Format, Replacement, RootFormats, State, StateFormats, Swap, SwapFailure, SwapReport, Transferred,
};

/// Requests by client.
type Counts = BTreeMap<u32, u64>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The counts are complete whenever the lock is released, so poisoning can be ignored.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The interface that the server calls.
#[squall::interface]
trait Rates: Send + Sync {
    /// Counts a request of this client. Returns an error if the request is rejected.
    fn request(&self, client: u32) -> Result<(), CallError>;
    /// Returns the counts of all clients.
    fn counts(&self) -> Counts;
}

/// The format in which state moves: the counts of one representative.
struct Counted(Counts);

impl Format for Counted {
    fn bytes(&self) -> usize {
        self.0.len() * size_of::<(u32, u64)>()
    }
}

/// One table for all threads.
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
        // Exports a copy: if the swap fails, this object goes on serving.
        formats
            .export_part(|this| Ok(Counted(this.counts())))
            .import_part(|this, Counted(counts)| merge(&this.0, counts));
    }
}

/// A table for each core.
struct PerCore;

struct Part {
    counts: Mutex<Counts>,
    context: RepContext<PerCore>,
}

impl Root for PerCore {
    type Interface = dyn Rates;
    type Rep = Part;

    fn make_rep(&self, context: RepContext<PerCore>) -> Part {
        Part { counts: Mutex::default(), context }
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
        for part in self.context.reps() {
            lock(&part.counts).iter().for_each(|(&client, count)| *all.entry(client).or_default() += count);
        }
        all
    }
}

/// The next release, which counts in 16 bits. Its import fails if a count is too large.
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
                    .map_err(|_| format!("client {client} has {count} requests, more than 65535"))?;
                lock(&this.0).insert(client, count);
            }
            Ok(())
        });
    }
}

fn print(title: &str, report: &SwapReport) {
    println!(
        "{title}: {:?}, {} part(s), {} bytes; {} calls forwarded, {} waited, at most {:?}\n    \
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

/// Makes requests until `stop` is set. Returns the numbers of served and rejected requests.
fn serve(rates: Handle<dyn Rates>, worker: u32, stop: &AtomicBool) -> (u64, u64) {
    let (mut served, mut rejected) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        for client in 0..4 {
            match rates.request(100 * worker + client) {
                Ok(()) => served += 1,
                Err(_) => rejected += 1,
            }
        }
    }
    (served, rejected)
}

/// Swaps, upgrades and arbitrates while the workers call.
fn operate(rates: Handle<dyn Rates>) -> Result<(), Box<dyn Error>> {
    let pause = || thread::sleep(Duration::from_millis(50));
    // There may be more workers than processors, and a preempted worker in a call holds up the drain.
    let patient = || Swap::new(rates).drain_timeout(Duration::from_secs(2));
    for round in 1..=5 {
        pause();
        print(
            &format!("{round}. to a table for each core"),
            &patient().run(Replacement::root(PerCore, ClusterSize::Core))?,
        );
        pause();
        print(
            &format!("{round}. back to one table"),
            &patient().run(Replacement::swappable(Shared::default()))?,
        );
    }
    // Waits until the upgrade must fail. The failed swap is rolled back, and the workers go on.
    let began = Instant::now();
    while rates.counts().values().all(|&count| count <= u64::from(u16::MAX)) {
        if began.elapsed() > Duration::from_secs(20) {
            return Err("after 20 s every client still has fewer than 65536 requests".into());
        }
        pause();
    }
    let error = match patient().run(Replacement::swappable(Compact::default())) {
        Err(error) if error.failure() == SwapFailure::TransferFailed => error,
        other => {
            return Err(format!("the upgrade must fail with TransferFailed, but returned {other:?}").into());
        }
    };
    println!("the upgrade failed, as planned: {error}");
    if let Some(report) = error.report() {
        print("rolled back", report);
    }
    // Rejects all requests for a while.
    let arbiter = swap::arbitrate_method(rates, "request", |call| call.refuse("maintenance"))?;
    pause();
    arbiter.detach();
    pause();
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let workers = thread::available_parallelism().map_or(1, usize::from).clamp(2, 8) as u32;
    let rates: Owned<dyn Rates> = squall::swappable(Shared::default());
    let (handle, stop) = (rates.handle(), AtomicBool::new(false));
    let (outcome, all) = thread::scope(|scope| {
        let threads: Vec<_> = (1..=workers)
            .map(|worker| {
                (
                    worker,
                    scope.spawn({
                        let stop = &stop;
                        move || serve(handle, worker, stop)
                    }),
                )
            })
            .collect();
        let outcome = operate(handle);
        stop.store(true, Ordering::Relaxed);
        let all: Vec<_> = threads.into_iter().map(|(worker, thread)| (worker, thread.join())).collect();
        (outcome, all)
    });
    outcome?;
    let counts = rates.counts();
    for (worker, result) in all {
        let (served, rejected) = result.map_err(|_| "a worker panicked")?;
        let counted: u64 = counts.range(100 * worker..100 * (worker + 1)).map(|(_, count)| count).sum();
        println!("worker {worker}: {served} served, {rejected} rejected, {counted} counted");
        assert_eq!(served, counted, "each served request is counted once");
    }
    println!("{} swaps are recorded", swap::recent().len());
    Ok(())
}
