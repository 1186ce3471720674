//! Runners: threads that run a quiescent-do on its VPs, for the reclaimer.
//!
//! Problem: the reclaimer must not move to the VPs itself. It might wait there for a busy processor, and a
//! slow run on one VP would hold up the runs on all others.
//!
//! Idea: a runner moves from VP to VP. After each [`STEP`] that leaves a VP without a runner, the reclaimer
//! starts another one, so slow runs proceed in parallel. It takes over the run of a runner that is late
//! (`tour`). If all runners are late and the system refuses another one, it takes over all runs.
//!
//! - I1. Only the reclaimer starts runners, within a turn. It waits for the end of all their runs before it
//!   goes on, and answers waits of tasks meanwhile. A runner ends when no VP is left for it.
//! - I2. `LATE` has the VPs to which a late runner still moves. No other runner is sent there, so at most one
//!   runner for each VP outlives its tour.
//!
//! Not promised: a bound on the time of a run. The reclaimer waits for it, like for any deferred call.
//!
//! Cost: a thread for each tour (some tens of µs), and a change of affinity for each VP.
//! Source: Appavoo 2005, §5.4.3: the worker events, one per processor (CO-26, CO-30). Deviation: K42's
//! workers exist for good.

use squall_machine::{Vp, machine};
use squall_sys::sync::{Arc, Mutex, MutexGuard, Weak, thread};
use std::time::Duration;

use crate::jobs::answer_waits;
use crate::raw::tour::Tour;
use crate::thread::run_caught;

/// The threads' name.
pub(crate) const NAME: &str = "squall-runner";
/// The reclaimer looks at its tour this often, while a VP waits for a runner.
const STEP: Duration = Duration::from_millis(2);
/// The reclaimer answers waits this often while all VPs have a runner.
const LOOK: Duration = Duration::from_millis(10);
/// Steps after which the reclaimer takes over a run whose runner has not arrived: 100 ms.
const STEPS_MAX: u32 = 50;

/// The VPs to which a late runner still moves (I2).
static LATE: Mutex<Vec<Vp>> = Mutex::new(Vec::new());

/// The outcome of one quiescent-do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quiescent {
    /// Runs on the requested VP.
    pub placed: usize,
    /// Runs elsewhere: the requested VP was offline, not permitted to this process, or too busy to admit a
    /// thread for 100 ms.
    pub displaced: usize,
    /// Runs that panicked.
    pub panicked: usize,
}

impl Quiescent {
    pub(crate) const NONE: Quiescent = Quiescent { placed: 0, displaced: 0, panicked: 0 };

    /// Counts a run.
    pub(crate) fn add(&mut self, placed: bool, panicked: bool) {
        self.placed += usize::from(placed);
        self.displaced += usize::from(!placed);
        self.panicked += usize::from(panicked);
    }
}

/// The function of a quiescent-do.
pub(crate) type Function = Arc<dyn Fn(Vp) + Send + Sync>;

/// A quiescent-do on the way, shared by its runners.
struct Visit {
    tour: Tour,
    vps: Vec<Vp>,
    function: Function,
    result: Mutex<Quiescent>,
}

/// Runs `function` once on each VP, and returns the outcome after the last run. If the system refuses a
/// thread, returns `None` before any run. For the reclaimer.
pub(crate) fn run_on_each(vps: &[Vp], function: &Function) -> Option<Quiescent> {
    let visit = Arc::new(Visit {
        tour: Tour::new(vps.len()),
        vps: vps.to_vec(),
        function: function.clone(),
        result: Mutex::new(Quiescent::NONE),
    });
    let unreachable = visit.take_over_unreachable();
    start(&visit).ok()?;
    unreachable.into_iter().for_each(|stop| visit.run(stop, false));
    visit.guide();
    // A runner that looks for another stop has a link for a moment. From here on a late runner gets none, so
    // the caller drops the captures, before the outcome.
    let mut visit = visit;
    let result = loop {
        match Arc::try_unwrap(visit) {
            Ok(visit) => break visit.result,
            Err(linked) => visit = linked,
        }
        thread::yield_now();
    };
    if cfg!(test) {
        squall_sys::pause::point("tour over");
    }
    Some(result.into_inner().unwrap_or_else(|poison| poison.into_inner()))
}

/// The number of runners that may still be started, for tests.
#[cfg(test)]
pub(crate) static PERMITTED: squall_sys::sync::atomic::AtomicUsize =
    squall_sys::sync::atomic::AtomicUsize::new(usize::MAX);

fn start(visit: &Arc<Visit>) -> std::io::Result<()> {
    #[cfg(test)]
    {
        use squall_sys::sync::atomic::Ordering;
        let one_less = |left: usize| left.checked_sub(1);
        if PERMITTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            return Err(std::io::ErrorKind::WouldBlock.into());
        }
    }
    let visit = Arc::downgrade(visit);
    thread::Builder::new().name(NAME.to_owned()).spawn(move || work(&visit)).map(|_| ())
}

/// A runner. While it moves it keeps no link to the tour, since the tour may end meanwhile.
fn work(visit: &Weak<Visit>) {
    while let Some((stop, vp)) = claim(visit) {
        if machine().is_virtual() {
            let placed = Vp::with_vp(vp, || arrive(visit, stop, vp, true));
            if placed.is_err() {
                arrive(visit, stop, vp, false);
            }
        } else {
            let placed = squall_sys::affinity::restrict_to(&[vp.index()]).is_ok();
            arrive(visit, stop, vp, placed);
        }
    }
}

/// Claims a stop for the calling runner.
fn claim(visit: &Weak<Visit>) -> Option<(usize, Vp)> {
    let visit = visit.upgrade()?;
    let stop = visit.tour.claim();
    let claimed = stop.map(|stop| (stop, visit.vps[stop]));
    release(visit);
    claimed
}

/// Runs at the claimed stop, unless the reclaimer has taken it over.
fn arrive(visit: &Weak<Visit>, stop: usize, vp: Vp, placed: bool) {
    if cfg!(test) {
        squall_sys::pause::point("arrive");
    }
    let visit = visit.upgrade();
    if cfg!(test) {
        squall_sys::pause::point("arrived");
    }
    match &visit {
        Some(visit) if visit.tour.arrive(stop) => visit.run(stop, placed),
        _ => late().retain(|late| *late != vp),
    }
    visit.into_iter().for_each(release);
}

/// Drops a link to the tour. The last link drops the function's captures, by users' code.
fn release(visit: Arc<Visit>) {
    let _ = run_caught(|| drop(visit));
}

impl Visit {
    /// Starts further runners and takes over late runs, until the last run has ended.
    fn guide(self: &Arc<Visit>) {
        // On a virtual topology a runner is on its VP at once.
        let may_be_late = !machine().is_virtual();
        let mut steps = vec![0_u32; self.vps.len()];
        let (mut started, mut taken_over) = (1, Vec::new());
        loop {
            let waits = self.tour.has_free() || (may_be_late && self.tour.claimed().next().is_some());
            if self.tour.wait(Some(if waits { STEP } else { LOOK })) {
                return;
            }
            answer_waits();
            if self.tour.has_free() {
                if start(self).is_ok() {
                    started += 1;
                } else if self.late_among(&taken_over) == started {
                    while let Some(stop) = self.tour.take_free() {
                        self.run(stop, false);
                    }
                }
            }
            for stop in self.tour.claimed().filter(|_| may_be_late) {
                steps[stop] += 1;
                if steps[stop] > STEPS_MAX && self.take_over_late(stop) {
                    taken_over.push(stop);
                    self.run(stop, false);
                }
            }
        }
    }

    /// Returns how many runners of these stops, which were taken over, have not arrived yet (I2).
    fn late_among(&self, taken_over: &[usize]) -> usize {
        let late = late();
        taken_over.iter().filter(|&&stop| late.contains(&self.vps[stop])).count()
    }

    /// Takes over the stops that a late runner still moves to (I2), before any runner starts.
    fn take_over_unreachable(&self) -> Vec<usize> {
        let late = late();
        let stops = (0..self.vps.len()).filter(|&stop| late.contains(&self.vps[stop]));
        stops.filter(|&stop| self.tour.take_over(stop)).collect()
    }

    /// Takes over the stop of a late runner. Returns false if the runner has arrived.
    fn take_over_late(&self, stop: usize) -> bool {
        // Until the end: the runner leaves the list after it has found its stop taken over.
        let mut late = late();
        let taken = self.tour.take_over(stop);
        if taken {
            late.push(self.vps[stop]);
        }
        taken
    }

    /// Runs the function at a stop that this thread has entered.
    fn run(&self, stop: usize, placed: bool) {
        let vp = self.vps[stop];
        let panicked = run_caught(|| (self.function)(vp));
        self.result().add(placed, panicked);
        self.tour.end();
    }

    fn result(&self) -> MutexGuard<'_, Quiescent> {
        self.result.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

fn late() -> MutexGuard<'static, Vec<Vp>> {
    LATE.lock().unwrap_or_else(|poison| poison.into_inner())
}
