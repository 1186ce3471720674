//! The attributes of scheduling: registration, order and release. They are one word that can be
//! replaced while threads wait.
//!
//! - I1. A [`Scheduling`] is one word, so a reader sees a whole old one or a whole new one.
//!
//! Source: KT-16 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1).

use std::time::Duration;

use squall_sys::sync::atomic::{AtomicU64, Ordering};

/// The order among registered threads.
///
/// # Example
/// ```
/// use squall::lock::{Order, Scheduling};
///
/// let scheduling = Scheduling::FREE_FOR_ALL.order(Order::Priority);
/// assert!(scheduling.registration); // an order needs registered threads
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The thread that asked first is next.
    FirstCome,
    /// The thread with the highest priority (`Request::priority`) is next; among equals, the one that asked
    /// first. A steady stream of urgent threads therefore starves the others, by design. The holder does not
    /// inherit a priority.
    Priority,
    /// The first thread on the cluster of the releasing thread is next, so that the protected data stays in
    /// that cluster's caches. After 32 such grants in a row that passed over the thread that asked first,
    /// that thread is next. So no thread starves. Clusters have the machine's default size. A thread's
    /// cluster is where it started to wait.
    ClusterFirst,
}

/// The effect of a release.
///
/// # Example
/// ```
/// use squall::lock::{Release, Scheduling};
///
/// assert_eq!(Scheduling::HAND_OFF.release, Release::HandOff);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// The lock becomes free, and the first thread to come takes it: an awake waiter, a newcomer, or the
    /// thread that just released it. A sleeper is woken only if no awake waiter will take the lock. Fast, and
    /// fair only through [`patience`](Scheduling::patience).
    FreeForAll,
    /// The lock goes directly to the next waiter, without becoming free. Fair, but slow while that waiter
    /// does not run.
    HandOff,
}

/// The attributes of scheduling.
///
/// # Example
/// ```
/// use squall::lock::{ConfigurableLock, Scheduling};
/// use std::time::Duration;
///
/// let lock = ConfigurableLock::new(());
/// lock.set_scheduling(Scheduling::FREE_FOR_ALL.patience(Duration::from_millis(2)));
/// assert_eq!(lock.scheduling().patience, Duration::from_millis(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Scheduling {
    /// Whether waiting threads are entered in a list, from which [`order`](Scheduling::order) picks. Only
    /// registered threads have a priority and their own way to wait.
    pub registration: bool,
    /// The order among registered threads.
    pub order: Order,
    /// The effect of a release.
    pub release: Release,
    /// The number of unregistered waiters that stay awake while others sleep; at most 250. More than one
    /// makes the lock's cache line travel without need, and takes processors from threads that could work.
    pub awake_max: u8,
    /// The length of a turn in a free-for-all. One thread may retake the lock for this long; then a release
    /// gives it to a waiter. Zero ends a turn at each release, if a waiter is awake. Rounded up to whole
    /// microseconds, at most about an hour. A turn ends only with a release, so it lasts at least as long as
    /// the lock is held.
    pub patience: Duration,
}

impl Scheduling {
    /// Free-for-all without registration: one waiter awake, turns of 500 µs.
    pub const FREE_FOR_ALL: Scheduling = Scheduling {
        registration: false,
        order: Order::FirstCome,
        release: Release::FreeForAll,
        awake_max: 1,
        patience: Duration::from_micros(500),
    };
    /// First come, first served, by direct hand-off.
    pub const HAND_OFF: Scheduling =
        Scheduling { registration: true, release: Release::HandOff, ..Scheduling::FREE_FOR_ALL };

    /// Returns these attributes with this order, and with registration.
    pub const fn order(mut self, order: Order) -> Scheduling {
        self.registration = true;
        self.order = order;
        self
    }

    /// Returns these attributes with this kind of release.
    pub const fn release(mut self, release: Release) -> Scheduling {
        self.release = release;
        self
    }

    /// Returns these attributes with registration on or off.
    pub const fn registration(mut self, registration: bool) -> Scheduling {
        self.registration = registration;
        self
    }

    /// Returns these attributes with this maximum number of awake waiters.
    pub const fn awake_max(mut self, count: u8) -> Scheduling {
        self.awake_max = count;
        self
    }

    /// Returns these attributes with turns of this length.
    ///
    /// # Example
    /// ```
    /// use squall::lock::Scheduling;
    /// use std::time::Duration;
    ///
    /// let scheduling = Scheduling::FREE_FOR_ALL.awake_max(2).patience(Duration::from_micros(200));
    /// assert_eq!((scheduling.awake_max, scheduling.patience.as_micros()), (2, 200));
    /// ```
    pub const fn patience(mut self, patience: Duration) -> Scheduling {
        self.patience = patience;
        self
    }

    pub(super) const fn pack(self) -> u64 {
        let order = match self.order {
            Order::FirstCome => 0,
            Order::Priority => 1,
            Order::ClusterFirst => 2,
        };
        let hand_off = matches!(self.release, Release::HandOff) as u64;
        // Rounded up, because zero means a different kind of turn.
        let us = self.patience.as_nanos().div_ceil(1_000);
        let us = if us > u32::MAX as u128 { u32::MAX as u64 } else { us as u64 };
        let awake = if self.awake_max > AWAKE_MAX { AWAKE_MAX } else { self.awake_max };
        self.registration as u64 | hand_off << 1 | order << 2 | (awake as u64) << 8 | us << 32
    }

    pub(super) const fn unpack(bits: u64) -> Scheduling {
        Scheduling {
            registration: bits & 1 != 0,
            release: if bits & 2 != 0 { Release::HandOff } else { Release::FreeForAll },
            order: match bits >> 2 & 3 {
                1 => Order::Priority,
                2 => Order::ClusterFirst,
                _ => Order::FirstCome,
            },
            awake_max: (bits >> 8) as u8,
            patience: Duration::from_micros(bits >> 32),
        }
    }
}

/// Leaves room in the lock word's count for waiters that are woken in addition.
const AWAKE_MAX: u8 = 250;

/// A replaceable [`Scheduling`].
#[derive(Debug)]
pub(super) struct SchedulingCell(AtomicU64);

impl SchedulingCell {
    #[cfg(not(loom))]
    pub(super) const fn new(scheduling: Scheduling) -> SchedulingCell {
        SchedulingCell(AtomicU64::new(scheduling.pack()))
    }

    #[cfg(loom)]
    pub(super) fn new(scheduling: Scheduling) -> SchedulingCell {
        SchedulingCell(AtomicU64::new(scheduling.pack()))
    }

    // Relaxed, for the reason given at `WaitingCell`.

    pub(super) fn get(&self) -> Scheduling {
        Scheduling::unpack(self.0.load(Ordering::Relaxed))
    }

    /// Returns whether releases are free-for-all with turns of some length. Then most releases need no
    /// decision.
    pub(super) fn has_turns(&self) -> bool {
        let bits = self.0.load(Ordering::Relaxed);
        bits & 2 == 0 && bits >> 32 != 0
    }

    pub(super) fn set(&self, scheduling: Scheduling) {
        self.0.store(scheduling.pack(), Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn kt_16_attributes_round_trip() {
        for order in [Order::FirstCome, Order::Priority, Order::ClusterFirst] {
            for release in [Release::FreeForAll, Release::HandOff] {
                for (awake, us) in [(0, 0), (1, 500), (250, u64::from(u32::MAX))] {
                    let asked = Scheduling::FREE_FOR_ALL.order(order).release(release).awake_max(awake);
                    let asked = asked.patience(Duration::from_micros(us));
                    assert_eq!(Scheduling::unpack(asked.pack()), asked);
                }
            }
        }
    }

    #[test]
    fn too_large_values_are_capped() {
        let asked = Scheduling::FREE_FOR_ALL.awake_max(255).patience(Duration::from_secs(1 << 40));
        let got = Scheduling::unpack(asked.pack());
        assert_eq!((got.awake_max, got.patience), (250, Duration::from_micros(u64::from(u32::MAX))));
    }
}
