//! Helpers for the tests of whole transports.

use squall_fleet::{Receiver, Transport};
use squall_net::{Tcp, TcpBuilder};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver as Frames, channel};
use std::time::{Duration, Instant};

/// The longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The time between two tries.
pub(crate) const AGAIN: Duration = Duration::from_millis(5);

/// A frame and its sender.
pub(crate) type Arrived = (String, Vec<u8>);

/// Starts a transport that passes on its frames.
pub(crate) fn start(builder: TcpBuilder) -> (Tcp, Frames<Arrived>) {
    let tcp = builder.build().unwrap();
    let (sender, frames) = channel();
    let receive = move |from: &str, frame: &[u8]| {
        // Fails only after the end of the test.
        let _ = sender.send((from.to_owned(), frame.to_vec()));
    };
    tcp.start(Receiver::new(receive)).unwrap();
    (tcp, frames)
}

pub(crate) fn next(frames: &Frames<Arrived>) -> Arrived {
    frames.recv_timeout(PATIENCE).expect("no frame came")
}

/// Tries until it is done.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "waited too long");
        std::thread::sleep(AGAIN);
    }
}

pub(crate) fn address(tcp: &Tcp) -> SocketAddr {
    tcp.endpoint().strip_prefix("tcp/").unwrap().parse().unwrap()
}
