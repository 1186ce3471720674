//! Imports that survive the end of their server.
//!
//! Problem: an import ends with its server. Each client then needs the same code: import again, with retries;
//! let one of several threads do so; repeat the failed call only if its method has not run.
//!
//! Idea: the owner lies in a lock, and its handle in a read-copy-update cell, so that callers write no shared
//! line. One thread at a time has the *turn* to import again. The others wait for it.
//!
//! - I1. An import is replaced only by a thread that names its handle. So several threads that saw the end of
//!   one import replace it once.
//! - I2. No user code runs under the lock: owners are dropped, and handles retired, after it is released.
//! - I3. The thread that has the turn never waits for it. A call of [`RenewableImport::renew`] within another
//!   one of its thread (in a destructor) imports the object itself; the outer one then finds it replaced.

use squall_core::{CallError, CallErrorKind, Handle, Interface, InterfaceOf, Owned, Transport};
use squall_machine::park::{EventCount, is_past, time_left};
use squall_rcu::{__try_pin, Rcu};
use squall_sys::sync::{Mutex, lock};
use std::fmt;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use super::{ImportError, ImportOptions};
use crate::port::{Port, deadline_in, with_deadline};
use crate::remote::Remote;
use crate::sleep::Pauses;

/// An imported object that is imported again when its server has ended and started again.
///
/// [`call`](Self::call) does all that a client needs. [`handle`](Self::handle) and [`renew`](Self::renew) are
/// its parts, for a client that decides by itself. Both block, so async tasks use `spawn_blocking`.
///
/// Each import is an object of its own. Its server sees a new connection: state that the server keeps for a
/// caller ([`Caller::value`](crate::Caller::value)) begins anew.
///
/// # Cost
/// A call: a read section, two plain stores more than a call through a handle.
/// # Examples
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
/// use squall::call::{ImportOptions, RenewableImport, export};
/// use std::time::Duration;
///
/// # let name = &format!("docs-renewable-{}", std::process::id());
/// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
/// # let exported = export(stock.handle(), name)?;
/// let second = Duration::from_secs(1);
/// let options = ImportOptions::new().limit(second);
/// // Waits up to a minute for a server that has not started yet.
/// let remote = RenewableImport::<dyn Stock>::new(options, name, 60 * second)?;
/// assert_eq!(remote.call(60 * second, |stock| stock.try_add("bolt", 1))?, 1);
/// # drop(exported);
/// # let exported = export(stock.handle(), name)?;
/// // The server ended, and another one has the name. A count may be repeated whether or not it ran.
/// let count = (0..2).find_map(|_| remote.call(60 * second, |stock| stock.try_count("bolt")).ok());
/// assert_eq!(count, Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RenewableImport<I: ?Sized + Interface> {
    options: ImportOptions,
    name: Box<str>,
    /// The handle of the owner, for callers. Follows it.
    handle: Rcu<Handle<I>>,
    state: Mutex<State<I>>,
    /// The turn has ended.
    ended: EventCount,
}

struct State<I: ?Sized + Interface> {
    owner: Owned<I>,
    /// The thread that has the turn.
    turn: Option<ThreadId>,
}

impl<I: ?Sized + Remote + InterfaceOf<Port<I>>> RenewableImport<I> {
    /// Imports the object with this name. Tries again for up to `limit` while the error
    /// [is transient](ImportError::is_transient), for example because the server has not started yet.
    ///
    /// # Errors
    /// The error of the last attempt: see [`import`](crate::import).
    pub fn new(
        options: ImportOptions,
        name: &str,
        limit: Duration,
    ) -> Result<RenewableImport<I>, ImportError> {
        let owner = import_within(&options, name, deadline_in(limit))?;
        let handle = Rcu::new(Box::new(owner.handle()));
        let state = Mutex::new(State { owner, turn: None });
        Ok(RenewableImport { options, name: name.into(), handle, state, ended: EventCount::new() })
    }

    /// Returns the handle of the present import. No lock is held while it is called.
    pub fn handle(&self) -> Handle<I> {
        // No operation is possible in a forked child, where calls of the handle fail.
        __try_pin(|operation| *self.handle.load(operation)).unwrap_or_else(|_| self.state().owner.handle())
    }

    /// Calls `f` with the handle of the present import; `f` makes one call. If the server has ended,
    /// imports the object again within `limit`, and runs `f` once more if the method has not run. Calls
    /// that `f` makes before the one that fails are repeated, too. Even an error that is certain comes
    /// after the import. An error that the method itself returned leaves the import as it is.
    ///
    /// # Errors
    /// The error of `f`. If the method may have run before the server ended ([`CallError::may_have_run`]),
    /// the next call goes to the new import. Repeat it if it is idempotent.
    pub fn call<R>(
        &self,
        limit: Duration,
        mut f: impl FnMut(Handle<I>) -> Result<R, CallError>,
    ) -> Result<R, CallError> {
        let handle = self.handle();
        let error = match f(handle) {
            Err(error) if has_ended(handle, &error) => error,
            other => return other,
        };
        match self.renew(handle, limit) {
            Ok(renewed) if !error.may_have_run() => f(renewed),
            _ => Err(error),
        }
    }

    /// Imports the object again, unless another thread has replaced the import `failed`, and returns the
    /// handle of the present import.
    ///
    /// Call it if the connection of `failed` has ended: a call returned [`Transport::PeerGone`],
    /// [`Transport::Disconnected`] or [`Transport::NoSuchObject`]. An error that the method returned as a
    /// value says nothing about the connection. A connection that works is ended, too.
    ///
    /// One thread at a time imports, and the others wait for it. Attempts are repeated for up to `limit`
    /// while the error [is transient](ImportError::is_transient). The pauses between them grow from 1 to
    /// 100 ms. [`with_deadline`] can shorten the time.
    ///
    /// # Errors
    /// The error of the last attempt. [`ImportError::TimedOut`] if `limit` passes while another thread
    /// imports.
    /// # Cost
    /// That of an [`import`](crate::import). A lock, if the import was replaced.
    /// # Examples
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/stock.rs")); } use ex::*;
    /// use squall::call::{ImportOptions, RenewableImport, disconnect, export};
    /// use std::time::Duration;
    ///
    /// # let name = &format!("docs-renew-{}", std::process::id());
    /// # let stock = squall::shared::<dyn Stock, _>(InMemory::default());
    /// # let exported = export(stock.handle(), name)?;
    /// let minute = Duration::from_secs(60);
    /// let remote = RenewableImport::<dyn Stock>::new(ImportOptions::new(), name, minute)?;
    /// let failed = remote.handle();
    /// disconnect(failed); // for this demonstration
    /// assert!(failed.try_add("bolt", 1).is_err());
    /// let renewed = remote.renew(failed, minute)?;
    /// assert_eq!(renewed.try_add("bolt", 1)?, 1);
    /// // Another thread that saw the same failure gets the same import.
    /// assert_eq!(remote.renew(failed, minute)?, renewed);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew(&self, failed: Handle<I>, limit: Duration) -> Result<Handle<I>, ImportError> {
        let deadline = deadline_in(limit);
        let turn = match self.turn(failed, deadline) {
            Ok(turn) => turn,
            Err(Waited::Replaced(handle)) => return Ok(handle),
            Err(Waited::TooLong) => return Err(ImportError::TimedOut),
        };
        let new = import_within(&self.options, &self.name, deadline)?;
        let (handle, unused) = self.replace(failed, new);
        if unused.handle() == failed {
            self.handle.replace(Box::new(handle));
        }
        drop(turn);
        drop(unused);
        Ok(handle)
    }

    /// Waits for the turn, while the import is `failed`.
    fn turn(
        &self,
        failed: Handle<I>,
        deadline: Option<Instant>,
    ) -> Result<Option<Turn<'_, I>>, Waited<Handle<I>>> {
        let me = thread::current().id();
        loop {
            let seen = self.ended.prepare();
            let mut state = self.state();
            if state.owner.handle() != failed {
                return Err(Waited::Replaced(state.owner.handle()));
            }
            match state.turn {
                None => {
                    state.turn = Some(me);
                    return Ok(Some(Turn(self)));
                }
                Some(thread) if thread == me => return Ok(None),
                Some(_) => {}
            }
            drop(state);
            if is_past(deadline) {
                return Err(Waited::TooLong);
            }
            self.ended.wait(seen, time_left(deadline));
        }
    }

    /// Replaces the owner if it is still the one of `failed`. Returns the present handle, and the owner to
    /// drop.
    fn replace(&self, failed: Handle<I>, new: Owned<I>) -> (Handle<I>, Owned<I>) {
        let mut state = self.state();
        let present = state.owner.handle();
        if present != failed {
            return (present, new);
        }
        let handle = new.handle();
        (handle, std::mem::replace(&mut state.owner, new))
    }
}

impl<I: ?Sized + Interface> RenewableImport<I> {
    fn state(&self) -> squall_sys::sync::MutexGuard<'_, State<I>> {
        lock(&self.state, "a renewable import")
    }
}

impl<I: ?Sized + Interface> fmt::Debug for RenewableImport<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.state().owner.handle();
        f.debug_struct("RenewableImport").field("name", &self.name).field("object", &object).finish()
    }
}

/// The right to import again.
struct Turn<'a, I: ?Sized + Interface>(&'a RenewableImport<I>);

impl<I: ?Sized + Interface> Drop for Turn<'_, I> {
    fn drop(&mut self) {
        self.0.state().turn = None;
        self.0.ended.signal(u32::MAX);
    }
}

/// Why a thread that waited for the turn does not get it.
enum Waited<H> {
    /// Another thread replaced the import by this one.
    Replaced(H),
    /// The deadline passed.
    TooLong,
}

/// Longest pause between two attempts.
const PAUSE_MAX: Duration = Duration::from_millis(100);

fn import_within<I: ?Sized + Remote + InterfaceOf<Port<I>>>(
    options: &ImportOptions,
    name: &str,
    deadline: Option<Instant>,
) -> Result<Owned<I>, ImportError> {
    let mut pauses = Pauses::up_to(PAUSE_MAX);
    loop {
        let attempt = || options.import(name);
        let result = match time_left(deadline) {
            Some(left) => with_deadline(left, attempt),
            None => attempt(),
        };
        match &result {
            Err(error) if error.is_transient() && !is_past(deadline) => {}
            _ => return result,
        }
        pauses.sleep(deadline);
        if is_past(deadline) {
            return result;
        }
    }
}

/// Whether this error of a call means that the import has ended. An error that a method returned as a value
/// has an id of the server's process, which may equal that of the import.
fn has_ended<I: ?Sized>(handle: Handle<I>, error: &CallError) -> bool {
    use Transport::{Disconnected, NoSuchObject, PeerGone};
    let ended = match error.reason() {
        // Another thread has replaced the import.
        CallErrorKind::Destroyed => true,
        CallErrorKind::Transport(transport) => matches!(transport, PeerGone | Disconnected | NoSuchObject),
        _ => false,
    };
    ended && !error.__is_received() && error.id() == Handle::id(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hidden modules of the façade, which the attribute names.
    mod facade {
        pub(crate) use squall_core::__macro;
        pub(crate) mod call {
            pub(crate) use crate::__macro;
        }
    }

    #[squall_macros::interface(crate = crate::client::renewable::tests::facade, remote)]
    trait Echo: Send + Sync {
        fn echo(&self, n: u64) -> u64;
    }

    struct Plain;

    impl Echo for Plain {
        fn echo(&self, n: u64) -> u64 {
            n
        }
    }

    #[test]
    fn one_thread_has_the_turn_and_never_waits_for_it() {
        let plain = || squall_core::shared::<dyn Echo, _>(Plain);
        let owner = plain();
        let failed = owner.handle();
        let remote = RenewableImport {
            options: ImportOptions::new(),
            name: "unused".into(),
            handle: Rcu::new(Box::new(failed)),
            state: Mutex::new(State { owner, turn: None }),
            ended: EventCount::new(),
        };
        let past = Some(Instant::now());
        let turn = remote.turn(failed, past).ok().flatten().expect("no thread has it");
        thread::scope(|scope| {
            let other = scope.spawn(|| matches!(remote.turn(failed, past), Err(Waited::TooLong)));
            assert!(other.join().unwrap());
            // The calling thread has it, so it goes on without.
            assert!(matches!(remote.turn(failed, past), Ok(None)));
            let (handle, old) = remote.replace(failed, plain());
            assert_eq!(old.handle(), failed);
            // The others see the new import before the turn ends.
            let other = scope.spawn(|| matches!(remote.turn(failed, past), Err(Waited::Replaced(_))));
            assert!(other.join().unwrap());
            // A second one of the calling thread is not used.
            let (present, unused) = remote.replace(failed, plain());
            assert!(present == handle && unused.handle() != handle);
            drop(turn);
            assert!(matches!(remote.turn(handle, past), Ok(Some(_))), "it is free again");
        });
    }
}
