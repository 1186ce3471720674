//! Links between processes, honest and hostile.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

#[path = "../../squall-machine/tests/main/this_program.rs"]
mod this_program;

use squall_call::socket::{self, Packet};
use squall_call::socket_pair;
use squall_fleet::{Link, LinkError, LinkListener, LinkOptions, LinkPort, LinkReceiver, LinkSender};
use squall_machine::unpark::Unpark;
use squall_sys::shared::SharedMemory;
use std::future::Future;
use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::pin;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};
use this_program::this_program;

/// Name of the environment variable that makes the test `peer` act: a role and a number.
const ROLE: &str = "SQUALL_TEST_LINK";

/// A deadline that no test reaches.
fn never() -> Instant {
    Instant::now() + Duration::from_secs(24 * 60 * 60)
}

/// Starts a process that plays this role, with one end of a socket pair. Returns it and the other end.
fn start(role: &str, number: u64) -> (Child, OwnedFd) {
    let (here, there) = socket_pair().unwrap();
    let mut command = this_program();
    command.args(["--exact", "peer", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{role} {number}")).stdout(Stdio::null()).stdin(Stdio::from(there));
    (command.spawn().unwrap(), here)
}

/// Options that leave a loaded machine time for the start of a process.
fn options() -> LinkOptions {
    LinkOptions::new().limit(Duration::from_secs(600))
}

/// Makes two ends in this process.
fn pair(lane_bytes: usize) -> ((LinkSender, LinkReceiver), (LinkSender, LinkReceiver)) {
    let (here, there) = socket_pair().unwrap();
    let options = options().lane_bytes(lane_bytes);
    let other = thread::spawn({
        let options = options.clone();
        move || options.over(there).unwrap()
    });
    let link = options.over(here).unwrap();
    (link.split(), other.join().unwrap().split())
}

fn receive(receiver: &mut LinkReceiver) -> Result<Vec<u8>, LinkError> {
    receiver.wait().block()?;
    Ok(receiver.receive()?.expect("the wait has found a message").to_vec())
}

/// The content of a message of this length.
fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

/// A generator of Marsaglia's kind.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// The part of a peer: started by other tests in a process of its own.
#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, number) = role.split_once(' ').expect("a role and a number");
    let number: u64 = number.parse().unwrap();
    let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    match role {
        "echo" => echo(socket),
        "count" => count(socket, number),
        "silent" => {
            let link = options().lane_bytes(4096).over(socket).unwrap();
            // The parent kills this process.
            loop {
                thread::park();
                assert!(!link.name().to_string().is_empty());
            }
        }
        "scribble" => scribble(socket, number),
        "books" => books(),
        other => panic!("unknown role {other}"),
    }
}

/// Sends each message back.
fn echo(socket: OwnedFd) {
    let (sender, mut receiver) = options().lane_bytes(8192).over(socket).unwrap().split();
    loop {
        match receive(&mut receiver) {
            Ok(message) => sender.wait_to_send(&message).block().unwrap(),
            Err(LinkError::Ended { .. }) => return,
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn every_size_goes_to_another_process_and_back_in_order() {
    let (mut child, socket) = start("echo", 0);
    let (sender, mut receiver) = options().lane_bytes(8192).over(socket).unwrap().split();
    assert_eq!(sender.largest_message(), 8184);
    thread::scope(|threads| {
        threads.spawn(|| {
            for length in 0..=sender.largest_message() {
                sender.wait_to_send(&content(length)).block().unwrap();
            }
        });
        for length in 0..=sender.largest_message() {
            assert!(receive(&mut receiver).unwrap() == content(length), "a message of {length} bytes");
        }
    });
    let too_large = sender.send(&[0; 8185]).unwrap_err();
    assert!(matches!(too_large, LinkError::NoSpace { largest: 8184, .. }), "{too_large}");
    drop(sender);
    assert!(matches!(receive(&mut receiver), Err(LinkError::Ended { .. })));
    assert!(child.wait().unwrap().success());
}

/// Sends numbers from two threads. Notes the number of accepted ones of each thread in memory that it gets
/// from the parent first, until it is killed.
fn count(socket: OwnedFd, _: u64) {
    let mut byte = [0; 8];
    let Packet { descriptors, .. } =
        socket::receive_until(socket.as_fd(), &mut byte, never()).unwrap().expect("the memory");
    let memory = SharedMemory::open(descriptors[0].as_fd(), 4096).unwrap();
    let (sender, _receiver) = options().lane_bytes(4096).over(socket).unwrap().split();
    thread::scope(|threads| {
        for thread in 0..2_u32 {
            let (sender, accepted) = (&sender, memory.word(thread as usize * 4));
            threads.spawn(move || {
                for number in 0..u32::MAX {
                    let message = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                    if sender.send(&message).is_err() {
                        sender.wait_to_send(&message).block().unwrap();
                    }
                    accepted.store(number + 1, Ordering::Release);
                }
            });
        }
    });
}

#[test]
fn all_that_a_killed_process_had_sent_is_received() {
    let seed = 0x5DEE_CE66_D1CE_4E5B_u64;
    let mut random = Random(seed);
    for round in 0..12 {
        let (mut child, socket) = start("count", 0);
        let (memory, file) = SharedMemory::create(4096).unwrap();
        socket::send_until(socket.as_fd(), b"memory", &[file.as_fd()], never()).unwrap();
        let pid = child.id();
        let (sender, mut receiver) = options().lane_bytes(4096).process(pid).over(socket).unwrap().split();
        let before = random.next() % 3000;
        let mut next = [0_u32; 2];
        let mut received = 0;
        let error = loop {
            if received == before {
                child.kill().unwrap();
            }
            received += 1;
            let message = match receive(&mut receiver) {
                Ok(message) => message,
                Err(error) => break error,
            };
            let (thread, number) = message.split_at(4);
            let thread = u32::from_le_bytes(thread.try_into().unwrap()) as usize;
            let number = u32::from_le_bytes(number.try_into().unwrap());
            assert_eq!(number, next[thread], "round {round} of seed {seed}");
            next[thread] += 1;
        };
        assert!(matches!(error, LinkError::PeerGone { .. }), "{error}");
        assert!(error.to_string().contains(&format!("to process {pid}")), "{error}");
        child.wait().unwrap();
        for (thread, received) in next.into_iter().enumerate() {
            let accepted = memory.word(thread * 4).load(Ordering::Acquire);
            // The process may have been killed between a send and its note.
            assert!(
                received == accepted || received == accepted + 1,
                "round {round} of seed {seed}: {accepted} accepted, {received} received"
            );
        }
        assert!(matches!(sender.send(b"late"), Err(LinkError::PeerGone { .. })));
        assert!(matches!(receiver.receive(), Err(LinkError::PeerGone { .. })));
    }
}

#[test]
fn threads_and_tasks_that_wait_for_a_killed_process_are_woken() {
    let (mut child, socket) = start("silent", 0);
    let (sender, mut receiver) = options().process(child.id()).over(socket).unwrap().split();
    while sender.send(&[0; 100]).is_ok() {}
    thread::scope(|threads| {
        let sends = threads.spawn(|| sender.wait_to_send(&[0; 100]).block());
        let also_sends = threads.spawn(|| block_on(sender.wait_to_send(&[0; 100])));
        let receives = threads.spawn(|| receive(&mut receiver));
        child.kill().unwrap();
        assert!(matches!(sends.join().unwrap(), Err(LinkError::PeerGone { .. })));
        assert!(matches!(also_sends.join().unwrap(), Err(LinkError::PeerGone { .. })));
        assert!(matches!(receives.join().unwrap(), Err(LinkError::PeerGone { .. })));
    });
    assert!(matches!(block_on(receiver.wait()), Err(LinkError::PeerGone { .. })));
    child.wait().unwrap();
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Unpark::waker();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        thread::park();
    }
}

#[test]
fn a_full_lane_says_retry_until_the_peer_receives() {
    let ((sender, _), (_back, mut receiver)) = pair(4096);
    let mut sent = 0_u64;
    let full = loop {
        match sender.send(&sent.to_le_bytes()) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, LinkError::Retry { .. }), "{full}");
    assert_eq!(sent, 4096 / 16);
    let waited = sender.wait_to_send(&[1; 8]).block_for(Duration::from_millis(1));
    assert!(matches!(waited, Err(LinkError::Retry { .. })));
    for number in 0..sent {
        assert_eq!(receiver.receive().unwrap(), Some(&number.to_le_bytes()[..]));
    }
    assert_eq!(receiver.receive().unwrap(), None);
    sender.send(&[7; 4088]).unwrap();
    assert_eq!(receiver.receive().unwrap(), Some(&[7; 4088][..]));
}

#[test]
fn each_thread_keeps_its_order_while_all_send_and_wait() {
    const THREADS: u64 = 4;
    const MESSAGES: u64 = 5000;
    let ((sender, _), (_back, mut receiver)) = pair(4096);
    thread::scope(|threads| {
        for thread in 0..THREADS {
            let sender = &sender;
            threads.spawn(move || {
                for number in 0..MESSAGES {
                    let message = [thread.to_le_bytes(), number.to_le_bytes()].concat();
                    // Threads and tasks wait for room by turns.
                    if number % 2 == 0 {
                        sender.wait_to_send(&message).block().unwrap();
                    } else {
                        block_on(sender.wait_to_send(&message)).unwrap();
                    }
                }
            });
        }
        let mut next = [0; THREADS as usize];
        for at in 0..THREADS * MESSAGES {
            if at % 2 == 0 {
                block_on(receiver.wait()).unwrap();
            }
            let message = receive(&mut receiver).unwrap();
            let (thread, number) = message.split_at(8);
            let thread = u64::from_le_bytes(thread.try_into().unwrap()) as usize;
            assert_eq!(u64::from_le_bytes(number.try_into().unwrap()), next[thread]);
            next[thread] += 1;
        }
        assert_eq!(next, [MESSAGES; THREADS as usize]);
    });
    assert_eq!(receiver.receive().unwrap(), None);
}

/// Counts its wake-ups.
#[derive(Default)]
struct Counts(AtomicUsize);

impl Wake for Counts {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_is_woken_by_a_message_and_a_dropped_wait_by_none() {
    let ((sender, _), (_back, mut receiver)) = pair(4096);
    let counts = Arc::new(Counts::default());
    let waker = Waker::from(counts.clone());
    let context = &mut Context::from_waker(&waker);
    assert!(pin!(receiver.wait()).poll(context).is_pending());
    {
        let mut wait = pin!(receiver.wait());
        assert!(wait.as_mut().poll(context).is_pending());
        sender.send(b"one").unwrap();
        while counts.0.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        assert!(wait.as_mut().poll(context).is_ready());
    }
    assert_eq!(receiver.receive().unwrap(), Some(&b"one"[..]));
    assert_eq!(counts.0.load(Ordering::SeqCst), 1, "the dropped wait has left its waker");
}

#[test]
fn an_end_that_is_dropped_is_told_after_the_messages() {
    let ((sender, _keeps), (back, mut receiver)) = pair(4096);
    sender.send(b"the last one").unwrap();
    drop(sender);
    assert_eq!(receive(&mut receiver).unwrap(), b"the last one");
    assert!(matches!(receive(&mut receiver), Err(LinkError::Ended { .. })));
    back.send(b"the other direction goes on").unwrap();

    let ((sender, _keeps), (_back, receiver)) = pair(4096);
    while sender.send(&[0; 100]).is_ok() {}
    thread::scope(|threads| {
        let sends = threads.spawn(|| sender.wait_to_send(&[0; 100]).block());
        drop(receiver);
        assert!(matches!(sends.join().unwrap(), Err(LinkError::Ended { .. })));
    });
    assert!(matches!(sender.send(&[]), Err(LinkError::Ended { .. })));
}

#[test]
fn a_link_by_name_knows_its_peer() {
    let name = format!("test-link-{}", std::process::id());
    let listener = LinkListener::bind_with(&name, options()).unwrap();
    assert_eq!(LinkListener::bind(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
    thread::scope(|threads| {
        let connects = threads.spawn(|| options().connect(&name).unwrap());
        let request = listener.accept().unwrap();
        let own = std::process::id();
        assert_eq!(request.pid(), Some(own));
        let mut there = request.link().unwrap();
        let here = connects.join().unwrap();
        assert_eq!((here.name().pid(), there.name().pid()), (Some(own), Some(own)));
        here.sender().send(b"by name").unwrap();
        assert_eq!(receive(there.receiver()).unwrap(), b"by name");
    });
    // A request that is dropped refuses the process.
    thread::scope(|threads| {
        let connects = threads.spawn(|| options().connect(&name).unwrap_err());
        drop(listener.accept().unwrap());
        let kind = connects.join().unwrap().kind();
        assert!(matches!(kind, ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{kind}");
    });
    drop(listener);
    // A process that another test starts keeps the listener until it runs its program. Until then, a
    // connection is made, and ends.
    let refused = loop {
        match Link::connect(&name).unwrap_err().kind() {
            ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {}
            other => break other,
        }
    };
    assert_eq!(refused, ErrorKind::ConnectionRefused);
    assert_eq!(Link::connect("").unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_peer_without_a_proper_hello_makes_no_link() {
    let shake = |act: &dyn Fn(&OwnedFd)| {
        let (here, there) = socket_pair().unwrap();
        act(&there);
        Link::over(here).unwrap_err()
    };
    let (right, file) = SharedMemory::create(4096 + 4096).unwrap();
    assert_eq!(right.len(), 8192);
    let hello = |socket: &OwnedFd, bytes: &[u8], file: &OwnedFd| {
        socket::send_until(socket.as_fd(), bytes, &[file.as_fd()], never()).unwrap();
    };
    let error = shake(&|socket| hello(socket, b"SqL\x02\0\x10\0\0", &file));
    assert!(error.to_string().contains("version 2"), "{error}");
    let error = shake(&|socket| hello(socket, b"SqL\x01\x01\x10\0\0", &file));
    assert!(error.to_string().contains("4097 bytes"), "{error}");
    let error = shake(&|socket| hello(socket, b"SqL\x01\0\x20\0\0", &file));
    assert!(error.to_string().contains("must have exactly 12288"), "{error}");
    let error = shake(&|socket| hello(socket, b"GET / HTTP/1.1", &file));
    assert!(error.kind() == ErrorKind::InvalidData, "{error}");
    let unsealed = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let error = shake(&|socket| hello(socket, b"SqL\x01\0\x10\0\0", &unsealed));
    assert!(error.to_string().contains("unusable"), "{error}");
    let bare = |socket: &OwnedFd| socket::send(socket.as_fd(), b"SqL\x01\0\x10\0\0", &[]).unwrap();
    let error = shake(&bare);
    assert!(error.to_string().contains("exactly one file"), "{error}");

    let (here, there) = socket_pair().unwrap();
    let error = LinkOptions::new().limit(Duration::from_millis(1)).over(here).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop(there);
    let (here, there) = socket_pair().unwrap();
    drop(there);
    assert_eq!(Link::over(here).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    let pipe = std::io::pipe().unwrap().0;
    assert!(Link::over(pipe.into()).is_err());
}

/// Does the handshake by hand, and writes random words over both lanes until the peer hangs up.
fn scribble(socket: OwnedFd, seed: u64) {
    const BYTES: usize = 4096 + 4096;
    let (own, file) = SharedMemory::create(BYTES).unwrap();
    socket::send_until(socket.as_fd(), b"SqL\x01\0\x10\0\0", &[file.as_fd()], never()).unwrap();
    let mut buffer = [0; 64];
    let packet = socket::receive_until(socket.as_fd(), &mut buffer, never()).unwrap().unwrap();
    let theirs = SharedMemory::open(packet.descriptors[0].as_fd(), BYTES).unwrap();
    let mut random = Random(seed);
    loop {
        for memory in [&own, &theirs] {
            for _ in 0..random.next() % 64 {
                // Often the words of the positions, with values that pass some checks.
                let value = random.next();
                let at = match value % 4 {
                    0 => 0,
                    1 => 128,
                    _ => (value >> 8) as usize % (BYTES / 4) * 4,
                };
                let word = memory.word(at);
                if value.is_multiple_of(3) {
                    word.fetch_add(((value >> 32) as u32 % 128) << 4, Ordering::Relaxed);
                } else {
                    word.store((value >> 32) as u32, Ordering::Relaxed);
                }
            }
        }
        match socket::receive_bytes(socket.as_fd(), &mut buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return,
        }
    }
}

#[test]
fn a_hostile_process_ends_only_its_link() {
    for seed in 1..=12 {
        let (mut child, socket) = start("scribble", u64::wrapping_mul(seed, 0x9E37_79B9_7F4A_7C15));
        let (sender, mut receiver) = options().lane_bytes(4096).over(socket).unwrap().split();
        // Ends after the check that fails. The process goes on until then.
        for step in 0.. {
            match receiver.receive() {
                Ok(Some(message)) => assert!(message.len() <= 4088, "seed {seed}"),
                Ok(None) => {}
                Err(LinkError::Ended { .. }) => {}
                Err(error) => {
                    assert!(matches!(error, LinkError::Broken { .. }), "seed {seed}: {error}");
                    assert!(error.to_string().contains("broke the protocol: "), "{error}");
                    break;
                }
            }
            match sender.send(&content(step % 5000)) {
                Ok(())
                | Err(LinkError::Retry { .. } | LinkError::NoSpace { .. } | LinkError::Ended { .. }) => {}
                Err(error) => assert!(matches!(error, LinkError::Broken { .. }), "seed {seed}: {error}"),
            }
            if step % 100 == 0 {
                let _ = receiver.wait().block_for(Duration::from_micros(10));
                let _ = sender.wait_to_send(&[0; 2000]).block_for(Duration::from_micros(10));
            }
        }
        // The error stays.
        assert!(matches!(receiver.receive(), Err(LinkError::Broken { .. })));
        assert!(matches!(sender.send(b""), Err(LinkError::Broken { .. })));
        drop((sender, receiver));
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn a_fault_in_the_last_messages_is_told_in_place_of_the_end_of_the_peer() {
    const BYTES: usize = 4096 + 4096;
    let (here, there) = socket_pair().unwrap();
    let (_memory, file) = SharedMemory::create(BYTES).unwrap();
    socket::send(there.as_fd(), b"SqL\x01\0\x10\0\0", &[file.as_fd()]).unwrap();
    let (sender, mut receiver) = options().lane_bytes(4096).over(here).unwrap().split();
    let packet = socket::receive_until(there.as_fd(), &mut [0; 64], never()).unwrap().unwrap();
    let inbound = SharedMemory::open(packet.descriptors[0].as_fd(), BYTES).unwrap();
    drop(there);
    while !matches!(sender.send(b""), Err(LinkError::PeerGone { .. })) {
        thread::yield_now();
    }
    // The tail, with more words than the ring has.
    inbound.word(0).store(1_000 << 4, Ordering::Relaxed);
    for _ in 0..2 {
        let error = receiver.receive().unwrap_err();
        assert!(matches!(error, LinkError::Broken { fault: squall_fleet::Fault::Tail, .. }), "{error}");
    }
    assert!(matches!(sender.send(b""), Err(LinkError::Broken { .. })));
}

#[test]
fn an_unknown_packet_ends_the_link() {
    let (here, there) = socket_pair().unwrap();
    let (_memory, file) = SharedMemory::create(4096 + 4096).unwrap();
    socket::send(there.as_fd(), b"SqL\x01\0\x10\0\0", &[file.as_fd()]).unwrap();
    let (_sender, mut receiver) = Link::over(here).unwrap().split();
    socket::send(there.as_fd(), b"unknown", &[]).unwrap();
    let error = receiver.wait().block().unwrap_err();
    assert!(matches!(error, LinkError::Broken { fault: squall_fleet::Fault::Packet, .. }), "{error}");
}

/// Descriptors and mappings of links in this process.
fn holdings() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("memfd:squall")).count())
}

/// Makes links that end in all ways. Nothing of them remains.
fn books() {
    // The thread `squall-calls` keeps two descriptors of its own from the first link on.
    drop(pair(4096));
    let until_holdings_are = |expected: (usize, usize)| {
        while holdings() != expected {
            thread::yield_now();
        }
    };
    while holdings().1 != 0 {
        thread::yield_now();
    }
    let begin = holdings();
    for _ in 0..20 {
        drop(pair(4096));
        until_holdings_are(begin);
        let (mut child, socket) = start("silent", 0);
        let mut link = options().process(child.id()).over(socket).unwrap();
        child.kill().unwrap();
        assert!(matches!(receive(link.receiver()), Err(LinkError::PeerGone { .. })));
        child.wait().unwrap();
        drop(link);
        until_holdings_are(begin);
        let (here, there) = socket_pair().unwrap();
        drop(there);
        assert!(Link::over(here).is_err());
        until_holdings_are(begin);
    }
}

#[test]
fn nothing_of_a_link_remains() {
    let (mut child, _socket) = start("books", 0);
    assert!(child.wait().unwrap().success());
}

#[test]
fn processes_that_say_no_hello_hold_up_no_other_one() {
    let name = format!("test-silent-{}", std::process::id());
    let (day, minutes) = (Duration::from_secs(24 * 60 * 60), Instant::now() + Duration::from_secs(600));
    let listener = LinkListener::bind_with(&name, LinkOptions::new().limit(day)).unwrap();
    let port = LinkPort::listen(listener).unwrap();
    let connect = || socket::connect_to("squall-link", socket::own_user(), &name, minutes).unwrap();
    let silent: Vec<_> = (0..100).map(|_| connect()).collect();
    // The handshake ends after the hello of the port.
    LinkOptions::new().limit(Duration::from_secs(600)).connect(&name).unwrap();
    // The port has forgotten the oldest ones.
    assert!(socket::wait_until_readable(silent[0].as_fd(), minutes).unwrap());
    assert!(!socket::is_readable(silent[99].as_fd()));
    drop(port);
    assert!(socket::wait_until_readable(silent[99].as_fd(), minutes).unwrap());
}
