//! Hot-swap in forked children, at every moment of the parent's swap.

use crate::forked::in_forked_child;
use crate::support::{alone, is_emulated};
use squall_core::swap::{Replacement, State, StateFormats, Swap, SwapFailure, arbitrate, recent};
use squall_core::{CallErrorKind, Handle, ObjectState, Owned, info_of, swappable};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

#[squall_macros::interface(crate = squall_core)]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
    /// Runs `f` within the call.
    fn within(&self, f: &mut dyn FnMut());
}

type Hook = Box<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct Count {
    n: AtomicU64,
    on_export: Option<Hook>,
}

impl State for Count {
    fn formats(formats: &mut StateFormats<'_, Count>) {
        formats
            .export(|this| {
                this.on_export.iter().for_each(|hook| hook());
                Ok(this.total())
            })
            .import(|this, n| {
                this.add(n);
                Ok(())
            });
    }
}

impl Hits for Count {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.n.load(Relaxed)
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
}

fn new() -> Replacement<dyn Hits> {
    Replacement::swappable(Count::default())
}

/// Runs a test in processes of its own, unless it is emulated. Returns whether this is such a process.
fn alone_unless_emulated(test: &str) -> bool {
    if is_emulated() {
        eprintln!("SKIP {test}: the emulator hides features that it needs");
        return false;
    }
    alone(test, MODES)
}

const MODES: &[&[(&str, &str)]] =
    &[&[], &[("SQUALL_MEMBARRIER", "off")], &[("SQUALL_RSEQ", "off")], &[("SQUALL_TOPOLOGY", "cores:4")]];

#[test]
fn pitfall_13_in_a_forked_child_no_swap_begins_and_no_call_waits_for_one() {
    const NAME: &str = "swap_process::pitfall_13_in_a_forked_child_no_swap_begins_and_no_call_waits_for_one";
    if !alone_unless_emulated(NAME) {
        return;
    }
    let hits: Owned<dyn Hits> = swappable(Count::default());
    let handle = hits.handle();
    handle.add(1);
    let swap_fails = move |failure| {
        let error = Swap::new(handle).run(new()).unwrap_err();
        error.failure() == failure && error.report().is_none()
    };
    let is_forked = |error: squall_core::CallError| error.reason() == CallErrorKind::Forked;
    assert!(in_forked_child(|| swap_fails(SwapFailure::Forked)));
    assert!(in_forked_child(|| recent().is_empty() && info_of(Handle::id(handle)).is_none()));
    // A replacement built in the child is also dropped there.
    assert!(in_forked_child(|| {
        drop(new());
        true
    }));
    // Forked in `Forward` and in `Transfer`: in the child the swap never ends.
    let (come, came) = mpsc::channel();
    let (go, may_go) = mpsc::channel::<()>();
    let (come, may_go) = (Mutex::new(come), Mutex::new(may_go));
    let on_export: Option<Hook> = Some(Box::new(move || {
        come.lock().unwrap().send(()).unwrap();
        may_go.lock().unwrap().recv().unwrap();
    }));
    Swap::new(handle).run(Replacement::swappable(Count { on_export, ..Count::default() })).unwrap();
    let (inside, is_inside) = mpsc::channel();
    let (leave, may_leave) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        handle.within(&mut || {
            inside.send(()).unwrap();
            may_leave.recv().unwrap();
        });
    });
    is_inside.recv().unwrap();
    let swap = thread::spawn(move || Swap::new(handle).drain_timeout(Duration::from_secs(600)).run(new()));
    while info_of(Handle::id(handle)).unwrap().state != ObjectState::Swapping {
        thread::yield_now();
    }
    assert!(in_forked_child(|| is_forked(handle.try_total().unwrap_err())));
    assert!(in_forked_child(|| swap_fails(SwapFailure::Forked)));
    leave.send(()).unwrap();
    came.recv().unwrap();
    assert!(in_forked_child(|| is_forked(handle.try_total().unwrap_err())));
    // The parent goes on.
    go.send(()).unwrap();
    swap.join().unwrap().unwrap();
    reader.join().unwrap();
    assert!(in_forked_child(|| is_forked(handle.try_total().unwrap_err())));
    handle.add(1);
    assert_eq!(handle.total(), 2);
    Owned::destroy(hits).wait().unwrap();
}

#[test]
fn pitfall_13_a_child_that_is_forked_at_any_moment_of_a_swap_does_not_hang() {
    const NAME: &str =
        "swap_process::pitfall_13_a_child_that_is_forked_at_any_moment_of_a_swap_does_not_hang";
    if !alone_unless_emulated(NAME) {
        return;
    }
    let hits: Owned<dyn Hits> = swappable(Count::default());
    let handle = hits.handle();
    // A process detects its children from its first operation on.
    handle.add(1);
    let (stop, added) = (AtomicBool::new(false), AtomicU64::new(1));
    let mut good = 0;
    thread::scope(|scope| {
        // One thread swaps and arbitrates, one calls, holding any lock at the moment of a fork.
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let _ = Swap::new(handle).timeout(Duration::from_secs(600)).run(new());
                drop(arbitrate(handle, |_| {}));
                assert!(recent().len() <= 256);
            }
        });
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                handle.add(1);
                added.fetch_add(1, Relaxed);
            }
        });
        for _ in 0..50 {
            good += i32::from(in_forked_child(|| {
                let began = Instant::now();
                let swap = Swap::new(handle).deadline(began).run(new()).unwrap_err();
                let called = handle.try_total().unwrap_err();
                let refused = called.reason() == CallErrorKind::Forked;
                swap.failure() == SwapFailure::Forked && refused && recent().is_empty()
            }));
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(good, 50);
    assert_eq!(handle.total(), added.into_inner());
    Owned::destroy(hits).wait().unwrap();
}

#[test]
fn pitfall_13_no_arbiter_begins_in_a_forked_child() {
    const NAME: &str = "swap_process::pitfall_13_no_arbiter_begins_in_a_forked_child";
    if !alone_unless_emulated(NAME) {
        return;
    }
    let hits: Owned<dyn Hits> = swappable(Count::default());
    let handle = hits.handle();
    handle.add(1);
    assert!(in_forked_child(
        || arbitrate(handle, |_| {}).is_err_and(|error| error.failure() == SwapFailure::Forked)
    ));
    assert_eq!(handle.total(), 1);
    Owned::destroy(hits).wait().unwrap();
}

#[test]
fn pitfall_13_an_arbiter_that_is_dropped_in_a_forked_child_does_nothing() {
    const NAME: &str = "swap_process::pitfall_13_an_arbiter_that_is_dropped_in_a_forked_child_does_nothing";
    if !alone_unless_emulated(NAME) {
        return;
    }
    let hits: Owned<dyn Hits> = swappable(Count::default());
    let handle = hits.handle();
    handle.add(1);
    let seen = Arc::new(AtomicU64::new(0));
    let sees = seen.clone();
    let mut arbiter = Some(arbitrate(handle, move |_| _ = sees.fetch_add(1, Relaxed)).unwrap());
    assert!(in_forked_child(|| {
        drop(arbiter.take());
        handle.try_total().is_err_and(|error| error.reason() == CallErrorKind::Forked)
    }));
    assert_eq!((handle.total(), seen.load(Relaxed)), (1, 1));
    drop(arbiter);
    Owned::destroy(hits).wait().unwrap();
}
