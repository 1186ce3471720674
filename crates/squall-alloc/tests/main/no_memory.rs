//! Refused memory: each request to the system may fail, the allocation returns null, and no memory leaks.

use super::support::{self, again, in_both_modes, is_child};
use squall_alloc::{Arena, LocalityAlloc, Placement, refuse_after, stats, trim};
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::NonNull;

const SIZES: [usize; 10] = [0, 16, 100, 1_000, 5_000, 8_192, 30_000, 200_000, 524_288, 2_000_000];

const PLACEMENTS: [Placement; 5] =
    [Placement::General, Placement::Local, Placement::LocalOf(1), Placement::Shared, Placement::Near(1)];

/// Counts its drops.
struct DropCounter<'a>(&'a Cell<usize>, [u8; 3_000]);

impl Drop for DropCounter<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Allocates like a global allocator: zeroed blocks, and resizes in both directions. A block with a refused
/// resize keeps its content. Returns the number of refusals.
fn allocate_like_global() -> usize {
    let mut refused = 0;
    for size in SIZES.map(|size| size.max(1)) {
        let mut layout = Layout::from_size_align(size, 8).unwrap();
        // SAFETY: the size is not 0.
        let Some(mut block) = NonNull::new(unsafe { LocalityAlloc.alloc_zeroed(layout) }) else {
            refused += 1;
            continue;
        };
        // SAFETY: our own block of so many bytes.
        assert!(unsafe { std::slice::from_raw_parts(block.as_ptr(), size) }.iter().all(|byte| *byte == 0));
        // SAFETY: as above.
        unsafe { block.write_bytes(7, size) };
        let mut filled = size;
        for other in SIZES.map(|size| size.max(1)) {
            // SAFETY: our own block, for its layout; the size is not 0.
            match NonNull::new(unsafe { LocalityAlloc.realloc(block.as_ptr(), layout, other) }) {
                Some(moved) => (block, layout) = (moved, Layout::from_size_align(other, 8).unwrap()),
                None => refused += 1,
            }
            filled = filled.min(layout.size());
            // SAFETY: as above.
            let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), filled) };
            assert!(bytes.iter().all(|byte| *byte == 7), "{size}, {other}");
        }
        // SAFETY: freed once.
        unsafe { LocalityAlloc.dealloc(block.as_ptr(), layout) };
    }
    refused
}

/// Allocates a few blocks of each size and placement, and frees them. Returns the number of refusals.
fn round() -> usize {
    let (mut blocks, mut refused) = (Vec::new(), allocate_like_global());
    for placement in PLACEMENTS {
        let dropped = Cell::new(0);
        match Arena::new(placement).place(DropCounter(&dropped, [1; 3_000])) {
            Ok(placed) => {
                assert_eq!((dropped.get(), placed.1[2_999]), (0, 1));
                drop(placed);
            }
            Err(_) => refused += 1,
        }
        assert_eq!(dropped.get(), 1, "the value was dropped once");
    }
    for size in SIZES {
        for placement in PLACEMENTS {
            for _ in 0..3 {
                let layout = Layout::from_size_align(size, 8).unwrap();
                match Arena::new(placement).allocate(layout) {
                    Ok(block) => {
                        // SAFETY: our own block.
                        unsafe { block.write_bytes(1, size) };
                        blocks.push((block, layout));
                    }
                    Err(error) => {
                        assert_eq!(error.layout.size(), size);
                        refused += 1;
                    }
                }
            }
        }
    }
    for (block, layout) in blocks {
        // SAFETY: freed once.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    }
    refused
}

/// Blocks in use, units in slabs, and large blocks.
fn held() -> (u64, usize, usize) {
    let stats = stats().expect("the allocator was used");
    let used = stats.vps.iter().flat_map(|vp| &vp.classes).map(|class| class.used_count).sum();
    (used, stats.nodes.iter().map(|units| units.used).sum(), stats.large_count)
}

#[test]
fn a_refusal_at_any_request_returns_null_and_leaks_no_memory() {
    in_both_modes("no_memory::a_refusal_at_any_request_returns_null_and_leaks_no_memory", || {
        round();
        let emptied = trim();
        let before = held();
        for requests in 0.. {
            refuse_after(Some(requests));
            let refused = round();
            refuse_after(None);
            let emptied = trim() && emptied;
            assert!(!emptied || held() == before, "after {requests} requests: {:?}, not {before:?}", held());
            if refused == 0 {
                assert!(requests > 0, "a large block asks the system");
                break;
            }
        }
    });
}

#[test]
fn a_refusal_during_setup_is_recoverable() {
    if !is_child() {
        for requests in 0..6 {
            let output = again(
                "no_memory::a_refusal_during_setup_is_recoverable",
                &[("SQUALL_TEST_REQUESTS", &requests.to_string())],
            );
            assert!(output.status.success(), "{requests}: {}", String::from_utf8_lossy(&output.stdout));
        }
        return;
    }
    let requests = std::env::var("SQUALL_TEST_REQUESTS").unwrap().parse().unwrap();
    let layout = Layout::new::<u64>();
    refuse_after(Some(requests));
    let first = Arena::new(Placement::General).allocate(layout);
    refuse_after(None);
    let second = Arena::new(Placement::General).allocate(layout).expect("memory is allowed again");
    for block in first.into_iter().chain([second]) {
        // SAFETY: freed once.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    }
    assert_eq!(held().0, 0);
}

#[test]
fn a_full_block_range_is_out_of_memory() {
    if !is_child() {
        return support::must_pass(
            "no_memory::a_full_block_range_is_out_of_memory",
            &[("SQUALL_ALLOC_ARENA_MIB", "8")],
        );
    }
    let layout = Layout::new::<[u8; 1000]>();
    let mut blocks = Vec::new();
    while let Ok(block) = Arena::new(Placement::General).allocate(layout) {
        blocks.push(block);
    }
    assert_eq!(blocks.len(), 128 * (65_536 / 1024), "the whole block range is in use");
    while let Some(block) = blocks.pop() {
        // SAFETY: freed once.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    }
    assert!(Arena::new(Placement::General).allocate(Layout::new::<[u8; 50]>()).is_ok() || !trim());
}

#[test]
fn a_full_block_range_names_both_numbers_and_the_setting() {
    let test = "no_memory::a_full_block_range_names_both_numbers_and_the_setting";
    if !is_child() {
        let output = support::again(test, &[]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{told}");
        let lines: Vec<&str> = told.lines().filter(|line| line.starts_with("squall-alloc: ")).collect();
        let expected = "squall-alloc: 8 MiB are in use for blocks, and the bound is 8 MiB: set SQUALL_ALLOC_ARENA_MIB higher";
        assert_eq!(lines, [expected], "the global allocator says it once");
        return;
    }
    squall_alloc::reserve_at_most(8 << 20).expect("before the first use");
    let layout = Layout::new::<[u8; 1000]>();
    let error = loop {
        if let Err(error) = Arena::new(Placement::General).allocate(layout) {
            break error.to_string();
        }
    };
    for part in ["1000 bytes", "8 MiB are in use", "the bound is 8 MiB", "SQUALL_ALLOC_ARENA_MIB"] {
        assert!(error.contains(part), "{error}");
    }
    let late = squall_alloc::reserve_at_most(16 << 20).expect_err("after the first use");
    assert_eq!(late.bytes, 8 << 20);
    // SAFETY: the size is not 0.
    unsafe { assert!(LocalityAlloc.alloc(layout).is_null() && LocalityAlloc.alloc(layout).is_null()) };
}

#[test]
fn a_refused_segment_is_made_usable_later() {
    let test = "no_memory::a_refused_segment_is_made_usable_later";
    if !is_child() {
        return support::must_pass(test, &[("SQUALL_ALLOC_ARENA_MIB", "64")]);
    }
    let pool = Arena::new(Placement::General);
    let layout = Layout::from_size_align(500_000, 8).unwrap();
    let mut count = usize::from(pool.allocate(layout).is_ok());
    let mut full = false;
    while !full {
        // One request succeeds: half of the work on a segment.
        refuse_after(Some(1));
        count += std::iter::from_fn(|| pool.allocate(layout).ok()).count();
        refuse_after(None);
        full = pool.allocate(layout).is_err();
        count += usize::from(!full);
    }
    // Blocks of 512 KiB each.
    assert_eq!(count, 128, "the whole block range is in use");
}

#[test]
fn free_memory_of_another_node_is_used() {
    let test = "no_memory::free_memory_of_another_node_is_used";
    if !is_child() {
        let topology = ("SQUALL_TOPOLOGY", "nodes:2,cores:2");
        return support::must_pass(test, &[("SQUALL_ALLOC_ARENA_MIB", "8"), topology]);
    }
    let layout = Layout::new::<[u8; 1024]>();
    for vp in [0, 2, 0] {
        let mut blocks = Vec::new();
        while let Ok(block) = Arena::new(Placement::Near(vp)).allocate(layout) {
            blocks.push(block);
        }
        assert!(blocks.len() > 6_000, "only {} blocks near {vp}, although all pages were free", blocks.len());
        for block in blocks {
            // SAFETY: freed once.
            unsafe { Arena::new(Placement::General).free(block, layout) };
        }
    }
}

/// Bytes of this process's mappings: the writable ones, and all of them.
fn mapped() -> (usize, usize) {
    let text = std::fs::read_to_string("/proc/self/maps").expect("/proc/self can be read");
    let (mut writable, mut all) = (0, 0);
    for line in text.lines() {
        let (range, rest) = line.split_once(' ').expect("a line of /proc/self/maps");
        let (from, to) = range.split_once('-').expect("a range of addresses");
        let number = |text| usize::from_str_radix(text, 16).expect("a decimal number");
        let bytes = number(to) - number(from);
        all += bytes;
        writable += if rest.starts_with("rw") { bytes } else { 0 };
    }
    (writable, all)
}

#[test]
fn the_setup_maps_little_writable_memory() {
    let test = "no_memory::the_setup_maps_little_writable_memory";
    if !is_child() {
        for variable in [("SQUALL_RSEQ", ""), ("SQUALL_RSEQ", "off"), ("SQUALL_ALLOC_DEBUG", "1")] {
            support::must_pass(test, &[variable, ("SQUALL_ALLOC_ARENA_MIB", "262144")]);
        }
        return;
    }
    let before = mapped().0;
    let layout = Layout::new::<[u8; 1000]>();
    let block = Arena::new(Placement::General).allocate(layout).expect("there is memory");
    // A system without overcommit counts all writable memory. For 256 GiB, the map has 32 MiB, and the region
    // 64 KiB for each processor.
    let grown = mapped().0 - before;
    assert!(grown < 128 << 20, "{grown} bytes are mapped writable");
    // SAFETY: freed once.
    unsafe { Arena::new(Placement::General).free(block, layout) };
}

#[test]
#[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer itself needs addresses and mappings")]
fn an_address_limit_leaves_half_to_the_program() {
    let test = "no_memory::an_address_limit_leaves_half_to_the_program";
    if !is_child() {
        support::must_pass(test, &[]);
        return support::must_pass(test, &[("SQUALL_RSEQ", "off")]);
    }
    if limit_addresses(700 << 20).is_none() {
        return eprintln!("skipped: the emulator hides the limit");
    }
    let before = mapped().1;
    let layout = Layout::new::<[u8; 1000]>();
    // SAFETY: the size is not 0.
    let block = NonNull::new(unsafe { LocalityAlloc.alloc(layout) }).expect("there is memory");
    let reserved = mapped().1 - before;
    assert!((256 << 20..444 << 20).contains(&reserved), "{reserved} bytes are reserved");
    let large = Layout::new::<[u8; 200 << 20]>();
    let large_block = Arena::new(Placement::General).allocate(large).expect("there is memory");
    // SAFETY: freed once, both.
    unsafe {
        Arena::new(Placement::General).free(large_block, large);
        Arena::new(Placement::General).free(block, layout);
    }
}

/// Limits the addresses of this process to `left` more bytes. Fails if the process cannot read the limit.
fn limit_addresses(left: usize) -> Option<()> {
    let limit = mapped().1 + left;
    let limits = libc::rlimit { rlim_cur: limit as u64, rlim_max: limit as u64 };
    // SAFETY: setrlimit(2) with a limit of our own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limits) }, 0);
    (squall_sys::pages::address_limit() == Some(limit)).then_some(())
}

#[test]
#[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer itself needs addresses and mappings")]
fn an_address_limit_leaves_most_to_another_allocator() {
    let test = "no_memory::an_address_limit_leaves_most_to_another_allocator";
    if !is_child() {
        support::must_pass(test, &[]);
        return support::must_pass(test, &[("SQUALL_RSEQ", "off")]);
    }
    if limit_addresses(2 << 30).is_none() {
        return eprintln!("skipped: the emulator hides the limit");
    }
    let before = mapped().1;
    let layout = Layout::new::<[u8; 1000]>();
    let blocks: Vec<_> = (0..10_000)
        .map(|_| Arena::new(Placement::Near(0)).allocate(layout).expect("there is memory"))
        .collect();
    // 64 MiB of the block range, up to twice that until it is aligned, and the parts of all possible
    // processors.
    let reserved = mapped().1 - before - ((squall_sys::pages::processors_limit().unwrap_or(64) + 2) << 16);
    assert!((64 << 20..130 << 20).contains(&reserved), "{reserved} bytes are reserved");
    for block in blocks {
        // SAFETY: freed once.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    }
}

/// Resizes a large block.
fn change(block: *mut u8, from: usize, to: usize) -> *mut u8 {
    let layout = Layout::from_size_align(from, 8).unwrap();
    // SAFETY: the caller's own block of so many bytes; the caller continues with the result.
    unsafe { LocalityAlloc.realloc(block, layout, to) }
}

#[test]
fn a_large_block_shrinks_without_memory_and_grows_by_copy() {
    let test = "no_memory::a_large_block_shrinks_without_memory_and_grows_by_copy";
    if !is_child() {
        return support::must_pass(test, &[]);
    }
    const MIB: usize = 1 << 20;
    let layout = Layout::from_size_align(4 * MIB, 8).unwrap();
    // SAFETY: the size is not 0.
    let block = unsafe { LocalityAlloc.alloc(layout) };
    assert!(!block.is_null());
    let at = |block: *mut u8, mib: usize| block.wrapping_add(mib * MIB);
    // SAFETY: our own block.
    (0..4).for_each(|mib| unsafe { at(block, mib).write(mib as u8 + 1) });
    refuse_after(Some(0));
    assert_eq!(change(block, 4 * MIB, 3 * MIB), block);
    assert!(change(block, 3 * MIB, 5 * MIB).is_null());
    refuse_after(None);
    assert_eq!(stats().expect("the allocator was used").large_bytes, 3 * MIB);
    // Advice for a part of a mapping splits it.
    // SAFETY: a page of our own.
    assert_eq!(unsafe { libc::madvise(at(block, 1).cast(), 4096, libc::MADV_DONTFORK) }, 0);
    let block = change(block, 3 * MIB, 64 * MIB);
    assert!(!block.is_null(), "there is memory");
    for (mib, value) in [(0, 1), (1, 2), (2, 3), (3, 0), (63, 0)] {
        // SAFETY: our own block.
        assert_eq!(unsafe { at(block, mib).read() }, value);
    }
    // SAFETY: freed once.
    unsafe { LocalityAlloc.dealloc(block, Layout::from_size_align(64 * MIB, 8).unwrap()) };
    let stats = stats().expect("the allocator was used");
    assert_eq!((stats.large_count, stats.large_bytes), (0, 0));
}

/// Maps pages until the process has as many mappings as it may have. Gives up after too many.
fn exhaust_mappings() -> Option<Vec<*mut libc::c_void>> {
    const MAPPINGS_MAX: usize = 200_000;
    let mut pages = Vec::with_capacity(MAPPINGS_MAX);
    for index in 0..MAPPINGS_MAX {
        // The kernel does not join neighbours with different protection.
        let prot = if index % 2 == 0 { libc::PROT_READ } else { libc::PROT_NONE };
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let page = unsafe {
            libc::mmap(std::ptr::null_mut(), 4096, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        if page == libc::MAP_FAILED {
            return Some(pages);
        }
        pages.push(page);
    }
    None
}

#[test]
#[cfg_attr(any(squall_asan, squall_tsan), ignore = "the sanitizer itself needs addresses and mappings")]
fn a_refused_unmapping_is_retried() {
    let test = "no_memory::a_refused_unmapping_is_retried";
    if !is_child() {
        return support::must_pass(test, &[]);
    }
    let (pool, layout) = (Arena::new(Placement::General), Layout::new::<[u8; 4 << 20]>());
    let blocks: Vec<_> = (0..3).map(|_| pool.allocate(layout).expect("there is memory")).collect();
    let aligned = Layout::from_size_align(4 << 20, 4 << 20).expect("a valid layout");
    // The blocks must be neighbours, so that the kernel joined them and has to split them.
    let mut sorted: Vec<_> = blocks.iter().map(|block| block.addr().get()).collect();
    sorted.sort_unstable();
    let middle =
        *blocks.iter().find(|block| block.addr().get() == sorted[1]).expect("one of the three blocks");
    if sorted[1] - sorted[0] != layout.size() || sorted[2] - sorted[1] != layout.size() {
        return eprintln!("skipped: the kernel did not place the blocks side by side");
    }
    // SAFETY: our own block.
    unsafe { middle.write_bytes(1, layout.size()) };
    let Some(pages) = exhaust_mappings() else {
        return eprintln!("skipped: the process has no limit on mappings");
    };
    let resident = |at: std::ptr::NonNull<u8>| {
        let mut pages = vec![0u8; layout.size() / 4096];
        // SAFETY: mincore(2) of so many pages, with a byte for each.
        let failed = unsafe { libc::mincore(at.as_ptr().cast(), layout.size(), pages.as_mut_ptr()) };
        (failed == 0).then(|| pages.iter().any(|page| page & 1 != 0))
    };
    let half = layout.size() / 2;
    assert_eq!(
        change(middle.as_ptr(), layout.size(), half),
        middle.as_ptr(),
        "a block shrinks although the unmapping is refused"
    );
    assert_eq!(stats().expect("the allocator was used").unmapped_later_bytes, half);
    // SAFETY: freed once.
    unsafe { pool.free(middle, Layout::from_size_align(half, 1).unwrap()) };
    assert_eq!(resident(middle), Some(false), "the range is still mapped and has no memory");
    assert_eq!(stats().expect("the allocator was used").unmapped_later_bytes, layout.size());
    for page in pages {
        // SAFETY: our own page.
        assert_eq!(unsafe { libc::munmap(page, 4096) }, 0);
    }
    let block = pool.allocate(aligned).expect("there is memory");
    assert_eq!(stats().expect("the allocator was used").unmapped_later_bytes, 0);
    for (block, layout) in [(blocks[0], layout), (blocks[1], layout), (blocks[2], layout), (block, aligned)] {
        if block != middle {
            // SAFETY: freed once.
            unsafe { pool.free(block, layout) };
        }
    }
    assert_eq!(stats().expect("the allocator was used").large_count, 0);
}
