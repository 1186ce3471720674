//! The commands that store a value.

use squall::objects::read_mostly::ReadMostlyExt;

use super::{Cache, CasNumbers, Room};
use crate::data::Data;
use crate::item::Item;
use crate::protocol::{Storing, Verb};
use crate::stats::Fact;
use crate::store::{Change, Store};

/// Result of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreResult {
    /// The value was stored.
    Stored,
    /// The command's condition was not met, or the value would become too large by an append or prepend.
    NotStored,
    /// The value is not the one that the client named.
    Exists,
    /// The key is absent.
    NotFound,
    /// Evictions cannot make enough room.
    NoMemory,
}

/// Result of storing a value, with the facts that `ms` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) result: StoreResult,
    /// The number of the stored value; 0: no value was stored.
    pub(crate) cas: u64,
    /// The size of the stored value, or of the client's one.
    pub(crate) bytes: usize,
}

/// The conditions of storing a value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) verb: Verb,
    pub(crate) flags: u32,
    pub(crate) exptime: i64,
    /// The number that a value must have to be appended or prepended to; 0: any.
    pub(crate) unique: u64,
    /// The number of the new value, if the client gives one.
    pub(crate) new_cas: Option<u64>,
    /// Whether a value with an older number is stored as a stale one.
    pub(crate) invalidates: bool,
    /// Whether `append` and `prepend` store a value if the key is absent.
    pub(crate) vivifies: bool,
    pub(crate) is_binary: bool,
}

impl From<&Storing<'_>> for Terms {
    fn from(of: &Storing<'_>) -> Terms {
        let plain = |verb, flags, exptime| Terms {
            verb,
            flags,
            exptime,
            unique: 0,
            new_cas: None,
            invalidates: false,
            vivifies: false,
            is_binary: false,
        };
        match of {
            Storing::Plain { verb, flags, exptime, .. } => plain(*verb, *flags, *exptime),
            Storing::Meta { verb, meta } => {
                let options = &meta.options;
                let vivify = options.vivify.filter(|_| matches!(verb, Verb::Append | Verb::Prepend));
                let exptime = vivify.or(options.exptime).unwrap_or(0);
                Terms {
                    unique: options.cas.unwrap_or(0),
                    new_cas: options.new_cas,
                    invalidates: options.invalidates,
                    vivifies: vivify.is_some(),
                    is_binary: options.is_binary,
                    ..plain(*verb, options.client_flags, exptime)
                }
            }
        }
    }
}

impl<S: Store> Cache<S> {
    /// Stores a value.
    pub(crate) fn store_value(&self, key: &[u8], terms: &Terms, data: &[u8], cas: &mut CasNumbers) -> Stored {
        let moment = self.moment();
        self.stats.note(Fact::CmdSet);
        let new_cas = terms.new_cas.unwrap_or_else(|| self.cas(cas));
        let expires = self.expires(terms.exptime, moment);
        let made = || {
            let mut item = Item::new(data.into(), terms.flags, expires, new_cas, moment);
            item.set_binary_key(terms.is_binary);
            item
        };
        let item_max = self.config().read(|config| config.item_bytes_max);
        let room = self.room(Item::bytes_of(key, data.len()));
        let (result, bytes) = self.change(key, moment, |old| {
            let put = |item: Item| {
                let bytes = item.data.len();
                match room {
                    Room::Made => (Change::Put(item), (StoreResult::Stored, bytes)),
                    // The client believes that the old value is replaced, so it must not be found any more.
                    Room::None if terms.verb == Verb::Set => (Change::Remove, (StoreResult::NoMemory, bytes)),
                    Room::None => (Change::Keep, (StoreResult::NoMemory, bytes)),
                }
            };
            let keep = |result| (Change::Keep, (result, data.len()));
            match (terms.verb, old) {
                (Verb::Set, _) | (Verb::Add, None) | (Verb::Replace, Some(_)) => put(made()),
                (Verb::Cas(unique), Some(old)) => match compare(unique, old, terms.invalidates) {
                    Compared::Equal => put(made()),
                    Compared::Older => put(stale(made(), old)),
                    Compared::Other => keep(StoreResult::Exists),
                },
                (Verb::Cas(_), None) => keep(StoreResult::NotFound),
                (Verb::Append | Verb::Prepend, Some(old)) => {
                    let parts =
                        if terms.verb == Verb::Append { [&*old.data, data] } else { [data, &old.data] };
                    if terms.unique != 0 && terms.unique != old.cas {
                        return keep(StoreResult::Exists);
                    }
                    if old.exceeds(key, data.len(), item_max) {
                        return keep(StoreResult::NotStored);
                    }
                    put(joined(old, parts.concat().into(), new_cas))
                }
                (Verb::Append | Verb::Prepend, None) if terms.vivifies => put(made()),
                _ => keep(StoreResult::NotStored),
            }
        });
        match (terms.verb, result) {
            (_, StoreResult::NoMemory) => self.stats.note(Fact::StoreNoMemory),
            (Verb::Cas(_), StoreResult::Stored) => self.stats.note(Fact::CasHits),
            (Verb::Cas(_), StoreResult::Exists) => self.stats.note(Fact::CasBadval),
            (Verb::Cas(_), StoreResult::NotFound) => self.stats.note(Fact::CasMisses),
            _ => {}
        }
        Stored { result, cas: if result == StoreResult::Stored { new_cas } else { 0 }, bytes }
    }

    /// Handles a value that was not received. The old value of a `set` must not be found any more.
    pub(crate) fn refuse_value(&self, verb: Verb, key: &[u8], reason: Fact) {
        self.stats.note(reason);
        if verb == Verb::Set {
            self.change(key, self.moment(), |_| (Change::Remove, ()));
        }
    }
}

/// Relation of a client's number to that of the present value.
enum Compared {
    Equal,
    /// The client's number is lower, and the client stores a stale value then.
    Older,
    Other,
}

fn compare(unique: u64, old: &Item, invalidates: bool) -> Compared {
    match unique {
        // No number, even if a client gave it to a value.
        0 => Compared::Other,
        _ if unique == old.cas => Compared::Equal,
        _ if unique < old.cas && invalidates => Compared::Older,
        _ => Compared::Other,
    }
}

/// Returns the value as a stale one, which a client then renews.
fn stale(mut item: Item, old: &Item) -> Item {
    item.set_expires(old.expires());
    item.set_stale(true);
    item.set_token_sent(old.is_token_sent());
    item
}

/// Returns the old item with a longer value. The client knows the new value, so it is fresh.
fn joined(old: &Item, data: Data, cas: u64) -> Item {
    let mut item = old.with_data(data, cas);
    item.set_stale(false);
    item.set_token_sent(false);
    item
}
