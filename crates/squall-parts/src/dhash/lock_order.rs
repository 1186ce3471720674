//! Lock order, checked in debug builds.
//!
//! Problem: a closure runs under the lock of an element. If it locked another element of the same table, two
//! threads could do so in opposite order. If it locked the same element, it would wait for itself. Idea: each
//! thread remembers the tables that it holds locks of, and a method that locks panics before it waits.
//!
//! - I1. A thread holds locks of a table in one method at a time. A method that locks checks this at its
//!   beginning, even if it then takes no lock. The thread is registered from before its first lock until
//!   after its last. Within a method, locks follow the order of raw/I6.
//!
//! Not detected: cycles through other locks or other tables. `squall-lock` detects cycles of its own locks.
//! Cost: free in release builds.

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;

    thread_local! {
        static TABLES: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    }

    /// Registers that this thread holds locks of a table.
    pub(crate) struct TableScope(usize);

    /// # Panics
    /// If this thread holds locks of that table.
    #[track_caller]
    pub(crate) fn check(table: usize) {
        // A thread that has destroyed its thread-local values is not checked.
        assert!(
            TABLES.try_with(|tables| tables.borrow().contains(&table)) != Ok(true),
            "squall-parts: a closure that runs under the lock of an element locked again in the same table, which can deadlock. \
             Lock the master before a local table, and one key at a time; `read` takes no lock"
        );
    }

    /// Registers this thread until the drop of the result.
    pub(crate) fn enter(table: usize) -> TableScope {
        let _ = TABLES.try_with(|tables| tables.borrow_mut().push(table));
        TableScope(table)
    }

    impl Drop for TableScope {
        fn drop(&mut self) {
            let _ = TABLES.try_with(|tables| {
                let mut tables = tables.borrow_mut();
                if let Some(at) = tables.iter().rposition(|&table| table == self.0) {
                    tables.remove(at);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod unchecked {
    pub(crate) struct TableScope;

    #[inline(always)]
    pub(crate) fn check(_: usize) {}

    #[inline(always)]
    pub(crate) fn enter(_: usize) -> TableScope {
        TableScope
    }
}

#[cfg(debug_assertions)]
pub(crate) use checked::{TableScope, check, enter};
#[cfg(not(debug_assertions))]
pub(crate) use unchecked::{TableScope, check, enter};
