//! The handler of faults: it finds the mapping of the address, and brings the page in.
//!
//! The thread itself does the work, unless it is inside an operation. Then the service thread does it.
//!
//! - I1. The handler runs no deferred call of the program. Such a call may touch a page, and a fault within
//!   a fault ends the process. Or it may wait for a lock that the interrupted code holds.

use squall_sys::fault::{self, Answer, Fault};
use std::any::Any;
use std::fmt;
use std::io;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use super::{maps, service};
use crate::access::Access;

/// Installs the handler, once.
pub(super) fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();
    // SAFETY: 1. The handler runs code of the pager. Users of a mapping agreed to that (`map`). 2. The pager
    // touches no mapped address. 3. This is the only change of the action here.
    let installed = INSTALLED.get_or_init(|| unsafe { fault::install(handle) }.map_err(|error| error.kind()));
    installed.map_err(io::Error::from)
}

fn handle(fault: &Fault) -> Answer {
    let quiet = squall_rcu::__callback_free();
    // A panic may not leave a signal handler.
    let answer = catch_unwind(AssertUnwindSafe(|| answer(fault)));
    let answer = answer.unwrap_or_else(|payload| {
        maps::tell(fault.address, &Panicked(&*payload));
        // Its drop may panic too.
        mem::forget(payload);
        Answer::Pass
    });
    // The calls that fell due run after the handler (I1).
    quiet.end_without_calls();
    answer
}

fn answer(fault: &Fault) -> Answer {
    let Some(map) = maps::find(fault.address) else { return Answer::Pass };
    // A processor that does not tell is taken to write: the page is then dirty without need.
    let access = if fault.is_write.unwrap_or(true) { Access::Write } else { Access::Read };
    if squall_rcu::in_operation() {
        return if service::bring(fault.address, access) { Answer::Resume } else { Answer::Pass };
    }
    match map.resolve(fault.address, access) {
        Ok(()) => Answer::Resume,
        Err(error) => {
            maps::tell(fault.address, &error);
            Answer::Pass
        }
    }
}

/// A panic of an object on the way to a page.
pub(super) struct Panicked<'a>(pub(super) &'a (dyn Any + Send));

impl fmt::Display for Panicked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| self.0.downcast_ref::<&str>().copied()).unwrap_or("without a message");
        write!(f, "its region, file cache or source panicked: {text}")
    }
}
