//! A table with a limit of entries.
//!
//! - I1. Each entry has one of the limit: who may be about to put in a new key takes it before, and gives it back if the key was there; who
//!   has taken a key out gives one back after.

use crate::table::entry::{Compute, Computed};
use crate::table::limit::{Budget, Exhausted, Part};
use crate::table::table::Table;
use squall_rcu::op;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};

/// A [`Table`] that has at most so many entries: a new key beyond them is refused, with an error that says so.
///
/// Drawback: each new key and each removal writes to a word that all share. Reads, and changes of keys that are there by
/// [`update`](Limited::update), cost what they cost in the table.
///
/// # Progress
/// As the table. Never more entries than the limit, nor keys that are counted and not there once nobody changes anything: as long as `Eq` and
/// `Hash` of the keys do not panic. Where one does, the table may have done what it was asked, and the count is that much off for good. A key may be refused
/// while others are about to find that they do not need what they took: that is, while there are fewer entries than the limit, by
/// no more than there are changes under way.
///
/// ```
/// use crate::table::Limited;
/// let sessions: Limited<u64, &str> = Limited::new(2);
/// assert_eq!(sessions.set(1, "one"), Ok(false));
/// assert_eq!(sessions.set(2, "two"), Ok(false));
/// let full = sessions.set(3, "three").unwrap_err();
/// assert_eq!(full.to_string(), "the table is full: 1 more than 2 is over the limit of 2");
/// assert_eq!(full.back, (3, "three"));
/// assert_eq!(sessions.set(2, "other"), Ok(true), "it is there");
/// assert!(sessions.discard(&1) && sessions.set(3, "three").is_ok());
/// ```
pub struct Limited<K: Send + Sync + 'static, V: Send + Sync + 'static, S = RandomState> {
    table: Table<K, V, S>,
    budget: Budget,
}

/// A new key was refused, since the table has as many as it may have. What was to be put in comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T> {
    /// What was to be put in.
    pub back: T,
    /// The limit.
    pub exhausted: Exhausted,
}

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Full").field("exhausted", &self.exhausted).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the table is full: {}", self.exhausted)
    }
}

impl<T> std::error::Error for Full<T> {}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static> Limited<K, V> {
    /// An empty table for so many entries. Its hasher is `std`'s.
    pub fn new(most: u64) -> Limited<K, V> {
        Limited::of(Table::new(), most)
    }
}

impl<K: Eq + Hash + Send + Sync + 'static, V: Send + Sync + 'static, S: BuildHasher> Limited<K, V, S> {
    /// A table with this limit. Where it has more entries already they stay, and no key is added before there are fewer.
    pub fn of(table: Table<K, V, S>, most: u64) -> Limited<K, V, S> {
        let budget = Budget::new(most);
        budget.take_anyway(table.len() as u64);
        Limited { table, budget }
    }

    /// The table, without its limit.
    pub fn into_table(self) -> Table<K, V, S> {
        self.table
    }

    /// The limit, and what is taken of it.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// As [`Table::get`].
    pub fn get<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.table.get(key)
    }

    /// As [`Table::read`].
    pub fn read<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        self.table.read(key, f)
    }

    /// Sets the key's value, and says whether there was another. Where there is no room for a new key the value is cloned, for a key that is
    /// there.
    ///
    /// # Errors
    /// It has none, and there is no room for a new key.
    pub fn set(&self, key: K, value: V) -> Result<bool, Full<(K, V)>>
    where
        V: Clone,
    {
        let mut part = Part::of(&self.budget);
        if let Err(exhausted) = part.take(1) {
            let there = self.table.update(&key, |_| value.clone());
            return if there { Ok(true) } else { Err(Full { back: (key, value), exhausted }) };
        }
        let there = self.table.set(key, value);
        if !there {
            part.keep();
        }
        Ok(there)
    }

    /// Inserts the key unless it is there; says whether it did.
    ///
    /// # Errors
    /// It is not there, and there is no room for it.
    pub fn try_insert(&self, key: K, value: V) -> Result<bool, Full<(K, V)>> {
        let mut part = Part::of(&self.budget);
        if let Err(exhausted) = part.take(1) {
            let there = self.table.contains_key(&key);
            return if there { Ok(false) } else { Err(Full { back: (key, value), exhausted }) };
        }
        let inserted = self.table.try_insert(key, value).is_ok();
        if inserted {
            part.keep();
        }
        Ok(inserted)
    }

    /// As [`Table::update`]: no new key.
    pub fn update<Q: Eq + Hash + ?Sized>(&self, key: &Q, f: impl FnMut(&V) -> V) -> bool
    where
        K: Borrow<Q>,
    {
        self.table.update(key, f)
    }

    /// As [`Table::compute`].
    ///
    /// # Errors
    /// `f` wanted a new key, and there is no room for it.
    pub fn compute(&self, key: K, mut f: impl FnMut(Option<&V>) -> Compute<V>) -> Result<Computed, Full<()>> {
        let (mut part, mut refused) = (Part::of(&self.budget), None);
        let computed = self.table.compute(key, |there| {
            refused = None;
            let wanted = f(there);
            if there.is_some() || !matches!(wanted, Compute::Put(_)) {
                return wanted;
            }
            match part.take(1) {
                Ok(()) => wanted,
                Err(exhausted) => {
                    refused = Some(exhausted);
                    Compute::Keep
                }
            }
        });
        match (computed, refused) {
            (_, Some(exhausted)) => return Err(Full { back: (), exhausted }),
            (Computed::Inserted, _) => part.keep(),
            (Computed::Removed, _) => self.budget.give(1),
            _ => {}
        }
        Ok(computed)
    }

    /// As [`Table::discard`].
    pub fn discard<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.take(key, |_| ()).is_some()
    }

    /// As [`Table::remove`].
    pub fn remove<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        V: Clone,
    {
        self.take(key, V::clone)
    }

    fn take<Q: Eq + Hash + ?Sized, R>(&self, key: &Q, f: impl FnOnce(&V) -> R) -> Option<R>
    where
        K: Borrow<Q>,
    {
        // Given back before `f`, which may panic, and when the key is out.
        let taken = |value: &V| {
            self.budget.give(1);
            f(value)
        };
        op(|op| self.table.take_in(op, key, taken))
    }

    /// As [`Table::retain`].
    pub fn retain(&self, mut f: impl FnMut(&K, &V) -> bool)
    where
        K: Clone,
    {
        let mut from = Some(0);
        let mut keys = Vec::new();
        while let Some(at) = from {
            from = self.table.visit_from(at, |key, _| keys.push(key.clone()));
            for key in keys.drain(..) {
                if self.table.remove_if(&key, |value| !f(&key, value)) {
                    self.budget.give(1);
                }
            }
        }
    }

    /// As [`Table::for_each`].
    pub fn for_each(&self, f: impl FnMut(&K, &V)) {
        self.table.for_each(f);
    }

    /// As [`Table::len`].
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// As [`Table::is_empty`].
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }
}

impl<K, V, S> fmt::Debug for Limited<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limited").field("budget", &self.budget).finish_non_exhaustive()
    }
}
