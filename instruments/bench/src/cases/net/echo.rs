//! Round trips over any transport of `squall-fleet`: a server that sends each frame back, and a client.
//!
//! The crates in `engines/` include this file, so that all engines run equal code. Both sides are processes
//! of their own. They end with their standard input. The server prints `ready ENDPOINT`. The client prints
//! `ready` after its first round trip, and then obeys lines:
//!
//! - a number: does so many round trips, one after the other, and prints `done`;
//! - `lost`: waits until the engine knows of no connection, and prints `lost`;
//! - `found`: sends until a frame comes back, and prints `found`.
//!
//! - I1. A frame carries its number. The client counts it only if it is the one that it waits for, so a late
//!   or repeated frame ends no round trip.

use squall_fleet::{Receiver, Transport};
use std::io::{self, BufRead, Write, stdin, stdout};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest time without an answer.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two frames of a client that waits for a connection.
const AGAIN: Duration = Duration::from_millis(5);
/// The time between two looks at the state of a connection.
const LOOK: Duration = Duration::from_millis(1);

/// Sends each frame back, until the standard input ends.
pub(crate) fn serve(transport: &Arc<impl Transport>) -> io::Result<()> {
    let answers = Arc::downgrade(transport);
    transport.start(Receiver::new(move |from: &str, frame: &[u8]| {
        if let Some(transport) = answers.upgrade() {
            transport.send(from, frame);
        }
    }))?;
    say(&format!("ready {}", transport.endpoint()))?;
    io::copy(&mut stdin(), &mut io::sink())?;
    transport.stop();
    Ok(())
}

/// Does round trips on command. `connected` says whether the engine has a connection.
///
/// With `waits`, the calling thread sends each frame after it was woken by the frame before. Else the
/// receiver sends it.
pub(crate) fn client<T: Transport>(
    transport: &Arc<T>,
    to: &str,
    bytes: usize,
    waits: bool,
    connected: impl Fn(&T) -> bool,
) -> io::Result<()> {
    let trips = Arc::new(Trips::default());
    let (receiving, sender, server) = (Arc::clone(&trips), Arc::downgrade(transport), to.to_owned());
    transport.start(Receiver::new(move |_: &str, frame: &[u8]| {
        if let (Some(number), Some(transport)) = (receiving.answered(frame, waits), sender.upgrade()) {
            transport.send(&server, &frame_of(number, frame.len()));
        }
    }))?;
    find(&**transport, to, bytes, &trips)?;
    say("ready")?;
    for line in stdin().lock().lines() {
        match line?.as_str() {
            "lost" => {
                let began = Instant::now();
                while connected(transport) {
                    if began.elapsed() > PATIENCE {
                        return Err(io::Error::other("the engine did not notice"));
                    }
                    std::thread::sleep(LOOK);
                }
                say("lost")?;
            }
            "found" => {
                find(&**transport, to, bytes, &trips)?;
                say("found")?;
            }
            number => {
                let count: u64 = number.parse().map_err(io::Error::other)?;
                if waits {
                    for _ in 0..count {
                        transport.send(to, &frame_of(trips.expect(1), bytes));
                        trips.wait()?;
                    }
                } else if count > 0 {
                    transport.send(to, &frame_of(trips.expect(count), bytes));
                    trips.wait()?;
                }
                say("done")?;
            }
        }
    }
    transport.stop();
    Ok(())
}

/// Sends until a frame comes back.
fn find(transport: &impl Transport, to: &str, bytes: usize, trips: &Trips) -> io::Result<()> {
    let began = Instant::now();
    let number = trips.expect(1);
    while began.elapsed() < PATIENCE {
        transport.send(to, &frame_of(number, bytes));
        if trips.wait_for(AGAIN) {
            return Ok(());
        }
    }
    Err(io::Error::other(format!("{to} did not answer for {PATIENCE:?}")))
}

fn frame_of(number: u64, bytes: usize) -> Vec<u8> {
    let mut frame = vec![1; bytes.max(8)];
    frame[..8].copy_from_slice(&number.to_le_bytes());
    frame
}

pub(crate) fn say(line: &str) -> io::Result<()> {
    writeln!(stdout(), "{line}")?;
    stdout().flush()
}

/// The round trips of a client.
#[derive(Default)]
struct Trips {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of the frame that is on its way.
    number: u64,
    /// The frames to come back, with this one.
    left: u64,
}

impl Trips {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins so many round trips. Returns the number of the first.
    fn expect(&self, trips: u64) -> u64 {
        let mut state = self.state();
        state.number += 1;
        state.left = trips;
        state.number
    }

    /// Notes a frame that came back (I1). Returns the number of the next one, if there is one to send.
    fn answered(&self, frame: &[u8], waits: bool) -> Option<u64> {
        let mut state = self.state();
        let number = u64::from_le_bytes(*frame.first_chunk()?);
        if number != state.number || state.left == 0 {
            return None;
        }
        state.left -= 1;
        if state.left == 0 {
            self.done.notify_one();
            return None;
        }
        state.number += 1;
        (!waits).then_some(state.number)
    }

    /// Waits until all frames have come back.
    fn wait(&self) -> io::Result<()> {
        let mut state = self.state();
        while state.left > 0 {
            let before = state.left;
            let (locked, timeout) =
                self.done.wait_timeout(state, PATIENCE).unwrap_or_else(PoisonError::into_inner);
            state = locked;
            if timeout.timed_out() && state.left == before {
                return Err(io::Error::other(format!("frame {} was lost", state.number)));
            }
        }
        Ok(())
    }

    /// Waits for so long. Returns whether all frames have come back.
    fn wait_for(&self, time: Duration) -> bool {
        let waited = self.done.wait_timeout_while(self.state(), time, |state| state.left > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.left == 0
    }
}
