//! A key-value store that is larger than its memory: the pages of a file, in a cache with a limit.
//!
//! A page is a bucket of records, in the order in which they came. The hash of a key chooses the page. A get
//! pins one page, and writes no memory that other threads write.
//!
//! `cargo run --release -p squall --features pager --example value_store`

use squall::ClusterSize;
use squall::objects::pages::{self, Supply};
use squall::pager::PageFault;
use squall::pager::cache::{self, FileCache, FileCacheExt, Form, PAGE_BYTES};
use squall::pager::source;
use squall::prelude::*;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::thread;

/// A record: the key, the length of the value, and the value.
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 55;
const RECORD_BYTES: usize = KEY_BYTES + 1 + VALUE_BYTES;

struct ValueStore {
    cache: Owned<dyn FileCache>,
    pages: u64,
    hasher: BuildHasherDefault<DefaultHasher>,
}

impl ValueStore {
    fn page(&self, key: u64) -> u64 {
        self.hasher.hash_one(key) % self.pages
    }

    /// Calls `f` with the value of a key.
    fn get<R>(&self, key: u64, f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>, PageFault> {
        let frame = self.cache.pin(self.page(key))?;
        let record = frame.chunks_exact(RECORD_BYTES).find(|record| is_of(record, key));
        Ok(record.map(|record| f(&record[KEY_BYTES + 1..][..record[KEY_BYTES] as usize - 1])))
    }

    /// Sets the value of a key. Returns false if its page is full, or the value is too long.
    fn set(&self, key: u64, value: &[u8]) -> Result<bool, PageFault> {
        let mut frame = self.cache.pin_mut(self.page(key))?;
        let mut records = frame.chunks_exact_mut(RECORD_BYTES);
        let record = records.find(|record| is_of(record, key) || record[KEY_BYTES] == 0);
        let Some(record) = record.filter(|_| value.len() <= VALUE_BYTES) else { return Ok(false) };
        record[..KEY_BYTES].copy_from_slice(&key.to_le_bytes());
        // The length plus one: an unused record has a zero there.
        record[KEY_BYTES] = value.len() as u8 + 1;
        record[KEY_BYTES + 1..][..value.len()].copy_from_slice(value);
        Ok(true)
    }
}

fn is_of(record: &[u8], key: u64) -> bool {
    record[KEY_BYTES] != 0 && record[..KEY_BYTES] == key.to_le_bytes()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const KEYS: u64 = 20_000;
    const PAGES: u64 = 1024;
    let path = std::env::temp_dir().join(format!("squall-value-store-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    file.set_len(PAGES * PAGE_BYTES as u64)?;
    // The file is open, so its contents outlive its name.
    std::fs::remove_file(&path)?;

    // An eighth of the file fits into memory.
    let memory = pages::distributed(Supply::system(PAGES as usize / 8)).named("memory");
    let source = source::file(file, "values")?;
    let cache =
        cache::with_form(Form::Distributed(ClusterSize::Cpu), source, memory.handle()).named("values");
    let store = ValueStore { cache, pages: PAGES, hasher: Default::default() };

    thread::scope(|scope| {
        for worker in 0..4 {
            let store = &store;
            scope.spawn(move || {
                for key in (worker..KEYS).step_by(4) {
                    assert!(store.set(key, format!("value {key}").as_bytes()).expect("the disk works"));
                }
            });
        }
    });
    for key in 0..KEYS {
        let is_right = store.get(key, |value| value == format!("value {key}").as_bytes())?;
        assert_eq!(is_right, Some(true), "key {key}");
    }
    assert_eq!(store.get(KEYS, |_| ())?, None);
    let written = store.cache.sync()?;
    let sensors = store.cache.sensors();
    assert!(sensors.resident <= PAGES as usize / 8 && sensors.dirty == 0 && sensors.evictions > 0);
    println!("{KEYS} values in {PAGES} pages, {} of them in memory", sensors.resident);
    println!(
        "{} fills, {} evictions, {} writes ({written} at the end)",
        sensors.fills, sensors.evictions, sensors.written
    );
    Ok(())
}
