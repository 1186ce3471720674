//! Removal of one of some entries, for bounded caches.

use crate::table::hash_table::{Table, either};
use squall_rcu::Guard;
use std::hash::{BuildHasher, Hash};

/// The choice of an entry to remove: see [`Table::remove_sampled_in`]. Its methods run in the operation,
/// without a lock. They must not use the table.
pub trait Sample<K, V> {
    /// Looks at an entry. Returns whether to show more.
    fn look(&mut self, key: &K, value: &V) -> bool;

    /// Returns the position to go on at, after all entries of a home. `next` is that of the next home, unless
    /// that was the last one. No position ends the sample.
    fn next(&mut self, next: Option<u64>) -> Option<u64>;

    /// Returns the index of the chosen entry, in the order in which they were shown.
    fn choose(&mut self) -> Option<usize>;

    /// Returns whether to remove the chosen entry.
    fn take(&mut self, key: &K, value: &V) -> bool;
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Table<K, V, S> {
    /// Shows entries to `sample`, home by home from a position on, and removes the one that it chooses, if
    /// that is unchanged. Returns whether it did. The positions are those of
    /// [`visit_from`](Table::visit_from). While the table is resized, entries of a home may not be shown.
    ///
    /// ```
    /// use squall::parts::table::{Sample, Table};
    /// use squall::rcu::pin;
    ///
    /// /// Chooses the entry with the smallest value, of those in one home at least.
    /// #[derive(Default)]
    /// struct Least {
    ///     shown: usize,
    ///     least: Option<(u64, usize)>,
    /// }
    ///
    /// impl Sample<u64, u64> for Least {
    ///     fn look(&mut self, _: &u64, value: &u64) -> bool {
    ///         let this = (*value, self.shown);
    ///         self.least = Some(self.least.map_or(this, |least| least.min(this)));
    ///         self.shown += 1;
    ///         true
    ///     }
    ///     fn next(&mut self, next: Option<u64>) -> Option<u64> {
    ///         next.filter(|_| self.shown == 0)
    ///     }
    ///     fn choose(&mut self) -> Option<usize> {
    ///         self.least.map(|(_, index)| index)
    ///     }
    ///     fn take(&mut self, _: &u64, _: &u64) -> bool {
    ///         true
    ///     }
    /// }
    ///
    /// let table: Table<u64, u64> = (0..100).map(|n| (n, n)).collect();
    /// assert!(pin(|guard| table.remove_sampled_in(guard, 0, &mut Least::default())));
    /// assert_eq!(table.len(), 99);
    /// ```
    pub fn remove_sampled_in(&self, _: &Guard, from: u64, sample: &mut dyn Sample<K, V>) -> bool {
        // SAFETY: within the operation.
        either!(self, typed => unsafe { typed.remove_sampled(from, &self.hasher, sample) })
    }
}
