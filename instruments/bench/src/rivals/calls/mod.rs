//! Ways to call another process, as byte transports: a request of fixed length, and a reply of fixed length.

#[allow(unsafe_code)]
pub(crate) mod futex;
#[cfg(feature = "rivals")]
pub(crate) mod iceoryx;
#[cfg(feature = "rivals")]
pub(crate) mod ipc_channels;
#[allow(unsafe_code)]
pub(crate) mod process_time;
pub(crate) mod streams;

use std::io;
use std::os::fd::OwnedFd;

/// Bytes of a null call, in each direction.
pub(crate) const LINE_BYTES: usize = 64;
/// Bytes of the argument of a bulk call.
pub(crate) const BULK_BYTES: usize = 8192;

/// The two methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// 64 bytes in each direction.
    Null,
    /// An argument of 8 KiB, and a result of one word.
    Bulk,
}

impl Form {
    pub(crate) fn request_bytes(self) -> usize {
        match self {
            Form::Null => LINE_BYTES,
            Form::Bulk => BULK_BYTES,
        }
    }

    pub(crate) fn reply_bytes(self) -> usize {
        match self {
            Form::Null => LINE_BYTES,
            Form::Bulk => 8,
        }
    }

    /// Runs the method. `request` is the server's private copy.
    #[inline]
    pub(crate) fn answer(self, request: &[u8], reply: &mut [u8]) {
        match self {
            Form::Null => {
                reply.copy_from_slice(request);
                put_word(reply, word(request).wrapping_add(1));
            }
            Form::Bulk => put_word(reply, bulk_result(request)),
        }
    }

    /// Panics unless `reply` answers `request`.
    #[inline]
    pub(crate) fn check(self, request: &[u8], reply: &[u8]) {
        let expected = match self {
            Form::Null => word(request).wrapping_add(1),
            Form::Bulk => bulk_result(request),
        };
        assert_eq!(word(reply), expected, "a reply belongs to another call");
    }
}

/// Result of the bulk method: depends on the first and the last word. The method does not read the rest, so
/// that the figure is that of the transport.
#[inline]
pub(crate) fn bulk_result(bytes: &[u8]) -> u64 {
    word(bytes).wrapping_add(word(&bytes[bytes.len() - 8..])).wrapping_add(bytes.len() as u64)
}

/// The first word of `bytes`.
#[inline]
pub(crate) fn word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_ne_bytes(word)
}

/// Sets the first word of `bytes`.
#[inline]
pub(crate) fn put_word(bytes: &mut [u8], word: u64) {
    bytes[..8].copy_from_slice(&word.to_ne_bytes());
}

/// The calling end of a connection.
pub(crate) trait Client {
    /// Sends the request, and waits for the reply. The lengths are those of the connection's form.
    fn call(&mut self, request: &[u8], reply: &mut [u8]);
}

/// The serving end of a connection, on its way to the server.
#[derive(Debug, Default)]
pub(crate) struct ServerEnd {
    pub(crate) fds: Vec<OwnedFd>,
    /// The name of the connection, for a transport that finds its peer by name.
    pub(crate) name: String,
}

/// A way to call another process.
#[derive(Debug)]
pub(crate) struct Transport {
    /// Name of the subject.
    pub(crate) name: &'static str,
    /// Makes connections.
    pub(crate) connect: Connect,
    /// Serves the calls of one connection until its calling end is dropped.
    pub(crate) serve: fn(Form, ServerEnd) -> io::Result<()>,
    /// Whether it polls, so that it is compared only where the server has a processor of its own.
    pub(crate) polls: bool,
    /// Whether it has files, which remain if a side is not dropped.
    pub(crate) leaves_files: bool,
}

/// Passes the serving end of a connection to the server.
pub(crate) type Start<'a> = &'a mut dyn FnMut(ServerEnd) -> io::Result<()>;

/// Ways to connect. The clients are threads.
#[derive(Debug)]
pub(crate) enum Connect {
    /// Makes a connection for one client.
    PerClient(fn(Form, Start<'_>) -> io::Result<Box<dyn Client>>),
    /// Makes a connection for all clients. The flag asks for a server on the processor after the client's.
    Shared(fn(bool, Start<'_>) -> io::Result<Box<dyn Shared>>),
}

/// A connection of all clients.
pub(crate) trait Shared: Send + Sync {
    /// Makes a client for the calling thread.
    fn client(&self, form: Form) -> Box<dyn Client>;
}
