//! Who gets the lock, and when (KT-16): registration, acquisition, release; as one word that can be replaced while threads
//! wait.
//!
//! - I1. A [`Scheduling`] is one word: whoever reads it sees all of an old one or all of a new one.

use std::time::Duration;

use squall_sys::sync::atomic::{AtomicU64, Ordering};

/// Which of the registered threads gets the lock next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// The one that asked first.
    FirstCome,
    /// The one of the highest priority (`Request::priority`), of those the one that asked first. A steady stream of important ones
    /// keeps the others waiting: that is what it is for. Priority is not lent to the holder.
    Priority,
    /// The first of those on the cluster of the one that releases it, so that what the lock protects stays in its caches; after 32
    /// in a row that were not the first of all, the first of all, so that nobody waits for ever. Clusters are of the machine's
    /// default size, and where a thread was when it began to wait.
    ClusterFirst,
}

/// What a release does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Release {
    /// The lock is free, and whoever comes first has it: a waiter that is awake, a newcomer, or the thread that just released it. One
    /// that slept is woken only if nobody who is awake will take the lock. Fast, and fair only by
    /// [`patience`](Scheduling::patience).
    FreeForAll,
    /// The lock goes to the next waiter without being free. Fair, and slow where that one does not run at this moment.
    HandOff,
}

/// The attributes of scheduling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Scheduling {
    /// Whether each thread that waits is entered in a list, from which [`order`](Scheduling::order) picks; only then has it a priority and
    /// its own way to wait.
    pub registration: bool,
    /// Which of the registered is next.
    pub order: Order,
    /// What a release does.
    pub release: Release,
    /// So many unregistered waiters are awake at once, if others may sleep; at most 250. More than one make the lock's line travel
    /// for nothing, and take processors from threads that could work.
    pub awake_max: u8,
    /// In a free-for-all, those who wait get the lock when this has passed since they did last, before the thread that has had it
    /// comes again: a turn. Nothing: at each release, if one of them is awake. In whole microseconds, rounded up, up to about an hour.
    /// A turn ends with a release: it lasts as long as the lock is held.
    pub patience: Duration,
}

impl Scheduling {
    /// Free for all, nobody registered, one waiter awake, turns of half a millisecond.
    pub const FREE_FOR_ALL: Scheduling = Scheduling {
        registration: false,
        order: Order::FirstCome,
        release: Release::FreeForAll,
        awake_max: 1,
        patience: Duration::from_micros(500),
    };
    /// First come, first served, from hand to hand.
    pub const HAND_OFF: Scheduling =
        Scheduling { registration: true, release: Release::HandOff, ..Scheduling::FREE_FOR_ALL };

    /// With this order among registered threads.
    pub const fn order(mut self, order: Order) -> Scheduling {
        self.registration = true;
        self.order = order;
        self
    }

    /// With this release.
    pub const fn release(mut self, release: Release) -> Scheduling {
        self.release = release;
        self
    }

    /// With threads registered, or not.
    pub const fn registration(mut self, registration: bool) -> Scheduling {
        self.registration = registration;
        self
    }

    /// With so many unregistered waiters awake.
    pub const fn awake_max(mut self, count: u8) -> Scheduling {
        self.awake_max = count;
        self
    }

    /// With turns of this length.
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
        // Rounded up: nothing is another way to release.
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

/// Leaves room in the count of the lock's word for those who are woken besides.
const AWAKE_MAX: u8 = 250;

/// A [`Scheduling`] that can be replaced.
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

    // Relaxed: as for `WaitingCell`.

    pub(super) fn get(&self) -> Scheduling {
        Scheduling::unpack(self.0.load(Ordering::Relaxed))
    }

    /// Whether a release is free for all, with turns that last: then most releases have nothing to decide.
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
    fn kt_16_attributes_are_what_was_asked_for() {
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
    fn too_much_is_as_much_as_can_be() {
        let asked = Scheduling::FREE_FOR_ALL.awake_max(255).patience(Duration::from_secs(1 << 40));
        let got = Scheduling::unpack(asked.pack());
        assert_eq!((got.awake_max, got.patience), (250, Duration::from_micros(u64::from(u32::MAX))));
    }
}
