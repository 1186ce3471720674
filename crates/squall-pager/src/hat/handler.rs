//! The handler of faults: it finds the mapping of the address, and brings the page in.
//!
//! The thread itself does the work, unless it is inside an operation. Then it finds resident pages alone, and
//! the service thread does the rest.

use squall_sys::fault::{self, Answer, Fault};
use std::io;
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
