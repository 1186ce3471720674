//! The meta commands that read, delete and count. `storing.rs` has `ms`.

use super::{Cache, CasNumbers, Changed, Moment, Room, StoreResult, number};
use crate::item::Item;
use crate::protocol::{Meta, Options};
use crate::stats::Fact;
use crate::store::{Change, Store};

/// The state of an item as `mg` found it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// The expiry time before the command.
    pub(crate) expires_before: u64,
    /// Whether a client had read the item.
    pub(crate) was_fetched: bool,
    /// Approximate seconds since the last use.
    pub(crate) idle_s: u64,
    /// Whether the command made the item.
    pub(crate) is_new: bool,
    /// Whether the client is told to renew the item.
    pub(crate) has_won: bool,
    /// Whether another client was told so before.
    pub(crate) was_token_sent: bool,
}

/// The number that `ma` made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Count {
    pub(crate) number: u64,
    pub(crate) cas: u64,
    pub(crate) expires_before: u64,
    pub(crate) expires: u64,
}

/// The effect of an `mg` on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Effect {
    expires: u64,
    has_won: bool,
}

/// Result of a read that leaves the item as it is.
enum Seen<R> {
    Answered(R),
    /// The item is expired or flushed.
    Dead,
    /// The command changes the item.
    Changes,
}

impl Hit {
    fn new(item: &Item, moment: Moment, has_won: bool) -> Hit {
        Hit {
            expires_before: item.expires(),
            was_fetched: item.is_fetched(),
            idle_s: moment.now.saturating_sub(item.used()),
            is_new: false,
            has_won,
            was_token_sent: item.is_token_sent(),
        }
    }
}

impl<S: Store> Cache<S> {
    /// Runs an `mg`: calls `answer` with the item and its state, and returns its result if there is one. An
    /// item that the command leaves as it is, is not copied.
    pub(crate) fn meta_get<R>(
        &self,
        meta: &Meta<'_>,
        key: &[u8],
        cas: &mut CasNumbers,
        answer: impl FnOnce(&Item, Hit) -> R,
    ) -> Option<R> {
        let (moment, options) = (self.moment(), &meta.options);
        let mut answer = Some(answer);
        let seen = self.store.read(key, |item| {
            if !item.is_live(moment) {
                return Seen::Dead;
            }
            let effect = self.effect(meta, item, moment);
            if (effect != Effect { expires: item.expires(), has_won: false }) {
                return Seen::Changes;
            }
            let hit = Hit::new(item, moment, false);
            if !options.is_unnoticed {
                item.note_use(moment);
            }
            Seen::Answered(answer.take().expect("called once")(item, hit))
        });
        let (answered, is_dead) = match seen {
            Some(Seen::Answered(answered)) => (Some(answered), false),
            Some(Seen::Changes) => (self.change_by_get(meta, key, moment, cas, answer), false),
            seen if options.vivify.is_some() => {
                (self.change_by_get(meta, key, moment, cas, answer), seen.is_some())
            }
            seen => {
                if seen.is_some() {
                    self.change(key, moment, |_| (Change::Keep, ()));
                }
                (None, seen.is_some())
            }
        };
        self.stats.note(if answered.is_some() { Fact::GetHits } else { Fact::GetMisses });
        if is_dead {
            self.stats.note(Fact::GetExpired);
        }
        if options.exptime.is_some() {
            self.stats.note(if answered.is_some() { Fact::TouchHits } else { Fact::TouchMisses });
        }
        answered
    }

    /// Runs an `mg` that changes the item, or makes one.
    fn change_by_get<R>(
        &self,
        meta: &Meta<'_>,
        key: &[u8],
        moment: Moment,
        cas: &mut CasNumbers,
        answer: Option<impl FnOnce(&Item, Hit) -> R>,
    ) -> Option<R> {
        let options = &meta.options;
        let made = options.vivify.and_then(|exptime| self.made(key, b"", exptime, options, moment, cas));
        let (item, hit) = self.change(key, moment, |old| match (old, &made) {
            (Some(old), _) => {
                let Effect { expires, has_won } = self.effect(meta, old, moment);
                let hit = Hit::new(old, moment, has_won);
                let mut item = if options.is_unnoticed { old.clone() } else { old.expiring(expires, moment) };
                item.set_expires(expires);
                item.set_token_sent(has_won || old.is_token_sent());
                if !options.is_unnoticed {
                    item.note_use(moment);
                }
                (Change::Put(item.clone()), Some((item, hit)))
            }
            (None, Some(made)) => {
                let mut item = made.clone();
                item.set_token_sent(true);
                let hit = Hit { is_new: true, expires_before: 0, ..Hit::new(made, moment, true) };
                (Change::Put(item.clone()), Some((item, hit)))
            }
            (None, None) => (Change::Keep, None),
        })?;
        answer.map(|answer| answer(&item, hit))
    }

    /// Makes an item for an absent key, if there is room.
    fn made(
        &self,
        key: &[u8],
        data: &[u8],
        exptime: i64,
        options: &Options,
        moment: Moment,
        cas: &mut CasNumbers,
    ) -> Option<Item> {
        let cas = options.new_cas.unwrap_or_else(|| self.cas(cas));
        let mut item = Item::new(data.into(), 0, self.expires(exptime, moment), cas, moment);
        item.set_binary_key(options.is_binary);
        match self.room(item.bytes(key)) {
            Room::Made => Some(item),
            Room::None => {
                self.stats.note(Fact::StoreNoMemory);
                None
            }
        }
    }

    /// Returns the effect of the flags `T` and `R` in their order, and of a stale item.
    fn effect(&self, meta: &Meta<'_>, item: &Item, moment: Moment) -> Effect {
        let options = &meta.options;
        let (mut expires, mut has_won) = (item.expires(), item.is_stale());
        if options.exptime.is_some() || options.recache.is_some() {
            for (letter, _) in meta.flags() {
                match (letter, options.exptime, options.recache) {
                    (b'T', Some(exptime), _) => expires = self.expires(exptime, moment),
                    (b'R', _, Some(seconds)) => {
                        has_won |= expires != 0 && expires < self.date(seconds, moment);
                    }
                    _ => {}
                }
            }
        }
        Effect { expires, has_won: has_won && !item.is_token_sent() }
    }

    /// Runs an `md`.
    pub(crate) fn meta_delete(&self, meta: &Meta<'_>, key: &[u8], cas: &mut CasNumbers) -> StoreResult {
        let (moment, options) = (self.moment(), &meta.options);
        let new_cas = options.new_cas.or_else(|| options.invalidates.then(|| self.cas(cas)));
        let result = self.change(key, moment, |old| {
            let Some(old) = old else { return (Change::Keep, StoreResult::NotFound) };
            if options.cas.is_some_and(|cas| cas != old.cas) {
                return (Change::Keep, StoreResult::Exists);
            }
            let mut item = old.clone();
            if options.removes_value {
                let expires = self.expires(options.exptime.unwrap_or(0), moment);
                item = Item::new(b"".into(), options.client_flags, expires, old.cas, moment);
                item.set_binary_key(old.has_binary_key());
            } else if !options.invalidates {
                return (Change::Remove, StoreResult::Stored);
            }
            item.cas = new_cas.unwrap_or(old.cas);
            if options.invalidates {
                if let Some(exptime) = options.exptime {
                    item.set_expires(self.expires(exptime, moment));
                }
                item.set_stale(true);
                // The next client that reads it is told to renew it.
                item.set_token_sent(false);
            }
            (Change::Put(item), StoreResult::Stored)
        });
        match result {
            StoreResult::Stored if options.invalidates => {}
            StoreResult::Stored => self.stats.note(Fact::DeleteHits),
            _ => self.stats.note(Fact::DeleteMisses),
        }
        result
    }

    /// Runs an `ma`.
    pub(crate) fn meta_count(&self, meta: &Meta<'_>, key: &[u8], cas: &mut CasNumbers) -> Changed<Count> {
        let (moment, options) = (self.moment(), &meta.options);
        let is_up = meta.counts_up().expect("the parser has checked the mode");
        let new_cas = options.new_cas.unwrap_or_else(|| self.cas(cas));
        let counted = self.change(key, moment, |old| self.counted(old, options, is_up, new_cas, moment));
        let counted = match (counted, options.vivify) {
            (Changed::NotFound, Some(exptime)) => {
                let data = options.initial.to_string();
                match self.made(key, data.as_bytes(), exptime, options, moment, cas) {
                    None => Changed::NoMemory,
                    // Another client may have stored a value meanwhile.
                    Some(made) => self.change(key, moment, |old| match old {
                        Some(_) => self.counted(old, options, is_up, new_cas, moment),
                        None => {
                            let (number, cas, expires) = (options.initial, made.cas, made.expires());
                            let made_count = Count { number, cas, expires_before: 0, expires };
                            (Change::Put(made.clone()), Changed::Done(made_count))
                        }
                    }),
                }
            }
            (counted, _) => counted,
        };
        self.note_count(&counted, is_up);
        counted
    }

    /// Counts with a present value.
    fn counted(
        &self,
        old: Option<&Item>,
        options: &Options,
        is_up: bool,
        new_cas: u64,
        moment: Moment,
    ) -> (Change, Changed<Count>) {
        let Some(old) = old else { return (Change::Keep, Changed::NotFound) };
        if options.cas.is_some_and(|cas| cas != 0 && cas != old.cas) && !old.data.is_empty() {
            return (Change::Keep, Changed::Exists);
        }
        let Some(number) = number(&old.data) else { return (Change::Keep, Changed::NotANumber) };
        let delta = options.delta.unwrap_or(1);
        let number = if is_up { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
        let mut item = old.with_data(number.to_string().into_bytes().into(), new_cas);
        if let Some(exptime) = options.exptime {
            item.set_expires(self.expires(exptime, moment));
        }
        let count = Count { number, cas: new_cas, expires_before: old.expires(), expires: item.expires() };
        (Change::Put(item), Changed::Done(count))
    }

    /// Calls `f` with an item and its seconds since the last use. Leaves no trace.
    pub(crate) fn meta_debug<R>(&self, key: &[u8], f: impl FnOnce(&Item, Hit) -> R) -> Option<R> {
        let moment = self.moment();
        let found =
            self.store.read(key, |item| item.is_live(moment).then(|| f(item, Hit::new(item, moment, false))));
        found.flatten()
    }
}
