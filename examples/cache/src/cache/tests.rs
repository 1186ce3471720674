//! Tests of the commands.

use super::*;
use crate::protocol::Verb;
use crate::squall_store::SquallStore;

fn cache(memory_bytes_max: u64) -> Arc<Cache<SquallStore>> {
    let config = Config { memory_bytes_max, ..Config::default() };
    Cache::new(SquallStore::new(), config, Clock::by_hand(1_000_000).0)
}

/// The terms of a plain command.
fn terms(verb: Verb, exptime: i64) -> Terms {
    Terms::from(&crate::protocol::Storing::Plain { verb, key: b"", flags: 0, exptime, noreply: false })
}

fn store(
    cache: &Cache<SquallStore>,
    verb: Verb,
    key: &[u8],
    data: &[u8],
    cas: &mut CasNumbers,
) -> StoreResult {
    cache.store_value(key, &terms(verb, 0), data, cas).result
}

#[test]
fn i1_flushed_items_are_swept() {
    let (cache, mut cas) = (cache(1 << 20), CasNumbers::default());
    for i in 0..2000u32 {
        let key = format!("key-{}", i % 97).into_bytes();
        let data = vec![b'1'; (i % 13) as usize];
        match i % 7 {
            0 => _ = cache.delete(&key),
            1 => _ = cache.touch(&key, i64::from(i % 3) - 1),
            2 => _ = cache.count(&key, true, 99, &mut cas),
            3 => _ = store(&cache, Verb::Append, &key, &data, &mut cas),
            4 => _ = cache.store_value(&key, &terms(Verb::Add, -1), &data, &mut cas),
            5 => cache.refuse_value(Verb::Set, &key, Fact::StoreTooLarge),
            _ => _ = store(&cache, Verb::Set, &key, &data, &mut cas),
        }
    }
    cache.flush(0);
    assert!(!cache.store().is_empty());
    cache.sweep_all();
    assert_eq!((cache.store().len(), cache.used_bytes()), (0, 0));
}

#[test]
fn unused_entries_are_evicted_and_the_limit_holds() {
    let limit = 100_000;
    let (cache, mut cas) = (cache(limit), CasNumbers::default());
    for i in 0..5000 {
        let key = format!("key-{i}").into_bytes();
        assert_eq!(store(&cache, Verb::Set, &key, &[0; 100], &mut cas), StoreResult::Stored);
        assert!(cache.used_bytes() <= limit);
    }
    assert_eq!(cache.store().len() as u64 + cache.evictions(), 5000);
    // A value larger than the cache is rejected, and evicts no entry except the one it would replace.
    let there = cache.store().len();
    let large = vec![0; limit as usize];
    assert_eq!(store(&cache, Verb::Add, b"large", &large, &mut cas), StoreResult::NoMemory);
    assert_eq!(cache.store().len(), there);
}

#[test]
fn i2_no_number_for_cas_is_given_twice() {
    let (cache, mut one, mut other) = (cache(1), CasNumbers::default(), CasNumbers::default());
    let mut all: Vec<u64> = (0..1000).flat_map(|_| [cache.cas(&mut one), cache.cas(&mut other)]).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 2000);
}

#[test]
fn numbers_of_clients_are_parsed() {
    let numbers = [&b"5"[..], b" 12 ", b"18446744073709551615", b"+3"].map(number);
    assert_eq!(numbers, [Some(5), Some(12), Some(u64::MAX), Some(3)]);
    assert!(
        [&b""[..], b" ", b"-1", b"1a", b"18446744073709551616", b"1 2"].iter().all(|d| number(d).is_none())
    );
}
