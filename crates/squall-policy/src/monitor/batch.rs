//! Batches: records and their aggregates, as a reader gets them.

use std::collections::HashMap;
use std::io::{self, Write};

use super::kind::Kind;
use super::record::{Object, Record};

/// Largest number of records in a batch.
pub const BATCH_RECORDS_MAX: usize = 4096;

/// Records of all threads gathered at one time, sorted by time.
///
/// ```
/// use squall::policy::monitor::{self, Kind, Object};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// let reader = monitor::subscribe_without_collector(16)?;
/// monitor::emit(&REFILL, Object::number(7), [32, 0]);
/// monitor::emit(&REFILL, Object::number(7), [10, 0]);
/// monitor::collect();
/// let batch = reader.recv().expect("the subscription is open");
/// let sum = &batch.aggregates()[0];
/// assert_eq!((sum.count, sum.sums[0], sum.maxima[0]), (2, 42, 32));
/// let mut json = Vec::new();
/// batch.write_json_aggregates(&mut json)?;
/// assert!(String::from_utf8(json)?.contains(r#""items_sum":42"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    records: Vec<Record>,
    aggregates: Vec<Aggregate>,
    dropped: u64,
}

/// Aggregate of the records of one kind and one object in a batch. For an example see [`Batch`].
#[derive(Clone, Copy, Debug)]
pub struct Aggregate {
    /// Kind of the records.
    pub kind: &'static Kind,
    /// Object of the records.
    pub object: Object,
    /// Number of records.
    pub count: u64,
    /// Sums of the values. They saturate at `u64::MAX`.
    pub sums: [u64; 2],
    /// Largest values.
    pub maxima: [u64; 2],
}

impl Batch {
    /// Sorts the records by time and aggregates them. The sort is stable, so records of one thread keep their
    /// order.
    pub(super) fn new(mut records: Vec<Record>, dropped: u64) -> Batch {
        records.sort_by_key(Record::at_ns);
        let aggregates = aggregate(&records);
        Batch { records, aggregates, dropped }
    }

    /// Returns the records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the aggregates by kind and object, in order of first appearance.
    pub fn aggregates(&self) -> &[Aggregate] {
        &self.aggregates
    }

    /// Returns the number of records lost between the previous batch and this one, because their thread's
    /// buffer was full.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes one line of text for each record, and one line with the number of lost records if there are
    /// any.
    ///
    /// # Errors
    /// Errors of the writer.
    ///
    /// ```
    /// use squall::policy::monitor::{self, Kind, Object};
    ///
    /// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
    /// let reader = monitor::subscribe_without_collector(16)?;
    /// monitor::emit(&REFILL, Object::number(7), [32, 0]);
    /// monitor::collect();
    /// let mut text = Vec::new();
    /// reader.recv().expect("the subscription is open").write_text(&mut text)?;
    /// assert!(String::from_utf8(text)?.ends_with("pool.refill #7 items=32\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for record in &self.records {
            writeln!(out, "{record}")?;
        }
        if self.dropped > 0 {
            writeln!(out, "{} records dropped", self.dropped)?;
        }
        Ok(())
    }

    /// Writes one JSON object per line for each record, and `{"dropped":N}` if records were lost.
    ///
    /// # Errors
    /// Errors of the writer.
    ///
    /// ```
    /// use squall::policy::monitor::{self, Kind, Object};
    ///
    /// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
    /// let reader = monitor::subscribe_without_collector(16)?;
    /// monitor::emit(&REFILL, Object::number(7), [32, 0]);
    /// monitor::collect();
    /// let mut json = Vec::new();
    /// reader.recv().expect("the subscription is open").write_json(&mut json)?;
    /// assert!(String::from_utf8(json)?.ends_with("\"items\":32}\n"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        for record in &self.records {
            write_head(out, record.kind(), record.object())?;
            write!(out, ",\"at_ns\":{},\"vp\":{}", record.at_ns(), record.vp().index())?;
            write!(out, ",\"thread\":{}", record.thread())?;
            write_values(out, record.kind(), "", record.values())?;
            writeln!(out, "}}")?;
        }
        write_dropped(out, self.dropped)
    }

    /// Writes one JSON object per line for each aggregate, and `{"dropped":N}` if records were lost. The
    /// names of the values are followed by `_sum` and `_max`. For an example see [`Batch`].
    ///
    /// # Errors
    /// Errors of the writer.
    pub fn write_json_aggregates(&self, out: &mut impl Write) -> io::Result<()> {
        for one in &self.aggregates {
            write_head(out, one.kind, one.object)?;
            write!(out, ",\"count\":{}", one.count)?;
            write_values(out, one.kind, "_sum", one.sums)?;
            write_values(out, one.kind, "_max", one.maxima)?;
            writeln!(out, "}}")?;
        }
        write_dropped(out, self.dropped)
    }
}

fn aggregate(records: &[Record]) -> Vec<Aggregate> {
    let mut places = HashMap::new();
    let mut all: Vec<Aggregate> = Vec::new();
    for record in records {
        let place = *places.entry(record.group()).or_insert_with(|| {
            all.push(Aggregate {
                kind: record.kind(),
                object: record.object(),
                count: 0,
                sums: [0; 2],
                maxima: [0; 2],
            });
            all.len() - 1
        });
        let one = &mut all[place];
        one.count += 1;
        for (index, value) in record.values().into_iter().enumerate() {
            one.sums[index] = one.sums[index].saturating_add(value);
            one.maxima[index] = one.maxima[index].max(value);
        }
    }
    all
}

fn write_head(out: &mut impl Write, kind: &Kind, object: Object) -> io::Result<()> {
    // Names need no escapes (see `Kind::new`).
    write!(out, "{{\"kind\":\"{kind}\"")?;
    if object == Object::NONE { Ok(()) } else { write!(out, ",\"object\":\"{object}\"") }
}

fn write_values(out: &mut impl Write, kind: &Kind, suffix: &str, values: [u64; 2]) -> io::Result<()> {
    for (name, value) in kind.value_names().into_iter().zip(values) {
        if !name.is_empty() {
            write!(out, ",\"{name}{suffix}\":{value}")?;
        }
    }
    Ok(())
}

fn write_dropped(out: &mut impl Write, dropped: u64) -> io::Result<()> {
    if dropped == 0 { Ok(()) } else { writeln!(out, "{{\"dropped\":{dropped}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    static WAIT: Kind = Kind::new("lock.wait", ["waited_ns", ""]);
    static FAIL: Kind = Kind::new("lock.fail", ["", ""]);

    fn batch() -> Batch {
        let record =
            |kind: &'static Kind, object, value| Record::now(kind, Object::number(object), [value, 0]);
        let records =
            vec![record(&WAIT, 1, 10), record(&FAIL, 0, 3), record(&WAIT, 1, 30), record(&WAIT, 2, u64::MAX)];
        Batch::new(records, 7)
    }

    fn text(write: impl Fn(&mut Vec<u8>) -> io::Result<()>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("a vector takes all");
        String::from_utf8(out).expect("it is text")
    }

    #[test]
    fn aggregates_are_by_kind_and_object() {
        let batch = batch();
        let found: Vec<_> = batch
            .aggregates()
            .iter()
            .map(|one| (one.kind.name(), one.object, one.count, one.sums[0], one.maxima[0]))
            .collect();
        let wait = "lock.wait";
        let (one, two) = (Object::number(1), Object::number(2));
        let expected = [
            (wait, one, 2, 40, 30),
            ("lock.fail", Object::NONE, 1, 3, 3),
            (wait, two, 1, u64::MAX, u64::MAX),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn json_lines_are_complete_and_omit_unnamed_values() {
        let json = text(|out| batch().write_json(out));
        let lines: Vec<&str> = json.lines().collect();
        assert_eq!(lines.len(), 5);
        assert!(lines[0].starts_with(r##"{"kind":"lock.wait","object":"#1","at_ns":"##), "{}", lines[0]);
        assert!(lines[0].ends_with(r#","waited_ns":10}"#), "{}", lines[0]);
        assert!(lines[1].starts_with(r#"{"kind":"lock.fail","at_ns":"#), "{}", lines[1]);
        assert_eq!(lines[4], r#"{"dropped":7}"#);
        let json = text(|out| batch().write_json_aggregates(out));
        let first = json.lines().next();
        let expected =
            r##"{"kind":"lock.wait","object":"#1","count":2,"waited_ns_sum":40,"waited_ns_max":30}"##;
        assert_eq!(first, Some(expected));
    }

    #[test]
    fn text_has_a_line_for_each_record_and_one_for_lost_records() {
        let text = text(|out| batch().write_text(out));
        assert!(text.lines().nth(1).is_some_and(|line| line.ends_with(": lock.fail -")), "{text}");
        assert!(text.ends_with("7 records dropped\n"), "{text}");
    }
}
