//! Arbitration: a user's function that runs around the calls of an object.

use squall_sys::sync::atomic::{AtomicBool, Ordering};
use std::fmt;

use crate::call::error::{CallError, CallErrorKind};
use crate::protocol::id::Id;

pub(crate) type Function = Box<dyn Fn(&mut Call<'_>) + Send + Sync>;

/// A function that calls of an object go through.
pub(crate) struct Arbitration {
    pub(crate) function: Function,
    /// The only method that goes through the function. If empty, every method does.
    pub(crate) method: Option<&'static str>,
    // Set to false when the function is detached.
    pub(crate) live: AtomicBool,
}

/// Whether this method bypasses arbiters, because it ends the work of an earlier call.
pub(crate) fn is_exempt(method: &str) -> bool {
    method.ends_with("_unarbitrated")
}

impl Arbitration {
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether calls of this method go through the function.
    pub(crate) fn is_of(&self, method: &str) -> bool {
        !is_exempt(method) && self.method.is_none_or(|only| only == method)
    }

    /// Sends a call, which `run` makes, through the function. Returns an error if the function refused the
    /// call, or caught a panic of its method.
    pub(crate) fn call(
        &self,
        interface: &'static str,
        id: Id,
        method: &'static str,
        run: &mut dyn FnMut(),
    ) -> Result<(), CallError> {
        let mut call = Call { interface, id, method, run, state: CallState::Waiting };
        (self.function)(&mut call);
        if let CallState::Waiting = call.state {
            call.proceed();
        }
        let why = match call.state {
            CallState::Returned => return Ok(()),
            CallState::Refused(why) => why,
            CallState::Waiting | CallState::Made => "its method panicked, and the arbiter caught the panic",
        };
        Err(CallError::unnamed(None, id, CallErrorKind::Refused(why)))
    }
}

/// A call on its way through an arbiter's function.
///
/// The function may let the call [proceed](Call::proceed) or [refuse](Call::refuse) it. If it does neither,
/// the call proceeds when the function returns.
///
/// ```
/// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
/// use squall::swap::arbitrate;
///
/// let counter = squall::shared::<dyn Counter, _>(Central::default());
/// let arbiter = arbitrate(counter.handle(), |call| {
///     if call.method() == "add" {
///         call.refuse("the counter is frozen");
///     }
/// })?;
/// assert_eq!(counter.get(), 0);
/// assert!(counter.try_add(1).is_err());
/// drop(arbiter);
/// counter.add(1);
/// # Ok::<(), squall::swap::SwapError>(())
/// ```
pub struct Call<'a> {
    interface: &'static str,
    id: Id,
    method: &'static str,
    run: &'a mut dyn FnMut(),
    state: CallState,
}

#[derive(Clone, Copy)]
enum CallState {
    Waiting,
    /// The method was called, and has not returned.
    Made,
    Returned,
    Refused(&'static str),
}

impl Call<'_> {
    /// Returns the name of the interface through which the object was called.
    pub fn interface(&self) -> &'static str {
        self.interface
    }

    /// Returns the id of the object under that interface.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns the name of the method.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Runs the method now, so that the function can act after it. Further calls have no effect, and neither
    /// has a call after a refusal.
    ///
    /// # Panics
    /// If the method panics. Let the panic pass, so that it reaches the caller.
    ///
    /// ```
    /// # mod ex { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/docs/counter.rs")); } use ex::*;
    /// use squall::swap::arbitrate;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let counter = squall::shared::<dyn Counter, _>(Central::default());
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let sink = Arc::clone(&log);
    /// let _arbiter = arbitrate(counter.handle(), move |call| {
    ///     call.proceed();
    ///     sink.lock().unwrap().push(call.method());
    /// })?;
    /// counter.add(1);
    /// assert_eq!(*log.lock().unwrap(), ["add"]);
    /// # Ok::<(), squall::swap::SwapError>(())
    /// ```
    pub fn proceed(&mut self) {
        if let CallState::Waiting = self.state {
            self.state = CallState::Made;
            (self.run)();
            self.state = CallState::Returned;
        }
    }

    /// Rejects the call with this reason ([`CallErrorKind::Refused`]). After [`proceed`](Call::proceed) it
    /// has no effect.
    pub fn refuse(&mut self, why: &'static str) {
        if let CallState::Waiting = self.state {
            self.state = CallState::Refused(why);
        }
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({}#{}.{}())", self.interface, self.id, self.method)
    }
}
