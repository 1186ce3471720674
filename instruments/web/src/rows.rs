//! Rows: one object each, encoded as JSON, and the rows that changed since an earlier poll.
//!
//! Problem: pages ask at different times, and each must get exactly the changes that it does not have. Idea:
//! each poll with a change has a number, which a page gives back at its next request.
//!
//! - I1. A page that applies each update has the rows of the latest poll.
//! - I2. A number that the rows do not know any more is answered with all rows.
//!
//! Cost: the rows of one poll, and 4,096 ids of gone objects.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use squall_browse::protocol::{MediatorView, ObjectView};

/// Miss counts wrap at this value.
const MISSES_END: u64 = 1 << 32;
/// Time by which a poll may be late: a rate of misses covers at most three intervals and this time.
const LATE_MAX: Duration = Duration::from_secs(2);
/// Time for which a count of calls is shown.
const COUNT_LASTS: Duration = Duration::from_secs(15);
/// Number of gone objects remembered. A page that missed older ones gets all rows.
const GONE_MAX: usize = 4096;

/// One object, as the page and scripts get it. The age is left out, because it changes at each poll.
#[derive(Serialize)]
struct Fields<'a> {
    id: &'a str,
    name: Option<&'a str>,
    interface: &'a str,
    class: &'a str,
    family: Option<&'a str>,
    form: Option<&'a str>,
    state: &'a str,
    reps: usize,
    vps: usize,
    bytes: usize,
    misses: u64,
    /// Absent if there was no miss since the previous poll, or no poll for long.
    misses_per_s: Option<f64>,
    /// Absent if the calls were not counted lately.
    calls_per_s: Option<f64>,
    contended_per_s: Option<f64>,
    swaps: u64,
    frozen: bool,
    dry_run: bool,
    stays: Option<&'a str>,
    last_decision: Option<&'a str>,
    part_of: Option<&'a str>,
    mediator: Option<&'a MediatorView>,
    exported_as: &'a [String],
    callers: usize,
    imported_as: Option<&'a str>,
}

/// One object as JSON.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) json: String,
    /// Number of the poll that found it new or changed.
    changed: u64,
}

/// The changes since a poll, or all rows.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Update {
    /// Number of the latest poll with a change.
    pub(crate) number: u64,
    /// `true` if `rows` are all rows, and `false` if they are those that changed.
    pub(crate) full: bool,
    pub(crate) rows: Vec<Arc<Row>>,
    /// Ids of the objects that are gone.
    pub(crate) gone: Vec<String>,
    pub(crate) all_frozen: bool,
}

/// Rows of the latest poll, with the number of the poll that changed each.
pub(crate) struct Rows {
    /// Rows in the order of their ids as numbers.
    known: BTreeMap<(u64, u64), Arc<Row>>,
    /// Objects that are gone, the latest last, with the number of the poll that missed each.
    gone: VecDeque<(u64, String)>,
    /// Number of the latest poll whose gone objects are forgotten.
    forgotten: u64,
    number: u64,
    /// Miss count of each object at the latest poll.
    misses: HashMap<String, u64>,
    polled: Option<Instant>,
    /// Rate of each object with counted calls, and the time of the count.
    calls_per_s: HashMap<String, (f64, Instant)>,
    all_frozen: bool,
    /// Longest time between two polls for which a rate of misses is shown.
    rate_span_max: Duration,
}

/// Rounds a rate, so that a row does not change for an invisible difference.
fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

/// Returns the slot and the generation of an id.
fn order(id: &str) -> (u64, u64) {
    let (slot, generation) = id.split_once('.').unwrap_or((id, ""));
    (slot.parse().unwrap_or(u64::MAX), generation.parse().unwrap_or(0))
}

impl Rows {
    /// Creates the rows before the first poll, for polls in this interval.
    pub(crate) fn new(interval: Duration) -> Rows {
        Rows {
            known: BTreeMap::new(),
            gone: VecDeque::new(),
            forgotten: 0,
            number: 0,
            misses: HashMap::new(),
            polled: None,
            calls_per_s: HashMap::new(),
            all_frozen: false,
            rate_span_max: 3 * interval + LATE_MAX,
        }
    }

    /// Returns `true` if there was no poll within this time.
    pub(crate) fn are_older(&self, than: Duration, now: Instant) -> bool {
        self.polled.is_none_or(|then| now.saturating_duration_since(then) >= than)
    }

    /// Takes over all objects of a poll.
    pub(crate) fn compare(&mut self, objects: &[ObjectView], all_frozen: bool, now: Instant) {
        let span = self.polled.map(|then| now.saturating_duration_since(then));
        // After a long pause the misses say nothing about the present rate.
        let seconds = span.filter(|span| *span <= self.rate_span_max).map_or(0.0, |span| span.as_secs_f64());
        self.calls_per_s.retain(|_, (_, at)| now.saturating_duration_since(*at) <= COUNT_LASTS);
        let number = self.number + 1;
        let mut is_changed = all_frozen != self.all_frozen;
        let mut before = std::mem::take(&mut self.known);
        for object in objects {
            let json = self.encode(object, seconds);
            let key = order(&object.id);
            let same = before.remove(&key).filter(|row| row.json == json);
            is_changed |= same.is_none();
            let row = same.unwrap_or_else(|| Arc::new(Row { id: object.id.clone(), json, changed: number }));
            self.known.insert(key, row);
        }
        is_changed |= !before.is_empty();
        self.gone.extend(before.into_values().map(|row| (number, row.id.clone())));
        while self.gone.len() > GONE_MAX {
            self.forgotten = self.gone.pop_front().map_or(0, |(number, _)| number);
        }
        self.misses = objects.iter().map(|object| (object.id.clone(), object.misses)).collect();
        self.polled = Some(now);
        self.all_frozen = all_frozen;
        if is_changed {
            self.number = number;
        }
    }

    /// Returns the changes after the poll with this number, or all rows if these changes are not known.
    pub(crate) fn since(&self, number: u64) -> Update {
        let full = number == 0 || number < self.forgotten || number > self.number;
        let is_new = |row: &&Arc<Row>| full || row.changed > number;
        let gone = self.gone.iter().rev().take_while(|(at, _)| !full && *at > number);
        Update {
            number: self.number,
            full,
            rows: self.known.values().filter(is_new).cloned().collect(),
            gone: gone.map(|(_, id)| id.clone()).collect(),
            all_frozen: self.all_frozen,
        }
    }

    /// Sets the calls per second of an object, as they were counted.
    pub(crate) fn counted(&mut self, id: &str, calls_per_s: f64, now: Instant) {
        self.calls_per_s.insert(id.to_owned(), (rounded(calls_per_s), now));
    }

    fn encode(&self, object: &ObjectView, seconds: f64) -> String {
        let before = self.misses.get(&object.id).filter(|_| seconds > 0.0);
        let more = before.map_or(0, |before| (object.misses + MISSES_END - before) % MISSES_END);
        let row = Fields {
            id: &object.id,
            name: object.name.as_deref(),
            interface: &object.interface,
            class: &object.class,
            family: object.family.as_deref(),
            form: object.form.as_deref(),
            state: &object.state,
            reps: object.reps,
            vps: object.vps,
            bytes: object.bytes,
            misses: object.misses,
            misses_per_s: (more > 0).then(|| rounded(more as f64 / seconds)),
            calls_per_s: self.calls_per_s.get(&object.id).map(|(rate, _)| *rate),
            contended_per_s: object.contended_per_s.map(rounded),
            swaps: object.swaps,
            frozen: object.frozen,
            dry_run: object.dry_run,
            stays: object.stays.as_deref(),
            last_decision: object.last_decision.as_deref(),
            part_of: object.part_of.as_deref(),
            mediator: object.mediator.as_ref(),
            exported_as: &object.exported_as,
            callers: object.callers,
            imported_as: object.imported_as.as_deref(),
        };
        // Cannot fail: it holds only texts, numbers and booleans.
        serde_json::to_string(&row).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(id: &str, misses: u64) -> ObjectView {
        let mut object = ObjectView::default();
        (object.id, object.misses) = (id.to_owned(), misses);
        object
    }

    fn ids(update: &Update) -> Vec<&str> {
        update.rows.iter().map(|row| &*row.id).collect()
    }

    #[test]
    fn only_changed_rows_are_sent() {
        let mut rows = Rows::new(Duration::from_secs(1));
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut both = [object("1.0", u64::from(u32::MAX)), object("2.0", 7)];
        rows.compare(&both, false, start);
        let first = rows.since(0);
        assert!(first.full && ids(&first) == ["1.0", "2.0"] && first.gone.is_empty(), "{first:?}");
        both[1].age_ms = 9;
        rows.compare(&both, false, later(1));
        let none = rows.since(first.number);
        assert!(!none.full && none.rows.is_empty() && none.number == first.number, "all objects grow old");
        // The count of the first object has wrapped.
        rows.compare(&[object("1.0", 9), both[1].clone()], false, later(3));
        let second = rows.since(first.number);
        assert_eq!(ids(&second), ["1.0"]);
        assert!(second.rows[0].json.contains(r#""misses_per_s":5.0"#), "{second:?}");
        rows.compare(&both[1..], false, later(4));
        let third = rows.since(second.number);
        assert_eq!((third.rows.len(), third.gone), (0, vec!["1.0".to_owned()]));
        let both_changes = rows.since(first.number);
        assert_eq!((both_changes.rows.len(), both_changes.gone.len()), (0, 1), "a page that missed a poll");
        rows.counted("2.0", 12.34, later(5));
        rows.compare(&both[1..], true, later(5));
        let fourth = rows.since(third.number);
        assert!(fourth.rows[0].json.contains(r#""calls_per_s":12.3"#) && fourth.all_frozen, "{fourth:?}");
        rows.compare(&both[1..], false, later(6));
        let fifth = rows.since(fourth.number);
        assert!(fifth.rows.is_empty() && fifth.number > fourth.number && !fifth.all_frozen, "{fifth:?}");
        assert!(rows.since(fifth.number + 1).full, "the number of another server");
    }

    #[test]
    fn all_rows_are_in_the_order_of_their_numbers() {
        let mut rows = Rows::new(Duration::from_secs(1));
        rows.compare(&[object("2.1", 0), object("10.1", 0), object("10.0", 0)], false, Instant::now());
        assert_eq!(ids(&rows.since(0)), ["2.1", "10.0", "10.1"]);
    }

    #[test]
    fn rates_end_when_they_are_not_known_any_more() {
        let mut rows = Rows::new(COUNT_LASTS);
        let start = Instant::now();
        rows.counted("1.0", 5.0, start);
        rows.compare(&[object("1.0", 0)], false, start);
        rows.compare(&[object("1.0", 100)], false, start + COUNT_LASTS);
        let json = rows.since(0).rows[0].json.clone();
        assert!(json.contains(r#""calls_per_s":5.0"#) && json.contains(r#""misses_per_s":6.7"#), "{json}");
        let pause = COUNT_LASTS + 3 * COUNT_LASTS + LATE_MAX + Duration::from_millis(1);
        rows.compare(&[object("1.0", 900)], false, start + pause);
        let json = rows.since(0).rows[0].json.clone();
        assert!(json.contains(r#""calls_per_s":null"#) && json.contains(r#""misses_per_s":null"#), "{json}");
    }

    #[test]
    fn a_page_that_missed_too_many_ends_gets_all_rows() {
        let mut rows = Rows::new(COUNT_LASTS);
        let many: Vec<_> = (0..=GONE_MAX).map(|slot| object(&format!("{slot}.1"), 0)).collect();
        rows.compare(&many, false, Instant::now());
        let first = rows.since(0);
        rows.compare(&[], false, Instant::now());
        let second = rows.since(first.number);
        assert!(second.full && second.rows.is_empty() && second.gone.is_empty(), "{}", second.gone.len());
        rows.compare(&many[..1], false, Instant::now());
        assert_eq!(ids(&rows.since(second.number)), ["0.1"]);
    }
}
