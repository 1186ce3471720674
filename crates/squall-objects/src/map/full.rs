//! `Full`: the error of a write beyond the limit of a map.

use squall_core::Id;
use squall_parts::table::Exhausted;
use std::fmt;

/// The error of a write that would exceed a map's limit. The map is unchanged, and the rejected entry comes
/// back.
///
/// ```
/// use squall::objects::map::{self, MapExt, MapLimit};
///
/// let map = map::limited(map::shared::<u64, u64>(), MapLimit::entries(1));
/// map.set(1, 1);
/// let full = map.set_or_full(2, 2).unwrap_err();
/// assert_eq!((full.back, full.unit, full.exhausted.limit), ((2, 2), "entries", 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T> {
    /// The rejected entry.
    pub back: T,
    /// The id of the map.
    pub id: Id,
    /// The limit, the amount in use, and the rejected amount.
    pub exhausted: Exhausted,
    /// The unit of the limit.
    pub unit: &'static str,
}

impl<T> Full<T> {
    /// Replaces the entry that comes back.
    ///
    /// ```
    /// use squall::objects::map::{self, MapExt, MapLimit};
    ///
    /// let map = map::limited(map::shared::<u64, u64>(), MapLimit::entries(0));
    /// let full = map.set_or_full(1, 10).unwrap_err();
    /// assert_eq!(full.map(|(key, _)| key).back, 1);
    /// ```
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Full<U> {
        let Full { back, id, exhausted, unit } = self;
        Full { back: f(back), id, exhausted, unit }
    }
}

impl<T> fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Full({self})")
    }
}

impl<T> fmt::Display for Full<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exhausted { limit, taken, wanted } = self.exhausted;
        let Full { id, unit, .. } = self;
        write!(
            f,
            "map {id} is full: {wanted} more requested, {taken} of {limit} {unit} in use; remove entries or \
             raise the limit"
        )
    }
}

impl<T> std::error::Error for Full<T> {}
