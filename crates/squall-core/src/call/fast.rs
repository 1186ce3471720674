//! The fast path of a call: one load of the local table's entry, and one comparison of ids.
//!
//! The invariants are those of `handle.rs`. Cost: see [`Handle`].

use squall_rcu::Guard;

use crate::call::answer::Answer;
use crate::call::handle::Handle;
use crate::call::hit::{Action, Hit};
use crate::call::interface::Interface;
use crate::call::slow::{miss, refused, run_slow};
use crate::protocol::object::cached;
use crate::protocol::tables::entry_here;

impl<I: ?Sized + Interface> Handle<I> {
    /// Not public: the body of every method of a handle.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call<R>(self, method: &'static str, f: impl FnOnce(&I) -> R, gone: impl Answer<R>) -> R {
        self.__call_in(method, move |_, target| f(target), gone)
    }

    /// Not public: like [`__call`](Handle::__call), but `f` also gets the guard of the call's operation, so
    /// that it can use data that is valid only within the operation.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call_in<R>(
        self,
        method: &'static str,
        f: impl for<'o> FnOnce(&'o Guard, &'o I) -> R,
        gone: impl Answer<R>,
    ) -> R {
        self.__call_action(method, f, gone)
    }

    /// Not public: like [`__call_in`](Handle::__call_in), but `action` may also use the view, and its fast
    /// path is always compiled into the caller.
    #[doc(hidden)]
    #[inline(always)]
    #[track_caller]
    pub fn __call_action<R>(
        self,
        method: &'static str,
        action: impl Action<I, R>,
        gone: impl Answer<R>,
    ) -> R {
        // SAFETY: dropped before this function returns or unwinds, here or in `miss`.
        let entered = match unsafe { squall_rcu::__enter(self.bits_id().bits()) } {
            Ok(entered) => entered,
            Err(error) => return gone.answer(refused(self.bits_id(), I::NAME, method, error)),
        };
        // SAFETY: an object has or had this id (`handle/I1`), so the tables exist. The operation is open, and
        // the header is used in it (`handle/I2`).
        if let Some(header) = unsafe { cached(entry_here(self.bits_id().slot())) }
            // SAFETY: the header is valid in this operation (`handle/I2`).
            && unsafe { header.as_ref() }.is(self.bits_id().bits())
        {
            // SAFETY: a header of this id (`handle/I1`), found in the operation.
            let hit = unsafe { Hit::new(entered.guard(), header, entered.turn()) };
            return match action.try_fast(entered.guard(), hit) {
                Ok(result) => {
                    drop(entered);
                    result
                }
                Err(action) => run_slow(entered, self, method, action, gone),
            };
        }
        // Out of line up to the end of the call, so that a hit does not test the outcome again.
        miss(entered, self, method, action, gone)
    }
}
