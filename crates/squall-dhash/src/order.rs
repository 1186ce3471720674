//! The order of locks, checked in debug builds.
//!
//! Problem: a closure runs under the lock of an element. If it locked another element of the same table, two threads could do so in
//! opposite order; if it locked the same one, it would wait for itself. Idea: a thread remembers the tables under whose locks it
//! runs, and who comes again panics before it waits.
//!
//! - I1. A thread is in a table's locked method at most once at a time. What the methods themselves take is in the order of raw/I6.
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
    /// If it does already.
    #[track_caller]
    pub(crate) fn enter(table: usize) -> Inside {
        // A thread that is past its thread-local values is not checked.
        let again = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            let again = inside.contains(&table);
            if !again {
                inside.push(table);
            }
            again
        });
        assert!(
            again != Ok(true),
            "squall-dhash: a closure that runs under the lock of an element locked another element of the same table, or the same \
             one. That can deadlock: the order is master, then local, and one key at a time. `read` takes no lock"
        );
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
    pub(crate) fn enter(_: usize) -> Inside {
        Inside
    }
}

#[cfg(debug_assertions)]
pub(crate) use checked::{Inside, enter};
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::{Inside, enter};
