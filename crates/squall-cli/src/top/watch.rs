//! Polls the objects and computes rates between two polls.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

use serde::Serialize;
use squall::browse::protocol::{ListQuery, Listing, ObjectView};
use squall::browse::{Client, ClientError};

use super::args::Key;

/// Miss counts wrap at this value.
const MISSES_END: u64 = 1 << 32;

/// An object with its rates.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) object: ObjectView,
    /// Misses per second since the previous poll; absent at the first.
    pub(super) misses_per_s: Option<f64>,
    /// Calls per second when they were last counted; absent if they never were.
    pub(super) calls_per_s: Option<f64>,
}

/// The result of one poll.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) rows: Vec<Row>,
    pub(super) total: usize,
    pub(super) all_frozen: bool,
}

/// Polls the objects and remembers the previous poll.
pub(super) struct Watch {
    limit: usize,
    interface: Option<String>,
    name: Option<String>,
    /// Time and miss counts of the previous poll.
    before: Option<(Instant, BTreeMap<String, u64>)>,
    calls: BTreeMap<String, f64>,
    /// Objects in turn for counting their calls, longest wait first.
    turns: VecDeque<String>,
}

impl Watch {
    pub(super) fn new(limit: usize, interface: Option<String>, name: Option<String>) -> Watch {
        Watch { limit, interface, name, before: None, calls: BTreeMap::new(), turns: VecDeque::new() }
    }

    /// Polls the objects and compares them with the previous poll.
    pub(super) fn look(&mut self, client: &mut Client, key: Key) -> Result<Look, ClientError> {
        let (interface, name) = (self.interface.clone(), self.name.clone());
        let query = ListQuery { sort: key.asked(), limit: Some(self.limit), interface, name, after: None };
        let listing = client.list(&query)?;
        Ok(self.compare(listing, Instant::now(), key))
    }

    fn compare(&mut self, listing: Listing, now: Instant, key: Key) -> Look {
        let rate = |object: &ObjectView| {
            let (then, misses) = self.before.as_ref()?;
            let seconds = now.checked_duration_since(*then)?.as_secs_f64();
            let more = (object.misses + MISSES_END - misses.get(&object.id)?) % MISSES_END;
            (seconds > 0.0).then(|| more as f64 / seconds)
        };
        let calls = std::mem::take(&mut self.calls);
        let row = |object: ObjectView| Row {
            misses_per_s: rate(&object),
            calls_per_s: calls.get(&object.id).copied(),
            object,
        };
        let mut rows: Vec<Row> = listing.objects.into_iter().map(row).collect();
        // Objects that are gone are forgotten.
        let known = |row: &Row| Some((row.object.id.clone(), row.calls_per_s?));
        self.calls = rows.iter().filter_map(known).collect();
        let misses = rows.iter().map(|row| (row.object.id.clone(), row.object.misses)).collect();
        self.before = Some((now, misses));
        order(&mut rows, key);
        Look { rows, total: listing.total, all_frozen: listing.all_frozen }
    }

    /// Counts the calls of up to `objects_max` of these objects, each for `span_ms` milliseconds. The next
    /// call continues with other objects.
    pub(super) fn count(
        &mut self,
        client: &mut Client,
        rows: &mut [Row],
        span_ms: u64,
        objects_max: usize,
    ) -> Result<(), ClientError> {
        let there: Vec<&String> = rows.iter().map(|row| &row.object.id).collect();
        self.turns.retain(|id| there.contains(&id));
        let new = there.into_iter().filter(|id| !self.turns.contains(id)).cloned().collect::<Vec<_>>();
        // Objects whose calls were never counted go first.
        new.into_iter().rev().for_each(|id| self.turns.push_front(id));
        for _ in 0..objects_max.min(self.turns.len()) {
            let Some(id) = self.turns.pop_front() else { break };
            match client.sample(&id, span_ms) {
                Ok(calls) => drop(self.calls.insert(id.clone(), calls.per_s())),
                // The object is gone, is being swapped, or has another arbiter.
                Err(error) if error.is_refusal() => {}
                Err(error) => return Err(error),
            }
            self.turns.push_back(id);
        }
        for row in rows {
            row.calls_per_s = self.calls.get(&row.object.id).copied();
        }
        Ok(())
    }
}

/// Sorts rows: ids ascending, all other keys descending, rows without a measurement last. Equal rows are
/// sorted by id.
pub(super) fn order(rows: &mut [Row], key: Key) {
    let amount = |row: &Row| match key {
        Key::Calls => row.calls_per_s,
        Key::Contention => row.object.contended_per_s,
        Key::Memory => Some(row.object.bytes as f64),
        Key::Misses => row.misses_per_s.or(Some(row.object.misses as f64)),
        Key::Swaps => Some(row.object.swaps as f64),
        Key::Reps => Some(row.object.reps as f64),
        Key::Id => None,
    };
    let number = |row: &Row| {
        let (slot, generation) = row.object.id.split_once('.').unwrap_or((&row.object.id, ""));
        (slot.parse::<u32>().unwrap_or(u32::MAX), generation.parse::<u32>().unwrap_or(u32::MAX))
    };
    rows.sort_by(|one, other| {
        let by_amount = match (amount(one), amount(other)) {
            (Some(one), Some(other)) => other.total_cmp(&one),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        };
        by_amount.then_with(|| number(one).cmp(&number(other)))
    });
}

#[cfg(test)]
pub(super) fn object(id: &str, bytes: usize, misses: u64) -> ObjectView {
    let mut object = ObjectView::default();
    (object.id, object.bytes, object.misses) = (id.to_owned(), bytes, misses);
    object
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn listing(objects: &[ObjectView]) -> Listing {
        let text = serde_json::json!({ "total": objects.len(), "all_frozen": false, "objects": objects });
        serde_json::from_value(text).expect("a listing")
    }

    fn ids(look: &Look) -> Vec<&str> {
        look.rows.iter().map(|row| row.object.id.as_str()).collect()
    }

    #[test]
    fn rates_cover_the_time_between_two_polls() {
        let mut watch = Watch::new(10, None, None);
        let start = Instant::now();
        let first = watch.compare(listing(&[object("1.0", 1, u64::from(u32::MAX))]), start, Key::Id);
        assert_eq!(first.rows[0].misses_per_s, None);
        let later = start + Duration::from_secs(2);
        // The count has wrapped, and a second object has appeared.
        let second = watch.compare(listing(&[object("1.0", 1, 9), object("2.0", 1, 4)]), later, Key::Id);
        assert_eq!(second.rows[0].misses_per_s, Some(5.0));
        assert_eq!(second.rows[1].misses_per_s, None);
        let same = watch.compare(listing(&[object("1.0", 1, 9)]), later, Key::Id);
        assert_eq!(same.rows[0].misses_per_s, None, "no time passed between the polls");
    }

    #[test]
    fn counts_of_calls_are_kept_while_the_object_lives() {
        let mut watch = Watch::new(10, None, None);
        watch.calls.insert("1.0".into(), 7.0);
        watch.calls.insert("2.0".into(), 9.0);
        let both = [object("1.0", 1, 0), object("2.0", 1, 0), object("3.0", 1, 0)];
        let look = watch.compare(listing(&both), Instant::now(), Key::Calls);
        assert_eq!(ids(&look), ["2.0", "1.0", "3.0"], "objects whose calls were not counted come last");
        watch.compare(listing(&both[..1]), Instant::now(), Key::Calls);
        let look = watch.compare(listing(&both), Instant::now(), Key::Calls);
        assert_eq!(look.rows.iter().filter(|row| row.calls_per_s.is_some()).count(), 1);
    }

    #[test]
    fn equal_rows_are_sorted_by_id() {
        let mut watch = Watch::new(10, None, None);
        let objects = [object("10.0", 5, 0), object("9.1", 5, 0), object("9.0", 5, 0), object("1.0", 50, 0)];
        let look = watch.compare(listing(&objects), Instant::now(), Key::Memory);
        assert_eq!(ids(&look), ["1.0", "9.0", "9.1", "10.0"]);
    }
}
