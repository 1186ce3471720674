//! State of a thread that is hidden from the code that the thread serves.
//!
//! Problem: a thread that serves runs code that is independent of the code around it. Crates above keep state
//! of the running code in thread-locals, for example the attributes and the deadline of its next call. The
//! crate that serves does not know them.
//!
//! Idea: a crate with such state registers a function that hides it.
//!
//! - I1. The function is registered before a thread has the state. So a thread that has it finds the
//!   function.
//!
//! Not promised: destructors of retired values run where the memory is reclaimed, and see the state there.
//!
//! Cost: one load where the state is set. Served code costs one load and an indirect call for each kind of
//! state.

use squall_sys::sync::OnceLock;

/// Not public: a kind of state.
#[derive(Clone, Copy, Debug)]
pub enum State {
    /// Attributes for the calls of an object.
    Attributes,
    /// The deadline for the calls of an object.
    Deadline,
    /// The deadline for calls of objects of other processes.
    RemoteDeadline,
    /// The client of another process that the thread serves.
    Caller,
}

/// Runs a closure while a kind of state has its default value. Restores the state also if the closure panics.
type Hide = fn(&mut dyn FnMut());

static HIDES: [OnceLock<Hide>; 4] = [const { OnceLock::new() }; 4];

/// Not public: registers the function that hides a kind of state from served code. Called each time before
/// the state is set, with one function for each kind in a process.
#[inline]
pub fn hide_from_served(state: State, hide: Hide) {
    HIDES[state as usize].get_or_init(|| hide);
}

/// Not public: runs served code, which sees default values of all registered state.
pub fn run_served<R>(f: impl FnOnce() -> R) -> R {
    let (mut f, mut result) = (Some(f), None);
    run_hidden(&HIDES, &mut || result = f.take().map(|f| f()));
    result.expect("each function that hides state runs its closure")
}

fn run_hidden(hides: &[OnceLock<Hide>], f: &mut dyn FnMut()) {
    let Some((first, rest)) = hides.split_first() else { return f() };
    match first.get() {
        Some(hide) => hide(&mut || run_hidden(rest, f)),
        None => run_hidden(rest, f),
    }
}
