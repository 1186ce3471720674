//! `swap-source`: the source of a file cache is swapped while threads pin pages, write them and fault.
//!
//! The cache has memory for a quarter of the file. So most pins are faults, and evictions write pages to the
//! source. The first thread also swaps the source after some pins. Rounds of two kinds follow each other:
//!
//! - `null_*`: the source is a file, and another file takes its place: the same form again.
//! - `other_*`: compressed memory takes the place of the file, or a file that of compressed memory.
//!
//! After each swap the pages are migrated, outside of its duration. `*_pause_*` are the times for which
//! calls of the source waited, from the reports of the swaps. `other_transfer_p99_us` is the time of the
//! export and import. `pause_p99_ratio` is the p99 of `other` over the one of `null`, and `pause_p50_ratio`
//! that of the medians. In `pause_p99_ratio_with_export` the transfer is added to the one of `null`. The
//! quantiles need an idle machine: a preempted thread prolongs the pauses of the others.
//!
//! The case has no rival: the ratio compares swaps of one object.
//!
//! - I1. Each page has its number, and the count of its writes is kept through all swaps. A lost write ends
//!   the run with an error.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use squall::objects::pages::{self, PagePool, Supply};
use squall::pager::PageFault;
use squall::pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall::pager::region::SharedCache;
use squall::pager::source::{self, Source};
use squall::swap::{Replacement, Swap, SwapFailure};
use squall::{Handle, Owned};

use crate::case::{Case, PLAIN, Scale, Setting};
use crate::cases::swap::crew::crew;
use crate::cases::swap::figures::{Figures, Swaps};
use crate::gate::Gate;
use crate::harness::quantile;
use crate::work::replace::Replaced;

pub(in super::super) static CASE: Case = Case {
    name: "swap-source",
    about: "the pauses of callers while the source of a cache in use is swapped for another one",
    variants: &[PLAIN],
    subjects: &[],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[2, 4],
};

/// The pages of the file, and those in memory.
const PAGES: u64 = 128;
const RESIDENT: usize = PAGES as usize / 4;
/// Pins of the swapping thread between two swaps, and of the others between two looks at the clock.
const BETWEEN: u64 = 64;
/// One in this many pins is for writing.
const WRITES: u64 = 4;
/// Bytes of compressed memory: no page is refused.
const LIMIT: u64 = PAGES * PAGE_BYTES as u64;

/// A form of the source.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    File,
    Compressed,
}

fn memory_file() -> Result<File, String> {
    let file = rustix::fs::memfd_create("squall-source", rustix::fs::MemfdFlags::CLOEXEC);
    Ok(File::from(file.map_err(|error| format!("no file in memory: {error}"))?))
}

/// A cache of pages that begin with their numbers and the counts of their writes.
struct World {
    cache: SharedCache,
    source: Handle<dyn Source>,
    /// Dropped last.
    _pool: Owned<dyn PagePool>,
}

impl World {
    fn new() -> Result<World, String> {
        let file = memory_file()?;
        for page in 0..PAGES {
            let mut bytes = [0; PAGE_BYTES];
            bytes[..8].copy_from_slice(&page.to_ne_bytes());
            file.write_all_at(&bytes, page * PAGE_BYTES as u64).map_err(|error| error.to_string())?;
        }
        let source = source::file(file, "first").map_err(|error| error.to_string())?;
        let pool = pages::distributed(Supply::system(RESIDENT));
        pool.set_attribute(pages::Attribute::Chunk, 1);
        let cache = Arc::new(cache::partitioned(source, pool.handle()));
        Ok(World { source: cache.source(), cache, _pool: pool })
    }

    /// Pins so many pages, and writes some of them. Returns the number of writes.
    fn pins(&self, count: u64, draws: &mut u64) -> Result<u64, String> {
        let told = |error: PageFault| error.to_string();
        let mut writes = 0;
        for pin in 0..count {
            // Xorshift64.
            *draws ^= *draws << 13;
            *draws ^= *draws >> 7;
            *draws ^= *draws << 17;
            let page = *draws % PAGES;
            let found = if pin % WRITES == 0 {
                let mut frame = self.cache.pin_mut(page).map_err(told)?;
                let writes_here = word(&frame, 1) + 1;
                frame[8..16].copy_from_slice(&writes_here.to_ne_bytes());
                writes += 1;
                word(&frame, 0)
            } else {
                word(&self.cache.pin(page).map_err(told)?, 0)
            };
            if found != page {
                return Err(format!("page {page} had the bytes of page {found}"));
            }
        }
        Ok(writes)
    }

    /// Swaps the source for one of this form, and migrates its pages.
    fn swap(&self, form: Form, swaps: &mut Swaps) -> Result<bool, String> {
        let replacement: Replacement<dyn Source> = match form {
            Form::File => source::new_file(memory_file()?, "next"),
            Form::Compressed => source::new_compressed(LIMIT),
        };
        let began = Instant::now();
        let result = Swap::new(self.source).run(replacement);
        let took = began.elapsed();
        let replaced = match result {
            Ok(report) => Replaced::swapped(report),
            Err(error) => match error.failure() {
                SwapFailure::TimedOut(_) => Replaced::TIMED_OUT,
                _ => return Err(error.to_string()),
            },
        };
        swaps.note(took, &replaced);
        while self.source.migrate(64).map_err(|error| error.to_string())? > 0 {}
        Ok(replaced.done)
    }

    /// Returns the sum of the counts of writes.
    fn written(&self) -> Result<u64, String> {
        let counts = (0..PAGES).map(|page| self.cache.pin(page).map(|frame| word(&frame, 1)));
        counts.sum::<Result<u64, PageFault>>().map_err(|error| error.to_string())
    }
}

fn word(bytes: &[u8], index: usize) -> u64 {
    bytes[8 * index..][..8].try_into().map_or(u64::MAX, u64::from_ne_bytes)
}

/// All threads pin for a while, and the first also swaps. The source is a file before and after. Returns the
/// number of writes.
fn round(
    world: &World,
    threads: usize,
    length: Duration,
    next: fn(Form) -> Form,
    seen: &mut Swaps,
) -> Result<u64, String> {
    let stop = AtomicBool::new(false);
    let body = |index: usize, gate: &Gate| {
        let (mut draws, mut swaps, mut writes) = (index as u64 + 1, Swaps::default(), 0);
        let mut work = || {
            let warm = world.pins(BETWEEN, &mut draws);
            gate.wait();
            writes += warm?;
            let (began, mut form) = (Instant::now(), Form::File);
            // Relaxed: the flag publishes no other data.
            while index == 0 && (began.elapsed() < length || form != Form::File)
                || index > 0 && !stop.load(Ordering::Relaxed)
            {
                writes += world.pins(BETWEEN, &mut draws)?;
                if index == 0 && world.swap(next(form), &mut swaps)? {
                    form = next(form);
                }
            }
            Ok::<_, String>(())
        };
        let result = work();
        if index == 0 {
            stop.store(true, Ordering::Relaxed);
        }
        result.map(|()| (swaps, writes))
    };
    let mut all = 0;
    for done in crew(threads, body, || ()).0 {
        let (swaps, writes) = done?;
        seen.add(swaps);
        all += writes;
    }
    Ok(all)
}

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let (rounds, length) = if quick { (5, 40) } else { (15, 250) };
    let length = Duration::from_millis(length);
    let world = World::new()?;
    let (mut null, mut other, mut writes) = (Swaps::default(), Swaps::default(), 0);
    for _ in 0..rounds {
        writes += round(&world, setting.threads, length, |_| Form::File, &mut null)?;
        let alternate = |form| if form == Form::File { Form::Compressed } else { Form::File };
        writes += round(&world, setting.threads, length, alternate, &mut other)?;
    }
    match world.written()? {
        written if written == writes => {}
        written => return Err(format!("of {writes} writes {written} are in the pages")),
    }
    let mut figures = Figures::default();
    for (name, swaps) in [("null", &null), ("other", &other)] {
        figures.one(&format!("{name}_swaps"), swaps.us.len() as f64);
        figures.one(&format!("{name}_failed"), swaps.failed as f64);
        figures.times(name, &swaps.us);
        figures.one(&format!("{name}_pauses"), swaps.pauses_us.len() as f64);
        figures.times(&format!("{name}_pause"), &swaps.pauses_us);
        figures.times(&format!("{name}_transfer"), transfers(swaps));
        figures.histogram(&format!("{name}_pause"), &swaps.pauses_us);
    }
    if !null.pauses_us.is_empty() && !other.pauses_us.is_empty() {
        for (name, q) in [("p50", 0.5), ("p99", 0.99)] {
            let [null_us, other_us] = [&null, &other].map(|swaps| quantile(&swaps.pauses_us, q));
            figures.one(&format!("pause_{name}_ratio"), other_us / null_us);
        }
        let [null_us, other_us] = [&null, &other].map(|swaps| quantile(&swaps.pauses_us, 0.99));
        let with_export_us = null_us + quantile(transfers(&other), 0.99);
        figures.one("pause_p99_ratio_with_export", other_us / with_export_us);
    }
    Ok(figures.all)
}

/// The durations of the phase in which the state moves.
fn transfers(swaps: &Swaps) -> &[f64] {
    swaps.phases().find(|(phase, _)| *phase == "transfer").map_or(&[], |(_, us)| us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_write_is_lost_while_the_source_is_swapped() {
        let world = World::new().unwrap();
        let (mut null, mut other) = (Swaps::default(), Swaps::default());
        // Of no length, so it swaps nothing.
        let mut writes = round(&world, 2, Duration::ZERO, |_| Form::File, &mut null).unwrap();
        let mut draws = 7;
        for form in [Form::File, Form::Compressed, Form::File] {
            assert!(world.swap(form, &mut other).unwrap());
            writes += world.pins(BETWEEN, &mut draws).unwrap();
        }
        assert_eq!((other.us.len(), world.written()), (3, Ok(writes)));
    }
}
