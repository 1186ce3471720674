//! Pause points: places where a unit test stops a thread.
//!
//! Problem: an error in a protocol often needs a thread that stops at one particular place. A scheduler
//! hardly ever stops it there.
//!
//! Idea: the protocol calls [`point`] there, under `if cfg!(test)`, so that shipped code has no pause points.
//! A unit test gives its thread a function ([`hook`]) that runs at each point. The function may wait for
//! other threads, or raise a signal.
//!
//! - I1. A hook runs on the thread that set it, and not while it runs already.
//! - I2. The hook of a thread needs no destructor, so points work in signal handlers and in the destructors
//!   of thread-locals.
//!
//! Cost: each call of [`hook`] keeps its function until the process ends.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};

type Hook = &'static (dyn Fn(&'static str) + Send + Sync);

thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// All hooks, so that a leak checker finds them.
static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

/// Calls the hook of the calling thread, if it has one.
pub fn point(name: &'static str) {
    let Some(hook) = HOOK.take() else { return };
    hook(name);
    HOOK.set(Some(hook));
}

/// Calls `f` with the name of each point that the calling thread reaches, until the result is dropped. If the
/// result is forgotten, `f` is called until the thread has ended.
pub fn hook(f: impl Fn(&'static str) + Send + Sync + 'static) -> Hooked {
    let hook: Hook = Box::leak(Box::new(f));
    HOOKS.lock().unwrap_or_else(PoisonError::into_inner).push(hook);
    HOOK.set(Some(hook));
    Hooked(())
}

/// Removes the hook of its thread when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Hooked(());

impl Drop for Hooked {
    fn drop(&mut self) {
        HOOK.set(None);
    }
}
