//! The thread `squall-calls`: it watches the descriptors of listeners, connections and processes.
//!
//! Problem: a call needs no thread of its own. But a process that connects needs an answer, a slot without a
//! worker needs one, and the death of a peer must be noticed.
//! Idea: one thread of the process sleeps in epoll(7) on all of these descriptors.
//!
//! - I1. The thread exists exactly while a source does. [`add`] starts it if needed. So only `add` can fail
//!   because the system has no thread left.
//! - I2. The thread wakes for a descriptor, for a time that a source has asked for, and for the threads that
//!   sleep in ended sources. It wakes those until all have left: after a millisecond at first, and after
//!   twice the time at each further try. One wake-up is not enough: a thread may be about to sleep, or the
//!   peer may have changed the word that it sleeps on.
//! - I3. Only this thread calls [`Source::ready`], without a lock.
//!
//! Source: Gamsa et al. 1999, §6.1 (TO-17): the MetaPort, a port with reserved resources.

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use squall_sys::sync::{Condvar, Mutex, OnceLock, StdArc as Arc, lock, thread};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Result of [`Source::ready`]: whether to watch the source further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Watch it further.
    Watch,
    /// The source has ended.
    End,
}

/// Something with descriptors to watch.
pub trait Source: Send + Sync {
    /// The descriptors. They stay the same while the source is watched.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
    /// Called when a descriptor is readable or closed, and again while it is.
    fn ready(self: Arc<Self>) -> Next;
    /// The time after which [`tick`](Self::tick) is called, if the source needs it. Asked when the source is
    /// added, and after each call of `ready` and `tick`. A call that is due earlier stays.
    fn tick_after(&self) -> Option<Duration> {
        None
    }
    /// The time has passed.
    fn tick(self: Arc<Self>) -> Next {
        Next::Watch
    }
    /// The source has ended. Wakes its sleepers, and returns whether all have left. Called again until it
    /// returns true.
    fn drained(&self) -> bool;
}

/// The number of a watched source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(u64);

/// The token of the descriptor by which other threads wake the thread.
const BELL: u64 = 0;

struct Watch {
    epoll: OwnedFd,
    bell: OwnedFd,
    state: Mutex<State>,
    /// Tells that a call of [`Source::ready`] has ended.
    returned: Condvar,
}

struct Watched {
    source: Arc<dyn Source>,
    /// The time of its next tick.
    due: Option<Instant>,
}

/// An ended source in which threads may sleep.
struct Ended {
    source: Arc<dyn Source>,
    /// The time of the next try to wake them, and the time between the last two tries.
    at: Instant,
    step: Duration,
}

/// The first time between two tries to wake the threads of an ended source, and the longest one.
const STEPS: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(128)];

#[derive(Default)]
struct State {
    sources: HashMap<u64, Watched>,
    ended: Vec<Ended>,
    /// Number of sources that have left `sources`, and may still enter `ended`.
    ending: usize,
    last: u64,
    runs: bool,
    /// The ticks of sources, the next one first. An entry counts only if it is the time of its source.
    ticks: BinaryHeap<Reverse<(Instant, u64)>>,
    /// The source that is called now, and the thread that calls it.
    called: Option<(u64, thread::ThreadId)>,
}

static WATCH: OnceLock<Watch> = OnceLock::new();

fn watch() -> io::Result<&'static Watch> {
    if let Some(watch) = WATCH.get() {
        return Ok(watch);
    }
    let watch = Watch {
        epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        state: Mutex::default(),
        returned: Condvar::new(),
    };
    epoll::add(&watch.epoll, &watch.bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
    Ok(WATCH.get_or_init(|| watch))
}

/// Watches a source.
///
/// # Errors
/// The kernel has no descriptor or no thread left.
pub fn add(source: Arc<dyn Source>) -> io::Result<Token> {
    squall_sys::fork::arm();
    let watch = watch()?;
    let mut state = lock(&watch.state, LIST);
    if !state.runs {
        thread::Builder::new().name("squall-calls".into()).spawn(move || watch.run())?;
        state.runs = true;
    }
    state.last += 1;
    let token = state.last;
    let mut added = Vec::new();
    for descriptor in source.descriptors() {
        if let Err(error) =
            epoll::add(&watch.epoll, descriptor, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
        {
            added.into_iter().for_each(|descriptor| _ = epoll::delete(&watch.epoll, descriptor));
            drop(state);
            watch.ring();
            return Err(error.into());
        }
        added.push(descriptor);
    }
    drop(added);
    let after = source.tick_after();
    state.sources.insert(token, Watched { source, due: None });
    state.schedule(token, after);
    drop(state);
    // The thread may sleep longer.
    watch.ring();
    Ok(Token(token))
}

/// Ends a source. When this returns, [`Source::ready`] runs no more, but [`Source::drained`] may. A source in
/// which no thread sleeps is dropped here.
pub fn end(token: Token) {
    // In the child of a fork the thread does not exist, and the descriptors are the parent's too.
    if squall_sys::fork::forked() {
        return;
    }
    if let Some(watch) = WATCH.get() {
        watch.end(token.0);
        watch.ring();
    }
}

const LIST: &str = "the list of watched descriptors";

impl State {
    /// Notes the next tick of a source.
    fn schedule(&mut self, token: u64, after: Option<Duration>) {
        let at = after.and_then(|after| Instant::now().checked_add(after));
        if let (Some(at), Some(watched)) = (at, self.sources.get_mut(&token))
            && watched.due.is_none_or(|due| at < due)
        {
            watched.due = Some(at);
            self.ticks.push(Reverse((at, token)));
        }
    }

    /// The time of the first tick, and its source.
    fn first_tick(&mut self) -> Option<(Instant, u64)> {
        while let Some(Reverse((at, token))) = self.ticks.peek().copied() {
            if self.sources.get(&token).is_some_and(|watched| watched.due == Some(at)) {
                return Some((at, token));
            }
            self.ticks.pop();
        }
        None
    }

    /// Takes the sources out of the list that are due at `now`.
    fn take_due(&mut self, now: Instant) -> Vec<u64> {
        let mut due = Vec::new();
        while let Some((_, token)) = self.first_tick().filter(|(at, _)| *at <= now) {
            self.ticks.pop();
            self.sources.entry(token).and_modify(|watched| watched.due = None);
            due.push(token);
        }
        due
    }
}

impl Watch {
    fn ring(&self) {
        // It fails only if it was rung already.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn end(&self, token: u64) {
        let mut state = lock(&self.state, LIST);
        let Some(Watched { source, .. }) = state.sources.remove(&token) else { return };
        state.ending += 1;
        source.descriptors().into_iter().for_each(|descriptor| _ = epoll::delete(&self.epoll, descriptor));
        // A source that ends itself in `ready` does not wait for its own return.
        let me = thread::current().id();
        while state.called.is_some_and(|(called, by)| called == token && by != me) {
            state = self.returned.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        drop(state);
        let drained = source.drained();
        let mut state = lock(&self.state, LIST);
        state.ending -= 1;
        if !drained {
            state.ended.push(Ended { source, at: Instant::now() + STEPS[0], step: STEPS[0] });
        }
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(64);
        loop {
            let Some(limit) = self.next_limit() else { return };
            let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // An error that lasts must not keep the processor.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
            for event in &events {
                self.tell(event.data.u64(), |source| source.ready());
            }
            let due = lock(&self.state, LIST).take_due(Instant::now());
            for token in due {
                self.tell(token, |source| source.tick());
            }
            self.drain();
        }
    }

    /// The time for which to sleep. `None` if nothing is left to watch; then the thread has ended.
    fn next_limit(&self) -> Option<Option<Duration>> {
        let mut state = lock(&self.state, LIST);
        if state.ended.is_empty() && state.sources.is_empty() && state.ending == 0 {
            state.runs = false;
            return None;
        }
        let tick = state.first_tick().map(|(at, _)| at);
        let first = state.ended.iter().map(|ended| ended.at).chain(tick).min();
        Some(first.map(|at| at.saturating_duration_since(Instant::now())))
    }

    fn tell(&self, token: u64, what: impl FnOnce(Arc<dyn Source>) -> Next) {
        if token == BELL {
            let _ = rustix::io::read(&self.bell, &mut [0u8; 8]);
            return;
        }
        let source = {
            let mut state = lock(&self.state, LIST);
            let Some(source) = state.sources.get(&token).map(|watched| watched.source.clone()) else {
                return;
            };
            state.called = Some((token, thread::current().id()));
            source
        };
        // A panic ends the source alone.
        let told = source.clone();
        let next = catch_unwind(AssertUnwindSafe(|| what(told))).unwrap_or(Next::End);
        let after = source.tick_after();
        lock(&self.state, LIST).called = None;
        self.returned.notify_all();
        if next == Next::End {
            return self.end(token);
        }
        lock(&self.state, LIST).schedule(token, after);
    }

    /// Wakes the threads of the ended sources that are due.
    fn drain(&self) {
        let now = Instant::now();
        let (due, wait) = std::mem::take(&mut lock(&self.state, LIST).ended)
            .into_iter()
            .partition::<Vec<_>, _>(|ended| ended.at <= now);
        let left = due.into_iter().filter(|ended| !ended.source.drained()).map(|ended| {
            let step = (ended.step * 2).min(STEPS[1]);
            Ended { at: now + step, step, ..ended }
        });
        let left: Vec<_> = wait.into_iter().chain(left).collect();
        lock(&self.state, LIST).ended.extend(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_sys::sync::atomic::{AtomicU32, Ordering};
    use std::os::fd::AsFd;

    struct Pipe {
        end: OwnedFd,
        read: AtomicU32,
        drained: AtomicU32,
    }

    impl Source for Pipe {
        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            vec![self.end.as_fd()]
        }

        fn ready(self: Arc<Self>) -> Next {
            match rustix::io::read(&self.end, &mut [0u8; 1]) {
                Ok(0) | Err(_) => Next::End,
                Ok(_) => {
                    self.read.fetch_add(1, Ordering::Relaxed);
                    Next::Watch
                }
            }
        }

        fn drained(&self) -> bool {
            // True at the second call.
            self.drained.fetch_add(1, Ordering::Relaxed) == 1
        }
    }

    #[test]
    fn a_source_is_told_of_each_byte_and_drained_at_the_end() {
        let (end, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (end, other) = (OwnedFd::from(end), OwnedFd::from(other));
        let pipe = Arc::new(Pipe { end, read: AtomicU32::new(0), drained: AtomicU32::new(0) });
        add(pipe.clone()).unwrap();
        rustix::io::write(&other, b"abc").unwrap();
        drop(other);
        while pipe.drained.load(Ordering::Relaxed) < 2 {
            thread::yield_now();
        }
        assert_eq!(pipe.read.load(Ordering::Relaxed), 3);
    }

    /// A source with ticks. `ready` calls a function.
    struct Acts<F> {
        end: OwnedFd,
        act: F,
        ticks: AtomicU32,
        drained: AtomicU32,
    }

    fn acts<F: Fn() -> Next + Send + Sync>(act: F) -> (Arc<Acts<F>>, OwnedFd) {
        let (end, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let drained = AtomicU32::new(0);
        (Arc::new(Acts { end: end.into(), act, ticks: AtomicU32::new(0), drained }), other.into())
    }

    impl<F: Fn() -> Next + Send + Sync> Source for Acts<F> {
        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            vec![self.end.as_fd()]
        }

        fn ready(self: Arc<Self>) -> Next {
            (self.act)()
        }

        fn tick_after(&self) -> Option<Duration> {
            Some(Duration::from_millis(1))
        }

        fn tick(self: Arc<Self>) -> Next {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            Next::Watch
        }

        fn drained(&self) -> bool {
            self.drained.fetch_add(1, Ordering::Relaxed);
            true
        }
    }

    #[test]
    fn a_panic_ends_its_source_alone() {
        let (panics, other) = acts(|| panic!("of the test"));
        let (stays, _stays_open) = acts(|| Next::Watch);
        add(panics.clone()).unwrap();
        let stays_token = add(stays.clone()).unwrap();
        rustix::io::write(&other, b"a").unwrap();
        while panics.drained.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        // Each tick asks for the next one.
        let now = stays.ticks.load(Ordering::Relaxed);
        while stays.ticks.load(Ordering::Relaxed) < now + 3 {
            thread::yield_now();
        }
        end(stays_token);
        assert_eq!(stays.drained.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_end_of_a_source_waits_until_the_thread_has_left_it() {
        use std::sync::{Barrier, mpsc};
        let (begun, begins) = mpsc::channel();
        let (lets, goes_on) = mpsc::channel::<()>();
        let goes_on = Mutex::new(goes_on);
        let has_left = Arc::new(AtomicU32::new(0));
        let leaves = has_left.clone();
        let (source, other) = acts(move || {
            begun.send(()).unwrap();
            // An error, once the test has let go: the byte stays, so this runs until the end.
            let _ = goes_on.lock().unwrap().recv();
            leaves.store(1, Ordering::Relaxed);
            Next::Watch
        });
        let token = add(source).unwrap();
        rustix::io::write(&other, b"a").unwrap();
        begins.recv().unwrap();
        let together = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                together.wait();
                end(token);
                assert_eq!(has_left.load(Ordering::Relaxed), 1, "the source was called after its end");
            });
            together.wait();
            // With a fault, the end comes during this pause.
            thread::sleep(Duration::from_millis(20));
            drop(lets);
        });
    }
}
