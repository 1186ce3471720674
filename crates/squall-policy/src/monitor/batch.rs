//! What a reader gets: records, and what they add up to.

use std::collections::HashMap;
use std::io::{self, Write};

use super::kind::Kind;
use super::record::{Object, Record};

/// Records of a batch at most.
pub const BATCH_RECORDS_MAX: usize = 4096;

/// Records gathered at one time, of all threads, in order of time.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    records: Vec<Record>,
    aggregates: Vec<Aggregate>,
    dropped: u64,
}

/// What the records of one kind and object in a batch add up to.
#[derive(Clone, Copy, Debug)]
pub struct Aggregate {
    /// Their kind.
    pub kind: &'static Kind,
    /// Their object.
    pub object: Object,
    /// How many there are.
    pub count: u64,
    /// The sums of the values, which stop at the largest number.
    pub sums: [u64; 2],
    /// The largest of the values.
    pub maxima: [u64; 2],
}

impl Batch {
    /// Sorts the records and adds them up. Of one thread, the order stays as it was.
    pub(super) fn new(mut records: Vec<Record>, dropped: u64) -> Batch {
        records.sort_by_key(Record::at_ns);
        let aggregates = aggregate(&records);
        Batch { records, aggregates, dropped }
    }

    /// The records.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// What they add up to, by kind and object, in order of first appearance.
    pub fn aggregates(&self) -> &[Aggregate] {
        &self.aggregates
    }

    /// Records that could not be written, since their thread's buffer was full, between the last batch and this.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes a line for people for each record, and one if any were dropped.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        for record in &self.records {
            writeln!(out, "{record}")?;
        }
        if self.dropped > 0 {
            writeln!(out, "{} records dropped", self.dropped)?;
        }
        Ok(())
    }

    /// Writes a JSON object on a line of its own for each record, and `{"dropped":N}` if any were.
    ///
    /// # Errors
    /// Those of the writer.
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

    /// Writes a JSON object on a line of its own for each aggregate, with the names of the values followed by `_sum` and
    /// `_max`, and `{"dropped":N}` if any were.
    ///
    /// # Errors
    /// Those of the writer.
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
    fn json_lines_are_whole_and_leave_out_what_has_no_name() {
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
    fn text_has_a_line_for_each_record_and_one_for_what_is_not_there() {
        let text = text(|out| batch().write_text(out));
        assert!(text.lines().nth(1).is_some_and(|line| line.ends_with(": lock.fail -")), "{text}");
        assert!(text.ends_with("7 records dropped\n"), "{text}");
    }
}
