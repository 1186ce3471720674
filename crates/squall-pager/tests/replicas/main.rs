//! Tests of page replicas, on a virtual machine of two nodes with four processors each.
#![cfg(not(any(loom, miri)))]

#[path = "../pages/memory.rs"]
#[allow(dead_code, reason = "the tests of pages use the rest")]
mod memory;

use memory::{End, State};
use squall_core::Owned;
use squall_core::swap::swap;
use squall_machine::{ClusterSize, Machine, Vp};
use squall_objects::pages::{self, PagePool, Supply};
use squall_pager::cache::{self, FileCache, FileCacheExt, Form, PAGE_BYTES, Replication};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Once};
use std::thread;

const FORMS: [Form; 4] = [
    Form::Shared,
    Form::Distributed(ClusterSize::Cpu),
    Form::Distributed(ClusterSize::Node),
    Form::Partitioned { partitions: 3, shift: 1 },
];
/// The number of pins after which a cluster has a replica, as the documentation says.
const PINS: usize = 64;
/// Processors of the two nodes.
const NEAR: u32 = 0;
const FAR: u32 = 4;

fn on<R>(vp: u32, f: impl FnOnce() -> R) -> R {
    static MADE: Once = Once::new();
    MADE.call_once(|| _ = Machine::set_virtual("nodes:2,cores:4".parse().unwrap()).unwrap());
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

fn pool(pages: usize) -> Owned<dyn PagePool> {
    on(NEAR, || {
        let pool = pages::distributed(Supply::system(pages));
        pool.set_attribute(pages::Attribute::Chunk, 1);
        pool
    })
}

/// Makes a cache of a file of this many pages, with at most `replicas` replicas on the nodes.
fn cached(
    form: Form,
    state: &Arc<State>,
    memory: &Owned<dyn PagePool>,
    replicas: usize,
) -> Owned<dyn FileCache> {
    let replication = Replication::new(ClusterSize::Node, replicas * PAGE_BYTES + 5);
    on(NEAR, || cache::replicating(form, replication, state.source(), memory.handle()))
}

/// Returns the address of the bytes that a pin on this processor shows, and the first byte.
fn seen(cache: &Owned<dyn FileCache>, vp: u32, page: u64) -> (usize, u8) {
    on(vp, || {
        let frame = cache.pin(page).unwrap();
        (frame.as_ptr().addr(), frame[0])
    })
}

/// Pins a page often enough for a replica.
fn pin_often(cache: &Owned<dyn FileCache>, vp: u32, page: u64, pins: usize) {
    (0..pins).for_each(|_| _ = seen(cache, vp, page));
}

fn set(cache: &Owned<dyn FileCache>, vp: u32, page: u64, value: u8) {
    on(vp, || cache.pin_mut(page).unwrap().fill(value));
}

/// Waits until `pages` pages of a pool are in use.
fn await_used(memory: &Owned<dyn PagePool>, pages: usize) {
    while memory.used() - memory.free() != pages {
        squall_rcu::barrier().unwrap();
        memory.give_up(0);
        thread::yield_now();
    }
}

#[test]
fn hu_16_a_cluster_that_pins_a_page_again_and_again_has_a_replica_of_it() {
    for form in FORMS {
        let (state, memory) = (State::with_pages(8), pool(64));
        let cache = cached(form, &state, &memory, 8);
        set(&cache, NEAR, 3, 1);
        let original = seen(&cache, NEAR, 3).0;
        for _ in 0..PINS {
            assert_eq!(seen(&cache, FAR, 3), (original, 1));
        }
        // From here on the node has a replica, for all its processors. The first node uses the page itself.
        let (replica, value) = seen(&cache, FAR, 3);
        assert!(replica != original && value == 1, "{form:?}");
        assert_eq!([5, 6, 7].map(|vp| seen(&cache, vp, 3)), [(replica, 1); 3]);
        pin_often(&cache, NEAR, 3, 3 * PINS);
        assert_eq!([0, 1, 2, 3].map(|vp| seen(&cache, vp, 3)), [(original, 1); 4]);
        // Other pages have no replica.
        assert_eq!((seen(&cache, FAR, 4).1, cache.sensors().replicas), (0, 1));
        // A swap of the form leaves it.
        on(NEAR, || {
            swap(cache.handle(), cache::new_cache(Form::Partitioned { partitions: 2, shift: 0 })).unwrap()
        });
        assert_eq!(seen(&cache, FAR, 3), (replica, 1));
        // A write on the node of the replica takes it away, too.
        set(&cache, 6, 3, 2);
        assert_eq!([0, 3, 4, 7].map(|vp| seen(&cache, vp, 3)), [(original, 2); 4]);
        let sensors = cache.sensors();
        assert_eq!((sensors.replicas, sensors.replicas_made, sensors.replicas_removed), (0, 1, 1));
    }
}

#[test]
fn hu_16_a_page_that_is_actively_written_has_no_replica() {
    let (state, memory) = (State::with_pages(4), pool(16));
    let cache = cached(Form::Shared, &state, &memory, 4);
    set(&cache, NEAR, 0, 0);
    for round in 1..=100 {
        pin_often(&cache, FAR, 0, PINS - 1);
        set(&cache, NEAR, 0, round);
    }
    assert_eq!(cache.sensors().replicas_made, 0, "each write begins the count anew");
    // Each write that finds a replica doubles the number of pins, up to 4096.
    let mut pins = PINS;
    for round in 0..10 {
        pin_often(&cache, FAR, 0, pins - 1);
        assert_eq!(cache.sensors().replicas, 0, "round {round}");
        pin_often(&cache, FAR, 0, 1);
        assert_eq!(cache.sensors().replicas, 1, "round {round}");
        set(&cache, NEAR, 0, round);
        pins = (2 * pins).min(4096);
    }
}

#[test]
fn hu_15_a_write_takes_the_replicas_of_all_clusters_and_waits_for_their_readers() {
    let (state, memory) = (State::with_pages(4), pool(16));
    let replication = Replication::new(ClusterSize::Cpu, 16 * PAGE_BYTES);
    let cache = on(NEAR, || cache::replicating(Form::Shared, replication, state.source(), memory.handle()));
    set(&cache, NEAR, 0, 1);
    (1..8).for_each(|vp| pin_often(&cache, vp, 0, PINS));
    assert_eq!(cache.sensors().replicas, 7);
    let (pinned, is_written) = (Barrier::new(2), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            on(5, || {
                let frame = cache.pin(0).unwrap();
                pinned.wait();
                for _ in 0..1000 {
                    assert!(frame.iter().all(|byte| *byte == 1) && !is_written.load(Relaxed));
                    thread::yield_now();
                }
            });
        });
        pinned.wait();
        on(NEAR, || {
            let mut frame = cache.pin_mut(0).unwrap();
            is_written.store(true, Relaxed);
            frame.fill(2);
        });
    });
    assert!((0..8).all(|vp| seen(&cache, vp, 0).1 == 2));
    assert_eq!(cache.sensors().replicas, 0);
}

#[test]
fn ad_06_replicas_stay_within_their_memory() {
    for form in FORMS {
        let (state, memory) = (State::with_pages(16), pool(64));
        let cache = cached(form, &state, &memory, 2);
        let bound = |cache: &Owned<dyn FileCache>| {
            let sensors = cache.sensors();
            assert!(sensors.replicas <= 2, "{sensors:?}");
            sensors
        };
        (0..16).for_each(|page| set(&cache, NEAR, page, page as u8));
        // HU-14: at the limit a replica that was not used lately gives way.
        for page in 0..16 {
            for _ in 0..4 * PINS {
                assert_eq!(seen(&cache, FAR, page).1, page as u8);
                bound(&cache);
            }
        }
        let sensors = bound(&cache);
        assert!(sensors.replicas == 2 && sensors.replicas_made > 2, "{sensors:?}");
        // Replicas that are pinned stay, and others are refused.
        let frames = on(FAR, || {
            let frames = [0, 1].map(|page| {
                while bound(&cache).replicas_made == 0 || seen(&cache, FAR, page) == seen(&cache, NEAR, page)
                {
                }
                cache.pin(page).unwrap()
            });
            let before = cache.sensors();
            pin_often(&cache, FAR, 9, 4 * PINS);
            let after = bound(&cache);
            assert_eq!(after.replicas_made, before.replicas_made);
            assert!(after.replicas_refused > before.replicas_refused, "{after:?}");
            frames
        });
        assert_eq!(seen(&cache, FAR, 9), seen(&cache, NEAR, 9), "the page itself is the slower path");
        drop(frames);
        // Memory of less than a page allows no replica.
        let none = cached(form, &state, &memory, 0);
        pin_often(&none, NEAR, 1, 1);
        pin_often(&none, FAR, 1, 4 * PINS);
        assert_eq!((none.sensors().replicas_made, none.sensors().replicas_refused), (0, 4));
    }
}

#[test]
fn replicas_go_before_pages_and_with_their_page() {
    for form in FORMS {
        let (state, memory) = (State::with_pages(8), pool(6));
        let cache = cached(form, &state, &memory, 4);
        (0..2).for_each(|page| set(&cache, NEAR, page, 1));
        (0..2).for_each(|page| pin_often(&cache, FAR, page, PINS));
        assert_eq!((cache.sensors().replicas, cache.sensors().resident), (2, 2));
        // A pinned replica keeps its page.
        let frame = on(FAR, || cache.pin(0).unwrap());
        on(NEAR, || (0..3).for_each(|_| _ = cache.evict(100)));
        assert_eq!((cache.sensors().replicas, cache.sensors().resident), (1, 1));
        assert!(frame.iter().all(|byte| *byte == 1));
        drop(frame);
        on(NEAR, || (0..3).for_each(|_| _ = cache.evict(100)));
        assert_eq!((cache.sensors().replicas, cache.sensors().resident), (0, 0));
        assert_eq!((state.first(0), state.first(1)), (1, 1));
        // If memory is short, faults get the pages of replicas.
        (0..2).for_each(|page| pin_often(&cache, NEAR, page, 1));
        (0..2).for_each(|page| pin_often(&cache, FAR, page, PINS));
        let frames: Vec<_> = on(NEAR, || (0..6).map(|page| cache.pin(page).unwrap()).collect());
        assert_eq!((cache.sensors().replicas, cache.sensors().resident), (0, 6));
        drop(frames);
        drop(cache);
        await_used(&memory, 0);
    }
}

#[test]
fn no_replica_outlives_the_end_of_its_page() {
    for form in FORMS {
        let (state, memory) = (State::with_pages(4), pool(32));
        let cache = cached(form, &state, &memory, 8);
        (0..4).for_each(|page| set(&cache, NEAR, page, 7));
        (0..4).for_each(|page| pin_often(&cache, FAR, page, PINS));
        assert_eq!(cache.sensors().replicas, 4);
        let cut = on(FAR, || cache.pin(3).unwrap());
        on(NEAR, || cache.set_len(PAGE_BYTES as u64 + 10).unwrap());
        on(NEAR, || cache.set_len(4 * PAGE_BYTES as u64).unwrap());
        assert!(cut.iter().all(|byte| *byte == 7), "a pin keeps its bytes");
        on(FAR, || {
            assert_eq!(
                (cache.pin(0).unwrap()[9], cache.pin(2).unwrap()[9], cache.pin(3).unwrap()[9]),
                (7, 0, 0)
            );
            let tail = cache.pin(1).unwrap();
            assert!(tail[..10].iter().all(|byte| *byte == 7) && tail[10..].iter().all(|byte| *byte == 0));
        });
        assert_eq!(cache.sensors().replicas, 1);
        // The next page of the number has replicas of its own.
        pin_often(&cache, FAR, 3, 2 * PINS);
        pin_often(&cache, NEAR, 3, 2 * PINS);
        assert_eq!((cache.sensors().replicas, seen(&cache, FAR, 3).1), (2, 0));
        drop(cache);
        await_used(&memory, 1);
        assert!(cut.iter().all(|byte| *byte == 7));
        drop(cut);
        await_used(&memory, 0);
    }
}

#[test]
fn copies_of_a_file_see_no_replica_of_their_parent_after_a_write() {
    for form in FORMS {
        let (state, memory) = (State::with_pages(4), pool(64));
        let parent = Arc::new(cached(form, &state, &memory, 8));
        (0..4).for_each(|page| set(&parent, NEAR, page, 7));
        (0..4).for_each(|page| pin_often(&parent, FAR, page, PINS));
        let copy =
            on(NEAR, || cache::copy_of(parent.clone(), form, State::with_pages(4).source(), memory.handle()));
        assert_eq!([0, 4].map(|vp| seen(&copy, vp, 1).1), [7, 7]);
        pin_often(&copy, FAR, 1, 2 * PINS);
        set(&copy, FAR, 1, 8);
        assert_eq!([0, 4].map(|vp| (seen(&copy, vp, 1).1, seen(&parent, vp, 1).1)), [(8, 7), (8, 7)]);
        assert!(on(FAR, || parent.pin_mut(1)).is_err(), "the parent is frozen");
        assert_eq!(parent.sensors().replicas, 4);
        drop((copy, parent));
        await_used(&memory, 0);
    }
}

/// Marks a page as a whole: a torn page has different words.
fn mark(bytes: &mut [u8], value: u64) {
    bytes.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
}

fn marked(bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks_exact(8).all(|word| word == first.to_le_bytes()), "a torn page");
    first
}

/// Reads pages until the test ends.
fn read_on(vp: usize, cache: &Owned<dyn FileCache>, finished: &[AtomicU64], ends: &AtomicBool) {
    for round in 0.. {
        if ends.load(Relaxed) {
            break;
        }
        let page = (round / 200 + vp) % finished.len();
        let before = finished[page].load(Relaxed);
        let frame = cache.pin(page as u64).unwrap();
        let value = marked(&frame);
        assert!(value >= before, "page {page}: {value} after {before}");
        // A writer finishes with the latch, so no other write does until the pin is dropped.
        assert!(finished[page].load(Relaxed) <= value);
        assert_eq!(marked(&frame), value);
    }
}

/// Writes pages until the test ends, and lets readers make replicas in between.
fn write_on(cache: &Owned<dyn FileCache>, finished: &[AtomicU64], ends: &AtomicBool) {
    for round in 0.. {
        if ends.load(Relaxed) {
            break;
        }
        let page = round % finished.len();
        let mut frame = cache.pin_mut(page as u64).unwrap();
        let value = marked(&frame) + 1;
        mark(&mut frame, value);
        finished[page].store(value, Relaxed);
        drop(frame);
        // New slots need fewer pins for a replica.
        if round % 3 == 0 {
            cache.evict(finished.len());
        }
        let made = cache.sensors().replicas_made;
        for _ in 0..50 {
            if cache.sensors().replicas_made != made {
                break;
            }
            thread::yield_now();
        }
    }
}

/// Readers on all processors, writers, evictions and swaps. A reader knows the last finished write before its
/// pin, and no write finishes while it holds a page.
#[test]
fn no_reader_sees_a_page_older_than_the_last_finished_write() {
    const PAGES: usize = 6;
    const MADE: u64 = 60;
    let (state, memory) = (State::with_pages(PAGES), pool(PAGES + 4));
    let cache = cached(Form::Shared, &state, &memory, 4);
    let finished: [AtomicU64; PAGES] = Default::default();
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        for vp in [0, 3, 4, 5, 7] {
            let (cache, finished, ends) = (&cache, &finished, &ends);
            scope.spawn(move || on(vp, || read_on(vp as usize, cache, finished, ends)));
        }
        scope.spawn(|| on(6, || write_on(&cache, &finished, &ends)));
        scope.spawn(|| {
            on(2, || {
                while !ends.load(Relaxed) {
                    for form in FORMS {
                        let _ = swap(cache.handle(), cache::new_cache(form));
                        thread::yield_now();
                    }
                }
            });
        });
        let _end = End(&ends);
        while cache.sensors().replicas_made < MADE {
            assert!(cache.sensors().replicas <= 4 + 1, "{:?}", cache.sensors());
            thread::yield_now();
        }
    });
    let sensors = cache.sensors();
    assert!(sensors.replicas <= 4 && sensors.replicas_removed + 4 >= MADE, "{sensors:?}");
    (0..PAGES).for_each(|page| {
        let value = on(FAR, || marked(&cache.pin(page as u64).unwrap()));
        assert_eq!(value, finished[page].load(Relaxed));
    });
    drop(cache);
    await_used(&memory, 0);
}
