//! Parts of a partitioned map: tables that hold separate groups of keys.
//!
//! - I1. A key is in the table of its home part, and in no other. Its home follows from the data that the
//!   key writes to a hasher. So each borrowed form of the key has the same home.
//! - I2. The hashers of all tables are clones of one. So a position means the same in each table, and an
//!   iteration advances through all of them together.

use squall_parts::__Drops;
use squall_parts::table::{Compute, Computed, Table, position};
use squall_rcu::Guard;
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::cloners::Cloners;
use super::key::{Borrowed, KeyForm};
use super::storage::{Old, Storage};

/// A function from a key, as a number, to its home part.
pub(super) type Home = Arc<dyn Fn(u64) -> usize + Send + Sync>;

/// One part, on cache lines of its own. Its table is made at the first insertion.
#[repr(align(128))]
pub(super) struct Part<K: Send + Sync + 'static, V: Send + Sync + 'static, S>(OnceLock<Table<K, V, S>>);

/// A part, once a representative holds it.
type Link<K, V, S> = OnceLock<Arc<Part<K, V, S>>>;

/// All parts of a map, and the function from key to part.
pub(super) struct Parts<K: Send + Sync + 'static, V: Send + Sync + 'static, S> {
    /// Filled when the representatives that hold the parts are made.
    parts: Box<[Link<K, V, S>]>,
    home: Home,
    hasher: S,
    cloners: Cloners<K, V, S>,
}

impl<K, V, S> Parts<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    /// # Panics
    /// If `count` is zero.
    pub(super) fn new(count: usize, home: Home, hasher: S, cloners: Cloners<K, V, S>) -> Parts<K, V, S> {
        assert!(count > 0, "a partitioned map with zero parts was requested");
        Parts { parts: (0..count).map(|_| OnceLock::new()).collect(), home, hasher, cloners }
    }

    /// Makes parts with clones of a table's entries.
    pub(super) fn of_table(
        count: usize,
        home: Home,
        table: &Table<K, V, S>,
        cloners: Cloners<K, V, S>,
    ) -> Parts<K, V, S> {
        let parts = Parts::new(count, home, (cloners.hasher)(table.hasher()), cloners);
        table.for_each(|key, value| _ = parts.table_of(key).set((cloners.key)(key), (cloners.value)(value)));
        parts
    }

    /// Returns a table with clones of the entries.
    pub(super) fn to_table(&self) -> Table<K, V, S> {
        let table = Table::with_capacity_and_hasher(self.len(), (self.cloners.hasher)(&self.hasher));
        for part in self.tables() {
            part.for_each(|key, value| _ = table.set((self.cloners.key)(key), (self.cloners.value)(value)));
        }
        table
    }

    pub(super) fn count(&self) -> usize {
        self.parts.len()
    }

    /// Returns a part, for the representative that holds it.
    pub(super) fn part(&self, index: usize) -> &Arc<Part<K, V, S>> {
        self.parts[index].get_or_init(|| Arc::new(Part(OnceLock::new())))
    }

    /// Returns the home part of a key (I1).
    fn home(&self, key: &dyn KeyForm<K, S>) -> usize {
        (self.home)(key.number()) % self.parts.len()
    }

    /// Returns the table of the key's home, if it was made.
    fn table_if_made(&self, key: &dyn KeyForm<K, S>) -> Option<&Table<K, V, S>> {
        self.parts[self.home(key)].get()?.0.get()
    }

    /// Returns the table of the key's home, and makes it if needed.
    fn table_of(&self, key: &K) -> &Table<K, V, S> {
        self.table(self.home(&Borrowed(key)))
    }

    /// Returns the table of the entry's home, and makes it if needed.
    fn table_for(&self, entry: &Option<(K, V)>) -> &Table<K, V, S> {
        let Some((key, _)) = entry else { unreachable!("an insertion without an entry") };
        self.table_of(key)
    }

    fn table(&self, index: usize) -> &Table<K, V, S> {
        self.part(index).0.get_or_init(|| Table::with_hasher((self.cloners.hasher)(&self.hasher)))
    }

    fn tables(&self) -> impl Iterator<Item = &Table<K, V, S>> {
        self.parts.iter().filter_map(|part| part.get()?.0.get())
    }

    /// Returns the end of the step from this position: the first end of a bucket in any of the tables.
    fn step_end(&self, from: u64) -> Option<u64> {
        let ends = self.tables().map(|table| table.visit_from(from, |_, _| {}));
        ends.min_by_key(|end| end.unwrap_or(u64::MAX)).flatten()
    }

    /// Returns a test of whether a key lies before this position.
    fn is_before(&self, next: Option<u64>) -> impl Fn(&K) -> bool {
        move |key| next.is_none_or(|next| position(&self.hasher, key) < next)
    }
}

impl<K, V, S> Storage<K, V, S> for Parts<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync,
{
    fn read(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&V)) -> bool {
        self.table_if_made(key).is_some_and(|table| Storage::read(table, guard, key, f))
    }

    fn find_key(&self, guard: &Guard, key: &dyn KeyForm<K, S>, f: &mut dyn FnMut(&K)) -> bool {
        self.table_if_made(key).is_some_and(|table| Storage::find_key(table, guard, key, f))
    }

    fn put(&self, guard: &Guard, entry: &mut Option<(K, V)>, old: &mut Old<V>) -> bool {
        Storage::put(self.table_for(entry), guard, entry, old)
    }

    fn try_insert(&self, guard: &Guard, entry: &mut Option<(K, V)>, present: &mut Old<V>) -> bool {
        Storage::try_insert(self.table_for(entry), guard, entry, present)
    }

    fn take(&self, guard: &Guard, key: &dyn KeyForm<K, S>, old: &mut Old<V>) -> bool {
        self.table_if_made(key).is_some_and(|table| Storage::take(table, guard, key, old))
    }

    fn change(
        &self,
        guard: &Guard,
        key: &dyn KeyForm<K, S>,
        f: &mut dyn FnMut(&V) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        let table = self.table_if_made(key);
        table.map_or(Computed::Kept, |table| Storage::change(table, guard, key, f, drops))
    }

    fn compute(
        &self,
        guard: &Guard,
        key: &mut Option<K>,
        f: &mut dyn FnMut(Option<&V>) -> Compute<V>,
        drops: &mut __Drops,
    ) -> Computed {
        let Some(wanted) = key else { unreachable!("a computation without a key") };
        Storage::compute(self.table_of(wanted), guard, key, f, drops)
    }

    fn visit_from(&self, from: u64, f: &mut dyn FnMut(&K, &V)) -> Option<u64> {
        let next = self.step_end(from);
        let is_in_step = self.is_before(next);
        for table in self.tables() {
            let visit = |at| {
                table.visit_from(at, |key, value| {
                    if is_in_step(key) {
                        f(key, value);
                    }
                })
            };
            walk(from, next, visit);
        }
        next
    }

    fn retain_from(&self, from: u64, f: &mut dyn FnMut(&K, &V) -> bool) -> Option<u64> {
        let next = self.step_end(from);
        let is_in_step = self.is_before(next);
        for table in self.tables() {
            let retain = |at| table.retain_from(at, |key, value| !is_in_step(key) || f(key, value));
            walk(from, next, retain);
        }
        next
    }

    fn len(&self) -> usize {
        self.tables().map(Table::len).sum()
    }

    fn capacity(&self) -> usize {
        self.tables().map(Table::capacity).sum()
    }

    /// Reserves the same room in each part.
    fn try_reserve(&self, more: usize) -> bool {
        let each = more.div_ceil(self.count());
        (0..self.count()).all(|index| self.table(index).try_reserve(each))
    }

    fn shrink_to_fit(&self) {
        self.tables().for_each(Table::shrink_to_fit);
    }
}

/// Steps through one table from a position at least to another.
fn walk(from: u64, to: Option<u64>, mut step: impl FnMut(u64) -> Option<u64>) {
    let mut at = Some(from);
    while let Some(from) = at.filter(|at| to.is_none_or(|to| *at < to)) {
        at = step(from);
    }
}

/// Returns a key as a number: the key itself if it writes one integer to a hasher, otherwise a mix of all
/// data it writes.
#[inline]
pub(super) fn number<Q: Hash + ?Sized>(key: &Q) -> u64 {
    let mut number = Number { value: 0, written: false };
    key.hash(&mut number);
    number.value
}

struct Number {
    value: u64,
    written: bool,
}

impl Number {
    fn mix(&mut self, more: u64) {
        let product = (self.value.rotate_left(23) ^ more).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.value = product ^ product >> 32;
        self.written = true;
    }
}

impl Hasher for Number {
    fn finish(&self) -> u64 {
        self.value
    }

    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.mix(u64::from_le_bytes(*word)));
        let rest = rest.iter().fold(rest.len() as u64, |number, byte| number << 8 | u64::from(*byte));
        self.mix(rest);
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        if self.written {
            self.mix(number);
        } else {
            (self.value, self.written) = (number, true);
        }
    }

    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        if number >> 64 != 0 {
            self.mix((number >> 64) as u64);
        }
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static, S> fmt::Debug for Part<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Part").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map::typed::Typed;
    use std::collections::BTreeSet;
    use std::hash::RandomState;

    fn parts(count: usize, shift: u32) -> Parts<u64, u64, RandomState> {
        let home = Arc::new(move |page: u64| (page >> shift) as usize % count);
        Parts::new(count, home, RandomState::new(), Cloners::new())
    }

    #[test]
    fn co_64_a_key_is_in_the_table_of_its_home_and_in_no_other() {
        let parts = parts(4, 3);
        (0..1000).for_each(|page| _ = parts.set(page, page));
        assert_eq!((parts.len(), parts.tables().count()), (1000, 4));
        for (index, table) in parts.tables().enumerate() {
            let mut pages = Vec::new();
            table.for_each(|page, _| pages.push(*page));
            assert!(pages.iter().all(|page| (page >> 3) % 4 == index as u64), "{index}: {pages:?}");
        }
        assert!((0..1000).all(|page| parts.table_if_made(&Borrowed(&page)).unwrap().contains_key(&page)));
    }

    #[test]
    fn co_64_an_empty_part_has_no_table() {
        let parts = parts(8, 0);
        assert_eq!((parts.len(), parts.capacity(), parts.delete(&5), parts.step_end(0)), (0, 0, false, None));
        parts.set(5, 1);
        assert_eq!((parts.tables().count(), parts.remove(&5), parts.remove(&6)), (1, Some(1), None));
    }

    #[test]
    fn an_iteration_visits_each_entry_once_in_parts_of_different_sizes() {
        // Each part has the keys of one power of two, so the parts differ in size.
        let parts = Parts::<u64, u64, _>::new(
            12,
            Arc::new(|page: u64| page.ilog2() as usize),
            RandomState::new(),
            Cloners::new(),
        );
        (1..4096).for_each(|page| _ = parts.set(page, page));
        let (mut seen, mut at, mut last) = (BTreeSet::new(), Some(0), 0);
        while let Some(from) = at {
            assert!(from == 0 || from > last, "it goes on");
            last = from;
            at = parts.visit_from(from, &mut |page, _| {
                assert!(seen.insert(*page), "{page} was seen twice");
                let place = position(&parts.hasher, page);
                assert!(place >= from, "{page} comes too late");
            });
        }
        assert_eq!(seen.len(), 4095);
        assert!(last > 0, "in several steps");
        let mut asked = BTreeSet::new();
        let mut at = Some(0);
        while let Some(from) = at {
            at = parts.retain_from(from, &mut |page, _| {
                assert!(asked.insert(*page), "of {page} it was asked twice");
                page % 2 == 0
            });
        }
        assert_eq!((asked.len(), parts.len()), (4095, 2047));
    }

    #[test]
    fn an_integer_is_its_own_number_and_borrowed_forms_have_the_same() {
        #[derive(Hash)]
        struct Page(u32);
        assert_eq!((number(&7_u64), number(&-1_i64), number(&Page(9)), number(&3_u8)), (7, u64::MAX, 9, 3));
        assert_eq!(number("some key"), number(&String::from("some key")));
        assert_eq!(number(&[1_u8, 2, 3][..]), number(&vec![1_u8, 2, 3]));
        let numbers: BTreeSet<u64> = (0..100_u32).map(|n| number(&n.to_string()) % 16).collect();
        assert_eq!(numbers.len(), 16, "texts are spread");
        assert_ne!(number(&(1_u64, 2_u64)), number(&(2_u64, 1_u64)));
    }
}
