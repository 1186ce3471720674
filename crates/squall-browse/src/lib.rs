#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod actions;
mod answers;
mod between;
mod changes;
mod client;
#[cfg(all(target_os = "linux", not(miri)))]
mod connect;
#[cfg(any(test, not(all(target_os = "linux", not(miri)))))]
#[cfg_attr(test, allow(dead_code))]
mod elsewhere;
mod fleets;
#[cfg(all(target_os = "linux", not(miri)))]
mod paths;
mod pools;
mod programs;
pub mod protocol;
mod records;
mod server;
mod session;
mod short;
mod target;

pub use client::Client;
pub use programs::programs;
pub use server::{Builder, Server, THREAD_NAME};
pub use session::author;
pub use target::{ClientError, Target};

/// Serves inspection and control of this program's objects to its user, with `squall top PID`.
///
/// The socket is `squall/PID.sock` in the user's run-time folder (`XDG_RUNTIME_DIR`), or otherwise
/// `/tmp/squall-UID/PID.sock`. Only the user can access it and its folder. It exists as long as the returned
/// [`Server`].
///
/// # Errors
/// See [`Builder::serve`]. On systems other than Linux, `Unsupported`.
/// # Cost
/// One thread from this call on. It sleeps while there is no request. While no client is connected, it is the
/// only cost: the buffers of a client are freed with its connection. Calls of objects have no extra cost,
/// with two exceptions: calls of an object while they are counted, and while it is swapped.
///
/// ```
/// use squall::browse::{Client, Target, protocol::ListQuery};
///
/// let server = squall::browse::serve()?;
/// let mut client = Client::connect(&Target::Process(std::process::id()))?;
/// assert_eq!(client.hello()?.pid, std::process::id());
/// assert!(client.list(&ListQuery::default())?.objects.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve() -> std::io::Result<Server> {
    Builder::new().serve()
}
