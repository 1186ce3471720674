//! Changes: the rows that differ from those that a client has got already.
//!
//! Problem: a client that polls many objects gets, reads and compares all rows, although few change. Idea:
//! for each connection the server keeps a hash of each row that it sent, and sends a row again when the hash
//! differs.
//!
//! - I1. A scan visits the objects in the order of their ids, in steps. An object that lives during a whole
//!   scan is visited once.
//! - I2. The age of an object does not count as a change.
//!
//! Cost: about 32 bytes for each object and connection that asks for changes. A step looks at no more than
//! [`LOOKED_MAX`] objects, so that other clients are answered between two steps.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use squall_adapt::control;
use squall_core::Id;

use crate::answers::view;
use crate::between::Between;
use crate::protocol::{Changes, OBJECTS_MAX, ObjectView};
use crate::short;

/// Number of objects that are described at once.
const PART: usize = 512;
/// Largest number of objects that one step looks at.
const LOOKED_MAX: usize = 4 * OBJECTS_MAX;

/// The rows that a client has got.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// Hash of each row, and number of the scan that visited it last.
    rows: HashMap<Id, (u64, u64)>,
    /// Number of the scan in progress, or of the next one.
    scan: u64,
    /// Object at which the scan in progress stopped.
    after: Option<Id>,
}

/// Answers the next step of a scan.
pub(crate) fn next(sent: &mut Sent) -> Changes {
    step(sent, LOOKED_MAX, OBJECTS_MAX)
}

fn step(sent: &mut Sent, looked_max: usize, rows_max: usize) -> Changes {
    let mut classes = short::Classes::default();
    let between = Between::now();
    let mut changes = Changes { all_frozen: control::all_frozen(), ..Changes::default() };
    let mut looked = 0;
    while looked < looked_max && changes.objects.len() < rows_max {
        let limit = PART.min(looked_max - looked).min(rows_max - changes.objects.len());
        let objects = squall_core::snapshot_after(sent.after, limit);
        let ids: Vec<Id> = objects.iter().map(|object| object.id).collect();
        let statuses = control::statuses_of(&ids);
        for (object, status) in objects.iter().zip(&statuses) {
            let row = view(object, status.as_ref(), &mut classes, &between);
            let hash = hash(&row);
            let before = sent.rows.insert(object.id, (hash, sent.scan));
            if before.is_none_or(|(before, _)| before != hash) {
                changes.objects.push(row);
            }
        }
        sent.after = ids.last().copied();
        looked += limit;
        if ids.len() < limit {
            changes.complete = true;
            break;
        }
    }
    if changes.complete {
        let this = sent.scan;
        let gone = sent.rows.extract_if(|_, (_, scan)| *scan != this);
        changes.gone = gone.map(|(id, _)| id.to_string()).collect();
        if sent.rows.capacity() > 4 * sent.rows.len() {
            sent.rows.shrink_to_fit();
        }
        (sent.scan, sent.after) = (this + 1, None);
    }
    changes.total = sent.rows.len();
    changes
}

/// Returns a hash of all fields but the age.
fn hash(row: &ObjectView) -> u64 {
    // Without `..`, so that a new field is not forgotten.
    let ObjectView {
        id,
        name,
        interface,
        class,
        family,
        form,
        forms,
        state,
        reps,
        vps,
        bytes,
        age_ms: _,
        misses,
        contended_per_s,
        swaps,
        frozen,
        frozen_all,
        dry_run,
        stays,
        last_decision,
        part_of,
        mediator,
        exported_as,
        callers,
        imported_as,
    } = row;
    let mut hasher = DefaultHasher::new();
    (id, name, interface, class, family, form, forms, state).hash(&mut hasher);
    (reps, vps, bytes, misses, contended_per_s.map(f64::to_bits), swaps).hash(&mut hasher);
    (frozen, frozen_all, dry_run, stays, last_decision, part_of, mediator).hash(&mut hasher);
    (exported_as, callers, imported_as).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_row_is_the_same_row() {
        let row = ObjectView { id: "1.1".into(), contended_per_s: Some(1.5), ..ObjectView::default() };
        assert_eq!(hash(&row), hash(&ObjectView { age_ms: 7, ..row.clone() }));
        assert_ne!(hash(&row), hash(&ObjectView { misses: 7, ..row.clone() }));
        assert_ne!(hash(&row), hash(&ObjectView { contended_per_s: None, ..row.clone() }));
    }

    #[test]
    fn a_step_is_bounded_and_a_scan_without_changes_sends_no_row() {
        let objects: Vec<_> = (0..20).map(|_| crate::answers::tests::plain()).collect();
        let mut sent = Sent::default();
        let mut seen = Vec::new();
        let mut steps = 0;
        loop {
            let changes = step(&mut sent, 7, 5);
            assert!(changes.objects.len() <= 5);
            seen.extend(changes.objects.iter().map(|row| row.id.clone()));
            steps += 1;
            if changes.complete {
                assert!(changes.gone.is_empty() && changes.total >= 20, "{changes:?}");
                break;
            }
        }
        assert!(steps >= 4);
        for object in &objects {
            let id = squall_core::Handle::id(object.handle()).to_string();
            assert_eq!(seen.iter().filter(|seen| **seen == id).count(), 1, "{id}");
        }
        // Other tests of this process may create objects of their own.
        let own = |id: &String| seen.contains(id);
        let again = step(&mut sent, usize::MAX, usize::MAX);
        assert!(again.complete && !again.objects.iter().any(|row| own(&row.id)), "{again:?}");
        drop(objects);
        let last = step(&mut sent, usize::MAX, usize::MAX);
        assert!(last.gone.iter().filter(|id| own(id)).count() >= 20, "{last:?}");
    }
}
