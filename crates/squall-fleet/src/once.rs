//! Calls that are sent again, and run once: the server's memory of the last call of each caller.
//!
//! Problem: a caller whose reply is lost cannot tell whether its call ran. If it calls again, the method may
//! run twice.
//! Idea: a caller opens a session with the server, and numbers its calls in it. It has one call at a time. So
//! the server remembers one call of each session: that it runs, or its reply. A copy of the call gets the
//! reply of the first one.
//!
//! - I1. A number of a session runs at most once. Only a number above all former ones of the session runs.
//! - I2. The server chooses the number of a session at random. So no other server, and no later dispatcher of
//!   the mailbox, knows it. A call of an unknown session does not run, and its caller learns that its former
//!   copies may have run.
//! - I3. A copy of a call that runs moves the way of the reply to the copy: the caller may have a new link.
//! - I4. A session is forgotten after [`KEPT`] without a call, and never while its call runs. If there are
//!   [`SESSIONS_MAX`], the origin with most of them loses some that were used least recently. If each origin
//!   has one, no further one is opened. So a caller that opens sessions without end takes them from itself.
//! - I5. All kept replies have at most [`BYTES_MAX`] bytes. A reply that does not fit is forgotten: the
//!   caller learns that the call ran.
//!
//! Not promised: the memory outlives its dispatcher. The fate of a call is then told as uncertain.
//! Cost: a lookup in a hash map for each call, and a copy of its reply. Calls without a key have none.
//! Source: Birrell and Nelson, *Implementing remote procedure calls*, 1984: the last call of each activity.

use crate::envelope::Key;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The most sessions.
const SESSIONS_MAX: usize = 4096;
/// The most bytes of kept replies, over all sessions.
const BYTES_MAX: usize = 16 << 20;
/// The most sessions of an origin that are forgotten at a time, to make room.
const FORGOTTEN: usize = SESSIONS_MAX / 16;
/// The time for which a session is kept without a call.
const KEPT: Duration = Duration::from_secs(600);

/// The calls with keys of one dispatcher, with ways of replies of type `W`.
#[derive(Debug)]
pub(crate) struct Once<W> {
    sessions: HashMap<u64, Session<W>>,
    /// Bytes of kept replies.
    bytes: usize,
}

#[derive(Debug)]
struct Session<W> {
    /// The link, or the label of the capability, by which it was opened.
    origin: Origin,
    /// The last call that began, or 0.
    number: u64,
    state: State<W>,
    used_at: Instant,
}

#[derive(Debug)]
enum State<W> {
    /// No call has begun.
    New,
    /// The reply goes there.
    Runs(Option<W>),
    /// The reply, as it was sent.
    Done(Vec<u8>),
    /// The reply was forgotten (I5).
    Forgotten,
}

/// The way by which requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    /// The label of a capability.
    Label(u64),
    /// The number of a link.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    Link(u32),
}

/// The next step for a call with a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The call runs.
    Run,
    /// The reply was sent before, and is sent again.
    Again(Vec<u8>),
    /// No step: it runs already, or the caller has its result.
    Ignore,
    /// The call ran, and its reply was forgotten.
    Forgotten,
    /// The session is unknown: the call does not run, but a copy may have.
    Unknown,
}

impl<W> Once<W> {
    pub(crate) fn new() -> Once<W> {
        Once { sessions: HashMap::new(), bytes: 0 }
    }

    /// Opens a session. Returns its number, or nothing if there are too many (I4).
    pub(crate) fn open(&mut self, now: Instant, origin: Origin, random: impl Fn() -> u64) -> Option<u64> {
        if self.sessions.len() >= SESSIONS_MAX {
            self.forget_old(now);
        }
        if self.sessions.len() >= SESSIONS_MAX {
            self.forget_some()?;
        }
        loop {
            // 0 asks for a session.
            let session = random();
            if session != 0 && !self.sessions.contains_key(&session) {
                let new = Session { origin, number: 0, state: State::New, used_at: now };
                self.sessions.insert(session, new);
                return Some(session);
            }
        }
    }

    fn forget_old(&mut self, now: Instant) {
        let bytes = &mut self.bytes;
        self.sessions.retain(|_, session| {
            let is_kept = now.saturating_duration_since(session.used_at) < KEPT
                || matches!(session.state, State::Runs(_));
            if !is_kept && let State::Done(reply) = &session.state {
                *bytes -= reply.len();
            }
            is_kept
        });
    }

    /// Forgets the sessions that were used least recently, of the origin with most of them, if it has several
    /// (I4). Forgets many at a time, so that a further session costs little.
    fn forget_some(&mut self) -> Option<()> {
        let mut counts: HashMap<Origin, usize> = HashMap::new();
        self.sessions.values().for_each(|session| *counts.entry(session.origin).or_default() += 1);
        let (origin, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let of_origin = self.sessions.iter().filter(|(_, session)| session.origin == origin);
        let idle = of_origin.filter(|(_, session)| !matches!(session.state, State::Runs(_)));
        let mut idle: Vec<(Instant, u64)> =
            idle.map(|(number, session)| (session.used_at, *number)).collect();
        idle.sort_unstable();
        // One stays.
        idle.truncate(FORGOTTEN.min(count - 1));
        for (_, number) in &idle {
            if let Some(Session { state: State::Done(reply), .. }) = self.sessions.remove(number) {
                self.bytes -= reply.len();
            }
        }
        (!idle.is_empty()).then_some(())
    }

    /// Returns the next step for a call. `may_run` is false if the server begins no call now: the step is
    /// [`Run`](Step::Run), but the call is not noted.
    pub(crate) fn arrive(&mut self, now: Instant, key: Key, way: Option<W>, may_run: bool) -> Step {
        let Some(session) = self.sessions.get_mut(&key.session) else { return Step::Unknown };
        session.used_at = now;
        if key.number < session.number || key.number == 0 {
            return Step::Ignore;
        }
        if key.number == session.number {
            return match &mut session.state {
                State::New => Step::Ignore,
                State::Runs(to) => {
                    *to = way;
                    Step::Ignore
                }
                State::Done(reply) => Step::Again(reply.clone()),
                State::Forgotten => Step::Forgotten,
            };
        }
        if may_run {
            // The caller has the reply of the call before, or has given it up.
            if let State::Done(reply) = &session.state {
                self.bytes -= reply.len();
            }
            session.number = key.number;
            session.state = State::Runs(way);
        }
        Step::Run
    }

    /// Ends a call: keeps its reply. Returns the way to send it, if the caller still waits for it.
    pub(crate) fn end(&mut self, key: Key, reply: &[u8]) -> Option<W> {
        let session = self.sessions.get_mut(&key.session)?;
        // A later call has taken its place.
        if session.number != key.number {
            return None;
        }
        let State::Runs(way) = &mut session.state else { return None };
        let way = way.take();
        let fits = self.bytes + reply.len() <= BYTES_MAX;
        session.state = match fits {
            true => State::Done(reply.to_vec()),
            false => State::Forgotten,
        };
        self.bytes += if fits { reply.len() } else { 0 };
        way
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn numbers() -> impl Fn() -> u64 {
        let last = Cell::new(0);
        move || last.replace(last.get() + 1)
    }

    fn key(session: u64, number: u64) -> Key {
        Key { session, number }
    }

    #[test]
    fn a_copy_waits_for_the_first_one_or_gets_its_reply() {
        let (now, mut once) = (Instant::now(), Once::new());
        let session = once.open(now, Origin::Label(0), numbers()).unwrap();
        assert_eq!(session, 1, "0 is no session");
        assert_eq!(once.arrive(now, key(session, 1), Some('a'), true), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some('b'), true), Step::Ignore);
        assert_eq!(once.end(key(session, 1), b"one"), Some('b'), "the reply goes to the copy");
        assert_eq!(once.end(key(session, 1), b"one"), None);
        assert_eq!(once.arrive(now, key(session, 1), Some('c'), true), Step::Again(b"one".into()));
        assert_eq!(once.arrive(now, key(session, 2), Some('d'), true), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some('e'), true), Step::Ignore);
        // The caller gives the second call up, and makes a third one.
        assert_eq!(once.arrive(now, key(session, 3), Some('f'), true), Step::Run);
        assert_eq!(once.end(key(session, 2), b"two"), None);
        assert_eq!(once.end(key(session, 3), b"three"), Some('f'));
        assert_eq!(once.bytes, 5);
        assert_eq!(once.arrive(now, key(7, 1), Some('g'), true), Step::Unknown);
        assert_eq!(once.arrive(now, key(session, 0), Some('g'), true), Step::Ignore);
    }

    #[test]
    fn a_call_that_may_not_begin_is_not_noted() {
        let (now, mut once) = (Instant::now(), Once::new());
        let session = once.open(now, Origin::Label(0), numbers()).unwrap();
        assert_eq!(once.arrive(now, key(session, 1), Some(1), false), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some(2), true), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some(3), false), Step::Ignore);
        assert_eq!(once.end(key(session, 1), b"x"), Some(3));
        assert_eq!(once.arrive(now, key(session, 1), Some(4), false), Step::Again(b"x".into()));
    }

    #[test]
    fn sessions_and_replies_are_bounded_and_a_running_call_keeps_its_session() {
        let (now, mut once, random) = (Instant::now(), Once::new(), numbers());
        // Each origin has one session.
        let open = |once: &mut Once<()>, now, origin| once.open(now, Origin::Label(origin), &random);
        let sessions: Vec<u64> =
            (0..SESSIONS_MAX as u64).map(|origin| open(&mut once, now, origin).unwrap()).collect();
        assert_eq!(open(&mut once, now, 1 << 40), None);
        let large = vec![0; BYTES_MAX - 8];
        for (session, reply) in sessions.iter().zip([&large[..], &[0; 9], &[0; 8]]) {
            assert_eq!(once.arrive(now, key(*session, 1), Some(()), true), Step::Run);
            assert_eq!(once.end(key(*session, 1), reply), Some(()));
        }
        assert_eq!(once.bytes, BYTES_MAX);
        assert_eq!(once.arrive(now, key(sessions[1], 1), Some(()), true), Step::Forgotten);
        assert_eq!(once.arrive(now, key(sessions[3], 1), Some(()), true), Step::Run);
        let later = now + KEPT;
        // A use keeps a session.
        assert_eq!(once.arrive(later, key(sessions[2], 1), Some(()), true), Step::Again(vec![0; 8]));
        let fresh = open(&mut once, later, 1 << 40).unwrap();
        assert_eq!(once.sessions.len(), 3);
        assert_eq!(once.bytes, 8);
        for (session, is_known) in
            [(sessions[0], false), (sessions[2], true), (sessions[3], true), (fresh, true)]
        {
            assert_eq!(once.sessions.contains_key(&session), is_known);
        }
    }

    #[test]
    fn an_origin_that_opens_sessions_without_end_takes_them_from_itself() {
        let (now, mut once, random) = (Instant::now(), Once::new(), numbers());
        let later = now + Duration::from_secs(1);
        let innocent = once.open(now, Origin::Link(7), &random).unwrap();
        let runs = once.open(now, Origin::Label(7), &random).unwrap();
        assert_eq!(once.arrive(now, key(runs, 1), Some(()), true), Step::Run);
        let first = once.open(now, Origin::Label(7), &random).unwrap();
        for _ in 0..SESSIONS_MAX + FORGOTTEN {
            once.open(later, Origin::Label(7), &random).unwrap();
        }
        assert!(once.sessions.len() <= SESSIONS_MAX);
        assert_eq!(once.arrive(later, key(innocent, 1), Some(()), true), Step::Run);
        assert_eq!(once.end(key(runs, 1), b""), Some(()));
        assert_eq!(once.arrive(later, key(first, 1), Some(()), true), Step::Unknown);
    }

    /// Runs schedules with a network that loses, copies, delays and reorders the messages of both directions,
    /// and a server that starts anew. Returns the retries, the calls with a result, those with an uncertain
    /// fate, and the calls that ran twice. A call with a result ran on the server of the result.
    fn schedules(forgets: bool) -> [usize; 4] {
        let mut totals = [0; 4];
        for seed in 1..=3_000_u64 {
            let mut random = Random(seed);
            let mut world = World::new(forgets);
            for _ in 0..60 {
                match random.below(12) {
                    0..=3 => world.call_or_retry(),
                    4..=6 => world.deliver(random.below(64)),
                    7 => world.copy(random.below(64)),
                    8 => world.lose(random.below(64)),
                    9 | 10 => world.finish(random.below(64)),
                    _ if random.below(8) == 0 => world.restart(),
                    _ => {}
                }
                world.receive();
            }
            let twice = world.runs.values().filter(|runs| **runs > 1).count();
            for (total, count) in totals.iter_mut().zip([world.retried, world.ended, world.uncertain, twice])
            {
                *total += count;
            }
        }
        totals
    }

    #[test]
    fn no_schedule_runs_a_call_twice() {
        let [retried, ended, uncertain, twice] = schedules(false);
        assert!(retried > 5_000 && ended > 5_000 && uncertain > 500, "{retried} {ended} {uncertain}");
        assert_eq!(twice, 0);
    }

    #[test]
    fn the_schedules_find_a_server_that_forgets() {
        let [.., twice] = schedules(true);
        assert!(twice > 1_000, "{twice}");
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            ((self.0 >> 33) % limit) as usize
        }
    }

    /// One caller and its servers.
    struct World {
        once: Once<u64>,
        /// Sessions that were opened, by all servers.
        opened: u64,
        /// The caller's session.
        session: u64,
        number: u64,
        /// The caller waits for the reply, and has sent the call before.
        waits: bool,
        /// The call's name over all servers: (session, number).
        requests: Vec<Key>,
        replies: Vec<(Key, Option<u64>)>,
        running: Vec<Key>,
        /// Runs, by call.
        runs: HashMap<(u64, u64), u32>,
        now: Instant,
        /// A planted fault: the server forgets the last call of a session.
        forgets: bool,
        retried: usize,
        ended: usize,
        uncertain: usize,
    }

    impl World {
        fn new(forgets: bool) -> World {
            let mut world = World {
                once: Once::new(),
                opened: 0,
                session: 0,
                number: 0,
                waits: false,
                requests: Vec::new(),
                replies: Vec::new(),
                running: Vec::new(),
                runs: HashMap::new(),
                now: Instant::now(),
                forgets,
                retried: 0,
                ended: 0,
                uncertain: 0,
            };
            world.open();
            world
        }

        fn open(&mut self) {
            self.opened += 1;
            self.session = self.once.open(self.now, Origin::Label(0), || self.opened).unwrap();
            self.number = 0;
        }

        fn call_or_retry(&mut self) {
            if std::mem::replace(&mut self.waits, true) {
                self.retried += 1;
            } else {
                self.number += 1;
            }
            self.requests.push(key(self.session, self.number));
        }

        fn deliver(&mut self, at: usize) {
            if self.requests.is_empty() {
                return;
            }
            let key = self.requests.swap_remove(at % self.requests.len());
            if self.forgets
                && let Some(session) = self.once.sessions.get_mut(&key.session)
            {
                (session.number, session.state) = (0, State::New);
            }
            match self.once.arrive(self.now, key, Some(key.number), true) {
                Step::Run => {
                    *self.runs.entry((key.session, key.number)).or_default() += 1;
                    self.running.push(key);
                }
                Step::Again(reply) => {
                    assert_eq!(reply, key.number.to_le_bytes());
                    self.replies.push((key, Some(key.number)));
                }
                Step::Unknown => self.replies.push((key, None)),
                Step::Ignore => {}
                Step::Forgotten => panic!("the replies are small"),
            }
        }

        fn copy(&mut self, at: usize) {
            if let Some(key) = self.requests.get(at).copied() {
                self.requests.push(key);
            }
        }

        fn lose(&mut self, at: usize) {
            if at < self.requests.len() {
                self.requests.swap_remove(at);
            } else if at.is_multiple_of(2) {
                self.replies.pop();
            }
        }

        fn finish(&mut self, at: usize) {
            if self.running.is_empty() {
                return;
            }
            let key = self.running.swap_remove(at % self.running.len());
            if self.once.end(key, &key.number.to_le_bytes()).is_some() {
                self.replies.push((key, Some(key.number)));
            }
        }

        fn restart(&mut self) {
            self.once = Once::new();
            self.running.clear();
        }

        fn receive(&mut self) {
            for (of, result) in std::mem::take(&mut self.replies) {
                if !self.waits || of != key(self.session, self.number) {
                    continue;
                }
                self.waits = false;
                match result {
                    Some(number) => {
                        assert_eq!(number, self.number);
                        assert!(self.runs.contains_key(&(self.session, number)), "a call without a run");
                        self.ended += 1;
                    }
                    None => {
                        self.uncertain += 1;
                        self.open();
                    }
                }
            }
        }
    }
}
