//! Two pipes, or a pair of Unix sockets.

use std::io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::net::UnixStream;

use super::{Client, Connect, Form, ServerEnd, Transport};

pub(crate) static PIPE: Transport = Transport {
    name: "pipe",
    connect: Connect::PerClient(|_, start| {
        let (requests, requests_to) = pipe()?;
        let (replies, replies_to) = pipe()?;
        start(ServerEnd { fds: vec![requests.into(), replies_to.into()], ..ServerEnd::default() })?;
        Ok(Box::new(Stream { from: replies, to: requests_to }))
    }),
    serve: |form, end| {
        let Ok([requests, replies]) = <[_; 2]>::try_from(end.fds) else { return Err(wrong_count()) };
        serve(form, PipeReader::from(requests), PipeWriter::from(replies))
    },
    polls: false,
    leaves_files: false,
};

pub(crate) static UNIX_SOCKET: Transport = Transport {
    name: "unix-socket",
    connect: Connect::PerClient(|_, start| {
        let (ours, theirs) = UnixStream::pair()?;
        start(ServerEnd { fds: vec![theirs.into()], ..ServerEnd::default() })?;
        Ok(Box::new(Stream { from: ours.try_clone()?, to: ours }))
    }),
    serve: |form, end| {
        let Ok([socket]) = <[_; 1]>::try_from(end.fds) else { return Err(wrong_count()) };
        let socket = UnixStream::from(socket);
        serve(form, socket.try_clone()?, socket)
    },
    polls: false,
    leaves_files: false,
};

/// The error of an order with a wrong number of descriptors.
pub(crate) fn wrong_count() -> io::Error {
    io::Error::other("the order has a wrong number of descriptors")
}

struct Stream<R, W> {
    from: R,
    to: W,
}

impl<R: Read, W: Write> Client for Stream<R, W> {
    fn call(&mut self, request: &[u8], reply: &mut [u8]) {
        self.to.write_all(request).expect("the server has ended");
        self.from.read_exact(reply).expect("the server has ended");
    }
}

fn serve(form: Form, mut from: impl Read, mut to: impl Write) -> io::Result<()> {
    let (mut request, mut reply) = (vec![0; form.request_bytes()], vec![0; form.reply_bytes()]);
    loop {
        match from.read_exact(&mut request) {
            // The client has closed its end.
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return Ok(());
            }
            other => other?,
        }
        form.answer(&request, &mut reply);
        to.write_all(&reply)?;
    }
}
