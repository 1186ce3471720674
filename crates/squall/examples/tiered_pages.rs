//! Pages that move between a file and compressed memory while threads read and write them.
//!
//! A swap of the cache's source stops no thread for long: the new source reads the old one for the pages that
//! did not move yet. A checksum in each page shows each lost or torn write.
//!
//! `cargo run --release -p squall --features pager --example tiered_pages`

use squall::objects::pages::{self, Supply};
use squall::pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall::pager::source::{self, Source};
use squall::swap::swap;
use std::error::Error;
use std::fs::File;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

const PAGES: u64 = 128;
/// An eighth of the pages fits into memory, so most accesses need the source.
const RESIDENT: usize = 16;
const THREADS: u64 = 4;
const ROUND_TRIPS: usize = 2;
/// Number of writes between two steps of a move.
const WRITES: u64 = 20;
/// Pages that a step of a move copies.
const STEP: u64 = 8;

/// Counts one more write of a page.
fn count_write(page: &mut [u8]) {
    let writes = writes_of(page) + 1;
    let (text, sum) = page.split_at_mut(PAGE_BYTES - 8);
    text[..8].copy_from_slice(&writes.to_le_bytes());
    text[8..].fill(writes as u8);
    sum.copy_from_slice(&checksum(text));
}

/// Returns the number of writes of a page, after a look at its checksum.
fn writes_of(page: &[u8]) -> u64 {
    let (text, sum) = page.split_at(PAGE_BYTES - 8);
    let writes = u64::from_le_bytes(text[..8].try_into().expect("eight bytes"));
    assert!(writes == 0 || checksum(text) == *sum, "a page is torn after {writes} writes");
    writes
}

fn checksum(text: &[u8]) -> [u8; 8] {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text).to_le_bytes()
}

/// Opens a new file without a name.
fn new_file(number: usize) -> std::io::Result<File> {
    let name = format!("squall-tiered-pages-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    // The file is open, so its contents outlive its name.
    std::fs::remove_file(&path)?;
    Ok(file)
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = new_file(0)?;
    file.set_len(PAGES * PAGE_BYTES as u64)?;
    let memory = pages::distributed(Supply::system(RESIDENT));
    let cache = cache::partitioned(source::file(file, "pages")?, memory.handle()).named("pages");
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));

    let work = &|thread: u64| {
        let mut written = [0; PAGES as usize];
        let mut at = thread;
        while !stop.load(Relaxed) {
            // The step has no factor in common with the number of pages, so the thread visits all of them.
            at = (at + 2 * thread + 37) % PAGES;
            count_write(&mut cache.pin_mut(at).expect("the source works"));
            written[at as usize] += 1;
            writes.fetch_add(1, Relaxed);
            writes_of(&cache.pin(PAGES - 1 - at).expect("the source works"));
        }
        written
    };
    let (written, swaps) = thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        // Lets the workers write some pages, unless one failed.
        let await_writes = || {
            let until = writes.load(Relaxed) + WRITES;
            while writes.load(Relaxed) < until && !workers.iter().any(|worker| worker.is_finished()) {
                thread::yield_now();
            }
        };
        let move_pages = || {
            let mut swaps = 0;
            for trip in 1..=ROUND_TRIPS {
                let compressed = source::new_compressed(PAGES * PAGE_BYTES as u64);
                for tier in [compressed, source::new_file(new_file(trip)?, "pages")] {
                    await_writes();
                    swap(cache.source(), tier)?;
                    swaps += 1;
                    while cache.source().migrate(STEP)? > 0 {
                        await_writes();
                    }
                }
            }
            Ok::<_, Box<dyn Error>>(swaps)
        };
        let swaps = move_pages();
        stop.store(true, Relaxed);
        let mut written = [0; PAGES as usize];
        for worker in workers {
            let of_worker = worker.join().expect("no worker failed");
            written.iter_mut().zip(of_worker).for_each(|(sum, writes)| *sum += writes);
        }
        swaps.map(|swaps| (written, swaps))
    })?;

    cache.sync()?;
    for (page, writes) in (0..).zip(written) {
        assert_eq!(writes_of(&cache.pin(page)?), writes, "writes of page {page}");
    }
    let statistics = cache.source().statistics();
    assert!(swaps == 2 * ROUND_TRIPS && statistics.written > 0 && statistics.read > 0);
    println!(
        "{swaps} swaps of the source of {PAGES} pages, during {} writes: none was lost",
        written.iter().sum::<u64>()
    );
    Ok(())
}
