//! The threads that run the services of a node.
//!
//! - I1. The work of one lane runs in its order, one piece at a time. Work without a lane runs at once.
//! - I2. A thread is added while work waits and no thread is idle, up to the limit. A thread ends after a
//!   second without work.
//! - I3. [`queue`](Workers::queue) wakes no thread: its caller may hold a lock that the thread needs first.
//!   The caller [wakes](Workers::wake) one after that lock.
//! - I4. After the end no work runs, and all threads have ended, but one that ends the workers itself.

use squall_sys::panics::end_panic;
use squall_sys::sync::atomic::AtomicBool;
use squall_sys::sync::atomic::Ordering::Relaxed;
use squall_sys::sync::{Condvar, Mutex, MutexGuard, StdArc as Arc, lock, thread};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// A lane: a service and a shard of it.
pub(crate) type Lane = (u64, u32);
type Work = Box<dyn FnOnce() + Send>;

/// A thread without work ends after this time.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    ready: VecDeque<(Option<Lane>, Work)>,
    /// Lanes with work that runs, and the work that waits behind it.
    lanes: HashMap<Lane, VecDeque<Work>>,
    threads: usize,
    idle: usize,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
    /// Work waits, and no thread could be started. Set and taken by threads that have looked under the lock.
    stuck: AtomicBool,
}

/// The threads of a node.
pub(crate) struct Workers(Arc<Shared>);

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers").finish_non_exhaustive()
    }
}

std::thread_local! {
    /// The address of the workers that this thread belongs to.
    static WORKS_FOR: Cell<usize> = const { Cell::new(0) };
}

impl Shared {
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

fn state(shared: &Shared) -> MutexGuard<'_, State> {
    lock(&shared.state, "the work of a node's services")
}

impl Workers {
    /// Makes workers with at most `limit` threads. The first work starts the first thread.
    pub(crate) fn new(limit: usize) -> Workers {
        let (state, changed) = (Mutex::default(), Condvar::new());
        Workers(Arc::new(Shared { state, changed, limit: limit.max(1), stuck: AtomicBool::new(false) }))
    }

    /// Adds work. Returns whether the caller must [`wake`](Workers::wake) a thread for it (I3).
    #[must_use = "the work waits until a thread is woken"]
    pub(crate) fn queue(&self, lane: Option<Lane>, work: Work) -> bool {
        let shared = &self.0;
        let mut state = state(shared);
        if state.ended {
            return false;
        }
        if let Some(lane) = lane {
            if let Some(waiting) = state.lanes.get_mut(&lane) {
                waiting.push_back(work);
                return false;
            }
            state.lanes.insert(lane, VecDeque::new());
        }
        state.ready.push_back((lane, work));
        if state.idle >= state.ready.len() || state.threads >= shared.limit {
            return true;
        }
        state.threads += 1;
        drop(state);
        let of_thread = shared.clone();
        let builder = thread::Builder::new().name("squall-fleet".into());
        if builder.spawn(move || run(&of_thread, true)).is_err() {
            // The system has no thread left. Other threads of the workers do it, or `help` does.
            let mut state = self::state(shared);
            state.threads -= 1;
            shared.stuck.store(state.threads == 0, Relaxed);
        }
        false
    }

    /// Wakes a thread for work that was added.
    pub(crate) fn wake(&self) {
        self.0.changed.notify_one();
    }

    /// Runs the work that no thread could be started for.
    pub(crate) fn help(&self) {
        if self.0.stuck.load(Relaxed) {
            self.0.stuck.store(false, Relaxed);
            run(&self.0, false);
        }
    }

    /// Ends the threads, and waits for them: at most for `limit`.
    pub(crate) fn end(&self, limit: Duration) {
        let mut state = state(&self.0);
        state.ended = true;
        state.ready.clear();
        state.lanes.clear();
        self.0.changed.notify_all();
        let own = usize::from(WORKS_FOR.get() == self.0.address());
        while state.threads > own {
            let (next, waited) = match self.0.changed.wait_timeout(state, limit) {
                Ok(pair) => pair,
                Err(poisoned) => poisoned.into_inner(),
            };
            state = next;
            if waited.timed_out() {
                break;
            }
        }
    }

    /// Returns the pieces of work that wait for a thread, or for their turn in a lane.
    pub(crate) fn waiting(&self) -> u64 {
        let state = state(&self.0);
        (state.ready.len() + state.lanes.values().map(VecDeque::len).sum::<usize>()) as u64
    }

    /// Returns the number of threads.
    #[cfg(test)]
    pub(super) fn threads(&self) -> usize {
        state(&self.0).threads
    }
}

/// Runs work. A thread stays for more.
fn run(shared: &Shared, is_thread: bool) {
    if is_thread {
        WORKS_FOR.set(shared.address());
    }
    let mut state = state(shared);
    loop {
        if let Some((lane, work)) = state.ready.pop_front() {
            drop(state);
            end_panic(work);
            state = self::state(shared);
            if let Some(lane) = lane
                && let Some(waiting) = state.lanes.get_mut(&lane)
            {
                match waiting.pop_front() {
                    Some(next) => state.ready.push_back((Some(lane), next)),
                    None => drop(state.lanes.remove(&lane)),
                }
            }
            continue;
        }
        if !is_thread {
            return;
        }
        if state.ended {
            break;
        }
        state.idle += 1;
        let waited = shared.changed.wait_timeout(state, IDLE);
        let (next, waited) = match waited {
            Ok(pair) => pair,
            Err(poisoned) => poisoned.into_inner(),
        };
        state = next;
        state.idle -= 1;
        if waited.timed_out() && state.ready.is_empty() {
            break;
        }
    }
    state.threads -= 1;
    let ended = state.ended;
    drop(state);
    if ended {
        shared.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn add(workers: &Workers, lane: Option<Lane>, work: Work) {
        if workers.queue(lane, work) {
            workers.wake();
        }
    }

    #[test]
    fn a_lane_keeps_its_order_and_others_pass_it() {
        let workers = Workers::new(4);
        let (sender, receiver) = mpsc::channel();
        let (open, gate) = mpsc::channel::<()>();
        let first = sender.clone();
        add(
            &workers,
            Some((1, 0)),
            Box::new(move || {
                gate.recv().unwrap();
                first.send(1).unwrap();
            }),
        );
        for number in 2..50 {
            let sender = sender.clone();
            add(&workers, Some((1, 0)), Box::new(move || sender.send(number).unwrap()));
        }
        let other = sender.clone();
        add(&workers, Some((1, 1)), Box::new(move || other.send(100).unwrap()));
        assert_eq!(receiver.recv(), Ok(100));
        open.send(()).unwrap();
        assert!((1..50).all(|number| receiver.recv() == Ok(number)));
        workers.end(Duration::from_secs(60));
        assert_eq!(workers.threads(), 0);
    }

    #[test]
    fn a_panic_ends_its_work_alone() {
        let workers = Workers::new(1);
        let (sender, receiver) = mpsc::channel();
        add(&workers, Some((1, 0)), Box::new(|| panic!("as planned")));
        add(&workers, Some((1, 0)), Box::new(move || sender.send(1).unwrap()));
        assert_eq!(receiver.recv(), Ok(1));
        workers.end(Duration::from_secs(60));
    }
}
