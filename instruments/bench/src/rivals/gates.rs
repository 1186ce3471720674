//! Ways to admit requests so that one can wait until all are gone: enter and leave, and what a plain program would use.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use crossbeam_utils::sync::WaitGroup;

use crate::case::{Make, Missing, Setting, Subject, Worker};

/// A gate.
pub(crate) trait Gate: Send + Sync {
    /// Once for the whole run, where the first thread will be.
    fn make() -> Result<Self, Missing>
    where
        Self: Sized;

    /// Enters and leaves.
    fn pass(&self);

    /// Whether nobody is inside.
    fn is_empty(&self) -> bool;
}

/// How long a check waits for those inside at most.
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
        if self.0.is_empty() { Ok(()) } else { Err("somebody is inside when all have left".to_owned()) }
    }
}

/// `atomic`: a count and a flag beside it, as one would write it by hand: whoever is the last to leave a closed gate wakes who
/// closed it.
pub(crate) struct Atomic {
    inside: AtomicU64,
    closed: AtomicBool,
    /// Who closes waits here.
    gone: Condvar,
    waits: Mutex<()>,
}

impl Atomic {
    #[inline]
    fn leave(&self) {
        // SeqCst, both: the count before the flag, against who closes: the flag before the count. And a release: what the request
        // did, for who waits until all are gone.
        if self.inside.fetch_sub(1, Ordering::SeqCst) == 1 && self.closed.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        drop(self.waits.lock().expect("nobody panics holding it"));
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
        // SeqCst, both: as in `leave`.
        self.inside.fetch_add(1, Ordering::SeqCst);
        // Refused or served, it leaves.
        black_box(self.closed.load(Ordering::SeqCst));
        self.leave();
    }

    /// Closes it, waits until all are gone, if not too long, and opens it.
    fn is_empty(&self) -> bool {
        // SeqCst, here and below: partners of those of who enters and leaves.
        self.closed.store(true, Ordering::SeqCst);
        let waits = self.waits.lock().expect("nobody panics holding it");
        let inside = |_: &mut ()| self.inside.load(Ordering::SeqCst) != 0;
        let waited = self.gone.wait_timeout_while(waits, DRAIN, inside).expect("nobody panics holding it");
        self.closed.store(false, Ordering::SeqCst);
        !waited.1.timed_out()
    }
}

/// `arc-clone`: each request has a clone of an `Arc`; whoever drains waits until there is but one.
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

/// `wait-group`: crossbeam's; a mutex inside.
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
        // It tells only by ending a wait, of which there is one in its life.
        true
    }
}

/// `std-rwlock`: a request reads, whoever drains writes.
impl Gate for std::sync::RwLock<()> {
    fn make() -> Result<Self, Missing> {
        Ok(std::sync::RwLock::new(()))
    }

    #[inline]
    fn pass(&self) {
        drop(black_box(self.read().expect("nobody panics holding it")));
    }

    fn is_empty(&self) -> bool {
        self.try_write().is_ok()
    }
}
