//! The policy of adaptive read-mostly values: the cost of a load in each form.
//!
//! A value that never changes costs the same in every form, since its lines stay in each reader's cache. So
//! the sensor counts changes. After a change each reading processor fetches the replica's line and the value.
//! They come from the one shared replica, or from the reader's cluster if a processor of that cluster has
//! fetched them. Copies cost more per change: two stores to the line of each replica, and a clone of the
//! value for each.

use squall_adapt::costs::{MachineCosts, Work};
use squall_adapt::engine;
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of};
use squall_machine::{ClusterSize, machine};
use squall_parts::replica::Master;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use super::distributed::{Distributed, Local};
use super::{ADAPTS, ReadMostly};

/// Name of the form in which an adaptive value starts. Constructor: [`shared`](super::shared).
pub const SHARED: &str = "shared";
/// Name of the form for a value that several clusters read and that changes. Constructor:
/// [`copied`](super::copied).
pub const COPIED: &str = "copied";

/// Initial number of changes until the sensor posts.
pub(super) const ALARM: u32 = 256;
/// Returns the size of the clusters that have a copy each in the copied form.
fn size() -> ClusterSize {
    machine().cluster_size_or(ClusterSize::Cache)
}

/// Asks the policy to examine the value. Returns false if the post was dropped.
pub(super) fn post<T: Send + Sync + 'static>(handle: Handle<dyn ReadMostly<T>>) -> bool {
    engine::post(Handle::id(handle))
}

/// Returns the family of values of this type.
pub(super) fn family<T: Clone + Send + Sync + 'static>() -> &'static Values<T> {
    &Values(PhantomData)
}

pub(super) struct Values<T>(PhantomData<fn() -> T>);

impl<T: Clone + Send + Sync + 'static> Values<T> {
    const FORMS: [Form; 2] = [
        Form::of::<Distributed<T, ADAPTS, false>>(SHARED).described("one value for all processors"),
        Form::of::<Distributed<T, ADAPTS, true>>(COPIED).described("one copy per cache"),
    ];
}
const COPIED_FORM: usize = 1;

impl<T: Clone + Send + Sync + 'static> Family for Values<T> {
    type Interface = dyn ReadMostly<T>;

    fn name(&self) -> &'static str {
        "read-mostly"
    }

    fn forms(&self) -> &'static [Form] {
        &Self::FORMS
    }

    fn make(&self, shape: Shape, _: Handle<dyn ReadMostly<T>>) -> Replacement<dyn ReadMostly<T>> {
        match shape.form {
            COPIED_FORM => {
                let copied = Distributed::<T, ADAPTS, true>::with_copies(Master::vacant_copied());
                Replacement::root(copied, size())
            }
            _ => {
                let shared = Distributed::<T, ADAPTS, false>::with_copies(Master::vacant_updated());
                Replacement::root(shared, ClusterSize::Machine)
            }
        }
    }

    fn read(&self, handle: Handle<dyn ReadMostly<T>>) -> Result<Reading, CallError> {
        let sensors = handle.try_sensors()?;
        let bytes = info_of(Handle::id(handle)).map_or(0, |info| info.bytes);
        Ok(Reading { global: sensors.changes, reps: sensors.reps, bytes, ..Reading::default() })
    }

    fn arm(&self, handle: Handle<dyn ReadMostly<T>>, after: u32) -> Result<(), CallError> {
        handle.try_arm(after)
    }

    fn estimate_costs(&self, load: &Load<'_>) -> Vec<Cost> {
        let clusters = machine().clusters(size());
        let mut readers: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for (vp, reads) in load.calls.rates_of("find") {
            if reads > 0.0 {
                let cluster = clusters.get(vp).map_or(0, |cluster| cluster.index());
                readers.entry(cluster).or_default().push(reads);
            }
        }
        let changes = f64::from(u32::try_from(load.before.global).unwrap_or(u32::MAX))
            / load.span.as_secs_f64().max(1e-9);
        let seen = Seen { readers: readers.into_values().collect(), changes };
        judge(&seen, size_of::<T>(), size_of::<Local<T, ADAPTS, true>>(), load.costs.transfer_ns, &load.costs)
    }
}

/// Work of a read in any form, and of a change without its stores.
const READ: Work = Work { multiplies: 3.0, locked: 0.0, operations: 1.0 };
const CHANGE: Work = Work { multiplies: 100.0, locked: 9.0, operations: 1.0 };
/// Cost of a line transfer within a cluster, relative to one between clusters.
const NEAR: f64 = 0.25;
const LINE_BYTES: usize = 64;
/// Approximate size of the object without its representatives, and of a representative without its value.
const ROOT_BYTES: usize = 256;
const REP_BYTES: usize = 128;

/// Load: the reads per second of each processor, grouped by cluster, and the changes per second.
struct Seen {
    readers: Vec<Vec<f64>>,
    changes: f64,
}

fn judge(seen: &Seen, value_bytes: usize, local_bytes: usize, line: f64, costs: &MachineCosts) -> Vec<Cost> {
    let value_lines = value_bytes.div_ceil(LINE_BYTES).max(1) as f64;
    let reads: f64 = seen.readers.iter().flatten().sum();
    // Returns how many of these reads find a new value.
    let fetches = |reads: f64| reads.min(seen.changes);
    let all: f64 = seen.readers.iter().flatten().map(|reads| fetches(*reads)).sum();
    // In each cluster the first reader after a change fetches from another cluster. The busiest reader gives
    // a lower bound.
    let first: f64 =
        seen.readers.iter().map(|cluster| fetches(cluster.iter().copied().fold(0.0, f64::max))).sum();
    let replicas = seen.readers.len().max(1) as f64;
    let fetch = (1.0 + value_lines) * line;
    let common = reads * READ.ns(costs) + seen.changes * CHANGE.ns(costs);
    // With a single cluster every transfer is near, in either form.
    let far = if seen.readers.len() > 1 { 1.0 } else { NEAR };
    let shared = common + all * fetch * far + seen.changes * 2.0 * line * far;
    // The first reader of a cluster also fetches the master's line, and copies.
    let distributed = common
        + first * (fetch + line + value_lines * line * NEAR) * far
        + (all - first) * fetch * NEAR
        + seen.changes * (1.0 + replicas) * line * far;
    let cost = |form, ns_per_s, bytes| Cost { shape: Shape { form, place: None }, ns_per_s, bytes };
    let per_replica = local_bytes + REP_BYTES + value_bytes;
    vec![
        cost(0, shared, ROOT_BYTES + local_bytes + REP_BYTES + value_bytes),
        cost(COPIED_FORM, distributed, ROOT_BYTES + value_bytes + seen.readers.len().max(1) * per_replica),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_adapt::costs::REFERENCE;

    /// Returns the cheapest form, for the number of readers in each cluster and the reads and changes per
    /// second.
    fn best(clusters: &[usize], reads: f64, changes: f64, bytes: usize) -> usize {
        let readers = clusters.iter().map(|vps| vec![reads; *vps]).collect();
        let costs = judge(&Seen { readers, changes }, bytes, 128, 60.0, &REFERENCE);
        costs.iter().min_by(|a, b| a.ns_per_s.total_cmp(&b.ns_per_s)).unwrap().shape.form
    }

    #[test]
    fn hu_16_what_many_of_several_clusters_read_and_somebody_changes_is_copied_for_each() {
        assert_eq!(best(&[8, 8, 8, 8], 1e6, 1e3, 64), COPIED_FORM);
        assert_eq!(best(&[16, 16], 1e5, 1e4, 4096), COPIED_FORM);
    }

    #[test]
    fn hu_16_what_one_cluster_reads_is_not_copied() {
        assert_eq!(best(&[8], 1e6, 1e3, 64), 0);
        assert_eq!(best(&[1, 1], 1e6, 1e3, 64), 0, "nobody shares a cluster with anybody");
        assert_eq!(best(&[], 0.0, 1e6, 64), 0, "nobody reads");
    }

    #[test]
    fn hu_16_what_is_changed_more_often_than_read_is_not_copied() {
        assert_eq!(best(&[2, 2, 2, 2], 1e3, 1e6, 64), 0);
    }

    #[test]
    fn hu_04_what_nobody_changes_costs_the_same_in_each_form() {
        let costs = judge(&Seen { readers: vec![vec![1e6; 4]; 4], changes: 0.0 }, 64, 128, 60.0, &REFERENCE);
        assert_eq!(costs[0].ns_per_s, costs[1].ns_per_s);
    }
}
