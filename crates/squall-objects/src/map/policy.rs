//! When a map changes its form: what its load would cost in each.
//!
//! Most maps are small and one thread's, and those are under a lock, which costs that thread nothing (`squall_lock::BiasedLock`): there is nothing
//! faster, where a value is copied for next to nothing. What several use is a table: the line of the lock, and what the hash table has behind it, would travel with each call, and those who
//! come while it does wait for each other. In a table they meet where two want the same bucket. A lock that went from thread to
//! thread so often that it has no owner any more costs one thread alone more than a table does, too.
//!
//! Copies of the table's entries pay where all of this is so: several nodes read, so that for some of them the table lies in another's memory; it
//! is larger than a node's caches, which else keep copies of what is read by themselves; and it is hardly ever written, for a write takes the
//! copies out of every node's table first. So never on a machine with one node, whatever caches it has. Going to that form and back
//! moves the table and copies nothing.
//!
//! The sensors count calls of the small form but those of the lock's owner, of whom it is told when it loses the lock; and of the writes of a table
//! one of many: on each processor for itself, or, where there are copies, on each node. Readers of a table write nothing, but on machines with
//! several nodes: there one of many is counted, on its own processor, since copies are for readers. A small map that grows becomes a table by
//! itself, at once and within its form (`locked.rs`), for two reasons: the longer it waited, the more its callers would have to wait while it
//! is copied; and whoever fills a map is faster than any policy.

use squall_adapt::engine;
use squall_adapt::family::{Calm, Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of};
use squall_machine::{ClusterSize, machine};
use squall_parts::table::Table;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::mem::needs_drop;

use super::forms::{One, Terms};
use super::locked::{Copies, Locked};
use super::replicated::Replicated;
use super::{ADAPTS, Map, Sensors};

/// The form in which an adaptive map begins: as [`locked`](super::locked), up to 131,072 entries of which a clone copies bytes, 32 at most,
/// and up to 16,384 others.
pub const SMALL: &str = "small";
/// The form into which it grows: [`shared`](super::shared).
pub const SHARED: &str = "shared";

/// The form that it can take beyond, on machines with several nodes: [`replicated`](super::replicated), for nodes.
pub const REPLICATED: &str = "replicated";

/// Of which clusters the last form has copies: those that have memory of their own.
pub(super) const APART: ClusterSize = ClusterSize::Node;

/// Whether there are several of them, so that a copy can be nearer.
pub(super) fn is_apart() -> bool {
    machine().clusters(APART).len() > 1
}

/// Steps of a sensor until it posts, at first.
pub(super) const ALARM: u32 = 1024;
/// Entries of the small form. To copy so many takes some milliseconds at most: no more than what std's map does when it grows that far, for which
/// its callers wait, too.
pub(super) const fn most<K, V>() -> usize {
    if needs_drop::<K>() || needs_drop::<V>() || size_of::<(K, V)>() > 32 { 16_384 } else { 131_072 }
}

/// Asks the policy for a look.
pub(super) fn post<K, V, S>(co: Handle<dyn Map<K, V, S>>) -> bool
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    engine::post(Handle::id(co))
}

/// The family of maps of these types.
pub(super) fn family<K, V, S>() -> &'static Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    &Maps(PhantomData)
}

/// Of what a small form is made.
pub(super) fn small<K: Clone, V: Clone, S: Clone>() -> Terms<K, V, S> {
    Terms { copies: Copies::new(), most: most::<K, V>() }
}

pub(super) struct Maps<K, V, S>(PhantomData<fn(K, V, S)>);

impl<K, V, S> Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    const FORMS: [Form; 3] = [
        Form::of::<One<K, V, S, Locked<K, V, S>, ADAPTS>>(SMALL),
        Form::of::<One<K, V, S, Table<K, V, S>, ADAPTS>>(SHARED),
        Form::of::<One<K, V, S, Replicated<K, V, S>, ADAPTS>>(REPLICATED),
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
            SHARED_FORM => One::<K, V, S, Table<K, V, S>, ADAPTS>::to_come(()),
            REPLICATED_FORM => One::<K, V, S, Replicated<K, V, S>, ADAPTS>::to_come(Copies::new()),
            _ => One::<K, V, S, Locked<K, V, S>, ADAPTS>::to_come(small()),
        }
    }

    fn read(&self, co: Handle<dyn Map<K, V, S>>) -> Result<Reading, CallError> {
        let sensors = co.try_sensors()?;
        let bytes = info_of(Handle::id(co)).map_or(0, |info| info.bytes);
        Ok(Reading {
            local: sensors.here,
            foreign: sensors.elsewhere,
            reps: sensors.reps,
            bytes: bytes + sensors.copies * entry_bytes::<K, V>(),
            detail: detail(&sensors),
            ..Reading::default()
        })
    }

    fn arm(&self, co: Handle<dyn Map<K, V, S>>, after: u32) -> Result<(), CallError> {
        co.try_arm(after)
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        let (detail, is_small) = (load.before.detail, load.shape.form == SMALL_FORM);
        let entries = entries(detail);
        // One that became a table because it was large does not go back before it is much smaller.
        let most = if is_small { most::<K, V>() } else { most::<K, V>() / 2 };
        let seen = Seen {
            callers: callers(load),
            // A small form that has a table is to get rid of what it has beside, however small it may have become.
            fits_lock: detail & SPILLED == 0 && entries <= most,
            // What a swap would make has had no owner, and whoever is alone becomes it. Whether it is alone, and not only so in the moment of a
            // look, is waited for (`at_stake_ns`).
            can_be_owned: !is_small || detail & OWNED != 0,
            is_cheap: is_cheap::<V>(),
            bytes: entries * entry_bytes::<K, V>(),
            nodes: if is_apart() { machine().clusters(APART).len() } else { 1 },
        };
        judge(&seen, load.transfer_ns, load.cache_bytes as f64)
    }

    /// A copy of all entries, there and back again.
    fn at_stake_ns(&self, _: Shape, reading: &Reading) -> f64 {
        SWAP + entries(reading.detail) as f64 * (TO_SMALL + TO_TABLE)
    }

    /// A large table stays one, and one of values that cost something to copy while somebody reads it. Copies end, however large: who reads
    /// then finds a table.
    fn may_shrink(&self, shape: Shape, calm: Calm, reading: &Reading) -> bool {
        let is_small = entries(reading.detail) <= most::<K, V>() / 2;
        shape.form != SHARED_FORM || is_small && (calm == Calm::Quiet || is_cheap::<V>())
    }
}

/// A reading's detail: how many entries there are, and what is known of the small form.
fn detail(sensors: &Sensors) -> u64 {
    let flag = |is_set, flag| if is_set { flag } else { 0 };
    sensors.entries as u64 | flag(sensors.spilled, SPILLED) | flag(sensors.can_be_owned, OWNED)
}

/// The entries of a detail.
fn entries(detail: u64) -> usize {
    (detail & !(SPILLED | OWNED)) as usize
}

/// In such a detail: there is a table in the place of what the lock guards.
const SPILLED: u64 = 1 << 62;
/// And: one thread has the small form's lock to itself, or soon would.
const OWNED: u64 = 1 << 63;

/// Whether a value is copied for next to nothing, as the small form does for whoever reads it.
pub(super) const fn is_cheap<V>() -> bool {
    !needs_drop::<V>() && size_of::<V>() <= 32
}

/// About what an entry takes, in either form.
const fn entry_bytes<K, V>() -> usize {
    size_of::<(K, V)>() * 3 / 2 + 2
}

/// What a read and a write cost, in nanoseconds, as `cargo run --release -p squall-objects --example map_costs` had them on one machine, the
/// least of three runs: of the small form for the lock's owner, and where it has none, when it is an atomic operation and the sensor. They
/// matter as ratios.
const OWNED_READ: f64 = 5.9;
const OWNED_WRITE: f64 = 11.2;
const SMALL_READ: f64 = 19.1;
const SMALL_WRITE: f64 = 26.8;
/// What it costs at least to clone a value that is not cheap: an allocation and its end.
const CLONE: f64 = 40.0;
const SHARED_READ: f64 = 6.4;
const SHARED_WRITE: f64 = 19.9;
/// What it costs to swap a map and back again, by the same; and what each entry adds of which the small form is made, and the table.
const SWAP: f64 = 90_000.0;
const TO_SMALL: f64 = 60.0;
const TO_TABLE: f64 = 40.0;
/// By the same with `-- copies`: a read that finds a copy, which is a read of a table (6.3 to 6.7); what a write costs beside that of the table where there may be copies, and for each
/// node's table that has one; and what it costs to make a copy, beside reading what is copied.
const REPLICATED_READ: f64 = 6.4;
const ANNOUNCE: f64 = 48.0;
const LOOK: f64 = 55.0;
const COPY: f64 = 105.0;
/// Lines that travel with a call of the small form, and with a write of the table; and how many of the latter's calls find that another
/// wrote to their bucket since.
const SMALL_LINES: f64 = 3.0;
const SHARED_LINES: f64 = 2.0;
const MEETINGS: f64 = 0.1;
/// Lines of an entry that a look reads, and those that travel with the announcement of a write.
const ENTRY_LINES: f64 = 2.0;
const ANNOUNCE_LINES: f64 = 2.0;
/// What it costs to fetch a line from a node's own memory, as a part of what it costs from another's.
const NEAR: f64 = 0.25;
/// A lock is never taken for busier: who waits for it waits for a hundred others at most.
const BUSY_MAX: f64 = 0.99;

/// What one VP does in a second, and of which node it is.
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

/// Who calls: by the calls that were counted; and those whom the count missed, since they did not run just then, are taken for such as the
/// least of those who were counted.
fn callers(load: &Load<'_>) -> Vec<Caller> {
    let nodes = machine().clusters(APART);
    let node_of = |vp| nodes.get(vp).map_or(0, |node| node.index());
    let counted = load.calls.rates_of("look").zip(load.calls.rates_of("lend"));
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
struct Seen {
    callers: Vec<Caller>,
    /// Whether there are so few entries that the small form has them under its lock.
    fits_lock: bool,
    /// Whether one who uses the small form alone pays for no atomic operation there.
    can_be_owned: bool,
    /// Whether a value is copied for next to nothing.
    is_cheap: bool,
    /// About what the entries take.
    bytes: usize,
    /// Of the machine.
    nodes: usize,
}

impl Seen {
    fn sum(&self, of: impl Fn(&Caller) -> f64) -> f64 {
        self.callers.iter().map(of).sum()
    }
}

fn judge(seen: &Seen, line: f64, cache_bytes: f64) -> Vec<Cost> {
    let (reads, writes) = (seen.sum(|c| c.reads), seen.sum(|c| c.writes));
    // Of one's calls, those before which others came.
    let fetched = seen.sum(|c| c.calls().min(reads + writes - c.calls())) * SMALL_LINES * line;
    let copied = if seen.is_cheap { 0.0 } else { (reads + writes) * CLONE };
    let held = copied
        + if seen.can_be_owned && seen.callers.len() <= 1 {
            reads * OWNED_READ + writes * OWNED_WRITE
        } else {
            reads * SMALL_READ + writes * SMALL_WRITE
        };
    // The lock is held meanwhile; where that is nearly always, those who want it wait for each other.
    let busy = ((held + fetched) / 1e9).min(BUSY_MAX);
    let wait = (1.0 / (1.0 - busy)).min(seen.callers.len().max(1) as f64);
    let mut by_node: BTreeMap<usize, f64> = BTreeMap::new();
    seen.callers.iter().for_each(|c| *by_node.entry(c.node).or_default() += c.reads);
    let readers = by_node.values().filter(|reads| **reads > 0.0).count();
    // Of the entries, those that a node's caches do not keep; of these, those that are another's of the nodes that read.
    let uncached = (1.0 - cache_bytes / (seen.bytes as f64).max(1.0)).max(0.0);
    let far = 1.0 - 1.0 / readers.max(1) as f64;
    let fetch = uncached * ENTRY_LINES * line;
    let meet = seen.sum(|c| c.calls().min(writes - c.writes)) * MEETINGS * SHARED_LINES * line;
    let written = writes * SHARED_WRITE + meet;
    let shared = reads * (SHARED_READ + fetch * (far + (1.0 - far) * NEAR)) + written;
    // One that is too large for a lock has a table within its form, and only pays for finding that out.
    let small = if seen.fits_lock { held + fetched * wait } else { shared * 1.5 };
    let cost = |form, ns_per_s, bytes| Cost { shape: Shape { form, place: None }, ns_per_s, bytes };
    let mut costs = vec![cost(SMALL_FORM, small, 0), cost(SHARED_FORM, shared, 0)];
    if seen.nodes > 1 {
        // After a write the first who reads in each node finds no copy, and makes one.
        let copied: f64 = by_node.values().map(|reads| reads.min(writes)).sum();
        let announced = ANNOUNCE + ANNOUNCE_LINES * line + readers as f64 * (LOOK + ENTRY_LINES * line);
        let copy = COPY + (ENTRY_LINES + ANNOUNCE_LINES) * line;
        let replicated =
            reads * (REPLICATED_READ + fetch * NEAR) + copied * copy + writes * announced + written;
        costs.push(cost(REPLICATED_FORM, replicated, seen.bytes * readers));
    }
    costs
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 25.0;
    const CACHE: f64 = 1e6;

    /// So many VPs of each node, and what each reads and writes in a second.
    fn on_nodes(vps: &[usize], reads: f64, writes: f64, nodes: usize) -> Seen {
        let of_node = |(node, vps): (usize, &usize)| vec![Caller { node, reads, writes }; *vps];
        let callers = vps.iter().enumerate().flat_map(of_node).collect();
        Seen { callers, fits_lock: true, can_be_owned: true, is_cheap: true, bytes: 1000, nodes }
    }

    fn best_of(seen: &Seen) -> usize {
        let costs = judge(seen, LINE, CACHE);
        costs.iter().min_by(|a, b| a.ns_per_s.total_cmp(&b.ns_per_s)).unwrap().shape.form
    }

    /// The form that this load should have: VPs of one node, and what each reads and writes in a second.
    fn best(vps: usize, reads: f64, writes: f64, large: bool) -> usize {
        best_of(&Seen { fits_lock: !large, ..on_nodes(&[vps], reads, writes, 1) })
    }

    #[test]
    fn co_71_what_several_share_is_a_table() {
        for vps in [2, 8, 64] {
            assert_eq!(best(vps, 1e6, 1e6, false), SHARED_FORM, "{vps}");
            assert_eq!(best(vps, 0.0, 1e6, false), SHARED_FORM, "{vps}");
            assert_eq!(best(vps, 1e6, 0.0, false), SHARED_FORM, "{vps}");
        }
    }

    /// What the small form costs over what the table does, for one who uses either alone.
    fn dearer(reads: f64, writes: f64, fits_lock: bool, can_be_owned: bool) -> f64 {
        let seen = Seen { fits_lock, can_be_owned, ..on_nodes(&[1], reads, writes, 1) };
        let costs = judge(&seen, LINE, CACHE);
        costs[SMALL_FORM].ns_per_s / costs[SHARED_FORM].ns_per_s
    }

    #[test]
    fn co_71_what_one_alone_uses_stays_under_a_lock_that_costs_it_nothing() {
        for (reads, writes) in [(1e6, 0.0), (1e6, 1e4), (1e6, 1e6), (1e5, 1e6)] {
            let dearer = dearer(reads, writes, true, true);
            assert!(dearer < 1.0, "{reads}, {writes}: {dearer}");
        }
    }

    #[test]
    fn co_71_what_one_alone_uses_is_a_table_where_values_cost_something_to_copy() {
        for (reads, writes) in [(1e6, 0.0), (1e6, 1e6), (1e5, 1e6)] {
            let seen = Seen { is_cheap: false, ..on_nodes(&[1], reads, writes, 1) };
            assert_eq!(best_of(&seen), SHARED_FORM);
        }
    }

    #[test]
    fn co_71_what_one_alone_uses_much_is_a_table_where_the_lock_costs_something() {
        for (reads, writes) in [(1e6, 0.0), (1e6, 1e4), (1e6, 1e6), (1e5, 1e6)] {
            for (large, can_be_owned) in [(false, false), (true, false), (true, true)] {
                let dearer = dearer(reads, writes, !large, can_be_owned);
                assert!(dearer > 1.3, "more than the margin: {reads}, {writes}: {dearer}");
            }
        }
    }

    #[test]
    fn co_71_the_more_share_it_the_dearer_is_the_lock_for_each() {
        let for_each = |vps: usize| {
            let costs = judge(&on_nodes(&[vps], 1e5, 1e5, 1), LINE, CACHE);
            costs[SMALL_FORM].ns_per_s / vps as f64
        };
        assert!(for_each(1) < for_each(2) && for_each(2) < for_each(4) && for_each(4) < for_each(16));
    }

    #[test]
    fn co_71_what_one_alone_writes_is_better_under_a_lock_by_more_than_the_margin() {
        for (reads, writes) in [(1e6, 1e6), (1e5, 1e6), (0.0, 1e6)] {
            let dearer = dearer(reads, writes, true, true);
            assert!(1.0 / dearer > 1.3, "{reads}, {writes}: {dearer}");
        }
        let only_read = dearer(1e6, 0.0, true, true);
        assert!(1.0 / only_read < 1.3, "for one that only reads it is not worth a swap: {only_read}");
    }

    /// A table of which a tenth is in the caches.
    fn huge(seen: Seen) -> Seen {
        Seen { bytes: 10 * CACHE as usize, fits_lock: false, ..seen }
    }

    #[test]
    fn hu_16_what_several_nodes_read_beyond_their_caches_is_copied_for_each() {
        for vps in [[1, 1].as_slice(), &[8, 8], &[4, 4, 4, 4]] {
            assert_eq!(best_of(&huge(on_nodes(vps, 1e6, 0.0, vps.len()))), REPLICATED_FORM, "{vps:?}");
            assert_eq!(best_of(&huge(on_nodes(vps, 1e6, 1e3, vps.len()))), REPLICATED_FORM, "{vps:?}");
        }
    }

    #[test]
    fn hu_16_it_is_not_where_no_copy_is_nearer() {
        let reads = |vps: &[usize], nodes| on_nodes(vps, 1e6, 0.0, nodes);
        assert_eq!(best_of(&reads(&[8, 8], 2)), SHARED_FORM, "each node's caches keep all");
        assert_eq!(best_of(&huge(reads(&[8, 0], 2))), SHARED_FORM, "one node alone reads");
        let costs = judge(&huge(reads(&[16], 1)), LINE, CACHE);
        assert!(costs.iter().all(|cost| cost.shape.form != REPLICATED_FORM), "there is one node");
    }

    #[test]
    fn hu_16_it_is_not_where_much_is_written_and_it_goes_back_then() {
        for writes in [1e5, 5e5, 1e6] {
            let costs = judge(&huge(on_nodes(&[4, 4], 1e6, writes, 2)), LINE, CACHE);
            let dearer = costs[REPLICATED_FORM].ns_per_s / costs[SHARED_FORM].ns_per_s;
            assert!(dearer > 1.0, "{writes}: {dearer}");
            assert!(writes < 5e5 || dearer > 1.3, "more than the margin: {writes}: {dearer}");
        }
    }

    #[test]
    fn copies_are_paid_for_by_their_bytes() {
        let costs: [Cost; 3] =
            judge(&huge(on_nodes(&[4, 4, 4], 1e6, 0.0, 3)), LINE, CACHE).try_into().unwrap();
        assert_eq!(costs.map(|cost| cost.bytes), [0, 0, 3 * 10 * CACHE as usize]);
    }
}
