//! Peers that keep to no protocol. They speak to the honest side through the format of segments and frames.

use crate::common::{Shop, adds, kind, pair, shop, transport, until};
use squall_call::__macro::Remote;
use squall_call::frames::{FRAME_BYTES_MAX, Frame, Hello, Refusal, Wake, Welcome};
use squall_call::layout::{BULK_BYTES, Slot, segment_bytes};
use squall_call::{Export, ExportOptions, ImportError, import_from, socket};
use squall_core::Owned;
use squall_core::{MessageError, Transport};
use squall_sys::shared::SharedMemory;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The regions that a hostile client asks for.
const REGIONS: u32 = 2;

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A client that may write any values.
struct Client {
    socket: OwnedFd,
    memory: SharedMemory,
    object: u64,
    _export: Export,
}

impl Client {
    fn connect<I: Remote + ?Sized>(object: &Owned<I>) -> Client {
        Client::connect_with(object, &ExportOptions::new())
    }

    fn connect_with<I: Remote + ?Sized>(object: &Owned<I>, options: &ExportOptions) -> Client {
        let (here, there) = pair();
        let export = options.export_on(object.handle(), here).unwrap();
        let hello =
            Hello { interface: I::NAME, schema: I::SCHEMA, signature: I::SIGNATURE, regions: REGIONS };
        socket::send(there.as_fd(), &Frame::Hello(hello).encode().unwrap(), &[]).unwrap();
        let mut buffer = [0; FRAME_BYTES_MAX];
        let packet = socket::receive_until(there.as_fd(), &mut buffer, soon()).unwrap().unwrap();
        let Ok(Frame::Welcome(welcome)) = Frame::decode(&buffer[..packet.bytes]) else {
            panic!("no welcome")
        };
        let memory =
            SharedMemory::open(packet.descriptors[0].as_fd(), segment_bytes(REGIONS).unwrap()).unwrap();
        Client { socket: there, memory, object: welcome.object, _export: export }
    }

    /// Writes the head of a call of `get`, which accepts any argument.
    fn prepare(&self, slot: Slot) {
        self.memory.word(slot.object()).store(self.object as u32, SeqCst);
        self.memory.word(slot.generation()).store((self.object >> 32) as u32, SeqCst);
        self.memory.word(slot.method()).store(2, SeqCst);
        self.memory.word(slot.length()).store(1, SeqCst);
    }

    fn ask(&self, slot: Slot) {
        let wake = Frame::Wake(Wake { slot: slot.index() }).encode().unwrap();
        // The server may have hung up. It may also read slowly, and must get every frame.
        let _ = socket::send_until(self.socket.as_fd(), &wake, &[], soon());
    }

    /// Waits until the server has answered the call with number 1, or hung up. Returns the status of the
    /// answer, if there is one.
    fn outcome(&self, slot: Slot) -> Option<u32> {
        self.outcome_of(slot, 1)
    }

    fn outcome_of(&self, slot: Slot, number: u32) -> Option<u32> {
        let mut buffer = [0; FRAME_BYTES_MAX];
        loop {
            if self.memory.word(slot.reply()).load(SeqCst) >> 3 == number {
                return Some(self.memory.word(slot.status()).load(SeqCst));
            }
            match socket::receive(self.socket.as_fd(), &mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                _ => return None,
            }
        }
    }
}

/// The first call of a slot.
const ISSUED: u32 = 1 << 3 | 1;

/// Values that break off-by-one checks, signs, lengths and flags.
const VALUES: [u32; 14] =
    [0, 1, 2, 3, 4, 5, 8, 192, 193, BULK_BYTES as u32, BULK_BYTES as u32 + 1, 1 << 30, 1 << 31, u32::MAX];

#[test]
fn hostile_values_in_each_word_of_a_call_are_answers_or_the_end_of_the_connection() {
    let object = shop();
    let slot = Slot::new(17, REGIONS).unwrap();
    let (mut answers, mut ends) = (0, 0);
    for word in slot.words() {
        for value in VALUES {
            let client = Client::connect(&object);
            client.prepare(slot);
            client.memory.word(slot.call()).store(ISSUED, SeqCst);
            client.memory.word(word).store(value, SeqCst);
            // In some of these the server has no call to answer, or one that it seems to have answered
            // before.
            let call = client.memory.word(slot.call()).load(SeqCst);
            let number = call >> 3;
            let answered_before = client.memory.word(slot.reply()).load(SeqCst) >> 3 == number;
            client.ask(slot);
            if call & 7 == 1 && !answered_before {
                match client.outcome_of(slot, number) {
                    Some(_) => answers += 1,
                    None => ends += 1,
                }
            }
        }
    }
    assert!(answers > 60, "{answers} answers, {ends} ends");
    // The server is whole.
    object.open();
    adds(object.handle(), 1, 1);
    assert_eq!(Client::connect(&object).object & 1, 1);
}

#[test]
fn a_call_of_another_object_method_or_length_has_its_own_status() {
    let object = shop();
    let status = |change: &dyn Fn(&Client, Slot)| {
        let client = Client::connect(&object);
        let slot = Slot::new(0, REGIONS).unwrap();
        client.prepare(slot);
        change(&client, slot);
        client.memory.word(slot.call()).store(ISSUED, SeqCst);
        client.ask(slot);
        client.outcome(slot)
    };
    let [done, denied, no_object, malformed, unsupported] = [0, 4, 5, 7, 8].map(Some);
    // The key "" is one byte: its length.
    assert_eq!(status(&|_, _| ()), done);
    for bit in [1, 2, 4, 8] {
        let flip = |client: &Client, slot: Slot| _ = client.memory.word(slot.object()).fetch_xor(bit, SeqCst);
        assert_eq!(status(&flip), no_object, "bit {bit} of the object");
    }
    assert_eq!(
        status(&|client, slot| _ = client.memory.word(slot.generation()).fetch_add(1, SeqCst)),
        no_object
    );
    assert_eq!(status(&|client, slot| client.memory.word(slot.method()).store(40, SeqCst)), unsupported);
    assert_eq!(status(&|client, slot| client.memory.word(slot.method()).store(64, SeqCst)), denied);
    assert_eq!(status(&|client, slot| client.memory.word(slot.length()).store(0, SeqCst)), malformed);
    assert_eq!(status(&|client, slot| client.memory.word(slot.length()).store(2, SeqCst)), malformed);
    let too_long = BULK_BYTES as u32 + 1;
    assert_eq!(status(&|client, slot| client.memory.word(slot.length()).store(too_long, SeqCst)), malformed);
}

#[test]
fn a_client_that_asks_for_workers_all_the_time_has_one_in_each_slot() {
    let object = shop();
    let client = Client::connect(&object);
    let slot = Slot::new(3, REGIONS).unwrap();
    client.prepare(slot);
    client.memory.word(slot.method()).store(6, SeqCst);
    client.memory.word(slot.length()).store(0, SeqCst);
    client.memory.word(slot.call()).store(ISSUED, SeqCst);
    for _ in 0..200 {
        client.ask(slot);
    }
    until(|| object.waiting() == 1);
    for _ in 0..200 {
        client.ask(slot);
    }
    // A call of another slot is served, so all of these were read.
    let other = Slot::new(4, REGIONS).unwrap();
    client.prepare(other);
    client.memory.word(other.call()).store(ISSUED, SeqCst);
    client.ask(other);
    assert_eq!(client.outcome(other), Some(0));
    assert_eq!(object.waiting(), 1, "the call was served twice");
    object.open();
    assert_eq!(client.outcome(slot), Some(0));
}

/// Keeps a value for each caller.
#[squall_macros::interface(crate = crate::facade, remote)]
trait Keeps: Send + Sync {
    fn keep(&self);
}

struct Keeper {
    dropped: Arc<AtomicU32>,
}

impl Keeps for Keeper {
    fn keep(&self) {
        squall_call::caller().unwrap().value(|| Kept(self.dropped.clone()));
    }
}

struct Kept(Arc<AtomicU32>);

impl Drop for Kept {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// The state of the word while a worker sleeps in the slot, and after one has left.
const SLEEPS: u32 = 3;
const ABSENT: u32 = 0;

/// A client that has made a call of [`Keeps::keep`].
fn kept(object: &Owned<dyn Keeps>, options: &ExportOptions, slot: Slot) -> Client {
    let client = Client::connect_with(object, options);
    client.prepare(slot);
    client.memory.word(slot.method()).store(0, SeqCst);
    client.memory.word(slot.length()).store(0, SeqCst);
    client.memory.word(slot.call()).store(ISSUED, SeqCst);
    client.ask(slot);
    assert_eq!(client.outcome(slot), Some(0));
    client
}

#[test]
fn an_idle_worker_leaves_although_the_client_changes_its_word_and_wakes_nobody() {
    let object = squall_core::shared::<dyn Keeps, _>(Keeper { dropped: Arc::default() });
    let slot = Slot::new(5, REGIONS).unwrap();
    for state in 1..8 {
        let client = kept(&object, &ExportOptions::new(), slot);
        let word = client.memory.word(slot.call());
        let is = |state| word.load(SeqCst) & 7 == state;
        // The worker may have left already.
        until(|| is(SLEEPS) || is(ABSENT));
        let _ = word.compare_exchange(ISSUED - 1 + SLEEPS, ISSUED - 1 + state, SeqCst, SeqCst);
        until(|| is(ABSENT));
    }
}

#[test]
fn a_worker_leaves_an_ended_client_that_changes_its_word_and_wakes_nobody() {
    let dropped = Arc::new(AtomicU32::new(0));
    let object = squall_core::shared::<dyn Keeps, _>(Keeper { dropped: dropped.clone() });
    let slot = Slot::new(5, REGIONS).unwrap();
    for (ended, state) in (0..8).enumerate() {
        let client = kept(&object, &ExportOptions::new().idle(Duration::from_secs(60)), slot);
        let word = client.memory.word(slot.call());
        until(|| word.load(SeqCst) & 7 == SLEEPS);
        word.store(ISSUED - 1 + state, SeqCst);
        // The last worker drops the values.
        drop(client);
        until(|| dropped.load(SeqCst) == ended as u32 + 1);
    }
}

#[test]
fn a_client_that_calls_all_the_time_keeps_no_worker_beyond_its_connection() {
    let dropped = Arc::new(AtomicU32::new(0));
    let object = squall_core::shared::<dyn Keeps, _>(Keeper { dropped: dropped.clone() });
    let slot = Slot::new(5, REGIONS).unwrap();
    let client = kept(&object, &ExportOptions::new(), slot);
    let Client { socket, memory, _export, .. } = client;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while dropped.load(SeqCst) == 0 {
                memory.word(slot.call()).store(ISSUED, SeqCst);
            }
        });
        drop(socket);
        until(|| dropped.load(SeqCst) == 1);
    });
}

#[test]
fn descriptors_of_a_client_are_never_received() {
    let object = shop();
    let client = Client::connect(&object);
    let (mine, sent) = std::os::unix::net::UnixStream::pair().unwrap();
    let slot = Slot::new(5, REGIONS).unwrap();
    client.prepare(slot);
    client.memory.word(slot.call()).store(ISSUED, SeqCst);
    let wake = Frame::Wake(Wake { slot: slot.index() }).encode().unwrap();
    socket::send(client.socket.as_fd(), &wake, &[sent.as_fd(), sent.as_fd()]).unwrap();
    drop(sent);
    assert_eq!(client.outcome(slot), Some(0));
    // The server has read the frame. No process has the other end any more.
    let mut one = [0; 1];
    assert_eq!(std::io::Read::read(&mut &mine, &mut one).unwrap(), 0);
}

#[test]
fn a_frame_that_no_client_sends_ends_its_connection() {
    let object = shop();
    let welcome = Welcome { object: 1, methods: 1, regions: 1 };
    let beyond = Frame::Wake(Wake { slot: REGIONS * 16 }).encode().unwrap();
    let frames = [
        b"nonsense".to_vec(),
        Frame::Welcome(welcome).encode().unwrap(),
        Frame::Refusal(Refusal::Ended).encode().unwrap(),
        beyond,
    ];
    for frame in frames {
        let client = Client::connect(&object);
        socket::send(client.socket.as_fd(), &frame, &[]).unwrap();
        let mut buffer = [0; FRAME_BYTES_MAX];
        let end = loop {
            match socket::receive_until(client.socket.as_fd(), &mut buffer, soon()) {
                Ok(Some(_)) => {}
                end => break end,
            }
        };
        assert!(matches!(end, Ok(None)), "{end:?}");
    }
    adds(object.handle(), 1, 1);
}

/// Imports from a server that runs `answer` in place of its welcome. Returns the error.
fn answer_with(answer: impl FnOnce(&OwnedFd) + Send) -> ImportError {
    let (here, there) = pair();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut buffer = [0; FRAME_BYTES_MAX];
            socket::receive_until(here.as_fd(), &mut buffer, soon()).unwrap();
            answer(&here);
        });
        let error = import_from::<dyn Shop>(there).map(drop).unwrap_err();
        server.join().unwrap();
        error
    })
}

fn welcome(regions: u32) -> Vec<u8> {
    Frame::Welcome(Welcome { object: 9, methods: u64::MAX, regions }).encode().unwrap()
}

/// Both ends of a connection. To close the second end takes an hour, unless the first one ends before.
fn lingering() -> (std::net::TcpStream, OwnedFd) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sender = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (reader, _) = listener.accept().unwrap();
    sender.set_nonblocking(true).unwrap();
    while std::io::Write::write(&mut sender, &[0; 1 << 16]).is_ok() {}
    let linger = libc::linger { l_onoff: 1, l_linger: 3_600 };
    let length = size_of_val(&linger) as libc::socklen_t;
    // SAFETY: the option takes a struct of this type and length.
    let set = unsafe {
        let socket = std::os::fd::AsRawFd::as_raw_fd(&sender);
        libc::setsockopt(socket, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), length)
    };
    assert_eq!(set, 0);
    (reader, sender.into())
}

#[test]
fn a_descriptor_that_cannot_be_closed_does_not_hold_an_import() {
    let regions = squall_machine::machine().vp_limit() as u32;
    let refusal = Frame::Refusal(Refusal::Busy).encode().unwrap();
    for (frame, count) in [(welcome(regions), 1), (welcome(regions), 2), (refusal, 1), (vec![1; 9], 1)] {
        let (reader, lingering) = lingering();
        let error = answer_with(move |socket| {
            let both = [lingering.as_fd(), lingering.as_fd()];
            socket::send(socket.as_fd(), &frame, &both[..count]).unwrap();
            // The last one to close it waits: here, or in the import.
            std::thread::spawn(move || drop(lingering));
        });
        assert!(!error.to_string().is_empty());
        // The kernel resets the connection, and the close ends.
        drop(reader);
    }
}

#[test]
fn a_welcome_without_the_right_segment_is_an_error() {
    let regions = squall_machine::machine().vp_limit() as u32;
    let bytes = segment_bytes(regions).unwrap();
    let unexpected = |error: ImportError| assert!(matches!(error, ImportError::Unexpected(_)), "{error}");
    unexpected(answer_with(|socket| socket::send(socket.as_fd(), &welcome(regions), &[]).unwrap()));
    unexpected(answer_with(|socket| {
        let (_memory, file) = SharedMemory::create(bytes).unwrap();
        socket::send(socket.as_fd(), &welcome(regions), &[file.as_fd(), file.as_fd()]).unwrap();
    }));
    unexpected(answer_with(|socket| {
        let (_memory, file) = SharedMemory::create(bytes).unwrap();
        socket::send(socket.as_fd(), &welcome(regions + 1), &[file.as_fd()]).unwrap();
    }));
    let refused = |error: ImportError| assert!(matches!(error, ImportError::System(_)), "{error}");
    refused(answer_with(|socket| {
        let (_memory, file) = SharedMemory::create(bytes - 4096).unwrap();
        socket::send(socket.as_fd(), &welcome(regions), &[file.as_fd()]).unwrap();
    }));
    refused(answer_with(|socket| {
        let file = rustix::fs::memfd_create("unsealed", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, bytes as u64).unwrap();
        socket::send(socket.as_fd(), &welcome(regions), &[file.as_fd()]).unwrap();
    }));
    let closed = answer_with(|_| ());
    assert!(matches!(closed, ImportError::Closed), "{closed}");
    let frame = answer_with(|socket| socket::send(socket.as_fd(), b"HTTP/1.1 200", &[]).unwrap());
    assert!(matches!(frame, ImportError::Frame(_)), "{frame}");
    let refusal = answer_with(|socket| {
        socket::send(socket.as_fd(), &Frame::Refusal(Refusal::Busy).encode().unwrap(), &[]).unwrap();
    });
    assert!(matches!(refusal, ImportError::Refused(Refusal::Busy)), "{refusal}");
}

/// Calls `add` of a server that answers with this status and length, and with these bytes in the slot.
fn answer_of(status: u32, length: u32, bytes: [u8; 192]) -> Result<u64, squall_core::CallError> {
    let (here, there) = pair();
    let regions = squall_machine::machine().vp_limit() as u32;
    let size = segment_bytes(regions).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut buffer = [0; FRAME_BYTES_MAX];
            socket::receive_until(here.as_fd(), &mut buffer, soon()).unwrap();
            let (memory, file) = SharedMemory::create(size).unwrap();
            socket::send(here.as_fd(), &welcome(regions), &[file.as_fd()]).unwrap();
            let packet = socket::receive_until(here.as_fd(), &mut buffer, soon()).unwrap().unwrap();
            let Ok(Frame::Wake(Wake { slot })) = Frame::decode(&buffer[..packet.bytes]) else { panic!() };
            let slot = Slot::new(slot, regions).unwrap();
            memory.word(slot.status()).store(status, SeqCst);
            memory.word(slot.reply_length()).store(length, SeqCst);
            memory.copy_in(slot.data(192).unwrap(), &bytes);
            let number = memory.word(slot.call()).load(SeqCst) >> 3;
            memory.word(slot.reply()).store(number << 3, SeqCst);
            squall_sys::futex::wake_shared(memory.word(slot.reply()), 1);
            // Its end would be another answer.
            let _ = socket::receive_until(here.as_fd(), &mut buffer, soon());
        });
        let imported = import_from::<dyn Shop>(there).unwrap();
        let result = imported.try_add(1);
        drop(imported);
        result
    })
}

#[test]
fn a_reply_that_no_server_sends_is_an_error() {
    for (status, length) in [(0, 0), (0, 1), (0, 8), (0, 192), (0, 193), (0, 8_449), (0, u32::MAX), (77, 0)] {
        // Bytes that are no number.
        let kind = kind(answer_of(status, length, [0xff; 192]));
        assert_eq!(kind, transport(Transport::BadResult(MessageError::Undecodable)), "{status} {length}");
    }
    // A number, and a byte after it.
    assert_eq!(answer_of(0, 1, [7; 192]), Ok(7));
    let longer = kind(answer_of(0, 2, [7; 192]));
    assert_eq!(longer, transport(Transport::BadResult(MessageError::Undecodable)));
}
