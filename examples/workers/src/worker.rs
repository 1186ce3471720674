//! A worker process.

use std::error::Error;
use std::time::Duration;

use squall::call::ImportOptions;
use squall::{CallErrorKind, Handle, Transport};

use crate::service::{Drain, Left, Requests, Sessions};

/// The number of threads of a worker.
pub(crate) const THREADS: u64 = 2;

/// Serves requests until the server drains, and prints their number.
pub(crate) fn run(names: &str) -> Result<(), Box<dyn Error>> {
    // The worker fails, and does not hang, if the server does.
    let options = ImportOptions::new().limit(Duration::from_secs(60));
    let requests = options.import::<dyn Requests>(&format!("{names}.requests"))?;
    let sessions = options.import::<dyn Sessions>(&format!("{names}.sessions"))?;
    let drain = options.import::<dyn Drain>(&format!("{names}.drain"))?;
    let denied = sessions.try_log_out(1).map_err(|error| error.reason());
    assert_eq!(denied, Err(CallErrorKind::Transport(Transport::Denied)), "a worker ended a session");
    let (requests, sessions, drain) = (requests.handle(), sessions.handle(), drain.handle());
    let served = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || serve(requests, sessions, drain, thread)))
            .collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().expect("a thread of the worker panicked"));
        joined.sum::<Result<u64, Left>>()
    })?;
    println!("{served}");
    Ok(())
}

/// Serves requests of all sessions in turn, and returns their number.
fn serve(
    requests: Handle<dyn Requests>,
    sessions: Handle<dyn Sessions>,
    drain: Handle<dyn Drain>,
    thread: u64,
) -> Result<u64, Left> {
    let tokens = sessions.tokens();
    for served in 0.. {
        match drain.enter() {
            Ok(()) => {}
            Err(Left::Drained) => return Ok(served),
            Err(lost) => return Err(lost),
        }
        let token = tokens[(thread + served) as usize % tokens.len()];
        let session = sessions.try_request(token)?.expect("the server keeps the sessions of its workers");
        assert!(session.requests > 0 && session.user.starts_with("user"));
        requests.try_served()?;
        drain.try_leave()?;
    }
    unreachable!("the server drains before 2^64 requests")
}
