//! The data that all threads of the stress share: the blocks, the places of blocks in use, and the records.
//!
//! - I1. A block is in exactly one of three states: free (its index is in `free`), in place (its index is in
//!   one place), or removed (one [`Removed`] names it). The thread that exchanges a place for a new block
//!   makes the `Removed`.
//! - I2. Only the owner of a block's `Removed`, or of its free index, writes its age. The age is 0 in place
//!   and 1 from the removal. It grows by one for each grace period that began after the previous step and has
//!   ended.
//! - I3. Blocks are never freed. With a broken library, a reader therefore reads an aged, poisoned or reused
//!   block and reports it, instead of crashing.
//!
//! Why a reader may require an age of at most 1, with relaxed loads: the effects of its operation happen
//! before the end of any grace period that it delays. That end happens before the store of age 2. A load
//! cannot read from a store that it happens before.
//!
//! Readers touch no shared counter: an atomic addition is a full fence on most machines and would hide a
//! missing one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use squall_rcu::{Guard, Rcu};

use super::breaks::Break;
use super::calls::CallLedger;
use super::leaf::Leaf;
use super::reader::Seen;
use crate::run::{Rng, lock};
use crate::skeleton;
use crate::skeleton::store_buffer::StoreBuffer;
use crate::skeleton::worker::ExitHooks;

/// Grace periods of a removed block before it is reused.
pub(super) const GENERATIONS: u32 = 10;
/// The age at which a block is free again.
pub(super) const AGE_FREE: u32 = 1 + GENERATIONS;
/// The maximum age that a reader may see.
const AGE_MAX: u32 = 1;
/// Ages in the histogram; older ones count as the last.
pub(super) const AGES: usize = AGE_FREE as usize + 1;
/// Number of places with a block in use.
pub(super) const PLACES: usize = 16;
/// Number of blocks: few enough for free blocks to be reused soon.
pub(super) const BLOCKS: usize = 1024;
/// The serial number and the words of a free block.
const POISON: u64 = 0x6B6B_6B6B_6B6B_6B6B;
/// Words in a block.
const WORDS: usize = 6;

/// A value on cache lines of its own.
#[repr(align(128))]
struct Alone<T>(T);

pub(super) struct Block {
    age: AtomicU32,
    serial: AtomicU64,
    words: [AtomicU64; WORDS],
}

fn word(serial: u64, index: usize) -> u64 {
    serial.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(index as u32)
}

impl Block {
    fn new() -> Block {
        let words = std::array::from_fn(|_| AtomicU64::new(POISON));
        Block { age: AtomicU32::new(AGE_FREE), serial: AtomicU64::new(POISON), words }
    }

    // Relaxed: the exchange of its place publishes the block.
    fn fill(&self, serial: u64) {
        self.age.store(0, Ordering::Relaxed);
        self.serial.store(serial, Ordering::Relaxed);
        for (index, place) in self.words.iter().enumerate() {
            place.store(word(serial, index), Ordering::Relaxed);
        }
    }

    fn poison(&self) {
        self.serial.store(POISON, Ordering::Relaxed);
        self.words.iter().for_each(|word| word.store(POISON, Ordering::Relaxed));
    }
}

/// A removed block and its age.
#[must_use = "a block that is dropped here is lost"]
pub(super) struct Removed {
    pub(super) block: usize,
    age: u32,
}

/// A block, as a reader got it.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) block: usize,
    serial: u64,
    /// The age when it was taken.
    pub(super) age: u32,
}

/// The fault of a held block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The block is older than a reader may see.
    Aged(u32),
    /// The block was reused or poisoned.
    Reused,
    /// Its words do not belong to its serial number.
    Torn,
}

/// The state of the stress.
pub(crate) struct State {
    pub(super) blocks: Vec<Block>,
    places: [Alone<AtomicUsize>; PLACES],
    store_buffer: StoreBuffer,
    serials: AtomicU64,
    free: Mutex<Vec<usize>>,
    /// Removed blocks that wait for a thread to age them.
    returned: Mutex<Vec<Removed>>,
    /// Values that are really freed, for the sanitizers.
    pub(super) leaf: Rcu<Leaf>,
    pub(super) words: Rcu<[u64; 4]>,
    pub(super) calls: CallLedger,
    /// Number of uses of each way to a grace period.
    pub(super) ways: [AtomicU64; super::writer::WAYS],
    /// Number of choices of a way.
    pub(super) ways_chosen: AtomicUsize,
    pub(super) timeouts: AtomicU64,
    pub(super) freed: AtomicU64,
    pub(super) stalls: AtomicU64,
    // Written by signal handlers, which must neither allocate nor lock.
    pub(super) handled: AtomicU64,
    pub(super) handled_refused: AtomicU64,
    pub(super) handler_saw: AtomicU64,
    /// Observations of the threads that have ended.
    pub(super) seen: Mutex<Seen>,
    /// Exit hooks of the visitors of crowds.
    pub(super) visitor_exit_hooks: ExitHooks,
}

/// The stress has no counts of its own: its threads keep theirs in [`Seen`] and in the state.
pub(super) type World = skeleton::world::World<Break, (), State>;

impl World {
    pub(super) fn make(broken: Option<Break>, workers: usize) -> &'static World {
        let world = World::leaked(broken, workers, |_| State {
            blocks: (0..BLOCKS).map(|_| Block::new()).collect(),
            places: std::array::from_fn(|block| Alone(AtomicUsize::new(block))),
            store_buffer: StoreBuffer::new(),
            serials: AtomicU64::new(1),
            free: Mutex::new((PLACES..BLOCKS).rev().collect()),
            returned: Mutex::new(Vec::new()),
            leaf: Rcu::new(Box::new(Leaf::new(0))),
            words: Rcu::new(Box::new([0; 4])),
            calls: CallLedger::default(),
            ways: [const { AtomicU64::new(0) }; super::writer::WAYS],
            ways_chosen: AtomicUsize::new(0),
            timeouts: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            handled_refused: AtomicU64::new(0),
            handler_saw: AtomicU64::new(0),
            seen: Mutex::default(),
            visitor_exit_hooks: ExitHooks::default(),
        });
        (0..PLACES).for_each(|block| world.blocks[block].fill(world.next_serial()));
        world
    }

    fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }

    /// Fills the store buffer ([`StoreBuffer::fill`]).
    pub(super) fn fill_store_buffer(&self, rng: &mut Rng) {
        self.store_buffer.fill(rng);
    }

    /// Takes the block in `place`, for a reader inside an operation (or outside, with the planned break).
    pub(super) fn take(&self, _op: Option<&Guard>, place: usize) -> Held {
        // Acquire: pairs with the exchange in `replace`: the block is filled.
        let block = self.places[place].0.load(Ordering::Acquire);
        let age = self.blocks[block].age.load(Ordering::Relaxed);
        let serial = self.blocks[block].serial.load(Ordering::Relaxed);
        Held { block, serial, age }
    }

    /// Checks a held block and returns its age. Signal handlers call it, so it does nothing else.
    pub(super) fn examine(&self, held: &Held) -> Result<u32, Wrong> {
        let block = &self.blocks[held.block];
        let age = block.age.load(Ordering::Relaxed);
        let serial = block.serial.load(Ordering::Relaxed);
        if age.max(held.age) > AGE_MAX {
            return Err(Wrong::Aged(age.max(held.age)));
        }
        if serial != held.serial || serial == POISON || age < held.age {
            return Err(Wrong::Reused);
        }
        let sound = block.words.iter().enumerate().all(|(i, w)| w.load(Ordering::Relaxed) == word(serial, i));
        if sound { Ok(age) } else { Err(Wrong::Torn) }
    }

    /// Puts a new block into `place` and returns the old one. Returns `None` if no block is free.
    pub(super) fn replace(&self, place: usize) -> Option<Removed> {
        let block = lock(&self.free).pop()?;
        self.blocks[block].fill(self.next_serial());
        // AcqRel: release pairs with the acquire in `take`; acquire pairs with the exchange that installed
        // the old block.
        let old = self.places[place].0.swap(block, Ordering::AcqRel);
        self.blocks[old].age.store(1, Ordering::Relaxed);
        let removed = Removed { block: old, age: 1 };
        if self.is_broken(Break::EarlyReuse)
            && self.blocks[old].serial.load(Ordering::Relaxed).is_multiple_of(16)
        {
            self.free_block(removed);
            return None;
        }
        Some(removed)
    }

    /// Ages a block, because a grace period that began after the previous step has ended.
    pub(super) fn grow_older(&self, mut removed: Removed) -> Option<Removed> {
        let before = self.blocks[removed.block].age.swap(removed.age + 1, Ordering::Relaxed);
        if before != removed.age {
            self.run_state.fail(format!(
                "block {} has age {before}, but its owner left it at {}: two threads own it, because a deferred \
                 call ran twice",
                removed.block, removed.age
            ));
        }
        removed.age += 1;
        if removed.age < AGE_FREE {
            return Some(removed);
        }
        self.free_block(removed);
        None
    }

    fn free_block(&self, removed: Removed) {
        self.blocks[removed.block].poison();
        self.freed.fetch_add(1, Ordering::Relaxed);
        lock(&self.free).push(removed.block);
    }

    /// Leaves removed blocks to other threads.
    pub(super) fn give(&self, removed: impl IntoIterator<Item = Removed>) {
        lock(&self.returned).extend(removed);
    }

    /// Takes over up to `count` removed blocks.
    pub(super) fn pick_up(&self, count: usize) -> Vec<Removed> {
        let mut returned = lock(&self.returned);
        let keep = returned.len().saturating_sub(count);
        returned.split_off(keep)
    }

    /// Returns the number of free blocks and blocks in place: all blocks, once every removed one is free.
    pub(super) fn blocks_accounted(&self) -> usize {
        lock(&self.free).len() + PLACES
    }
}

/// Returns a random place.
pub(super) fn any_place(rng: &mut Rng) -> usize {
    rng.below(PLACES as u64) as usize
}
