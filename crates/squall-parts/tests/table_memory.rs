//! What the table gives back, and by whom. A file of its own, as it counts all that this program frees.
#![cfg(not(squall_global_alloc))]

use squall_parts::table::Table;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What was freed by threads that did not say that they write.
static BY_OTHERS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static WRITES: Cell<bool> = const { Cell::new(false) };
}

struct Counting;

// SAFETY: the system's allocator, and a count.
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

/// A drop that may be the user's.
struct Users(#[expect(dead_code, reason = "it is there to be freed")] String);

impl Drop for Users {
    fn drop(&mut self) {}
}

/// How many blocks others freed while this thread put so many values in and took them out.
fn freed_by_others<V: Send + Sync + 'static>(rounds: u64, value: impl Fn(u64) -> V) -> usize {
    let table: Table<String, V> = Table::new();
    let before = BY_OTHERS.load(Ordering::Relaxed);
    WRITES.set(true);
    for round in 0..rounds {
        assert!(!table.set(format!("session:{round}"), value(round)));
        assert!(table.discard(format!("session:{round}").as_str()));
    }
    assert!(table.is_empty());
    squall_rcu::barrier().expect("nobody is in an operation");
    WRITES.set(false);
    BY_OTHERS.load(Ordering::Relaxed) - before
}

/// Entries whose drop is nothing but memory are freed by their own writers, but for what is left at the end.
#[test]
fn who_takes_out_strings_frees_them() {
    let rounds = if cfg!(miri) { 400 } else { 20_000 };
    let strings = freed_by_others(rounds, |round| round);
    let users = freed_by_others(rounds, |round| Users(round.to_string()));
    println!("{strings} {users}");
    // An entry with a user's value is three blocks; of the others a reclaimer may get what the writer had no time for.
    assert!(users as u64 >= rounds, "{users}");
    assert!(cfg!(miri) || (strings as u64) < rounds, "{strings}");
}
