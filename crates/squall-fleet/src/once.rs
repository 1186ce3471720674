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
//! - I4. A session is never forgotten while its call runs. It is forgotten [`KEPT`] after its last call. At
//!   [`SESSIONS_MAX`] sessions, a new one takes the place of the one with the oldest last call.
//! - I5. All kept replies have at most [`BYTES_MAX`] bytes. A reply that does not fit takes the place of the
//!   oldest ones. The callers of those learn that the call ran.
//! - I6. A way opens at most [`QUOTA`] sessions. So a hostile process at one link cannot take all of them.
//! - I7. Copies of a request for a session carry one nonce, and open one session.
//!
//! The nodes of a group have another memory, `protocol/serving.rs`. Its sessions have several open calls,
//! travel with shards, and stay while a call of theirs runs. Its callers belong to the group. Here a caller
//! may be hostile, so it has one call at a time. New sessions and replies take the place of the oldest ones.
//! One memory for both would have the rules of both.
//!
//! Not promised: the memory outlives its dispatcher, or its limits. The fate of a call is then told as
//! uncertain.
//! Cost: a lookup in a hash map and an entry of a tree for each call, and a copy of its reply. Calls without
//! a key have none.
//! Source: Birrell and Nelson, *Implementing remote procedure calls*, 1984: the last call of each activity.

use crate::envelope::Key;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The most sessions.
const SESSIONS_MAX: usize = 4096;
/// The most sessions that one way opens.
const QUOTA: usize = 64;
/// The most bytes of kept replies, over all sessions.
const BYTES_MAX: usize = 16 << 20;
/// The time for which a session is kept without a call.
const KEPT: Duration = Duration::from_secs(600);

/// The calls with keys of one dispatcher, with ways of replies of type `W`, which openers of type `O` have
/// opened.
#[derive(Debug)]
pub(crate) struct Once<W, O> {
    sessions: HashMap<u64, Session<W, O>>,
    /// Sessions without a running call, by their last use.
    idle: BTreeMap<u64, u64>,
    /// Idle sessions with a reply, by their last use.
    done: BTreeMap<u64, u64>,
    /// Sessions by the nonces of the requests that opened them (I7).
    nonces: HashMap<u64, u64>,
    /// The number of sessions of each opener (I6).
    openers: HashMap<O, usize>,
    /// The last use.
    uses: u64,
    /// Bytes of kept replies.
    bytes: usize,
}

#[derive(Debug)]
struct Session<W, O> {
    /// The last call that began, or 0.
    number: u64,
    state: State<W>,
    used_at: Instant,
    /// The last use: a key of `idle`, and of `done`.
    last_use: u64,
    nonce: u64,
    opener: O,
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

/// The next step for a call with a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The call runs.
    Run,
    /// The reply was sent before. It is sent again.
    Again(Vec<u8>),
    /// No step: it runs already, or the caller has its result.
    Ignore,
    /// The call ran, and its reply was forgotten.
    Forgotten,
    /// The session is unknown: the call does not run, but a copy may have.
    Unknown,
}

impl<W, O: Copy + Eq + Hash> Once<W, O> {
    pub(crate) fn new() -> Once<W, O> {
        Once {
            sessions: HashMap::new(),
            idle: BTreeMap::new(),
            done: BTreeMap::new(),
            nonces: HashMap::new(),
            openers: HashMap::new(),
            uses: 0,
            bytes: 0,
        }
    }

    /// Opens a session, or finds the one that an earlier copy of the request has opened (I7). Returns its
    /// number. Returns nothing if calls of all sessions run, or the opener has too many (I4, I6).
    pub(crate) fn open(
        &mut self,
        now: Instant,
        opener: O,
        nonce: u64,
        random: impl Fn() -> u64,
    ) -> Option<u64> {
        if let Some(session) = self.nonces.get(&nonce) {
            return Some(*session);
        }
        self.forget_old(now);
        if self.openers.get(&opener).is_some_and(|sessions| *sessions >= QUOTA) {
            return None;
        }
        if self.sessions.len() >= SESSIONS_MAX {
            let oldest = self.idle.values().next().copied()?;
            self.forget(oldest);
        }
        loop {
            // 0 asks for a session.
            let session = random();
            if session != 0 && !self.sessions.contains_key(&session) {
                self.uses += 1;
                let last_use = self.uses;
                let new = Session { number: 0, state: State::New, used_at: now, last_use, nonce, opener };
                self.sessions.insert(session, new);
                self.idle.insert(last_use, session);
                self.nonces.insert(nonce, session);
                *self.openers.entry(opener).or_default() += 1;
                return Some(session);
            }
        }
    }

    /// Forgets the sessions without a call for [`KEPT`].
    fn forget_old(&mut self, now: Instant) {
        while let Some(oldest) = self.idle.values().next().copied()
            && self.sessions.get(&oldest).is_some_and(|session| is_old(session.used_at, now))
        {
            self.forget(oldest);
        }
    }

    /// Forgets a session.
    fn forget(&mut self, number: u64) {
        let Some(session) = self.sessions.remove(&number) else { return };
        self.idle.remove(&session.last_use);
        self.nonces.remove(&session.nonce);
        if let State::Done(reply) = &session.state {
            self.bytes -= reply.len();
            self.done.remove(&session.last_use);
        }
        if let Some(sessions) = self.openers.get_mut(&session.opener) {
            *sessions -= 1;
            if *sessions == 0 {
                self.openers.remove(&session.opener);
            }
        }
    }

    /// Returns the next step for a call. `may_run` is false if the server begins no call now: the step is
    /// [`Run`](Step::Run), but the call is not noted.
    pub(crate) fn arrive(&mut self, now: Instant, key: Key, way: Option<W>, may_run: bool) -> Step {
        let Once { sessions, idle, done, uses, bytes, .. } = self;
        let Some(session) = sessions.get_mut(&key.session) else { return Step::Unknown };
        session.used_at = now;
        *uses += 1;
        let before = std::mem::replace(&mut session.last_use, *uses);
        for order in [&mut *idle, &mut *done] {
            if order.remove(&before).is_some() {
                order.insert(*uses, key.session);
            }
        }
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
                *bytes -= reply.len();
                done.remove(uses);
            }
            idle.remove(uses);
            session.number = key.number;
            session.state = State::Runs(way);
        }
        Step::Run
    }

    /// Ends a call: keeps its reply. Returns the way to send it, if the caller still waits for it.
    pub(crate) fn end(&mut self, now: Instant, key: Key, reply: &[u8]) -> Option<W> {
        let session = self.sessions.get_mut(&key.session)?;
        // A later call has taken its place.
        if session.number != key.number {
            return None;
        }
        let State::Runs(way) = &mut session.state else { return None };
        let way = way.take();
        session.state = State::Forgotten;
        session.used_at = now;
        self.uses += 1;
        session.last_use = self.uses;
        self.idle.insert(self.uses, key.session);
        self.forget_old(now);
        if reply.len() <= BYTES_MAX {
            self.make_room(reply.len());
            if let Some(session) = self.sessions.get_mut(&key.session) {
                session.state = State::Done(reply.to_vec());
                self.done.insert(session.last_use, key.session);
                self.bytes += reply.len();
            }
        }
        way
    }

    /// Forgets the oldest replies until there is room for so many bytes (I5).
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > BYTES_MAX
            && let Some((_, oldest)) = self.done.pop_first()
        {
            if let Some(session) = self.sessions.get_mut(&oldest)
                && let State::Done(reply) = std::mem::replace(&mut session.state, State::Forgotten)
            {
                self.bytes -= reply.len();
            }
        }
    }
}

fn is_old(used_at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(used_at) >= KEPT
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
        let session = once.open(now, 1_u32, 1, numbers()).unwrap();
        assert_eq!(session, 1, "0 is no session");
        assert_eq!(once.arrive(now, key(session, 1), Some('a'), true), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some('b'), true), Step::Ignore);
        assert_eq!(once.end(now, key(session, 1), b"one"), Some('b'), "the reply goes to the copy");
        assert_eq!(once.end(now, key(session, 1), b"one"), None);
        assert_eq!(once.arrive(now, key(session, 1), Some('c'), true), Step::Again(b"one".into()));
        assert_eq!(once.arrive(now, key(session, 2), Some('d'), true), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some('e'), true), Step::Ignore);
        // The caller gives the second call up, and makes a third one.
        assert_eq!(once.arrive(now, key(session, 3), Some('f'), true), Step::Run);
        assert_eq!(once.end(now, key(session, 2), b"two"), None);
        assert_eq!(once.end(now, key(session, 3), b"three"), Some('f'));
        assert_eq!(once.bytes, 5);
        assert_eq!(once.arrive(now, key(7, 1), Some('g'), true), Step::Unknown);
        assert_eq!(once.arrive(now, key(session, 0), Some('g'), true), Step::Ignore);
    }

    #[test]
    fn a_call_that_may_not_begin_is_not_noted() {
        let (now, mut once) = (Instant::now(), Once::new());
        let session = once.open(now, 1_u32, 1, numbers()).unwrap();
        assert_eq!(once.arrive(now, key(session, 1), Some(1), false), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some(2), true), Step::Run);
        assert_eq!(once.arrive(now, key(session, 1), Some(3), false), Step::Ignore);
        assert_eq!(once.end(now, key(session, 1), b"x"), Some(3));
        assert_eq!(once.arrive(now, key(session, 1), Some(4), false), Step::Again(b"x".into()));
    }

    /// Runs a call, and ends it with a reply of so many bytes.
    fn run(once: &mut Once<char, u32>, now: Instant, key: Key, bytes: usize) {
        assert_eq!(once.arrive(now, key, Some('a'), true), Step::Run);
        assert_eq!(once.end(now, key, &vec![0; bytes]), Some('a'));
    }

    /// Opens so many sessions, each by an opener and with a nonce of its own.
    fn open(once: &mut Once<char, u32>, now: Instant, openers: std::ops::Range<u32>) -> Vec<u64> {
        openers.map(|of| once.open(now, of, u64::from(of), || u64::from(of) + 1).unwrap()).collect()
    }

    #[test]
    fn a_new_session_takes_the_place_of_the_one_with_the_oldest_call() {
        let (now, mut once) = (Instant::now(), Once::new());
        let sessions = open(&mut once, now, 0..SESSIONS_MAX as u32);
        // Its call runs.
        assert_eq!(once.arrive(now, key(sessions[0], 1), Some('a'), true), Step::Run);
        run(&mut once, now, key(sessions[1], 1), 8);
        // The first three have later calls than the others.
        run(&mut once, now, key(sessions[2], 1), 8);
        open(&mut once, now, 10_000..10_000 + SESSIONS_MAX as u32 - 3);
        assert_eq!(once.sessions.len(), SESSIONS_MAX);
        assert_eq!(once.arrive(now, key(sessions[3], 1), None, true), Step::Unknown);
        assert_eq!(once.arrive(now, key(sessions[1], 1), None, true), Step::Again(vec![0; 8]));
        // A use makes a session younger.
        open(&mut once, now, 20_000..20_001);
        assert_eq!(once.arrive(now, key(sessions[2], 1), None, true), Step::Unknown);
        assert_eq!(once.arrive(now, key(sessions[1], 2), None, false), Step::Run);
        open(&mut once, now, 30_000..30_000 + SESSIONS_MAX as u32 - 1);
        assert_eq!(once.arrive(now, key(sessions[1], 1), None, true), Step::Unknown);
        assert_eq!(once.end(now, key(sessions[0], 1), b"x"), Some('a'), "a running call keeps its session");
        assert_eq!((once.bytes, once.done.len(), once.idle.len()), (1, 1, SESSIONS_MAX));
        assert_eq!((once.nonces.len(), once.openers.len()), (SESSIONS_MAX, SESSIONS_MAX));
    }

    #[test]
    fn no_session_is_opened_while_calls_of_all_run() {
        let (now, mut once) = (Instant::now(), Once::new());
        for session in open(&mut once, now, 0..SESSIONS_MAX as u32) {
            assert_eq!(once.arrive(now, key(session, 1), Some('a'), true), Step::Run);
        }
        assert_eq!(once.open(now, 9_999, 9_999, || 9_999), None);
        assert_eq!(once.open(now + KEPT, 9_999, 9_999, || 9_999), None);
        assert_eq!(once.end(now, key(1, 1), b""), Some('a'));
        assert_eq!(once.open(now, 9_999, 9_999, || 9_999), Some(9_999));
    }

    #[test]
    fn copies_of_a_request_for_a_session_open_one() {
        let (now, mut once, random) = (Instant::now(), Once::<char, u32>::new(), numbers());
        let session = once.open(now, 1, 70, &random).unwrap();
        // A copy by another link.
        assert_eq!(once.open(now, 2, 70, &random), Some(session));
        assert_ne!(once.open(now, 1, 71, &random), Some(session));
        assert_eq!(once.sessions.len(), 2);
    }

    #[test]
    fn an_opener_has_a_quota_which_it_gets_back() {
        let (now, mut once, random) = (Instant::now(), Once::<char, u32>::new(), numbers());
        for nonce in 0..QUOTA as u64 {
            assert!(once.open(now, 1, nonce, &random).is_some());
        }
        assert_eq!(once.open(now, 1, 1_000, &random), None);
        assert!(once.open(now, 2, 1_001, &random).is_some());
        assert!(once.open(now + KEPT, 1, 1_002, &random).is_some());
        assert_eq!((once.sessions.len(), once.openers.get(&2)), (1, None));
    }

    #[test]
    fn new_replies_take_the_place_of_the_oldest_ones() {
        let (now, mut once) = (Instant::now(), Once::new());
        let sessions = open(&mut once, now, 0..5);
        run(&mut once, now, key(sessions[0], 1), BYTES_MAX / 2);
        run(&mut once, now, key(sessions[1], 1), BYTES_MAX / 2);
        // A copy makes a reply younger.
        assert_eq!(once.arrive(now, key(sessions[0], 1), None, true), Step::Again(vec![0; BYTES_MAX / 2]));
        run(&mut once, now, key(sessions[2], 1), 8);
        assert_eq!(once.arrive(now, key(sessions[1], 1), None, true), Step::Forgotten);
        assert_eq!(once.bytes, BYTES_MAX / 2 + 8);
        // A reply beyond the limit is not kept, and takes no place.
        run(&mut once, now, key(sessions[3], 1), BYTES_MAX + 1);
        assert_eq!(once.arrive(now, key(sessions[3], 1), None, true), Step::Forgotten);
        assert_eq!(once.bytes, BYTES_MAX / 2 + 8);
        run(&mut once, now, key(sessions[4], 1), BYTES_MAX);
        assert_eq!((once.bytes, once.done.len()), (BYTES_MAX, 1));
        // The next call takes the place of the reply.
        assert_eq!(once.arrive(now, key(sessions[4], 2), None, true), Step::Run);
        assert_eq!((once.bytes, once.done.len(), once.idle.len()), (0, 0, 4));
    }

    #[test]
    fn old_sessions_are_forgotten_with_their_replies_by_the_next_call_that_ends() {
        let (now, mut once) = (Instant::now(), Once::new());
        let sessions = open(&mut once, now, 0..3);
        run(&mut once, now, key(sessions[0], 1), 100);
        assert_eq!(once.arrive(now, key(sessions[1], 1), Some('b'), true), Step::Run);
        run(&mut once, now + KEPT / 2, key(sessions[2], 1), 10);
        run(&mut once, now + KEPT, key(sessions[2], 2), 10);
        assert_eq!((once.sessions.len(), once.bytes), (2, 10));
        assert_eq!(once.end(now + KEPT, key(sessions[1], 1), b"x"), Some('b'));
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
        once: Once<u64, ()>,
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
            self.session = self.once.open(self.now, (), self.opened, || self.opened).unwrap();
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
            if self.once.end(self.now, key, &key.number.to_le_bytes()).is_some() {
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
