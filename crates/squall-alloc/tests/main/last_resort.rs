//! An allocation fails only if no processor has a free block.

use super::support::{self, Random, is_child};
use squall_alloc::{
    Arena, Mode, Placement, SPARE_BYTES, decay, decay_always, mode, refuse_after, stats, trim,
};
use std::alloc::Layout;
use std::ptr::NonNull;

/// MiB of the block range. A slab of two mebibytes holds four of the longest blocks.
const ARENA_MIB: usize = 16;
const ARENA: (&str, &str) = ("SQUALL_ALLOC_ARENA_MIB", "16");
const LONG: usize = 512 << 10;
const LONG_COUNT: usize = ARENA_MIB * 2;

/// A block with one owner.
struct Block(NonNull<u8>, Layout);
// SAFETY: any thread may free it.
unsafe impl Send for Block {}

type Blocks = Vec<Block>;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a valid layout")
}

fn take(placement: Placement, size: usize, blocks: &mut Blocks) -> bool {
    let block = Arena::new(placement).allocate(layout(size));
    blocks.extend(block.map(|block| Block(block, layout(size))));
    block.is_ok()
}

fn free(Block(block, layout): Block) {
    // SAFETY: a block from `take`, which is freed once.
    unsafe { Arena::new(Placement::General).free(block, layout) };
}

/// The processors that this program may use.
fn processors() -> Vec<usize> {
    // SAFETY: zeros are an empty set, which sched_getaffinity(2) fills.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of_val(&set), &raw mut set);
        set
    };
    // SAFETY: numbers within the set.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Runs `body` on a thread that stays on one processor: different ones for different numbers, if there are
/// enough.
fn on<T: Send>(number: usize, body: impl FnOnce() -> T + Send) -> T {
    let processors = processors();
    let cpu = processors[number % processors.len()];
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: an empty set, and a number that came from one.
            let failed = unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(cpu, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
            };
            assert_eq!(failed, 0, "the processor is allowed");
            body()
        });
        thread.join().expect("the thread does not panic")
    })
}

/// Runs `body` in a child for each mode, and in one with nodes, with a small block range.
fn in_small_arenas(test: &str, more: &[(&str, &str)], body: impl FnOnce()) {
    if is_child() {
        return body();
    }
    for variable in [("SQUALL_RSEQ", ""), ("SQUALL_RSEQ", "off"), ("SQUALL_TOPOLOGY", "nodes:2,cores:2")] {
        support::must_pass(test, &[more, &[ARENA, variable]].concat());
    }
}

/// Returns whether all cached blocks can be recovered.
fn can_drain() -> bool {
    trim() || mode() == Some(Mode::Locked)
}

/// Checks that the whole block range can be allocated, from the heap of any processor. Then frees all of it.
fn check_all_usable(seed: u64) {
    let (mut random, mut blocks) = (Random::new(seed), Vec::new());
    while take(Placement::Near(random.below(4) as u32), LONG, &mut blocks) {}
    assert_eq!(blocks.len(), LONG_COUNT, "seed {seed}: {:?}", stats().map(|stats| stats.nodes));
    blocks.drain(..).for_each(free);
}

#[test]
fn spare_slabs_of_another_processor_are_found() {
    in_small_arenas("last_resort::spare_slabs_of_another_processor_are_found", &[], || {
        let spare = || {
            stats().expect("the allocator was used").vps.iter().map(|vp| vp.spare_bytes).collect::<Vec<_>>()
        };
        // Half of the block range.
        let burst = || {
            let mut blocks = Vec::new();
            (0..ARENA_MIB * 128).for_each(|_| assert!(take(Placement::General, 4096, &mut blocks)));
            blocks.drain(..).for_each(free);
        };
        // A pass of `decay` may release some meanwhile.
        let in_some_try = |holds: &dyn Fn() -> bool| assert!((0..20).any(|_| holds()), "{:?}", spare());
        in_some_try(&|| {
            on(0, burst);
            let kept = spare();
            assert!(kept.iter().all(|bytes| *bytes <= SPARE_BYTES as u64), "{kept:?}");
            kept.iter().sum::<u64>() > SPARE_BYTES as u64 / 2
        });
        if !can_drain() {
            return;
        }
        assert!(spare().iter().all(|bytes| *bytes == 0));
        on(0, burst);
        on(1, || check_all_usable(5));
        // Spare slabs serve blocks of another size, too.
        let used =
            || stats().expect("the allocator was used").nodes.iter().map(|units| units.used).sum::<usize>();
        in_some_try(&|| {
            on(0, || {
                burst();
                let (before, mut blocks) = (used(), Vec::new());
                (0..1_000).for_each(|_| assert!(take(Placement::General, 1_000, &mut blocks)));
                let after = used();
                blocks.drain(..).for_each(free);
                after <= before + 2
            })
        });
    });
}

#[test]
fn free_blocks_of_another_processor_are_found() {
    in_small_arenas("last_resort::free_blocks_of_another_processor_are_found", &[], || {
        let mut blocks = Vec::new();
        // One slab of four blocks on each VP.
        assert!(take(Placement::Near(0), LONG, &mut blocks));
        while take(Placement::Near(1), LONG, &mut blocks) {}
        assert_eq!(blocks.len(), LONG_COUNT);
        blocks.drain(..).for_each(free);
        check_all_usable(1);
    });
}

#[test]
fn cached_blocks_are_found() {
    in_small_arenas("last_resort::cached_blocks_are_found", &[], || {
        let mut blocks = Vec::new();
        while take(Placement::General, 1000, &mut blocks) {}
        // The order spreads the frees over all slabs. The last blocks stay in the magazine of this processor,
        // and keep their slabs from other uses.
        let sorted = {
            blocks.sort_unstable_by_key(|block| (block.0.addr().get() % 65_536, block.0));
            blocks
        };
        sorted.into_iter().for_each(free);
        let cached = || -> u64 {
            let stats = stats().expect("the allocator was used");
            stats.vps.iter().flat_map(|vp| &vp.classes).map(|class| class.cached_count).sum()
        };
        let before = cached();
        let mut blocks = Vec::new();
        while take(Placement::Near(1), LONG, &mut blocks) {}
        let got = blocks.len();
        blocks.drain(..).for_each(free);
        assert!(
            got == LONG_COUNT || !can_drain(),
            "{got} of {LONG_COUNT} blocks; {before} were cached before"
        );
    });
}

#[test]
fn a_strictly_local_block_never_comes_from_another_processor() {
    in_small_arenas("last_resort::a_strictly_local_block_never_comes_from_another_processor", &[], || {
        let (mut blocks, mut local) = (Vec::new(), Vec::new());
        // One slab of the class with whole lines, and one of the strictly local class; then all memory is in
        // use.
        assert!(take(Placement::General, 128, &mut blocks));
        assert!(on(0, || take(Placement::Local, 100, &mut local)));
        while take(Placement::Near(0), LONG, &mut blocks) {}
        while take(Placement::Near(0), 65_536, &mut blocks) {}
        while take(Placement::Near(0), 5_000, &mut blocks) {}
        on(1, || while take(Placement::Local, 100, &mut local) {});
        // If the kernel cannot restart sequences, the blocks cached on the other processor stay there.
        let can_drain = can_drain();
        assert!(local.len() > 511 || !can_drain, "{} blocks", local.len());
        // Blocks of another processor have lines of their own: 128 bytes each.
        let slab = |at: NonNull<u8>| at.addr().get() >> 16;
        let first = local[0].0;
        let others = local[1..].iter().filter(|block| slab(block.0) == slab(first)).count();
        if processors().len() > 1 {
            assert_eq!(others, 0, "of {}", local.len());
            assert!(local[1..].iter().all(|block| block.0.addr().get().is_multiple_of(128)));
        }
        local.drain(..).chain(blocks.drain(..)).for_each(free);
        if can_drain {
            check_all_usable(2);
        }
    });
}

#[test]
fn all_memory_is_usable_after_refusals() {
    const TEST: &str = "last_resort::all_memory_is_usable_after_refusals";
    const SIZES: [usize; 10] = [1, 16, 100, 1_000, 5_000, 9_000, 40_000, 100_000, 300_000, LONG];
    if !is_child() {
        for seed in 1..=4 {
            in_small_arenas(TEST, &[("SQUALL_TEST_SEED", &format!("{seed}"))], || ());
        }
        return;
    }
    let seed = std::env::var("SQUALL_TEST_SEED").expect("a seed").parse().expect("a decimal number");
    println!("SQUALL_TEST_SEED={seed}");
    let mut random = Random::new(seed);
    // Half of the runs have a decay pass at every slow path; in the others, passes come by time.
    if seed % 2 == 0 {
        decay_always();
    }
    let mut blocks = Vec::new();
    for round in 0..40 {
        for _ in 0..200 {
            let placement = match random.below(4) {
                0 => Placement::General,
                1 => Placement::Local,
                2 => Placement::Shared,
                _ => Placement::Near(random.below(4) as u32),
            };
            match random.below(16) {
                0 => refuse_after(Some(random.below(3) as u32)),
                1 => refuse_after(None),
                2 => _ = decay(),
                3 if random.below(8) == 0 => _ = trim(),
                4..=9 => _ = take(placement, SIZES[random.below(SIZES.len())], &mut blocks),
                _ if !blocks.is_empty() => free(blocks.swap_remove(random.below(blocks.len()))),
                _ => {}
            }
        }
        refuse_after(None);
        if round % 8 == 7 {
            blocks.drain(..).for_each(free);
            if can_drain() {
                check_all_usable(seed + round);
            }
        }
    }
}
