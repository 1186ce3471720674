//! Waits in the child of a fork.
//!
//! Problem: a lock that another thread held at the fork stays held in the child, where that thread does not
//! exist. Idea: the slow path asks whether the process is such a child before it waits. No thread waited in
//! this process before, since the only thread was in `fork`.
//!
//! Not promised: a process that has opened no operation (`squall_rcu`) before the fork does not recognise its
//! child. There a wait never ends.

/// The message of a refused wait.
pub(crate) const REFUSAL: &str = "squall-lock: the lock is held, and the process is the child of a fork, where its \
    holder may not exist; such a child may only exec";

/// Panics in place of a wait without a deadline.
#[cold]
#[track_caller]
pub(crate) fn refuse() -> ! {
    panic!("{REFUSAL}")
}
