//! Factories: where objects of a class are made, and can be replaced all at once.
//!
//! - I1. Who makes an object reads the maker and makes the object known within one operation. So after the grace period
//!   that follows a change of the maker all objects of the one before can be found.
//!
//! Source: CO-72.

use squall_rcu::Rcu;
use squall_sys::sync::{Mutex, MutexGuard, OnceLock};
use std::any::TypeId;
use std::collections::BTreeSet;
use std::fmt;

use crate::call::handle::Handle;
use crate::call::interface::Interface;
use crate::object::owned::Owned;
use crate::observe::inspect;
use crate::protocol::create_error::CreateError;
use crate::protocol::id::Id;
use crate::swap::{Replacement, Swap, SwapError, SwapReport};

/// What makes objects now.
struct Maker<I: ?Sized + Interface> {
    make: Box<dyn Fn() -> Replacement<I> + Send + Sync>,
    /// The class of the first that it made, which is in the list.
    class: OnceLock<TypeId>,
}

/// Makes objects of one interface, and can replace those it made with others, live.
pub struct Factory<I: ?Sized + Interface> {
    maker: Rcu<Maker<I>>,
    /// The classes that its makers made. No code but ours runs under this lock.
    classes: Mutex<BTreeSet<TypeId>>,
}

/// How the swap of one object went, of those of a class.
#[derive(Debug)]
pub struct Upgraded {
    /// The object.
    pub id: Id,
    /// Its swap.
    pub outcome: Result<SwapReport, SwapError>,
}

impl<I: ?Sized + Interface> Factory<I> {
    /// A factory whose objects are made by `make`, which runs inside an operation: it must not block.
    pub fn new(make: impl Fn() -> Replacement<I> + Send + Sync + 'static) -> Factory<I> {
        Factory { maker: Rcu::new(Maker::new(make)), classes: Mutex::new(BTreeSet::new()) }
    }

    fn classes(&self) -> MutexGuard<'_, BTreeSet<TypeId>> {
        // Nothing panics under this lock but a failed allocation, which leaves the set whole.
        self.classes.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Makes an object.
    ///
    /// # Panics
    /// As [`Factory::try_create`] errs; if the maker does.
    #[track_caller]
    pub fn create(&self) -> Owned<I> {
        self.try_create().unwrap_or_else(|error| crate::object::create::refuse(I::NAME, &error))
    }

    /// As [`Factory::create`], with an error in place of the panic.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn try_create(&self) -> Result<Owned<I>, CreateError> {
        let made = squall_rcu::try_pin(|guard| {
            let maker = self.maker.load(guard);
            let new = (maker.make)();
            let class = new.type_id();
            if maker.class.get() != Some(&class) {
                self.classes().insert(class);
                maker.class.get_or_init(|| class);
            }
            new.create()
        });
        made.unwrap_or_else(|error| Err(error.into()))
    }

    /// Makes objects by `make` from now on, and swaps every live object of the classes that this factory made before, one
    /// after the other, each for one that `make` makes: those of the same class that were made elsewhere, too. `limits` is
    /// applied to each of them: what it gets is the swap, and what it returns is asked for. Returns how each of them went,
    /// by slot. One that failed serves on as it was. Where the class stays the same, objects that are made meanwhile may be
    /// swapped, too.
    ///
    /// # Errors
    /// [`squall_rcu::WaitError`], as waiting for a grace period. Nothing has changed then, unless no grace period can be
    /// concluded any more: then the maker has.
    /// # Panics
    /// If `make` or `limits` does: objects that were not yet swapped stay as they are.
    /// # Cost
    /// A grace period, a look at every slot, and a swap for each object.
    pub fn upgrade(
        &self,
        make: impl Fn() -> Replacement<I> + Clone + Send + Sync + 'static,
        limits: impl Fn(Swap<I>) -> Swap<I>,
    ) -> Result<Vec<Upgraded>, squall_rcu::WaitError> {
        // Refused where it would wait for itself.
        squall_rcu::wait()?;
        let first = make();
        let new_class = first.type_id();
        let same = self.classes().contains(&new_class);
        self.maker.replace(Maker::new(make.clone()));
        // From here on whoever makes one uses the new maker (I1).
        squall_rcu::wait()?;
        let mut classes = self.classes().clone();
        if !same {
            classes.remove(&new_class);
        }
        // Those that this puts there are the next one's.
        self.classes().insert(new_class);
        let mut first = Some(first);
        let swap = |id| {
            // An object made for this interface.
            let swap = limits(Swap::new(Handle::<I>::new(id)));
            // Of two upgrades at once the one whose maker is older changes nothing that the other has changed.
            Upgraded { id, outcome: swap.to_expecting(first.take().unwrap_or_else(&make), Some(&classes)) }
        };
        Ok(inspect::instances(TypeId::of::<I>(), &classes).into_iter().map(swap).collect())
    }
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
