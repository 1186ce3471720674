//! `grep`: each thread maps a resident file in a process of its own, and reads it page after page. An
//! operation pins a page, and searches it for a byte that no page has.
//!
//! The subjects differ in the form of the cache of the file. The lists of regions and the regions are
//! distributed. `kernel-read` is the file in memory of the kernel. An operation reads a page of it into a
//! buffer.
//!
//! - I1. No search finds the byte.
//!
//! Source: Appavoo 2005, figure 4.17.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;
use squall::objects::pages::PagePool;
use squall::pager::cache::PAGE_BYTES;
use squall::pager::region::SharedCache;
use squall::{Handle, Owned};

use crate::case::{Case, Missing, PLAIN, Scale, Setting, Spec, Subject, Worker};
use crate::ours_pager::{Forms, Space, resident_file};

pub(in super::super) static CASE: Case = Case {
    name: "grep",
    about: "one page of a resident file, mapped by each thread and searched for a byte that it lacks",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall-cache-shared", searching::<{ Forms::code("ddds") }>),
        Spec::ours("squall-cache-distributed", searching::<{ Forms::code("dddd") }>),
        Spec::ours("squall-cache-partitioned", searching::<{ Forms::code("dddp") }>),
        Spec::rival("kernel-read", reading),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2],
};

/// The pages of the file, in a timed and in a counted run.
const PAGES: (u64, u64) = if cfg!(test) { (64, 64) } else { (4096, 256) };
/// The byte that no page has.
const ABSENT: u8 = 1;
/// The logarithm of neighbouring pages in a partition.
const SHIFT: u32 = 6;

fn pages(setting: &Setting) -> u64 {
    if setting.counted { PAGES.1 } else { PAGES.0 }
}

struct Searching {
    forms: Forms,
    pages: u64,
    found: CachePadded<AtomicU64>,
    file: SharedCache,
    /// Dropped last.
    pool: Owned<dyn PagePool>,
}

fn searching<const FORMS: u32>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    let (forms, pages) = (Forms::of(FORMS, SHIFT), pages(setting));
    let pool = forms.page_manager();
    let file = resident_file(&forms, pages, pool.handle());
    Ok(Box::new(Searching { forms, pages, found: CachePadded::default(), file, pool }))
}

impl Subject for Searching {
    fn worker(&self, _: usize) -> Worker<'_> {
        let pool: Handle<dyn PagePool> = self.pool.handle();
        let space = Space::new(&self.forms, pool);
        let start = space.map_file(&self.file);
        // Searches so many pages from one on, and returns how many have the byte.
        let search = move |first: u64, ops: u64| {
            let address = |page| start + page % self.pages * PAGE_BYTES as u64;
            (first..first + ops).filter(|page| space.contains(address(*page), ABSENT)).count() as u64
        };
        // The first programs of a processor make the replicas of the file.
        let (mut found, mut next) = (search(0, 2 * self.pages), 0);
        Box::new(move |ops| {
            found += search(next, ops);
            next += ops;
            if found > 0 {
                self.found.fetch_add(found, Ordering::Relaxed);
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        check(&self.found)
    }
}

fn check(found: &AtomicU64) -> Result<(), String> {
    match found.load(Ordering::Relaxed) {
        0 => Ok(()),
        found => Err(format!("{found} pages have a byte that was never written")),
    }
}

/// `kernel-read`.
struct Reading {
    file: File,
    pages: u64,
    found: CachePadded<AtomicU64>,
}

fn reading(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if setting.counted {
        return Err(Missing("an emulator does not count the kernel".to_owned()));
    }
    let missing = |error: std::io::Error| Missing(format!("no file in memory: {error}"));
    let file = rustix::fs::memfd_create("squall-grep", rustix::fs::MemfdFlags::CLOEXEC);
    let file = File::from(file.map_err(|error| missing(error.into()))?);
    let pages = pages(setting);
    for page in 0..pages {
        file.write_all_at(&[0; PAGE_BYTES], page * PAGE_BYTES as u64).map_err(missing)?;
    }
    Ok(Box::new(Reading { file, pages, found: CachePadded::default() }))
}

impl Subject for Reading {
    fn worker(&self, _: usize) -> Worker<'_> {
        let (mut buffer, mut page) = (vec![0; PAGE_BYTES], 0);
        Box::new(move |ops| {
            let mut found = 0;
            for _ in 0..ops {
                page = (page + 1) % self.pages;
                let read = self.file.read_exact_at(&mut buffer, page * PAGE_BYTES as u64);
                read.expect("the file is in memory");
                found += u64::from(buffer.contains(&ABSENT));
            }
            if found > 0 {
                self.found.fetch_add(found, Ordering::Relaxed);
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        check(&self.found)
    }
}
