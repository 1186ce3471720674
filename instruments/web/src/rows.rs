//! Rows: one object each, encoded as JSON, and the rows that changed since the previous poll.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use squall_browse::protocol::ObjectView;

/// Miss counts wrap at this value.
const MISSES_END: u64 = 1 << 32;

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
    /// Absent if there was no miss since the previous poll.
    misses_per_s: Option<f64>,
    /// Absent if the calls were never counted.
    calls_per_s: Option<f64>,
    contended_per_s: Option<f64>,
    swaps: u64,
    frozen: bool,
    dry_run: bool,
    stays: Option<&'a str>,
    last_decision: Option<&'a str>,
}

/// One object as JSON.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) json: String,
}

/// The changes since the previous poll, or all rows.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Update {
    /// `true` if `rows` are all rows, and `false` if they are those that changed.
    pub(crate) full: bool,
    pub(crate) rows: Vec<Arc<Row>>,
    /// Ids of the objects that are gone.
    pub(crate) gone: Vec<String>,
    pub(crate) all_frozen: bool,
}

/// Rows of the latest poll.
#[derive(Default)]
pub(crate) struct Rows {
    known: BTreeMap<String, Arc<Row>>,
    /// Miss count of each object at the latest poll.
    misses: HashMap<String, u64>,
    polled: Option<Instant>,
    calls_per_s: HashMap<String, f64>,
    all_frozen: bool,
}

/// Rounds a rate, so that a row does not change for an invisible difference.
fn rounded(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

impl Rows {
    /// Takes over all objects of a poll. Returns the changes, if there are any.
    pub(crate) fn compare(
        &mut self,
        objects: &[ObjectView],
        all_frozen: bool,
        now: Instant,
    ) -> Option<Update> {
        let seconds = self.polled.map_or(0.0, |then| now.saturating_duration_since(then).as_secs_f64());
        let mut update = Update { all_frozen, ..Update::default() };
        let mut before = std::mem::take(&mut self.known);
        for object in objects {
            let json = self.encode(object, seconds);
            let same = before.remove(&object.id).filter(|row| row.json == json);
            let row = same.unwrap_or_else(|| {
                let row = Arc::new(Row { id: object.id.clone(), json });
                update.rows.push(Arc::clone(&row));
                row
            });
            self.known.insert(object.id.clone(), row);
        }
        self.misses = objects.iter().map(|object| (object.id.clone(), object.misses)).collect();
        self.calls_per_s.retain(|id, _| self.known.contains_key(id));
        self.polled = Some(now);
        update.gone = before.into_keys().collect();
        let changed = !update.rows.is_empty() || !update.gone.is_empty() || all_frozen != self.all_frozen;
        self.all_frozen = all_frozen;
        changed.then_some(update)
    }

    /// Returns all rows of the latest poll.
    pub(crate) fn full(&self) -> Update {
        let rows = self.known.values().cloned().collect();
        Update { full: true, rows, gone: Vec::new(), all_frozen: self.all_frozen }
    }

    /// Sets the calls per second of an object, as they were counted.
    pub(crate) fn counted(&mut self, id: &str, calls_per_s: f64) {
        self.calls_per_s.insert(id.to_owned(), rounded(calls_per_s));
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
            calls_per_s: self.calls_per_s.get(&object.id).copied(),
            contended_per_s: object.contended_per_s.map(rounded),
            swaps: object.swaps,
            frozen: object.frozen,
            dry_run: object.dry_run,
            stays: object.stays.as_deref(),
            last_decision: object.last_decision.as_deref(),
        };
        // Cannot fail: it holds only texts, numbers and booleans.
        serde_json::to_string(&row).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn object(id: &str, misses: u64) -> ObjectView {
        let mut object = ObjectView::default();
        (object.id, object.misses) = (id.to_owned(), misses);
        object
    }

    #[test]
    fn only_changed_rows_are_sent() {
        let mut rows = Rows::default();
        let start = Instant::now();
        let later = |seconds| start + Duration::from_secs(seconds);
        let both = [object("1.0", u64::from(u32::MAX)), object("2.0", 7)];
        let first = rows.compare(&both, false, start).expect("both are new");
        assert_eq!((first.rows.len(), first.gone.len()), (2, 0));
        let mut older = both.clone();
        older[1].age_ms = 9;
        assert_eq!(rows.compare(&older, false, later(1)), None, "all objects grow old");
        // The count of the first object has wrapped.
        let second = rows.compare(&[object("1.0", 9), both[1].clone()], false, later(3)).expect("one missed");
        assert_eq!(second.rows.len(), 1);
        assert!(second.rows[0].id == "1.0", "{second:?}");
        assert!(second.rows[0].json.contains(r#""misses_per_s":5.0"#), "{second:?}");
        let third = rows.compare(&both[1..], false, later(4)).expect("one is gone");
        assert_eq!((third.rows.len(), third.gone), (0, vec!["1.0".to_owned()]));
        rows.counted("2.0", 12.34);
        let fourth = rows.compare(&both[1..], true, later(5)).expect("its calls were counted");
        assert!(fourth.rows[0].json.contains(r#""calls_per_s":12.3"#) && fourth.all_frozen, "{fourth:?}");
        assert!(rows.compare(&both[1..], false, later(6)).is_some_and(|update| update.rows.is_empty()));
        assert_eq!(rows.full().rows.len(), 1);
    }
}
