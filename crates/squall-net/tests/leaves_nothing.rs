//! A stopped transport leaves no thread and no descriptor. Alone in its program, since it counts both.

use squall_fleet::{Receiver, Transport};
use squall_net::Tcp;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts the threads of transports, and the open descriptors.
fn counts() -> (usize, usize) {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    // A thread that ends meanwhile has no name.
    let names =
        tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap_or_default());
    let threads = names.filter(|name| name.starts_with("squall-net")).count();
    (threads, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

#[test]
fn a_stopped_transport_leaves_no_thread_and_no_descriptor() {
    let before = counts();
    assert_eq!(before.0, 0);
    let anywhere = (Ipv4Addr::LOCALHOST, 0).into();
    let absent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    for _ in 0..20 {
        let (sender, frames) = channel();
        let nodes: Vec<Tcp> = (0..3).map(|_| Tcp::builder(anywhere).build().unwrap()).collect();
        for node in &nodes {
            let sender = sender.clone();
            let receive = move |_: &str, frame: &[u8]| sender.send(frame.len()).unwrap();
            node.start(Receiver::new(receive)).unwrap();
        }
        for from in &nodes {
            nodes.iter().for_each(|to| from.send(&to.endpoint(), b"frame"));
        }
        (0..9).for_each(|_| assert_eq!(frames.recv_timeout(PATIENCE), Ok(5)));
        // A connection without a hello, a dial that fails, and a peer that reads nothing.
        let address = nodes[0].endpoint().strip_prefix("tcp/").unwrap().to_owned();
        let mut silent = TcpStream::connect(address).unwrap();
        nodes[1].send(&format!("tcp/{absent}"), b"frame");
        let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let at = format!("tcp/{}", deaf.local_addr().unwrap());
        (0..100).for_each(|_| nodes[2].send(&at, &[0; 1 << 20]));
        let read = counts().0;
        assert!(read >= 3 * 2, "{read} threads");
        nodes.iter().for_each(Transport::stop);
        assert_eq!(counts().0, 0);
        // The silent connection was ended too, at the latest with the listener.
        silent.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)));
        drop((nodes, silent, deaf));
        assert_eq!(counts(), before);
    }
    // One that was never started.
    drop(Tcp::builder(anywhere).build().unwrap());
    assert_eq!(counts(), before);
}
