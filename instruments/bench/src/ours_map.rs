//! Subjects `squall-*` of the map cases, used as an application would.

use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;

use squall::objects::map::{self, MapExt, OwnedMap};
use squall::{ClusterSize, Handle, Id};
use squall_parts::table::Table;

use crate::cases::map::Key;
use crate::rivals::maps::{Family, Hashing, Mapping};

/// `squall-table`: the table alone, as embedded in another structure.
pub(crate) struct Constituent;

impl Family for Constituent {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = Table<K, u64, S>;
}

impl<K: Key, S: Hashing> Mapping<K> for Table<K, u64, S> {
    fn new() -> Self {
        Table::with_hasher(S::default())
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.get(key)
    }

    #[inline(always)]
    fn insert(&self, key: K, value: u64) -> bool {
        self.insert(key, value).is_none()
    }

    #[inline(always)]
    fn remove(&self, key: &K::Query) -> bool {
        self.remove(key).is_some()
    }

    #[inline(always)]
    fn increment(&self, key: &K::Query) -> bool {
        self.update(key, |value| value + 1)
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn sum(&self) -> u64 {
        let mut sum = 0;
        self.for_each(|_, value| sum += value);
        sum
    }

    fn settle() {
        squall_rcu::barrier().expect("the grace period failed");
    }
}

/// Makes one form of the object.
pub(crate) trait Form: Send + Sync + 'static {
    /// See [`Map::LEARNS`].
    const LEARNS: bool = false;

    fn make<K: Key, S: Hashing>() -> OwnedMap<K, u64, S>;
}

/// `squall-central`.
pub(crate) struct Shared;

impl Form for Shared {
    fn make<K: Key, S: Hashing>() -> OwnedMap<K, u64, S> {
        map::shared_with(0, S::default())
    }
}

/// `squall-locked`.
pub(crate) struct OneLock;

impl Form for OneLock {
    fn make<K: Key, S: Hashing>() -> OwnedMap<K, u64, S> {
        map::locked_with(0, S::default())
    }
}

/// `squall-replicated`: one copy per processor, so that a small machine too has copies to invalidate.
pub(crate) struct Replicated;

impl Form for Replicated {
    const LEARNS: bool = true;

    fn make<K: Key, S: Hashing>() -> OwnedMap<K, u64, S> {
        map::replicated_with(0, ClusterSize::Cpu, S::default())
    }
}

/// `squall-partitioned`: eight parts, selected by the key's number.
pub(crate) struct Partitioned;

impl Form for Partitioned {
    fn make<K: Key, S: Hashing>() -> OwnedMap<K, u64, S> {
        map::partitioned_with(8, |key| key as usize, ClusterSize::Cpu, S::default())
    }
}

/// `squall-adaptive`.
pub(crate) struct Adaptive;

impl Form for Adaptive {
    fn make<K: Key, S: Hashing>() -> OwnedMap<K, u64, S> {
        map::adaptive_with(0, S::default())
    }
}

/// An object, called through a handle that all threads copy.
pub(crate) struct Object<K: Key, S: BuildHasher + Send + Sync + 'static, F> {
    co: Handle<dyn map::Map<K, u64, S>>,
    _owner: OwnedMap<K, u64, S>,
    form: PhantomData<F>,
}

impl<F: Form> Family for F {
    type Own = RandomState;
    type Map<K: Key, S: Hashing> = Object<K, S, F>;
}

impl<K: Key, S: Hashing, F: Form> Mapping<K> for Object<K, S, F> {
    const LEARNS: bool = F::LEARNS;

    fn new() -> Self {
        let owner = F::make();
        Object { co: owner.handle(), _owner: owner, form: PhantomData }
    }

    #[inline(always)]
    fn get(&self, key: &K::Query) -> Option<u64> {
        self.co.get(key)
    }

    #[inline(always)]
    fn insert(&self, key: K, value: u64) -> bool {
        self.co.insert(key, value).is_none()
    }

    #[inline(always)]
    fn remove(&self, key: &K::Query) -> bool {
        self.co.remove(key).is_some()
    }

    #[inline(always)]
    fn increment(&self, key: &K::Query) -> bool {
        self.co.update(key, |value| value + 1)
    }

    fn len(&self) -> usize {
        self.co.len()
    }

    fn object(&self) -> Option<Id> {
        Some(Handle::id(self.co))
    }

    fn sum(&self) -> u64 {
        self.co.fold(0, |sum, _, value| sum + value)
    }

    fn settle() {
        squall_rcu::barrier().expect("the grace period failed");
    }
}
