//! All forms: a master in the root, and a replica in each representative. They differ in the size of the clusters, and in whether
//! replicas are given a new value or copy it when they are read.
//!
//! An update goes down the tree of clusters twice: to empty the replicas, and to fill them again. The one form has one class
//! where there is one representative, and another where there may be several, so that a policy knows them apart.

use squall_adapt::family::is_reading;
use squall_core::__macro::{Lender, Lent};
use squall_core::swap::{Format, Replacement, RootFormats};
use squall_core::{RepContext, Miss, MissAnswer, Root};
use squall_machine::{Cluster, ClusterSize, machine};
use squall_rcu::{Guard, pin};
use squall_parts::replica::{Conflict, Kept, Master, Replica, Versioned, Watch};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use super::policy::{ALARM, post};
use super::{ReadMostly, Sensors};

/// The root. `ADAPTS`: its sensor posts. `WIDE`: there may be several representatives.
pub(super) struct Distributed<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> {
    master: Master<T>,
    /// Those who wait for changes; made for the first of them. It goes with the state, so that they need not know of swaps.
    watch: OnceLock<Arc<Watch>>,
    /// How many more changes until the alarm rings; zero: it does not. It may lose steps.
    alarm: AtomicU32,
    /// Of adaptive ones, for a change of the cluster size: makes a vacant master whose replicas have copies.
    copied: Option<fn() -> Master<T>>,
}

/// On lines of its own: neighbours in memory belong to other processors.
#[repr(align(128))]
pub(super) struct Local<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> {
    replica: Replica<T>,
    at: RepContext<Distributed<T, ADAPTS, WIDE>>,
}

/// The state: the value with its version, shared, and those who wait for the next.
struct Moved<T: Send + Sync + 'static> {
    value: Kept<T>,
    watch: Arc<Watch>,
}

impl<T: Send + Sync + 'static> Format for Moved<T> {}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> Distributed<T, ADAPTS, WIDE> {
    pub(super) fn new(master: Master<T>) -> Distributed<T, ADAPTS, WIDE> {
        Distributed::make(master, None)
    }

    /// The same, of a type that can be copied, so that the form can be changed to any size.
    pub(super) fn with_copies(master: Master<T>) -> Distributed<T, ADAPTS, WIDE>
    where
        T: Clone,
    {
        Distributed::make(master, Some(Master::vacant_copied))
    }

    fn make(master: Master<T>, copied: Option<fn() -> Master<T>>) -> Distributed<T, ADAPTS, WIDE> {
        let alarm = AtomicU32::new(if ADAPTS { ALARM } else { 0 });
        Distributed { master, watch: OnceLock::new(), alarm, copied }
    }

    fn watch(&self) -> &Arc<Watch> {
        self.watch.get_or_init(Arc::default)
    }

    /// Wakes those who wait for changes.
    fn announce(&self) {
        // Who begins to wait makes a fence after it has been here (`Watch::leave`), and each update one before it comes here.
        if let Some(watch) = self.watch.get() {
            watch.wake();
        }
    }

    /// The same where nobody is to be hit by a waker that panics.
    fn announce_quietly(&self) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.announce())) {
            // Its drop may panic, too; that one is leaked.
            let dropped = catch_unwind(AssertUnwindSafe(|| drop(payload)));
            std::mem::forget(dropped);
        }
    }
}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> Root for Distributed<T, ADAPTS, WIDE> {
    type Interface = dyn ReadMostly<T>;
    type Rep = Local<T, ADAPTS, WIDE>;

    const LENDER: Lender<Self::Rep, Self::Interface> =
        Lender::of(|rep| Some(Lent::First(&rep.replica, None)));

    fn make_rep(&self, at: RepContext<Self>) -> Local<T, ADAPTS, WIDE> {
        Local { replica: self.master.replica(), at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        // A swap moved no value in. Each representative comes from here, so none of them reads, or changes, what there is not.
        if self.master.is_vacant() {
            return miss.refuse("no value moved in");
        }
        // Who only looks is no caller.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        match (ADAPTS && is_reading()).then(any).flatten() {
            Some(any) => any.once(),
            None => miss.local().cached(),
        }
    }

    /// Those who wait for changes find that there will be none, or wait again.
    fn wake(&self) {
        self.announce_quietly();
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let root = whole.root();
                let value = root.master.keep().ok_or("a value that was never given")?;
                Ok(Moved { value, watch: root.watch().clone() })
            })
            .import(|whole, state: Moved<T>| {
                let root = whole.root();
                root.watch.set(state.watch).map_err(|_| "somebody waits for the new object already")?;
                root.master.adopt(state.value).map_err(|_| "the new object has a value already")?;
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

    /// Reaches the replicas, down the tree of clusters.
    fn walk(&self, mut reach: impl FnMut(&Replica<T>)) {
        if WIDE {
            self.at.broadcast(|rep| reach(&rep.replica));
        } else {
            self.at.reps().for_each(|rep| reach(&rep.replica));
        }
    }

    /// There is a new value.
    fn changed(&self) {
        let root = self.at.root();
        if ADAPTS {
            // Loads and stores: steps may be lost to others, but somebody stores the zero that he rings for.
            let left = root.alarm.load(Ordering::Relaxed);
            if left != 0 {
                root.alarm.store(left - 1, Ordering::Relaxed);
                if left == 1 && !post(self.at.handle()) {
                    root.alarm.store(ALARM, Ordering::Relaxed);
                }
            }
        }
        // Last: it calls wakers, which may panic.
        root.announce();
    }
}

impl<T: Send + Sync + 'static, const ADAPTS: bool, const WIDE: bool> ReadMostly<T> for Local<T, ADAPTS, WIDE> {
    #[inline]
    fn find<'o>(&self, guard: &'o Guard) -> &'o Versioned<T> {
        self.load(guard)
    }

    fn version(&self) -> u64 {
        // Whoever asks for it reads no value, so none is copied for it.
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
            // As the policy makes the form.
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
        // The first version is no change.
        Sensors { changes: self.version() - 1, reps: self.at.reps().count() }
    }

    fn arm(&self, after: u32) {
        if ADAPTS {
            self.at.root().alarm.store(after, Ordering::Relaxed);
        }
    }
}
