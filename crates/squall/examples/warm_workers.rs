//! A fleet of workers that start warm: each has a copy of memory that the parent filled once.
//!
//! The copies share all pages until a worker writes one. So a fleet takes little more memory than one worker.
//!
//! `cargo run --release -p squall --features pager --example warm_workers`

use squall::objects::cached;
use squall::objects::pages::{self, PagePool, Supply};
use squall::pager::PageFault;
use squall::pager::cache::{self, FileCache, Form, PAGE_BYTES};
use squall::pager::process::Process;
use squall::pager::region::{self, Mapping, RegionExt};
use squall::pager::source;
use std::sync::{Arc, Barrier};
use std::thread;

const PAGES: u64 = 256;
const BYTES: u64 = PAGES * PAGE_BYTES as u64;
const WORKERS: u64 = 8;
/// Number of pages that each worker writes.
const WRITTEN: u64 = 4;

/// The bytes of a page after the parent warmed it up.
fn warm(page: u64) -> u8 {
    page as u8 | 1
}

/// The worker that writes a page.
fn writer(page: u64) -> u64 {
    page / WRITTEN
}

fn is_filled(frame: &[u8], byte: u8) -> bool {
    frame.iter().all(|there| *there == byte)
}

fn main() -> Result<(), PageFault> {
    let memory = pages::distributed(Supply::system(2 * PAGES as usize));
    let process = Process::new(cached::Form::shared(), memory.handle(), 2 * PAGES as usize);

    // The parent warms up.
    let warmed = cache::partitioned(source::zero_fill(BYTES), process.page_manager());
    let warmed = Arc::new(warmed.named("warmed"));
    let parent = process.map(region::Form::Distributed, Mapping::new(warmed.clone()))?;
    for page in 0..PAGES {
        process.pin_mut(parent.start() + page * PAGE_BYTES as u64)?.fill(warm(page));
    }

    // A copy for each worker. The first one freezes the parent's memory.
    let form = Form::Partitioned { partitions: 64, shift: 6 };
    let copies: Vec<_> = (0..WORKERS)
        .map(|_| {
            let written = source::zero_fill(BYTES);
            Arc::new(cache::copy_of(warmed.clone(), form, written, process.page_manager()))
        })
        .collect();

    let all_have_written = Barrier::new(WORKERS as usize);
    thread::scope(|scope| {
        for (worker, copy) in (0..).zip(&copies) {
            let (process, all_have_written) = (&process, &all_have_written);
            scope.spawn(move || {
                let region = process.map(region::Form::Distributed, Mapping::new(copy.clone()));
                let region = region.expect("the address space has room");
                let mark = 2 * worker as u8;
                for page in (0..PAGES).filter(|page| writer(*page) == worker) {
                    region.handle().pin_mut(page * PAGE_BYTES as u64).expect("memory suffices").fill(mark);
                }
                all_have_written.wait();
                for page in 0..PAGES {
                    let frame = region.handle().pin(page * PAGE_BYTES as u64).expect("memory suffices");
                    let expected = if writer(page) == worker { mark } else { warm(page) };
                    assert!(is_filled(&frame, expected), "page {page} of worker {worker}");
                }
            });
        }
    });

    for page in 0..PAGES {
        let frame = process.pin(parent.start() + page * PAGE_BYTES as u64)?;
        assert!(is_filled(&frame, warm(page)), "page {page} of the parent");
    }
    let refused = process.pin_mut(parent.start());
    assert!(matches!(refused, Err(PageFault::Frozen { .. })), "the parent's memory does not change");

    // Only the pages that were written were copied.
    let copied: u64 = copies.iter().map(|copy| copy.sensors().dirty as u64).sum();
    assert_eq!(copied, WORKERS * WRITTEN);
    let used = process.page_manager().used() - process.page_manager().free();
    assert_eq!(used as u64, PAGES + copied);
    println!(
        "{WORKERS} workers on copies of {BYTES} bytes: {} bytes were copied, instead of {}",
        copied * PAGE_BYTES as u64,
        WORKERS * BYTES
    );
    Ok(())
}
