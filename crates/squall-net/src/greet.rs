//! The greetings of connections, before any frame.
//!
//! A plain connection has a hello in each direction, and frames follow at once. An encrypted one has a
//! greeting in each direction, and then a record without content from the dialling side. Only then the
//! accepting side uses it (noise/I3).
//!
//! A side that refuses a greeting answers with its own magic number. So the other side can tell the reason.
//!
//! - I1. No more bytes are read than those of the greeting: frames are read by the connection's thread. A
//!   connection of the other kind is an exception, since it ends.

use crate::cipher::{Asking, CONFIRM_BYTES, GREETING_BYTES, LinkKeys, Opener, Secret};
use crate::fault::FaultReason;
use crate::frame::{
    HELLO_BYTES_MAX, Hello, LENGTH_BYTES, MAGIC, SEALED_MAGIC, address, hello, is_other_kind, same_endpoint,
};
use crate::peer::Peer;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use squall_sys::sync::StdArc as Arc;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// The reason for the end of a connection, if a person can mend it.
pub(crate) type Failed = Option<FaultReason>;

/// The keys of an encrypted connection, and the records that it receives.
pub(crate) type Secured = (LinkKeys, Opener);

/// An accepted connection before the end of its greeting.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    pub(crate) stream: TcpStream,
    pub(crate) from: SocketAddr,
    pub(crate) until: Instant,
    bytes: Vec<u8>,
    /// After the answer to an encrypted greeting: the claimed endpoint, and the keys.
    answered: Option<(String, Secured)>,
}

/// The result of a greeting.
#[derive(Debug)]
pub(crate) struct Greeted {
    /// The endpoint that the other side claims.
    pub(crate) claimed: String,
    /// The keys, if the connection is encrypted.
    pub(crate) secured: Option<Secured>,
}

impl HalfOpen {
    pub(crate) fn new(stream: TcpStream, from: SocketAddr, until: Instant) -> HalfOpen {
        HalfOpen { stream, from, until, bytes: Vec::new(), answered: None }
    }

    /// Reads as much of the greeting as is there, and answers it. An empty result asks for more.
    pub(crate) fn read(
        &mut self,
        secret: Option<&Secret>,
        endpoint: &str,
    ) -> Result<Option<Greeted>, Failed> {
        match secret {
            None => self.read_hello(endpoint),
            Some(secret) => self.read_sealed(secret, endpoint),
        }
    }

    fn read_hello(&mut self, endpoint: &str) -> Result<Option<Greeted>, Failed> {
        loop {
            let missing = match Hello::read(&self.bytes) {
                Ok(Hello::Whole(claimed)) => {
                    return Ok(Some(Greeted { claimed: claimed.to_owned(), secured: None }));
                }
                Ok(Hello::Lacks(missing)) => missing,
                Err(_) if is_other_kind(MAGIC, &self.bytes) => {
                    self.refuse(&hello(endpoint));
                    return Err(Some(FaultReason::Encrypted));
                }
                Err(_) => return Err(None),
            };
            if !receive(&self.stream, &mut self.bytes, missing)? {
                return Ok(None);
            }
        }
    }

    fn read_sealed(&mut self, secret: &Secret, endpoint: &str) -> Result<Option<Greeted>, Failed> {
        if self.answered.is_none() {
            while self.bytes.len() < GREETING_BYTES {
                let missing = GREETING_BYTES - self.bytes.len();
                let came = receive(&self.stream, &mut self.bytes, missing)?;
                if is_other_kind(SEALED_MAGIC, &self.bytes) {
                    self.refuse(&SEALED_MAGIC);
                    return Err(Some(FaultReason::NotEncrypted));
                }
                check_magic(&self.bytes)?;
                if !came {
                    return Ok(None);
                }
            }
            let Ok((greeting, keys, claimed)) = secret.answer(endpoint, &self.bytes) else {
                self.refuse(&SEALED_MAGIC);
                return Err(Some(FaultReason::OtherKey));
            };
            say(&self.stream, &greeting)?;
            self.answered = Some((claimed, (keys, Opener::default())));
            self.bytes.clear();
        }
        while self.bytes.len() < CONFIRM_BYTES {
            let missing = CONFIRM_BYTES - self.bytes.len();
            if !receive(&self.stream, &mut self.bytes, missing)? {
                return Ok(None);
            }
        }
        let Some((claimed, (keys, mut opener))) = self.answered.take() else { return Err(None) };
        match opener.open(&keys, &self.bytes[LENGTH_BYTES..]) {
            Ok([]) => Ok(Some(Greeted { claimed, secured: Some((keys, opener)) })),
            _ => Err(Some(FaultReason::Changed)),
        }
    }

    /// Tells the other side the kind of this one. Bytes that are there and not read would end the connection
    /// with an error at the other side.
    fn refuse(&mut self, bytes: &[u8]) {
        // Both fail only if the other side has ended the connection.
        let _ = say(&self.stream, bytes);
        let _ = recv(&self.stream, &mut [0; 4096][..], RecvFlags::DONTWAIT);
    }

    /// Returns the endpoint in a plain hello, or else the address of the other side.
    pub(crate) fn name(&self) -> String {
        let plain = self.bytes.strip_prefix(&MAGIC).and_then(|rest| {
            let (length, rest) = rest.split_first()?;
            str::from_utf8(rest.get(..usize::from(*length))?).ok().filter(|claimed| !claimed.is_empty())
        });
        plain.map_or_else(|| self.from.to_string(), str::to_owned)
    }
}

/// A dialled connection that waits for the greeting of an encrypted one.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) stream: TcpStream,
    pub(crate) peer: Arc<Peer>,
    pub(crate) until: Instant,
    asking: Option<Asking>,
    bytes: Vec<u8>,
}

impl Asked {
    /// Sends the greeting.
    pub(crate) fn begin(
        stream: TcpStream,
        peer: Arc<Peer>,
        until: Instant,
        secret: &Secret,
        endpoint: &str,
    ) -> Result<Asked, Arc<Peer>> {
        match secret.ask(endpoint) {
            Ok((greeting, asking)) if say(&stream, &greeting).is_ok() => {
                Ok(Asked { stream, peer, until, asking: Some(asking), bytes: Vec::new() })
            }
            _ => Err(peer),
        }
    }

    /// Reads as much of the greeting as is there, and confirms it. Returns `None` if more must come.
    pub(crate) fn read(&mut self) -> Result<Option<Secured>, Failed> {
        while self.bytes.len() < GREETING_BYTES {
            let missing = GREETING_BYTES - self.bytes.len();
            match receive(&self.stream, &mut self.bytes, missing) {
                Ok(came) => {
                    if is_other_kind(SEALED_MAGIC, &self.bytes) {
                        return Err(Some(FaultReason::NotEncrypted));
                    }
                    check_magic(&self.bytes)?;
                    if !came {
                        return Ok(None);
                    }
                }
                // The magic number alone is a refusal.
                Err(_) if self.bytes == SEALED_MAGIC => return Err(Some(FaultReason::OtherKey)),
                Err(_) => return Err(None),
            }
        }
        let Some(asking) = self.asking.take() else { return Err(None) };
        let Ok((keys, claimed)) = asking.finish(&self.bytes) else {
            return Err(Some(FaultReason::OtherKey));
        };
        // The confirmation comes later, so the other side uses the connection as little (noise/I4).
        let answered = address(&claimed).ok_or(None)?;
        if self.peer.address.is_none_or(|dialled| !same_endpoint(dialled, answered)) {
            return Err(Some(FaultReason::OtherEndpoint { answered }));
        }
        let mut confirmation = Vec::new();
        if keys.seal(&[], &mut confirmation).is_err() {
            return Err(None);
        }
        say(&self.stream, &confirmation)?;
        Ok(Some((keys, Opener::default())))
    }
}

fn check_magic(bytes: &[u8]) -> Result<(), Failed> {
    let known = bytes.len().min(SEALED_MAGIC.len());
    if bytes[..known] == SEALED_MAGIC[..known] { Ok(()) } else { Err(None) }
}

/// Appends up to `most` bytes that are there. Returns whether there were any.
fn receive(stream: &TcpStream, bytes: &mut Vec<u8>, most: usize) -> Result<bool, Failed> {
    const ROOM: usize = if GREETING_BYTES > HELLO_BYTES_MAX { GREETING_BYTES } else { HELLO_BYTES_MAX };
    let mut room = [0; ROOM];
    match recv(stream, &mut room[..most.min(ROOM)], RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(None),
        Ok((_, count)) => {
            bytes.extend_from_slice(&room[..count]);
            Ok(true)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(_) => Err(None),
    }
}

/// Sends the first bytes of a connection. Its buffer takes them whole.
fn say(stream: &TcpStream, bytes: &[u8]) -> Result<(), Failed> {
    greet(stream, bytes).map_err(|_| None)
}

/// Sends a greeting. The buffer of a new connection takes it whole.
pub(crate) fn greet(stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let sent = send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    if sent == bytes.len() { Ok(()) } else { Err(ErrorKind::WriteZero.into()) }
}
