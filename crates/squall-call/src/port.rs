//! The representative of an imported object: a port on one processor.

use squall_core::{CallError, CallErrorKind};
use squall_core::{Handle, Id, Interface, InterfaceOf, RepContext, Root};
use squall_sys::sync::StdArc as Arc;
use std::cell::Cell;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use crate::carrier::{self, Carrier};
#[cfg(all(target_os = "linux", not(miri)))]
use crate::client::Connection;
use crate::codec::{Malformed, Reader, Writer};
use crate::remote::Remote;
use crate::status::Failed;

/// The way of calls to an object elsewhere.
pub(crate) enum Way {
    /// Shared memory. A variant of its own, so that its calls are direct and use no further buffer.
    #[cfg(all(target_os = "linux", not(miri)))]
    Connection(Arc<Connection>),
    Carrier(Arc<dyn Carrier>),
}

impl Clone for Way {
    fn clone(&self) -> Way {
        match self {
            #[cfg(all(target_os = "linux", not(miri)))]
            Way::Connection(connection) => Way::Connection(connection.clone()),
            Way::Carrier(carrier) => Way::Carrier(carrier.clone()),
        }
    }
}

/// The representative of an imported object on one processor. The attribute `#[squall::interface(remote)]`
/// implements the interface for it.
///
/// Users never see a port: they call the imported object's handle.
pub struct Port<I: ?Sized> {
    way: Way,
    region: usize,
    id: Id,
    interface: PhantomData<fn(&I)>,
}

impl<I: ?Sized> std::fmt::Debug for Port<I> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("region", &self.region).finish_non_exhaustive()
    }
}

impl<I: ?Sized + Remote> Port<I> {
    /// Not public: the body of each method.
    #[doc(hidden)]
    pub fn __call<R>(
        &self,
        method: u32,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), Malformed>,
        read: impl FnOnce(&mut Reader<'_>) -> Result<R, Malformed>,
    ) -> Result<R, CallError> {
        let (region, deadline) = (self.region, DEADLINE.get());
        let result = match &self.way {
            #[cfg(all(target_os = "linux", not(miri)))]
            Way::Connection(connection) => connection.call(region, method, deadline, write, read),
            Way::Carrier(way) => carrier::call(&**way, region, method, deadline, write, read),
        };
        result.map_err(|failed| error::<I>(self.id, method, failed))
    }
}

#[cold]
fn error<I: ?Sized + Remote>(id: Id, method: u32, failed: Failed) -> CallError {
    let method = <I as Interface>::METHODS.get(method as usize).copied().unwrap_or("?");
    let kind = match failed {
        Failed::Transport(transport) => CallErrorKind::Transport(transport),
        Failed::Refused => CallErrorKind::Refused("the object in the other process refused the call"),
    };
    CallError::__remote(<I as Interface>::NAME, id, method, kind)
}

/// The root of an imported object.
pub(crate) struct Imported<I: ?Sized> {
    way: Way,
    interface: PhantomData<fn(&I)>,
}

impl<I: ?Sized> Imported<I> {
    pub(crate) fn new(way: Way) -> Imported<I> {
        Imported { way, interface: PhantomData }
    }
}

impl<I: ?Sized + Remote + InterfaceOf<Port<I>>> Root for Imported<I> {
    type Interface = I;
    type Rep = Port<I>;

    fn make_rep(&self, context: RepContext<Self>) -> Port<I> {
        Port {
            way: self.way.clone(),
            region: context.cluster().index(),
            id: Handle::id(context.handle()),
            interface: PhantomData,
        }
    }
}

impl<I: ?Sized> Drop for Imported<I> {
    fn drop(&mut self) {
        match &self.way {
            #[cfg(all(target_os = "linux", not(miri)))]
            Way::Connection(connection) => connection.end(),
            // It ends when its last port is dropped.
            Way::Carrier(_) => {}
        }
    }
}

std::thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Returns the end of `limit`, counted from now, or the deadline of [`with_deadline`] if that is earlier. A
/// limit that is too long to count has no end.
pub fn deadline_in(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit).into_iter().chain(DEADLINE.get()).min()
}

/// Runs `f`, in which imports, and calls of imported objects, must end within `limit`, counted from now.
///
/// It is one limit for all that this thread does in `f`, in place of [`ImportOptions::limit`] for each call.
/// It holds neither in threads and tasks that `f` starts, nor in shipped closures, nor in calls that the
/// methods make: these need deadlines of their own. A nested limit can only be shorter.
///
/// It holds for the stubs of `squall::fleet` too. A request that a stub has sent is not taken back, so its
/// call may begin after it has returned [`Transport::Deadline`](squall_core::Transport::Deadline).
///
/// A call that the other process does not begin in time returns
/// [`Transport::Busy`](squall_core::Transport::Busy), and never runs. One that begins and takes longer
/// returns [`Transport::Deadline`](squall_core::Transport::Deadline), and goes on there.
///
/// [`ImportOptions::limit`]: crate::ImportOptions::limit
///
/// # Cost
/// A read of the clock.
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{export_on, import_from, socket_pair, with_deadline};
/// use squall::{CallErrorKind, Transport};
/// use std::time::Duration;
///
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// # let (here, there) = socket_pair()?;
/// # let exported = export_on(stock.handle(), here)?;
/// let remote = import_from::<dyn Stock>(there)?;
/// let count = with_deadline(Duration::from_secs(60), || remote.try_count("bolt"))?;
/// assert_eq!(count, 0);
/// // Without any time, a call does not begin.
/// let late = with_deadline(Duration::ZERO, || remote.try_count("bolt")).unwrap_err();
/// assert_eq!(late.reason(), CallErrorKind::Transport(Transport::Busy));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_deadline<R>(limit: Duration, f: impl FnOnce() -> R) -> R {
    squall_rcu::__hide_from_served(squall_rcu::__State::RemoteDeadline, |f| {
        let _restore = replace_deadline(None);
        f();
    });
    let _restore = replace_deadline(deadline_in(limit));
    f()
}

/// Restores the deadline of the thread when it is dropped.
struct Restore(Option<Instant>);

impl Drop for Restore {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

fn replace_deadline(deadline: Option<Instant>) -> Restore {
    Restore(DEADLINE.replace(deadline))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn served_code_has_no_deadline_of_the_code_around_it() {
        with_deadline(Duration::from_secs(600), || {
            let outer = DEADLINE.get();
            let inner = squall_rcu::__run_served(|| {
                assert_eq!(DEADLINE.get(), None);
                with_deadline(Duration::from_secs(60), || DEADLINE.get())
            });
            assert!(outer.is_some() && inner < outer);
            assert_eq!(DEADLINE.get(), outer);
        });
    }
}
