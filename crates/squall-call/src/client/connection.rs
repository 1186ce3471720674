//! The caller's side of a connection: finds a slot, publishes the call, waits for the reply.
//!
//! - I1. A call ends when its reply is there, its deadline passes, or the peer's process or socket is gone.
//! - I2. Callers that sleep in a dead connection are woken until they have seen that ([`Source::drained`]).
//!   The watcher sets `dead`, fences, and looks for callers. A caller takes a slot, fences, and looks at
//!   `dead` before it sleeps. So one of the two sees the other.
//! - I3. A call that failed with [`Transport::Busy`] or [`Transport::Disconnected`] never runs. It was taken
//!   back in its slot, or the server answered that it did not begin.
//! - I4. A call without a deadline waits for a slot and for a busy server, unless it comes out of a call.

use squall_core::{Id, Transport};
use squall_machine::park::{EventCount, is_past, time_left};
use squall_sys::affinity;
use squall_sys::padded::CachePadded;
use squall_sys::peer::Peer;
use squall_sys::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use squall_sys::sync::{Mutex, OnceLock, StdArc as Arc, Weak, lock};
use std::cell::Cell;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use crate::codec::{Malformed, Reader, Writer};
use crate::frames::{Frame, Wake};
use crate::layout::{BULK_BYTES, INLINE_BYTES, REGION_SLOTS};
use crate::region::Region;
use crate::segment::{Head, NESTED, Segment, Slot};
use crate::serving;
use crate::sleep::{self, Kernel, Pauses};
use crate::slot::{Issued, Number, Sleep};
use crate::socket;
use crate::status::{self, Failed};
use crate::watch::{self, Next, Source, Token};

/// A connection to an exported object.
#[derive(Debug)]
pub(crate) struct Connection {
    segment: Segment,
    regions: Box<[CachePadded<Region>]>,
    object: u64,
    socket: OwnedFd,
    /// The server's process, if this system names it.
    process: Option<OwnedFd>,
    /// The server's process and user, if the kernel knows them: not for a socket pair, whose maker it names.
    pub(crate) server: Option<Peer>,
    /// The name by which the object was imported.
    pub(crate) name: Arc<str>,
    /// The object of this process.
    pub(crate) imported: OnceLock<Id>,
    dead: AtomicBool,
    /// Calls that wait for any slot.
    crowd: CachePadded<Crowd>,
    /// The time in which a call must end.
    limit: Option<Duration>,
    token: OnceLock<Token>,
}

static ALL: Mutex<Vec<Weak<Connection>>> = Mutex::new(Vec::new());

#[derive(Debug, Default)]
struct Crowd {
    waiting: AtomicU32,
    free: EventCount,
}

/// The index of a region's slot in its segment.
fn index(region: usize, at: usize) -> u32 {
    // Both are below the counts of regions and of slots in one.
    region as u32 * REGION_SLOTS + at as u32
}

/// A slot in use by a call.
struct Taken<'a> {
    connection: &'a Connection,
    region: usize,
    at: usize,
    /// Whether further calls must not use the slot until its reply comes.
    given_up: Cell<bool>,
}

impl Taken<'_> {
    fn slot(&self) -> Slot<'_> {
        self.connection.segment.slot(self.index())
    }

    fn index(&self) -> u32 {
        index(self.region, self.at)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let region = &self.connection.regions[self.region];
        if self.given_up.get() {
            region.give_up(self.at);
            // Callers that wait for a slot must look at this one from now on.
            self.connection.tell_crowd(u32::MAX);
        } else {
            region.give(self.at);
            self.connection.tell_crowd(1);
        }
    }
}

impl Connection {
    pub(crate) fn new(
        segment: Segment,
        object: u64,
        socket: OwnedFd,
        server: Server,
        limit: Option<Duration>,
    ) -> io::Result<Arc<Connection>> {
        let regions = segment.regions();
        let Server { name, peer: server, process } = server;
        let connection = Arc::new(Connection {
            segment,
            regions: (0..regions).map(|_| CachePadded::default()).collect(),
            object,
            socket,
            process,
            server,
            name,
            imported: OnceLock::new(),
            dead: AtomicBool::new(false),
            crowd: CachePadded::default(),
            limit,
            token: OnceLock::new(),
        });
        connection.watch()?;
        let mut all = lock(&ALL, "the list of imports");
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&connection));
        drop(all);
        Ok(connection)
    }

    /// The connections of this process. An ended one is included as long as its object lives.
    pub(crate) fn all() -> Vec<Arc<Connection>> {
        lock(&ALL, "the list of imports").iter().filter_map(Weak::upgrade).collect()
    }

    /// Number of calls made. It wraps for each slot at 2^29.
    pub(crate) fn calls(&self) -> u64 {
        let of_slot = |region: &Region, at| u64::from(region.number(at).get());
        self.regions
            .iter()
            .map(|region| (0..REGION_SLOTS as usize).map(|at| of_slot(region, at)).sum::<u64>())
            .sum()
    }

    /// Watches for the peer's death.
    ///
    /// # Errors
    /// The system has no thread or descriptor left.
    fn watch(self: &Arc<Self>) -> io::Result<()> {
        let token = watch::add(self.clone())?;
        // It is set once.
        let _ = self.token.set(token);
        Ok(())
    }

    /// Ends the connection.
    pub(crate) fn end(&self) {
        self.dead.store(true, Ordering::Relaxed);
        if let Some(token) = self.token.get() {
            watch::end(*token);
        }
        if !squall_sys::fork::forked() {
            let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        }
    }

    /// Whether the peer is gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Calls a method: writes the arguments, waits for the reply, and reads the result.
    pub(crate) fn call<R>(
        &self,
        region: usize,
        method: u32,
        deadline: Option<Instant>,
        write: impl FnOnce(&mut Writer<'_>) -> Result<(), Malformed>,
        read: impl FnOnce(&mut Reader<'_>) -> Result<R, Malformed>,
    ) -> Result<R, Failed> {
        let deadline = deadline.or_else(|| Instant::now().checked_add(self.limit?));
        let is_nested = serving::is_serving();
        // The calls that this one would wait for may wait for it. So only a deadline allows to wait.
        let may_wait = !is_nested || deadline.is_some();
        let taken = self.take(region % self.regions.len(), deadline, may_wait)?;
        let slot = taken.slot();
        let mut sink = slot.sink();
        write(&mut Writer::new(&mut sink))
            .map_err(|malformed| Failed::Transport(Transport::BadArguments(malformed.written())))?;
        let method = if is_nested { method | NESTED } else { method };
        slot.set_head(Head { object: self.object, method, length: sink.written() }, affinity::current_cpu());
        let (mut code, mut length) = self.run(&taken, is_nested, deadline)?;
        let mut pauses = Pauses::up_to(PAUSE_MAX);
        while code == status::BUSY {
            if !may_wait {
                return Err(Failed::Transport(Transport::Busy));
            }
            pauses.sleep(deadline);
            if self.is_dead() {
                return Err(Failed::Transport(Transport::Disconnected));
            }
            // The arguments are still in the slot.
            (code, length) = self.run(&taken, is_nested, deadline)?;
        }
        status::outcome(code)?;
        if length as usize <= INLINE_BYTES {
            return result_of(slot, length, &mut [0; INLINE_BYTES], read);
        }
        // Taken out while it is used: a user's type may make a call while it is read.
        let mut buffer = BUFFER.take();
        buffer.resize(BULK_BYTES, 0);
        let result = result_of(slot, length, &mut buffer, read);
        BUFFER.set(buffer);
        result
    }

    /// Issues the call in a slot, and waits for its answer. Returns the status and the length of the answer.
    #[inline]
    fn run(
        &self,
        taken: &Taken<'_>,
        is_nested: bool,
        deadline: Option<Instant>,
    ) -> Result<(u32, u32), Failed> {
        if is_past(deadline) {
            return Err(Failed::Transport(Transport::Busy));
        }
        let slot = taken.slot();
        let mine = &self.regions[taken.region];
        let number = mine.number(taken.at).next();
        mine.set_number(taken.at, number);
        let words = slot.words();
        let issued = words.issue(number, &Kernel);
        // A slot that waits for a worker does so as long as the server likes. The server must know that this
        // call comes out of a call.
        if (issued == Issued::Absent || issued == Issued::Queued && is_nested)
            && let Err(why) = self.ask(taken.index(), deadline)
        {
            return Err(give_up(taken, number, issued == Issued::Queued, why));
        }
        while !words.answered(number) {
            if self.is_dead() {
                return Err(give_up(taken, number, true, Transport::PeerGone));
            }
            if is_past(deadline) {
                return Err(give_up(taken, number, true, Transport::Deadline));
            }
            let time = sleep::spin_for(slot.worker_cpu(), sleep::SPIN);
            if !sleep::spin(time, || words.answered(number)) {
                let must_go = || {
                    // Partner: the fence in `drained` (I2).
                    fence(Ordering::SeqCst);
                    self.is_dead()
                };
                words.sleep_for_answer(number, time_left(deadline), must_go, &Kernel);
            }
        }
        Ok(slot.status())
    }

    /// Takes a slot: of this region, else of another one, else, if the call may wait, of the first one that
    /// ends.
    fn take(&self, region: usize, deadline: Option<Instant>, may_wait: bool) -> Result<Taken<'_>, Failed> {
        if self.is_dead() {
            return Err(Failed::Transport(Transport::Disconnected));
        }
        match self.take_of(region) {
            Some(taken) => Ok(taken),
            None => self.wait_for_slot(region, deadline, may_wait),
        }
    }

    fn take_of(&self, region: usize) -> Option<Taken<'_>> {
        let replied = |at, number| self.segment.slot(index(region, at)).words().answered(number);
        let at = self.regions[region].take(replied)?;
        Some(Taken { connection: self, region, at, given_up: Cell::new(false) })
    }

    /// Wakes callers that wait for a slot.
    fn tell_crowd(&self, count: u32) {
        // Partner: the fence in `wait_for_slot`. A caller that counts itself after this fence looks for a
        // slot afterwards, and finds the one given back before it.
        fence(Ordering::SeqCst);
        if self.crowd.waiting.load(Ordering::Relaxed) != 0 {
            self.crowd.free.signal(count);
        }
    }

    #[cold]
    fn wait_for_slot(
        &self,
        region: usize,
        deadline: Option<Instant>,
        may_wait: bool,
    ) -> Result<Taken<'_>, Failed> {
        let count = self.regions.len();
        self.crowd.waiting.fetch_add(1, Ordering::Relaxed);
        // Partners: the fences in `tell_crowd` and in `drained` (I2).
        fence(Ordering::SeqCst);
        let result = loop {
            let seen = self.crowd.free.prepare();
            if let Some(taken) = (0..count).find_map(|step| self.take_of((region + step) % count)) {
                break Ok(taken);
            }
            if self.is_dead() {
                break Err(Failed::Transport(Transport::Disconnected));
            }
            if is_past(deadline) || !may_wait {
                break Err(Failed::Transport(Transport::Busy));
            }
            // A reply to a call that was given up wakes no thread. So look again after a while.
            let limit = time_left(deadline).map_or(STEP, |left| left.min(STEP));
            self.crowd.free.wait(seen, Some(limit));
        };
        self.crowd.waiting.fetch_sub(1, Ordering::Relaxed);
        result
    }

    /// Asks the server for a worker in a slot.
    #[cold]
    fn ask(&self, slot: u32, deadline: Option<Instant>) -> Result<(), Transport> {
        let Ok(frame) = Frame::Wake(Wake { slot }).encode() else { return Err(Transport::Unsupported) };
        loop {
            // Wait for a slow server in steps, and look for its death between them.
            let step = Instant::now() + STEP;
            let until = deadline.map_or(step, |deadline| deadline.min(step));
            match socket::send_until(self.socket.as_fd(), &frame, &[], until) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    if self.is_dead() {
                        return Err(Transport::PeerGone);
                    }
                    if is_past(deadline) {
                        return Err(Transport::Deadline);
                    }
                }
                Err(_) => return Err(Transport::PeerGone),
            }
        }
    }
}

/// Longest sleep for an event that wakes no thread: a slow server has read its socket, or the reply to a call
/// that was given up has come.
const STEP: Duration = Duration::from_millis(5);
/// Longest time between two attempts of a call that the server is too busy for.
const PAUSE_MAX: Duration = Duration::from_millis(32);

/// The server of a connection.
pub(crate) struct Server {
    pub(crate) name: Arc<str>,
    pub(crate) peer: Option<Peer>,
    pub(crate) process: Option<OwnedFd>,
}

std::thread_local! {
    /// Room for a result that is too long for a slot.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Ends a call without a result. `asked` tells whether the server knows of it.
#[cold]
fn give_up(taken: &Taken<'_>, number: Number, asked: bool, why: Transport) -> Failed {
    if taken.slot().words().withdraw(number, asked) {
        // The slot is free, and the call never runs.
        return Failed::Transport(match why {
            Transport::Deadline => Transport::Busy,
            Transport::PeerGone => Transport::Disconnected,
            why => why,
        });
    }
    if !taken.slot().words().answered(number) {
        taken.given_up.set(true);
    }
    Failed::Transport(why)
}

/// Reads the result of a call from its slot.
fn result_of<R>(
    slot: Slot<'_>,
    length: u32,
    buffer: &mut [u8],
    read: impl FnOnce(&mut Reader<'_>) -> Result<R, Malformed>,
) -> Result<R, Failed> {
    let bytes = slot.data(length, buffer).ok_or(Failed::Transport(status::BROKEN))?;
    let mut reader = Reader::new(bytes);
    let result = read(&mut reader).map_err(failed)?;
    reader.end().map_err(failed)?;
    Ok(result)
}

fn failed(malformed: Malformed) -> Failed {
    Failed::Transport(Transport::BadResult(malformed.read()))
}

impl Source for Connection {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        std::iter::once(self.socket.as_fd()).chain(self.process.as_ref().map(AsFd::as_fd)).collect()
    }

    /// After the welcome the server sends no frame, so a readable descriptor means its end.
    fn ready(self: Arc<Self>) -> Next {
        self.dead.store(true, Ordering::Relaxed);
        Next::End
    }

    fn drained(&self) -> bool {
        self.dead.store(true, Ordering::Relaxed);
        // Partners: the fences of callers before they sleep (I2).
        fence(Ordering::SeqCst);
        let mut all = true;
        for (at, region) in self.regions.iter().enumerate() {
            // Slots that were given up have no sleeper.
            let waiting = region.used() & !region.given_up();
            for slot in (0..REGION_SLOTS as usize).filter(|slot| waiting & 1 << slot != 0) {
                all = false;
                Kernel.wake(self.segment.slot(index(at, slot)).words().reply);
            }
        }
        if self.crowd.waiting.load(Ordering::Relaxed) != 0 {
            all = false;
            self.crowd.free.signal(u32::MAX);
        }
        all
    }
}
