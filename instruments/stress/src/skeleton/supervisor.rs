//! The supervisor of a stress's threads: it restarts them, moves them, pauses them, and detects a stuck one.
//!
//! - I1. A thread's random numbers depend on the run's seed, its worker, and the number of threads that the
//!   worker had before. The supervisor's own depend on the seed alone.
//! - I2. A thread is joined only after it has finished and its exit hooks have run (`worker/I3`), because a
//!   supervisor that waits in a join watches no thread.
//! - I3. A thread that begins no step for [`STANDSTILL`], or takes longer to end, is a violation. So a run
//!   ends even if the library blocks a thread forever.
//! - I4. A thread may end by a planned panic. Another panic is a violation.
//!
//! Not detected: the supervisor itself is stuck in a call that disturbs the threads.

use std::io;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use squall_rcu::{ReclaimerState, reclaimer_state, set_reclaimer};

use super::expected_panic::ExpectedPanic;
use super::placement::AllowedCpus;
use super::run_state::RunState;
use super::worker::Worker;
use crate::run::{Rng, Run, Violation};

/// A thread that begins no step for so long is stuck. A step takes milliseconds, and seconds on an emulated
/// machine with more processors than the real one.
pub(crate) const STANDSTILL: Duration = Duration::from_secs(300);
/// The stream of random numbers of the supervisor. Stresses count down from it for streams of their own.
pub(crate) const SUPERVISOR_STREAM: u64 = u64::MAX;
/// Distance between the streams of two workers.
const WORKER_STREAMS: u64 = 1 << 32;

/// The body of a thread.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// The threads of a stress, as the supervisor sees them. Workers are given by their number.
pub(crate) trait Supervised {
    /// Prefix of the names of the threads.
    const NAME: &'static str;

    /// Returns the body of the next thread of a worker.
    fn thread(&mut self, worker: usize, rng: Rng) -> Body;

    /// Returns the name of the next thread of a worker.
    fn thread_name(&self, worker: usize) -> String {
        format!("{}-{worker}", Self::NAME)
    }

    /// Describes a worker in a violation.
    fn describe(&self, worker: usize) -> String {
        format!("worker {worker}")
    }

    /// Describes the activity of all workers, for the violation about a stuck thread.
    fn activity(&self) -> String {
        String::new()
    }

    /// Disturbs the threads in one random way. The supervisor calls it about once per millisecond.
    fn disturb(&mut self, supervisor: &mut Supervisor);

    /// Unblocks threads that sleep in the library. The supervisor calls it repeatedly while the threads are
    /// to end.
    fn unblock(&mut self, _supervisor: &Supervisor) {}

    /// Returns whether a thread is known to be stuck forever. The supervisor then stops waiting for the
    /// threads.
    fn has_lost_thread(&self) -> bool {
        false
    }
}

pub(crate) struct Supervisor {
    run_state: &'static RunState,
    places: Vec<Place>,
    cpus: AllowedCpus,
    pub(crate) seed: u64,
    pub(crate) rng: Rng,
    /// The reclaimer may be switched: the environment did not switch it off.
    switchable: bool,
    pub(crate) threads_started: u64,
    threads_moved: u64,
    pauses: u64,
    switches: u64,
}

/// A worker and its current thread.
struct Place {
    worker: &'static Worker,
    thread: Option<JoinHandle<()>>,
    threads_before: u64,
    /// The last seen number of steps begun, and the time of its last change.
    steps_begun: u64,
    since: Instant,
}

impl Supervisor {
    /// Starts the first threads. They wait at a checkpoint if the run is paused.
    ///
    /// # Errors
    /// The system does not report the allowed processors.
    pub(crate) fn start(
        run: &Run,
        run_state: &'static RunState,
        workers: &'static [Worker],
        supervised: &mut impl Supervised,
    ) -> Result<Supervisor, Violation> {
        let off = std::env::var_os("SQUALL_RECLAIMER").is_some_and(|value| value == "off");
        let place =
            |worker| Place { worker, thread: None, threads_before: 0, steps_begun: 0, since: Instant::now() };
        let mut supervisor = Supervisor {
            run_state,
            places: workers.iter().map(place).collect(),
            cpus: AllowedCpus::find()?,
            seed: run.seed,
            rng: run.rng(SUPERVISOR_STREAM),
            switchable: !off && reclaimer_state() != ReclaimerState::Off,
            threads_started: 0,
            threads_moved: 0,
            pauses: 0,
            switches: 0,
        };
        (0..supervisor.places.len()).for_each(|worker| supervisor.start_thread(worker, supervised));
        Ok(supervisor)
    }

    /// Starts a thread at a worker without one.
    fn start_thread(&mut self, worker: usize, supervised: &mut impl Supervised) {
        let place = &mut self.places[worker];
        let rng = Rng::new(self.seed, WORKER_STREAMS * (worker as u64 + 1) + place.threads_before);
        place.threads_before += 1;
        place.since = Instant::now();
        let body = supervised.thread(worker, rng);
        // If the system is out of threads, the next round tries again.
        let spawned: io::Result<_> = thread::Builder::new().name(supervised.thread_name(worker)).spawn(body);
        place.thread = spawned.ok();
        self.threads_started += u64::from(place.thread.is_some());
    }

    /// Returns whether the worker has no thread. Records the end of its thread (I2, I4) or that it is stuck
    /// (I3).
    fn reap(&mut self, worker: usize, supervised: &impl Supervised) -> bool {
        let place = &mut self.places[worker];
        let Some(thread) = &place.thread else { return true };
        let steps_begun = place.worker.steps_begun();
        if steps_begun != place.steps_begun {
            (place.steps_begun, place.since) = (steps_begun, Instant::now());
        } else if place.since.elapsed() > STANDSTILL {
            let (name, activity) = (supervised.describe(worker), supervised.activity());
            self.run_state.fail(format!("the thread of {name} is stuck{activity}"));
        }
        if !thread.is_finished() || place.worker.exit_hooks.are_pending() {
            return false;
        }
        if let Some(Err(payload)) = place.thread.take().map(JoinHandle::join)
            && !payload.is::<ExpectedPanic>()
        {
            self.run_state.fail(format!("the thread of {} has panicked", supervised.describe(worker)));
        }
        true
    }

    /// Keeps all workers busy until the time is up or a violation is found.
    pub(crate) fn run(&mut self, run: &Run, supervised: &mut impl Supervised) {
        while !run.is_over() && !self.run_state.is_stopped() {
            for worker in 0..self.places.len() {
                if self.reap(worker, supervised) {
                    self.start_thread(worker, supervised);
                }
            }
            supervised.disturb(self);
            thread::sleep(Duration::from_micros(200 + self.rng.below(1800)));
        }
    }

    /// Ends all threads.
    pub(crate) fn shut_down(&mut self, supervised: &mut impl Supervised) {
        self.run_state.stop();
        if self.switches % 2 == 1 {
            set_reclaimer(true);
        }
        let since = Instant::now();
        loop {
            let mut running = None;
            for worker in 0..self.places.len() {
                if !self.reap(worker, supervised) {
                    running = Some(worker);
                }
            }
            supervised.unblock(self);
            let Some(worker) = running.filter(|_| !supervised.has_lost_thread()) else { return };
            if since.elapsed() > STANDSTILL {
                let (name, activity) = (supervised.describe(worker), supervised.activity());
                return self.run_state.fail(format!("the thread of {name} does not end{activity}"));
            }
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Returns a random worker.
    pub(crate) fn any_worker(&mut self) -> &'static Worker {
        self.places[self.rng.below(self.places.len() as u64) as usize].worker
    }

    /// Confines a random thread to other processors.
    pub(crate) fn move_any(&mut self) {
        let worker = self.any_worker();
        worker.with_thread(|thread| self.cpus.shuffle(thread, &mut self.rng));
        self.threads_moved += 1;
    }

    /// Pauses all threads for a moment.
    pub(crate) fn pause(&mut self) {
        self.pauses += 1;
        self.run_state.set_paused(true);
        thread::sleep(Duration::from_millis(1 + self.rng.below(10)));
        self.run_state.set_paused(false);
    }

    /// Switches the library's reclaimer off, or on again, unless the environment switched it off.
    pub(crate) fn switch_reclaimer(&mut self) {
        if self.switchable {
            set_reclaimer(self.switches % 2 == 1);
            self.switches += 1;
        }
    }

    /// Returns the counts of the supervisor.
    pub(crate) fn lines(&self) -> [(&'static str, u64); 4] {
        [
            ("threads started", self.threads_started),
            ("threads moved", self.threads_moved),
            ("pauses", self.pauses),
            ("reclaimer switched", self.switches),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::leak;
    use crate::skeleton::expected_panic::raise_expected_panic;
    use std::panic::resume_unwind;

    const THREADS_MAX: usize = 20;

    /// Two workers with the same body.
    struct Same {
        body: fn(&RunState),
        run_state: &'static RunState,
        numbers: Vec<(usize, u64)>,
    }

    impl Supervised for Same {
        const NAME: &'static str = "same";

        fn thread(&mut self, worker: usize, mut rng: Rng) -> Body {
            self.numbers.push((worker, rng.next()));
            let (body, run_state) = (self.body, self.run_state);
            Box::new(move || body(run_state))
        }

        fn disturb(&mut self, _supervisor: &mut Supervisor) {
            if self.numbers.len() >= THREADS_MAX {
                self.run_state.stop();
            }
        }
    }

    fn started(body: fn(&RunState)) -> (Run, Same, Supervisor) {
        let run = Run::new(7, 2, false, Duration::from_secs(3600));
        let (run_state, workers) = (leak(RunState::default()), leak([Worker::default(), Worker::default()]));
        let mut same = Same { body, run_state, numbers: Vec::new() };
        let supervisor = Supervisor::start(&run, run_state, workers, &mut same).expect("a mask");
        (run, same, supervisor)
    }

    #[test]
    fn threads_follow_each_other_with_numbers_of_their_own() {
        let (run, mut same, mut supervisor) = started(|_| raise_expected_panic());
        supervisor.run(&run, &mut same);
        supervisor.shut_down(&mut same);
        assert_eq!(same.run_state.violation(), None, "the panics were planned");
        assert_eq!(supervisor.threads_started, same.numbers.len() as u64);
        let mut threads = [0, 0];
        for (worker, number) in same.numbers {
            let stream = WORKER_STREAMS * (worker as u64 + 1) + threads[worker];
            assert_eq!(number, Rng::new(7, stream).next());
            threads[worker] += 1;
        }
    }

    #[test]
    fn an_unplanned_panic_is_a_violation() {
        let (run, mut same, mut supervisor) = started(|_| resume_unwind(Box::new("unplanned")));
        supervisor.run(&run, &mut same);
        supervisor.shut_down(&mut same);
        let violation = same.run_state.violation().expect("it panicked");
        assert!(
            violation.contains("the thread of worker") && violation.ends_with("has panicked"),
            "{violation}"
        );
    }

    #[test]
    fn a_stuck_thread_is_a_violation_and_a_running_one_is_not() {
        let (_, mut same, mut supervisor) = started(|run_state| {
            while !run_state.is_stopped() {
                thread::yield_now();
            }
        });
        let Some(long_ago) = Instant::now().checked_sub(2 * STANDSTILL) else {
            // The clock starts with the machine, which has not been on for so long.
            return supervisor.shut_down(&mut same);
        };
        supervisor.places.iter_mut().for_each(|place| place.since = long_ago);
        supervisor.places[0].worker.begin_step();
        assert!(!supervisor.reap(0, &same));
        assert_eq!(same.run_state.violation(), None, "it began a step meanwhile");
        supervisor.reap(1, &same);
        let violation = same.run_state.violation().expect("it is stuck");
        assert!(violation.ends_with("the thread of worker 1 is stuck"), "{violation}");
        supervisor.shut_down(&mut same);
        assert!(supervisor.places.iter().all(|place| place.thread.is_none()));
    }

    #[test]
    fn a_thread_is_not_joined_before_its_exit_hooks_have_run() {
        let (_, mut same, mut supervisor) = started(|_| ());
        let exit_hooks = &supervisor.places[0].worker.exit_hooks;
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let channels = leak(std::sync::Mutex::new((begun, released)));
        let thread = thread::spawn(move || {
            let hook = |_| {
                let channels = crate::run::lock(channels);
                let _ = channels.0.send(());
                let _ = channels.1.recv();
            };
            exit_hooks.around_first_use(&mut Rng::new(1, 0), hook, |_| ());
        });
        supervisor.places[0].thread = Some(thread);
        has_begun.recv().expect("the hook runs");
        assert!(!supervisor.reap(0, &same), "joining would wait for the hook");
        drop(release);
        supervisor.shut_down(&mut same);
        assert_eq!(same.run_state.violation(), None);
    }
}
