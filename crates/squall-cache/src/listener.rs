//! Listeners of evictions.

use std::sync::Arc;

/// The reason why an entry left the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RemovalCause {
    /// One of its times was over.
    Expired,
    /// The program removed it, by an invalidation, `remove` or `compute`.
    Explicit,
    /// The program replaced its value. Also the cause of an old value if the cache refused the new one.
    Replaced,
    /// The policy evicted it from a full cache, or after the bound became lower. Also the cause of a new
    /// entry that was refused.
    Size,
}

impl RemovalCause {
    /// Returns true for `Expired` and `Size`: the cache removed the entry by itself.
    pub fn was_evicted(self) -> bool {
        matches!(self, RemovalCause::Expired | RemovalCause::Size)
    }
}

type Call<K, V> = Box<dyn Fn(Arc<K>, V, RemovalCause) + Send + Sync>;

/// A listener, and a way to clone keys.
pub(crate) struct Listener<K, V> {
    pub(crate) call: Call<K, V>,
    pub(crate) clone_key: fn(&K) -> K,
}

/// The entries that an operation of the cache removed. They are told after it, outside all locks.
pub(crate) struct Told<'a, K, V> {
    listener: Option<&'a Listener<K, V>>,
    entries: Vec<(K, V, RemovalCause)>,
}

impl<'a, K, V> Told<'a, K, V> {
    pub(crate) fn new(listener: Option<&'a Listener<K, V>>) -> Told<'a, K, V> {
        Told { listener, entries: Vec::new() }
    }

    /// Returns a clone of a key if there is a listener.
    pub(crate) fn clone_key(&self, key: &K) -> Option<K> {
        self.listener.map(|listener| (listener.clone_key)(key))
    }

    /// Clones an entry if there is a listener. Called before the entry is claimed, since a clone may panic.
    pub(crate) fn prepare(&self, key: &K, value: &V, cause: RemovalCause) -> Option<(K, V, RemovalCause)>
    where
        V: Clone,
    {
        self.listener.map(|listener| ((listener.clone_key)(key), value.clone(), cause))
    }

    /// Notes an entry that was claimed.
    pub(crate) fn add(&mut self, entry: Option<(K, V, RemovalCause)>) {
        self.entries.extend(entry);
    }

    /// Notes an entry that is in no other hands. Without a listener it is dropped at the end, outside locks.
    pub(crate) fn note_owned(&mut self, key: K, value: V, cause: RemovalCause) {
        self.entries.push((key, value, cause));
    }

    /// Calls the listener. A panic of it loses the calls after it.
    pub(crate) fn tell(self) {
        let Some(listener) = self.listener else { return };
        for (key, value, cause) in self.entries {
            (listener.call)(Arc::new(key), value, cause);
        }
    }
}
