//! The parts of a round.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use squall::swap::arbitrate_method;

use super::crew::{crew, run_queue_us, timed};
use super::figures::{Swaps, us};
use crate::gate::{Gate, NoUnwind, poll};
use crate::ours_swap::Ours;
use crate::work::replace::{Replace, Replaced};

/// Calls between two checks of the stop flag.
pub(super) const BATCH: u64 = 1024;
/// Calls of the swapping thread between two swaps: enough for the others to reach full speed again.
const BETWEEN: u64 = 4096;
/// Calls of a thread in a timed run.
const CLOCKED: u64 = 20_000;
/// Length of one observation of an idle thread.
const WINDOW: Duration = Duration::from_micros(10);
/// Longer than the time between two readings of the clock in an undisturbed thread.
const INTERRUPTION_US: f64 = 1.0;

/// Makes one replacement and records it.
pub(super) fn one<T: Replace>(target: &T, swaps: &mut Swaps) -> Result<(), String> {
    target.settle();
    let began = Instant::now();
    let replaced = target.replace();
    let took = began.elapsed();
    swaps.note(took, &replaced?);
    Ok(())
}

/// One thread swaps for a while, and no other calls. It calls once before each swap, so that there is a
/// translation to cut.
pub(super) fn idle<T: Replace>(target: &T, length: Duration, seen: &mut Swaps) -> Result<(), String> {
    let body = |_: usize, _: &_| {
        let (mut swaps, began) = (Swaps::default(), Instant::now());
        while began.elapsed() < length {
            target.calls(1);
            one(target, &mut swaps)?;
        }
        Ok::<_, String>(swaps)
    };
    for swaps in crew(1, body, || ()).0 {
        seen.add(swaps?);
    }
    Ok(())
}

/// All threads call for a while, and the first also swaps. Returns the time for which the others waited for a
/// processor, in microseconds.
pub(super) fn busy<T: Replace>(
    target: &T,
    threads: usize,
    length: Duration,
    seen: &mut Swaps,
) -> Result<f64, String> {
    let stop = AtomicBool::new(false);
    let body = |index: usize, gate: &Gate| {
        target.calls(1);
        gate.wait();
        if index == 0 {
            let swaps = swapping(target, length);
            // Relaxed: the flag publishes no other data.
            stop.store(true, Ordering::Relaxed);
            return (swaps, 0.0);
        }
        let before = run_queue_us();
        while !stop.load(Ordering::Relaxed) {
            target.calls(BATCH);
        }
        (Ok(Swaps::default()), run_queue_us() - before)
    };
    let mut queued_us = 0.0;
    for (swaps, waited_us) in crew(threads, body, || ()).0 {
        seen.add(swaps?);
        queued_us += waited_us;
    }
    Ok(queued_us)
}

fn swapping<T: Replace>(target: &T, length: Duration) -> Result<Swaps, String> {
    let (mut swaps, began) = (Swaps::default(), Instant::now());
    while began.elapsed() < length {
        target.calls(BETWEEN);
        one(target, &mut swaps)?;
    }
    Ok(swaps)
}

/// Observations of a thread that only spins, in microseconds.
#[derive(Default)]
pub(super) struct Gaps {
    /// The longest time between two clock readings, per window.
    pub(super) of_windows: Vec<f64>,
    /// Each such time with an interruption.
    pub(super) interruptions: Vec<f64>,
}

impl Gaps {
    /// `threads` threads spin for a while; the first one observes.
    pub(super) fn look(&mut self, threads: usize, length: Duration) {
        let stop = AtomicBool::new(false);
        let body = |index: usize, gate: &Gate| {
            let mut gaps = Gaps::default();
            gate.wait();
            if index > 0 {
                while !stop.load(Ordering::Relaxed) {
                    black_box(Instant::now());
                }
                return gaps;
            }
            let began = Instant::now();
            let mut now = began;
            while now - began < length {
                now = gaps.window(now);
            }
            // Relaxed: the flag publishes no other data.
            stop.store(true, Ordering::Relaxed);
            gaps
        };
        for gaps in crew(threads, body, || ()).0 {
            self.of_windows.extend(gaps.of_windows);
            self.interruptions.extend(gaps.interruptions);
        }
    }

    fn window(&mut self, began: Instant) -> Instant {
        let (mut now, mut longest) = (began, 0.0f64);
        while now - began < WINDOW {
            let next = Instant::now();
            let gap = us(next - now);
            longest = longest.max(gap);
            if gap > INTERRUPTION_US {
                self.interruptions.push(gap);
            }
            now = next;
        }
        self.of_windows.push(longest);
        now
    }
}

/// Nanoseconds of a call that a mediator forwards, if the swap succeeded. One thread stays in an operation,
/// so that the other thread's swap cannot leave its phase `Forward`.
pub(super) fn through(ours: &Ours, threads: usize) -> Result<Option<f64>, String> {
    let (inside, release) = (AtomicBool::new(false), AtomicBool::new(false));
    ours.settle();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _guard = NoUnwind;
            squall::rcu::pin(|_| {
                inside.store(true, Ordering::Relaxed);
                poll(|| release.load(Ordering::Relaxed));
            });
        });
        poll(|| inside.load(Ordering::Relaxed));
        let swapper = scope.spawn(|| ours.replace());
        poll(|| ours.is_swapping() || swapper.is_finished());
        let ns = timed(threads, CLOCKED, |count| ours.calls(count));
        release.store(true, Ordering::Relaxed);
        let replaced = swapper.join().map_err(|_| "a swap panicked".to_owned())??;
        let clocked = CLOCKED * threads as u64;
        match replaced.report.map_or(0, |report| report.forwarded) {
            forwarded if forwarded >= clocked => Ok(Some(ns)),
            // The swap ended before the release: the last counted call did not leave in time.
            _ if !replaced.done => Ok(None),
            forwarded => Err(format!("of {clocked} calls only {forwarded} were forwarded")),
        }
    })
}

/// Nanoseconds of a call passed by an arbiter function that lets it proceed.
pub(super) fn arbitrated(ours: &Ours, threads: usize) -> Result<f64, String> {
    let arbiter = arbitrate_method(ours.handle(), "get", |call| call.proceed()).map_err(|e| e.to_string())?;
    let ns = timed(threads, CLOCKED, |count| ours.calls(count));
    arbiter.detach();
    Ok(ns)
}

/// Attaches and detaches an arbiter in place of a swap.
pub(super) struct Arbitrating<'a> {
    ours: &'a Ours,
    times_us: Mutex<(Vec<f64>, Vec<f64>)>,
}

impl<'a> Arbitrating<'a> {
    pub(super) fn new(ours: &'a Ours) -> Arbitrating<'a> {
        Arbitrating { ours, times_us: Mutex::default() }
    }

    /// Durations of attaching, and of detaching.
    pub(super) fn into_times_us(self) -> (Vec<f64>, Vec<f64>) {
        self.times_us.into_inner().expect("a thread panicked under the lock")
    }
}

impl Replace for Arbitrating<'_> {
    fn calls(&self, count: u64) {
        self.ours.calls(count);
    }

    fn replace(&self) -> Result<Replaced, String> {
        let began = Instant::now();
        let arbiter = arbitrate_method(self.ours.handle(), "get", |call| call.proceed());
        let attached = Instant::now();
        let arbiter = arbiter.map_err(|error| error.to_string())?;
        self.ours.calls(BETWEEN);
        let detaching = Instant::now();
        arbiter.detach();
        let detached = detaching.elapsed();
        let mut times = self.times_us.lock().expect("a thread panicked under the lock");
        times.0.push(us(attached - began));
        times.1.push(us(detached));
        Ok(Replaced::PLAIN)
    }
}
