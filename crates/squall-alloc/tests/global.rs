//! As the allocator of the whole program: threads, collections, sizes, thread-locals, large blocks.

use squall_alloc::LocalityAlloc;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

// That is every test's, where they are to run on it.
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
        // Every other one.
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
fn what_grows_and_shrinks_keeps_what_is_in_it() {
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
fn threads_pass_blocks_on_and_end() {
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
