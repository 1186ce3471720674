//! Futures that a test polls without a runtime, and an object with calls that last until the test ends them.

use squall_core::Handle;
use squall_core::swap::Replacement;
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
