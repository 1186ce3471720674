//! Factories: they make the objects of a class, and can replace them all at once.
//!
//! - I1. A thread that makes an object reads the maker and publishes the object within one operation. So
//!   after the grace period that follows a change of the maker, all objects of the old maker can be found.
//!
//! Source: CO-72.

use squall_rcu::{Marker, Rcu};
use squall_sys::sync::{Mutex, MutexGuard, OnceLock};
use std::alloc::{Layout, handle_alloc_error};
use std::any::TypeId;
use std::fmt;

use crate::call::handle::Handle;
use crate::call::interface::Interface;
use crate::object::owned::Owned;
use crate::observe::inspect;
use crate::protocol::create_error::CreateError;
use crate::protocol::id::Id;
use crate::swap::{Replacement, Swap, SwapError, SwapReport};

/// The function that currently makes the objects.
struct Maker<I: ?Sized + Interface> {
    make: Box<dyn Fn() -> Replacement<I> + Send + Sync>,
    /// The class of the first object that it made; the class is in the factory's list.
    class: OnceLock<TypeId>,
}

/// Makes objects of one interface, and can replace the live objects that it made.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::{Factory, Replacement};
///
/// let factory: Factory<dyn Counter> = Factory::new(|| Replacement::swappable(Central::default()));
/// let (first, second) = (factory.create(), factory.create());
/// first.add(1);
/// let upgraded = factory.upgrade(
///     || Replacement::root(Spread, squall::ClusterSize::Cpu),
///     |swap| swap.timeout(std::time::Duration::from_secs(1)),
/// )?;
/// assert!(upgraded.iter().all(|object| object.outcome.is_ok()));
/// assert_eq!((first.get(), second.get()), (1, 0));
/// # Ok::<(), squall::rcu::WaitError>(())
/// ```
pub struct Factory<I: ?Sized + Interface> {
    maker: Rcu<Maker<I>>,
    /// The classes made by the current and earlier makers. Only code of this module runs under the lock.
    classes: Mutex<Vec<TypeId>>,
}

/// The swap of one object in a [`Factory::upgrade`].
#[derive(Debug)]
pub struct Upgraded {
    /// The id of the object.
    pub id: Id,
    /// The outcome of its swap.
    pub outcome: Result<SwapReport, SwapError>,
}

impl<I: ?Sized + Interface> Factory<I> {
    /// Makes a factory with the function `make`. `make` runs inside an operation and must not block.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Factory, Replacement};
    ///
    /// let factory: Factory<dyn Counter> = Factory::new(|| Replacement::shared(Central::default()));
    /// factory.create().add(1);
    /// ```
    pub fn new(make: impl Fn() -> Replacement<I> + Send + Sync + 'static) -> Factory<I> {
        Factory { maker: Rcu::new(Maker::new(make)), classes: Mutex::new(Vec::new()) }
    }

    fn classes(&self) -> MutexGuard<'_, Vec<TypeId>> {
        // A panic under this lock comes only from a failed allocation, which leaves the list intact.
        self.classes.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Makes an object.
    ///
    /// # Panics
    /// If [`Factory::try_create`] returns an error, or if the maker panics.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Factory, Replacement};
    ///
    /// let factory: Factory<dyn Counter> = Factory::new(|| Replacement::shared(Central::default()));
    /// let counter = factory.create();
    /// counter.add(1);
    /// ```
    #[track_caller]
    pub fn create(&self) -> Owned<I> {
        self.try_create().unwrap_or_else(|error| crate::object::create::refuse(I::NAME, &error))
    }

    /// Like [`Factory::create`], but returns an error instead of panicking.
    ///
    /// # Errors
    /// [`CreateError`].
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Factory, Replacement};
    ///
    /// let factory: Factory<dyn Counter> = Factory::new(|| Replacement::shared(Central::default()));
    /// let counter = factory.try_create()?;
    /// counter.add(1);
    /// # Ok::<(), squall::CreateError>(())
    /// ```
    pub fn try_create(&self) -> Result<Owned<I>, CreateError> {
        let made = squall_rcu::__try_pin(|guard| {
            let maker = self.maker.load(guard);
            let new = (maker.make)();
            let class = new.type_id();
            if maker.class.get() != Some(&class) {
                add(&mut self.classes(), class)?;
                maker.class.get_or_init(|| class);
            }
            new.create()
        });
        made.unwrap_or_else(|error| Err(error.into()))
    }

    /// Changes the maker to `make`, and swaps every live object of the classes that this factory made before,
    /// one after the other. Each is swapped for a result of `make`. Objects of these classes that the program
    /// made without this factory are swapped, too. Blocks the thread; a task uses
    /// [`upgrade_async`](Factory::upgrade_async).
    ///
    /// `limits` is applied to the swap of each object. Returns the outcome for each object, in the order of
    /// slots. An object whose swap failed serves on unchanged. If the class stays the same, objects made
    /// during the upgrade may be swapped, too.
    ///
    /// # Errors
    /// [`squall_rcu::WaitError`] if the thread cannot wait for a grace period. There are two such waits. If
    /// the first fails, the factory is unchanged. If the second fails, the maker has changed, and no object
    /// was swapped; a new upgrade reaches all objects.
    /// # Panics
    /// If `make` or `limits` panics; objects that were not swapped yet stay unchanged.
    /// # Cost
    /// A grace period, a look at every slot, and a swap for each object.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Factory, Replacement};
    ///
    /// let factory: Factory<dyn Counter> = Factory::new(|| Replacement::swappable(Central::default()));
    /// let counter = factory.create();
    /// counter.add(3);
    /// let upgraded = factory.upgrade(|| Replacement::swappable(Central::default()), |swap| swap)?;
    /// assert_eq!((upgraded.len(), counter.get()), (1, 3));
    /// # Ok::<(), squall::rcu::WaitError>(())
    /// ```
    pub fn upgrade(
        &self,
        make: impl Fn() -> Replacement<I> + Clone + Send + Sync + 'static,
        limits: impl Fn(Swap<I>) -> Swap<I>,
    ) -> Result<Vec<Upgraded>, squall_rcu::WaitError> {
        // Returns an error where the upgrade would wait for itself.
        squall_rcu::wait()?;
        let (mut upgrade, marker) = self.begin_upgrade(make);
        marker.wait()?;
        let found = self.objects_of(&mut upgrade);
        let swap = |id| {
            let swap = limits(upgrade.swap_of(id));
            let outcome = swap.run_expecting(upgrade.make(), Some(&upgrade.classes));
            Upgraded { id, outcome }
        };
        Ok(found.into_iter().map(swap).collect())
    }

    /// Upgrades like [`upgrade`](Factory::upgrade), for a task. The future needs no particular runtime. Each
    /// swap is one of [`Swap::run_async`], which names the two cases in which a poll blocks its thread.
    ///
    /// The first poll begins the upgrade. If the future is dropped before it is ready, the swap at work is
    /// cancelled, and the objects that were swapped before stay so. The maker may have changed; a new
    /// upgrade reaches all objects.
    ///
    /// # Errors
    /// [`squall_rcu::WaitError`], as of [`squall_rcu::wait_async`]. If the first wait fails, the factory is
    /// unchanged. If the second fails, the maker has changed.
    /// # Panics
    /// As [`upgrade`](Factory::upgrade), in a poll.
    /// # Cost
    /// The cost of [`upgrade`](Factory::upgrade), and the start of a thread for each object.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::{Factory, Replacement};
    ///
    /// async fn upgrade(factory: &Factory<dyn Counter>) -> Result<(), squall::rcu::WaitError> {
    ///     let make = || Replacement::swappable(Central::default());
    ///     let upgraded = factory.upgrade_async(make, |swap| swap).await?;
    ///     assert!(upgraded.iter().all(|object| object.outcome.is_ok()));
    ///     Ok(())
    /// }
    /// ```
    pub async fn upgrade_async(
        &self,
        make: impl Fn() -> Replacement<I> + Clone + Send + Sync + 'static,
        limits: impl Fn(Swap<I>) -> Swap<I> + Send,
    ) -> Result<Vec<Upgraded>, squall_rcu::WaitError> {
        // Returns an error where no grace period can end.
        squall_rcu::wait_async().await?;
        let (mut upgrade, marker) = self.begin_upgrade(make);
        marker.wait_async().await?;
        let mut upgraded = Vec::new();
        for id in self.objects_of(&mut upgrade) {
            let swap = limits(upgrade.swap_of(id));
            let new = upgrade.make();
            let outcome = swap.run_expecting_async(new, Some(&upgrade.classes)).await;
            upgraded.push(Upgraded { id, outcome });
        }
        Ok(upgraded)
    }

    /// Changes the maker. When the marker has elapsed, every thread that makes an object uses the new maker
    /// (I1).
    fn begin_upgrade<M>(&self, make: M) -> (Upgrade<I, M>, Marker)
    where
        M: Fn() -> Replacement<I> + Clone + Send + Sync + 'static,
    {
        let first = make();
        let class = first.type_id();
        let same = self.classes().contains(&class);
        self.maker.replace(Maker::new(make.clone()));
        (Upgrade { make, first: Some(first), class, same, classes: Vec::new() }, Marker::set())
    }

    /// Returns the objects to swap, after the marker of [`Factory::begin_upgrade`] has elapsed.
    fn objects_of<M>(&self, upgrade: &mut Upgrade<I, M>) -> Vec<Id> {
        let mut classes = self.classes().clone();
        classes.retain(|class| upgrade.same || *class != upgrade.class);
        // The objects of the new class belong to the next upgrade.
        if add(&mut self.classes(), upgrade.class).is_err() {
            handle_alloc_error(Layout::new::<TypeId>());
        }
        let found = inspect::instances(TypeId::of::<I>(), &classes);
        upgrade.classes = classes;
        found
    }
}

/// An upgrade in progress.
struct Upgrade<I: ?Sized + Interface, M> {
    make: M,
    /// The first result of `make`, until an object is swapped for it.
    first: Option<Replacement<I>>,
    class: TypeId,
    /// Whether an earlier maker has made objects of this class.
    same: bool,
    /// Objects of these classes are swapped.
    classes: Vec<TypeId>,
}

impl<I: ?Sized + Interface, M: Fn() -> Replacement<I>> Upgrade<I, M> {
    /// Returns the next object to swap for.
    fn make(&mut self) -> Replacement<I> {
        self.first.take().unwrap_or_else(&self.make)
    }

    /// Asks for a swap of a found object, which was made for this interface.
    ///
    /// If two upgrades run at once, the one with the older maker skips the objects that the other has
    /// swapped.
    fn swap_of(&self, id: Id) -> Swap<I> {
        Swap::new(Handle::<I>::new(id))
    }
}

/// Adds a class to the list, unless it is there.
fn add(classes: &mut Vec<TypeId>, class: TypeId) -> Result<(), CreateError> {
    if !classes.contains(&class) {
        classes.try_reserve(1).map_err(|_| CreateError::no_memory())?;
        classes.push(class);
    }
    Ok(())
}

impl<I: ?Sized + Interface> Maker<I> {
    fn new(make: impl Fn() -> Replacement<I> + Send + Sync + 'static) -> Box<Maker<I>> {
        Box::new(Maker { make: Box::new(make), class: OnceLock::new() })
    }
}

impl<I: ?Sized + Interface> fmt::Debug for Factory<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Factory({})", I::NAME)
    }
}
