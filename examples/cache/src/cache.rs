//! What the commands do to the entries, whatever the store is and wherever they come from.
//!
//! - I1. `used_bytes` is the sum of [`Item::bytes`] over the entries of the store, once nobody changes any: every change goes
//!   through [`Cache::change`], which adds what came and takes away what went.
//! - I2. What is dead, expired or flushed, is absent to every command. It is taken out by the first change that comes by, or by the sweeper.
//! - I3. A value's `cas` is never given to another one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use squall::Handle;
use squall::objects::read_mostly::{self, ReadMostly, OwnedReadMostly, ReadMostlyExt};

use crate::clock::Clock;
use crate::config::Config;
use crate::item::Item;
use crate::protocol::Verb;
use crate::stats::{Fact, Stats};
use crate::store::{Change, Key, Store};

/// Larger numbers are dates: memcached's thirty days.
const RELATIVE_S_MAX: i64 = 60 * 60 * 24 * 30;
/// What an expiry in the past becomes: a date that is, whatever the clock says.
const PAST: u64 = 1;
/// Entries among which the one goes that was not used for longest.
const DRAWN: usize = 8;
/// Entries that one command takes out at most to make room.
const EVICTIONS_MAX: usize = 1024;
/// Entries that count where what was taken out is counted: of smaller ones there cannot come as much in the time that their memory takes.
const GONE_BYTES_MIN: u64 = 4 << 10;
/// Of the limit of memory so much, an eighth, may be taken out before somebody waits for its memory; and so many bytes if that is less.
const GONE_PART: u64 = 8;
const GONE_BYTES_LEAST: u64 = 2 << 20;
/// Numbers for `cas` that are taken at once: see [`CasNumbers`].
const CAS_BATCH: u64 = 256;

/// A cache: a store, and what all its connections share.
#[derive(Debug)]
pub struct Cache<S> {
    store: S,
    config: OwnedReadMostly<Config>,
    stats: Stats,
    clock: Clock,
    began: u64,
    /// How many times everything was flushed.
    era: AtomicU64,
    /// When everything is to be flushed once more; 0: not.
    flush_due: AtomicU64,
    /// Held by who does a flush that is due.
    flushing: Mutex<()>,
    next_cas: AtomicU64,
    used_bytes: AtomicU64,
    /// Bytes of large entries that were replaced or taken out since somebody last waited for their memory.
    gone_bytes: AtomicU64,
    /// Where the next entries are drawn to make room.
    draw: AtomicU64,
    connections: AtomicUsize,
}

/// When a command is done: the time, and how many times everything had been flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970.
    pub now: u64,
    /// Flushes.
    pub era: u64,
}

/// What came of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is there.
    Stored,
    /// The condition of the command was not met.
    NotStored,
    /// The value is another one than the client's.
    Exists,
    /// There is none.
    NotFound,
    /// With it, it would be too large: only by appending.
    TooLarge,
    /// Nothing that could be taken out makes enough room.
    NoMemory,
}

/// What came of changing a value where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed<T> {
    /// Done.
    Done(T),
    /// There is none.
    NotFound,
    /// It is no number.
    NotANumber,
}

/// Whether there is room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Room {
    /// There is.
    Made,
    /// There is not, and nothing more could be taken out.
    None,
}

/// Numbers for `cas` of one connection: it takes many at once, so that connections do not meet at each write (cache/I3).
#[derive(Debug, Default)]
pub(crate) struct CasNumbers {
    next: u64,
    end: u64,
}

/// One open connection, for as long as this is.
#[derive(Debug)]
pub(crate) struct Seat<S: Store>(Arc<Cache<S>>);

impl<S: Store> Drop for Seat<S> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Store> Cache<S> {
    /// A cache with this store, which is empty.
    pub fn new(store: S, config: Config, clock: Clock) -> Arc<Cache<S>> {
        Arc::new(Cache {
            store,
            config: read_mostly::shared(config),
            stats: Stats::new(),
            began: clock.now(),
            clock,
            era: AtomicU64::new(0),
            flush_due: AtomicU64::new(0),
            flushing: Mutex::new(()),
            next_cas: AtomicU64::new(1),
            used_bytes: AtomicU64::new(0),
            gone_bytes: AtomicU64::new(0),
            draw: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
        })
    }

    /// The configuration, to read it and to change it while the server serves.
    pub fn config(&self) -> Handle<dyn ReadMostly<Config>> {
        self.config.handle()
    }

    /// What was counted.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// The entries.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Bytes that the entries count for.
    pub fn used_bytes(&self) -> u64 {
        // What went may be taken away before what came was added: that is none, and not very many.
        self.used_bytes.load(Ordering::Relaxed).cast_signed().max(0).cast_unsigned()
    }

    /// Connections that are open.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Seconds since it was made.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.clock.now().saturating_sub(self.began)
    }

    /// A seat for one more connection, if there is one.
    pub(crate) fn seat(self: &Arc<Cache<S>>) -> Option<Seat<S>> {
        let limit = self.config().read(|config| config.connections_max);
        let taken = self
            .connections
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < limit).then_some(taken + 1));
        taken.ok().map(|_| Seat(self.clone()))
    }

    /// Now. Does the flush that is due.
    ///
    /// Nothing here is ordered by more than the words themselves: a client that was told of a flush tells others by way of the kernel.
    pub fn moment(&self) -> Moment {
        let now = self.clock.now();
        let is_due = |due| (1..=now).contains(&due);
        // Acquire: pairs with the release below: who finds none due any more counts the one that was.
        if is_due(self.flush_due.load(Ordering::Acquire)) {
            // Whoever comes meanwhile waits, so that none goes on by the time before it.
            let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
            let due = self.flush_due.load(Ordering::Relaxed);
            if is_due(due) {
                self.era.fetch_add(1, Ordering::Relaxed);
                // Release: pairs with the acquire above. It may have become another one meanwhile, which stays.
                _ = self.flush_due.compare_exchange(due, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
        Moment { now, era: self.era.load(Ordering::Relaxed) }
    }

    /// When what a client says expires: memcached's rule. Negative: at once. 0: never, or after the default. Up to thirty days:
    /// in so many seconds. Else that is the date.
    pub(crate) fn expires(&self, exptime: i64, moment: Moment) -> u64 {
        match exptime {
            0 => match self.config().read(|config| config.default_ttl_s) {
                0 => 0,
                ttl => moment.now.saturating_add(ttl),
            },
            ..0 => PAST,
            1..=RELATIVE_S_MAX => moment.now.saturating_add(exptime.unsigned_abs()),
            date => date.unsigned_abs(),
        }
    }

    // --- reading ---

    /// What `f` makes of the key's item.
    pub(crate) fn get<R>(&self, key: &[u8], moment: Moment, f: impl FnOnce(&Item) -> R) -> Option<R> {
        let found = self.store.read(key, |item| {
            item.is_live(moment).then(|| {
                item.note_use(moment);
                f(item)
            })
        });
        match found {
            Some(Some(result)) => {
                self.stats.note(Fact::GetHits);
                Some(result)
            }
            Some(None) => {
                self.stats.note(Fact::GetMisses);
                self.stats.note(Fact::GetExpired);
                self.change(key, moment, |_| (Change::Keep, ()));
                None
            }
            None => {
                self.stats.note(Fact::GetMisses);
                None
            }
        }
    }

    /// Has it expire at another time, and returns it.
    pub(crate) fn get_and_touch(&self, key: &[u8], exptime: i64, moment: Moment) -> Option<Item> {
        let expires = self.expires(exptime, moment);
        let found = self.change(key, moment, |item| match item {
            Some(item) => (Change::Put(item.expiring(expires, moment)), Some(item.clone())),
            None => (Change::Keep, None),
        });
        let touched = found.is_some();
        self.stats.note(if touched { Fact::GetHits } else { Fact::GetMisses });
        self.stats.note(if touched { Fact::TouchHits } else { Fact::TouchMisses });
        found
    }

    // --- changing ---

    /// Changes a key as the command `verb` says.
    pub(crate) fn store_value(
        &self,
        verb: Verb,
        key: &[u8],
        (flags, exptime): (u32, i64),
        data: &[u8],
        cas: &mut CasNumbers,
    ) -> Answer {
        let moment = self.moment();
        self.stats.note(Fact::CmdSet);
        let item = Item::new(data.into(), flags, self.expires(exptime, moment), self.cas(cas), moment);
        let (value_max, memory_max) =
            self.config().read(|config| (config.value_bytes_max, config.memory_bytes_max));
        let room = self.make_room(item.bytes(key), memory_max, moment);
        let stored = self.change(key, moment, |old| {
            let put = |item: Item| match room {
                Room::Made => (Change::Put(item), Answer::Stored),
                // What a client believes to have replaced must not be found any more.
                Room::None if verb == Verb::Set => (Change::Remove, Answer::NoMemory),
                Room::None => (Change::Keep, Answer::NoMemory),
            };
            match (verb, old) {
                (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => put(item.clone()),
                (Verb::Cas(unique), Some(old)) if old.cas == unique => put(item.clone()),
                (Verb::Cas(_), Some(_)) => (Change::Keep, Answer::Exists),
                (Verb::Cas(_), None) => (Change::Keep, Answer::NotFound),
                (Verb::Append, Some(old)) => match joined(&old.data, data, value_max) {
                    Some(data) => put(old.with_data(data, item.cas)),
                    None => (Change::Keep, Answer::TooLarge),
                },
                (Verb::Prepend, Some(old)) => match joined(data, &old.data, value_max) {
                    Some(data) => put(old.with_data(data, item.cas)),
                    None => (Change::Keep, Answer::TooLarge),
                },
                _ => (Change::Keep, Answer::NotStored),
            }
        });
        match (verb, stored) {
            (_, Answer::TooLarge) => self.stats.note(Fact::StoreTooLarge),
            (_, Answer::NoMemory) => self.stats.note(Fact::StoreNoMemory),
            (Verb::Cas(_), Answer::Stored) => self.stats.note(Fact::CasHits),
            (Verb::Cas(_), Answer::Exists) => self.stats.note(Fact::CasBadval),
            (Verb::Cas(_), Answer::NotFound) => self.stats.note(Fact::CasMisses),
            _ => {}
        }
        stored
    }

    /// A value that was too large did not come. What `set` was to replace must not be found any more.
    pub(crate) fn refuse_value(&self, verb: Verb, key: &[u8]) {
        self.stats.note(Fact::StoreTooLarge);
        if verb == Verb::Set {
            self.change(key, self.moment(), |_| (Change::Remove, ()));
        }
    }

    /// Takes a key out; whether it was there.
    pub(crate) fn delete(&self, key: &[u8]) -> bool {
        let found = self.change(key, self.moment(), |item| (Change::Remove, item.is_some()));
        self.stats.note(if found { Fact::DeleteHits } else { Fact::DeleteMisses });
        found
    }

    /// Has a key expire at another time; whether it is there.
    pub(crate) fn touch(&self, key: &[u8], exptime: i64) -> bool {
        let moment = self.moment();
        let expires = self.expires(exptime, moment);
        let found = self.change(key, moment, |item| match item {
            Some(item) => (Change::Put(item.expiring(expires, moment)), true),
            None => (Change::Keep, false),
        });
        self.stats.note(if found { Fact::TouchHits } else { Fact::TouchMisses });
        found
    }

    /// Adds to a number, or takes from it: beyond 64 bits the one begins again, below 0 the other stays there.
    pub(crate) fn count(&self, key: &[u8], up: bool, by: u64, cas: &mut CasNumbers) -> Changed<u64> {
        let cas = self.cas(cas);
        let changed = self.change(key, self.moment(), |item| {
            let Some(item) = item else { return (Change::Keep, Changed::NotFound) };
            let Some(number) = number(&item.data) else { return (Change::Keep, Changed::NotANumber) };
            let number = if up { number.wrapping_add(by) } else { number.saturating_sub(by) };
            let data = number.to_string().into_bytes().into();
            (Change::Put(item.with_data(data, cas)), Changed::Done(number))
        });
        match (changed, up) {
            (Changed::Done(_), true) => self.stats.note(Fact::IncrHits),
            (Changed::NotFound, true) => self.stats.note(Fact::IncrMisses),
            (Changed::Done(_), false) => self.stats.note(Fact::DecrHits),
            (Changed::NotFound, false) => self.stats.note(Fact::DecrMisses),
            (Changed::NotANumber, _) => {}
        }
        changed
    }

    /// Everything that is there goes, at once or when it is time: it is dead then, and taken out by and by. A later flush takes the
    /// place of one that is due.
    pub fn flush(&self, delay: i64) {
        self.stats.note(Fact::CmdFlush);
        let moment = self.moment();
        if delay > 0 {
            let due = if delay <= RELATIVE_S_MAX {
                moment.now + delay.unsigned_abs()
            } else {
                delay.unsigned_abs()
            };
            self.flush_due.store(due, Ordering::Relaxed);
        } else {
            self.flush_due.store(0, Ordering::Relaxed);
            self.era.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Changes the configuration. Every request that begins when this has returned goes by it.
    pub fn configure(&self, change: impl Fn(&mut Config)) {
        self.config().update(|config| {
            let mut config = config.clone();
            change(&mut config);
            config
        });
    }

    fn cas(&self, numbers: &mut CasNumbers) -> u64 {
        if numbers.next == numbers.end {
            numbers.next = self.next_cas.fetch_add(CAS_BATCH, Ordering::Relaxed);
            numbers.end = numbers.next + CAS_BATCH;
        }
        numbers.next += 1;
        numbers.next - 1
    }

    /// The one door to changes (I1): what is dead is absent to `decide`, and does not stay (I2). `decide` is called again where another
    /// writer was faster.
    fn change<R>(
        &self,
        key: &[u8],
        moment: Moment,
        mut decide: impl FnMut(Option<&Item>) -> (Change, R),
    ) -> R {
        let (mut gone, mut come, mut dead, mut result) = (0, 0, false, None);
        self.store.change(key, |old| {
            let live = old.filter(|item| item.is_live(moment));
            let (mut change, decided) = decide(live);
            result = Some(decided);
            dead = old.is_some() && live.is_none();
            if dead && matches!(change, Change::Keep) {
                change = Change::Remove;
            }
            if let (Change::Put(item), Some(old)) = (&mut change, old) {
                // What takes the place of another comes after it, and so after the flushes before that.
                item.era = item.era.max(old.era);
            }
            gone = old.map_or(0, |item| item.bytes(key));
            come = match &change {
                Change::Keep => gone,
                Change::Put(item) => item.bytes(key),
                Change::Remove => 0,
            };
            change
        });
        if dead {
            self.stats.note(Fact::Reclaimed);
        }
        if gone == 0 && come != 0 {
            self.stats.note(Fact::TotalItems);
        }
        if gone >= GONE_BYTES_MIN {
            self.gone_bytes.fetch_add(gone, Ordering::Relaxed);
        }
        // Both may be below the other for a moment: it wraps, and comes back.
        self.used_bytes.fetch_add(come.wrapping_sub(gone), Ordering::Relaxed);
        result.expect("a store asks once at least")
    }

    // --- room ---

    /// Whether so much was taken out that whoever did it is to wait until its memory is free: else a storm of large values would fill
    /// more of it than the limit says. Says so to one, who then calls [`Store::reclaim`].
    pub(crate) fn is_reclaim_due(&self) -> bool {
        // Relaxed: a count.
        let gone = self.gone_bytes.load(Ordering::Relaxed);
        if gone < GONE_BYTES_LEAST {
            return false;
        }
        let limit = self.config().read(|config| config.memory_bytes_max);
        gone >= (limit / GONE_PART).max(GONE_BYTES_LEAST) && self.gone_bytes.swap(0, Ordering::Relaxed) > 0
    }

    /// Makes room for so many bytes more, if that can be done: of a few entries drawn by random the one goes that was not used for
    /// longest, again and again. What other connections store meanwhile may go beyond the limit, by one value each.
    fn make_room(&self, bytes: u64, limit: u64, moment: Moment) -> Room {
        for _ in 0..EVICTIONS_MAX {
            if self.used_bytes().saturating_add(bytes) <= limit {
                return Room::Made;
            }
            if bytes > limit || !self.evict(moment) {
                return Room::None;
            }
        }
        Room::None
    }

    /// Takes one entry out, if there is one.
    fn evict(&self, moment: Moment) -> bool {
        // Weyl's sequence, scattered: any position as often as any other.
        let drawn = self.draw.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let drawn = (drawn ^ (drawn >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        let drawn = drawn ^ (drawn >> 32);
        let (mut victim, mut seen) = (None::<(Key, u32, u64)>, 0);
        // From there to the end, and if that is near from the beginning.
        for begin in [drawn, 0] {
            let mut from = Some(begin);
            while let Some(at) = from
                && seen < DRAWN
            {
                from = self.store.visit(at, |key, item| {
                    let used = if item.is_live(moment) { item.used() } else { 0 };
                    if victim.as_ref().is_none_or(|(_, least, _)| used < *least) {
                        victim = Some((key.into(), used, item.cas));
                    }
                    seen += 1;
                    seen < DRAWN
                });
            }
        }
        let Some((key, _, cas)) = victim else { return false };
        let evicted = self.change(&key, moment, |item| match item {
            Some(item) if item.cas == cas => (Change::Remove, true),
            _ => (Change::Keep, false),
        });
        if evicted {
            self.stats.note(Fact::Evictions);
        }
        true
    }

    /// Takes out what is dead among some hundreds of entries from a position on, all of them in a store without positions. Returns the
    /// position after them, nothing after the last, and how many it looked at. The sweeper does so now and then.
    pub fn sweep(&self, from: u64) -> (Option<u64>, usize) {
        const VISITED: usize = 512;
        let moment = self.moment();
        let (mut dead, mut visited) = (Vec::<Key>::new(), 0);
        let mut next = Some(from);
        while let Some(at) = next
            && visited < VISITED
        {
            next = self.store.visit(at, |key, item| {
                visited += 1;
                if !item.is_live(moment) {
                    dead.push(key.into());
                }
                true
            });
        }
        dead.iter().for_each(|key| self.change(key, moment, |_| (Change::Keep, ())));
        (next, visited)
    }
}

/// One behind the other, unless that is too large.
fn joined(first: &[u8], second: &[u8], bytes_max: usize) -> Option<Arc<[u8]>> {
    (first.len() + second.len() <= bytes_max).then(|| [first, second].concat().into())
}

/// The number that a value is, if it is one; with spaces around it, as some clients pad theirs.
fn number(data: &[u8]) -> Option<u64> {
    // Nobody's number is longer, and what is large need not be looked at.
    const DIGITS_MAX: usize = 64;
    let text = std::str::from_utf8(data.get(..data.len().min(DIGITS_MAX))?).ok()?;
    if data.len() > DIGITS_MAX { None } else { text.trim_matches(' ').parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::squall_store::SquallStore;

    fn cache(memory_bytes_max: u64) -> Arc<Cache<SquallStore>> {
        let config = Config { memory_bytes_max, ..Config::default() };
        Cache::new(SquallStore::new(), config, Clock::by_hand(1_000_000).0)
    }

    fn held(cache: &Cache<SquallStore>) -> u64 {
        let (mut sum, mut from) = (0, Some(0));
        while let Some(at) = from {
            from = cache.store.visit(at, |key, item| {
                sum += item.bytes(key);
                true
            });
        }
        sum
    }

    #[test]
    fn i1_every_change_is_accounted_for() {
        let (cache, mut cas) = (cache(1 << 20), CasNumbers::default());
        for i in 0..2000u32 {
            let key = format!("key-{}", i % 97).into_bytes();
            let data = vec![b'1'; (i % 13) as usize];
            match i % 7 {
                0 => _ = cache.delete(&key),
                1 => _ = cache.touch(&key, i64::from(i % 3) - 1),
                2 => _ = cache.count(&key, true, 99, &mut cas),
                3 => _ = cache.store_value(Verb::Append, &key, (0, 0), &data, &mut cas),
                4 => _ = cache.store_value(Verb::Add, &key, (0, -1), &data, &mut cas),
                5 => cache.refuse_value(Verb::Set, &key),
                _ => _ = cache.store_value(Verb::Set, &key, (0, 0), &data, &mut cas),
            }
            assert_eq!(cache.used_bytes(), held(&cache), "after {i}");
        }
        cache.flush(0);
        let mut from = Some(0);
        while let Some(at) = from {
            from = cache.sweep(at).0;
        }
        assert_eq!((cache.store().len(), cache.used_bytes()), (0, 0));
    }

    #[test]
    fn what_was_not_used_goes_and_the_limit_holds() {
        let limit = 100_000;
        let (cache, mut cas) = (cache(limit), CasNumbers::default());
        for i in 0..5000 {
            let key = format!("key-{i}").into_bytes();
            assert_eq!(cache.store_value(Verb::Set, &key, (0, 0), &[0; 100], &mut cas), Answer::Stored);
            assert!(cache.used_bytes() <= limit);
        }
        assert_eq!(cache.used_bytes(), held(&cache));
        assert_eq!(cache.store().len() as u64 + cache.stats().total(Fact::Evictions), 5000);
        // What is larger than everything is refused, and takes nothing out but what it was to replace.
        let there = cache.store().len();
        let large = vec![0; limit as usize];
        assert_eq!(cache.store_value(Verb::Add, b"large", (0, 0), &large, &mut cas), Answer::NoMemory);
        assert_eq!(cache.store().len(), there);
    }

    #[test]
    fn of_those_drawn_the_one_goes_that_was_used_least_recently() {
        let (clock, hand) = Clock::by_hand(1_000_000);
        let config = Config { memory_bytes_max: 1 << 20, ..Config::default() };
        let (cache, mut cas) = (Cache::new(SquallStore::new(), config, clock), CasNumbers::default());
        for key in [b"a", b"b", b"c", b"d"] {
            let _ = cache.store_value(Verb::Set, key, (0, 0), b"x", &mut cas);
        }
        hand.advance(100);
        for key in [b"a", b"b", b"d"] {
            cache.get(key, cache.moment(), |_| ()).expect("it is there");
        }
        // All four are drawn.
        cache.configure(|config| config.memory_bytes_max = cache.used_bytes());
        let _ = cache.store_value(Verb::Set, b"e", (0, 0), b"x", &mut cas);
        let there = |key: &&[u8; 1]| cache.get(*key, cache.moment(), |_| ()).is_some();
        assert!([b"a", b"b", b"d", b"e"].iter().all(there) && !there(&b"c"));
    }

    #[test]
    fn i3_no_number_for_cas_is_given_twice() {
        let (cache, mut one, mut other) = (cache(1), CasNumbers::default(), CasNumbers::default());
        let mut all: Vec<u64> =
            (0..1000).flat_map(|_| [cache.cas(&mut one), cache.cas(&mut other)]).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2000);
    }

    #[test]
    fn numbers_are_what_clients_count_with() {
        let numbers = [&b"5"[..], b" 12 ", b"18446744073709551615", b"+3"].map(number);
        assert_eq!(numbers, [Some(5), Some(12), Some(u64::MAX), Some(3)]);
        assert!(
            [&b""[..], b" ", b"-1", b"1a", b"18446744073709551616", b"1 2"]
                .iter()
                .all(|d| number(d).is_none())
        );
    }
}
