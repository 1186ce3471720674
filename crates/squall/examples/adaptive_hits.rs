//! An object of your own that adapts: hits of a page, as one word or as a word per processor.
//!
//! Run with `cargo run --release -p squall --example adaptive_hits`. It prints the engine's decisions.

#![forbid(unsafe_code)]

use squall::adapt::control;
use squall::pervp::BiasedWord;
use squall::prelude::*;
use squall::swap::{RootFormats, State, StateFormats};
use squall::{Adaptive, Id};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

#[interface]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
}

/// The shared form.
#[derive(Default)]
struct OneWord(AtomicU64);

impl Hits for OneWord {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl State for OneWord {
    fn formats(formats: &mut StateFormats<'_, Self>) {
        formats.export_part(|this| Ok(this.total())).import_part(|this, n| {
            this.add(n);
            Ok(())
        });
    }
}

/// The root of the distributed form, and its representatives.
struct PerProcessor;
struct Local(BiasedWord, RepContext<PerProcessor>);

impl Root for PerProcessor {
    type Interface = dyn Hits;
    type Rep = Local;

    fn make_rep(&self, context: RepContext<Self>) -> Local {
        Local(BiasedWord::new(context.vp()), context)
    }
    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats.export_part(|_, rep| Ok(rep.0.load())).import_part(|_, rep, n| {
            rep.0.add(n);
            Ok(())
        });
    }
}

impl Hits for Local {
    fn add(&self, n: u64) {
        self.0.add(n);
    }
    fn total(&self) -> u64 {
        self.1.reps().map(|rep| rep.0.load()).sum()
    }
}

/// Makes objects that begin as one word. A total visits every representative.
static HITS: Adaptive<OneWord, PerProcessor> =
    Adaptive::new(OneWord::default, || PerProcessor).global(&["total"]);

fn main() {
    let hits = HITS.create();
    let (handle, stop) = (hits.handle(), AtomicBool::new(false));
    let began = Instant::now();
    let added: u64 = thread::scope(|scope| {
        let work = || {
            let mut added = 0;
            while !stop.load(Relaxed) {
                handle.add(1);
                added += 1;
            }
            added
        };
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        while history(Handle::id(handle)).is_empty() && began.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(10));
        }
        stop.store(true, Relaxed);
        workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).sum()
    });
    assert_eq!(handle.total(), added, "each hit is counted once");
    println!("{added} hits, and these decisions:");
    history(Handle::id(handle)).iter().for_each(|decision| println!("  {decision}"));
}

/// Returns the decisions about an object. The list is empty if the threads had one processor.
fn history(id: Id) -> Vec<String> {
    control::history(id).iter().map(|decision| decision.to_string()).collect()
}

#[test]
fn four_processors_make_the_object_distributed() {
    use squall::adapt::{engine::VirtualTime, settings};

    squall::Machine::set_virtual("cores:4".parse().unwrap()).unwrap();
    settings::ALL.set(&settings::DEADLINE, Duration::from_secs(60)).unwrap();
    let mut time = VirtualTime::start();
    let hits = HITS.create();
    let (handle, id) = (hits.handle(), Handle::id(hits.handle()));
    // Each of four processors makes 100 calls in a millisecond.
    time.set_load(move |_| {
        (0..4).for_each(|vp| Vp::with_vp(Vp::new(vp), || (0..100).for_each(|_| handle.add(1))).unwrap());
    });
    let form = || control::status(id).unwrap().form;
    assert!(time.run_until(Duration::from_secs(1), || form() == "distributed"));
    time.clear_load();
    let added = handle.total();
    assert!(time.run_until(Duration::from_secs(10), || form() == "shared"));
    assert_eq!((handle.total(), history(id).len()), (added, 2));
}
