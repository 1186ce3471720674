//! Implementation of all forms: a master in the root, and a replica in each representative. The forms differ
//! in cluster size, and in whether a replica is given a new value or copies it at the next read.
//!
//! An update walks the tree of clusters twice: to empty the replicas, and to fill them again. There is one
//! class for a single representative and one for several, so that a policy can tell them apart.

use squall_adapt::family::is_reading;
use squall_adapt::sensor::Alarm;
use squall_core::swap::{Format, Replacement, RootFormats};
use squall_core::{Miss, MissAnswer, RepContext, Root};
use squall_machine::{Cluster, ClusterSize, machine};
use squall_parts::replica::{Conflict, Master, Replica, ValueRef, Versioned, Watch};
use squall_rcu::{__pin as pin, Guard};
use squall_sys::panics::end_panic;

use std::sync::{Arc, OnceLock};

use super::policy::{ALARM, post};
use super::{ReadMostly, ReadMostlyView, Sensors};

/// Root. `ADAPTS`: its sensor posts to the policy. `WIDE`: there may be several representatives.
pub(super) struct Distributed<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> {
    master: Master<T>,
    /// Wait list for changes, made for the first waiter. It moves with the state, so waiters need not handle
    /// swaps.
    watch: OnceLock<Arc<Watch>>,
    /// Counts changes down to a post.
    alarm: Alarm,
    /// For adaptive values, makes a vacant master with copying replicas. Used when the cluster size changes.
    copied: Option<fn() -> Master<T>>,
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> {
    replica: Replica<T>,
    at: RepContext<Distributed<T, ADAPTS, WIDE>>,
}

/// State that a swap moves: the value with its version, shared, and the wait list.
struct Moved<T: Send + Sync + 'static> {
    value: ValueRef<T>,
    watch: Arc<Watch>,
}

impl<T: Send + Sync + 'static> Format for Moved<T> {}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> Distributed<T, ADAPTS, WIDE> {
    pub(super) fn new(master: Master<T>) -> Distributed<T, ADAPTS, WIDE> {
        Distributed::make(master, None)
    }

    /// Like `new`, for a type that can be cloned, so that the form can change to any cluster size.
    pub(super) fn with_copies(master: Master<T>) -> Distributed<T, ADAPTS, WIDE>
    where
        T: Clone,
    {
        Distributed::make(master, Some(Master::vacant_copied))
    }

    fn make(master: Master<T>, copied: Option<fn() -> Master<T>>) -> Distributed<T, ADAPTS, WIDE> {
        Distributed { master, watch: OnceLock::new(), alarm: Alarm::new(ALARM), copied }
    }

    fn watch(&self) -> &Arc<Watch> {
        self.watch.get_or_init(Arc::default)
    }

    /// Wakes the waiters.
    fn announce(&self) {
        // A waiter makes a fence after it made the wait list (`Watch::register`). Each update makes one
        // before it comes here, so one of the two sees the other.
        if let Some(watch) = self.watch.get() {
            watch.wake();
        }
    }

    /// Wakes the waiters, and catches the panic of a waker.
    fn announce_quietly(&self) {
        end_panic(|| self.announce());
    }
}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> Root for Distributed<T, ADAPTS, WIDE> {
    type Interface = dyn ReadMostly<T>;
    type Rep = Local<T, ADAPTS, WIDE>;

    fn view(rep: &Self::Rep) -> ReadMostlyView<'_, T> {
        ReadMostlyView { replica: Some(&rep.replica) }
    }

    fn make_rep(&self, at: RepContext<Self>) -> Local<T, ADAPTS, WIDE> {
        Local { replica: self.master.replica(), at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        // A swap moved no value in. Each representative is made here, so no representative reads or changes a
        // missing value.
        if self.master.is_vacant() {
            return miss.refuse("no value moved in; repeat the swap with its state");
        }
        // A policy that reads the sensors is no caller, so no representative is made for it.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        match (ADAPTS && is_reading()).then(any).flatten() {
            Some(any) => any.once(),
            None => miss.local().cached(),
        }
    }

    /// Wakes the waiters. They find that the object has ended, or wait again.
    fn wake(&self) {
        self.announce_quietly();
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let root = whole.root();
                let value =
                    root.master.keep().ok_or("the object has no value: no swap moved its state in")?;
                Ok(Moved { value, watch: root.watch().clone() })
            })
            .import(|whole, state: Moved<T>| {
                let root = whole.root();
                let again = "the replacement already has a value; make a new one for each swap";
                root.watch.set(state.watch).map_err(|_| again)?;
                root.master.adopt(state.value).map_err(|_| again)?;
                Ok(())
            });
    }
}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> Drop for Distributed<T, ADAPTS, WIDE> {
    fn drop(&mut self) {
        self.announce_quietly();
    }
}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> Local<T, ADAPTS, WIDE> {
    #[inline(always)]
    fn load<'o>(&self, guard: &'o Guard) -> &'o Versioned<T> {
        self.replica.load(&self.at.root().master, guard)
    }

    /// Calls `reach` with each replica, down the tree of clusters.
    fn walk(&self, mut reach: impl FnMut(&Replica<T>)) {
        if WIDE {
            self.at.broadcast(|rep| reach(&rep.replica));
        } else {
            self.at.reps().for_each(|rep| reach(&rep.replica));
        }
    }

    /// Wakes the waiters, counts a change, and posts to the policy if the alarm expires. A change is not
    /// counted if a waker panics.
    fn changed(&self) {
        let root = self.at.root();
        root.announce();
        if ADAPTS {
            // Last, since it may pause.
            root.alarm.step(1, || post(self.at.handle()));
        }
    }
}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> ReadMostly<T>
    for Local<T, ADAPTS, WIDE>
{
    #[inline]
    fn find<'o>(&self, guard: &'o Guard) -> &'o Versioned<T> {
        self.load(guard)
    }

    fn version(&self) -> u64 {
        // Only the version is needed, so this makes no copy of the value.
        pin(|guard| Versioned::version(self.replica.peek(&self.at.root().master, guard)))
    }

    fn set(&self, value: T) -> u64 {
        let version = self.at.root().master.set(value, |reach| self.walk(reach));
        self.changed();
        version
    }

    fn compare_and_update(&self, version: u64, value: T) -> Result<u64, Conflict<T>> {
        let version = self.at.root().master.compare_and_set(version, value, |reach| self.walk(reach))?;
        self.changed();
        Ok(version)
    }

    fn watch(&self) -> Arc<Watch> {
        self.at.root().watch().clone()
    }

    fn cluster_size(&self) -> ClusterSize {
        self.at.clusters().size()
    }

    fn resized(&self, size: ClusterSize) -> Replacement<dyn ReadMostly<T>> {
        let root = self.at.root();
        let (copied, one) = (root.copied, size == ClusterSize::Machine);
        let master = match copied {
            // The policy makes the shared form in the same way.
            Some(_) if one => Master::vacant_updated(),
            Some(copied) => copied(),
            None => root.master.vacant(),
        };
        if one {
            Replacement::root(Distributed::<T, ADAPTS, false>::make(master, copied), size)
        } else {
            Replacement::root(Distributed::<T, ADAPTS, true>::make(master, copied), size)
        }
    }

    fn sensors(&self) -> Sensors {
        // The first version is not a change.
        Sensors { changes: self.version() - 1, reps: self.at.reps().count() }
    }

    fn arm(&self, after: u32) {
        if ADAPTS {
            self.at.root().alarm.arm(after);
        }
    }
}
