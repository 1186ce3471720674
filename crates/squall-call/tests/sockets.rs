//! Tests of sockets and frames with a peer in another process, honest and hostile.
#![cfg(all(target_os = "linux", not(miri), not(loom)))]

#[path = "../../squall-machine/tests/main/this_program.rs"]
mod this_program;

use std::io::{ErrorKind, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use squall_call::frames::{FRAME_BYTES_MAX, Frame, FrameError, Hello, Refusal, VERSION, Wake, Welcome};
use squall_call::layout::{Slot, segment_bytes};
use squall_call::socket::{self, Packet};
use squall_sys::futex;
use squall_sys::shared::SharedMemory;
use this_program::this_program;

/// Name of the environment variable that makes the test `peer` act: a role and the name of an export.
const ROLE: &str = "SQUALL_TEST_PEER";
const REGIONS: u32 = 2;
const HELLO: Hello<'static> =
    Hello { interface: "Counter", schema: 7, signature: "Counter{get()->u64}", regions: REGIONS };

/// A deadline that no test reaches.
fn never() -> Instant {
    Instant::now() + Duration::from_secs(24 * 60 * 60)
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A name of an export that no other test and no other run has.
fn name_of(test: &str) -> String {
    format!("test-{}-{test}", std::process::id())
}

/// The command for a process that plays this role towards the export of this name.
fn command(role: &str, name: &str) -> Command {
    let mut command = this_program();
    command.args(["--exact", "peer", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, format!("{role} {name}")).stdout(Stdio::null());
    command
}

fn start(role: &str, name: &str) -> Child {
    command(role, name).spawn().expect("a process")
}

/// Waits until a descriptor is readable or hung up.
fn readable(descriptor: BorrowedFd<'_>) {
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).unwrap();
}

/// Returns the events of a descriptor, without waiting.
fn state(descriptor: BorrowedFd<'_>) -> PollFlags {
    let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
    polled[0].revents()
}

fn accept(listener: &OwnedFd) -> OwnedFd {
    readable(listener.as_fd());
    socket::accept(listener.as_fd()).unwrap().expect("a client waits")
}

/// Receives a packet, and returns it with its bytes. `None` is the end.
fn receive(socket: &OwnedFd) -> std::io::Result<Option<(Vec<u8>, Packet)>> {
    let mut buffer = vec![0; FRAME_BYTES_MAX];
    let packet = socket::receive_until(socket.as_fd(), &mut buffer, never())?;
    Ok(packet.map(|packet| (buffer[..packet.bytes].to_vec(), packet)))
}

fn send(socket: &OwnedFd, frame: Frame<'_>, descriptors: &[BorrowedFd<'_>]) {
    socket::send_until(socket.as_fd(), &frame.encode().unwrap(), descriptors, never()).unwrap();
}

/// Sends bytes and any number of descriptors, without the checks of the crate.
fn send_raw(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(descriptors.len()))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(descriptors)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// Descriptors of this process. It must be alone in its process.
fn descriptors() -> Vec<String> {
    let mut all: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .filter(|target| !target.contains("/fd"))
        .collect();
    all.sort();
    all
}

/// The part of a peer: started by other tests in a process of its own.
#[test]
fn peer() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (role, name) = role.split_once(' ').expect("a role and a name");
    let connect = || socket::connect(user(), name, never()).unwrap();
    match role {
        "honest" => honest(&connect()),
        "given" => {
            let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
            socket::adopt(&socket).unwrap();
            honest(&socket);
        }
        "hang-up-at-once" => drop(connect()),
        "hang-up-after-hello" => send(&connect(), Frame::Hello(HELLO), &[]),
        "hang-up-after-welcome" => drop(welcomed(&connect())),
        "garbage" => garbage(&connect()),
        "many-descriptors" => many_descriptors(&connect()),
        "listen" => {
            let _listener = socket::listen(name).unwrap();
            // The parent kills this process once it could connect.
            let _waits = std::io::read_to_string(std::io::stdin());
        }
        "give-pair" => {
            let (one, other) = socket::pair().unwrap();
            send(&connect(), Frame::Hello(HELLO), &[one.as_fd(), other.as_fd()]);
        }
        "impostor" => impostor(name),
        "leave-socket-to-child" => {
            let socket = connect();
            let mut child = command("keep-open", name);
            child.stdin(Stdio::from(socket.try_clone().unwrap())).spawn().unwrap();
            send(&socket, Frame::Hello(HELLO), &[]);
            std::process::exit(0);
        }
        "keep-open" => {
            let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
            assert!(receive(&socket).unwrap().is_none());
        }
        "few-files" => few_files(),
        "books" => books(name),
        other => panic!("unknown role {other}"),
    }
}

/// Introduces this process as a client, and opens the segment that it gets.
fn welcomed(socket: &OwnedFd) -> SharedMemory {
    send(socket, Frame::Hello(HELLO), &[]);
    let (bytes, packet) = receive(socket).unwrap().expect("an answer");
    let Ok(Frame::Welcome(welcome)) = Frame::decode(&bytes) else { panic!("{bytes:?}") };
    let [file] = packet.descriptors.try_into().unwrap();
    SharedMemory::open(file.as_fd(), segment_bytes(welcome.regions).unwrap()).unwrap()
}

/// A client that calls once in the last slot.
fn honest(socket: &OwnedFd) {
    let segment = welcomed(socket);
    let slot = Slot::of_region(REGIONS - 1, 15, REGIONS).unwrap();
    segment.copy_in(slot.data(8192).unwrap(), &[3; 8192]);
    // Release: pairs with the server's load of the word.
    segment.word(slot.call()).store(1, Ordering::Release);
    send(socket, Frame::Wake(Wake { slot: slot.index() }), &[]);
    // Acquire: pairs with the server's store of the reply.
    while segment.word(slot.reply()).load(Ordering::Acquire) == 0 {
        futex::wait_shared(segment.word(slot.reply()), 0, None);
    }
    let mut result = [0; 4];
    segment.copy_out(slot.data(4).unwrap(), &mut result);
    assert_eq!(&result, b"done");
}

/// The server's side of `honest`.
fn serve_honest(socket: &OwnedFd) {
    let (bytes, packet) = receive(socket).unwrap().expect("a frame");
    assert_eq!(Frame::decode(&bytes), Ok(Frame::Hello(HELLO)));
    assert!(packet.descriptors.is_empty());
    let (segment, file) = SharedMemory::create(segment_bytes(REGIONS).unwrap()).unwrap();
    let welcome = Welcome { object: 5, methods: 1, regions: REGIONS };
    send(socket, Frame::Welcome(welcome), &[file.as_fd()]);
    let (bytes, _) = receive(socket).unwrap().expect("a frame");
    let Ok(Frame::Wake(Wake { slot })) = Frame::decode(&bytes) else { panic!("{bytes:?}") };
    let slot = Slot::new(slot, REGIONS).expect("a slot of the segment");
    // Acquire: pairs with the client's store of the word.
    assert_eq!(segment.word(slot.call()).load(Ordering::Acquire), 1);
    let mut arguments = [0; 8192];
    segment.copy_out(slot.data(8192).unwrap(), &mut arguments);
    assert!(arguments.iter().all(|byte| *byte == 3));
    segment.copy_in(slot.data(4).unwrap(), b"done");
    // Release: pairs with the client's load of the reply.
    segment.word(slot.reply()).store(1, Ordering::Release);
    futex::wake_shared(segment.word(slot.reply()), 1);
    assert!(receive(socket).unwrap().is_none(), "the client hangs up");
}

#[test]
fn a_call_travels_to_another_process_and_back() {
    let name = name_of("call");
    let listener = socket::listen(&name).unwrap();
    let mut child = start("honest", &name);
    let socket = accept(&listener);
    let peer = squall_sys::peer::peer(socket.as_fd()).unwrap();
    assert_eq!((peer.pid, peer.uid), (Some(child.id()), user()));
    serve_honest(&socket);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_pair_serves_a_child_that_was_given_one_end() {
    let (socket, given) = socket::pair().unwrap();
    let mut child = command("given", "pair").stdin(Stdio::from(given)).spawn().unwrap();
    serve_honest(&socket);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_peer_that_hangs_up_at_any_step_is_noticed() {
    for role in ["hang-up-at-once", "hang-up-after-hello", "hang-up-after-welcome"] {
        let name = name_of(role);
        let listener = socket::listen(&name).unwrap();
        let mut child = start(role, &name);
        let socket = accept(&listener);
        if role == "hang-up-at-once" {
            assert!(receive(&socket).unwrap().is_none());
            assert!(child.wait().unwrap().success());
            continue;
        }
        let (bytes, _) = receive(&socket).unwrap().expect("a frame");
        assert_eq!(Frame::decode(&bytes), Ok(Frame::Hello(HELLO)));
        let (segment, file) = SharedMemory::create(segment_bytes(REGIONS).unwrap()).unwrap();
        let welcome = Frame::Welcome(Welcome { object: 5, methods: 1, regions: REGIONS });
        if role == "hang-up-after-hello" {
            assert!(child.wait().unwrap().success());
            let sent = socket::send(socket.as_fd(), &welcome.encode().unwrap(), &[file.as_fd()]);
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::BrokenPipe);
        } else {
            send(&socket, welcome, &[file.as_fd()]);
            assert!(child.wait().unwrap().success());
        }
        assert!(receive(&socket).unwrap().is_none());
        // The segment serves on: its other owner has ended.
        segment.word(0).store(1, Ordering::Relaxed);
    }
}

#[test]
fn a_peer_that_hangs_up_before_it_read_all_is_noticed() {
    let (one, other) = socket::pair().unwrap();
    send(&one, Frame::Hello(HELLO), &[]);
    drop(other);
    assert_eq!(receive(&one).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(receive(&one).unwrap().is_none());
}

/// Packets of the role `garbage`, with the errors of decoding them.
fn garbage_packets() -> Vec<(Vec<u8>, FrameError)> {
    let hello = Frame::Hello(HELLO).encode().unwrap();
    let mut packets = Vec::new();
    for length in 1..hello.len() {
        let error = if length < 4 { FrameError::NoFrame } else { FrameError::Body };
        packets.push((hello[..length].to_vec(), error));
    }
    packets.push(([hello.as_slice(), b"more"].concat(), FrameError::Body));
    packets.push((b"SSH-2.0-OpenSSH\r\n".to_vec(), FrameError::NoFrame));
    packets.push((b"Sq\xFF\x01".to_vec(), FrameError::Version(255)));
    packets.push((vec![b'S', b'q', VERSION, 77], FrameError::Kind(77)));
    packets.push((vec![0; FRAME_BYTES_MAX], FrameError::NoFrame));
    packets
}

fn garbage(socket: &OwnedFd) {
    for (packet, _) in garbage_packets() {
        // This process does not block either if the other one is slow.
        socket::send_until(socket.as_fd(), &packet, &[], never()).unwrap();
    }
    // Longer than any frame.
    socket::send_until(socket.as_fd(), &vec![0; FRAME_BYTES_MAX + 1], &[], never()).unwrap();
    // Without bytes.
    send_raw(socket, b"", &[]);
    assert!(receive(socket).unwrap().is_none());
}

#[test]
fn garbage_and_half_frames_are_errors_one_by_one() {
    let name = name_of("garbage");
    let listener = socket::listen(&name).unwrap();
    let mut child = start("garbage", &name);
    let socket = accept(&listener);
    for (sent, error) in garbage_packets() {
        let (bytes, _) = receive(&socket).unwrap().expect("a packet");
        assert_eq!(bytes, sent);
        assert_eq!(Frame::decode(&bytes), Err(error));
    }
    let error = receive(&socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("longer than every frame"), "{error}");
    assert!(receive(&socket).unwrap().is_none());
    drop(socket);
    assert!(child.wait().unwrap().success());
}

/// Numbers of descriptors that the role `many-descriptors` sends. The kernel allows 253.
const MANY: [usize; 6] = [3, 4, 5, 17, 64, 253];

fn many_descriptors(socket: &OwnedFd) {
    let hello = Frame::Hello(HELLO).encode().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    for count in MANY {
        send_raw(socket, &hello, &vec![null.as_fd(); count]);
    }
    // Descriptors alone, without bytes.
    send_raw(socket, b"", &[null.as_fd()]);
    send_raw(socket, &hello, &[null.as_fd(), null.as_fd()]);
    assert!(receive(socket).unwrap().is_none());
}

/// Runs a role in a process of its own, which must end without an error.
fn alone(role: &str, name: &str) {
    let status: ExitStatus = command(role, name).status().unwrap();
    assert!(status.success(), "{role}: {status}");
}

#[test]
fn no_descriptor_remains_of_any_peer() {
    if std::env::var_os("SQUALL_TEST_RUNNER").is_some() {
        // User-mode emulation receives more descriptors than the program has room for, and keeps them open.
        return;
    }
    alone("books", &name_of("books"));
}

/// Waits until this process has these descriptors: a thread of its own closes those of a refused packet.
fn until_closed(expected: &[String]) {
    while descriptors() != expected {
        std::thread::yield_now();
    }
}

/// Serves peers of all kinds, and counts the descriptors of this process.
fn books(name: &str) {
    let listener = socket::listen(name).unwrap();
    let before = descriptors();
    let mut child = start("many-descriptors", name);
    let socket = accept(&listener);
    let with_socket = descriptors();
    assert_eq!(with_socket.len(), before.len() + 1);
    for _ in MANY {
        let error = receive(&socket).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(error.to_string().contains("too many"), "{error}");
        until_closed(&with_socket);
    }
    let error = receive(&socket).unwrap_err();
    assert!(error.to_string().contains("without a frame"), "{error}");
    until_closed(&with_socket);
    let (bytes, packet) = receive(&socket).unwrap().expect("a frame");
    assert_eq!(Frame::decode(&bytes), Ok(Frame::Hello(HELLO)));
    assert_eq!(packet.descriptors.len(), 2);
    assert_eq!(descriptors().len(), with_socket.len() + 2);
    for descriptor in &packet.descriptors {
        let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    drop(packet);
    drop(socket);
    assert!(child.wait().unwrap().success());
    assert_eq!(descriptors(), before);

    let mut child = start("honest", name);
    serve_honest(&accept(&listener));
    assert!(child.wait().unwrap().success());
    assert_eq!(descriptors(), before);

    let (one, other) = socket::pair().unwrap();
    drop(other);
    assert!(socket::process(one.as_fd()).is_err());
    drop(one);
    assert!(socket::connect(user(), &format!("{name}-unknown"), never()).is_err());
    assert_eq!(descriptors(), before);
}

#[test]
fn descriptors_beyond_the_limit_of_this_process_are_an_error() {
    alone("few-files", "few-files");
}

/// Receives descriptors in a process that may open only one more file.
fn few_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let (one, other) = socket::pair().unwrap();
    let hello = Frame::Hello(HELLO).encode().unwrap();
    for _ in 0..2 {
        socket::send(one.as_fd(), &hello, &[one.as_fd(), one.as_fd()]).unwrap();
    }
    let maximum = getrlimit(Resource::Nofile).maximum;
    // A new descriptor has the lowest free number.
    let next: u64 = {
        use std::os::fd::AsRawFd as _;
        let probe = std::fs::File::open("/dev/null").unwrap();
        u64::try_from(probe.as_raw_fd()).unwrap()
    };
    setrlimit(Resource::Nofile, Rlimit { current: Some(next + 1), maximum }).unwrap();
    let error = receive(&other).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    assert!(error.to_string().contains("too many open files"), "{error}");
    // A thread closes the one that was received: its number is free again.
    while std::fs::File::open("/dev/null").is_err() {
        std::thread::yield_now();
    }
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    assert_eq!(receive(&other).unwrap().expect("a frame").1.descriptors.len(), 2);
}

#[test]
fn a_name_is_free_again_after_its_server_was_killed() {
    let name = name_of("killed");
    assert_eq!(socket::connect(user(), &name, never()).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    let mut child = command("listen", &name).stdin(Stdio::piped()).spawn().unwrap();
    let socket = loop {
        match socket::connect(user(), &name, never()) {
            Ok(socket) => break socket,
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}"),
        }
        assert!(child.try_wait().unwrap().is_none(), "the server ended");
        std::thread::yield_now();
    };
    assert_eq!(socket::listen(&name).unwrap_err().kind(), ErrorKind::AddrInUse);
    let peer = squall_sys::peer::peer(socket.as_fd()).unwrap();
    assert_eq!((peer.pid, peer.uid), (Some(child.id()), user()));
    let process = socket::process(socket.as_fd()).unwrap();
    if let Some(process) = &process {
        assert_eq!(state(process.as_fd()), PollFlags::empty());
    }
    child.kill().unwrap();
    if let Some(process) = &process {
        readable(process.as_fd());
    }
    child.wait().unwrap();
    // A connection that was never accepted is reset.
    assert!(matches!(receive(&socket), Ok(None) | Err(_)));
    assert_eq!(socket::process(socket.as_fd()).unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(socket::listen(&name).unwrap());
}

/// Takes the name of an export of root, and waits until its standard input ends.
fn impostor(name: &str) {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
    let address = SocketAddrUnix::new_abstract_name(format!("squall-call/0/{name}").as_bytes()).unwrap();
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    rustix::net::listen(&socket, 1).unwrap();
    let _waits = std::io::read_to_string(std::io::stdin());
}

#[test]
fn the_kernel_tells_the_user_of_a_server_that_took_the_name_of_another() {
    const NOBODY: u32 = 65534;
    // Only root can start the process of another user, and only if that user can read this program.
    if user() != 0 {
        return;
    }
    let name = name_of("impostor");
    let mut command = command("impostor", &name);
    std::os::unix::process::CommandExt::uid(&mut command, NOBODY);
    let Ok(mut child) = command.stdin(Stdio::piped()).spawn() else { return };
    let socket = loop {
        if let Ok(socket) = socket::connect(0, &name, never()) {
            break socket;
        }
        assert!(child.try_wait().unwrap().is_none(), "the impostor ended");
        std::thread::yield_now();
    };
    let peer = squall_sys::peer::peer(socket.as_fd()).unwrap();
    assert_eq!((peer.pid, peer.uid), (Some(child.id()), NOBODY));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_pair_outlives_the_process_that_made_it() {
    let name = name_of("give-pair");
    let listener = socket::listen(&name).unwrap();
    let mut child = start("give-pair", &name);
    let (_, packet) = receive(&accept(&listener)).unwrap().expect("a frame");
    assert!(child.wait().unwrap().success());
    let [one, other] = packet.descriptors.try_into().unwrap();
    assert!(socket::process(one.as_fd()).unwrap().is_none());
    assert!(socket::process(other.as_fd()).unwrap().is_none());
    send(&one, Frame::Hello(HELLO), &[]);
    assert!(receive(&other).unwrap().is_some());
}

#[test]
fn the_end_of_a_peer_is_seen_although_a_child_keeps_its_socket_open() {
    let name = name_of("left");
    let listener = socket::listen(&name).unwrap();
    let mut child = start("leave-socket-to-child", &name);
    let socket = accept(&listener);
    // The child has not been waited for, so its number is still its own.
    let process = socket::process(socket.as_fd()).unwrap();
    assert!(receive(&socket).unwrap().is_some());
    if let Some(process) = process {
        readable(process.as_fd());
        assert_eq!(state(socket.as_fd()), PollFlags::empty());
    }
    assert!(child.wait().unwrap().success());
}

#[test]
fn all_sockets_close_on_exec_and_do_not_block() {
    let name = name_of("flags");
    let listener = socket::listen(&name).unwrap();
    assert!(socket::accept(listener.as_fd()).unwrap().is_none());
    let client = socket::connect(user(), &name, never()).unwrap();
    let server = accept(&listener);
    for socket in [&client, &server] {
        let by_kernel = squall_sys::peer::process(socket.as_fd()).unwrap();
        assert_eq!(socket::process(socket.as_fd()).unwrap().is_some(), by_kernel.is_some());
    }
    let (one, other) = socket::pair().unwrap();
    for socket in [&listener, &client, &server, &one, &other] {
        assert!(rustix::io::fcntl_getfd(socket).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
    let mut buffer = [0; 8];
    for socket in [&client, &server, &one, &other] {
        let error = socket::receive(socket.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let soon = Instant::now() + Duration::from_millis(2);
        let error = socket::receive_until(socket.as_fd(), &mut buffer, soon).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }
}

#[test]
fn a_peer_that_reads_nothing_delays_a_sender_until_its_deadline_at_most() {
    let (one, other) = socket::pair().unwrap();
    let packet = [1; 4096];
    let mut sent = 0;
    while socket::send(one.as_fd(), &packet, &[]).is_ok() {
        sent += 1;
    }
    let error = socket::send(one.as_fd(), &packet, &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let soon = Instant::now() + Duration::from_millis(2);
    let error = socket::send_until(one.as_fd(), &packet, &[], soon).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let mut buffer = [0; 4096];
    for _ in 0..sent {
        assert!(socket::receive(other.as_fd(), &mut buffer).unwrap().is_some());
    }
    socket::send_until(one.as_fd(), &packet, &[], never()).unwrap();
    drop(other);
    // A process that another test starts may hold the other end until it runs its program.
    let error = loop {
        match socket::send_until(one.as_fd(), &packet, &[], never()) {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{error}");
}

#[test]
fn a_server_that_accepts_no_client_delays_a_client_until_its_deadline_at_most() {
    let name = name_of("backlog");
    let listener = socket::listen(&name).unwrap();
    let mut waiting = Vec::new();
    let error = loop {
        match socket::connect(user(), &name, Instant::now() + Duration::from_millis(100)) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
        assert!(waiting.len() < 1000, "the backlog has no end");
    };
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // One that waits for a place gets it.
    let late = std::thread::spawn(move || socket::connect(user(), &name, never()));
    for _ in &waiting {
        accept(&listener);
    }
    accept(&listener);
    late.join().unwrap().unwrap();
}

#[test]
fn unsuitable_names_sockets_and_packets_are_errors() {
    for name in ["", "line\nbreak", "\0", &"n".repeat(81)] {
        assert_eq!(socket::listen(name).unwrap_err().kind(), ErrorKind::InvalidInput, "{name:?}");
        let error = socket::connect(user(), name, never()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{name:?}");
    }
    let prefix = name_of("longest");
    let longest = format!("{prefix}{}", "n".repeat(80 - prefix.len()));
    drop(socket::listen(&longest).unwrap());
    // The largest number of a user has a name that fits too.
    let error = socket::connect(u32::MAX, &longest, never()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);

    let (stream, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(socket::adopt(&stream).unwrap_err().kind(), ErrorKind::InvalidInput);
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    assert_eq!(socket::adopt(&udp).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(socket::adopt(std::fs::File::open("/dev/null").unwrap()).is_err());

    let (one, _other) = socket::pair().unwrap();
    let three = [one.as_fd(); 3];
    for (bytes, descriptors) in [(b"".as_slice(), &three[..0]), (b"", &three[..1]), (b"x", &three)] {
        let error = socket::send(one.as_fd(), bytes, descriptors).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn a_refusal_arrives_before_the_end() {
    let (server, client) = socket::pair().unwrap();
    send(&server, Frame::Refusal(Refusal::Denied), &[]);
    drop(server);
    let (bytes, _) = receive(&client).unwrap().expect("the refusal");
    assert_eq!(Frame::decode(&bytes), Ok(Frame::Refusal(Refusal::Denied)));
    assert!(receive(&client).unwrap().is_none());
}
