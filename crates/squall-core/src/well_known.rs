//! Objects at fixed ids, which their users know before there is an object.
//!
//! - I1. A number means one interface in the whole process: the first that asks for it. So the bits of a reference to it
//!   are of that interface (`reference/I1`).
//!
//! Source: CO-17.

use squall_machine::ClusterSize;
use squall_sync::atomic::Ordering;
use squall_sync::sync::{Mutex, MutexGuard};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use crate::create::Place;
use crate::error::CreateError;
use crate::ground::{Tables, WELL_KNOWN, tables};
use crate::id::Id;
use crate::interface::{Counted, Interface, InterfaceOf};
use crate::multi::Multi;
use crate::owned::Owned;
use crate::raw::object::{Ground, Occupant};
use crate::reference::CoRef;
use crate::root::Root;
use crate::single::shared_at;

/// An object that has its id from the start: meant for a `static`.
///
/// A reference can be had before the object is installed; calls through it err until then. After the object was
/// destroyed another one may be installed: references from before stay stale, [`co`](WellKnown::co) gives new ones.
pub struct WellKnown<I: ?Sized> {
    number: u32,
    // Invariant, as in `CoRef`.
    interface: PhantomData<fn(PhantomData<I>) -> PhantomData<I>>,
}

/// Who has which numbers (I1). Held while an object is installed, too, so that two do not.
static TAKEN: Mutex<BTreeMap<u32, Claim>> = Mutex::new(BTreeMap::new());

/// The meaning of a number: the interface that was asked for at `first`, this one or one before it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Claim {
    interface: TypeId,
    name: &'static str,
    first: u32,
}

impl<I: ?Sized + Interface> WellKnown<I> {
    /// The object of this number, from 0. An interface that extends `k` others takes `k` numbers more.
    ///
    /// # Panics
    /// If the number is not below 512 less those `k`; in a `static`, that is an error of the compiler.
    pub const fn new(number: u32) -> WellKnown<I> {
        assert!(number + I::INTERFACES <= WELL_KNOWN, "well-known numbers lie below 512");
        WellKnown { number, interface: PhantomData }
    }

    /// A reference to the object that is there, or else to the next one that will be.
    ///
    /// # Panics
    /// If the number means another interface in this process, or there is no address space for the tables.
    #[track_caller]
    pub fn co(&self) -> CoRef<I> {
        let tables = tables().unwrap_or_else(|error| crate::create::refuse(I::NAME, &error));
        drop(self.claimed(tables));
        CoRef::new(self.id(tables))
    }

    /// Installs an object with one representative for everybody.
    ///
    /// # Errors
    /// [`CreateError::Taken`] if there is one, or one that is not reclaimed yet; and as [`try_shared`](crate::try_shared).
    /// # Panics
    /// As [`co`](WellKnown::co).
    #[track_caller]
    pub fn install_shared<T>(&self, value: T) -> Result<Owned<I>, CreateError>
    where
        I: InterfaceOf<T>,
        T: Send + Sync + 'static,
    {
        let tables = tables()?;
        let _claims = self.claimed(tables);
        shared_at(self.vacant(tables)?, value)
    }

    /// Installs an object with this root.
    ///
    /// # Errors
    /// As [`install_shared`](WellKnown::install_shared).
    /// # Panics
    /// As [`co`](WellKnown::co); and with [`Root::EAGER`], if `make_rep` does.
    #[track_caller]
    pub fn install<R: Root<Interface = I>>(
        &self,
        root: R,
        size: ClusterSize,
    ) -> Result<Owned<I>, CreateError> {
        let made_at = Location::caller();
        let tables = tables()?;
        let claims = self.claimed(tables);
        let (owned, block) = Multi::publish(self.vacant(tables)?, root, size, made_at)?;
        // Eager representatives are the author's code, which runs under no lock of ours.
        drop(claims);
        Multi::make_eager(block)?;
        Ok(owned)
    }

    fn id(&self, tables: &Tables) -> Id {
        // Relaxed: changed when an object of this number is over; either value is right in that moment.
        Id::new(self.number, tables.slot(self.number).generation.load(Ordering::Relaxed))
    }

    /// Claims the numbers, unless that was done before.
    #[track_caller]
    fn claimed(&self, tables: &Tables) -> MutexGuard<'static, BTreeMap<u32, Claim>> {
        // Nothing is left half done under this lock.
        let mut claims = TAKEN.lock().unwrap_or_else(|poison| poison.into_inner());
        let mine = Claim { interface: TypeId::of::<I>(), name: I::NAME, first: self.number };
        for number in self.number..self.number + I::INTERFACES {
            match claims.get(&number) {
                Some(claim) if *claim == mine => {}
                Some(claim) => panic!(
                    "the well-known number {number} is taken by {}, from {} on: it cannot be of {} too",
                    claim.name,
                    claim.first,
                    I::NAME
                ),
                None => {
                    claims.insert(number, mine);
                    tables.slot(number).generation.store(1, Ordering::Relaxed);
                }
            }
        }
        claims
    }

    /// The place, if nobody has it. Under the lock of the claims.
    fn vacant(&self, tables: &Tables) -> Result<Place, CreateError> {
        // The occupant first: it becomes nobody after the next generation was set (`Tables::give_back`).
        let vacant = matches!(tables.slot(self.number).occupant(), Occupant::Nobody);
        let id = self.id(tables);
        if vacant && id.generation() != 0 { Ok(Place::Taken(id)) } else { Err(CreateError::Taken(id)) }
    }
}

impl<I: ?Sized + Interface> fmt::Debug for WellKnown<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WellKnown<{}>({})", I::NAME, self.number)
    }
}
