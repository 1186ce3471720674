//! Tests of the removal of one of some entries.

use squall_parts::table::{Sample, Table};
use squall_rcu::pin;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

const MANY: u64 = if cfg!(miri) { 60 } else { 5000 };

/// Chooses the first entry that it sees, and notes its value.
struct First {
    seen: Option<u64>,
    taken: Option<u64>,
    takes: bool,
}

impl<K> Sample<K, u64> for First {
    fn look(&mut self, _: &K, value: &u64) -> bool {
        self.seen = Some(*value);
        false
    }

    fn next(&mut self, next: Option<u64>) -> Option<u64> {
        assert!(self.seen.is_none(), "a sample that has enough is asked for more");
        next
    }

    fn choose(&mut self) -> Option<usize> {
        self.seen.map(|_| 0)
    }

    fn take(&mut self, _: &K, value: &u64) -> bool {
        assert_eq!(Some(*value), self.seen);
        self.taken = Some(*value);
        self.takes
    }
}

fn remove_first<K: Eq + Hash + Send + Sync + 'static>(
    table: &Table<K, u64>,
    from: u64,
    takes: bool,
) -> (bool, Option<u64>) {
    let mut first = First { seen: None, taken: None, takes };
    let is_removed = pin(|guard| table.remove_sampled_in(guard, from, &mut first));
    (is_removed, first.taken)
}

/// Returns numbers that are spread over all positions.
fn spread(n: u64) -> u64 {
    n.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_mul(0xD134_2543_DE82_EF95)
}

#[test]
fn the_chosen_entry_leaves_in_each_layout() {
    fn check<K: Clone + Eq + Hash + Send + Sync + 'static>(key: impl Fn(u64) -> K) {
        let table: Table<K, u64> = (0..MANY).map(|n| (key(n), n)).collect();
        for n in 0..MANY / 2 {
            let (is_removed, taken) = remove_first(&table, spread(n), true);
            // The last homes may be empty by then.
            let Some(value) = taken else { continue };
            assert!(is_removed && !table.contains_key(&key(value)));
        }
        let len = table.len();
        assert!(len < MANY as usize);
        assert!(!remove_first(&table, 0, false).0);
        assert_eq!(table.len(), len);
    }
    check(|n| n);
    check(|n| n.to_string());
    check(|n| vec![n]);
}

#[test]
fn an_empty_table_has_no_entry_to_choose() {
    let table: Table<u64, u64> = Table::new();
    assert_eq!(remove_first(&table, 0, true), (false, None));
}

#[test]
fn each_entry_of_a_home_can_be_shown_first() {
    let table: Table<u64, u64> = (0..MANY).map(|n| (n, n)).collect();
    let mut shown = HashSet::new();
    for n in 0..MANY * 50 {
        let mut first = First { seen: None, taken: None, takes: false };
        pin(|guard| table.remove_sampled_in(guard, spread(n), &mut first));
        shown.extend(first.seen);
    }
    assert!(shown.len() as u64 > MANY * 9 / 10, "{} of {MANY} entries", shown.len());
}

#[test]
fn an_entry_is_removed_once_while_writers_resize_the_table() {
    let table: Table<u64, u64> = Table::new();
    let (came, left) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for worker in 0..2 {
            let (table, came) = (&table, &came);
            scope.spawn(move || {
                for n in 0..MANY {
                    table.set(n * 2 + worker, n);
                    came.fetch_add(1, Relaxed);
                }
            });
        }
        scope.spawn(|| {
            for n in 0..MANY {
                let (is_removed, _) = remove_first(&table, spread(n), true);
                left.fetch_add(u64::from(is_removed), Relaxed);
            }
        });
    });
    assert_eq!(table.len() as u64, came.load(Relaxed) - left.load(Relaxed));
}
