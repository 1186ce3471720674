//! Subject `squall` of `message` between processes: a link, whose server answers each message.

use std::io;

use squall::fleet::{Link, LinkError, LinkReceiver, LinkSender};

use crate::rivals::calls::streams::wrong_count;
use crate::rivals::calls::{Client, Connect, Form, ServerEnd, Start, Transport};

pub(crate) static LINK: Transport = Transport {
    name: "squall-link",
    connect: Connect::PerClient(connect),
    serve,
    polls: false,
    leaves_files: false,
};

struct Talks {
    sender: LinkSender,
    receiver: LinkReceiver,
}

impl Client for Talks {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) {
        self.sender.send(request).expect("the lane has room for one message");
        receive(&mut self.receiver, |message| reply.copy_from_slice(message)).expect("the server has ended");
    }
}

/// Receives a message. Waits for it if need be.
#[inline]
fn receive(receiver: &mut LinkReceiver, take: impl FnOnce(&[u8])) -> Result<(), LinkError> {
    loop {
        if let Some(message) = receiver.receive()? {
            take(message);
            return Ok(());
        }
        receiver.wait().block()?;
    }
}

fn connect(_: Form, start: Start<'_>) -> io::Result<Box<dyn Client>> {
    let (ours, theirs) = Link::pair()?;
    start(ServerEnd { fds: vec![theirs], ..ServerEnd::default() })?;
    let (sender, receiver) = Link::over(ours)?.split();
    Ok(Box::new(Talks { sender, receiver }))
}

fn serve(form: Form, end: ServerEnd) -> io::Result<()> {
    let Ok([socket]) = <[_; 1]>::try_from(end.fds) else { return Err(wrong_count()) };
    let (sender, mut receiver) = Link::over(socket)?.split();
    let mut reply = vec![0; form.reply_bytes()];
    loop {
        match receive(&mut receiver, |request| form.answer(request, &mut reply)) {
            Ok(()) => {}
            // The client has dropped its end.
            Err(LinkError::Ended { .. } | LinkError::PeerGone { .. }) => return Ok(()),
            Err(other) => return Err(io::Error::other(other)),
        }
        match sender.send(&reply) {
            Ok(()) => {}
            Err(LinkError::Ended { .. } | LinkError::PeerGone { .. }) => return Ok(()),
            Err(other) => return Err(io::Error::other(other)),
        }
    }
}
