//! The effect of each command on the entries, for any store and any kind of connection.
//!
//! - I1. A dead item, expired or flushed, is absent to every command. The next change of its key removes
//!   it, or the sweeper.
//! - I2. A value's `cas` number is never given to another value.

mod meta;
mod storing;
#[cfg(test)]
mod tests;

pub(crate) use meta::{Count, Hit};
pub(crate) use storing::{StoreResult, Stored, Terms};

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use squall::Handle;
use squall::objects::read_mostly::{self, OwnedReadMostly, ReadMostly, ReadMostlyExt};

use crate::clock::Clock;
use crate::config::Config;
use crate::item::Item;
use crate::key::Key;
use crate::stats::{Fact, Stats};
use crate::store::{Bound, Change, Reserved, Store};

/// Larger numbers are dates: memcached's thirty days.
const RELATIVE_S_MAX: i64 = 60 * 60 * 24 * 30;
/// Replaces an expiry in the past: a date that every clock has passed.
const PAST: u64 = 1;
/// Minimum size of a removed entry that counts for [`Cache::is_reclaim_due`]. Smaller entries cannot fill
/// much memory in the time until it is free.
const GONE_BYTES_MIN: u64 = 4 << 10;
/// A reclaim is due when an eighth of the memory limit was removed, but at least this many bytes.
const GONE_PART: u64 = 8;
const GONE_BYTES_LEAST: u64 = 2 << 20;
/// Number of `cas` numbers that a connection takes at once: see [`CasNumbers`].
const CAS_BATCH: u64 = 256;

/// A cache: a store, and the state that all its connections share.
#[derive(Debug)]
pub struct Cache<S> {
    store: S,
    config: OwnedReadMostly<Config>,
    stats: Stats,
    clock: Clock,
    began: u64,
    /// Number of flushes so far.
    era: AtomicU64,
    /// Time of the next delayed flush; 0: there is no such flush.
    flush_due: AtomicU64,
    /// Held by the thread that runs a due flush.
    flushing: Mutex<()>,
    next_cas: AtomicU64,
    /// Bytes of large entries that were replaced or removed since a thread last waited for their memory.
    gone_bytes: AtomicU64,
    /// Evictions before the last reset of the statistics.
    evictions_at_reset: AtomicU64,
    connections: AtomicUsize,
}

/// Time of a command: the clock, and the number of flushes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Seconds since 1970.
    pub now: u64,
    /// Number of flushes.
    pub era: u64,
}

/// Result of changing a present value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Changed<T> {
    /// The value was changed.
    Done(T),
    /// The key is absent.
    NotFound,
    /// The value is no number.
    NotANumber,
    /// The value is not the one that the client named.
    Exists,
    /// Evictions cannot make enough room.
    NoMemory,
}

/// Whether there is room in the memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Room {
    /// There is room, perhaps after evictions.
    Made,
    /// There is no room, even without entries.
    None,
}

/// Reserved `cas` numbers of one connection. It takes many at once, so that connections do not contend at
/// each write (cache/I2).
#[derive(Debug, Default)]
pub(crate) struct CasNumbers {
    next: u64,
    end: u64,
}

/// One open connection. The drop frees its place.
#[derive(Debug)]
pub(crate) struct ConnectionPermit<S: Store>(Arc<Cache<S>>);

impl<S: Store> Drop for ConnectionPermit<S> {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S: Store> Cache<S> {
    /// Makes a cache with this store, which must be empty.
    pub fn new(store: S, config: Config, clock: Clock) -> Arc<Cache<S>> {
        if let Some(bound) = store.bound() {
            bound.set_limit(config.memory_bytes_max);
        }
        Arc::new(Cache {
            store,
            config: read_mostly::shared(config).named("server.configuration"),
            stats: Stats::new(),
            began: clock.now(),
            clock,
            era: AtomicU64::new(0),
            flush_due: AtomicU64::new(0),
            flushing: Mutex::new(()),
            next_cas: AtomicU64::new(1),
            gone_bytes: AtomicU64::new(0),
            evictions_at_reset: AtomicU64::new(0),
            connections: AtomicUsize::new(0),
        })
    }

    /// Returns the configuration, to read it and to change it while the server runs.
    pub fn config(&self) -> Handle<dyn ReadMostly<Config>> {
        self.config.handle()
    }

    /// Returns the counters.
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Returns the memory that all entries need; 0 for a store without a limit.
    pub fn used_bytes(&self) -> u64 {
        self.store.bound().map_or(0, Bound::used_bytes)
    }

    /// Returns the size of the input buffers that count against the memory limit.
    pub fn input_bytes(&self) -> u64 {
        self.store.bound().map_or(0, Bound::reserved_bytes)
    }

    /// Returns the number of evictions since the last reset.
    pub fn evictions(&self) -> u64 {
        let evictions = self.store.bound().map_or(0, Bound::evictions);
        evictions.saturating_sub(self.evictions_at_reset.load(Ordering::Relaxed))
    }

    /// Resets the counters.
    pub(crate) fn reset_stats(&self) {
        self.stats.reset();
        let evictions = self.store.bound().map_or(0, Bound::evictions);
        self.evictions_at_reset.store(evictions, Ordering::Relaxed);
    }

    /// Returns the number of open connections.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns the seconds since 1970.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now()
    }

    /// Returns the seconds since the cache was made.
    pub(crate) fn uptime_s(&self) -> u64 {
        self.clock.now().saturating_sub(self.began)
    }

    /// Returns a place for one more connection, or `None` if all are taken.
    pub(crate) fn permit(self: &Arc<Cache<S>>) -> Option<ConnectionPermit<S>> {
        let limit = self.config().read(|config| config.connections_max);
        let taken = self
            .connections
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < limit).then_some(taken + 1));
        taken.ok().map(|_| ConnectionPermit(self.clone()))
    }

    /// Returns the present time. Runs a delayed flush if it is due.
    ///
    /// The words need no further ordering: a client that knows of a flush tells others through the kernel.
    pub fn moment(&self) -> Moment {
        let now = self.clock.now();
        let is_due = |due| (1..=now).contains(&due);
        // Acquire: pairs with the release below. A thread that finds no due flush counts the one before.
        if is_due(self.flush_due.load(Ordering::Acquire)) {
            // Threads that come meanwhile wait, so that no command continues with the time before the
            // flush.
            let _flushing = self.flushing.lock().unwrap_or_else(PoisonError::into_inner);
            let due = self.flush_due.load(Ordering::Relaxed);
            if is_due(due) {
                self.era.fetch_add(1, Ordering::Relaxed);
                // Release: pairs with the acquire above. A later flush may have been set meanwhile; it
                // stays.
                _ = self.flush_due.compare_exchange(due, 0, Ordering::Release, Ordering::Relaxed);
            }
        }
        Moment { now, era: self.era.load(Ordering::Relaxed) }
    }

    /// Returns the expiry time for a client's number, by memcached's rule. Negative: at once. 0: never, or
    /// after the default. Up to thirty days: in so many seconds. Larger: that date.
    pub(crate) fn expires(&self, exptime: i64, moment: Moment) -> u64 {
        match exptime {
            0 => match self.config().read(|config| config.default_ttl_s) {
                0 => 0,
                ttl => moment.now.saturating_add(ttl),
            },
            exptime => self.date(exptime, moment),
        }
    }

    /// Returns the date for a client's number. 0 is 0.
    fn date(&self, exptime: i64, moment: Moment) -> u64 {
        match exptime {
            0 => 0,
            ..0 => PAST,
            1..=RELATIVE_S_MAX => moment.now.saturating_add(exptime.unsigned_abs()),
            date => date.unsigned_abs(),
        }
    }

    // --- reading ---

    /// Calls `f` with the key's item and returns its result, or `None` if the key is absent.
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

    /// Sets the expiry time of the key's item, and returns the item.
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

    /// Removes the key. Returns whether it was present.
    pub(crate) fn delete(&self, key: &[u8]) -> bool {
        let found = self.change(key, self.moment(), |item| (Change::Remove, item.is_some()));
        self.stats.note(if found { Fact::DeleteHits } else { Fact::DeleteMisses });
        found
    }

    /// Sets the expiry time of the key's item. Returns whether the key is present.
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

    /// Adds to a number, or subtracts from it. The sum wraps at 64 bits, and the difference stops at 0.
    pub(crate) fn count(&self, key: &[u8], up: bool, by: u64, cas: &mut CasNumbers) -> Changed<u64> {
        let cas = self.cas(cas);
        let changed = self.change(key, self.moment(), |item| {
            let Some(item) = item else { return (Change::Keep, Changed::NotFound) };
            let Some(number) = number(&item.data) else { return (Change::Keep, Changed::NotANumber) };
            let number = if up { number.wrapping_add(by) } else { number.saturating_sub(by) };
            let data = number.to_string().into_bytes().into();
            (Change::Put(item.with_data(data, cas)), Changed::Done(number))
        });
        self.note_count(&changed, up);
        changed
    }

    fn note_count<T>(&self, changed: &Changed<T>, up: bool) {
        match (changed, up) {
            (Changed::Done(_), true) => self.stats.note(Fact::IncrHits),
            (Changed::NotFound, true) => self.stats.note(Fact::IncrMisses),
            (Changed::Done(_), false) => self.stats.note(Fact::DecrHits),
            (Changed::NotFound, false) => self.stats.note(Fact::DecrMisses),
            (Changed::NotANumber | Changed::Exists | Changed::NoMemory, _) => {}
        }
    }

    /// Flushes all present entries, at once or after `delay`. A flushed item is dead, and is removed by
    /// [`sweep_all`](Cache::sweep_all).
    /// A new delayed flush replaces an earlier one.
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

    /// Changes the configuration. Each request that begins after the return uses it.
    pub fn configure(&self, change: impl Fn(&mut Config)) {
        self.config().update(|config| {
            let mut config = config.clone();
            change(&mut config);
            config
        });
        if let Some(bound) = self.store.bound() {
            bound.set_limit(self.config().read(|config| config.memory_bytes_max));
        }
    }

    fn cas(&self, numbers: &mut CasNumbers) -> u64 {
        if numbers.next == numbers.end {
            numbers.next = self.next_cas.fetch_add(CAS_BATCH, Ordering::Relaxed);
            numbers.end = numbers.next + CAS_BATCH;
        }
        numbers.next += 1;
        numbers.next - 1
    }

    /// Changes one entry; all changes go through here. A dead item is absent to `decide`, and is
    /// removed (I1). `decide` runs again if another writer was faster.
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
                item.follow(old);
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
        self.note_gone(gone, come);
        result.expect("a store asks once at least")
    }

    // --- room ---

    /// Whether enough memory was removed that the remover should wait until it is free. Otherwise a storm
    /// of large values would fill more than the limit. Returns true to one caller, which then calls
    /// [`Store::reclaim`].
    pub(crate) fn is_reclaim_due(&self) -> bool {
        // Relaxed: a count.
        let gone = self.gone_bytes.load(Ordering::Relaxed);
        if gone < GONE_BYTES_LEAST {
            return false;
        }
        let limit = self.config().read(|config| config.memory_bytes_max);
        gone >= (limit / GONE_PART).max(GONE_BYTES_LEAST) && self.gone_bytes.swap(0, Ordering::Relaxed) > 0
    }

    /// Returns a part of the memory limit for input.
    pub(crate) fn input_part(&self) -> InputPart<'_, S> {
        InputPart { cache: self, bytes: 0, reserved: None }
    }

    /// Notes that memory of this size was removed, and that other memory came.
    fn note_gone(&self, gone: u64, come: u64) {
        if gone.max(come) >= GONE_BYTES_MIN {
            // A full store evicts about as much as comes.
            let left = if self.is_nearly_full() { gone.max(come) } else { gone };
            self.gone_bytes.fetch_add(left, Ordering::Relaxed);
        }
    }

    /// Whether the store evicts entries, or is about to.
    fn is_nearly_full(&self) -> bool {
        let limit = self.config().read(|config| config.memory_bytes_max);
        self.used_bytes().saturating_add(self.input_bytes()) >= limit - limit / GONE_PART
    }

    /// Whether an item fits into the memory limit, if the store evicts enough others.
    fn room(&self, bytes: u64) -> Room {
        if self.store.bound().is_none() {
            return Room::Made;
        }
        let limit = self.config().read(|config| config.memory_bytes_max);
        if self.input_bytes().saturating_add(bytes) <= limit { Room::Made } else { Room::None }
    }

    /// Calls `f` with some live entries until it returns false, or until so many entries were visited.
    pub(crate) fn look_through(&self, visited_max: usize, mut f: impl FnMut(&[u8], &Item) -> bool) {
        let moment = self.moment();
        let (mut from, mut visited, mut more) = (Some(0), 0, true);
        while let Some(at) = from
            && more
        {
            from = self.store.visit(at, |key, item| {
                visited += 1;
                more = visited < visited_max && (!item.is_live(moment) || f(key, item));
                more
            });
        }
    }

    /// Removes all dead items, waits until their memory is free, and gives it back to the system.
    pub fn sweep_all(&self) {
        if self.store.is_empty() {
            return;
        }
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.sweep(at).0;
        }
        self.store.reclaim();
        squall::alloc::trim();
    }

    /// Removes the dead items among some hundreds of entries from a position on. Covers all entries of a
    /// store without positions. Returns the position after them, `None` at the end, and the number of
    /// visited entries. The sweeper calls it.
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

/// A part of the memory limit for the input of one connection. The drop gives it back.
pub(crate) struct InputPart<'a, S: Store> {
    cache: &'a Cache<S>,
    bytes: u64,
    /// The part of the store's bound.
    reserved: Option<Box<dyn Reserved + 'a>>,
}

impl<S: Store> InputPart<'_, S> {
    /// Makes the part larger or smaller, and evicts entries if needed. Without room, it stays as it was.
    pub(crate) fn resize(&mut self, bytes: u64) -> Room {
        let bound = self.cache.store.bound().filter(|_| bytes != self.bytes);
        if let Some(bound) = bound {
            if !self.reserved.get_or_insert_with(|| bound.reserve()).resize(bytes) {
                return Room::None;
            }
            if bytes == 0 {
                self.reserved = None;
            }
            self.cache.note_gone(0, bytes.saturating_sub(self.bytes));
        }
        self.bytes = bytes;
        Room::Made
    }
}

/// Parses a value as a number. Spaces around it are allowed, since some clients pad their numbers.
fn number(data: &[u8]) -> Option<u64> {
    // Longer values are no numbers of any client.
    const DIGITS_MAX: usize = 64;
    let text = std::str::from_utf8(data.get(..data.len().min(DIGITS_MAX))?).ok()?;
    if data.len() > DIGITS_MAX { None } else { text.trim_matches(' ').parse().ok() }
}
