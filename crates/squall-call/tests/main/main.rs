//! Tests of calls between processes: the server as another thread of this process, or as a child.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

mod common;
mod hostile;
mod inside;
mod limits;
mod processes;
