//! Objects at fixed ids, which their users know before there is an object.
//!
//! - I1. A number means one interface in the whole process: the first that asks for it. So the bits of a reference to it
//!   are of that interface (`handle/I1`).
//!
//! Source: CO-17.

use squall_machine::ClusterSize;
use squall_sys::sync::atomic::Ordering;
use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::panic::Location;

use crate::call::handle::Handle;
use crate::call::interface::{Counted, Interface, InterfaceOf};
use crate::object::create::Place;
use crate::object::distributed::Multi;
use crate::object::owned::Owned;
use crate::object::root::Root;
use crate::object::shared::shared_at;
use crate::protocol::claims::{Claim, Claims, lock};
use crate::protocol::create_error::CreateError;
use crate::protocol::id::Id;
use crate::protocol::platform::Platform;
use crate::protocol::slot::Occupant;
use crate::protocol::tables::{Cold, WELL_KNOWN, tables};

/// An object that has its id from the start: meant for a `static`.
///
/// A reference can be had before the object is installed; calls through it err until then. After the object was
/// destroyed another one may be installed: references from before stay stale, [`co`](WellKnown::co) gives new ones.
pub struct WellKnown<I: ?Sized> {
    number: u32,
    // Invariant, as in `Handle`.
    interface: PhantomData<fn(PhantomData<I>) -> PhantomData<I>>,
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
    /// If the number means another interface in this process, if there is no address space for the tables, in a forked
    /// child, and in a signal handler that interrupted a cold path on this thread.
    #[track_caller]
    pub fn co(&self) -> Handle<I> {
        let id = tables().and_then(|tables| {
            self.with_claim(|_| {
                let slot = tables.slot(self.number);
                // Relaxed: changed when an object of this number is over; either value is right in that moment.
                let generation = slot.generation.load(Ordering::Relaxed);
                // While one is being reclaimed, its generation is over already.
                let over = u32::from(matches!(slot.occupant(), Occupant::Gone(..)));
                Id::new(self.number, generation.saturating_add(over))
            })
        });
        Handle::new(id.unwrap_or_else(|error| crate::object::create::refuse(I::NAME, &error)))
    }

    /// Installs an object with one representative for everybody.
    ///
    /// # Errors
    /// [`CreateError::Taken`] if there is one, or one that is not reclaimed yet; and as [`try_shared`](crate::try_shared).
    /// # Panics
    /// If the number means another interface in this process.
    #[track_caller]
    pub fn install_shared<T>(&self, value: T) -> Result<Owned<I>, CreateError>
    where
        I: InterfaceOf<T>,
        T: Send + Sync + 'static,
    {
        let installing = self.begin()?;
        shared_at(installing.place, value)
    }

    /// Installs an object with this root.
    ///
    /// # Errors
    /// As [`install_shared`](WellKnown::install_shared).
    /// # Panics
    /// As [`install_shared`](WellKnown::install_shared); and with [`Root::EAGER`], if `make_rep` does.
    #[track_caller]
    pub fn install<R: Root<Interface = I>>(
        &self,
        root: R,
        size: ClusterSize,
    ) -> Result<Owned<I>, CreateError> {
        let installing = self.begin()?;
        Multi::make(installing.place, root, size, Location::caller())
    }

    /// Runs `f` with the claims, among which this one is.
    #[track_caller]
    fn with_claim<T>(&self, f: impl FnOnce(&mut Claims) -> T) -> Result<T, CreateError> {
        if squall_sys::fork::forked() {
            return Err(CreateError::Forked);
        }
        let tables = tables()?;
        let _cold = Cold::enter().ok_or(CreateError::Reentrant)?;
        let mut claims = lock();
        let mine = Claim { interface: TypeId::of::<I>(), name: I::NAME, first: self.number };
        let numbers = self.number..self.number + I::INTERFACES;
        // All are looked at before the first is claimed.
        if let Some((number, claim)) =
            claims.meanings.range(numbers.clone()).find(|(_, claim)| **claim != mine)
        {
            let (number, claim) = (*number, *claim);
            drop(claims);
            panic!(
                "the well-known number {number} is taken by {}, from {} on: it cannot be of {} too",
                claim.name,
                claim.first,
                I::NAME
            );
        }
        for number in numbers {
            if claims.meanings.insert(number, mine).is_none() {
                tables.slot(number).generation.store(1, Ordering::Relaxed);
            }
        }
        Ok(f(&mut claims))
    }

    /// Takes the place, if nobody has it.
    #[track_caller]
    fn begin(&self) -> Result<Installing, CreateError> {
        let tables = tables()?;
        self.with_claim(|claims| {
            let slot = tables.slot(self.number);
            let vacant = matches!(slot.occupant(), Occupant::Nobody);
            let id = Id::new(self.number, slot.generation.load(Ordering::Relaxed));
            if vacant && id.generation() != 0 && claims.installing.insert(self.number) {
                Ok(Installing { number: self.number, place: Place::Taken(id) })
            } else {
                Err(CreateError::Taken(id))
            }
        })?
    }
}

/// An object that is being built; until this is dropped nobody else begins one.
struct Installing {
    number: u32,
    place: Place,
}

impl Drop for Installing {
    fn drop(&mut self) {
        let _cold = Cold::enter();
        lock().installing.remove(&self.number);
    }
}

impl<I: ?Sized + Interface> fmt::Debug for WellKnown<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WellKnown<{}>({})", I::NAME, self.number)
    }
}
