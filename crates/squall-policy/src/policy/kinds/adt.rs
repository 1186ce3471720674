//! Abstract data types.

use crate::policy::Policy;

/// An abstract data type: each call is run by its caller, and nothing is synchronised. What an object is without a policy, for
/// who wants one all the same: its attributes, its place among the other kinds.
///
/// ```
/// use squall_policy::{Adt, governed};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// #[squall_macros::interface(crate = squall_core)]
/// trait Hits: Send + Sync {
///     fn add(&self, n: u64) -> u64;
/// }
/// struct Count(AtomicU64);
/// impl Hits for Count {
///     fn add(&self, n: u64) -> u64 {
///         self.0.fetch_add(n, Relaxed) + n
///     }
/// }
///
/// let hits: squall_core::Owned<dyn Hits> = governed(Adt::new(), |_| Count(AtomicU64::new(1)));
/// assert_eq!(hits.add(2), 3);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Adt(());

impl Adt {
    /// Does nothing.
    pub fn new() -> Adt {
        Adt(())
    }
}

impl Policy for Adt {}
