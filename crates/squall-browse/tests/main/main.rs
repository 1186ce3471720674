//! Tests of the server and the client over real sockets.

mod adaptive;
#[cfg(all(feature = "call", target_os = "linux", not(miri)))]
mod between;
mod common;
#[cfg(all(feature = "fleet", target_os = "linux", not(miri)))]
mod fleets;
#[path = "../../../squall-rcu/tests/forked/mod.rs"]
mod forked;
mod fuzz;
mod hostile;
mod looking;
mod of_one;
#[cfg(all(feature = "pool", target_os = "linux", not(miri)))]
mod pools;
mod process;
mod steering;
