//! `ipc-channel`: two channels of bytes, which its one-shot server hands over.

use std::io;

use ipc_channel::ipc::{IpcBytesReceiver, IpcBytesSender, IpcOneShotServer, IpcSender, bytes_channel};

use super::{Client, Connect, Form, ServerEnd, Start, Transport};

pub(crate) static IPC_CHANNEL: Transport = Transport {
    name: "ipc-channel",
    connect: Connect::PerClient(connect),
    serve,
    polls: false,
    leaves_files: false,
};

/// The calling end: sends requests, and receives replies.
type Ends = (IpcBytesSender, IpcBytesReceiver);

struct Channels(Ends);

impl Client for Channels {
    fn call(&mut self, request: &[u8], reply: &mut [u8]) {
        let (to, from) = &self.0;
        to.send(request).expect("the server has ended");
        reply.copy_from_slice(&from.recv().expect("the server has ended"));
    }
}

fn connect(_: Form, start: Start<'_>) -> io::Result<Box<dyn Client>> {
    let (server, name) = IpcOneShotServer::<Ends>::new()?;
    start(ServerEnd { name, ..ServerEnd::default() })?;
    let (_, ends) = server.accept().map_err(io::Error::other)?;
    Ok(Box::new(Channels(ends)))
}

fn serve(form: Form, end: ServerEnd) -> io::Result<()> {
    let (requests_to, requests) = bytes_channel()?;
    let (replies, replies_from) = bytes_channel()?;
    let first = IpcSender::<Ends>::connect(end.name)?;
    first.send((requests_to, replies_from)).map_err(io::Error::other)?;
    let mut reply = vec![0; form.reply_bytes()];
    // An error means that the client has dropped its end.
    while let Ok(request) = requests.recv() {
        form.answer(&request, &mut reply);
        if replies.send(&reply).is_err() {
            break;
        }
    }
    Ok(())
}
