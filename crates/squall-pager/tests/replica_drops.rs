//! Deferred drops of the program, while replicas of a page are taken away. A program of its own: no reclaimer
//! runs the drops, so the threads run their own.
#![cfg(not(any(loom, miri)))]

#[path = "pages/memory.rs"]
#[allow(dead_code, reason = "the tests of pages use the rest")]
mod memory;

use memory::State;
use squall_machine::{ClusterSize, Machine, Vp};
use squall_objects::pages::{self, Supply};
use squall_pager::cache::{self, FileCache, FileCacheExt, Form, PAGE_BYTES, Replication};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

/// The number of pins after which a cluster has a replica.
const PINS: usize = 64;
const ROUNDS: usize = 2000;

/// A value with a drop that waits until another thread has had a page pinned.
struct Waits(Arc<Pinner>);

/// The way to that thread.
struct Pinner {
    ask: Mutex<mpsc::Sender<mpsc::Sender<()>>>,
    drops: AtomicUsize,
    timeouts: AtomicUsize,
}

impl Drop for Waits {
    fn drop(&mut self) {
        let (answer, answered) = mpsc::channel();
        self.0.drops.fetch_add(1, Relaxed);
        // After one failure the others would wait in vain too.
        if self.0.timeouts.load(Relaxed) == 0 && self.0.ask.lock().unwrap().send(answer).is_ok() {
            let pinned = answered.recv_timeout(Duration::from_secs(20));
            self.0.timeouts.fetch_add(usize::from(pinned.is_err()), Relaxed);
        }
    }
}

#[test]
fn no_deferred_drop_runs_under_the_latch_of_a_page() {
    squall_rcu::set_reclaimer(false);
    Machine::set_virtual("nodes:2,cores:4".parse().unwrap()).unwrap();
    let on = |vp, f: &mut dyn FnMut()| Vp::with_vp(Vp::new(vp), f).unwrap();
    let memory = pages::distributed(Supply::system(64));
    let replication = Replication::new(ClusterSize::Node, 8 * PAGE_BYTES);
    let cache = cache::replicating(Form::Shared, replication, State::with_pages(4).source(), memory.handle());
    let (ask, asked) = mpsc::channel::<mpsc::Sender<()>>();
    let pinner =
        Arc::new(Pinner { ask: Mutex::new(ask), drops: AtomicUsize::new(0), timeouts: AtomicUsize::new(0) });
    let handle = cache.handle();
    let answers = thread::spawn(move || {
        while let Ok(answer) = asked.recv() {
            drop(handle.pin(0).unwrap());
            let _ = answer.send(());
        }
    });
    // Rounds that retire other numbers of values. In some, enough values are retired when a replica goes.
    for round in 0..ROUNDS {
        // The page was evicted, so each round begins with the first number of pins.
        on(0, &mut || drop(cache.pin_mut(0).unwrap()));
        let made = cache.sensors().replicas_made;
        on(4, &mut || (0..PINS).for_each(|_| drop(cache.pin(0).unwrap())));
        assert_eq!(cache.sensors().replicas_made, made + 1);
        (0..round % 5).for_each(|_| squall_rcu::retire(Box::new(Waits(pinner.clone()))));
        on(0, &mut || drop(cache.pin_mut(0).unwrap()));
        cache.sync().unwrap();
        on(0, &mut || assert!(cache.evict(4) > 0));
        assert_eq!(cache.sensors().replicas, 0, "round {round}");
    }
    squall_rcu::barrier().unwrap();
    assert_eq!((pinner.timeouts.load(Relaxed), pinner.drops.load(Relaxed)), (0, 2 * ROUNDS));
    drop(pinner);
    answers.join().unwrap();
}
