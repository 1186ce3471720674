#![forbid(unsafe_code)]
//! Looking at the objects of a running program, and steering them.
//!
#![doc = include_str!("../README.md")]

mod answers;
mod client;
mod paths;
pub mod protocol;
mod server;

pub use client::{Client, ClientError, Target};
pub use server::{Builder, Server, THREAD_NAME};

/// Lets the program's user look at its objects, and steer them, with `squall top PID`.
///
/// The socket is `squall/PID.sock` in the user's run-time folder (`XDG_RUNTIME_DIR`), or else `/tmp/squall-UID/PID.sock`.
/// It and its folder are the user's alone. It is there for as long as the value that is returned.
///
/// # Errors
/// See [`Builder::serve`].
/// # Cost
/// A thread that sleeps while nobody asks. Calls cost nothing more while somebody looks, but those of an object while its
/// calls are counted, and while it is swapped.
///
/// ```
/// use squall_browse::{Client, Target, protocol::ListQuery};
///
/// let server = squall_browse::serve()?;
/// let mut client = Client::connect(&Target::Process(std::process::id()))?;
/// assert_eq!(client.hello()?.pid, std::process::id());
/// assert!(client.list(&ListQuery::default())?.objects.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn serve() -> std::io::Result<Server> {
    Builder::new().serve()
}
