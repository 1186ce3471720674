//! Arbitration: a user's function around the calls of an object.

use squall_sys::sync::atomic::{AtomicBool, Ordering};
use std::fmt;

use crate::call::error::{CallError, CallErrorKind};
use crate::protocol::id::Id;

pub(crate) type Function = Box<dyn Fn(&mut Call<'_>) + Send + Sync>;

/// A function by way of which calls go.
pub(crate) struct Arbitration {
    pub(crate) function: Function,
    /// The only method that it is for, if it is not for all.
    pub(crate) method: Option<&'static str>,
    // Written when it is detached.
    pub(crate) live: AtomicBool,
}

impl Arbitration {
    pub(crate) fn is_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }

    /// Whether calls of this method go by way of it.
    pub(crate) fn is_of(&self, method: &str) -> bool {
        self.method.is_none_or(|only| only == method)
    }

    /// Sends a call by way of the function. Returns its result, or that the function refused it.
    pub(crate) fn call<R>(
        &self,
        interface: &'static str,
        id: Id,
        method: &'static str,
        f: impl FnOnce() -> R,
    ) -> Result<R, CallError> {
        let (mut f, mut result) = (Some(f), None);
        let mut run = || {
            if let Some(f) = f.take() {
                result = Some(f());
            }
        };
        let mut call = Call { interface, id, method, run: &mut run, state: CallState::Waiting };
        (self.function)(&mut call);
        if let CallState::Waiting = call.state {
            call.proceed();
        }
        let state = call.state;
        match (result, state) {
            (Some(result), _) => Ok(result),
            (None, CallState::Refused(why)) => Err(CallError::unnamed(None, id, CallErrorKind::Refused(why))),
            (None, _) => {
                Err(CallError::unnamed(None, id, CallErrorKind::Refused("its method panicked before")))
            }
        }
    }
}

/// A call on its way through an arbiter.
///
/// If the function neither lets it [`proceed`](Call::proceed) nor [refuses](Call::refuse) it, the call goes on when the
/// function has returned.
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
    Made,
    Refused(&'static str),
}

impl Call<'_> {
    /// The interface by which it was called.
    pub fn interface(&self) -> &'static str {
        self.interface
    }

    /// The object, as that interface.
    pub fn id(&self) -> Id {
        self.id
    }

    /// The method.
    pub fn method(&self) -> &'static str {
        self.method
    }

    /// Runs the method now, so that the function may do something after it. Once; later calls of this do nothing, and so do
    /// those after a refusal.
    ///
    /// # Panics
    /// If the method does: let that through, so that it reaches the caller.
    pub fn proceed(&mut self) {
        if let CallState::Waiting = self.state {
            self.state = CallState::Made;
            (self.run)();
        }
    }

    /// The call errs, for this reason ([`CallErrorKind::Refused`]). Not after it was made.
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
