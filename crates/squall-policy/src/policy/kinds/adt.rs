//! Abstract data types: calls run on their callers' threads, unsynchronised.

use crate::policy::Policy;

/// Abstract data type: each call runs on its caller's thread, without synchronisation.
///
/// Behaves like an object without a policy, but has a binding and attributes, like the other kinds.
///
/// ```
/// use squall::policy::{Adt, governed};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
///
/// #[squall::interface]
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
/// let hits: squall::Owned<dyn Hits> = governed(Adt::new(), |_| Count(AtomicU64::new(1)));
/// assert_eq!(hits.add(2), 3);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Adt(());

impl Adt {
    /// Creates the policy.
    pub fn new() -> Adt {
        Adt(())
    }
}

impl Policy for Adt {}
