//! When a read-mostly value changes its form: what its load would cost in each.
//!
//! A value that nobody changes costs the same in every form: its lines are in the cache of whoever reads it. So changes are the
//! sensor. After each of them every processor that reads fetches the replica's line and the value: from the one place that there
//! is, or from within its own cluster, if another one there has fetched it before. Against that stands what a change costs:
//! two stores to the line of each replica, and a copy of the value for each.

use squall_adapt::engine;
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::Replacement;
use squall_core::{CallError, Handle, info_of};
use squall_machine::{ClusterSize, machine};
use squall_parts::replica::Master;
use std::collections::BTreeMap;
use std::marker::PhantomData;

use super::distributed::{Local, Distributed};
use super::{ADAPTS, ReadMostly};

/// The form in which an adaptive value begins: [`shared`](super::shared).
pub const SHARED: &str = "shared";
/// The form into which it grows: [`copied`](super::copied).
pub const COPIED: &str = "copied";

/// Changes until the sensor posts, at first.
pub(super) const ALARM: u32 = 256;
/// Of which clusters the other form has copies.
const SIZE: ClusterSize = ClusterSize::Cache;

/// Asks the policy for a look.
pub(super) fn post<T: Send + Sync + 'static>(handle: Handle<dyn ReadMostly<T>>) -> bool {
    engine::post(Handle::id(handle))
}

/// The family of values of this type.
pub(super) fn family<T: Clone + Send + Sync + 'static>() -> &'static Values<T> {
    &Values(PhantomData)
}

pub(super) struct Values<T>(PhantomData<fn() -> T>);

impl<T: Clone + Send + Sync + 'static> Values<T> {
    const FORMS: [Form; 2] =
        [Form::of::<Distributed<T, ADAPTS, false>>(SHARED), Form::of::<Distributed<T, ADAPTS, true>>(COPIED)];
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
            COPIED_FORM => Replacement::root(Distributed::<T, ADAPTS, true>::with_copies(Master::vacant_copied()), SIZE),
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
        let clusters = machine().clusters(SIZE);
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
        judge(&seen, size_of::<T>(), size_of::<Local<T, ADAPTS, true>>(), load.transfer_ns)
    }
}

/// What a read costs whatever serves it, and a change beside its stores, in nanoseconds, as measured on one machine. They matter
/// as ratios.
const READ: f64 = 3.0;
const CHANGE: f64 = 150.0;
/// What a transfer of a line within a cluster costs, as a part of one between clusters.
const NEAR: f64 = 0.25;
const LINE_BYTES: usize = 64;
/// About what the object has beside its representatives, and a representative beside its value.
const ROOT_BYTES: usize = 256;
const REP_BYTES: usize = 128;

/// A load: for each cluster that reads, how often each of its processors does in a second; and the changes in a second.
struct Seen {
    readers: Vec<Vec<f64>>,
    changes: f64,
}

fn judge(seen: &Seen, value_bytes: usize, local_bytes: usize, line: f64) -> Vec<Cost> {
    let value_lines = value_bytes.div_ceil(LINE_BYTES).max(1) as f64;
    let reads: f64 = seen.readers.iter().flatten().sum();
    // How often one that reads so often finds a new value.
    let fetches = |reads: f64| reads.min(seen.changes);
    let all: f64 = seen.readers.iter().flatten().map(|reads| fetches(*reads)).sum();
    // Of each cluster the one that comes first fetches from afar: as often as the busiest does, at least.
    let first: f64 =
        seen.readers.iter().map(|cluster| fetches(cluster.iter().copied().fold(0.0, f64::max))).sum();
    let replicas = seen.readers.len().max(1) as f64;
    let fetch = (1.0 + value_lines) * line;
    let common = reads * READ + seen.changes * CHANGE;
    // On one cluster every transfer is near, in either form.
    let far = if seen.readers.len() > 1 { 1.0 } else { NEAR };
    let shared = common + all * fetch * far + seen.changes * 2.0 * line * far;
    // The first of a cluster fetches the master's line, too, and copies.
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

    /// The form that this load should have: readers of each cluster, reads of each and changes in a second.
    fn best(clusters: &[usize], reads: f64, changes: f64, bytes: usize) -> usize {
        let readers = clusters.iter().map(|vps| vec![reads; *vps]).collect();
        let costs = judge(&Seen { readers, changes }, bytes, 128, 60.0);
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
        let costs = judge(&Seen { readers: vec![vec![1e6; 4]; 4], changes: 0.0 }, 64, 128, 60.0);
        assert_eq!(costs[0].ns_per_s, costs[1].ns_per_s);
    }
}
