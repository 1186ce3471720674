//! The collections through std's traits: collected and extended from iterators, also through a shared
//! reference, iterated, formatted, and written and read by serde. Also the bounds under which they are `Send`
//! and `Sync`.

use squall_machine::ClusterSize;
use squall_objects::cached::{self, Form, Items};
use squall_objects::directory::{self, OwnedDirectory, Parts};
use squall_objects::map::{self, MapExt, OwnedMap};
use squall_objects::read_mostly::{self, OwnedReadMostly, ReadMostlyExt};
use std::cell::Cell;
use std::collections::BTreeMap;

/// Uses a kind of map like std's maps. Compares the entries in key order, since each kind has its own order.
macro_rules! as_a_map_is {
    ($made:ty) => {{
        let mut map: $made = [(1, 10), (2, 20)].into_iter().collect();
        map.extend([(3, 30)]);
        (&map).extend([(4, 40)]);
        let all = |map: &$made| map.into_iter().collect::<BTreeMap<u64, u64>>();
        assert_eq!(all(&map), BTreeMap::from([(1, 10), (2, 20), (3, 30), (4, 40)]));
        let mut keys: Vec<u64> = map.keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, [1, 2, 3, 4]);
        let empty = <$made>::default();
        assert_eq!((format!("{empty:?}").as_str(), all(&empty).len()), ("{}", 0));
        (&empty).extend([(7, 70)]);
        assert_eq!(format!("{empty:?}"), "{7: 70}");
        // More entries than one call returns, collected by another thread than the one that started the walk.
        let many: $made = (0..5_000).map(|key| (key, key * 2)).collect();
        let mut walk = many.iter();
        let first = walk.next().unwrap();
        let rest = std::thread::spawn(move || walk.collect::<Vec<_>>()).join().unwrap();
        let seen: BTreeMap<u64, u64> = rest.into_iter().chain([first]).collect();
        assert_eq!(seen, (0..5_000).map(|key| (key, key * 2)).collect());
        #[cfg(feature = "serde")]
        {
            let text = serde_json::to_string(&map).unwrap();
            assert_eq!(all(&serde_json::from_str::<$made>(&text).unwrap()), all(&map));
            assert!(serde_json::from_str::<$made>("[1]").is_err());
        }
    }};
}

#[test]
fn maps_cached_maps_and_directories_are_to_std_what_its_own_maps_are() {
    {
        use squall_objects::map::MapExt;
        as_a_map_is!(OwnedMap<u64, u64>);
        let map: OwnedMap<u64, u64> = [(1, 10)].into_iter().collect();
        assert_eq!(map.values().collect::<Vec<_>>(), [10]);
    }
    {
        use squall_objects::cached::CachedMapExt;
        as_a_map_is!(cached::OwnedCachedMap<u64, u64>);
        let map: cached::OwnedCachedMap<u64, u64> = [(1, 10)].into_iter().collect();
        assert_eq!(map.values().collect::<Vec<_>>(), [10]);
    }
    as_a_map_is!(OwnedDirectory<u64, u64, u32>);
    let directory: OwnedDirectory<u64, u64, u32> = [(1, 10), (1, 11)].into_iter().collect();
    assert_eq!(directory.read(&1, |entry| *entry), Some(10), "an entry that is there stays");
    assert_eq!(directory.update(&1, |_, part| *part), Some(0), "parts begin as the default");
}

#[test]
fn a_cached_list_is_to_std_what_its_own_list_is() {
    let mut list: cached::List<&str> = ["a", "b"].into_iter().collect();
    list.extend(["c"]);
    (&list).extend(["d"]);
    let items: Vec<_> = list.iter().collect();
    assert_eq!(items.iter().map(|item| **item).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    assert_eq!((&list).into_iter().count(), 4);
    assert!(list.remove_item(&items[0]) && items[0].is_gone() && !items[1].is_gone());
    assert_eq!(format!("{list:?} {:?}", cached::List::<u8>::default()), r#"["b", "c", "d"] []"#);
    #[cfg(feature = "serde")]
    {
        assert_eq!(serde_json::to_string(&list).unwrap(), r#"["b","c","d"]"#);
        let read: cached::List<String> = serde_json::from_str(r#"["x","y"]"#).unwrap();
        assert_eq!(read.len(), 2);
        assert!(serde_json::from_str::<cached::List<String>>("{}").is_err());
    }
}

fn sent<T: Send>(_: &T) {}
fn shared<T: Send + Sync>(_: &T) {}

/// The element types implement few traits, so this compiles only if the objects require no others.
#[test]
fn owners_and_references_go_to_any_thread_whatever_they_hold_that_may() {
    /// Implements neither `Clone`, `Debug`, `Default` nor `PartialEq`.
    struct Plain;
    /// A type that is `Send` but not `Sync`.
    struct One(Cell<u8>);

    let value = read_mostly::shared(Plain);
    shared(&value);
    shared(&value.handle());
    sent(&value.handle().subscribe());
    let map = map::shared::<u64, Plain>();
    shared(&map);
    shared(&map.handle());
    assert!(map.try_insert(1, Plain).is_ok() && map.delete(&1));
    let copied = map::adaptive::<u64, String>();
    shared(&copied);
    shared(&copied.iter());
    shared(&copied.handle().entry(1));
    let list = cached::list::<Plain>(Form::shared());
    shared(&list);
    shared(&list.handle());
    shared(&list.insert(Plain));
    sent(&list.iter());
    let kept = cached::map::<u64, String>(Form::shared());
    shared(&kept);
    shared(&kept.handle());
    sent(&cached::CachedMapExt::iter(kept.handle()));
    // A part need not be `Sync`, since each user locks it.
    let directory = directory::distributed::<u64, Plain, One>(ClusterSize::Core, |_| One(Cell::new(0)));
    shared(&directory);
    shared(&directory.handle());
    let next = |part: &mut One| part.0.replace(part.0.get() + 1);
    assert_eq!(directory.get_or_make(&1, || Plain, |_, part| next(part)), 0);
    sent(&directory.keys());
    let from: OwnedReadMostly<u8> = 5.into();
    assert_eq!((from.get(), OwnedReadMostly::<u8>::default().get()), (5, 0));
}
