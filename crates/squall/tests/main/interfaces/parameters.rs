//! Type and constant parameters.

use super::*;

/// A map of at most `N` entries.
#[interface]
pub trait Map<K: Hash + Eq, V = u64, const N: usize = 4>: Send + Sync
where
    V: Clone,
{
    /// Stores an entry if there is room.
    fn insert(&self, key: K, value: V) -> bool;
    /// Returns a copy of the value.
    fn get(&self, key: &K) -> Option<V>;
    /// Shows each entry.
    fn each(&self, show: &mut dyn FnMut(&K, &V))
    where
        K: Ord;
}

struct Locked<K, V>(Mutex<HashMap<K, V>>);

impl<K: Hash + Eq + Send, V: Clone + Send, const N: usize> Map<K, V, N> for Locked<K, V> {
    fn insert(&self, key: K, value: V) -> bool {
        let mut map = self.0.lock().unwrap();
        let room = map.len() < N || map.contains_key(&key);
        room.then(|| map.insert(key, value)).is_some()
    }
    fn get(&self, key: &K) -> Option<V> {
        self.0.lock().unwrap().get(key).cloned()
    }
    fn each(&self, show: &mut dyn FnMut(&K, &V))
    where
        K: Ord,
    {
        let map = self.0.lock().unwrap();
        let mut keys: Vec<_> = map.keys().collect();
        keys.sort();
        keys.into_iter().for_each(|key| show(key, &map[key]));
    }
}

fn empty<K, V>() -> Locked<K, V> {
    Locked(Mutex::default())
}

#[test]
fn types_and_constants() {
    let map: Owned<dyn Map<String, Vec<u8>, 2>> = shared(empty());
    assert!(map.insert("b".into(), vec![2]));
    assert!(map.insert("a".into(), vec![1]));
    assert!(!map.insert("c".into(), vec![3]));
    assert_eq!(map.get(&"a".into()), Some(vec![1]));
    let mut seen = Vec::new();
    map.each(&mut |key, value| seen.push((key.clone(), value.clone())));
    assert_eq!(seen, [("a".into(), vec![1]), ("b".into(), vec![2])]);
    assert_eq!(map.try_get(&"c".into()).unwrap(), None);
}

#[test]
fn defaults() {
    let map: Owned<dyn Map<u8>> = shared(empty::<u8, u64>());
    assert!(map.insert(1, 2_u64));
    assert_eq!(map.handle().get(&1), Some(2));
}

/// An unsized parameter, with a name that the macro could use itself.
#[interface]
pub trait Text<__I: ?Sized + AsRef<str>>: Send + Sync {
    /// Returns the length.
    fn length(&self, of: &__I) -> usize;
}

impl<T: ?Sized + AsRef<str>> Text<T> for Count {
    fn length(&self, of: &T) -> usize {
        of.as_ref().len()
    }
}

#[test]
fn unsized_types() {
    let text: Owned<dyn Text<str>> = shared(Count::default());
    assert_eq!(text.length("four"), 4);
}
