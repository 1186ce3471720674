//! The policy of adaptive maps: it estimates the cost of the load in each form.
//!
//! Most maps are small and belong to one thread. These stay under a lock, which costs its owner no atomic
//! operation (`squall_lock::BiasedLock`). No form is faster if a clone of a value is cheap. A map that
//! several threads use becomes a table. In the small form the lines of the lock and of the hash table would
//! move with each call, and callers would wait for each other. In a table they meet only in one bucket. A
//! lock that changed threads so often that it lost its bias costs even a single thread more than a table.
//!
//! Copies of the table's entries pay under three conditions. Several nodes read, so that for some of them
//! the table lies in another node's memory. The table is larger than a node's caches, which otherwise keep
//! copies by themselves. And it is hardly ever written, since a write first removes the copies from each
//! node's table. So copies never pay on a machine with one node. A change to that form and back moves the
//! table and clones no entry.
//!
//! The sensors count all calls of the small form except those of the lock's owner, where values are cheap
//! to copy. The policy is told when the owner loses the lock. Writes of a table are sampled, on each
//! processor, or on each node where there are copies. Reads of a table write no shared memory and are not
//! counted. On machines with several nodes they are sampled on their own processor, since copies serve
//! readers.
//!
//! A small map that grows becomes a table at once, within its form (`locked/spill.rs`), for two reasons. A
//! later change would make callers wait longer for the copy. And a thread that fills a map is faster than
//! any policy.

use squall_adapt::costs::{MachineCosts, Work};
use squall_adapt::family::{Calm, Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of};
use squall_machine::machine;
use squall_parts::table::Table;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::mem::needs_drop;

use super::cloners::Cloners;
use super::locked::Locked;
use super::replicated::Replicated;
use super::single::Single;
use super::structure::{COPY_CLUSTERS, LockedTerms, has_several_nodes};
use super::{ADAPTS, Map, Sensors};

/// Name of the form in which an adaptive map begins: like [`locked`](super::locked()), up to 16,384
/// entries, or up to 131,072 entries of plain data of at most 32 bytes.
pub const SMALL: &str = "small";
/// Name of the form of a large or shared adaptive map: like [`shared`](super::shared).
pub const SHARED: &str = "shared";

/// Name of the form of an adaptive map with a copy per node, on machines with several nodes: like
/// [`replicated`](super::replicated()).
pub const REPLICATED: &str = "replicated";

/// Maximum number of entries in the small form. A copy of so many takes a few milliseconds at most. The
/// growth of `std`'s map to that size takes as long, and its callers wait for that too.
pub(super) const fn small_max<K, V>() -> usize {
    if needs_drop::<K>() || needs_drop::<V>() || size_of::<(K, V)>() > 32 { 16_384 } else { 131_072 }
}

/// Returns the family of maps of these types.
pub(super) fn family<K, V, S>() -> &'static Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    &Maps(PhantomData)
}

/// Returns the terms of a small form.
pub(super) fn small_terms<K: Clone, V: Clone, S: Clone>() -> LockedTerms<K, V, S> {
    LockedTerms { cloners: Cloners::new(), most: small_max::<K, V>() }
}

pub(super) struct Maps<K, V, S>(PhantomData<fn(K, V, S)>);

impl<K, V, S> Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    const FORMS: [Form; 3] = [
        Form::of_root::<Single<K, V, S, Locked<K, V, S>, ADAPTS>>(SMALL)
            .described("a small table under one lock"),
        Form::of_root::<Single<K, V, S, Table<K, V, S>, ADAPTS>>(SHARED).described("one concurrent table"),
        Form::of_root::<Single<K, V, S, Replicated<K, V, S>, ADAPTS>>(REPLICATED)
            .described("one copy per node"),
    ];
}
const SMALL_FORM: usize = 0;
const SHARED_FORM: usize = 1;
const REPLICATED_FORM: usize = 2;

impl<K, V, S> Family for Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Interface = dyn Map<K, V, S>;

    fn name(&self) -> &'static str {
        "map"
    }

    fn forms(&self) -> &'static [Form] {
        &Self::FORMS
    }

    fn make(&self, shape: Shape, _: Handle<dyn Map<K, V, S>>) -> Replacement<dyn Map<K, V, S>> {
        match shape.form {
            SHARED_FORM => Single::<K, V, S, Table<K, V, S>, ADAPTS>::replacement(()),
            REPLICATED_FORM => Single::<K, V, S, Replicated<K, V, S>, ADAPTS>::replacement(Cloners::new()),
            _ => Single::<K, V, S, Locked<K, V, S>, ADAPTS>::replacement(small_terms()),
        }
    }

    fn read(&self, handle: Handle<dyn Map<K, V, S>>) -> Result<Reading, CallError> {
        let sensors = handle.try_sensors()?;
        let bytes = info_of(Handle::id(handle)).map_or(0, |info| info.bytes);
        Ok(Reading {
            local: sensors.here,
            foreign: sensors.elsewhere,
            reps: sensors.reps,
            bytes: bytes + sensors.copies * entry_bytes::<K, V>(),
            detail: detail(&sensors),
            ..Reading::default()
        })
    }

    fn arm(&self, handle: Handle<dyn Map<K, V, S>>, after: u32) -> Result<(), CallError> {
        handle.try_arm(after)
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        let (detail, is_small) = (load.before.detail, load.shape.form == SMALL_FORM);
        let entries = entries(detail);
        // A map that became a table by its size goes back only when it is much smaller.
        let most = if is_small { small_max::<K, V>() } else { small_max::<K, V>() / 2 };
        let seen = MapLoad {
            callers: callers(load),
            // A small form with a table in its place should get rid of that indirection, however small it
            // has become.
            fits_lock: detail & SPILLED == 0 && entries <= most,
            // After a swap the lock is new, and a single user becomes its owner. `at_stake_ns` makes the
            // engine wait, so that a moment with one caller does not count.
            // Without `membarrier` no lock has an owner.
            can_be_owned: load.costs.operation_ns == 0.0 && (!is_small || detail & OWNED != 0),
            is_cheap: is_cheap::<V>(),
            bytes: entries * entry_bytes::<K, V>(),
            nodes: if has_several_nodes() { machine().clusters(COPY_CLUSTERS).len() } else { 1 },
        };
        estimate(&seen, load.costs.transfer_ns, load.cache_bytes as f64, &load.costs)
    }

    /// A copy of all entries, there and back again.
    fn at_stake_ns(&self, _: Shape, reading: &Reading) -> f64 {
        SWAP + entries(reading.detail) as f64 * (TO_SMALL + TO_TABLE)
    }

    /// A large table stays a table. A table of values that are expensive to copy stays one while it is
    /// read. Copies end at any size: readers then find a table.
    fn may_shrink(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool {
        let is_small = entries(reading.detail) <= small_max::<K, V>() / 2;
        shape.form != SHARED_FORM || is_small && (calm == Calm::Quiet || is_cheap::<V>())
    }
}

/// Packs a reading's detail: the number of entries, and the state of the small form.
fn detail(sensors: &Sensors) -> u64 {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    sensors.entries as u64 | flag(sensors.spilled, SPILLED) | flag(sensors.can_be_owned, OWNED)
}

/// Returns the number of entries in a detail.
fn entries(detail: u64) -> usize {
    (detail & !(SPILLED | OWNED)) as usize
}

/// Flag in a detail: a table has replaced the hash table under the lock.
const SPILLED: u64 = 1 << 62;
/// Flag in a detail: the lock of the small form is biased to a thread, or may become so.
const OWNED: u64 = 1 << 63;

/// Whether a clone of a value is cheap, as it is needed for each read of the small form.
pub(super) const fn is_cheap<V>() -> bool {
    !needs_drop::<V>() && size_of::<V>() <= 32
}

/// Approximate size of an entry, in each form.
const fn entry_bytes<K, V>() -> usize {
    size_of::<(K, V)>() * 3 / 2 + 2
}

/// Work of a read and a write: of the small form for the lock's owner, and without an owner, which adds two
/// locked instructions, the operation and the sensor. From `cargo run --release -p squall-objects --example
/// map_costs` on one machine, the least of three runs.
const OWNED_READ: Work = Work { multiplies: 5.9, locked: 0.0, operations: 0.0 };
const OWNED_WRITE: Work = Work { multiplies: 11.2, locked: 0.0, operations: 0.0 };
const SMALL_READ: Work = Work { multiplies: 8.1, locked: 2.0, operations: 1.0 };
const SMALL_WRITE: Work = Work { multiplies: 15.8, locked: 2.0, operations: 1.0 };
/// Least multiplications to clone a value that is not cheap: an allocation and its end.
const CLONE: f64 = 40.0;
const SHARED_READ: Work = Work { multiplies: 6.4, locked: 0.0, operations: 1.0 };
const SHARED_WRITE: Work = Work { multiplies: 8.9, locked: 2.0, operations: 1.0 };
/// Nanoseconds of a swap there and back, by the same example. Then the additional cost per entry to make the
/// small form, and to make the table.
const SWAP: f64 = 90_000.0;
const TO_SMALL: f64 = 60.0;
const TO_TABLE: f64 = 40.0;
/// Multiplications in the replicated form, by the same example with `-- copies`. A read that finds a copy is
/// a read of a table (6.3 to 6.7). A write adds an announcement, and a lookup in each node's table of copies.
/// A new copy costs `COPY` beside the read of the original.
const REPLICATED_READ: Work = SHARED_READ;
const ANNOUNCE: f64 = 48.0;
const PROBE: f64 = 55.0;
const COPY: f64 = 105.0;
/// Cache lines that move with a call of the small form, and with a write of the table. Then the share of
/// the table's calls that find that another thread wrote to their bucket.
const SMALL_LINES: f64 = 3.0;
const SHARED_LINES: f64 = 2.0;
const CONFLICTS: f64 = 0.1;
/// Cache lines of an entry that a lookup reads, and those that move with a write's announcement.
const ENTRY_LINES: f64 = 2.0;
const ANNOUNCE_LINES: f64 = 2.0;
/// Cost to fetch a line from a node's own memory, relative to another node's memory.
const NEAR_FETCH: f64 = 0.25;
/// Maximum assumed load of a lock: a waiter waits for a hundred others at most.
const BUSY_MAX: f64 = 0.99;

/// Calls of one VP per second, and its node.
#[derive(Clone, Copy, Debug)]
struct Caller {
    node: usize,
    reads: f64,
    writes: f64,
}

impl Caller {
    fn calls(&self) -> f64 {
        self.reads + self.writes
    }
}

/// Returns the callers, by the counted calls. A caller that the count missed, because it did not run just
/// then, counts like the least of the others.
fn callers(load: &Load<'_>) -> Vec<Caller> {
    let nodes = machine().clusters(COPY_CLUSTERS);
    let node_of = |vp| nodes.get(vp).map_or(0, |node| node.index());
    let counted = load.calls.rates_of("read").zip(load.calls.rates_of("write"));
    let mut callers: Vec<Caller> = counted
        .map(|((vp, reads), (_, writes))| Caller { node: node_of(vp), reads, writes })
        .filter(|c| c.calls() > 0.0)
        .collect();
    let is_counted = |vp| load.calls.by_vp.iter().any(|(counted, _)| *counted == vp);
    let least = callers.iter().copied().min_by(|a, b| a.calls().total_cmp(&b.calls()));
    let missed = load.callers.iter().filter(|vp| !is_counted(*vp));
    callers.extend(missed.filter_map(|vp| Some(Caller { node: node_of(vp), ..least? })));
    callers
}

/// A load.
struct MapLoad {
    callers: Vec<Caller>,
    /// Whether the entries are few enough for the lock of the small form.
    fits_lock: bool,
    /// Whether a single user of the small form needs no atomic operation.
    can_be_owned: bool,
    /// Whether a clone of a value is cheap.
    is_cheap: bool,
    /// Approximate size of all entries.
    bytes: usize,
    /// Number of nodes of the machine.
    nodes: usize,
}

impl MapLoad {
    fn sum(&self, of: impl Fn(&Caller) -> f64) -> f64 {
        self.callers.iter().map(of).sum()
    }
}

fn estimate(seen: &MapLoad, line: f64, cache_bytes: f64, costs: &MachineCosts) -> Vec<Cost> {
    // Returns the time of so many reads and writes, and of so much plain work.
    let time = |read: Work, write: Work| {
        let (reads, writes) = (seen.sum(|c| c.reads), seen.sum(|c| c.writes));
        reads * read.ns(costs) + writes * write.ns(costs)
    };
    let plain = |multiplies: f64| multiplies * costs.multiply_ns;
    let (reads, writes) = (seen.sum(|c| c.reads), seen.sum(|c| c.writes));
    // Of each caller's calls, those that follow another caller's.
    let fetched = seen.sum(|c| c.calls().min(reads + writes - c.calls())) * SMALL_LINES * line;
    let copied = if seen.is_cheap { 0.0 } else { (reads + writes) * plain(CLONE) };
    let held = copied
        + if seen.can_be_owned && seen.callers.len() <= 1 {
            time(OWNED_READ, OWNED_WRITE)
        } else {
            time(SMALL_READ, SMALL_WRITE)
        };
    // The lock is held meanwhile. If that is nearly always, callers wait for each other.
    let busy = ((held + fetched) / 1e9).min(BUSY_MAX);
    let wait = (1.0 / (1.0 - busy)).min(seen.callers.len().max(1) as f64);
    let mut by_node: BTreeMap<usize, f64> = BTreeMap::new();
    seen.callers.iter().for_each(|c| *by_node.entry(c.node).or_default() += c.reads);
    let readers = by_node.values().filter(|reads| **reads > 0.0).count();
    // The share of the entries that a node's caches do not hold; then the share of these that lies in
    // another reading node's memory.
    let uncached = (1.0 - cache_bytes / (seen.bytes as f64).max(1.0)).max(0.0);
    let far = 1.0 - 1.0 / readers.max(1) as f64;
    let fetch = uncached * ENTRY_LINES * line;
    let meet = seen.sum(|c| c.calls().min(writes - c.writes)) * CONFLICTS * SHARED_LINES * line;
    let written = writes * SHARED_WRITE.ns(costs) + meet;
    let shared = reads * (SHARED_READ.ns(costs) + fetch * (far + (1.0 - far) * NEAR_FETCH)) + written;
    // A map that is too large for the lock has a table within its form. It pays only for the indirection.
    let small = if seen.fits_lock { held + fetched * wait } else { shared * 1.5 };
    let cost = |form, ns_per_s, bytes| Cost { shape: Shape { form, place: None }, ns_per_s, bytes };
    let mut estimates = vec![cost(SMALL_FORM, small, 0), cost(SHARED_FORM, shared, 0)];
    if seen.nodes > 1 {
        // After a write, the first reader in each node finds no copy, and makes one.
        let copied: f64 = by_node.values().map(|reads| reads.min(writes)).sum();
        let announced =
            plain(ANNOUNCE) + ANNOUNCE_LINES * line + readers as f64 * (plain(PROBE) + ENTRY_LINES * line);
        let copy = plain(COPY) + (ENTRY_LINES + ANNOUNCE_LINES) * line;
        let replicated = reads * (REPLICATED_READ.ns(costs) + fetch * NEAR_FETCH)
            + copied * copy
            + writes * announced
            + written;
        estimates.push(cost(REPLICATED_FORM, replicated, seen.bytes * readers));
    }
    estimates
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_adapt::costs::REFERENCE;

    const LINE: f64 = 25.0;
    const CACHE: f64 = 1e6;

    /// A load with this many VPs per node, each with these reads and writes per second.
    fn on_nodes(vps: &[usize], reads: f64, writes: f64, nodes: usize) -> MapLoad {
        let of_node = |(node, vps): (usize, &usize)| vec![Caller { node, reads, writes }; *vps];
        let callers = vps.iter().enumerate().flat_map(of_node).collect();
        MapLoad { callers, fits_lock: true, can_be_owned: true, is_cheap: true, bytes: 1000, nodes }
    }

    fn best_of(seen: &MapLoad) -> usize {
        let costs = estimate(seen, LINE, CACHE, &REFERENCE);
        costs.iter().min_by(|a, b| a.ns_per_s.total_cmp(&b.ns_per_s)).unwrap().shape.form
    }

    /// Returns the best form for VPs of one node, each with these reads and writes per second.
    fn best(vps: usize, reads: f64, writes: f64, large: bool) -> usize {
        best_of(&MapLoad { fits_lock: !large, ..on_nodes(&[vps], reads, writes, 1) })
    }

    #[test]
    fn co_71_a_shared_map_is_a_table() {
        for vps in [2, 8, 64] {
            assert_eq!(best(vps, 1e6, 1e6, false), SHARED_FORM, "{vps}");
            assert_eq!(best(vps, 0.0, 1e6, false), SHARED_FORM, "{vps}");
            assert_eq!(best(vps, 1e6, 0.0, false), SHARED_FORM, "{vps}");
        }
    }

    /// Returns the cost of the small form relative to the table, for a single user.
    fn dearer(reads: f64, writes: f64, fits_lock: bool, can_be_owned: bool) -> f64 {
        let seen = MapLoad { fits_lock, can_be_owned, ..on_nodes(&[1], reads, writes, 1) };
        let costs = estimate(&seen, LINE, CACHE, &REFERENCE);
        costs[SMALL_FORM].ns_per_s / costs[SHARED_FORM].ns_per_s
    }

    #[test]
    fn co_71_a_map_of_one_thread_stays_under_a_biased_lock() {
        for (reads, writes) in [(1e6, 0.0), (1e6, 1e4), (1e6, 1e6), (1e5, 1e6)] {
            let dearer = dearer(reads, writes, true, true);
            assert!(dearer < 1.0, "{reads}, {writes}: {dearer}");
        }
    }

    #[test]
    fn co_71_a_map_of_one_thread_is_a_table_if_clones_are_expensive() {
        for (reads, writes) in [(1e6, 0.0), (1e6, 1e6), (1e5, 1e6)] {
            let seen = MapLoad { is_cheap: false, ..on_nodes(&[1], reads, writes, 1) };
            assert_eq!(best_of(&seen), SHARED_FORM);
        }
    }

    #[test]
    fn co_71_a_busy_map_of_one_thread_is_a_table_if_its_lock_has_no_owner() {
        for (reads, writes) in [(1e6, 0.0), (1e6, 1e4), (1e6, 1e6), (1e5, 1e6)] {
            for (large, can_be_owned) in [(false, false), (true, false), (true, true)] {
                let dearer = dearer(reads, writes, !large, can_be_owned);
                assert!(dearer > 1.3, "more than the margin: {reads}, {writes}: {dearer}");
            }
        }
    }

    #[test]
    fn co_71_the_lock_costs_each_caller_more_with_more_callers() {
        let for_each = |vps: usize| {
            let costs = estimate(&on_nodes(&[vps], 1e5, 1e5, 1), LINE, CACHE, &REFERENCE);
            costs[SMALL_FORM].ns_per_s / vps as f64
        };
        assert!(for_each(1) < for_each(2) && for_each(2) < for_each(4) && for_each(4) < for_each(16));
    }

    #[test]
    fn co_71_writes_of_one_thread_are_cheaper_under_a_lock_beyond_the_margin() {
        for (reads, writes) in [(1e6, 1e6), (1e5, 1e6), (0.0, 1e6)] {
            let dearer = dearer(reads, writes, true, true);
            assert!(1.0 / dearer > 1.3, "{reads}, {writes}: {dearer}");
        }
        let only_read = dearer(1e6, 0.0, true, true);
        assert!(1.0 / only_read < 1.3, "for one that only reads it is not worth a swap: {only_read}");
    }

    /// A table with a tenth of its entries in the caches.
    fn huge(seen: MapLoad) -> MapLoad {
        MapLoad { bytes: 10 * CACHE as usize, fits_lock: false, ..seen }
    }

    #[test]
    fn hu_16_a_map_beyond_the_caches_of_several_reading_nodes_is_replicated() {
        for vps in [[1, 1].as_slice(), &[8, 8], &[4, 4, 4, 4]] {
            assert_eq!(best_of(&huge(on_nodes(vps, 1e6, 0.0, vps.len()))), REPLICATED_FORM, "{vps:?}");
            assert_eq!(best_of(&huge(on_nodes(vps, 1e6, 1e3, vps.len()))), REPLICATED_FORM, "{vps:?}");
        }
    }

    #[test]
    fn hu_16_a_map_is_not_replicated_where_no_copy_is_nearer() {
        let reads = |vps: &[usize], nodes| on_nodes(vps, 1e6, 0.0, nodes);
        assert_eq!(best_of(&reads(&[8, 8], 2)), SHARED_FORM, "each node's caches keep all");
        assert_eq!(best_of(&huge(reads(&[8, 0], 2))), SHARED_FORM, "one node alone reads");
        let costs = estimate(&huge(reads(&[16], 1)), LINE, CACHE, &REFERENCE);
        assert!(costs.iter().all(|cost| cost.shape.form != REPLICATED_FORM), "there is one node");
    }

    #[test]
    fn hu_16_a_map_with_many_writes_is_not_replicated_and_goes_back() {
        for writes in [1e5, 5e5, 1e6] {
            let costs = estimate(&huge(on_nodes(&[4, 4], 1e6, writes, 2)), LINE, CACHE, &REFERENCE);
            let dearer = costs[REPLICATED_FORM].ns_per_s / costs[SHARED_FORM].ns_per_s;
            assert!(dearer > 1.0, "{writes}: {dearer}");
            assert!(writes < 5e5 || dearer > 1.3, "more than the margin: {writes}: {dearer}");
        }
    }

    #[test]
    fn copies_cost_their_bytes() {
        let costs: [Cost; 3] =
            estimate(&huge(on_nodes(&[4, 4, 4], 1e6, 0.0, 3)), LINE, CACHE, &REFERENCE).try_into().unwrap();
        assert_eq!(costs.map(|cost| cost.bytes), [0, 0, 3 * 10 * CACHE as usize]);
    }

    /// Returns the cost of the small form relative to the table, for a single user of a machine.
    fn dearer_on(costs: &MachineCosts, reads: f64, writes: f64, can_be_owned: bool) -> f64 {
        let seen = MapLoad { can_be_owned, ..on_nodes(&[1], reads, writes, 1) };
        let costs = estimate(&seen, LINE, CACHE, costs);
        costs[SMALL_FORM].ns_per_s / costs[SHARED_FORM].ns_per_s
    }

    #[test]
    fn the_ratio_of_two_forms_follows_the_machine() {
        let mut cheap = REFERENCE;
        cheap.locked_ns = 1.0;
        let written = |costs| dearer_on(costs, 0.0, 1e6, true);
        assert!(written(&cheap) > 1.0, "plain work decides where locked instructions are cheap");
        assert!(written(&REFERENCE) < 1.0);
        // In a mode with fences an operation costs both forms as much, and the lock's own instructions less
        // in comparison.
        let mut fenced = REFERENCE;
        fenced.operation_ns = 30.0;
        let read = |costs| dearer_on(costs, 1e6, 0.0, false);
        assert!(read(&fenced) < read(&REFERENCE) && read(&fenced) > 1.0);
    }
}
