//! The serving process: this program again, with a hidden argument.
//!
//! - I1. It takes its orders from a socket, its standard input. An order names a transport, and carries the
//!   descriptors of the serving end of a connection. A thread of its own serves that connection.
//! - I2. It ends when the other end of the socket is closed: by us, or because this process ended in any way.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::{self, Builder, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{Shutdown, shutdown};
use rustix::process::{Signal, set_parent_process_death_signal};
use squall::call::socket::{self, Packet};

use crate::env;
use crate::ours_machine::{assign_vp, is_virtual, processors_count};
use crate::rivals::calls::process_time::process_ns;
use crate::rivals::calls::{Form, ServerEnd, Transport};

/// The hidden command of the serving process.
pub const CALL_SERVER: &str = "__call-server";
/// Most bytes of an order.
const ORDER_BYTES: usize = 256;
/// Time to wait for a message: longer than any bench.
const PATIENCE: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The first message of the serving process.
const READY: &str = "ready";

/// Longest time for the serving threads to end after their orders.
const LAST_CALLS: Duration = Duration::from_secs(1);
/// Time between two looks at something that ends.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A connection to serve.
pub(super) struct Order {
    pub(super) transport: &'static Transport,
    pub(super) form: Form,
    /// Processor of the serving thread. In a virtual topology, its VP.
    pub(super) place: usize,
    pub(super) end: ServerEnd,
}

impl Order {
    fn text(&self) -> String {
        let form = if self.form == Form::Null { "null" } else { "bulk" };
        format!("{} {form} {} {}", self.transport.name, self.place, self.end.name)
    }

    fn parse(text: &str, fds: Vec<OwnedFd>) -> Option<Order> {
        let mut words = text.splitn(4, ' ');
        let transport = words.next()?;
        let form = if words.next()? == "null" { Form::Null } else { Form::Bulk };
        let place = words.next()?.parse().ok()?;
        let name = words.next()?.to_owned();
        let transport = super::subject::TRANSPORTS.iter().find(|known| known.name == transport)?;
        Some(Order { transport, form, place, end: ServerEnd { fds, name } })
    }

    /// Serves the connection in a thread of its own.
    fn start(self) -> io::Result<JoinHandle<()>> {
        let name = format!("serve-{}", self.transport.name);
        Builder::new().name(name).spawn(move || {
            go_to(self.place);
            if let Err(error) = (self.transport.serve)(self.form, self.end) {
                eprintln!("squall: the server of {} failed: {error}", self.transport.name);
            }
        })
    }
}

/// A server of any number of connections.
pub(super) enum Server {
    /// A child process.
    Child { child: Child, orders: OwnedFd },
    /// Threads of this process, so that an instrument can count all accesses.
    Inside,
}

impl Server {
    /// Starts the serving process, and waits until it takes orders.
    pub(super) fn start() -> io::Result<Server> {
        let (orders, theirs) = socket::pair()?;
        let child = Command::new(std::env::current_exe()?)
            .arg(CALL_SERVER)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .spawn()?;
        // From here on the child is ended on errors too.
        let server = Server::Child { child, orders };
        if let Server::Child { orders, .. } = &server {
            match receive(orders)? {
                Some((text, _)) if text == READY => {}
                _ => return Err(io::Error::other("the serving process did not start")),
            }
        }
        Ok(server)
    }

    /// Serves a connection.
    pub(super) fn serve(&self, order: Order) -> io::Result<()> {
        match self {
            Server::Child { orders, .. } => send(orders, &order.text(), &order.end.fds),
            Server::Inside => order.start().map(drop),
        }
    }

    /// Processor time of the serving process, in nanoseconds.
    pub(super) fn busy_ns(&self) -> u64 {
        match self {
            Server::Child { child, .. } => process_ns(child.id()).unwrap_or(0),
            Server::Inside => 0,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Server::Child { child, orders } = self else { return };
        // Ends the serving process. Fails only if it has ended.
        let _ = shutdown(&*orders, Shutdown::Both);
        let began = Instant::now();
        while began.elapsed() < 2 * LAST_CALLS {
            if matches!(child.try_wait(), Ok(Some(_))) {
                return;
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        // Both fail only if it has ended.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Runs the serving process of the case `call-process`: serves the connections that it gets through its
/// standard input, a Unix socket. Ends with that socket, and with its parent.
///
/// # Errors
/// The standard input is no such socket, or an order is malformed.
pub fn call_server() -> io::Result<()> {
    // A parent that ended before this call has closed its end of the socket.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let orders = rustix::stdio::stdin();
    send(orders, READY, &[])?;
    let mut serving = Vec::new();
    while let Some((text, fds)) = receive(orders)? {
        let order = Order::parse(&text, fds);
        let order = order.ok_or_else(|| io::Error::other(format!("an order is malformed: {text:?}")))?;
        serving.retain(|thread: &JoinHandle<()>| !thread.is_finished());
        serving.push(order.start()?);
    }
    // Some transports remove files when a serving thread ends, which it does after its client.
    let began = Instant::now();
    while began.elapsed() < LAST_CALLS && !serving.iter().all(JoinHandle::is_finished) {
        thread::sleep(BETWEEN_LOOKS);
    }
    Ok(())
}

fn send(socket: impl AsFd, text: &str, fds: &[OwnedFd]) -> io::Result<()> {
    let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    socket::send_until(socket.as_fd(), text.as_bytes(), &fds, Instant::now() + PATIENCE)
}

/// Receives a message. Returns `None` after the other end was closed.
fn receive(socket: impl AsFd) -> io::Result<Option<(String, Vec<OwnedFd>)>> {
    let mut bytes = [0; ORDER_BYTES];
    let packet = match socket::receive_until(socket.as_fd(), &mut bytes, Instant::now() + PATIENCE) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
        other => other?,
    };
    let Some(Packet { bytes: length, descriptors }) = packet else { return Ok(None) };
    let text = str::from_utf8(&bytes[..length]).map_err(io::Error::other)?;
    Ok(Some((text.to_owned(), descriptors)))
}

/// Places for threads: the usable processors, or the VPs of a virtual topology. To be called by a thread that
/// is not pinned.
pub(super) fn places() -> Vec<usize> {
    if is_virtual() { (0..processors_count()).collect() } else { env::processors() }
}

/// Moves the calling thread to a place, for as long as it lives.
pub(super) fn go_to(place: usize) {
    if is_virtual() {
        assign_vp(place);
    } else {
        env::pin(&[place]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_keeps_its_parts_and_descriptors() {
        let (here, there) = socket::pair().unwrap();
        let (reader, writer) = io::pipe().unwrap();
        let end = ServerEnd { fds: vec![reader.into(), writer.into()], name: "a name".to_owned() };
        let transport = super::super::subject::TRANSPORTS[0];
        let order = Order { transport, form: Form::Bulk, place: 3, end };
        send(&here, &order.text(), &order.end.fds).unwrap();
        let (text, fds) = receive(&there).unwrap().unwrap();
        assert_eq!(fds.len(), 2);
        let read = Order::parse(&text, fds).unwrap();
        assert_eq!((read.transport.name, read.form, read.place), (transport.name, Form::Bulk, 3));
        assert_eq!(read.end.name, "a name");
        drop(here);
        assert!(receive(&there).unwrap().is_none());
    }

    #[test]
    fn a_malformed_order_is_refused() {
        for text in ["", "pipe", "pipe null", "pipe null x name", "nothing null 0 name"] {
            assert!(Order::parse(text, Vec::new()).is_none(), "{text:?}");
        }
    }
}
