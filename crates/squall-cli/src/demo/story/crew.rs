//! The threads of the service. They live through all phases, as the threads of a server do.
//!
//! - I1. In a slice, all working threads begin together, and end when the slice is over.

use std::num::NonZeroU64;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::stores::{Hits, Work};

/// The order to work in one slice.
struct Order {
    store: Arc<dyn Hits>,
    writes: u32,
    begin: Arc<Barrier>,
    stop: Arc<AtomicBool>,
}

struct Worker {
    /// Taken when the crew is dropped.
    orders: Option<Sender<Order>>,
    done: Receiver<Work>,
    thread: Option<JoinHandle<()>>,
}

/// A fixed set of threads that wait for orders.
pub(super) struct Crew(Vec<Worker>);

impl Crew {
    pub(super) fn new(threads: usize) -> Crew {
        let start = |number: usize| {
            let ((orders, receiver), (sender, done)) = (channel::<Order>(), channel());
            let work = move || {
                let mut random = NonZeroU64::MIN.get() + number as u64;
                for order in receiver {
                    order.begin.wait();
                    let work = order.store.work(order.writes, &mut random, &order.stop);
                    // Fails if the crew is gone; then this was the last order.
                    let _ = sender.send(work);
                }
            };
            let thread = thread::Builder::new().name(format!("service-{number}")).spawn(work);
            Worker {
                orders: Some(orders),
                done,
                thread: Some(thread.expect("a thread of the service can be started")),
            }
        };
        Crew((0..threads).map(start).collect())
    }

    /// Lets `threads` threads work on `store` for the time of a slice, and returns the sum of their work.
    ///
    /// # Panics
    /// If a thread panicked, with its panic.
    pub(super) fn slice(
        &mut self,
        store: &Arc<dyn Hits>,
        threads: usize,
        writes: u32,
        time: Duration,
    ) -> Work {
        let begin = Arc::new(Barrier::new(threads + 1));
        let stop = Arc::new(AtomicBool::new(false));
        for worker in &self.0[..threads] {
            let order = Order { store: store.clone(), writes, begin: begin.clone(), stop: stop.clone() };
            // Fails if the thread has panicked, which ends the slice below.
            let _ = worker.orders.as_ref().map(|orders| orders.send(order));
        }
        begin.wait();
        thread::sleep(time);
        // Relaxed: the flag carries no data. The results come through the channels.
        stop.store(true, Ordering::Relaxed);
        let mut all = Work::default();
        for worker in &mut self.0[..threads] {
            match worker.done.recv() {
                Ok(work) => all = all.plus(work),
                Err(_) => match worker.thread.take().map(JoinHandle::join) {
                    Some(Err(panic)) => resume_unwind(panic),
                    _ => unreachable!("a thread of the service ended without a panic"),
                },
            }
        }
        all
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|worker| drop(worker.orders.take()));
        for thread in self.0.iter_mut().filter_map(|worker| worker.thread.take()) {
            // A panic was passed on by `slice`.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::stores::{Adaptive, SERIES, UnderMutex, UnderRwLock, WithAtomic};
    use super::*;

    #[test]
    fn every_hit_of_every_thread_is_counted() {
        let _serial = crate::serial::lock();
        let mut crew = Crew::new(3);
        let stores: [Arc<dyn Hits>; 5] = [
            Arc::new(UnderMutex::new()),
            Arc::new(UnderRwLock::new()),
            Arc::new(WithAtomic::dashmap()),
            Arc::new(WithAtomic::scc()),
            Arc::new(Adaptive::new()),
        ];
        for store in stores {
            let slices = [(1, SERIES), (3, SERIES), (3, 1), (0, 1)];
            let work =
                slices.map(|(threads, writes)| crew.slice(&store, threads, writes, Duration::from_millis(5)));
            let made = work.iter().map(|work| work.hits).sum();
            assert_eq!((work[0].operations, work[3].operations), (work[0].hits, 0));
            assert_eq!(work[2].operations, work[2].hits * u64::from(SERIES));
            assert_eq!(store.difference(made), None);
        }
    }

    /// A store with calls that panic.
    struct Broken;

    impl Hits for Broken {
        fn hit(&self, _: u64) {
            panic!("this store is broken");
        }

        fn hits(&self, _: u64) -> u64 {
            0
        }

        fn total(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_panic_of_a_thread_is_passed_on() {
        let broken: Arc<dyn Hits> = Arc::new(Broken);
        let slice = || Crew::new(2).slice(&broken, 2, SERIES, Duration::ZERO);
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(slice));
        let panic = panic.expect_err("its threads panicked");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"this store is broken"));
    }
}
