//! The allocator of a whole program: threads, collections, sizes, thread-locals, large blocks.
#![cfg(not(loom))]

#[cfg(not(miri))]
mod fork;

use squall_alloc::LocalityAlloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

// With this option, the crate itself registers the global allocator.
#[cfg_attr(not(squall_global_alloc), global_allocator)]
static ALLOCATOR: LocalityAlloc = LocalityAlloc;

#[test]
fn every_size_and_alignment_is_served_and_kept() {
    let mut blocks = Vec::new();
    for round in 0..3 {
        for size in (1..300).chain([1000, 1024, 4096, 5000, 8192, 8193, 70_000, 524_288, 524_289, 3_000_000])
        {
            for align in [1, 8, 16, 64, 128, 4096, 8192] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: the layout is not of size 0.
                let block = unsafe { ALLOCATOR.alloc(layout) };
                assert!(!block.is_null() && block.addr() % align == 0, "{layout:?}");
                let mark = (size + align + round) as u8;
                // SAFETY: our own block.
                unsafe { block.write_bytes(mark, size) };
                blocks.push((block, layout, mark));
            }
        }
        // Frees every other block.
        let mut index = 0;
        blocks.retain(|(block, layout, mark)| {
            index += 1;
            // SAFETY: our own block, written above.
            let bytes = unsafe { std::slice::from_raw_parts(*block, layout.size()) };
            assert!(bytes.iter().all(|byte| byte == mark), "{layout:?}");
            if index % 2 == 0 {
                // SAFETY: freed once.
                unsafe { ALLOCATOR.dealloc(*block, *layout) };
            }
            index % 2 != 0
        });
    }
    for (block, layout, _) in blocks {
        // SAFETY: freed once.
        unsafe { ALLOCATOR.dealloc(block, layout) };
    }
}

#[test]
fn a_resized_block_keeps_its_content() {
    let mut bytes: Vec<u8> = Vec::new();
    for index in 0..3_000_000u32 {
        bytes.push(index as u8);
    }
    for len in [2_000_000, 600_000, 500_000, 100_000, 9000, 8000, 100, 1] {
        bytes.truncate(len);
        bytes.shrink_to_fit();
        assert!(bytes.iter().enumerate().all(|(index, byte)| *byte == index as u8));
    }
    let zeros = vec![0u64; 100_000];
    assert!(zeros.iter().all(|word| *word == 0));
}

#[test]
fn threads_pass_blocks_on() {
    thread_local! {
        static KEPT: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }
    let (send, receive) = std::sync::mpsc::channel::<(usize, Box<[usize]>)>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut sums = BTreeMap::new();
            for (thread, values) in receive {
                *sums.entry(thread).or_insert(0) += values.iter().sum::<usize>();
            }
            assert_eq!(
                sums.into_values().sum::<usize>(),
                8 * (0..2000).map(|n| n * (n % 100)).sum::<usize>()
            );
        });
        for thread in 0..8 {
            let send = send.clone();
            scope.spawn(move || {
                let mut map = HashMap::new();
                for index in 0..2000usize {
                    send.send((thread, vec![index; index % 100].into())).unwrap();
                    map.insert(index, index.to_string());
                    KEPT.with_borrow_mut(|kept| kept.push(index.to_string()));
                }
                assert!(map.iter().all(|(key, value)| key.to_string() == *value));
            });
        }
        drop(send);
    });
}

/// Allocations before `main`, in a function that the linker registers, and after it, in an exit handler.
#[cfg(target_os = "linux")]
mod around_main {
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    static KEPT: AtomicPtr<Vec<String>> = AtomicPtr::new(std::ptr::null_mut());

    extern "C" fn before() {
        let kept: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        KEPT.store(Box::into_raw(Box::new(kept)), Ordering::Relaxed);
        // SAFETY: a function that may be called when the program ends.
        unsafe { libc::atexit(after) };
    }

    extern "C" fn after() {
        let first = KEPT.swap(std::ptr::null_mut(), Ordering::Relaxed);
        let some: Vec<String> = (0..500).map(|number| number.to_string()).collect();
        // SAFETY: `before` leaked it, and it is taken once.
        let is_well = first.is_null() || unsafe { *Box::from_raw(first) == some };
        if !is_well {
            std::process::abort();
        }
    }

    #[used]
    // SAFETY: the linker gathers the functions that run before `main` here, and calls them by the C
    // convention.
    #[unsafe(link_section = ".init_array")]
    static BEFORE: extern "C" fn() = before;

    #[test]
    fn blocks_are_served_before_and_after_main() {
        let kept = KEPT.load(Ordering::Relaxed);
        assert!(!kept.is_null());
        // SAFETY: `before` leaked it, and `after` runs after all tests.
        let kept = unsafe { &*kept };
        assert!(kept.iter().enumerate().all(|(number, text)| *text == number.to_string()));
    }

    /// Destructors of the C library's thread-locals run after all of Rust's, up to four times, as long as
    /// they store a new value.
    static KEY: AtomicUsize = AtomicUsize::new(usize::MAX);
    static ENDED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn at_end(value: *mut libc::c_void) {
        // SAFETY: the value is a leaked box with the round.
        let round = unsafe { *Box::from_raw(value.cast::<usize>()) };
        let some: Vec<Box<usize>> = (0..300).map(|number| Box::new(number * round)).collect();
        assert_eq!(some.into_iter().map(|number| *number).sum::<usize>(), 44_850 * round);
        ENDED.fetch_add(1, Ordering::Relaxed);
        if round < 3 {
            put(round + 1);
        }
    }

    fn put(round: usize) {
        let key = KEY.load(Ordering::Relaxed) as libc::pthread_key_t;
        // SAFETY: a valid key.
        assert_eq!(unsafe { libc::pthread_setspecific(key, Box::into_raw(Box::new(round)).cast()) }, 0);
    }

    #[test]
    fn a_thread_allocates_in_its_last_destructors() {
        let mut key = 0;
        // SAFETY: a place for the key, and a valid destructor.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) }, 0);
        KEY.store(key as usize, Ordering::Relaxed);
        for _ in 0..50 {
            let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(|| put(1))).collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        assert_eq!(ENDED.load(Ordering::Relaxed), 50 * 4 * 3);
    }
}
