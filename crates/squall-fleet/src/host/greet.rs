//! The greeting of two transports, over a new link.
//!
//! Problem: a side learns of the other one's end by the end of a link. A side that gives up a greeting ends
//! the link too, and lives on. Another process may claim any name.
//! Idea: each side sends its last message when it has taken the link on. From then on it ends the link only
//! as it stops, or for a fault of the peer.
//!
//! - I1. The side that accepts sends its greeting after it has checked the other one. The side that connects
//!   sends its consent after it has checked that. So a side that has the other one's last message knows that
//!   the end of the link is the end of the other transport.
//! - I2. A process of another user is refused. A process of this user can claim a name that another process
//!   holds. The claim is not believed: the end of the link is then no proof, and this side does not send over
//!   it.

use super::peers::{Fresh, Shared};
use super::pieces::{CONSENT, greeting, read_greeting};
use super::{ENDPOINTS, GREETING_LIMIT};
use crate::link::{LinkReceiver, LinkRequest, SERVICE};
use squall_call::socket;
use squall_sys::peer::peer;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::time::Instant;

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

fn receive_greeting(receiver: &mut LinkReceiver) -> io::Result<(u128, String)> {
    if !receiver.wait().block_for(GREETING_LIMIT).map_err(io::Error::other)? {
        let why = "the peer sent no greeting in time: it hangs, or is no HostTransport";
        return Err(io::Error::new(ErrorKind::TimedOut, why));
    }
    let message = receiver.receive().map_err(io::Error::other)?.unwrap_or_default();
    let (number, name) = read_greeting(message).map_err(invalid)?;
    Ok((number, name.to_owned()))
}

/// Refuses a life that has ended, before the peer believes that this side has taken the link on (I1).
fn refuse_ended(shared: &Shared, endpoint: &str, number: u128) -> io::Result<()> {
    if shared.has_ended(endpoint, number) {
        return Err(invalid(format!(
            "a transport at {endpoint} with this number has ended: start a new one"
        )));
    }
    Ok(())
}

/// Connects to the transport with this name.
pub(super) fn connect(shared: &Shared, name: &str) -> io::Result<Fresh> {
    let (sender, mut receiver) = shared.options.connect(name)?.split();
    sender.send(&greeting(shared.number, &shared.name)).map_err(io::Error::other)?;
    let (number, theirs) = receive_greeting(&mut receiver)?;
    if theirs != name {
        return Err(invalid(format!("the transport that listens as {name:?} calls itself {theirs:?}")));
    }
    let endpoint = format!("{ENDPOINTS}{name}");
    refuse_ended(shared, &endpoint, number)?;
    sender.send(CONSENT).map_err(io::Error::other)?;
    Ok(Fresh { endpoint, number, sender, receiver, is_proved: true, has_consent: true })
}

/// Takes a process on that has connected.
pub(super) fn accept(shared: &Shared, request: LinkRequest) -> io::Result<Fresh> {
    let (sender, mut receiver) = request.link()?.split();
    let (number, name) = receive_greeting(&mut receiver)?;
    let endpoint = format!("{ENDPOINTS}{name}");
    refuse_ended(shared, &endpoint, number)?;
    let is_proved = holds(&name, sender.name().pid())?;
    sender.send(&greeting(shared.number, &shared.name)).map_err(io::Error::other)?;
    Ok(Fresh { endpoint, number, sender, receiver, is_proved, has_consent: false })
}

/// Returns whether the process holds the name, as the kernel tells. A name without a holder is believed: no
/// transport that lives is called so.
///
/// # Errors
/// The kernel cannot tell, for example with too many open files. The process may be the holder, so it is
/// refused, and comes again.
fn holds(name: &str, pid: Option<u32>) -> io::Result<bool> {
    match socket::connect_to(SERVICE, socket::own_user(), name, Instant::now() + GREETING_LIMIT) {
        Ok(socket) => Ok(pid.is_some() && peer(socket.as_fd())?.pid == pid),
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
        Err(error) => Err(error),
    }
}
