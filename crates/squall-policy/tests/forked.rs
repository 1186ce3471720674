//! Invocations in the child of a fork, made while other threads of the parent invoke.
//!
//! A program of its own: the threads of other tests would hold locks at a fork.
#![cfg(all(target_os = "linux", not(any(loom, miri))))]

#[path = "../../squall-rcu/tests/forked/mod.rs"]
mod child;

use child::{End, in_child_ending};
use squall_core::{CallErrorKind, Handle, Owned};
use squall_policy::attribute::with;
use squall_policy::invoke::{
    ASYNCHRONOUS, Dispatch, INVOCATION, Invocation, InvokeError, Invoker, Mode, PendingCall, TRY, call,
    in_mode,
};
use squall_policy::{Binding, Monitor, Policy, Task, governed};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

#[squall_macros::interface(crate = squall_core)]
trait Hits: Send + Sync {
    #[blocking]
    fn add(&self) -> u64;
}

struct One;

impl Hits for One {
    fn add(&self) -> u64 {
        1
    }
}

static LATER: Mode = Mode::new("later");

#[derive(Default)]
struct Later(Mutex<Vec<Dispatch>>);

impl Policy for Later {
    const MODES: &'static [&'static Mode] = &[&LATER];
    fn invoke_mode(&self, _later: &'static Mode, call: Dispatch) {
        self.0.lock().unwrap().push(call);
    }
}

fn is_forked(pending: PendingCall<u64>) -> bool {
    matches!(pending.wait(), Err(InvokeError::Call(error)) if error.reason() == CallErrorKind::Forked)
}

fn call_as(how: Invocation, hits: Handle<dyn Hits>) -> PendingCall<u64> {
    with(hits, (&INVOCATION, how), |hits| call(hits, |hits| hits.add())).unwrap()
}

#[test]
fn kt_08_in_a_forked_child_each_invocation_is_an_error_and_none_hangs() {
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        eprintln!("SKIP: the emulator ignores wipe-on-fork");
        return;
    }
    let later = Binding::new(Later::default());
    let kept: Owned<dyn Hits> = later.govern(|_| One).unwrap();
    let monitor: Owned<dyn Hits> = governed(Monitor::new(), |_| One);
    let task: Owned<dyn Hits> = governed(Task::new(), |_| One);
    let (kept, monitor, task) = (kept.handle(), monitor.handle(), task.handle());
    let invokers = [Invoker::new(kept), Invoker::new(monitor), Invoker::new(task)];
    let stop = AtomicBool::new(false);
    let passed = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    // Creates and ends an object, so that each lock is held at some fork.
                    let task: Owned<dyn Hits> = governed(Task::new(), |_| One);
                    assert_eq!(in_mode(task.handle(), &ASYNCHRONOUS, |hits| hits.add()).wait().unwrap(), 1);
                    assert!(in_mode(monitor, &LATER, |hits| hits.add()).wait().is_err());
                }
            });
        }
        let passed = (0..30).all(|n| {
            let (run, dropped) =
                (in_mode(kept, &LATER, |hits| hits.add()), in_mode(kept, &LATER, |hits| hits.add()));
            let mut calls = std::mem::take(&mut *later.0.lock().unwrap());
            let invokers = &invokers;
            let check = move || {
                calls.remove(0).run();
                drop(calls);
                is_forked(run)
                    && is_forked(dropped)
                    && is_forked(in_mode(kept, &LATER, |hits| hits.add()))
                    && is_forked(in_mode(monitor, &TRY, |hits| hits.add()))
                    && is_forked(in_mode(task, &ASYNCHRONOUS, |hits| hits.add()))
                    && [Invocation::Synchronous, Invocation::Asynchronous]
                        .iter()
                        .all(|how| [kept, monitor, task].iter().all(|hits| is_forked(call_as(*how, *hits))))
                    && invokers.iter().all(|invoker| {
                        is_forked(invoker.in_mode(&ASYNCHRONOUS, |hits| hits.add()))
                            && is_forked(invoker.call(|hits| hits.add()))
                    })
            };
            in_child_ending(if n % 2 == 0 { End::Orderly } else { End::AtOnce }, check)
        });
        stop.store(true, Ordering::Relaxed);
        passed
    });
    assert!(passed, "an invocation in a forked child was made, failed for another reason, or hung");
    // The parent goes on.
    assert_eq!(in_mode(task, &ASYNCHRONOUS, |hits| hits.add()).wait().unwrap(), 1);
}
