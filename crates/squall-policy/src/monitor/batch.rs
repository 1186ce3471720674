//! Batches: records and their aggregates, as a reader gets them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use squall_sys::trace::{Kind, Role};

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
/// # Ok::<(), monitor::MonitorError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Batch {
    records: Vec<Record>,
    aggregates: Vec<Aggregate>,
    dropped: u64,
}

/// Aggregate of the records of one kind and one object. Records with different [codes](super::Role::Code)
/// have aggregates of their own. For an example see [`Batch`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Aggregate {
    /// Kind of the records.
    pub kind: &'static Kind,
    /// Object of the records.
    pub object: Object,
    /// Number of records.
    pub count: u64,
    /// The values that are codes. All records of the aggregate have them.
    pub codes: [Option<u64>; 2],
    /// Sums of the values that are quantities. They saturate at `u64::MAX`.
    pub sums: [u64; 2],
    /// Largest values of the quantities.
    pub maxima: [u64; 2],
}

/// Records with equal keys share an aggregate.
pub(super) type Key = (u16, Object, [Option<u64>; 2]);

impl Aggregate {
    /// Aggregates one record.
    fn of(record: &Record) -> Aggregate {
        let (kind, values) = (record.kind(), record.values());
        let mut one = Aggregate {
            kind,
            object: record.object(),
            count: 1,
            codes: [None; 2],
            sums: values,
            maxima: values,
        };
        for (index, value) in values.into_iter().enumerate() {
            if let Role::Code(_) = kind.role(index) {
                one.codes[index] = Some(value);
                (one.sums[index], one.maxima[index]) = (0, 0);
            }
        }
        one
    }

    pub(super) fn key(&self) -> Key {
        (self.kind.number(), self.object, self.codes)
    }

    /// Adds an aggregate of equal key.
    pub(super) fn add(&mut self, other: &Aggregate) {
        self.count += other.count;
        for index in 0..2 {
            self.sums[index] = self.sums[index].saturating_add(other.sums[index]);
            self.maxima[index] = self.maxima[index].max(other.maxima[index]);
        }
    }

    /// Returns the name of the code at `index`, or the code itself if it has no name. The result is empty for
    /// a quantity, and for a value that has no name.
    ///
    /// ```
    /// use squall::policy::monitor::{self, Kind, Object};
    ///
    /// static REFILL: Kind = Kind::new("pool.refill", ["from", "items"]).with_codes(0, &["cache", "disk"]);
    /// let reader = monitor::subscribe_without_collector(16)?;
    /// monitor::emit(&REFILL, Object::NONE, [1, 32]);
    /// monitor::collect();
    /// let batch = reader.recv().expect("the subscription is open");
    /// assert_eq!(batch.aggregates()[0].code(0).as_deref(), Some("disk"));
    /// assert_eq!(batch.aggregates()[0].code(1), None);
    /// # Ok::<(), monitor::MonitorError>(())
    /// ```
    pub fn code(&self, index: usize) -> Option<Cow<'static, str>> {
        let code = self.codes[index].filter(|_| !self.kind.value_names()[index].is_empty())?;
        Some(self.kind.code_name(index, code).map_or_else(|| code.to_string().into(), Cow::from))
    }
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
}

fn aggregate(records: &[Record]) -> Vec<Aggregate> {
    let mut places: HashMap<Key, usize> = HashMap::new();
    let mut all: Vec<Aggregate> = Vec::new();
    for record in records {
        let one = Aggregate::of(record);
        match places.entry(one.key()) {
            Entry::Occupied(place) => all[*place.get()].add(&one),
            Entry::Vacant(place) => {
                place.insert(all.len());
                all.push(one);
            }
        }
    }
    all
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
    fn codes_keep_aggregates_apart_and_have_names() {
        static TAKE: Kind = Kind::new("lock.take", ["lock", "waited_ns"]).with_codes(0, &["plain", "biased"]);
        let record = |code, ns| Record::now(&TAKE, Object::number(1), [code, ns]);
        let batch = Batch::new(vec![record(1, 10), record(0, 5), record(1, 20), record(7, 1)], 0);
        let found: Vec<_> = batch.aggregates().iter().map(|one| (one.code(0), one.count, one.sums)).collect();
        let expected = [
            (Some("biased".into()), 2, [0, 30]),
            (Some("plain".into()), 1, [0, 5]),
            (Some("7".into()), 1, [0, 1]),
        ];
        assert_eq!(found, expected);
    }
}
