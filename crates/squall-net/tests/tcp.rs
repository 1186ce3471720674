//! Tests of whole transports over the loopback interface.
//!
//! The ends of waits are far longer than any run takes: they turn a hang into a failure.

mod common;

use common::{AGAIN, Arrived, PATIENCE, address, next, start, until};
use rustix::net::{AddressFamily, SocketType, socket};
use squall_fleet::{Receiver, Transport};
use squall_net::{Tcp, TcpBuilder, TcpStats};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Frames, channel};
use std::time::Duration;

/// The first bytes of a hello.
const MAGIC: &[u8; 8] = b"squalln1";

fn anywhere() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

fn builder() -> TcpBuilder {
    Tcp::builder(anywhere())
}

/// Connects by hand, with a hello.
fn connect(tcp: &Tcp, claimed: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address(tcp)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[&MAGIC[..], &[claimed.len() as u8], claimed.as_bytes()].concat()).unwrap();
    stream
}

/// Reads the other side's hello by hand.
fn read_hello(stream: &mut TcpStream) -> String {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head[..8], MAGIC);
    let mut endpoint = vec![0; head[8].into()];
    stream.read_exact(&mut endpoint).unwrap();
    String::from_utf8(endpoint).unwrap()
}

fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut frame = vec![0; u32::from_le_bytes(length) as usize];
    stream.read_exact(&mut frame).unwrap();
    frame
}

fn framed(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u32).to_le_bytes(), frame].concat()
}

/// Waits until the other side has ended the connection.
fn assert_ended(stream: &mut TcpStream) {
    let mut bytes = [0; 512];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("the connection was not ended: {error}"),
        }
    }
}

/// Sends until a frame arrives.
fn send_until(from: &Tcp, to: &str, frames: &Frames<Arrived>, frame: &[u8]) -> Arrived {
    let mut got = None;
    until(|| {
        from.send(to, frame);
        got = frames.recv_timeout(AGAIN).ok();
        got.is_some()
    });
    got.unwrap()
}

#[test]
fn one_connection_carries_both_directions() {
    let ((a, at_a), (b, at_b)) = (start(builder()), start(builder()));
    a.send(&b.endpoint(), b"question");
    assert_eq!(next(&at_b), (a.endpoint(), b"question".to_vec()));
    b.send(&a.endpoint(), b"answer");
    assert_eq!(next(&at_a), (b.endpoint(), b"answer".to_vec()));
    assert_eq!((a.stats().connections, b.stats().connections), (1, 1));
    a.stop();
    b.stop();
    let counts = |stats: TcpStats| (stats.sent, stats.received, stats.lost, stats.connections);
    assert_eq!(counts(a.stats()), (1, 1, 0, 0));
    assert_eq!(counts(b.stats()), (1, 1, 0, 0));
}

#[test]
fn frames_of_all_sizes_arrive_whole_and_larger_ones_are_lost() {
    let ((a, _), (b, at_b)) = (start(builder()), start(builder()));
    let largest = a.largest_frame();
    assert_eq!(largest, 1 << 20);
    for size in [0, 1, 4, 4095, 16 << 10, largest, 0, 3] {
        let frame: Vec<u8> = (0..size).map(|i| (i * 31) as u8).collect();
        a.send(&b.endpoint(), &vec![0; largest + 1]);
        a.send(&b.endpoint(), &frame);
        assert_eq!(next(&at_b), (a.endpoint(), frame));
    }
    assert_eq!(a.stats().lost, 8);
}

#[test]
fn a_transport_sends_to_itself() {
    let (a, at_a) = start(builder());
    for number in [1, 2, 3] {
        a.send(&a.endpoint(), &[number]);
        assert_eq!(next(&at_a), (a.endpoint(), vec![number]));
    }
}

#[test]
fn both_sides_may_dial_at_once() {
    let ((a, at_a), (b, at_b)) = (start(builder()), start(builder()));
    std::thread::scope(|threads| {
        threads.spawn(|| (0..100).for_each(|i| a.send(&b.endpoint(), &[i])));
        threads.spawn(|| (0..100).for_each(|i| b.send(&a.endpoint(), &[i])));
    });
    for frames in [at_a, at_b] {
        let mut got: Vec<u8> = (0..100).map(|_| next(&frames).1[0]).collect();
        got.sort_unstable();
        assert_eq!(got, (0..100).collect::<Vec<u8>>());
    }
    assert!(a.stats().connections <= 2 && b.stats().connections <= 2);
}

#[test]
fn a_restarted_peer_is_found_again() {
    let ((a, at_a), (b, at_b)) = (start(builder()), start(builder()));
    let (endpoint, place) = (b.endpoint(), address(&b));
    a.send(&endpoint, b"first");
    assert_eq!(next(&at_b).1, b"first");
    drop(b);
    for round in 0..5 {
        let (b, at_b) = start(Tcp::builder(place));
        assert_eq!(send_until(&a, &endpoint, &at_b, &[round]), (a.endpoint(), vec![round]));
        assert_eq!(send_until(&b, &a.endpoint(), &at_a, b"back").0, endpoint);
        while at_a.try_recv().is_ok() {}
    }
}

#[test]
fn frames_for_an_absent_peer_are_lost_and_later_ones_arrive() {
    let place = TcpListener::bind(anywhere()).unwrap().local_addr().unwrap();
    let (a, _) = start(builder());
    let endpoint = format!("tcp/{place}");
    until(|| {
        a.send(&endpoint, b"early");
        a.stats().lost >= 3
    });
    let (_b, at_b) = start(Tcp::builder(place));
    assert_eq!(send_until(&a, &endpoint, &at_b, b"late").0, a.endpoint());
}

#[test]
fn endpoints_of_other_kinds_are_lost() {
    let (a, _) = start(builder());
    let bad = [
        "",
        "tcp/",
        "tcp/localhost:80",
        "tcp/127.0.0.1:0",
        "tcp/0.0.0.0:1",
        "udp/127.0.0.1:1",
        "tcp-from/x#1",
    ];
    bad.iter().for_each(|endpoint| a.send(endpoint, b"frame"));
    assert_eq!((a.stats().lost, a.stats().sent), (bad.len() as u64, 0));
}

#[test]
fn broken_bytes_end_their_connection_and_no_other() {
    let ((a, at_a), (b, at_b)) = (start(builder()), start(builder()));
    a.send(&b.endpoint(), b"before");
    next(&at_b);
    // No hello, and parts of one.
    for bytes in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"squalln0", b"squalln1\xff", b"squalln1\x02\xff\xff", &[0; 4096]]
    {
        let mut stream = TcpStream::connect(address(&b)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // Fails if the other side has ended the connection already.
        let _ = stream.write_all(bytes);
        assert_ended(&mut stream);
    }
    // A length beyond the limit, after a good frame.
    let mut stream = connect(&b, "");
    assert_eq!(read_hello(&mut stream), b.endpoint());
    stream.write_all(&[framed(b"good"), (1_u32 << 20 | 1).to_le_bytes().to_vec()].concat()).unwrap();
    assert_eq!(next(&at_b).1, b"good");
    assert_ended(&mut stream);
    // A frame that is never finished is not delivered.
    let mut stream = connect(&b, "");
    stream.write_all(&framed(b"unfinished")[..9]).unwrap();
    drop(stream);
    a.send(&b.endpoint(), b"after");
    assert_eq!(next(&at_b), (a.endpoint(), b"after".to_vec()));
    b.send(&a.endpoint(), b"back");
    assert_eq!(next(&at_a).1, b"back");
    until(|| b.stats().connections == 1);
    assert_eq!(b.stats().refused, 5);
    assert!(at_b.try_recv().is_err());
}

#[test]
fn a_hello_in_pieces_is_a_hello() {
    let (b, at_b) = start(builder());
    let mut stream = TcpStream::connect(address(&b)).unwrap();
    stream.set_nodelay(true).unwrap();
    for byte in [&MAGIC[..], &[0], &framed(b"x"), &framed(b"")].concat() {
        stream.write_all(&[byte]).unwrap();
    }
    assert_eq!(next(&at_b).1, b"x");
    assert_eq!(next(&at_b).1, b"");
}

#[test]
fn a_claimed_endpoint_of_another_host_gets_no_frames_of_it() {
    let (b, at_b) = start(builder());
    for claimed in ["tcp/192.0.2.1:7447", "", "no endpoint"] {
        let mut stream = connect(&b, claimed);
        assert_eq!(read_hello(&mut stream), b.endpoint());
        stream.write_all(&framed(b"hello")).unwrap();
        let (from, frame) = next(&at_b);
        assert_eq!(frame, b"hello");
        assert_ne!(from, claimed);
        b.send(&from, b"answer");
        assert_eq!(read_frame(&mut stream), b"answer");
        // The name ends with the connection.
        drop(stream);
        until(|| b.stats().connections == 0);
        let lost = b.stats().lost;
        b.send(&from, b"late");
        assert_eq!(b.stats().lost, lost + 1);
    }
}

#[test]
fn a_peer_that_reads_nothing_bounds_the_memory_and_gets_whole_frames() {
    const FRAME: usize = 64 << 10;
    const QUEUE: usize = 1 << 20;
    let (a, _) = start(builder().queue_bytes(QUEUE).dead_after(Duration::from_secs(3600)));
    let (b, at_b) = start(builder());
    let listener = TcpListener::bind(anywhere()).unwrap();
    let slow = format!("tcp/{}", listener.local_addr().unwrap());
    let frame = |number: u64| {
        let mut frame = vec![number as u8; FRAME];
        frame[..8].copy_from_slice(&number.to_le_bytes());
        frame
    };
    a.send(&slow, &frame(0));
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(read_hello(&mut stream), a.endpoint());
    // The loop ends because the queue is bounded.
    let mut sent = 1;
    while a.stats().lost < 100 {
        a.send(&slow, &frame(sent));
        sent += 1;
    }
    // Others are not held up.
    a.send(&b.endpoint(), b"other");
    assert_eq!(next(&at_b).1, b"other");
    let taken = a.stats().sent - 1;
    let mut got: Vec<u64> = Vec::new();
    for _ in 0..taken {
        let read = read_frame(&mut stream);
        let number = u64::from_le_bytes(read[..8].try_into().unwrap());
        assert!(read == frame(number), "frame {number} was changed");
        got.push(number);
    }
    assert!(got.is_sorted_by(|one, two| one < two), "{got:?}");
    // The queue has room again.
    a.send(&slow, &frame(sent));
    assert!(read_frame(&mut stream) == frame(sent));
}

#[test]
fn silent_connections_are_limited() {
    let (b, at_b) = start(builder().half_open(2).dead_after(Duration::from_secs(3600)));
    let mut first = TcpStream::connect(address(&b)).unwrap();
    let _second = TcpStream::connect(address(&b)).unwrap();
    let mut third = TcpStream::connect(address(&b)).unwrap();
    third.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_ended(&mut third);
    assert_eq!(b.stats().refused, 1);
    first.write_all(&[&MAGIC[..], &[0], &framed(b"x")].concat()).unwrap();
    assert_eq!(next(&at_b).1, b"x");
}

/// Connects from an address of this machine.
fn connect_from(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((from, 0))).unwrap();
    rustix::net::connect(&socket, &to).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn silent_connections_of_one_host_lock_no_other_one_out() {
    let (b, at_b) = start(builder().half_open(4).dead_after(Duration::from_secs(3600)));
    let mut silent: Vec<_> = (0..4).map(|_| connect_from([127, 0, 0, 1], address(&b))).collect();
    let mut other = connect_from([127, 0, 0, 2], address(&b));
    // The oldest one makes room.
    assert_ended(&mut silent[0]);
    // Further ones of the first host are refused.
    assert_ended(&mut connect_from([127, 0, 0, 1], address(&b)));
    other.write_all(&[&MAGIC[..], &[0], &framed(b"x")].concat()).unwrap();
    assert_eq!(next(&at_b).1, b"x");
    assert_eq!(read_hello(&mut other), b.endpoint());
    assert_eq!(b.stats().refused, 2);
    silent[1].write_all(&[&MAGIC[..], &[0], &framed(b"y")].concat()).unwrap();
    assert_eq!(next(&at_b).1, b"y");
}

#[test]
fn a_silent_connection_ends() {
    let (b, _) = start(builder().dead_after(Duration::from_millis(20)));
    let mut stream = TcpStream::connect(address(&b)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_ended(&mut stream);
    assert_eq!(b.stats().refused, 1);
}

#[test]
fn connections_are_limited() {
    let (b, at_b) = start(builder().connections(1));
    let ((a, _), (c, _)) = (start(builder()), start(builder()));
    a.send(&b.endpoint(), b"first");
    assert_eq!(next(&at_b).0, a.endpoint());
    until(|| {
        c.send(&b.endpoint(), b"second");
        b.stats().refused >= 2
    });
    b.send(&c.endpoint(), b"dialled");
    until(|| b.stats().lost == 1);
    assert_eq!(b.stats().connections, 1);
    a.stop();
    assert_eq!(send_until(&c, &b.endpoint(), &at_b, b"third").0, c.endpoint());
}

#[test]
fn a_panic_of_the_receiver_ends_its_connection_alone() {
    let b = builder().build().unwrap();
    let (sender, frames) = channel();
    let receiver = Receiver::new(move |from: &str, frame: &[u8]| {
        assert_ne!(frame, b"panic", "a panic that the test wants");
        let _ = sender.send((from.to_owned(), frame.to_vec()));
    });
    b.start(receiver).unwrap();
    let ((a, _), (c, _)) = (start(builder()), start(builder()));
    for peer in [&a, &c] {
        peer.send(&b.endpoint(), b"fine");
        next(&frames);
    }
    a.send(&b.endpoint(), b"panic");
    until(|| b.stats().connections == 1);
    c.send(&b.endpoint(), b"still");
    assert_eq!(next(&frames), (c.endpoint(), b"still".to_vec()));
    assert_eq!(send_until(&a, &b.endpoint(), &frames, b"again").0, a.endpoint());
}

#[test]
fn the_receiver_may_stop_its_transport() {
    let b = Arc::new(builder().build().unwrap());
    let (sender, frames) = channel();
    let own = Arc::clone(&b);
    let receiver = Receiver::new(move |from: &str, frame: &[u8]| {
        own.stop();
        let _ = sender.send((from.to_owned(), frame.to_vec()));
    });
    b.start(receiver).unwrap();
    let (a, _) = start(builder());
    a.send(&b.endpoint(), b"stop");
    assert_eq!(next(&frames).1, b"stop");
    b.stop();
    assert_eq!(b.stats().connections, 0);
    b.send(&a.endpoint(), b"late");
    assert_eq!(b.stats().lost, 1);
}

#[test]
fn a_transport_starts_once() {
    let receiver = || Receiver::new(|_: &str, _: &[u8]| {});
    let a = builder().build().unwrap();
    a.start(receiver()).unwrap();
    assert_eq!(a.start(receiver()).unwrap_err().kind(), ErrorKind::AlreadyExists);
    a.stop();
    a.stop();
    let error = a.start(receiver()).unwrap_err().to_string();
    assert!(error.contains(&a.endpoint()) && error.contains("make another one"), "{error}");
}

#[test]
fn an_endpoint_is_one_that_others_can_dial() {
    let everywhere: SocketAddr = (Ipv4Addr::UNSPECIFIED, 0).into();
    let error = Tcp::builder(everywhere).build().unwrap_err().to_string();
    assert!(error.contains("advertise"), "{error}");
    let (a, at_a) = start(Tcp::builder(everywhere).advertise(anywhere()));
    let (b, _) = start(builder());
    b.send(&a.endpoint(), b"hello");
    assert_eq!(next(&at_a), (b.endpoint(), b"hello".to_vec()));
    let error = Tcp::builder(address(&b)).build().unwrap_err().to_string();
    assert!(error.contains(&address(&b).to_string()), "{error}");
}

#[test]
fn a_dialled_connection_without_a_hello_ends() {
    let silent = TcpListener::bind(anywhere()).unwrap();
    let (a, _at_a) = start(builder().dead_after(Duration::from_millis(20)));
    let to = format!("tcp/{}", silent.local_addr().unwrap());
    // Without a byte, and with half a hello.
    for bytes in [&b""[..], &MAGIC[..4]] {
        a.send(&to, b"lost");
        let mut stream = silent.accept().unwrap().0;
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(bytes);
        assert_ended(&mut stream);
    }
    a.stop();
    assert_eq!(a.stats().connections, 0);
}

#[test]
fn any_time_is_a_time_after_which_a_connection_is_dead() {
    let longest = || builder().dead_after(Duration::MAX);
    let ((a, at_a), (b, at_b)) = (start(longest()), start(longest()));
    assert_eq!(send_until(&a, &b.endpoint(), &at_b, b"there"), (a.endpoint(), b"there".to_vec()));
    assert_eq!(send_until(&b, &a.endpoint(), &at_a, b"back"), (b.endpoint(), b"back".to_vec()));
    let (c, _at_c) = start(builder().dead_after(Duration::ZERO));
    let mut silent = TcpStream::connect(address(&c)).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_ended(&mut silent);
}
