//! Gates that admit requests and let a closer wait until all have left: enter and leave, as a program would
//! write them by hand.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::WaitGroup;

use crate::case::{Make, Missing, Setting, Subject, Worker};

/// A gate.
pub(crate) trait Gate: Send + Sync {
    /// Makes the gate, once per run, on the first thread's processor.
    fn make() -> Result<Self, Missing>
    where
        Self: Sized;

    /// Enters and leaves.
    fn pass(&self);

    /// Whether no request is inside.
    fn is_empty(&self) -> bool;
}

/// Longest wait of a check for the requests inside.
const DRAIN: Duration = Duration::from_secs(10);

struct Passing<G>(CachePadded<G>);

/// Makes the subject that passes `G`.
pub(crate) const fn passing<G: Gate + 'static>() -> Make {
    fn make<G: Gate + 'static>(_: &Setting) -> Result<Box<dyn Subject>, Missing> {
        Ok(Box::new(Passing(CachePadded::new(G::make()?))))
    }
    make::<G>
}

impl<G: Gate> Subject for Passing<G> {
    fn worker(&self, _: usize) -> Worker<'_> {
        self.0.pass();
        Box::new(|ops| {
            let gate = &*self.0;
            for _ in 0..ops {
                gate.pass();
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err("the gate counts a request after all have left".to_owned())
        }
    }
}

/// `atomic`: a count and a flag beside it, as written by hand. The last request to leave a closed gate wakes
/// the closer.
pub(crate) struct Atomic {
    inside: AtomicU64,
    closed: AtomicBool,
    /// The closer waits here.
    gone: Condvar,
    waits: Mutex<()>,
}

impl Atomic {
    #[inline]
    fn leave(&self) {
        // SeqCst, both: the count before the flag here, the flag before the count in the closer. The Release
        // half publishes the request's work to the closer, which waits until all have left.
        if self.inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        drop(self.waits.lock().expect("a thread panicked under the lock"));
        self.gone.notify_all();
    }
}

impl Gate for Atomic {
    fn make() -> Result<Atomic, Missing> {
        let (inside, closed) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Atomic { inside, closed, gone: Condvar::new(), waits: Mutex::new(()) })
    }

    #[inline]
    fn pass(&self) {
        // SeqCst, both: the counterpart of the closer's accesses, as in `leave`.
        self.inside.fetch_add(1, Ordering::SeqCst);
        // A refused request leaves like a served one.
        black_box(self.closed.load(Ordering::SeqCst));
        self.leave();
    }

    /// Closes the gate, waits a limited time until all have left, and opens it.
    fn is_empty(&self) -> bool {
        // SeqCst, here and below: pairs with the accesses of requests in `enter` and `leave`.
        self.closed.store(true, Ordering::SeqCst);
        let waits = self.waits.lock().expect("a thread panicked under the lock");
        let inside = |_: &mut ()| self.inside.load(Ordering::SeqCst) != 0;
        let waited =
            self.gone.wait_timeout_while(waits, DRAIN, inside).expect("a thread panicked under the lock");
        self.closed.store(false, Ordering::SeqCst);
        !waited.1.timed_out()
    }
}

/// `arc-clone`: each request holds a clone of an `Arc`; a drain waits until only one is left.
pub(crate) struct Clones(Arc<u64>);

impl Gate for Clones {
    fn make() -> Result<Clones, Missing> {
        Ok(Clones(Arc::new(0)))
    }

    #[inline]
    fn pass(&self) {
        drop(black_box(self.0.clone()));
    }

    fn is_empty(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// `wait-group`: crossbeam's, with a mutex inside.
pub(crate) struct Group(WaitGroup);

impl Gate for Group {
    fn make() -> Result<Group, Missing> {
        Ok(Group(WaitGroup::new()))
    }

    #[inline]
    fn pass(&self) {
        drop(black_box(self.0.clone()));
    }

    fn is_empty(&self) -> bool {
        // The group reports only by ending a wait, once in its life.
        true
    }
}

/// `std-rwlock`: a request reads, a drain writes.
impl Gate for std::sync::RwLock<()> {
    fn make() -> Result<Self, Missing> {
        Ok(std::sync::RwLock::new(()))
    }

    #[inline]
    fn pass(&self) {
        drop(black_box(self.read().expect("a thread panicked under the lock")));
    }

    fn is_empty(&self) -> bool {
        self.try_write().is_ok()
    }
}
