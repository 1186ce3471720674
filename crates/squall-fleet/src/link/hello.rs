//! The handshake of a link.
//!
//! Each side sends a hello with the memory of the ring that it receives from, and reads the other side's.
//! Both do the same, so neither has to know which side it is.
//!
//! ```text
//! byte 0  MAGIC
//!      3  VERSION
//!      4  the size of the ring in bytes, as 4 bytes in little endian
//! ```
//!
//! - I1. The other side may send anything. A hello is read whole. Its size and its file are checked before
//!   the memory is used.

use super::memory::{Ring, is_size};
use super::ring::RING_BYTES_MAX;
use squall_call::socket::{self, Packet};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

/// The first bytes of a hello.
const MAGIC: [u8; 3] = *b"SqL";
/// The version of the handshake and of the ring.
const VERSION: u8 = 1;
const HELLO_BYTES: usize = 8;

fn hello(ring_bytes: usize) -> [u8; HELLO_BYTES] {
    let [a, b, c] = MAGIC;
    // A ring is far below 4 GiB.
    let [d, e, f, g] = (ring_bytes as u32).to_le_bytes();
    [a, b, c, VERSION, d, e, f, g]
}

/// Returns the size of the ring in a hello.
fn read(bytes: &[u8]) -> Result<usize, String> {
    let Ok([a, b, c, version, size @ ..]) = <[u8; HELLO_BYTES]>::try_from(bytes) else {
        return Err(
            "the peer of the link sent another packet than a hello: check that it makes a link".into()
        );
    };
    if [a, b, c] != MAGIC {
        return Err(
            "the peer of the link sent another packet than a hello: check that it makes a link".into()
        );
    }
    if version != VERSION {
        return Err(format!(
            "the peer of the link speaks version {version} of links, and this program version {VERSION}: build \
             both with the same version"
        ));
    }
    let size = u32::from_le_bytes(size) as usize;
    if !is_size(size) {
        return Err(format!(
            "the peer of the link has a lane of {size} bytes: it must be a power of two, and at most \
             {RING_BYTES_MAX}"
        ));
    }
    Ok(size)
}

/// The rings of a link.
pub(crate) struct Rings {
    pub(crate) inbound: Ring,
    pub(crate) outbound: Ring,
}

/// Does the handshake.
///
/// # Errors
/// `TimedOut`, if the other side sends no hello in time. `UnexpectedEof`, if it hangs up. `InvalidData` with
/// the reason, if it sends something else. Errors of the system.
pub(crate) fn shake(socket: BorrowedFd<'_>, ring_bytes: usize, deadline: Instant) -> io::Result<Rings> {
    let (inbound, file) = Ring::create(ring_bytes)?;
    // A peer that has hung up may have said hello before. Its messages cannot have come before ours.
    let sent = socket::send_until(socket, &hello(ring_bytes), &[file.as_fd()], deadline);
    drop(file);
    let mut buffer = [0; HELLO_BYTES + 1];
    let packet = match socket::receive_until(socket, &mut buffer, deadline) {
        // The peer hung up without a look at our hello. The kernel tells that before it gives out the peer's.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
        Err(error) if error.kind() == ErrorKind::TimedOut => {
            let why = "the peer of the link sent no hello in time: it hangs, or makes no link";
            return Err(io::Error::new(ErrorKind::TimedOut, why));
        }
        other => other?,
    };
    let Some(Packet { bytes, mut descriptors }) = packet else {
        let why = "the peer of the link hung up before its hello: it has ended, or refused the link";
        return Err(io::Error::new(ErrorKind::UnexpectedEof, why));
    };
    let file = if descriptors.len() == 1 { descriptors.pop() } else { None };
    socket::close_elsewhere(descriptors);
    let refused = |file: Option<OwnedFd>, why: String| {
        socket::close_elsewhere(file.into_iter().collect());
        io::Error::new(ErrorKind::InvalidData, why)
    };
    let size = match read(&buffer[..bytes]) {
        Ok(size) => size,
        Err(why) => return Err(refused(file, why)),
    };
    let Some(file) = file else {
        return Err(refused(None, "the peer of the link sent a hello without exactly one file".into()));
    };
    let outbound = match Ring::open(file.as_fd(), size) {
        Ok(ring) => ring,
        Err(error) => {
            return Err(refused(Some(file), format!("the lane of the link's peer is unusable: {error}")));
        }
    };
    sent?;
    Ok(Rings { inbound, outbound })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_it_was_written() {
        for size in [4096, 1 << 16, RING_BYTES_MAX] {
            assert_eq!(read(&hello(size)), Ok(size));
        }
    }

    #[test]
    fn each_other_hello_says_why_it_is_none() {
        let right = hello(4096);
        for length in 0..HELLO_BYTES {
            assert!(read(&right[..length]).unwrap_err().contains("another packet"), "{length}");
        }
        assert!(read(&[right.as_slice(), &[0]].concat()).is_err());
        let with = |at: usize, value: u8| {
            let mut bytes = right;
            bytes[at] = value;
            read(&bytes).unwrap_err()
        };
        assert!(with(0, b'X').contains("another packet"));
        assert!(with(3, 2).contains("version 2"));
        for size in [0, 1, 64, 4095, 5000, RING_BYTES_MAX * 2, u32::MAX as usize] {
            assert!(read(&hello(size)).unwrap_err().contains(&format!("{size} bytes")), "{size}");
        }
    }
}
