//! Models of rings, of sleeps that the end of the peer interrupts, and of a dispatcher that waits for several
//! links, and their twins.

use super::ring::{Look, Marks, Memory, Reader, Refused, Writer, ask_for_room, sleep_for_room, tell};
use super::vigil::Sleepers;
use crate::links::{Inbound, Links, Look as LookAtLinks};
#[cfg(loom)]
use crate::sites;
use crate::waiters::wake;
use squall_machine::unpark::Unpark;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::handed::Handed;
use squall_sys::sync::{Arc, Condvar, Mutex, thread};
use std::task::Waker;
use std::time::Duration;

/// A ring of two words: room for one message of 8 bytes. Both sides are threads.
struct Ring {
    tail: AtomicU32,
    head: AtomicU32,
    words: [Handed; 2],
    /// Sleeping as in the kernel: a wake comes before the comparison, or after the thread sleeps.
    kernel: Mutex<()>,
    woken: Condvar,
    /// Packets on the socket.
    packets: Mutex<u32>,
    arrived: Condvar,
    /// The task that the thread of the sockets wakes at a packet. Here the sender's thread acts for it.
    task: Mutex<Option<Waker>>,
    /// Not 0 after the peer has ended.
    state: AtomicU32,
    sleepers: Sleepers,
}

impl Memory for Ring {
    fn tail(&self) -> &AtomicU32 {
        &self.tail
    }

    fn head(&self) -> &AtomicU32 {
        &self.head
    }

    fn bytes(&self) -> usize {
        16
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.words[at / 8].set(u64::from_le_bytes(bytes.try_into().expect("whole words")));
        }
    }

    fn copy_out(&self, at: usize, bytes: &mut [u8]) {
        if !bytes.is_empty() {
            bytes.copy_from_slice(&self.words[at / 8].get().to_le_bytes());
        }
    }

    fn sleep(&self, word: &AtomicU32, value: u32, _: Option<Duration>) {
        let guard = self.kernel.lock().unwrap();
        if word.load(Ordering::Relaxed) == value {
            drop(self.woken.wait(guard).unwrap());
        }
    }

    fn wake(&self, _: &AtomicU32) {
        drop(self.kernel.lock().unwrap());
        self.woken.notify_all();
    }

    fn ring(&self) {
        *self.packets.lock().unwrap() += 1;
        self.arrived.notify_all();
        let task = self.task.lock().unwrap().take();
        task.into_iter().for_each(wake);
    }
}

impl Ring {
    fn new() -> Arc<Ring> {
        Arc::new(Ring {
            tail: AtomicU32::new(0),
            head: AtomicU32::new(0),
            words: [Handed::new(0), Handed::new(0)],
            kernel: Mutex::new(()),
            woken: Condvar::new(),
            packets: Mutex::new(0),
            arrived: Condvar::new(),
            task: Mutex::new(None),
            state: AtomicU32::new(0),
            sleepers: Sleepers::default(),
        })
    }

    /// Waits for a packet on the socket.
    fn await_packet(&self) {
        let mut packets = self.packets.lock().unwrap();
        while *packets == 0 {
            packets = self.arrived.wait(packets).unwrap();
        }
        *packets -= 1;
    }

    fn has_ended(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    /// The thread `squall-calls` finds that the peer has ended.
    fn end(&self) {
        self.state.store(1, Ordering::Release);
        while !self.sleepers.wake(|| self.wake(&self.tail)) {
            thread::yield_now();
        }
    }
}

fn spawn(ring: &Arc<Ring>, act: impl FnOnce(&Ring) + Send + 'static) -> thread::JoinHandle<()> {
    let ring = ring.clone();
    thread::spawn(move || act(&ring))
}

fn told(ring: &Ring, marks: Marks) {
    tell(ring, ring.tail(), marks);
}

/// Sends a message. Calls `wait` while there is no room.
fn send(ring: &Ring, writer: &mut Writer, value: u64, wait: impl Fn(Refused)) {
    loop {
        match writer.send(ring, &value.to_le_bytes()) {
            Ok(marks) => return told(ring, marks),
            Err(full @ Refused::Full(_)) => wait(full),
            Err(other) => panic!("{other:?}"),
        }
    }
}

fn yields(_: Refused) {
    thread::yield_now();
}

/// Receives a message, if there is one.
fn receive(ring: &Ring, reader: &mut Reader) -> Result<u64, Look> {
    let mut buffer = Vec::new();
    match reader.receive(ring, &mut buffer) {
        Look::Message => Ok(u64::from_le_bytes(buffer.try_into().unwrap())),
        other => Err(other),
    }
}

/// Receives this message. Calls `wait` while the ring is empty.
fn expect(ring: &Ring, reader: &mut Reader, value: u64, wait: impl Fn(&Reader)) {
    loop {
        match receive(ring, reader) {
            Ok(received) => return assert_eq!(received, value),
            Err(look) => assert_eq!(look, Look::Nothing),
        }
        wait(reader);
    }
}

/// Messages arrive whole and in order, through a ring with room for one.
fn in_order() {
    let ring = Ring::new();
    let sender = spawn(&ring, |ring| {
        let mut writer = Writer::default();
        send(ring, &mut writer, 5, yields);
        send(ring, &mut writer, 6, yields);
    });
    let mut reader = Reader::default();
    expect(&ring, &mut reader, 5, |_| thread::yield_now());
    expect(&ring, &mut reader, 6, |_| thread::yield_now());
    sender.join().unwrap();
}

/// The receiver sleeps until a message comes.
fn sleeps() {
    let ring = Ring::new();
    let sender = spawn(&ring, |ring| send(ring, &mut Writer::default(), 5, yields));
    expect(&ring, &mut Reader::default(), 5, |reader| reader.sleep(&*ring, None, || false));
    sender.join().unwrap();
}

/// The sender sleeps until there is room, and the receiver until a message comes.
fn waits_for_room() {
    let ring = Ring::new();
    let mut writer = Writer::default();
    send(&ring, &mut writer, 5, yields);
    let sender = spawn(&ring, move |ring| {
        send(ring, &mut writer, 6, |full| {
            let Refused::Full(seen) = full else { unreachable!() };
            sleep_for_room(ring, seen, None, || false);
        });
    });
    let mut reader = Reader::default();
    expect(&ring, &mut reader, 5, |_| unreachable!());
    // The look that finds no message frees the room.
    expect(&ring, &mut reader, 6, |reader| reader.sleep(&*ring, None, || false));
    sender.join().unwrap();
}

/// Two threads sleep until there is room. Both are told.
fn two_wait_for_room() {
    let ring = Ring::new();
    let mut writer = Writer::default();
    send(&ring, &mut writer, 5, yields);
    let Err(Refused::Full(seen)) = writer.send(&*ring, &[0; 8]) else { unreachable!() };
    let sleepers = [(), ()].map(|()| spawn(&ring, move |ring| sleep_for_room(ring, seen, None, || false)));
    let mut reader = Reader::default();
    assert_eq!(receive(&ring, &mut reader), Ok(5));
    assert_eq!(receive(&ring, &mut reader), Err(Look::Nothing));
    for sleeper in sleepers {
        sleeper.join().unwrap();
    }
}

/// Tasks on both sides ask to be told by the socket.
fn asks() {
    let ring = Ring::new();
    let mut writer = Writer::default();
    send(&ring, &mut writer, 5, yields);
    let sender = spawn(&ring, move |ring| {
        send(ring, &mut writer, 6, |full| {
            let Refused::Full(seen) = full else { unreachable!() };
            if ask_for_room(ring, seen) {
                ring.await_packet();
            }
        });
    });
    let mut reader = Reader::default();
    expect(&ring, &mut reader, 5, |_| unreachable!());
    expect(&ring, &mut reader, 6, |_| thread::yield_now());
    sender.join().unwrap();
}

/// A task asks to be told of the next message.
fn asks_for_message() {
    let ring = Ring::new();
    let sender = spawn(&ring, |ring| send(ring, &mut Writer::default(), 5, yields));
    expect(&ring, &mut Reader::default(), 5, |reader| {
        if reader.ask(&*ring) {
            ring.await_packet();
        }
    });
    sender.join().unwrap();
}

/// The peer sends a message and is killed. A receiver that sleeps gets the message, and then the end.
fn dies() {
    let ring = Ring::new();
    let peer = spawn(&ring, |ring| {
        // Killed before the wake-up.
        let _ = Writer::default().send(ring, &5_u64.to_le_bytes()).unwrap();
        ring.end();
    });
    let mut reader = Reader::default();
    let (mut received, mut buffer) = (0, Vec::new());
    loop {
        match reader.receive_from(&*ring, &mut buffer, || ring.has_ended()) {
            Look::Message => received += 1,
            Look::Gone => break,
            look => {
                assert_eq!(look, Look::Nothing);
                let sleep = |must_go: &dyn Fn() -> bool| reader.sleep(&*ring, None, must_go);
                ring.sleepers.sleep(|| ring.has_ended(), sleep);
            }
        }
    }
    assert_eq!(received, 1);
    peer.join().unwrap();
}

/// The peer is killed before it sends. A receiver that is about to sleep learns of it.
fn dies_in_silence() {
    let ring = Ring::new();
    let watcher = spawn(&ring, |ring| ring.end());
    let reader = Reader::default();
    while !ring.has_ended() {
        let sleep = |must_go: &dyn Fn() -> bool| reader.sleep(&*ring, None, must_go);
        ring.sleepers.sleep(|| ring.state.load(Ordering::Relaxed) != 0, sleep);
    }
    watcher.join().unwrap();
}

/// The sender ends after a message. A receiver that sleeps gets both.
fn ends() {
    let ring = Ring::new();
    let sender = spawn(&ring, |ring| {
        let mut writer = Writer::default();
        send(ring, &mut writer, 5, yields);
        let marks = writer.end(ring);
        told(ring, marks);
    });
    let mut reader = Reader::default();
    expect(&ring, &mut reader, 5, |reader| reader.sleep(&*ring, None, || false));
    while receive(&ring, &mut reader) != Err(Look::Ended) {
        reader.sleep(&*ring, None, || false);
    }
    sender.join().unwrap();
}

/// The receiver leaves. A sender that sleeps for room learns of it.
fn leaves() {
    let ring = Ring::new();
    let mut writer = Writer::default();
    send(&ring, &mut writer, 5, yields);
    let receiver = spawn(&ring, |ring| Reader::default().end(ring));
    loop {
        match writer.send(&*ring, &6_u64.to_le_bytes()) {
            Err(Refused::Full(seen)) => sleep_for_room(&*ring, seen, None, || false),
            other => break assert_eq!(other, Err(Refused::Left)),
        }
    }
    receiver.join().unwrap();
}

/// A link of a dispatcher.
struct Served {
    ring: Arc<Ring>,
    reader: Reader,
    buffer: Vec<u8>,
}

impl Served {
    fn new(ring: &Arc<Ring>) -> Served {
        Served { ring: ring.clone(), reader: Reader::default(), buffer: Vec::new() }
    }
}

impl Inbound for Served {
    type Error = Look;

    fn look(&mut self) -> Result<bool, Look> {
        match self.reader.receive(&*self.ring, &mut self.buffer) {
            Look::Message => Ok(true),
            Look::Nothing => Ok(false),
            other => Err(other),
        }
    }

    fn ask(&self, waker: &Waker) -> bool {
        // As the receiver of a link does.
        *self.ring.task.lock().unwrap() = Some(waker.clone());
        self.reader.ask(&*self.ring)
    }
}

/// Receives from links like a dispatcher, which sleeps while all are empty: until so many messages and ends
/// have come.
fn serve(links: &mut Links<Served>, mut messages: usize, mut ends: usize) {
    let waker = Unpark::waker();
    while messages + ends > 0 {
        match links.look() {
            LookAtLinks::Message(_) => messages -= 1,
            LookAtLinks::Ended(_, error) => {
                assert_eq!(error, Look::Ended);
                ends -= 1;
            }
            LookAtLinks::Nothing if links.sleep(&waker) => {
                thread::park();
                links.awake();
            }
            LookAtLinks::Nothing => {}
        }
    }
}

fn send_one(ring: &Arc<Ring>) -> thread::JoinHandle<()> {
    spawn(ring, |ring| send(ring, &mut Writer::default(), 5, yields))
}

/// Two peers send while the dispatcher looks, makes their links quiet, and sleeps.
fn two_links_wake() {
    let (mut links, rings) = (Links::new(), [Ring::new(), Ring::new()]);
    for ring in &rings {
        assert!(links.shared().add(Served::new(ring)).is_ok());
    }
    let senders = [0, 1].map(|number: usize| send_one(&rings[number]));
    serve(&mut links, 2, 0);
    senders.into_iter().for_each(|sender| sender.join().unwrap());
}

/// Another thread adds a link that has a message, while the dispatcher goes to sleep.
fn new_link_wakes() {
    let mut links = Links::new();
    let shared = links.shared().clone();
    let adder = thread::spawn(move || {
        let ring = Ring::new();
        send(&ring, &mut Writer::default(), 5, yields);
        assert!(shared.add(Served::new(&ring)).is_ok());
    });
    serve(&mut links, 1, 0);
    adder.join().unwrap();
}

/// The peer sends, and then ends its side. The dispatcher learns of both.
fn ended_link_wakes() {
    let (mut links, ring) = (Links::new(), Ring::new());
    assert!(links.shared().add(Served::new(&ring)).is_ok());
    let sender = spawn(&ring, |ring| {
        let mut writer = Writer::default();
        send(ring, &mut writer, 5, yields);
        let marks = writer.end(ring);
        told(ring, marks);
    });
    serve(&mut links, 1, 1);
    assert_eq!(links.count(), 0);
    sender.join().unwrap();
}

squall_sys::models! { "link::model":
    in_order: LINK_SEND, LINK_RECEIVE, LINK_FREE, LINK_ROOM;
    sleeps: LINK_MARK;
    waits_for_room: LINK_MARK;
    two_wait_for_room: ;
    asks: LINK_MARK;
    asks_for_message: LINK_MARK;
    dies: LINK_LAST;
    dies_in_silence: VIGIL_SLEEP, VIGIL_WAKE;
    ends: LINK_MARK;
    leaves: LINK_MARK;
    two_links_wake: LINK_QUIET, LINK_MARK, SLEEP;
    new_link_wakes: LINK_FRESH, SLEEP;
    ended_link_wakes: LINK_QUIET, LINK_MARK;
}
