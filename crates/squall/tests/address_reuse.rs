//! Freed addresses are used again, at once and for another value, and each reader gets its own value.
//!
//! A program of its own, because of its allocator: a block of the tested size goes to the next allocation of
//! that size. So each test knows that an address came back, and does not wait for chance.
#![cfg(not(any(miri, squall_asan, squall_global_alloc)))]

use squall::objects::map::{self, MapExt};
use squall::objects::read_mostly::{self, ReadMostly, ReadMostlyExt};
use squall::rcu::{self, Rcu, RcuArc, barrier, pin};
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard};

/// A value with a size that only these tests allocate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Page([u64; WORDS]);

const WORDS: usize = 77;

impl Page {
    fn new(number: u64) -> Page {
        Page([number; WORDS])
    }

    fn boxed(number: u64) -> Box<Page> {
        Box::new(Page::new(number))
    }

    fn number(&self) -> u64 {
        assert!(self.0.iter().all(|word| *word == self.0[0]), "a torn value: {self:?}");
        self.0[0]
    }
}

/// The system's allocator, with a stack of free blocks for each tested size.
struct Reusing;

/// Free blocks of sizes of `Page`, alone, with two counts as in an `Arc`, or with a few words more. The block
/// that was freed last is on top.
static FREE: Mutex<[Vec<usize>; SIZES]> = Mutex::new([const { Vec::new() }; SIZES]);
const SIZES: usize = 9;
const FREE_MAX: usize = 64;

/// Returns the index of the stack for this layout.
fn stack(layout: Layout) -> Option<usize> {
    let words = layout.size().checked_sub(size_of::<Page>())? / size_of::<u64>();
    (layout.size().is_multiple_of(size_of::<u64>()) && words < SIZES && layout.align() == align_of::<Page>())
        .then_some(words)
}

// SAFETY: passed on to the system's allocator. A block from a stack was allocated with a layout of the same
// size and alignment, and is in no other place.
unsafe impl GlobalAlloc for Reusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let free = stack(layout).and_then(|at| FREE.lock().unwrap()[at].pop());
        match free {
            Some(block) => ptr::with_exposed_provenance_mut(block),
            // SAFETY: passed on.
            None => unsafe { System.alloc(layout) },
        }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(at) = stack(layout) {
            let free = &mut FREE.lock().unwrap()[at];
            // A growing vector allocates; its capacity comes with the first test.
            if free.len() < free.capacity() {
                return free.push(block.expose_provenance());
            }
        }
        // SAFETY: passed on.
        unsafe { System.dealloc(block, layout) };
    }
}

#[global_allocator]
static REUSING: Reusing = Reusing;

/// Runs one test at a time, with empty stacks.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poison| poison.into_inner());
    barrier().unwrap();
    let mut free = FREE.lock().unwrap();
    for stack in free.iter_mut() {
        let spare = std::mem::replace(stack, Vec::with_capacity(FREE_MAX));
        // The old vector and its blocks are leaked, since their end would ask for this lock.
        std::mem::forget(spare);
    }
    drop(free);
    turn
}

fn address<T>(value: &T) -> usize {
    ptr::from_ref(value).addr()
}

#[test]
fn the_allocator_gives_a_freed_block_to_the_next_allocation() {
    let _alone = alone();
    let first = Page::boxed(1);
    let at = address(&*first);
    drop(first);
    assert_eq!(address(&*Page::boxed(2)), at);
}

#[test]
fn a_cell_reads_its_own_value_while_another_one_has_the_address() {
    let _alone = alone();
    let (one, other) = (Rcu::new(Page::boxed(1)), Rcu::new(Page::boxed(100)));
    let at = pin(|op| {
        let read = one.load(op);
        one.replace(Page::boxed(2));
        // The reader still uses the block, so it must not be free.
        let fresh = Page::boxed(3);
        assert_ne!(address(&*fresh), address(read));
        assert_eq!((read.number(), one.load(op).number()), (1, 2));
        address(read)
    });
    barrier().unwrap();
    other.replace(reused(at, 101));
    pin(|op| {
        assert_eq!(address(other.load(op)), at, "the block of the first cell's old value");
        assert_eq!((one.load(op).number(), other.load(op).number()), (2, 101));
    });
}

/// Makes a page at an address that was freed. Fails if that block is not free.
fn reused(at: usize, number: u64) -> Box<Page> {
    let mut others = Vec::with_capacity(FREE_MAX);
    while others.len() < FREE_MAX {
        let page = Page::boxed(number);
        if address(&*page) == at {
            return page;
        }
        others.push(page);
    }
    panic!("the block was not freed");
}

#[test]
fn a_lent_arc_keeps_its_block_and_gives_it_back() {
    let _alone = alone();
    let first = RcuArc::new(Page::new(1));
    let at = pin(|op| {
        let lent = first.lend(op);
        drop(first);
        let second = RcuArc::new(Page::new(2));
        assert_ne!(address(&*second), address(lent));
        assert_eq!((lent.number(), second.number()), (1, 2));
        address(lent)
    });
    barrier().unwrap();
    let third = RcuArc::new(Page::new(3));
    let fourth = RcuArc::new(Page::new(4));
    assert!([address(&*third), address(&*fourth)].contains(&at), "the freed block");
    assert_eq!((third.number(), fourth.number()), (3, 4));
}

#[test]
fn a_retired_value_is_not_reused_inside_the_operation_that_retired_it() {
    let _alone = alone();
    let retired = Page::boxed(1);
    let at = address(&*retired);
    pin(|_| {
        rcu::retire(retired);
        let _ = rcu::reclaim();
        assert_ne!(address(&*Page::boxed(2)), at);
    });
    barrier().unwrap();
    assert_eq!(address(&*reused(at, 3)), at);
}

#[test]
fn a_changed_value_at_an_old_address_is_a_change_in_every_form() {
    let _alone = alone();
    for value in [
        read_mostly::shared(Page::new(1)),
        read_mostly::distributed(Page::new(1), squall::ClusterSize::Cpu),
        read_mostly::adaptive(Page::new(1)),
    ] {
        let mut changes = value.subscribe();
        let mut addresses = Vec::with_capacity(FREE_MAX);
        let mut reuses = 0;
        for number in 2..20 {
            value.set(Page::new(number));
            let (at, seen) = value.read(|page| (address(page), page.number()));
            assert_eq!(seen, number, "read through this processor's copy");
            assert_eq!(
                changes.wait().unwrap(),
                number,
                "the subscriber waits for versions, not for addresses"
            );
            reuses += usize::from(addresses.contains(&at));
            addresses.push(at);
            barrier().unwrap();
        }
        assert!(reuses > 0, "addresses came back: {addresses:?}");
    }
}

#[test]
fn a_key_reads_its_own_value_while_another_key_has_the_address() {
    let _alone = alone();
    // In an `Arc`, since the table keeps plain data in its own slots.
    let page = |number| Arc::new(Page::new(number));
    for map in [map::shared::<u64, Arc<Page>>(), map::adaptive(), map::replicated(squall::ClusterSize::Node)]
    {
        map.set(1, page(1));
        let mut addresses = Vec::with_capacity(FREE_MAX);
        let mut reuses = 0;
        for round in 2..20 {
            addresses.push(map.with(&1, |page| address(&**page)).unwrap());
            map.remove(&1);
            barrier().unwrap();
            // The other key takes the block that the first one left, and the first one gets a new block.
            map.set(round, page(round));
            map.set(1, page(100 + round));
            let there = map.with(&round, |page| (address(&**page), page.number())).unwrap();
            assert_eq!(there.1, round);
            reuses += usize::from(addresses.contains(&there.0));
            assert_eq!(map.with(&1, |page| page.number()), Some(100 + round));
        }
        assert!((2..20).all(|key| map.with(&key, |page| page.number()) == Some(key)));
        assert!(reuses > 0, "addresses came back: {addresses:?}");
    }
}
