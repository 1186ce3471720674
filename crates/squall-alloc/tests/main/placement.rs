//! Placement: blocks of different owners share no line, lie where they were asked for, and return to their
//! homes.

use super::support::{self, Random, in_both_modes};
use squall_alloc::{Arena, BOUND_BYTES, LocalityAlloc, Mode, Placement, mode, stats, trim};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::HashMap;

const LINE_BYTES: usize = 64;
const LINES_BYTES: usize = 128;
const SIZES: [usize; 9] = [1, 8, 16, 24, 64, 100, 200, 448, 1000];
const ROUNDS: usize = if cfg!(miri) { 2 } else { 300 };

/// Moves the calling thread to this processor. Returns false if that is refused.
fn move_to(cpu: usize) -> bool {
    if cfg!(miri) { cpu == 0 } else { squall_sys::affinity::restrict_to(&[cpu]).is_ok() }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// A block: its address, its size, and its owner.
type Block = (usize, usize, usize);

/// Allocates from the processors in turn, so that their slabs fill side by side.
fn by_processor(placement: Placement) -> Vec<Block> {
    let allocate = move || {
        let mut blocks = Vec::new();
        for _ in 0..ROUNDS {
            for cpu in (0..2).filter(|cpu| move_to(*cpu)) {
                for size in SIZES {
                    let layout = Layout::from_size_align(size, 8).unwrap();
                    let block = Arena::new(placement).allocate(layout).unwrap();
                    blocks.push((block.addr().get(), size, cpu));
                }
            }
        }
        blocks
    };
    std::thread::spawn(allocate).join().unwrap()
}

fn free(blocks: &[Block]) {
    for (address, size, _) in blocks {
        let layout = Layout::from_size_align(*size, 8).unwrap();
        let block = std::ptr::NonNull::new(std::ptr::with_exposed_provenance_mut(*address)).unwrap();
        // SAFETY: allocated in `by_processor` for this layout, and freed once.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    }
}

/// Returns two blocks of different owners with bytes on one run of `line` bytes, if there are any.
fn find_shared_line(blocks: &[Block], line: usize) -> Option<(Block, Block)> {
    let mut owners: HashMap<usize, Block> = HashMap::new();
    for block in blocks {
        let (address, size, owner) = *block;
        for number in address / line..=(address + size - 1) / line {
            let first = owners.entry(number).or_insert(*block);
            if first.2 != owner {
                return Some((*first, *block));
            }
        }
    }
    None
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn to_09_blocks_of_different_owners_are_never_on_one_line() {
    in_both_modes("placement::to_09_blocks_of_different_owners_are_never_on_one_line", || {
        let (general, local) = (by_processor(Placement::General), by_processor(Placement::Local));
        if mode() == Some(Mode::Restartable) {
            // The program's own blocks may include kept blocks of one line from another VP. They share no
            // line of 64 bytes.
            let line = if cfg!(squall_global_alloc) { LINE_BYTES } else { LINES_BYTES };
            assert_eq!(find_shared_line(&general, line), None);
            assert_eq!(find_shared_line(&local, LINES_BYTES), None);
        }
        // Strictly local and general blocks have no line in common, on whichever VP they were allocated.
        let kinds: Vec<Block> = general.iter().map(|block| (block.0, block.1, 0)).collect();
        let kinds: Vec<Block> =
            kinds.into_iter().chain(local.iter().map(|block| (block.0, block.1, 1))).collect();
        assert_eq!(find_shared_line(&kinds, LINE_BYTES), None);
        free(&general);
        free(&local);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn co_14_local_of_blocks_come_from_the_named_vp() {
    in_both_modes("placement::co_14_local_of_blocks_come_from_the_named_vp", || {
        // If the machine can have only one processor, both numbers name its VP.
        let has_two_vps = || stats().expect("the allocator was used").vps.len() > 1;
        // Each processor allocates for both VPs in turn.
        let blocks: Vec<Block> = (0..2)
            .flat_map(|vp| {
                by_processor(Placement::LocalOf(vp as u32))
                    .into_iter()
                    .map(move |(at, size, _)| (at, size, vp))
            })
            .collect();
        for (address, size, vp) in &blocks {
            // SAFETY: a block of ours.
            let home = unsafe { squall_alloc::home_of(std::ptr::with_exposed_provenance_mut(*address)) };
            let home = home.expect("the block is in a slab").0 as usize;
            assert!(home == *vp || !has_two_vps(), "{size} bytes for VP {vp} came from VP {home}");
        }
        if has_two_vps() {
            assert_eq!(find_shared_line(&blocks, LINE_BYTES), None);
        }
        free(&blocks);
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn co_14_local_of_blocks_are_never_kept_ones() {
    support::in_child("placement::co_14_local_of_blocks_are_never_kept_ones", || {
        if processors() < 2 || mode() != Some(Mode::Restartable) {
            return;
        }
        // A size of whole lines, which serve strictly local blocks of that size, too.
        let layout = Layout::new::<[u8; 256]>();
        allocate_and_free_on(1, 100, layout);
        let blocks = std::thread::spawn(move || {
            move_to(1);
            (0..200)
                .map(|_| {
                    let block = Arena::new(Placement::LocalOf(1)).allocate(layout).unwrap().cast::<u8>();
                    // SAFETY: a block of ours.
                    let home = unsafe { squall_alloc::home_of(block.as_ptr()) }.map(|(vp, _)| vp);
                    assert_eq!(home, Some(1));
                    (block.addr().get(), layout.size(), 1)
                })
                .collect::<Vec<Block>>()
        });
        free(&blocks.join().unwrap());
    });
}

/// Allocates strictly local blocks of these VPs in turn, with this alignment. The third element is the VP.
fn local_of(vps: &[u32], align: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    for _ in 0..ROUNDS {
        for (vp, size) in vps.iter().flat_map(|vp| SIZES.map(|size| (*vp, size))) {
            let layout = Layout::from_size_align(size, align).unwrap();
            let block = Arena::new(Placement::LocalOf(vp)).allocate(layout).unwrap();
            assert!(block.addr().get().is_multiple_of(align), "{size} bytes aligned to {align}");
            blocks.push((block.addr().get(), size, vp as usize));
        }
    }
    blocks
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn co_14_aligned_local_blocks_share_no_line() {
    let test = "placement::co_14_aligned_local_blocks_share_no_line";
    in_both_modes(test, || {
        let (lines, packed) = (local_of(&[0, 1], LINE_BYTES), local_of(&[0, 1], 8));
        // Each aligned block is an owner of its own; the packed blocks are one owner.
        let each = lines.iter().enumerate().map(|(index, block)| (block.0, block.1, index + 1));
        let all: Vec<Block> = each.chain(packed.iter().map(|block| (block.0, block.1, 0))).collect();
        assert_eq!(find_shared_line(&all, LINE_BYTES), None);
        // Aligned blocks are packed, too.
        let mut line_addresses: Vec<usize> =
            lines.iter().filter(|block| block.1 <= LINE_BYTES).map(|block| block.0).collect();
        line_addresses.sort_unstable();
        let is_debug = std::env::var_os("SQUALL_ALLOC_DEBUG").is_some();
        assert!(is_debug || line_addresses.windows(2).any(|two| two[1] - two[0] == LINE_BYTES));
        free(&lines);
        free(&packed);
    });
    if !support::is_child() {
        support::must_pass(test, &[("SQUALL_ALLOC_DEBUG", "1")]);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn co_14_vps_beyond_the_limit_share_no_line() {
    let test = "placement::co_14_vps_beyond_the_limit_share_no_line";
    const VPS: u32 = 3_000;
    if !support::is_child() {
        support::must_pass(test, &[("SQUALL_TOPOLOGY", "nodes:2,cores:1500")]);
        return support::must_pass(test, &[]);
    }
    // The last VP, one beyond it, one that may name the same heap, and two more.
    let is_virtual = std::env::var_os("SQUALL_TOPOLOGY").is_some();
    let blocks = local_of(&[VPS - 1, VPS, (1 << 16) - 1, 1 << 20, 0], 8);
    assert_eq!(find_shared_line(&blocks, LINE_BYTES), None);
    for (address, _, vp) in &blocks {
        // SAFETY: a block of ours.
        let home = unsafe { squall_alloc::home_of(std::ptr::with_exposed_provenance_mut(*address)) };
        let (home, node) = home.expect("the block is in a slab");
        if is_virtual && *vp < VPS as usize {
            assert_eq!((home as usize, node as usize), (*vp, usize::from(*vp > 0)));
        }
    }
    free(&blocks);
}

#[test]
fn co_14_a_shared_block_has_lines_of_its_own() {
    in_both_modes("placement::co_14_a_shared_block_has_lines_of_its_own", || {
        let shared = by_processor(Placement::Shared);
        // Each block is an owner of its own.
        let each: Vec<Block> =
            shared.iter().enumerate().map(|(index, block)| (block.0, block.1, index)).collect();
        assert_eq!(find_shared_line(&each, LINES_BYTES), None);
        let near: Vec<Block> = (0..ROUNDS)
            .map(|index| {
                let block = Arena::new(Placement::Near(1)).allocate(Layout::new::<u64>()).unwrap();
                (block.addr().get(), 8, index)
            })
            .collect();
        assert_eq!(find_shared_line(&near, LINES_BYTES), None);
        free(&shared);
        free(&near);
    });
}

/// Returns whether the numbers of used blocks agree. If the program's own blocks come from this allocator,
/// they vary.
fn agree(one: u64, other: u64) -> bool {
    if cfg!(squall_global_alloc) { one.abs_diff(other) < 300 } else { one == other }
}

/// Blocks in use, of all VPs and classes.
fn used() -> u64 {
    stats().unwrap().vps.iter().flat_map(|vp| &vp.classes).map(|class| class.used_count).sum()
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn to_09_a_block_freed_elsewhere_goes_home() {
    in_both_modes("placement::to_09_a_block_freed_elsewhere_goes_home", || {
        trim();
        let before = used();
        let blocks = by_processor(Placement::General);
        let (now, expected) = (used(), before + blocks.len() as u64);
        assert!(agree(now, expected), "{now} blocks are in use instead of {expected}");
        // Frees all of them on one processor.
        let blocks = std::thread::spawn(move || {
            move_to(0);
            free(&blocks);
            blocks.len()
        });
        assert!(blocks.join().unwrap() > 0);
        if trim() {
            let now = used();
            assert!(agree(now, before), "{now} blocks are in use instead of {before}");
            // If the program's own blocks come from this allocator, it caches some again at once.
            if cfg!(squall_global_alloc) {
                return;
            }
            let stats = stats().unwrap();
            assert!(stats.vps.iter().all(|vp| vp.cached_bytes() == 0 && vp.outbox_count == 0));
            assert!(stats.nodes.iter().all(|units| units.dirty == 0));
        }
    });
}

/// Blocks that VPs sent home to others.
fn sent_home() -> u64 {
    stats().unwrap().vps.iter().flat_map(|vp| &vp.classes).map(|class| class.sent_home_count).sum()
}

/// Allocates `count` blocks on processor 0 and frees them on `processor`.
fn allocate_and_free_on(processor: usize, count: usize, layout: Layout) {
    let blocks = std::thread::spawn(move || {
        move_to(0);
        let allocate = |_| Arena::new(Placement::General).allocate(layout).unwrap().addr().get();
        (0..count).map(allocate).map(|address| (address, layout.size(), 0)).collect::<Vec<Block>>()
    });
    let blocks = blocks.join().unwrap();
    let freed = std::thread::spawn(move || {
        move_to(processor);
        free(&blocks);
    });
    freed.join().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn to_09_only_remote_frees_count_as_sent_home() {
    support::in_child("placement::to_09_only_remote_frees_count_as_sent_home", || {
        if processors() < 2 || mode() != Some(Mode::Restartable) || !trim() {
            return;
        }
        let layout = Layout::new::<[u8; 1000]>();
        for processor in [0, 1] {
            trim();
            let before = sent_home();
            allocate_and_free_on(processor, 1000, layout);
            // A thread on the other processor empties the cache of processor 0.
            let trimmed = std::thread::spawn(|| {
                move_to(1);
                trim()
            });
            assert!(trimmed.join().unwrap());
            // The small blocks of the threads themselves move, too.
            let sent = sent_home() - before;
            assert_eq!(sent >= 1000, processor == 1, "freed on {processor}: {sent}");
            assert!(processor == 1 || sent < 50, "freed on {processor}: {sent}");
        }
    });
}

/// Allocates a block of this layout on processor 0, frees it on 1, and allocates one there. Returns whether
/// it is the same block.
fn is_reused(layout: Layout, is_global: bool) -> bool {
    let on = |processor: usize, body: Box<dyn FnOnce() -> usize + Send>| {
        std::thread::spawn(move || {
            move_to(processor);
            body()
        })
        .join()
        .unwrap()
    };
    let take = move || match is_global {
        // SAFETY: the size is not 0.
        true => unsafe { LocalityAlloc.alloc(layout) }.addr(),
        false => Arena::new(Placement::General).allocate(layout).unwrap().addr().get(),
    };
    let put = move |address: usize| match is_global {
        // SAFETY: allocated for this layout, and freed once.
        true => unsafe { LocalityAlloc.dealloc(std::ptr::with_exposed_provenance_mut(address), layout) },
        false => free(&[(address, layout.size(), 0)]),
    };
    let block = on(0, Box::new(take));
    let other = on(
        1,
        Box::new(move || {
            // The first allocation of the class fills the magazine, so that no refill comes in between.
            put(take());
            put(block);
            take()
        }),
    );
    on(1, Box::new(move || (put(other), 0).1));
    block == other
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn to_09_whole_lines_stay_with_the_freeing_vp_of_the_node() {
    support::in_child("placement::to_09_whole_lines_stay_with_the_freeing_vp_of_the_node", || {
        if processors() < 2 || mode() != Some(Mode::Restartable) {
            return;
        }
        for is_global in [false, true] {
            // The magazine of the longest class has room for two blocks, which those of the previous round
            // would take.
            if !trim() {
                return;
            }
            for size in [64, 128, 192, 1000, 5000, 60_000] {
                let layout = Layout::from_size_align(size, 8).unwrap();
                assert!(is_reused(layout, is_global), "{size} bytes");
            }
            // Blocks of these sizes have neighbours of another VP on their lines.
            for size in [8, 16, 48, 80, 100] {
                let layout = Layout::from_size_align(size, 8).unwrap();
                assert!(!is_reused(layout, is_global), "{size} bytes");
            }
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no nodes")]
fn to_09_blocks_of_another_node_are_sent_home() {
    let test = "placement::to_09_blocks_of_another_node_are_sent_home";
    if cfg!(squall_global_alloc) {
        return eprintln!("skipped: the allocator was used before the test could pretend nodes");
    }
    if !support::is_child() {
        return support::must_pass(test, &[]);
    }
    squall_alloc::pretend_alternating_nodes();
    if processors() < 2 || mode() != Some(Mode::Restartable) {
        return;
    }
    for (is_global, size) in [(false, 64), (true, 64), (false, 1000), (true, 1000), (true, 60_000)] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        assert!(!is_reused(layout, is_global), "{size} bytes");
    }
    if squall_sys::nodes::has_policy() {
        return;
    }
    let before = sent_home();
    allocate_and_free_on(1, 1000, Layout::new::<[u8; 256]>());
    assert!(sent_home() - before >= 800);
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn kept_blocks_do_not_count_as_used() {
    let test = "placement::kept_blocks_do_not_count_as_used";
    if !support::is_child() {
        return support::must_pass(test, &[]);
    }
    let used = || {
        let stats = stats().unwrap();
        let classes = stats.vps.into_iter().flat_map(|vp| vp.classes);
        classes
            .filter(|class| class.block_bytes == 256 && !class.is_local)
            .map(|class| class.used_count)
            .sum::<u64>()
    };
    // In this program, only the test allocates such blocks, unless the program's own come from this
    // allocator.
    let before = used();
    assert!(cfg!(squall_global_alloc) || before == 0);
    allocate_and_free_on(processors().min(2) - 1, 100, Layout::new::<[u8; 256]>());
    let now = used();
    assert!(
        now == before || cfg!(squall_global_alloc) && now.abs_diff(before) < 50,
        "{now} blocks are in use"
    );
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one processor")]
fn the_bytes_of_an_outbox_are_bounded() {
    support::in_child("placement::the_bytes_of_an_outbox_are_bounded", || {
        if processors() < 2 {
            return;
        }
        trim();
        let pages = || stats().unwrap().nodes.iter().map(|units| units.used).sum::<usize>();
        let before = pages();
        allocate_and_free_on(1, 100, Layout::new::<[u8; 200_000]>());
        // The 100 blocks have 320 units.
        assert!(pages() <= before + 40, "{} units are in use, {before} before", pages());
    });
}

#[test]
fn the_cache_of_a_vp_is_bounded() {
    support::in_child("placement::the_cache_of_a_vp_is_bounded", || {
        let mut random = Random::new(1);
        let count = if cfg!(miri) { 100 } else { 100_000 };
        let mut blocks: Vec<Block> = Vec::new();
        for _ in 0..count {
            let doubling = random.below(13);
            let size = 1 + random.below(16 << doubling);
            let block =
                Arena::new(Placement::General).allocate(Layout::from_size_align(size, 8).unwrap()).unwrap();
            blocks.push((block.addr().get(), size, 0));
        }
        free(&blocks);
        for vp in stats().unwrap().vps {
            assert!(vp.cached_bytes() + vp.outbox_bytes_max() <= BOUND_BYTES as u64, "{vp:?}");
        }
    });
}

#[test]
fn full_slabs_return_to_their_list() {
    support::in_child("placement::full_slabs_return_to_their_list", || {
        for size in [8 << 10, 200_000] {
            for _ in 0..2 {
                let layout = Layout::from_size_align(size, 8).unwrap();
                let allocate =
                    |_| (Arena::new(Placement::General).allocate(layout).unwrap().addr().get(), size, 0);
                let blocks: Vec<Block> = (0..16).map(allocate).collect();
                free(&blocks);
            }
        }
    });
}

#[test]
fn a_placed_value_is_dropped_once_and_moved_out_whole() {
    use std::rc::Rc;
    let counted = Rc::new(());
    for placement in [Placement::General, Placement::Local, Placement::Shared, Placement::Near(0)] {
        let mut placed = Arena::new(placement).place((counted.clone(), [7u64; 100])).unwrap();
        placed.1[3] = 8;
        assert_eq!((Rc::strong_count(&counted), placed.1[3]), (2, 8));
        drop(placed);
        let placed = Arena::new(placement).place((counted.clone(), 5)).unwrap();
        assert_eq!(placed.into_inner().1, 5);
        assert_eq!(Rc::strong_count(&counted), 1);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no nodes")]
fn to_09_pages_are_requested_from_their_node() {
    let test = "placement::to_09_pages_are_requested_from_their_node";
    if cfg!(squall_global_alloc) {
        return eprintln!("skipped: the allocator was used before the test could pretend nodes");
    }
    if !support::is_child() {
        return support::must_pass(test, &[]);
    }
    // The machine may have one node only: the pretended second one has no processor.
    squall_alloc::pretend_nodes(2);
    if squall_sys::nodes::has_policy() {
        return eprintln!("skipped: the program has a memory policy");
    }
    let node = squall_sys::pages::current_place().map(|(_, node)| node);
    let mut probe = 0u8;
    if squall_sys::nodes::preferred(&raw mut probe).is_err() {
        return eprintln!("skipped: the kernel reports no nodes");
    }
    for placement in [Placement::General, Placement::Shared, Placement::Near(0)] {
        for size in [100, 100_000, 1_000_000] {
            if placement != Placement::Near(0) && size == 1_000_000 {
                continue;
            }
            let layout = Layout::from_size_align(size, 8).unwrap();
            let block = Arena::new(placement).allocate(layout).unwrap();
            let preferred = squall_sys::nodes::preferred(block.as_ptr()).unwrap();
            let expected =
                if placement == Placement::Near(0) { squall_sys::nodes::of_processor(0, 2) } else { node };
            assert_eq!(preferred, expected, "{placement:?} {size}");
            // Up to the end: of a mapping of its own, or of the segment.
            const SEGMENT: usize = 4 << 20;
            let at = block.as_ptr();
            let begin = if size < 1_000_000 { at.addr() / SEGMENT * SEGMENT } else { at.addr() };
            let bytes = if size < 1_000_000 { SEGMENT } else { size };
            for address in [begin, begin + bytes - 1] {
                let preferred = squall_sys::nodes::preferred(at.with_addr(address)).unwrap();
                assert_eq!(preferred, expected, "{placement:?} {size}, of the byte at {}", address - begin);
            }
            // SAFETY: freed once.
            unsafe { Arena::new(placement).free(block, layout) };
        }
    }
}

#[test]
#[cfg(all(target_os = "linux", not(miri)))]
fn a_memory_policy_of_the_program_has_precedence() {
    let test = "placement::a_memory_policy_of_the_program_has_precedence";
    if !support::is_child() {
        return support::must_pass(test, &[]);
    }
    const INTERLEAVE: usize = 3;
    let first_node = 1u64;
    // SAFETY: set_mempolicy(2) with a set of so many bits, which only the call reads; it looks at one bit
    // less than named.
    if unsafe { libc::syscall(libc::SYS_set_mempolicy, INTERLEAVE, &raw const first_node, 65usize) } != 0 {
        return eprintln!("skipped: the kernel accepts no memory policy");
    }
    squall_alloc::pretend_nodes(2);
    for size in [100, 1_000_000] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let block = Arena::new(Placement::Near(0)).allocate(layout).unwrap();
        assert_eq!(squall_sys::nodes::preferred(block.as_ptr()).unwrap(), None, "{size}");
        // SAFETY: freed once.
        unsafe { Arena::new(Placement::General).free(block, layout) };
    }
    assert_eq!(stats().unwrap().nodes.len(), 1);
}
