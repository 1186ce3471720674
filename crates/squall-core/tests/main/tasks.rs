//! Waits of tasks for the end of an object, and futures that a test polls without a runtime.

use squall_core::swap::Replacement;
use squall_core::{Handle, Owned};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

/// Longer than any correct wait takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A waker that counts its calls, and unparks the thread of the test.
pub(crate) struct Bell(AtomicU64, Thread);

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        self.1.unpark();
    }
}

/// A future with a waker of its own.
pub(crate) struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + Send + 'a>>,
    pub(crate) bell: Arc<Bell>,
}

impl<'a, T> Task<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + Send + 'a) -> Task<'a, T> {
        Task { future: Box::pin(future), bell: Arc::new(Bell(AtomicU64::new(0), thread::current())) }
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        self.future.as_mut().poll(&mut Context::from_waker(&Waker::from(self.bell.clone())))
    }

    fn rings(&self) -> u64 {
        self.bell.0.load(Ordering::Relaxed)
    }

    /// Polls the future only when its waker was called.
    pub(crate) fn run(mut self) -> T {
        loop {
            let before = self.rings();
            if let Poll::Ready(output) = self.poll() {
                return output;
            }
            while self.rings() == before {
                thread::park();
            }
        }
    }
}

/// An object with a call that lasts until the test ends it.
#[squall_macros::interface(crate = squall_core)]
pub(crate) trait Sleeper: Send + Sync {
    #[blocking]
    fn sleep(&self);
}

struct Bed {
    asleep: Mutex<mpsc::Sender<()>>,
    wakes: Mutex<mpsc::Receiver<()>>,
}

impl Sleeper for Bed {
    fn sleep(&self) {
        self.asleep.lock().unwrap().send(()).unwrap();
        let _woken = self.wakes.lock().unwrap().recv_timeout(PATIENCE);
    }
}

/// Returns an object for [`sleeps`], the messages of its calls, and the message that ends a call.
pub(crate) fn bed() -> (Replacement<dyn Sleeper>, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((sleeps, asleep), (wake, wakes)) = (mpsc::channel(), mpsc::channel());
    let bed = Bed { asleep: sleeps.into(), wakes: wakes.into() };
    (Replacement::shared(bed), asleep, wake)
}

/// Starts a call, and returns when it is in the object.
pub(crate) fn sleeps(handle: Handle<dyn Sleeper>, asleep: &mpsc::Receiver<()>) -> thread::JoinHandle<()> {
    let call = thread::spawn(move || handle.sleep());
    asleep.recv().unwrap();
    call
}

/// While the reclaimer is forbidden, no thread looks again. So the end of the last call must wake the task.
#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn the_wait_for_an_end_sleeps_while_the_reclaimer_is_forbidden() {
    if !crate::support::alone("tasks::the_wait_for_an_end_sleeps_while_the_reclaimer_is_forbidden", &[&[]]) {
        return;
    }
    squall_rcu::set_reclaimer(false);
    let (bed, asleep, wake) = bed();
    let owned = bed.create().unwrap();
    let call = sleeps(owned.handle(), &asleep);
    let destruction = Owned::destroy(owned);
    let mut waits = Task::new(destruction.wait_async());
    // Drops that defer others in turn take some polls. Then no work is left.
    let rests = (0..10).any(|_| {
        let before = waits.rings();
        assert!(waits.poll().is_pending());
        waits.rings() == before
    });
    assert!(rests, "the task wakes itself again and again");
    // Another task of the thread needs no more than its own work.
    assert_eq!(Task::new(squall_rcu::barrier_async()).run(), Ok(()));
    wake.send(()).unwrap();
    assert_eq!(waits.run(), Ok(()));
    assert!(destruction.is_complete());
    call.join().unwrap();
    // With the permission, the reclaimer looks again.
    let (bed, asleep, wake) = self::bed();
    let owned = bed.create().unwrap();
    let call = sleeps(owned.handle(), &asleep);
    let mut waits = Task::new(Owned::destroy(owned).wait_async());
    assert!(waits.poll().is_pending());
    squall_rcu::set_reclaimer(true);
    wake.send(()).unwrap();
    assert_eq!(waits.run(), Ok(()));
    call.join().unwrap();
}
