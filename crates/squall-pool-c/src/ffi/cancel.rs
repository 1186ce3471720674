//! Calls of this library as no points of cancellation.
//!
//! Problem: pthread_cancel(3) ends a thread at its next call of the C library that may wait, by a foreign
//! exception through all frames. One that reaches a frame of Rust may abort the process. Idea: a guard for
//! each call.

use std::ffi::c_int;
use std::ptr::null_mut;

/// The value of `<pthread.h>` on Linux.
const PTHREAD_CANCEL_DISABLE: c_int = 1;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old_state: *mut c_int) -> c_int;
}

/// Delays the cancellation of its thread until it is dropped.
pub(crate) struct NoCancellation {
    before: c_int,
    /// The state is one of the thread.
    _not_send: std::marker::PhantomData<*mut ()>,
}

impl NoCancellation {
    pub(crate) fn new() -> NoCancellation {
        let mut before = PTHREAD_CANCEL_DISABLE;
        // SAFETY: the state is a valid one, and the pointer is one to an `int` of this frame. With a valid
        // state, the function does not fail.
        unsafe { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut before) };
        NoCancellation { before, _not_send: std::marker::PhantomData }
    }
}

impl Drop for NoCancellation {
    fn drop(&mut self) {
        // SAFETY: the state is that which this thread had. Null is allowed on Linux, for a state that is not
        // wanted. No cancellation happens here, since the function is no point of it.
        unsafe { pthread_setcancelstate(self.before, null_mut()) };
    }
}
