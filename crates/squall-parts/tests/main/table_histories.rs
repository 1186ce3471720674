//! The table under the checks for all concurrent maps. Recorded histories are checked for linearizability.
//! Actions of one thread are compared with `std`'s map. Other checks come from the test suites of other maps.
//! The tables are small, so that they grow and shrink under load. The hashers make keys collide seldom,
//! often, or always.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher, RandomState};
use std::marker::PhantomData;

use proptest::prelude::*;
use squall_history::maps::{Act, ConcurrentMap, Held, Load, Maker, Step, Wide, acts, all_checks, checks};
use squall_parts::table::{Compute, Table};

/// A key made from a number.
trait Named: Eq + Hash + Send + Sync + 'static {
    fn of(number: u64) -> Self;
    fn number(&self) -> u64;
}

impl Named for u64 {
    fn of(number: u64) -> u64 {
        number
    }

    fn number(&self) -> u64 {
        *self
    }
}

/// Keys of several words that own memory.
impl Named for String {
    fn of(number: u64) -> String {
        format!("{number}, which is longer than it need be")
    }

    fn number(&self) -> u64 {
        let number =
            self.strip_suffix(", which is longer than it need be").expect("a key that was never inserted");
        number.parse().expect("a key that was never inserted")
    }
}

struct Mapped<K: Named, V: Held, S>(Table<K, V, S>);

impl<K: Named, V: Held, S: BuildHasher + Send + Sync> ConcurrentMap<V> for Mapped<K, V, S> {
    fn get(&self, key: u64) -> Option<V> {
        self.0.get_cloned(&K::of(key))
    }

    fn insert(&self, key: u64, value: V) -> Option<V> {
        self.0.insert(K::of(key), value)
    }

    fn set(&self, key: u64, value: V) -> bool {
        self.0.set(K::of(key), value)
    }

    fn try_insert(&self, key: u64, value: V) -> Result<(), V> {
        self.0.try_insert(K::of(key), value).map_err(|(_, value)| value)
    }

    fn get_or_insert_with(&self, key: u64, make: &mut dyn FnMut() -> V) -> V {
        self.0.get_or_insert_with(K::of(key), make)
    }

    fn remove(&self, key: u64) -> Option<V> {
        self.0.remove(&K::of(key))
    }

    fn discard(&self, key: u64) -> bool {
        self.0.delete(&K::of(key))
    }

    fn remove_if(&self, key: u64, goes: &mut dyn FnMut(&V) -> bool) -> bool {
        self.0.remove_if(&K::of(key), goes)
    }

    fn update(&self, key: u64, change: &mut dyn FnMut(&V) -> V) -> bool {
        self.0.update(&K::of(key), change)
    }

    fn compute(&self, key: u64, step: &mut dyn FnMut(Option<&V>) -> Step<V>) {
        let _ = self.0.compute(K::of(key), |value| match step(value) {
            Step::Keep => Compute::Keep,
            Step::Put(value) => Compute::Put(value),
            Step::Remove => Compute::Remove,
        });
    }

    fn for_each(&self, visit: &mut dyn FnMut(u64, &V)) {
        self.0.for_each(|key, value| visit(key.number(), value));
    }

    fn retain(&self, keep: &mut dyn FnMut(u64, &V) -> bool) {
        self.0.retain(|key, value| keep(key.number(), value));
    }

    fn clear(&self) {
        self.0.clear();
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn reserve(&self, more: usize) {
        self.0.reserve(more);
    }

    fn shrink(&self) {
        self.0.shrink_to_fit();
    }
}

/// Makes tables with this hasher and key type.
struct Tables<S, K = u64>(S, PhantomData<fn(K)>);

impl<S> Tables<S> {
    fn of(hasher: S) -> Tables<S> {
        Tables(hasher, PhantomData)
    }
}

impl<S: BuildHasher + Clone + Send + Sync, K: Named> Maker for Tables<S, K> {
    type Map<V: Held> = Mapped<K, V, S>;

    fn make<V: Held>(&self) -> Mapped<K, V, S> {
        Mapped(Table::with_hasher(self.0.clone()))
    }

    fn settle(&self) {
        squall_rcu::barrier().expect("no operation is open here");
    }
}

/// A hasher with `HASHES` different results.
#[derive(Clone, Copy)]
struct OneOf<const HASHES: u64>;

/// The written number modulo `HASHES`.
#[derive(Default)]
struct Remainder<const HASHES: u64>(u64);

impl<const HASHES: u64> BuildHasher for OneOf<HASHES> {
    type Hasher = Remainder<HASHES>;

    fn build_hasher(&self) -> Remainder<HASHES> {
        BuildHasherDefault::<Remainder<HASHES>>::default().build_hasher()
    }
}

impl<const HASHES: u64> Hasher for Remainder<HASHES> {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = (self.0 + u64::from(*byte)) % HASHES);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number % HASHES;
    }
}

#[track_caller]
fn passes<S: BuildHasher + Clone + Send + Sync>(hasher: S, load: &Load) {
    all_pass(Tables::of(hasher), load);
}

#[track_caller]
fn all_pass<S: BuildHasher + Clone + Send + Sync, K: Named>(tables: Tables<S, K>, load: &Load) {
    // A single order of all keys has a test of its own.
    let load = Load { one_order: false, ..load.clone() };
    all_checks(&tables, &load).unwrap_or_else(|failures| panic!("{failures}"));
}

/// Two threads each insert a key and then look up the other's: at least one finds it. Failures show only in
/// optimised code, with two threads running at once.
#[test]
fn one_order_of_all_keys() {
    for seed in 1..=8 {
        let load = Load { seed, ..Load::default() };
        for check in checks::<Tables<RandomState>>().into_iter().filter(|check| check.needs_one_order) {
            let outcome = (check.run)(&Tables::of(RandomState::new()), &load);
            outcome.unwrap_or_else(|what| panic!("{}: {what}", check.name));
        }
    }
}

#[test]
fn with_the_default_hasher() {
    passes(RandomState::new(), &Load::default());
}

#[test]
fn with_keys_that_are_strings() {
    all_pass(Tables::<_, String>(RandomState::new(), PhantomData), &Load::default());
    let load = Load::default();
    let load = Load { many: load.many / 10, rounds: load.rounds / 2, ..load };
    all_pass(Tables::<_, String>(OneOf::<8>, PhantomData), &load);
}

#[test]
fn with_more_threads_than_processors() {
    let load = Load::default();
    passes(RandomState::new(), &Load { threads: load.threads * 2, many: load.many / 3, ..load });
}

#[test]
fn with_hashes_that_are_the_keys() {
    passes(OneOf::<{ u64::MAX }>, &Load::default());
}

#[test]
fn with_eight_hashes() {
    let load = Load::default();
    passes(OneOf::<8>, &Load { many: load.many / 10, rounds: load.rounds / 2, ..load });
}

#[test]
fn with_one_hash_for_all() {
    let load = Load::default();
    passes(OneOf::<1>, &Load { many: load.many / 30, rounds: load.rounds / 2, ..load });
}

/// The hashers of these tests collide as documented.
#[test]
fn the_hashers_collide() {
    let hashes = |keys: std::ops::Range<u64>| {
        keys.map(|key| OneOf::<8>.hash_one(key)).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((hashes(0..100), OneOf::<1>.hash_one(77_u64)), (8, 0));
    let mut bytes = Remainder::<8>(0);
    "abc".hash(&mut bytes);
    assert!(bytes.finish() < 8);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 150 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_acts_of_one_thread(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        let acts = Act::all_from_bytes(&bytes);
        let strings = Tables::<_, String>(OneOf::<3>, PhantomData);
        let (plain, colliding) = (Tables::of(RandomState::new()), Tables::of(OneOf::<3>));
        prop_assert_eq!(acts::follow(&plain.make::<u64>(), &acts), Ok(()));
        prop_assert_eq!(acts::follow(&plain.make::<Wide>(), &acts), Ok(()));
        prop_assert_eq!(acts::follow(&colliding.make::<u64>(), &acts), Ok(()));
        prop_assert_eq!(acts::follow(&colliding.make::<Wide>(), &acts), Ok(()));
        prop_assert_eq!(acts::follow(&strings.make::<u64>(), &acts), Ok(()));
        prop_assert_eq!(acts::follow(&strings.make::<Wide>(), &acts), Ok(()));
    }
}
