//! The threads of the parent that write, and the comparison with their record.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use squall::objects::cached::CachedMapExt as _;
use squall::objects::counter::{self, Counter};
use squall::objects::directory::Parts as _;
use squall::objects::gate::{Gate, GateExt as _};
use squall::objects::map::MapExt as _;
use squall::objects::read_mostly::{ReadMostly as _, ReadMostlyExt as _};
use squall::rcu::{barrier, reclaim, retire, stats};
use squall::swap::Swap;

use super::World;
use super::breaks::Break;
use super::objects::{BITS, KEYS, Objects, Pair};
use crate::run::{Rng, Violation};

/// One write in this many is lost in a run with that planned break.
const LOST_ONE_IN: u64 = 64;
/// Longest wait for callers in a swap.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that writes to each object.
pub(super) struct Writer<'a> {
    world: &'a World,
    /// The number of this thread among all writers.
    index: u64,
    count: u64,
    /// The last value of each key of this writer.
    values: [u64; KEYS as usize],
    added: u64,
    pub(super) writes: u64,
}

impl<'a> Writer<'a> {
    pub(super) fn new(world: &'a World, index: u64, count: u64) -> Writer<'a> {
        let values = std::array::from_fn(|key| key as u64);
        Writer { world, index, count, values, added: 0, writes: 0 }
    }

    /// Writes until the run is over.
    ///
    /// # Errors
    /// A call in the parent had a wrong result.
    pub(super) fn write(mut self, rng: &mut Rng) -> Result<Writer<'a>, Violation> {
        while !self.world.stop.load(Ordering::Relaxed) {
            let key = rng.below(KEYS);
            if key % self.count == self.index {
                self.write_key(key, rng)?;
            }
            self.write_shared(key, rng)?;
            self.lock_all()?;
            self.writes += 1;
        }
        Ok(self)
    }

    /// Writes a key of this writer to each map.
    fn write_key(&mut self, key: u64, rng: &mut Rng) -> Result<(), Violation> {
        let objects = &self.world.objects;
        let value = self.values[key as usize] + KEYS;
        let before = self.values[key as usize];
        self.values[key as usize] = value;
        if self.world.is_broken(Break::LoseWrite) && rng.one_in(LOST_ONE_IN) {
            return Ok(());
        }
        for (form, map) in &objects.maps {
            if map.insert(key, value) != Some(before) {
                return Err(Violation(format!("key {key} of the {form} map was changed by another thread")));
            }
        }
        for (form, map) in &objects.cached {
            if map.insert(key, value) != Some(before) {
                return Err(Violation(format!(
                    "key {key} of the {form} cached map was changed by another thread"
                )));
            }
        }
        objects.table.set(key, value);
        Ok(())
    }

    fn write_shared(&mut self, key: u64, rng: &mut Rng) -> Result<(), Violation> {
        let objects = &self.world.objects;
        let n = 1 + rng.below(9);
        objects.counters.iter().for_each(|(_, counter)| counter.add(n));
        objects.swapped.add(n);
        self.added += n;
        for (_, directory) in &objects.directories {
            directory.get_or_make(&key, || (), |(), part| *part += n);
        }
        let (form, cell) = &objects.cells[rng.below(objects.cells.len() as u64) as usize];
        cell.set(Pair::new(rng.next()));
        if !cell.read(|pair| pair.is_whole()) {
            return Err(Violation(format!("the {form} cell was read in the middle of a write")));
        }
        for (form, gate) in &objects.gates {
            drop(gate.request().map_err(|_| Violation(format!("the {form} gate rejected a request")))?);
        }
        objects.rcu.replace(Box::new(Pair::new(n)));
        Ok(())
    }

    fn lock_all(&self) -> Result<(), Violation> {
        let locks = &self.world.objects.locks;
        let _bits = BITS.lock(&locks.word);
        let _pointer = locks.pointer.lock();
        // One after the other: in one statement, all would be held to its end.
        let mut all_whole = locks.plain.lock().step();
        all_whole &= locks.biased.lock().step();
        all_whole &= locks.configurable.lock().step();
        all_whole &= locks.adaptive.lock().step();
        all_whole &= locks.rw.write().step();
        all_whole &= locks.rw.read().is_whole();
        if all_whole { Ok(()) } else { Err(Violation("a value changed under its lock".to_owned())) }
    }
}

/// Takes the locks of the library: makes and ends threads and objects, swaps, reclaims and lists objects.
pub(super) fn disturb(world: &World, rng: &mut Rng) {
    let objects = &world.objects;
    while !world.stop.load(Ordering::Relaxed) {
        match rng.below(8) {
            0 => {
                let ends = || (0..3).for_each(|n| retire(Box::new(Box::new(n))));
                // A thread that cannot be started is not needed.
                let _ = thread::Builder::new().spawn(ends).map(thread::JoinHandle::join);
            }
            1 => _ = barrier(),
            2 => _ = reclaim(),
            3 => {
                let new = counter::distributed();
                new.add(1);
            }
            4 => drop(counter::adaptive()),
            5 => {
                let new = if rng.one_in(2) {
                    counter::new_distributed()
                } else {
                    counter::new_shared(objects.swapped.handle())
                };
                let _ = Swap::new(objects.swapped.handle()).drain_timeout(PATIENCE).run(new);
            }
            6 => drop(squall::snapshot()),
            _ => {
                for (_, gate) in &objects.gates {
                    // Mostly in vain: the forking thread keeps a request inside.
                    if gate.stop_for(Duration::from_micros(100)).is_ok() {
                        let _ = gate.restart();
                    }
                }
                objects.table.reserve(rng.below(4096) as usize);
                objects.table.shrink_to_fit();
            }
        }
    }
}

/// Compares the objects with the records of all writers.
pub(super) fn check(objects: &Objects, writers: &[Writer<'_>]) -> Result<(), Violation> {
    let wrong = |what: String| Err(Violation(what));
    for writer in writers {
        for key in (0..KEYS).filter(|key| key % writer.count == writer.index) {
            let value = Some(writer.values[key as usize]);
            for (form, map) in &objects.maps {
                if map.get(&key) != value {
                    return wrong(format!("key {key} of the {form} map is not as its writer left it"));
                }
            }
            for (form, map) in &objects.cached {
                if map.get(&key) != value {
                    return wrong(format!("key {key} of the {form} cached map is not as its writer left it"));
                }
            }
        }
    }
    let added: u64 = writers.iter().map(|writer| writer.added).sum();
    let swapped = std::iter::once(("swapped", objects.swapped.total()));
    let totals = objects.counters.iter().map(|(form, counter)| (*form, counter.total())).chain(swapped);
    let parts = objects.directories.iter().map(|(form, directory)| {
        let sum = |key| directory.gather(&key, 0, |sum, (), part| *sum += *part).unwrap_or(0);
        (*form, (0..KEYS).map(sum).sum())
    });
    for (form, total) in totals.chain(parts) {
        if total != added {
            return wrong(format!("the {form} counter or directory holds {total}, but {added} was added"));
        }
    }
    if let Some((form, gate)) = objects.gates.iter().find(|(_, gate)| gate.inside() != 0) {
        return wrong(format!("{} requests are inside the {form} gate, but all have left", gate.inside()));
    }
    if let Err(error) = barrier() {
        return wrong(format!("the parent cannot reclaim: {error}"));
    }
    match stats().pending_calls {
        0 => Ok(()),
        pending => wrong(format!("{pending} deferred calls are pending after a barrier")),
    }
}
