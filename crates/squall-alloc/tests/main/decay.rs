//! Decay: idle memory goes back to the system while threads pass slow paths, or by calls of `decay`.

use super::support::{in_both_modes, is_child, must_pass};
use squall_alloc::{Arena, Mode, Placement, decay, mode, stats};
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const THREADS: usize = 4;
/// Ends a test that would hang.
const TIME_LIMIT: Duration = Duration::from_secs(300);
/// The bytes that may be cached at the end, of some 180 MiB. If the program's own blocks come from this
/// allocator, it goes on to cache some.
const CACHED_MAX: u64 = if cfg!(squall_global_alloc) { 1 << 20 } else { 100_000 };
/// Blocks per thread, some 45 MiB.
const BLOCKS: usize = 30_000;

/// Bytes of the resident set.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc/self can be read");
    let pages: u64 = text.split(' ').nth(1).expect("the second number").parse().expect("a decimal number");
    pages * 4096
}

fn layout(number: usize) -> Layout {
    Layout::from_size_align(16 + number * 37 % 3_000, 8).expect("a valid layout")
}

/// Each thread allocates and writes blocks, and frees the blocks of the previous thread.
fn burst() {
    let channels: Vec<_> = (0..THREADS).map(|_| mpsc::channel::<Vec<(usize, Layout)>>()).collect();
    std::thread::scope(|scope| {
        let senders: Vec<_> = channels.iter().map(|(send, _)| send.clone()).collect();
        for (index, (_, receive)) in channels.into_iter().enumerate() {
            let send = senders[(index + 1) % THREADS].clone();
            scope.spawn(move || {
                let _ = squall_sys::affinity::restrict_to(&[index % processors()]);
                let take = |number| {
                    let layout = layout(number);
                    let block = Arena::new(Placement::General).allocate(layout).expect("there is memory");
                    // SAFETY: our own block of so many bytes.
                    unsafe { block.write_bytes(1, layout.size()) };
                    (block.as_ptr().expose_provenance(), layout)
                };
                send.send((0..BLOCKS).map(take).collect()).expect("the receiver waits");
                for (block, layout) in receive.recv().expect("the previous thread sends its blocks") {
                    let block = NonNull::new(std::ptr::with_exposed_provenance_mut(block)).expect("a block");
                    // SAFETY: a block of another thread, which gave it up; freed once.
                    unsafe { Arena::new(Placement::General).free(block, layout) };
                }
            });
        }
    });
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

/// Passes a slow path: a block near a named VP always takes one.
fn pass_slow_path() {
    let layout = Layout::new::<[u8; 100]>();
    let block = Arena::new(Placement::Near(0)).allocate(layout).expect("there is memory");
    // SAFETY: freed once.
    unsafe { Arena::new(Placement::General).free(block, layout) };
}

/// The units of the program's own blocks, if they come from this allocator. The program goes on to use some,
/// for example to report a passed test.
fn global_units() -> usize {
    let units = || stats().map_or(0, |stats| stats.nodes.iter().map(|units| units.dirty + units.used).sum());
    if cfg!(squall_global_alloc) { units() } else { 0 }
}

/// Calls `step` until the allocator keeps little more than `global_units`, or until a time limit. Returns the
/// cached bytes and the kept units at the end.
fn wait_until_little_is_kept(global_units: usize, mut step: impl FnMut()) -> (u64, usize) {
    let end = Instant::now() + TIME_LIMIT;
    loop {
        step();
        let stats = stats().expect("the allocator was used");
        let cached = stats.vps.iter().map(|vp| vp.cached_bytes() + vp.outbox_bytes_max()).sum::<u64>();
        // A slab is in use as long as one of its blocks is cached.
        let units = stats.nodes.iter().map(|units| units.dirty + units.used).sum::<usize>();
        let units = units.saturating_sub(global_units);
        if cached < CACHED_MAX && units <= 16 || Instant::now() > end {
            return (cached, units);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns whether caches can be emptied from elsewhere, or there are no caches.
fn caches_can_be_drained() -> bool {
    mode() == Some(Mode::Locked) || squall_alloc::trim()
}

#[test]
fn slow_paths_give_back_the_memory_of_a_burst() {
    in_both_modes("decay::slow_paths_give_back_the_memory_of_a_burst", || {
        pass_slow_path();
        if !caches_can_be_drained() {
            return;
        }
        let (before, global_units) = (resident(), global_units());
        burst();
        let (cached, units) = wait_until_little_is_kept(global_units, pass_slow_path);
        assert!(
            cached < CACHED_MAX && units <= 16,
            "{cached} bytes are still cached, and {units} units kept"
        );
        let after = resident();
        // A sanitizer or an emulator keeps memory of its own for touched pages.
        let is_known =
            !cfg!(any(squall_asan, squall_tsan)) && std::env::var_os("SQUALL_TEST_RUNNER").is_none();
        assert!(
            !is_known || after < before + (6 << 20),
            "{before} bytes were resident before, and {after} after"
        );
    });
}

#[test]
fn decay_gives_back_the_memory_of_a_burst() {
    let test = "decay::decay_gives_back_the_memory_of_a_burst";
    if !is_child() {
        return must_pass(test, &[]);
    }
    // If the program's own blocks come from this allocator, there is something.
    assert!(cfg!(squall_global_alloc) || decay().is_none(), "an unused allocator has no idle memory");
    pass_slow_path();
    if !caches_can_be_drained() {
        return;
    }
    let global_units = global_units();
    burst();
    let mut again = None;
    let (cached, units) = wait_until_little_is_kept(global_units, || again = decay());
    assert!(cached < CACHED_MAX && units <= 16, "{cached} bytes are still cached, and {units} units kept");
    let end = Instant::now() + TIME_LIMIT;
    while let Some(pause) = decay() {
        assert!(Instant::now() < end, "decay does not end: memory is left");
        std::thread::sleep(pause);
    }
}
