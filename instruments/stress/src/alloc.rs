//! Stress of the locality allocator: threads move between processors, end at any time, and free each other's
//! blocks.
//!
//! Promised (`squall::alloc`): a block belongs to one user until it is freed. It is aligned. It may be freed
//! on any thread and processor. All memory comes back. A zeroed block holds zeros, and a resized block keeps
//! its content.
//!
//! Tried: more threads than processors hold some hundred blocks each, with random sizes, alignments and
//! placements. Each block is filled with its own mark. Some blocks come from the calls of `GlobalAlloc`;
//! these are zeroed and resized again and again. Each block is checked before it is freed. Many blocks are
//! passed through a mailbox and freed by another thread. Threads change their processor all the time, and end
//! in the middle of a round, leaving their blocks to others. Meanwhile one thread sometimes empties all
//! caches and forks; the child allocates, checks and frees. At the end of a round all blocks are free.

use std::alloc::Layout;
use std::ops::Deref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use squall::alloc::{AllocStats, Arena, PlacedBytes, Placement, stats, trim};
use squall_bench::Owned;

use crate::run::{Report, Rng, Run, Stress, Violation, exclusive, lock, threads_beyond_processors};
use crate::skeleton::breaks;
use crate::skeleton::placement::{AllowedCpus, switch_vp};

pub(super) const STRESS: Stress = Stress {
    name: "alloc",
    about: "each block of the locality allocator has one user, and all blocks are freed, on any thread and any VP",
    run,
    threads: threads_beyond_processors,
};

/// Maximum number of steps of a thread in a round.
const STEPS_MAX: u64 = 20_000;
/// Maximum number of blocks that a thread holds.
const KEPT_MAX: usize = 400;
/// Average number of steps between two changes of processor.
const STEPS_PER_HOP: u64 = 500;
/// Steps of a forked child.
const CHILD_STEPS: u64 = 3_000;
/// Maximum alignment as a power of two: more than slabs provide.
const ALIGN_SHIFT_MAX: u64 = 16;
/// Maximum number of children in a round.
const CHILDREN_MAX: u64 = 3;
/// Distance between the random streams of two rounds.
const STREAMS: u64 = 1 << 20;

/// The bytes of a block, from one of the two interfaces.
#[derive(Debug)]
enum Bytes {
    Placed(PlacedBytes),
    Owned(Owned),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Placed(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

/// A block and the mark in each of its bytes.
struct Block(Bytes, u8);

fn size(rng: &mut Rng) -> usize {
    let size = match rng.below(100) {
        0 => 600_000 + rng.below(1 << 20),
        1..=4 => 1 + rng.below(300_000),
        5..=19 => 1 + rng.below(9_000),
        _ => 1 + rng.below(400),
    };
    size as usize
}

impl Block {
    fn new(rng: &mut Rng) -> Result<Block, Violation> {
        if rng.one_in(4) {
            return Block::owned(rng);
        }
        let size = size(rng);
        let placement = match rng.below(8) {
            0 => Placement::Local,
            1 => Placement::LocalOf(rng.below(64) as u32),
            2 => Placement::Shared,
            3 => Placement::Near(rng.below(64) as u32),
            _ => Placement::General,
        };
        let mark = rng.next() as u8;
        let bytes = Arena::new(placement).bytes(size, mark);
        let bytes = bytes.map_err(|error| Violation(format!("{placement:?}: {error}")))?;
        Ok(Block(Bytes::Placed(bytes), mark))
    }

    /// Allocates by the calls of a global allocator, aligned to up to 64 KiB, sometimes zeroed or resized.
    fn owned(rng: &mut Rng) -> Result<Block, Violation> {
        // Alignments up to a cache line are equally likely; larger ones are rare.
        let align = 1 << if rng.one_in(4) { rng.below(ALIGN_SHIFT_MAX + 1) } else { rng.below(7) };
        let layout =
            Layout::from_size_align(size(rng), align).expect("the size of a block is too large for a layout");
        let mark = if rng.one_in(3) { 0 } else { rng.next() as u8 };
        let owned = if mark == 0 { Owned::zeroed(layout) } else { Owned::filled(layout, mark) };
        let none = || Violation(format!("there is no memory for {layout:?}"));
        let mut block = Block(Bytes::Owned(owned.ok_or_else(none)?), mark);
        while rng.one_in(3) {
            // Checked before the resize, which could cut off a wrong byte.
            block.look()?;
            let size = size(rng);
            if let Bytes::Owned(owned) = &mut block.0
                && !owned.resize(size, mark)
            {
                return Err(Violation(format!("there is no memory to resize {owned:?} to {size} bytes")));
            }
        }
        block.look().map(|()| block)
    }

    /// Overwrites the first byte.
    fn scribble(&mut self) {
        match &mut self.0 {
            Bytes::Placed(bytes) => bytes[0] ^= 1,
            Bytes::Owned(bytes) => bytes[0] ^= 1,
        }
    }

    /// Checks the whole block and frees it.
    fn free(self) -> Result<(), Violation> {
        self.look()
    }

    /// Checks the whole block.
    fn look(&self) -> Result<(), Violation> {
        if let Bytes::Owned(owned) = &self.0
            && !owned.as_ptr().addr().is_multiple_of(owned.layout().align())
        {
            return Err(Violation(format!("{owned:?} is not aligned")));
        }
        match self.0.iter().position(|byte| *byte != self.1) {
            None => Ok(()),
            Some(at) => {
                let what = format!("byte {at} of {:?} is {:#x}, not {:#x}", self.0, self.0[at], self.1);
                Err(Violation(what))
            }
        }
    }
}

/// Planned breaks: the behavior of a broken allocator.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Break {
    /// A block is overwritten after it was passed on.
    Scribble,
    /// A block is not freed.
    Lose,
}

const BREAKS: &[(&str, Break)] = &[("alloc-scribble", Break::Scribble), ("alloc-lose", Break::Lose)];

/// The data that the threads of a run share.
struct World {
    broken: Option<Break>,
    home: AllowedCpus,
    /// Blocks of the rest of the process, such as representatives of objects. They may be freed during the
    /// run.
    before: u64,
    mailboxes: Vec<Mutex<Vec<Block>>>,
    taken: AtomicU64,
    freed: AtomicU64,
    freed_elsewhere: AtomicU64,
}

fn run(run: &Run) -> Result<Report, Violation> {
    let _exclusive = exclusive();
    let world = World {
        broken: breaks::asked(BREAKS)?,
        home: AllowedCpus::find()?,
        before: stats().map_or(0, |stats| used(&stats)),
        mailboxes: (0..run.threads).map(|_| Mutex::default()).collect(),
        taken: AtomicU64::new(0),
        freed: AtomicU64::new(0),
        freed_elsewhere: AtomicU64::new(0),
    };
    let (mut rounds, mut children) = (0, 0);
    while !run.is_over() {
        children += round(run, &world, rounds)?;
        rounds += 1;
    }
    Ok(Report(vec![
        ("rounds", rounds),
        ("blocks allocated", world.taken.into_inner()),
        ("freed by the same thread", world.freed.into_inner()),
        ("freed by other threads", world.freed_elsewhere.into_inner()),
        ("forked children", children),
    ]))
}

/// Returns the number of blocks in use.
fn used(stats: &AllocStats) -> u64 {
    stats.vps.iter().flat_map(|vp| &vp.classes).map(|class| class.used_count).sum()
}

/// Runs one round with new threads. Returns the number of forked children.
fn round(run: &Run, world: &World, round: u64) -> Result<u64, Violation> {
    let mut children = 0;
    let outcome = thread::scope(|scope| {
        let threads: Vec<_> = (0..run.threads)
            .map(|index| {
                let mut rng = run.rng(round * STREAMS + index as u64);
                scope.spawn(move || live(world, index, &mut rng))
            })
            .collect();
        let mut rng = run.rng(round * STREAMS + STREAMS - 1);
        let disturbed = disturb(&mut rng).map(|forked| children = forked);
        let ended = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Violation("a thread of the stress panicked".to_owned())))
        });
        ended.chain([disturbed]).collect::<Result<Vec<()>, Violation>>()
    });
    outcome?;
    for mailbox in &world.mailboxes {
        lock(mailbox).drain(..).try_for_each(Block::free)?;
    }
    if trim() {
        let stats = stats().ok_or_else(|| Violation("the allocator has no memory".to_owned()))?;
        let used = used(&stats);
        // With the allocator as the global one, the blocks of the program itself are counted too and vary.
        let is_told = !cfg!(squall_global_alloc);
        if is_told && (used > world.before || stats.large_count != 0) {
            let what = format!("{used} blocks and {} large blocks were not freed", stats.large_count);
            return Err(Violation(what));
        }
    }
    Ok(children)
}

/// The body of one thread.
fn live(world: &World, index: usize, rng: &mut Rng) -> Result<(), Violation> {
    let mut kept: Vec<Block> = Vec::new();
    for _ in 0..1 + rng.below(STEPS_MAX) {
        if rng.one_in(STEPS_PER_HOP) {
            world.home.confine(None, rng);
            switch_vp(rng);
        }
        match rng.below(8) {
            0..=3 if kept.len() < KEPT_MAX => {
                kept.push(Block::new(rng)?);
                world.taken.fetch_add(1, Ordering::Relaxed);
            }
            4 => {
                let got = std::mem::take(&mut *lock(&world.mailboxes[index]));
                world.freed_elsewhere.fetch_add(got.len() as u64, Ordering::Relaxed);
                got.into_iter().try_for_each(Block::free)?;
            }
            step if !kept.is_empty() => {
                let mut block = kept.swap_remove(rng.below(kept.len() as u64) as usize);
                match world.broken {
                    Some(Break::Scribble) => block.scribble(),
                    Some(Break::Lose) => {
                        std::mem::forget(block);
                        continue;
                    }
                    None => {}
                }
                if step < 6 {
                    let to = rng.below(world.mailboxes.len() as u64) as usize;
                    lock(&world.mailboxes[to]).push(block);
                } else {
                    world.freed.fetch_add(1, Ordering::Relaxed);
                    block.free()?;
                }
            }
            _ => {}
        }
    }
    // The thread ends and leaves its blocks to another one.
    let to = rng.below(world.mailboxes.len() as u64) as usize;
    lock(&world.mailboxes[to]).append(&mut kept);
    Ok(())
}

/// Empties caches and forks while the threads run. Returns the number of children.
fn disturb(rng: &mut Rng) -> Result<u64, Violation> {
    let children = rng.below(CHILDREN_MAX + 1);
    for _ in 0..children {
        trim();
        let mut rng = Rng::new(rng.next(), 0);
        let forked = squall_bench::in_child(|| child(&mut rng).is_ok());
        match forked {
            Ok(true) => {}
            Ok(false) => return Err(Violation("a forked child failed".to_owned())),
            Err(error) => return Err(Violation(format!("cannot fork: {error}"))),
        }
    }
    trim();
    Ok(children)
}

/// The body of a child. Another thread of the parent may have held any lock, so the child uses only the
/// allocator.
fn child(rng: &mut Rng) -> Result<(), Violation> {
    const NONE: Option<Block> = None;
    let mut kept = [NONE; 64];
    for _ in 0..CHILD_STEPS {
        let at = rng.below(64) as usize;
        if let Some(old) = kept[at].replace(Block::new(rng)?) {
            old.free()?;
        }
    }
    trim();
    kept.into_iter().flatten().try_for_each(Block::free)
}
