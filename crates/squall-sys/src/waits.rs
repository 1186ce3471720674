//! Counts how often a thread slept for one of Squall's own locks, in builds with debug assertions.
//!
//! Problem: such builds report an operation that sleeps, but its author cannot avoid a contended lock inside
//! Squall. Idea: the locks count their sleeps, and an operation in which the count grew is not reported.
//!
//! Cost: one addition per sleep. In other builds there is no count.

#[cfg(debug_assertions)]
std::thread_local! {
    /// Has no destructor, so it can be used at any time.
    static SLEEPS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts a sleep of the calling thread for a lock.
#[inline]
pub fn count_sleep() {
    #[cfg(debug_assertions)]
    SLEEPS.with(|sleeps| sleeps.set(sleeps.get().wrapping_add(1)));
}

/// Returns how often the calling thread has slept for a lock; always 0 in builds without debug assertions.
pub fn sleeps() -> u64 {
    #[cfg(debug_assertions)]
    return SLEEPS.with(std::cell::Cell::get);
    #[cfg(not(debug_assertions))]
    0
}
