//! Tests of encrypted connections over the loopback interface, with a proxy that reads and changes the bytes.
//!
//! The ends of waits are far longer than any run takes: they turn a hang into a failure.
#![cfg(feature = "noise")]

mod common;

use common::{AGAIN, PATIENCE, address, next, start, until};
use squall_fleet::{GroupKey, NodeBuilder, Receiver, Transport};
use squall_net::{ConnectionFault, FaultReason, Tcp, TcpBuilder};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// The place of the second frame, behind the greeting, the confirmation and the first one.
const SECOND: usize = 3;
/// The bytes of the greeting of the dialling side, and of its confirmation.
const GREETING: usize = 121;
const CONFIRMATION: usize = 20;

fn plain() -> TcpBuilder {
    Tcp::builder((Ipv4Addr::LOCALHOST, 0).into())
}

fn with_key(digit: &str) -> TcpBuilder {
    let key: GroupKey = digit.repeat(32).parse().unwrap();
    plain().encrypt(key)
}

/// The address of proxies.
const FRONT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A node behind a proxy.
fn behind() -> TcpBuilder {
    with_key("1").advertise((FRONT, 0).into())
}

/// The address at which a node behind a proxy listens.
fn listens_at(node: &Tcp) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, address(node).port()).into()
}

/// The change of a proxy to the bytes from the dialling side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// All bytes pass.
    Nothing,
    /// A bit of the second frame's record, or of its length, is turned.
    Turn { byte: usize },
    /// The second frame's record comes twice.
    Repeat,
    /// The second frame's record is left out.
    Skip,
    /// The second and third record change places.
    Swap,
    /// The connection ends within the second frame's record.
    Cut,
}

/// A connection between a dialling side and `to`. Changes the first connection alone.
struct Proxy {
    endpoint: String,
    /// The bytes that the dialling sides sent, by connection, and those that came back.
    seen: Arc<Mutex<Vec<Vec<u8>>>>,
    back: Arc<Mutex<Vec<u8>>>,
}

impl Proxy {
    /// Stands before a node that advertises [`FRONT`], at the same port.
    fn new(node: &Tcp, change: Change) -> Proxy {
        Proxy::between(address(node), listens_at(node), change)
    }

    fn between(at: SocketAddr, to: SocketAddr, change: Change) -> Proxy {
        let listener = TcpListener::bind(at).unwrap();
        let endpoint = format!("tcp/{}", listener.local_addr().unwrap());
        let seen: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let back: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (seeing, returning) = (seen.clone(), back.clone());
        std::thread::spawn(move || {
            for (number, from) in listener.incoming().flatten().enumerate() {
                let Ok(onward) = TcpStream::connect(to) else { return };
                from.set_nodelay(true).unwrap();
                onward.set_nodelay(true).unwrap();
                seeing.lock().unwrap().push(Vec::new());
                let (mut answers, mut back_to) = (onward.try_clone().unwrap(), from.try_clone().unwrap());
                let returning = returning.clone();
                std::thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = answers.read(&mut bytes) {
                        returning.lock().unwrap().extend_from_slice(&bytes[..count]);
                        if back_to.write_all(&bytes[..count]).is_err() {
                            break;
                        }
                    }
                    let _ = back_to.shutdown(Shutdown::Both);
                });
                let change = if number == 0 { change } else { Change::Nothing };
                let seeing = seeing.clone();
                std::thread::spawn(move || forward(from, onward, number, change, &seeing));
            }
        });
        Proxy { endpoint, seen, back }
    }
}

/// Carries the bytes of a dialling side, until one of the two sides ends.
fn forward(
    mut from: TcpStream,
    mut onward: TcpStream,
    number: usize,
    change: Change,
    seen: &Mutex<Vec<Vec<u8>>>,
) {
    let mut read = |count: usize| {
        let mut bytes = vec![0; count];
        from.read_exact(&mut bytes).ok()?;
        seen.lock().unwrap()[number].extend_from_slice(&bytes);
        Some(bytes)
    };
    let mut held = None;
    let mut record = 0;
    // The greeting has no length in front. The confirmation is a record.
    let mut carried = read(GREETING);
    while let Some(mut bytes) = carried {
        let out = match (record, change) {
            (SECOND, Change::Turn { byte }) => {
                let byte = byte % bytes.len();
                bytes[byte] ^= 0x10;
                bytes
            }
            (SECOND, Change::Repeat) => bytes.repeat(2),
            (SECOND, Change::Skip) => Vec::new(),
            (SECOND, Change::Swap) => {
                held = Some(bytes);
                Vec::new()
            }
            (SECOND, Change::Cut) => {
                bytes.truncate(bytes.len() / 2);
                let _ = onward.write_all(&bytes);
                break;
            }
            _ => [bytes, held.take().unwrap_or_default()].concat(),
        };
        if onward.write_all(&out).is_err() {
            break;
        }
        record += 1;
        carried = read(4).and_then(|length| {
            let count = u32::from_le_bytes(*length.first_chunk().unwrap()) as usize;
            Some([length, read(count)?].concat())
        });
    }
    let _ = onward.shutdown(Shutdown::Both);
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn fault(local: &str, remote: &str, reason: FaultReason) -> impl Fn(Option<ConnectionFault>) -> bool + use<> {
    let (local, remote) = (local.to_owned(), remote.to_owned());
    move |fault| {
        fault.is_some_and(|fault| {
            let text = fault.to_string();
            assert!(text.contains(&fault.local) && text.contains(&fault.remote), "{text}");
            fault.local == local && fault.remote.starts_with(&remote) && fault.reason == reason
        })
    }
}

#[test]
fn encrypted_frames_of_all_sizes_arrive_whole_in_both_directions() {
    let ((a, at_a), (b, at_b)) = (start(with_key("1")), start(with_key("1")));
    for size in [0, 1, 4095, 65_515, 65_516, 65_519, 65_520, 200_000, a.largest_frame(), 0, 3] {
        let frame: Vec<u8> = (0..size).map(|i| (i * 31) as u8).collect();
        a.send(&b.endpoint(), &frame);
        let arrived = next(&at_b);
        assert!(arrived == (a.endpoint(), frame.clone()), "{size} bytes");
        b.send(&a.endpoint(), &frame);
        let arrived = next(&at_a);
        assert!(arrived == (b.endpoint(), frame), "{size} bytes back");
    }
    assert_eq!((a.stats().connections, b.stats().connections), (1, 1));
    assert_eq!((a.last_fault(), b.last_fault()), (None, None));
}

#[test]
fn many_frames_to_a_slow_receiver_arrive_in_order() {
    // More bytes than the buffers of both sockets take.
    const FRAMES: u8 = 24;
    let (a, _) = start(with_key("1").queue_bytes(1 << 30));
    let b = with_key("1").build().unwrap();
    let (sender, frames) = channel();
    let (open, gate) = channel::<()>();
    let gate = Mutex::new(gate);
    let receive = move |_: &str, frame: &[u8]| {
        // Waits before the first frame, so that the sender's socket is full.
        let _ = gate.lock().unwrap().recv();
        let _ = sender.send((frame.len(), frame[0]));
    };
    b.start(Receiver::new(receive)).unwrap();
    for number in 0..FRAMES {
        a.send(&b.endpoint(), &vec![number; 300_000]);
    }
    drop(open);
    for number in 0..FRAMES {
        assert_eq!(frames.recv_timeout(PATIENCE), Ok((300_000, number)));
    }
}

#[test]
fn both_sides_may_dial_at_once() {
    let ((a, at_a), (b, at_b)) = (start(with_key("1")), start(with_key("1")));
    std::thread::scope(|threads| {
        threads.spawn(|| (0..100).for_each(|i| a.send(&b.endpoint(), &[i])));
        threads.spawn(|| (0..100).for_each(|i| b.send(&a.endpoint(), &[i])));
    });
    for frames in [at_a, at_b] {
        let mut got: Vec<u8> = (0..100).map(|_| next(&frames).1[0]).collect();
        got.sort_unstable();
        assert_eq!(got, (0..100).collect::<Vec<u8>>());
    }
}

#[test]
fn another_key_is_refused_and_both_sides_can_tell() {
    let ((a, at_a), (b, at_b)) = (start(with_key("1")), start(with_key("2")));
    let told_a = fault(&a.endpoint(), &b.endpoint(), FaultReason::OtherKey);
    let told_b = fault(&b.endpoint(), "127.0.0.1:", FaultReason::OtherKey);
    until(|| {
        a.send(&b.endpoint(), b"secret");
        told_a(a.last_fault()) && told_b(b.last_fault())
    });
    assert!(at_a.try_recv().is_err() && at_b.try_recv().is_err());
    assert!(b.stats().refused > 0 && a.stats().lost > 0);
}

#[test]
fn a_plain_side_and_an_encrypted_one_refuse_each_other_and_tell_both_names() {
    let ((a, at_a), (b, at_b)) = (start(plain()), start(with_key("1")));
    let told_a = fault(&a.endpoint(), &b.endpoint(), FaultReason::Encrypted);
    let told_b = fault(&b.endpoint(), &a.endpoint(), FaultReason::NotEncrypted);
    until(|| {
        a.send(&b.endpoint(), b"plain");
        told_a(a.last_fault()) && told_b(b.last_fault())
    });
    let ((c, at_c), (d, at_d)) = (start(plain()), start(with_key("1")));
    let told_c = fault(&c.endpoint(), "127.0.0.1:", FaultReason::Encrypted);
    let told_d = fault(&d.endpoint(), &c.endpoint(), FaultReason::NotEncrypted);
    until(|| {
        d.send(&c.endpoint(), b"secret");
        told_c(c.last_fault()) && told_d(d.last_fault())
    });
    assert!([at_a, at_b, at_c, at_d].iter().all(|frames| frames.try_recv().is_err()));
}

/// The number of the group in a frame: the second one, behind the version. Each byte holds seven bits, the
/// lowest first.
fn group_of(frame: &[u8]) -> u128 {
    let length = 1 + frame[1..].iter().position(|byte| byte & 0x80 == 0).unwrap();
    frame[1..=length].iter().rev().fold(0, |number, byte| number << 7 | u128::from(byte & 0x7f))
}

#[test]
fn a_plain_frame_of_a_group_opens_no_encrypted_connection_of_it() {
    let (spy, frames) = start(plain());
    let key: GroupKey = "1".repeat(32).parse().unwrap();
    let node = NodeBuilder::new(key).join(plain().build().unwrap(), &[&spy.endpoint()]).unwrap();
    let (_, frame) = next(&frames);
    drop(node);
    assert_ne!(group_of(&frame).to_be_bytes(), key.derive("frames")[..16]);
    // The thief takes the number for the key.
    let stolen: GroupKey = format!("{:032x}", group_of(&frame)).parse().unwrap();
    let ((a, at_a), (thief, _)) = (start(with_key("1")), start(plain().encrypt(stolen)));
    let told = fault(&thief.endpoint(), &a.endpoint(), FaultReason::OtherKey);
    until(|| {
        thief.send(&a.endpoint(), b"open");
        told(thief.last_fault())
    });
    assert!(at_a.try_recv().is_err());
}

#[test]
fn a_proxy_sees_no_content() {
    let ((a, at_a), (b, at_b)) = (start(with_key("1")), start(behind()));
    let proxy = Proxy::new(&b, Change::Nothing);
    a.send(&proxy.endpoint, b"attack at dawn");
    assert_eq!(next(&at_b), (a.endpoint(), b"attack at dawn".to_vec()));
    b.send(&a.endpoint(), b"retreat at dusk");
    assert_eq!(next(&at_a), (proxy.endpoint, b"retreat at dusk".to_vec()));
    let (seen, back) = (proxy.seen.lock().unwrap(), proxy.back.lock().unwrap());
    for (bytes, secrets) in [
        (&seen[0], [&b"attack at dawn"[..], a.endpoint().as_bytes()]),
        (&*back, [&b"retreat at dusk"[..], b.endpoint().as_bytes()]),
    ] {
        assert!(bytes.len() > GREETING + 20);
        assert!(secrets.iter().all(|secret| !contains(bytes, secret)));
    }
}

#[test]
fn a_member_that_is_reached_in_place_of_another_one_gets_no_frame() {
    let ((a, _), (b, at_b), (c, at_c)) = (start(with_key("1")), start(behind()), start(with_key("1")));
    // Leads the bytes for one member to another one.
    let _proxy = Proxy::between(address(&b), address(&c), Change::Nothing);
    let told = fault(&a.endpoint(), &b.endpoint(), FaultReason::OtherEndpoint { answered: address(&c) });
    until(|| {
        a.send(&b.endpoint(), b"for b");
        told(a.last_fault())
    });
    assert!(a.last_fault().unwrap().to_string().contains(&c.endpoint()));
    assert!(at_b.try_recv().is_err() && at_c.try_recv().is_err());
    assert_eq!((a.stats().connections, c.stats().connections), (0, 0));
}

#[test]
fn changed_repeated_and_missing_records_end_their_connection() {
    let turns = [0, 1, 3, 4, 20, 23, usize::MAX / 2].map(|byte| Change::Turn { byte });
    let others = [Change::Repeat, Change::Skip, Change::Swap, Change::Cut];
    for change in turns.into_iter().chain(others) {
        let ((a, _), (b, at_b)) = (start(with_key("1")), start(behind()));
        let proxy = Proxy::new(&b, change);
        a.send(&proxy.endpoint, b"first");
        assert_eq!(next(&at_b).1, b"first", "{change:?}");
        a.send(&proxy.endpoint, b"second");
        // Comes over another connection.
        let mut got = Vec::new();
        until(|| {
            a.send(&proxy.endpoint, b"third");
            got.extend(at_b.recv_timeout(AGAIN).map(|arrived| arrived.1));
            got.iter().any(|frame| frame == b"third")
        });
        let seconds = got.iter().filter(|frame| **frame == b"second").count();
        assert_eq!(seconds, usize::from(change == Change::Repeat), "{change:?}");
        assert_eq!(got[seconds], b"third", "{change:?}");
        let reason = b.last_fault().map(|fault| fault.reason);
        // A length that was made larger waits for bytes, until those of later records do not open.
        let told = (change != Change::Cut).then_some(FaultReason::Changed);
        assert_eq!(reason, told, "{change:?}");
        assert!(proxy.seen.lock().unwrap().len() >= 2, "{change:?}");
    }
}

#[test]
fn a_recorded_connection_is_not_accepted_again() {
    let ((a, _), (b, at_b)) = (start(with_key("1")), start(behind()));
    let proxy = Proxy::new(&b, Change::Nothing);
    a.send(&proxy.endpoint, b"once");
    assert_eq!(next(&at_b).1, b"once");
    let recorded = proxy.seen.lock().unwrap()[0].clone();
    assert!(recorded.len() > GREETING + CONFIRMATION);
    let (refused, connections) = (b.stats().refused, b.stats().connections);
    let mut again = TcpStream::connect(listens_at(&b)).unwrap();
    again.set_read_timeout(Some(PATIENCE)).unwrap();
    again.write_all(&recorded).unwrap();
    // The other side answers the greeting, and ends the connection at the confirmation.
    let mut answer = Vec::new();
    let _ = again.read_to_end(&mut answer);
    assert!(answer.len() <= GREETING);
    until(|| b.stats().refused == refused + 1);
    assert_eq!(b.stats().connections, connections);
    // The connection of the true side goes on.
    a.send(&proxy.endpoint, b"more");
    assert_eq!(next(&at_b).1, b"more");
    assert_eq!(proxy.seen.lock().unwrap().len(), 1);
}

#[test]
fn greetings_that_end_early_or_come_in_pieces_are_handled() {
    let ((a, _), (b, at_b)) = (start(with_key("1")), start(behind()));
    let proxy = Proxy::new(&b, Change::Nothing);
    a.send(&proxy.endpoint, b"once");
    assert_eq!(next(&at_b).1, b"once");
    let greeting = proxy.seen.lock().unwrap()[0][..GREETING].to_vec();
    let refused = b.stats().refused;
    for (count, end) in (1..).zip([0, 1, 7, 8, 9, 40, GREETING - 1]) {
        let mut stream = TcpStream::connect(listens_at(&b)).unwrap();
        stream.write_all(&greeting[..end]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        until(|| b.stats().refused == refused + count);
    }
    // The answer comes after the last byte.
    let mut stream = TcpStream::connect(listens_at(&b)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    greeting.iter().for_each(|byte| stream.write_all(&[*byte]).unwrap());
    let mut answer = [0; GREETING];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..8], greeting[..8]);
    assert_eq!(b.stats().connections, 1);
}

#[test]
fn a_restarted_peer_is_found_again() {
    let ((a, at_a), (b, at_b)) = (start(with_key("1")), start(with_key("1")));
    let (endpoint, place) = (b.endpoint(), address(&b));
    a.send(&endpoint, b"first");
    assert_eq!(next(&at_b).1, b"first");
    drop(b);
    let key: GroupKey = "1".repeat(32).parse().unwrap();
    let (b, at_b) = start(Tcp::builder(place).encrypt(key));
    let mut got = None;
    until(|| {
        a.send(&endpoint, b"again");
        got = at_b.recv_timeout(AGAIN).ok();
        got.is_some()
    });
    assert_eq!(got, Some((a.endpoint(), b"again".to_vec())));
    b.send(&a.endpoint(), b"back");
    assert_eq!(next(&at_a), (endpoint, b"back".to_vec()));
}
