//! Objects at fixed ids, which callers know before the object exists.
//!
//! - I1. A number means one interface in the whole process: the first one that asks for it. So the bits of a
//!   handle to it belong to that interface (`handle/I1`).
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

/// An object whose id is fixed from the start. Meant for a `static`.
///
/// Handles can be obtained before the object is installed; calls through them fail until then. After the
/// object was destroyed, another one may be installed. Older handles stay stale;
/// [`handle`](WellKnown::handle) returns new ones.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::WellKnown;
///
/// static REQUESTS: WellKnown<dyn Counter> = WellKnown::new(7);
///
/// assert!(REQUESTS.handle().try_add(1).is_err()); // not installed yet
/// let owner = REQUESTS.install_shared(Central::default())?;
/// REQUESTS.handle().add(1);
/// assert_eq!(owner.get(), 1);
/// # Ok::<(), squall::CreateError>(())
/// ```
pub struct WellKnown<I: ?Sized> {
    number: u32,
    // Invariant, for the reason given in `Handle`.
    interface: PhantomData<fn(PhantomData<I>) -> PhantomData<I>>,
}

impl<I: ?Sized + Interface> WellKnown<I> {
    /// Makes the object with this number, starting from 0. An interface that extends `k` others uses `k`
    /// further numbers.
    ///
    /// # Panics
    /// If the last of the numbers is not below 512. In a `static` that is a compile-time error.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// static HITS: squall::WellKnown<dyn Counter> = squall::WellKnown::new(8);
    /// assert!(HITS.handle().try_get().is_err());
    /// ```
    pub const fn new(number: u32) -> WellKnown<I> {
        assert!(
            number + I::INTERFACES <= WELL_KNOWN,
            "the well-known numbers of this object are not all below 512"
        );
        WellKnown { number, interface: PhantomData }
    }

    /// Returns a handle to the installed object, or else to the next one that will be installed.
    ///
    /// # Panics
    /// If the number means another interface in this process, or if there is no memory for the tables.
    /// Also in a forked child, and in a signal handler that interrupted a slow path of Squall on this thread.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// static MISSES: squall::WellKnown<dyn Counter> = squall::WellKnown::new(9);
    /// let early = MISSES.handle();
    /// let _owner = MISSES.install_shared(Central::default())?;
    /// early.add(1); // the handle from before the installation works
    /// # Ok::<(), squall::CreateError>(())
    /// ```
    #[track_caller]
    pub fn handle(&self) -> Handle<I> {
        let id = tables().and_then(|tables| {
            self.with_claim(|_| {
                let slot = tables.slot(self.number);
                // Relaxed: the generation changes when an object of this number is over; both values are
                // correct at that moment.
                let generation = slot.generation.load(Ordering::Relaxed);
                // While an object is being reclaimed, its generation is already over.
                let over = u32::from(matches!(slot.occupant(), Occupant::Gone(..)));
                Id::new(self.number, generation.saturating_add(over))
            })
        });
        Handle::new(id.unwrap_or_else(|error| crate::object::create::refuse(I::NAME, &error)))
    }

    /// Installs an object with one representative for all callers.
    ///
    /// # Errors
    /// [`CreateError::Taken`] if an object is installed, or the last one is not reclaimed yet. Otherwise the
    /// errors of [`try_shared`](crate::try_shared).
    /// # Panics
    /// If the number means another interface in this process.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// static TOTAL: squall::WellKnown<dyn Counter> = squall::WellKnown::new(10);
    /// let _owner = TOTAL.install_shared(Central::default())?;
    /// assert!(TOTAL.install_shared(Central::default()).is_err()); // taken
    /// # Ok::<(), squall::CreateError>(())
    /// ```
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
    /// [`CreateError::Taken`] if an object is installed, or the last one is not reclaimed yet. Otherwise the
    /// errors of [`Root::try_create`].
    /// # Panics
    /// If the number means another interface in this process; with [`Root::EAGER`], if `make_rep` panics.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// static EVENTS: squall::WellKnown<dyn Counter> = squall::WellKnown::new(11);
    /// let _owner = EVENTS.install(Spread, squall::ClusterSize::Cpu)?;
    /// EVENTS.handle().add(1);
    /// # Ok::<(), squall::CreateError>(())
    /// ```
    #[track_caller]
    pub fn install<R: Root<Interface = I>>(
        &self,
        root: R,
        size: ClusterSize,
    ) -> Result<Owned<I>, CreateError> {
        let installing = self.begin()?;
        Multi::make(installing.place, root, size, Location::caller())
    }

    /// Claims the numbers for this interface, then runs `f` with all claims.
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
        // All numbers are checked before the first is claimed.
        let other = claims.meanings.iter().find(|(number, claim)| numbers.contains(number) && *claim != mine);
        if let Some((number, claim)) = other.copied() {
            drop(claims);
            panic!(
                "the well-known number {number} belongs to {}, which starts at {}; choose another number for {}",
                claim.name,
                claim.first,
                I::NAME
            );
        }
        claims.meanings.try_reserve(numbers.len()).map_err(|_| CreateError::no_memory())?;
        for number in numbers {
            if !claims.meanings.iter().any(|(claimed, _)| *claimed == number) {
                claims.meanings.push((number, mine));
                tables.slot(number).generation.store(1, Ordering::Relaxed);
            }
        }
        Ok(f(&mut claims))
    }

    /// Reserves the slot if it is vacant.
    #[track_caller]
    fn begin(&self) -> Result<Installing, CreateError> {
        let tables = tables()?;
        self.with_claim(|claims| {
            let slot = tables.slot(self.number);
            let vacant = matches!(slot.occupant(), Occupant::Empty);
            let id = Id::new(self.number, slot.generation.load(Ordering::Relaxed));
            if !vacant || id.generation() == 0 || claims.installing.contains(&self.number) {
                return Err(CreateError::Taken(id));
            }
            claims.installing.try_reserve(1).map_err(|_| CreateError::no_memory())?;
            claims.installing.push(self.number);
            Ok(Installing { number: self.number, place: Place::Taken(id) })
        })?
    }
}

/// An object that is being built. Until this value is dropped, no other thread can begin another one.
struct Installing {
    number: u32,
    place: Place,
}

impl Drop for Installing {
    fn drop(&mut self) {
        let _cold = Cold::enter();
        lock().installing.retain(|number| *number != self.number);
    }
}

impl<I: ?Sized + Interface> fmt::Debug for WellKnown<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WellKnown<{}>({})", I::NAME, self.number)
    }
}
