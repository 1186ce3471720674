//! Objects in forked children, and calls from signal handlers.

use crate::forked::in_forked_child;
use crate::support::{alone, is_emulated};
use squall_core::{
    CallError, CallErrorKind, CreateError, Handle, Owned, RepContext, Root, WellKnown, shared, tables,
    try_shared,
};
use squall_machine::{ClusterSize, Vp};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

#[squall_macros::interface(crate = squall_core)]
trait Hits: Send + Sync {
    fn add(&self, n: u64);
    fn total(&self) -> u64;
    fn carried(&self) -> Result<u64, CallError>;
    #[blocking]
    fn blocked(&self) -> u64;
}

#[derive(Default)]
struct Central(AtomicU64);

impl Hits for Central {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
    fn carried(&self) -> Result<u64, CallError> {
        Ok(self.total())
    }
    fn blocked(&self) -> u64 {
        self.total()
    }
}

struct Spread;

struct Local(RepContext<Spread>, AtomicU64);

impl Root for Spread {
    type Interface = dyn Hits;
    type Rep = Local;
    fn make_rep(&self, at: RepContext<Spread>) -> Local {
        Local(at, AtomicU64::new(0))
    }
}

impl Hits for Local {
    fn add(&self, n: u64) {
        self.1.fetch_add(n, Ordering::Relaxed);
    }
    fn total(&self) -> u64 {
        self.0.reps().map(|rep| rep.1.load(Ordering::Relaxed)).sum()
    }
    fn carried(&self) -> Result<u64, CallError> {
        Ok(self.total())
    }
    fn blocked(&self) -> u64 {
        self.total()
    }
}

#[test]
fn pitfall_13_in_a_forked_child_slow_paths_fail_and_no_call_hangs() {
    const NAME: &str = "process::pitfall_13_in_a_forked_child_slow_paths_fail_and_no_call_hangs";
    static PLACE: WellKnown<dyn Hits> = WellKnown::new(3);
    if is_emulated() {
        eprintln!("SKIP {NAME}: the emulator hides features that it needs");
        return;
    }
    if !alone(NAME, &[&[], &[("SQUALL_MEMBARRIER", "off")], &[("SQUALL_TOPOLOGY", "cores:4")]]) {
        return;
    }
    let forked = |error: CallError| error.reason() == CallErrorKind::Forked;
    let shared_one: Owned<dyn Hits> = shared(Central::default());
    let spread = Spread.create(ClusterSize::Machine);
    let (s, d) = (shared_one.handle(), spread.handle());
    s.add(1);
    d.add(1);
    let place = PLACE.install_shared(Central::default()).unwrap();
    // Another thread makes and destroys objects all the time, so that it holds each lock at some fork.
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let hits = Spread.create(ClusterSize::Cpu);
                hits.add(1);
                drop(hits);
                let _ = PLACE.handle();
                drop(squall_core::snapshot());
            }
        });
        for _ in 0..20 {
            // Each check runs in a child of its own: some would leave a lock behind.
            assert!(in_forked_child(|| matches!(
                try_shared::<dyn Hits, _>(Central::default()),
                Err(CreateError::Forked)
            )));
            assert!(in_forked_child(|| matches!(
                Spread.try_create(ClusterSize::Cpu),
                Err(CreateError::Forked)
            )));
            assert!(in_forked_child(|| matches!(
                PLACE.install(Spread, ClusterSize::Cpu),
                Err(CreateError::Forked | CreateError::Taken(_))
            )));
            // The first object has no table entry. The second has one, and its call would hit.
            let new = Spread.create(ClusterSize::Machine);
            d.add(0);
            for object in [new.handle(), d] {
                assert!(in_forked_child(|| forked(object.try_add(1).unwrap_err())));
                assert!(in_forked_child(|| forked(object.carried().unwrap_err())));
                assert!(in_forked_child(|| forked(object.try_blocked().unwrap_err())));
            }
            // In the child, objects are not destroyed, and waits return an error.
            assert!(
                in_forked_child(move || Owned::destroy(new).wait() == Err(squall_rcu::WaitError::Forked))
            );
        }
        stop.store(true, Ordering::Relaxed);
    });
    // A thread that never called has no registration, and gets none in the child.
    thread::spawn(move || assert!(in_forked_child(|| forked(s.try_total().unwrap_err())))).join().unwrap();
    // The parent goes on unaffected.
    s.add(1);
    d.add(1);
    assert_eq!((s.total(), d.total()), (2, 2));
    for hits in [shared_one, spread, place] {
        Owned::destroy(hits).wait().unwrap();
    }
}

static CALLED: OnceLock<Handle<dyn Hits>> = OnceLock::new();
static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn call_in_handler(_signal: libc::c_int) {
    // The entry exists, so this call does not miss.
    CALLED.get().unwrap().add(1);
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn pitfall_05_a_signal_handler_may_call_a_cached_object_at_any_instruction() {
    const NAME: &str = "process::pitfall_05_a_signal_handler_may_call_a_cached_object_at_any_instruction";
    let on_two = ("SQUALL_TOPOLOGY", "cores:2");
    if !alone(NAME, &[&[on_two], &[on_two, ("SQUALL_MEMBARRIER", "off")]]) {
        return;
    }
    let called: Owned<dyn Hits> = Spread.create(ClusterSize::Cpu);
    CALLED.set(called.handle()).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let done = AtomicBool::new(false);
    let mut own = 0;
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            Vp::assign_current(Vp::new(1)).unwrap();
            called.add(1);
            // SAFETY: no preconditions.
            tell.send(unsafe { libc::pthread_self() }).unwrap();
            let mut calls = 1;
            while !done.load(Ordering::Relaxed) {
                called.add(1);
                // Signals interrupt slow paths, too.
                let other = Spread.create(ClusterSize::Cpu);
                other.add(1);
                assert_eq!(other.total(), 1);
                drop(other);
                calls += 1;
            }
            calls
        });
        let id = told.recv().unwrap();
        let handler: extern "C" fn(libc::c_int) = call_in_handler;
        // SAFETY: the handler makes a call that does not miss, on a registered thread, and touches only
        // atomics.
        unsafe { libc::signal(libc::SIGUSR1, handler as *const () as libc::sighandler_t) };
        while HANDLED.load(Ordering::Relaxed) < 300 {
            // SAFETY: the thread lives until it is joined below.
            unsafe { libc::pthread_kill(id, libc::SIGUSR1) };
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        own = worker.join().unwrap();
    });
    assert_eq!(called.total(), own + HANDLED.load(Ordering::Relaxed));
    Owned::destroy(called).wait().unwrap();
    squall_rcu::barrier().unwrap();
    assert_eq!(tables::stats().objects_count, 0);
}
