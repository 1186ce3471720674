//! The order of locks, checked in debug builds.
//!
//! Problem: a closure runs under the lock of an element. If it locked another element of the same table, two threads could do so in
//! opposite order; if it locked the same one, it would wait for itself. Idea: a thread remembers the tables under whose locks it
//! runs, and who comes again panics before it waits.
//!
//! - I1. A thread is under a table's locks in one method at a time: each that locks asks at its beginning, whether or not it comes to a
//!   lock, and is noted from before its first lock until after its last. What the methods themselves take is in the order of raw/I6.
//!
//! Not seen: circles that lead through locks of others, or other tables. Those of `squall-lock` are named by that crate.
//! Cost: none in release builds.

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    thread_local! {
        static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    /// This thread runs under locks of a table.
    pub(crate) struct Inside(usize);

    /// # Panics
    /// If this thread runs under locks of that table.
    #[track_caller]
    pub(crate) fn check(table: usize) {
        // A thread that is past its thread-local values is not checked.
        assert!(
            INSIDE.try_with(|inside| inside.borrow().contains(&table)) != Ok(true),
            "squall-parts: a closure that runs under the lock of an element locked another element of the same table, or the same \
             one. That can deadlock: the order is master, then local, and one key at a time. `read` takes no lock"
        );
    }

    /// To be kept for as long.
    pub(crate) fn enter(table: usize) -> Inside {
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().push(table));
        Inside(table)
    }

    impl Drop for Inside {
        fn drop(&mut self) {
            let _ = INSIDE.try_with(|inside| {
                let mut inside = inside.borrow_mut();
                if let Some(at) = inside.iter().rposition(|&table| table == self.0) {
                    inside.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    pub(crate) struct Inside;

    #[inline(always)]
    pub(crate) fn check(_: usize) {}

    #[inline(always)]
    pub(crate) fn enter(_: usize) -> Inside {
        Inside
    }
}

#[cfg(debug_assertions)]
pub(crate) use checked::{Inside, check, enter};
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::{Inside, check, enter};
