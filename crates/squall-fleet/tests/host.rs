//! The transport of one machine, between processes, honest and hostile.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

#[path = "../../squall-machine/tests/main/this_program.rs"]
mod this_program;

use squall_fleet::{HostTransport, Link, LinkReceiver, LinkSender, Receive, Receiver, Transport};
use std::collections::HashSet;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use this_program::this_program;

/// Name of the environment variable that makes the test `peer` act: a role, the name of the transport, and
/// the endpoint of another one.
const ROLE: &str = "SQUALL_TEST_HOST";
/// The time after which a frame is sent again: it may have been lost.
const AGAIN: Duration = Duration::from_millis(20);

/// A process that plays a role until it is killed, or this is dropped.
struct Peer {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Peer {
    fn start(role: &str, name: &str, other: &str) -> Peer {
        let mut command = this_program();
        command.args(["--exact", "peer", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, format!("{role} {name} {other}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        Peer { child, stdin }
    }

    /// Waits until the process prints a line.
    fn until_it_prints(&mut self, line: &str) {
        let output = BufReader::new(self.child.stdout.as_mut().unwrap());
        assert!(output.lines().any(|printed| printed.unwrap().ends_with(line)), "it ended without {line:?}");
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets the process end.
    fn end(mut self) {
        drop(self.stdin.take());
        let _ = std::io::copy(self.child.stdout.as_mut().unwrap(), &mut std::io::sink());
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, PartialEq)]
enum Event {
    Frame(String, Vec<u8>),
    Ended(String),
}

struct Events(Mutex<mpsc::Sender<Event>>);

impl Receive for Events {
    fn receive(&self, from: &str, frame: &[u8]) {
        let _ = self.0.lock().unwrap().send(Event::Frame(from.to_owned(), frame.to_vec()));
    }

    fn ended(&self, endpoint: &str) {
        let _ = self.0.lock().unwrap().send(Event::Ended(endpoint.to_owned()));
    }
}

/// Returns a name that no other test uses.
fn name(of: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("test-{of}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

fn events() -> (Receiver, mpsc::Receiver<Event>) {
    let (sender, events) = mpsc::channel();
    (Receiver::new(Events(Mutex::new(sender))), events)
}

fn visitor() -> (HostTransport, mpsc::Receiver<Event>) {
    let transport = HostTransport::unnamed().unwrap();
    let (receiver, events) = events();
    transport.start(receiver).unwrap();
    (transport, events)
}

/// Sends a frame until an answer comes. Returns the events, of which the last one is the answer.
fn ask(transport: &HostTransport, to: &str, frame: &[u8], events: &mpsc::Receiver<Event>) -> Vec<Event> {
    let mut seen = Vec::new();
    loop {
        transport.send(to, frame);
        match events.recv_timeout(AGAIN) {
            Ok(event) => {
                let is_frame = matches!(&event, Event::Frame(from, _) if from == to);
                seen.push(event);
                if is_frame {
                    return seen;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits for the end of an endpoint. Returns the frames before it.
fn until_ended(endpoint: &str, events: &mpsc::Receiver<Event>) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    loop {
        match events.recv().unwrap() {
            Event::Ended(ended) if ended == endpoint => return frames,
            Event::Frame(_, frame) => frames.push(frame),
            other => panic!("{other:?}"),
        }
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 7 + length) as u8).collect()
}

/// The part of a peer: started by other tests in a process of its own.
#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let parts: Vec<&str> = role.split(' ').collect();
    let &[role, name, other] = &parts[..] else { panic!("a role, a name and an endpoint") };
    match role {
        "echo" => echo(name, false),
        "pid" => echo(name, true),
        "sends" => sends(name, other),
        "dials" => dials(name, other),
        "hostile" => hostile(other),
        "impostor" => impostor(name, other),
        "books" => books(),
        other => panic!("unknown role {other}"),
    }
}

fn print(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Waits until the parent lets this process end.
fn until_the_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Sends each frame back, or the id of this process.
fn echo(name: &str, sends_pid: bool) {
    let transport = Arc::new(HostTransport::bind(name).unwrap());
    let answers = transport.clone();
    let pid = std::process::id().to_le_bytes();
    let answer = move |from: &str, frame: &[u8]| answers.send(from, if sends_pid { &pid } else { frame });
    transport.start(Receiver::new(answer)).unwrap();
    until_the_end();
    transport.stop();
}

#[test]
fn frames_of_every_size_go_to_another_process_and_back() {
    let name = name("echo");
    let peer = Peer::start("echo", &name, "-");
    let (transport, events) = visitor();
    let to = format!("host/{name}");
    assert_eq!(transport.largest_frame(), 1 << 20);
    for length in (0..300).chain([16_379, 16_380, 16_384, 65_528, 100_000, (1 << 20) - 1, 1 << 20]) {
        let frame = content(length);
        let seen = ask(&transport, &to, &frame, &events);
        // An answer to a frame that was sent twice may come late.
        let Some(Event::Frame(_, mut answer)) = seen.into_iter().next_back() else { panic!("a frame") };
        while answer.len() != length {
            let Event::Frame(_, next) = events.recv().unwrap() else { panic!("no end yet") };
            answer = next;
        }
        assert!(answer == frame, "a frame of {length} bytes");
    }
    transport.send(&to, &content((1 << 20) + 1));
    transport.send("tcp/localhost:1", b"another transport's");
    transport.send("host/", b"no name");
    peer.end();
    assert!(until_ended(&to, &events).iter().all(|frame| frame.len() <= 1 << 20));
    transport.stop();
    assert!(events.recv().is_err(), "the end was told once");
}

#[test]
fn a_transport_reaches_itself() {
    let (transport, events) = visitor();
    let to = transport.endpoint();
    assert_eq!(ask(&transport, &to, b"self", &events), [Event::Frame(to.clone(), b"self".to_vec())]);
}

#[test]
fn a_receiver_can_stop_its_transport() {
    let transport = Arc::new(HostTransport::unnamed().unwrap());
    let (stops, (sender, stopped)) = (Arc::downgrade(&transport), mpsc::channel());
    let sender = Mutex::new(sender);
    let stop = move |_: &str, _: &[u8]| {
        stops.upgrade().unwrap().stop();
        sender.lock().unwrap().send(()).unwrap();
    };
    transport.start(Receiver::new(stop)).unwrap();
    let (visitor, events) = visitor();
    let to = transport.endpoint();
    while stopped.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
        visitor.send(&to, b"stop");
    }
    assert!(until_ended(&to, &events).is_empty());
    // A later stop waits for the thread of the receiver, and a stopped transport sends no frame.
    transport.stop();
    while let Ok(()) = stopped.try_recv() {}
    assert_eq!(stopped.try_recv(), Err(TryRecvError::Disconnected), "the receiver was dropped");
    transport.send(&visitor.endpoint(), b"lost");
    visitor.stop();
    assert!(events.recv().is_err(), "the end was told once");
}

#[test]
fn a_receiver_can_stop_its_transport_while_another_thread_stops_it() {
    let name = name("stops");
    let transport = Arc::new(HostTransport::bind(&name).unwrap());
    let (stops, (sender, entered), free) = (Arc::downgrade(&transport), mpsc::channel(), name.clone());
    let sender = Mutex::new(sender);
    let stop = move |_: &str, _: &[u8]| {
        let _ = sender.lock().unwrap().send(());
        // The name is free when the other thread waits for this one.
        while HostTransport::bind(&free).is_err() {
            thread::yield_now();
        }
        stops.upgrade().unwrap().stop();
    };
    transport.start(Receiver::new(stop)).unwrap();
    let (visitor, events) = visitor();
    let to = transport.endpoint();
    while entered.recv_timeout(AGAIN) == Err(RecvTimeoutError::Timeout) {
        visitor.send(&to, b"stop");
    }
    transport.stop();
    while let Ok(()) = entered.try_recv() {}
    assert_eq!(entered.try_recv(), Err(TryRecvError::Disconnected), "the receiver was dropped");
    assert!(until_ended(&to, &events).is_empty());
}

#[test]
fn bad_names_say_why() {
    for bad in ["", "two\nlines", &"x".repeat(81)] {
        let error = HostTransport::bind(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("1 to 80 bytes"), "{error}");
    }
    let name = name("taken");
    let holder = HostTransport::bind(&name).unwrap();
    let error = HostTransport::bind(&name).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    assert!(error.to_string().contains(&name), "{error}");
    let (receiver, _events) = events();
    holder.start(receiver.clone()).unwrap();
    assert_eq!(holder.start(receiver).unwrap_err().kind(), ErrorKind::InvalidInput);
}

/// Frames that a process sends before it is killed.
const SENT: u32 = 50;

/// Sends numbers, once the parent has answered.
fn sends(name: &str, other: &str) {
    let transport = HostTransport::bind(name).unwrap();
    let (receiver, events) = events();
    transport.start(receiver).unwrap();
    ask(&transport, other, b"first", &events);
    for number in 0..SENT {
        transport.send(other, &number.to_le_bytes());
    }
    print("sent");
    until_the_end();
}

#[test]
fn a_killed_process_is_told_once_after_all_its_frames() {
    let (transport, name) = (Arc::new(HostTransport::unnamed().unwrap()), name("sends"));
    let (sender, events) = mpsc::channel();
    // Holds the frames up until the process was killed.
    let (open, gate) = mpsc::channel::<()>();
    struct Gate(Mutex<mpsc::Receiver<()>>, Events, Arc<HostTransport>);
    impl Receive for Gate {
        fn receive(&self, from: &str, frame: &[u8]) {
            if frame == b"first" {
                self.2.send(from, b"second");
            } else {
                let _ = self.0.lock().unwrap().recv();
                self.1.receive(from, frame);
            }
        }
        fn ended(&self, endpoint: &str) {
            self.1.ended(endpoint);
        }
    }
    let gate = Gate(Mutex::new(gate), Events(Mutex::new(sender)), transport.clone());
    transport.start(Receiver::new(gate)).unwrap();
    let mut peer = Peer::start("sends", &name, &transport.endpoint());
    peer.until_it_prints("sent");
    peer.kill();
    drop(open);
    let frames = until_ended(&format!("host/{name}"), &events);
    let numbers: Vec<Vec<u8>> = (0..SENT).map(|number| number.to_le_bytes().to_vec()).collect();
    assert_eq!(frames, numbers);
    transport.stop();
    assert!(events.recv().is_err(), "the end was told once");
}

#[test]
fn a_process_that_restarts_under_its_name_is_reached_again() {
    let (name, (transport, events)) = (name("restart"), visitor());
    let to = format!("host/{name}");
    let mut before: Option<[u8; 4]> = None;
    for _ in 0..5 {
        let peer = Peer::start("pid", &name, "-");
        let pid = peer.child.id().to_le_bytes();
        // Frames of the former process may be left, then its end, then frames of this one.
        let mut seen = ask(&transport, &to, b"who?", &events);
        while seen.last() != Some(&Event::Frame(to.clone(), pid.to_vec())) {
            seen.extend(ask(&transport, &to, b"who?", &events));
        }
        let of_pid = |event: &Event, pid: &[u8]| matches!(event, Event::Frame(_, frame) if frame == pid);
        let ends: Vec<usize> = (0..seen.len()).filter(|at| matches!(seen[*at], Event::Ended(_))).collect();
        assert_eq!(ends.len(), usize::from(before.is_some()), "{seen:?}");
        let at = ends.first().copied().unwrap_or(0);
        assert!(seen[at..].iter().skip(ends.len()).all(|event| of_pid(event, &pid)), "{seen:?}");
        assert!(seen[..at].iter().all(|event| of_pid(event, &before.unwrap())), "{seen:?}");
        before = Some(pid);
        peer.kill();
    }
}

/// Sends to the parent at once, until an answer comes.
fn dials(name: &str, other: &str) {
    let transport = HostTransport::bind(name).unwrap();
    let (receiver, events) = events();
    transport.start(receiver).unwrap();
    print("bound");
    ask(&transport, other, b"from the child", &events);
    until_the_end();
}

#[test]
fn two_processes_that_connect_at_once_have_one_end() {
    for _ in 0..10 {
        let (name, (transport, events)) = (name("dials"), visitor());
        let to = format!("host/{name}");
        let mut peer = Peer::start("dials", &name, &transport.endpoint());
        peer.until_it_prints("bound");
        let seen = ask(&transport, &to, b"from the parent", &events);
        assert_eq!(seen, [Event::Frame(to.clone(), b"from the child".to_vec())]);
        // The child may wait for an answer to a later frame.
        transport.send(&to, b"from the parent");
        drop(peer.stdin.take());
        loop {
            match events.recv_timeout(AGAIN) {
                Ok(Event::Ended(ended)) => break assert_eq!(ended, to),
                Ok(other) => assert_eq!(other, Event::Frame(to.clone(), b"from the child".to_vec())),
                Err(_) => transport.send(&to, b"from the parent"),
            }
        }
        peer.end();
        transport.stop();
        assert!(events.recv().is_err(), "the end was told once");
    }
}

#[test]
fn eight_threads_send_and_no_frame_is_mixed() {
    const FRAMES: u32 = 200;
    let name = name("threads");
    let peer = Peer::start("echo", &name, "-");
    let (transport, to) = (HostTransport::unnamed().unwrap(), format!("host/{name}"));
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..8).map(|_| mpsc::channel::<Vec<u8>>()).unzip();
    let senders = Mutex::new(senders);
    let answer = move |_: &str, frame: &[u8]| {
        let _ = senders.lock().unwrap()[usize::from(frame[0])].send(frame.to_vec());
    };
    transport.start(Receiver::new(answer)).unwrap();
    thread::scope(|threads| {
        for (thread, answers) in receivers.into_iter().enumerate() {
            let (transport, to) = (&transport, &to);
            threads.spawn(move || {
                for number in 0..FRAMES {
                    let mut frame = vec![thread as u8];
                    frame.extend_from_slice(&number.to_le_bytes());
                    // Some in pieces.
                    frame.extend(content(if number % 10 == 0 { 40_000 } else { number as usize }));
                    let answer = loop {
                        transport.send(to, &frame);
                        match answers.recv_timeout(Duration::from_secs(1)) {
                            // An answer to a frame that was sent twice.
                            Ok(answer) if answer[1..5] != frame[1..5] => {}
                            Ok(answer) => break answer,
                            Err(_) => {}
                        }
                    };
                    assert!(answer == frame, "frame {number} of thread {thread}");
                }
            });
        }
    });
    peer.end();
}

/// Makes a link to a transport by hand, and says hello.
fn greet(name: &str, other: &str, number: u8) -> (LinkSender, LinkReceiver) {
    let (sender, receiver, _) = greet_with(name, other, [number; 16]);
    (sender, receiver)
}

/// Makes a link like [`greet`], with a number of 16 bytes. Returns the number of the transport too.
fn greet_with(name: &str, other: &str, number: [u8; 16]) -> (LinkSender, LinkReceiver, [u8; 16]) {
    let (sender, mut receiver) = loop {
        // The transport refuses a link if it has no time.
        if let Ok(link) = Link::connect(other.strip_prefix("host/").unwrap()) {
            break link.split();
        }
    };
    let greeting = [&[0, 1][..], &number, name.as_bytes()].concat();
    sender.send(&greeting).unwrap();
    receiver.wait().block().unwrap();
    let greeting = receiver.receive().unwrap().unwrap();
    assert_eq!(greeting[..2], [0, 1]);
    let theirs = greeting[2..18].try_into().unwrap();
    (sender, receiver, theirs)
}

/// Sends messages that break the format, each over a link of its own.
fn hostile(other: &str) {
    let garbage: [&[u8]; 8] = [
        &[],
        &[0, 1, 2],
        &[9; 100],
        &[3, 1],
        &[2, 255, 255, 255, 255, 1],
        &[2, 1, 0, 0, 0, 1],
        &[4, 4],
        &[2, 9, 0, 0, 0],
    ];
    for (number, garbage) in (1..).zip(garbage) {
        let (sender, mut receiver) = greet("hostile", other, number);
        sender.send(&[4]).unwrap();
        sender.send(garbage).unwrap();
        // One is half a frame. A whole one may not come before it ends.
        if garbage.first() == Some(&2) {
            let _ = sender.send(&[1, 1]);
        }
        assert!(receiver.wait().block().is_err());
    }
    // Another message than a greeting, and a greeting with an empty name.
    for first in [&b"GET / HTTP/1.1"[..], &[&[0, 1][..], &[1; 16]].concat()] {
        let (sender, mut receiver) = Link::connect(other.strip_prefix("host/").unwrap()).unwrap().split();
        sender.send(first).unwrap();
        assert!(receiver.wait().block().is_err());
    }
    print("done");
}

#[test]
fn a_hostile_process_ends_only_its_links_and_its_end_is_not_told() {
    let (name, (transport, events)) = (name("good"), visitor());
    let to = format!("host/{name}");
    let good = Peer::start("echo", &name, "-");
    ask(&transport, &to, b"before", &events);
    let mut hostile = Peer::start("hostile", "-", &transport.endpoint());
    hostile.until_it_prints("done");
    hostile.end();
    let seen = ask(&transport, &to, b"after", &events);
    assert!(seen.iter().all(|event| matches!(event, Event::Frame(from, _) if *from == to)), "{seen:?}");
    good.end();
    until_ended(&to, &events);
    transport.stop();
    assert!(events.recv().is_err(), "no other end was told");
}

/// Claims the name of another process, sends a frame, and ends.
fn impostor(name: &str, other: &str) {
    let (sender, _receiver) = greet(name, other, 1);
    sender.send(&[4]).unwrap();
    sender.send(&[1, 77]).unwrap();
    print("sent");
}

#[test]
fn the_end_of_a_process_that_claims_a_name_is_not_the_end_of_its_holder() {
    let (name, (transport, events)) = (name("holder"), visitor());
    let to = format!("host/{name}");
    let holder = Peer::start("echo", &name, "-");
    ask(&transport, &to, b"before", &events);
    let mut impostor = Peer::start("impostor", &name, &transport.endpoint());
    impostor.until_it_prints("sent");
    impostor.end();
    loop {
        match events.recv().unwrap() {
            Event::Frame(_, frame) if frame == [77] => break,
            Event::Frame(_, frame) => assert_eq!(frame, b"before"),
            Event::Ended(ended) => panic!("the end of {ended} was told"),
        }
    }
    let mut seen = ask(&transport, &to, b"after", &events);
    while seen.last() != Some(&Event::Frame(to.clone(), b"after".to_vec())) {
        seen.extend(ask(&transport, &to, b"after", &events));
    }
    assert!(seen.iter().all(|event| matches!(event, Event::Frame(..))), "{seen:?}");
    holder.kill();
    until_ended(&to, &events);
}

#[test]
fn the_end_of_a_process_with_the_number_of_another_one_is_not_the_end_of_the_other_one() {
    let (name, thief, (transport, events)) = (name("holder"), name("thief"), visitor());
    let to = format!("host/{name}");
    let holder = Peer::start("echo", &name, "-");
    let (_sender, _receiver, number) = greet_with(&thief, &to, [1; 16]);
    // Another endpoint with the number of the holder ends.
    let (sender, receiver, _) = greet_with(&thief, &transport.endpoint(), number);
    sender.send(&[4]).unwrap();
    drop((sender, receiver));
    assert!(until_ended(&format!("host/{thief}"), &events).is_empty());
    // The holder is not refused.
    assert_eq!(ask(&transport, &to, b"alive", &events), [Event::Frame(to.clone(), b"alive".to_vec())]);
    holder.kill();
    until_ended(&to, &events);
    // The next process under the name of the thief is heard, and told.
    let (sender, receiver, _) = greet_with(&thief, &transport.endpoint(), [2; 16]);
    sender.send(&[4]).unwrap();
    drop((sender, receiver));
    assert!(until_ended(&format!("host/{thief}"), &events).is_empty());
    // A life that was told gets no greeting.
    let other = transport.endpoint();
    let (again, mut refused) = loop {
        if let Ok(link) = Link::connect(other.strip_prefix("host/").unwrap()) {
            break link.split();
        }
    };
    again.send(&[&[0, 1][..], &[2; 16], thief.as_bytes()].concat()).unwrap();
    assert!(refused.wait().block().is_err());
    transport.stop();
    assert!(events.recv().is_err(), "no other end was told");
}

/// Descriptors, mappings of links, and threads of transports in this process.
fn holdings() -> (usize, usize, Vec<String>) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let maps = maps.lines().filter(|line| line.contains("memfd:squall")).count();
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.ok()?.path().join("comm")).ok());
    let names = names.map(|name| name.trim().to_owned());
    let of_transport: HashSet<&str> = HashSet::from(["squall-links", "squall-accepts", "squall-connects"]);
    let names = names.filter(|name| of_transport.contains(name.as_str())).collect();
    (descriptors, maps, names)
}

/// Makes transports that stop in all ways. Nothing of them remains.
fn books() {
    let exchange = |holder: &Arc<HostTransport>| {
        let answers = Arc::downgrade(holder);
        let answer = move |from: &str, frame: &[u8]| {
            if let Some(transport) = answers.upgrade() {
                transport.send(from, frame);
            }
        };
        holder.start(Receiver::new(answer)).unwrap();
        let (visitor, events) = visitor();
        ask(&visitor, &holder.endpoint(), &content(200_000), &events);
        (visitor, events)
    };
    let until = |expected: &(usize, usize, Vec<String>)| {
        while holdings() != *expected {
            thread::yield_now();
        }
    };
    // The thread `squall-calls` keeps two descriptors of its own from the first link on.
    drop(exchange(&Arc::new(HostTransport::unnamed().unwrap())));
    while holdings().1 != 0 || !holdings().2.is_empty() {
        thread::yield_now();
    }
    let begin = holdings();
    for round in 0..20 {
        let name = name("books");
        let holder = Arc::new(HostTransport::bind(&name).unwrap());
        let (visitor, events) = exchange(&holder);
        if round % 2 == 0 {
            holder.stop();
            // The name is free although the transport was not dropped.
            drop(HostTransport::bind(&name).unwrap());
            until_ended(&holder.endpoint(), &events);
            visitor.stop();
            holder.send(&visitor.endpoint(), b"lost");
            until(&begin);
        }
        drop((holder, visitor));
        until(&begin);
        // One that was never started, and one without an answer.
        drop(HostTransport::bind(&name).unwrap());
        let (lonely, _events) = self::visitor();
        lonely.send("host/no such transport", b"lost");
        drop(lonely);
        until(&begin);
    }
}

#[test]
fn nothing_of_a_transport_remains() {
    Peer::start("books", "-", "-").end();
}
