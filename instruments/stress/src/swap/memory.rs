//! Stress of memory during swaps. Two objects that do not grow otherwise are swapped as fast as possible,
//! with and without state. Some swaps are rolled back. All threads call meanwhile.
//!
//! The memory in use is read after each twentieth of the minimum number of swaps. The values in the last
//! fifth are compared with those at the end of the first fifth.
//!
//! Not detected: memory that is freed late. `squall stress swap` checks that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall::swap::{Replacement, RootFormats, State, StateFormats, Swap, SwapFailure, SwapPhase, arbitrate};
use squall::{ClusterSize, Handle, Owned, RepContext, Root};

use crate::run::{Report, Rng, Run, Stress, Violation, exclusive};
use crate::skeleton::breaks;
use crate::skeleton::placement::{choose_machine, switch_vp};

pub(crate) const STRESS: Stress = Stress {
    name: "swap-memory",
    about: "memory stays flat over 100,000 swaps, however long they take",
    run,
    threads: |real| {
        choose_machine(real);
        2
    },
};

/// Minimum number of swaps, even after the time is up. Few in unit tests.
const SWAPS: u64 = if cfg!(test) { 2_000 } else { 100_000 };
/// Minimum number of readings.
const LOOKS: u64 = 20;
/// Allowed growth: about 26 bytes for each of the swaps in between.
const TOLERANCE_KB: u64 = 2 << 10;
/// Calls between two checks of the end.
const BURST: u64 = 256;

#[squall::interface]
trait Sum: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
}

struct Central(AtomicU64);

impl Central {
    fn new(leaks: bool) -> Central {
        if leaks {
            // An optimised build leaves out memory that is not used.
            std::mem::forget(std::hint::black_box(Box::new([0_u64; 32])));
        }
        Central(AtomicU64::new(0))
    }
}

impl Sum for Central {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl State for Central {
    fn formats(formats: &mut StateFormats<'_, Central>) {
        formats.export_part(|this| Ok(this.total())).import_part(|this, n| {
            this.add(n);
            Ok(())
        });
    }
}

struct Spread {
    /// Its imports fail.
    fails: bool,
}

struct Leaf {
    at: RepContext<Spread>,
    sum: AtomicU64,
}

impl Root for Spread {
    type Interface = dyn Sum;
    type Rep = Leaf;

    fn make_rep(&self, at: RepContext<Spread>) -> Leaf {
        Leaf { at, sum: AtomicU64::new(0) }
    }

    fn formats(formats: &mut RootFormats<'_, Spread>) {
        formats.export_part(|_, rep| Ok(rep.sum.load(Ordering::Relaxed))).import_part(|root, rep, n| {
            if root.fails {
                return Err("a planned failure of an import".into());
            }
            rep.add(n);
            Ok(())
        });
    }
}

impl Sum for Leaf {
    fn add(&self, n: u64) {
        self.sum.fetch_add(n, Ordering::Relaxed);
    }

    fn total(&self) -> u64 {
        self.at.reps().map(|rep| rep.sum.load(Ordering::Relaxed)).sum()
    }
}

/// Returns the memory in use, in KiB.
fn resident_kb() -> Result<u64, Violation> {
    let cannot = |error: String| Violation(format!("cannot read the memory in use: {error}"));
    let status = std::fs::read_to_string("/proc/self/status").map_err(|error| cannot(error.to_string()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok())
        .ok_or_else(|| cannot("/proc/self/status has no VmRSS in kB".to_owned()))
}

/// Counts of a run.
#[derive(Default)]
struct Done {
    swaps: u64,
    rolled_back: u64,
    timed_out: u64,
    arbiters: u64,
}

/// Swaps one of the objects.
fn swap(handle: Handle<dyn Sum>, leaks: bool, rng: &mut Rng, done: &mut Done) -> Result<(), Violation> {
    let fails = rng.one_in(8);
    let (new, fails) = match rng.below(4) {
        0 => (Replacement::swappable(Central::new(leaks)), false),
        level => (Replacement::root(Spread { fails }, ClusterSize::LEVELS[level as usize]), fails),
    };
    let swap = Swap::new(handle).drain_timeout(Duration::from_millis(20));
    let count = match swap.run(new).map_err(|error| error.failure()) {
        Ok(report) if fails && report.parts > 0 => {
            return Err(Violation("a swap succeeded although its import failed".to_owned()));
        }
        Ok(_) => &mut done.swaps,
        Err(SwapFailure::TransferFailed) if fails => &mut done.rolled_back,
        Err(SwapFailure::TimedOut(SwapPhase::Block)) => &mut done.timed_out,
        Err(failure) => return Err(Violation(format!("an undisturbed swap failed: {failure}"))),
    };
    *count += 1;
    Ok(())
}

/// Swaps until enough is done, and reads the memory in use.
fn work(run: &Run, leaks: bool, objects: &[Handle<dyn Sum>]) -> Result<(Done, Vec<u64>), Violation> {
    let (mut done, mut looks, mut rng) = (Done::default(), Vec::new(), run.rng(0));
    while done.swaps < SWAPS || !run.is_over() {
        let arbiter = if rng.one_in(16) {
            done.arbiters += 1;
            arbitrate(objects[0], |_| {}).ok()
        } else {
            None
        };
        for handle in objects {
            swap(*handle, leaks, &mut rng, &mut done)?;
        }
        drop(arbiter);
        if done.swaps >= SWAPS / LOOKS * (looks.len() as u64 + 1) {
            looks.push(resident_kb()?);
        }
    }
    Ok((done, looks))
}

fn run(run: &Run) -> Result<Report, Violation> {
    let _exclusive = exclusive();
    let leaks = breaks::asked(&[("leak-value", ())])?.is_some();
    choose_machine(run.real);
    let owners: [Owned<dyn Sum>; 2] = std::array::from_fn(|_| squall::swappable(Central::new(false)));
    let objects = owners.each_ref().map(Owned::handle);
    let stop = Arc::new(AtomicBool::new(false));
    let began = Instant::now();
    let callers: Vec<_> = (0..run.threads as u64)
        .map(|index| {
            let (stop, mut rng) = (Arc::clone(&stop), run.rng(1 + index));
            thread::spawn(move || {
                let mut added = [0; 2];
                while !stop.load(Ordering::Relaxed) {
                    switch_vp(&mut rng);
                    for (handle, added) in objects.iter().zip(&mut added) {
                        (0..BURST).for_each(|_| handle.add(1));
                        *added += BURST;
                    }
                }
                added
            })
        })
        .collect();
    let worked = work(run, leaks, &objects);
    let elapsed = began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    let mut added = [0; 2];
    for caller in callers {
        let more = caller.join().map_err(|_| Violation("a caller has panicked".to_owned()))?;
        added.iter_mut().zip(more).for_each(|(added, more)| *added += more);
    }
    let (done, looks) = worked?;
    let totals = objects.map(|handle| handle.total());
    if totals != added {
        return Err(Violation(format!(
            "the objects have {totals:?}, but their callers have added {added:?}"
        )));
    }
    let early = looks[..looks.len() / 5].iter().copied().max().unwrap_or_default();
    let late = looks[looks.len() * 4 / 5..].iter().copied().min().unwrap_or_default();
    if late > early + TOLERANCE_KB {
        return Err(Violation(format!(
            "memory grew from {early} KiB after a fifth of {} swaps to {late} KiB: {looks:?}",
            done.swaps
        )));
    }
    Ok(Report(vec![
        ("swaps completed", done.swaps),
        ("rolled back", done.rolled_back),
        ("timed out in block", done.timed_out),
        ("arbiters attached", done.arbiters),
        ("KiB in use, early", early),
        ("KiB in use, late", late),
        ("calls", added.iter().sum()),
        ("swaps per second", (done.swaps as f64 / elapsed) as u64),
    ]))
}
