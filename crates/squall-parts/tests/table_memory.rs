//! Tests of the thread that frees the table's memory. A program of its own, since it counts all deallocations
//! of the process.
#![cfg(not(any(loom, squall_global_alloc)))]

use squall_parts::table::Table;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Deallocations by threads that are not marked as writers.
static BY_OTHERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: the system's allocator, with a count.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !WRITES.get() {
            BY_OTHERS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A value with a user's drop.
struct Users(#[expect(dead_code, reason = "it is only freed")] String);

impl Drop for Users {
    fn drop(&mut self) {}
}

/// Returns the number of blocks that other threads freed while this thread inserted and removed values.
fn freed_by_others<V: Send + Sync + 'static>(rounds: u64, value: impl Fn(u64) -> V) -> usize {
    let table: Table<String, V> = Table::new();
    let before = BY_OTHERS.load(Ordering::Relaxed);
    WRITES.set(true);
    for round in 0..rounds {
        assert!(!table.set(format!("session:{round}"), value(round)));
        assert!(table.delete(format!("session:{round}").as_str()));
    }
    assert!(table.is_empty());
    squall_rcu::barrier().expect("no operation is open");
    WRITES.set(false);
    BY_OTHERS.load(Ordering::Relaxed) - before
}

/// A writer frees its own entries if their drop only frees memory, except for a rest at the end.
#[test]
fn a_thread_that_removes_strings_frees_them() {
    let rounds = if cfg!(miri) { 400 } else { 20_000 };
    // The scheduler decides how much of the work the reclaimer gets. One run of many must show the rule.
    let runs = if cfg!(miri) { 1 } else { 20 };
    let mut users = Vec::new();
    // An entry with a user's value has three blocks. The reclaimer may free the rest that the writer had no
    // time for.
    let by_reclaimer = (0..runs).any(|_| {
        users.push(freed_by_others(rounds, |round| Users(round.to_string())));
        users.last().is_some_and(|&freed| freed as u64 >= rounds)
    });
    assert!(by_reclaimer, "{users:?}");
    let mut strings = Vec::new();
    let by_writer = (0..runs).any(|_| {
        strings.push(freed_by_others(rounds, |round| round));
        strings.last().is_some_and(|&freed| (freed as u64) < rounds)
    });
    println!("{strings:?} {users:?}");
    assert!(cfg!(miri) || by_writer, "{strings:?}");
}
