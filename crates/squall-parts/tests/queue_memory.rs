//! Memory of a queue with a million elements. Each thread counts its own allocations: the thread that runs
//! the tests allocates too, at any time.
#![cfg(not(loom))]

use squall_parts::queue::{Form, Queue};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, with counts for each thread.
struct Counting;

thread_local! {
    static USED: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
    static CALLS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: each call goes to the system's allocator with its own arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        USED.set(USED.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(USED.get()));
        CALLS.set(CALLS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // A thread may free a block of another thread.
        USED.set(USED.get().wrapping_sub(layout.size()));
        // SAFETY: the block came from `System.alloc` with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_million_elements_need_one_array_and_a_put_into_a_heap_with_room_none() {
    // The machine is read at the first use.
    drop(Queue::<u64>::with_places(Form::Strict, 1));
    let sizes = if cfg!(miri) { [1 << 8, 1 << 8] } else { [1 << 20, 1 << 16] };
    for (form, elements) in [Form::Strict, Form::Local].into_iter().zip(sizes) {
        let before = USED.get();
        let queue = Queue::with_places(form, 1);
        let client = queue.client(0);
        let made = USED.get();
        PEAK.set(made);
        // Multiplication by an odd number permutes the priorities.
        let fill = || {
            (0..elements as u64).for_each(|n| client.put(n.wrapping_mul(0x9e37_79b9_7f4a_7c15), n).unwrap());
        };
        fill();
        // The first 16 entries have memory of their own.
        let (array, front) = (elements * size_of::<(u64, u64)>(), 16 * size_of::<(u64, u64)>());
        assert_eq!(USED.get() - made, array + front, "{form:?}");
        let peak = array + array / 2 + 2 * front;
        assert_eq!(PEAK.get() - made, peak, "growth keeps the old memory meanwhile");
        let calls = CALLS.get();
        let mut last = 0;
        for _ in 0..elements {
            let (priority, value) = client.get().unwrap();
            assert!(priority >= last && priority == value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            last = priority;
        }
        assert_eq!(client.get(), None);
        fill();
        assert_eq!(CALLS.get(), calls, "a heap keeps its memory");
        drop(queue);
        assert_eq!(USED.get(), before, "{form:?}");
    }
}
