//! `fault`: the first touch of a page at an address, which is a fault. Each thread has memory of its own, and
//! touches one page after the other.
//!
//! | subject | a fault is resolved by |
//! |---|---|
//! | `kernel-anon` | the kernel, with a page of zeros |
//! | `mmap` | the kernel, with a page of a file in memory |
//! | `uffd-in-thread` | a handler of SIGBUS on the thread, with one UFFDIO_COPY: the floor of `squall` |
//! | `uffd-handler` | one thread for all, which reads faults from the descriptor and copies pages |
//! | `squall` | a region that is mapped by `hat::map`, on the thread |
//!
//! In the variant `read` a touch is a load. The kernel maps its page of zeros then, and 16 neighbouring pages
//! of a file. In the variant `write` a touch is an atomic addition. In the variant `read-16` a fault of
//! `uffd-in-thread` and of `squall` resolves 16 pages, and a touch is a load; the figure is per page.
//!
//! Memory is made and unmapped outside of the figures.
//!
//! - I1. Each touch finds the word of its page.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

use crate::case::{Case, Make, Missing, Scale, Setting, Spec, Subject, Worker, variant};
use crate::rivals::faults::{ByThread, InThread, Kernel, Mapped, Paged, Region, load, store};
use crate::uncounted::uncounted;

pub(in super::super) static CASE: Case = Case {
    name: "fault",
    about: "the first touch of a page at an address, in memory of the thread's own",
    variants: &[
        variant("read", "a touch is a load"),
        variant("write", "a touch is a load and a store"),
        variant("read-16", "a touch is a load, and a fault resolves 16 pages"),
    ],
    subjects: &[
        Spec::ours("squall", touching::<Region, true>()),
        Spec::rival("kernel-anon", touching::<Kernel, false>()),
        Spec::rival("mmap", touching::<Mapped, false>()),
        Spec::rival("uffd-in-thread", touching::<InThread, true>()),
        Spec::rival("uffd-handler", touching::<ByThread, false>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: None,
    default_threads: &[1, 2],
};

/// The pages of a memory.
const PAGES: usize = if cfg!(test) { 64 } else { 4096 };

struct Touching<P> {
    batch: usize,
    is_write: bool,
    wrong: CachePadded<AtomicU64>,
    memory: PhantomData<fn() -> P>,
}

const fn touching<P: Paged + 'static, const BATCHES: bool>() -> Make {
    fn make<P: Paged + 'static, const BATCHES: bool>(setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
        if setting.counted {
            return Err(Missing("an emulator does not count the kernel".to_owned()));
        }
        let batch = setting.variant.number() as usize;
        if batch > 1 && !BATCHES {
            return Err(Missing::no_part());
        }
        P::new(batch, batch)?;
        let is_write = setting.variant.name == "write";
        Ok(Box::new(Touching::<P> { batch, is_write, wrong: CachePadded::default(), memory: PhantomData }))
    }
    make::<P, BATCHES>
}

impl<P: Paged> Touching<P> {
    fn memory(&self) -> P {
        P::new(PAGES, self.batch).expect("the system gave such memory before")
    }

    /// Touches some pages. Returns the number of wrong words.
    fn touch(&self, memory: &P, first: usize, count: usize) -> u64 {
        let pages = first..first + count;
        let wrong = if self.is_write {
            pages.filter(|page| store(memory, *page) != memory.expected(*page)).count()
        } else {
            pages.filter(|page| load(memory, *page) != memory.expected(*page)).count()
        };
        wrong as u64
    }
}

/// The memory of a worker.
struct Held<P: Paged>(Option<P>);

impl<P: Paged> Held<P> {
    fn end(&mut self) {
        if let Some(memory) = self.0.take() {
            memory.end();
        }
    }
}

impl<P: Paged> Drop for Held<P> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<P: Paged> Subject for Touching<P> {
    fn worker(&self, _: usize) -> Worker<'_> {
        let (mut held, mut next) = (Held(Some(self.memory())), 0);
        Box::new(move |ops| {
            let (mut left, mut wrong) = (ops as usize, 0);
            while left > 0 {
                if next == PAGES {
                    uncounted(|| {
                        // The old memory ends before the new one begins.
                        held.end();
                        held.0 = Some(self.memory());
                    });
                    next = 0;
                }
                let count = left.min(PAGES - next);
                wrong += held.0.as_ref().map_or(0, |memory| self.touch(memory, next, count));
                (left, next) = (left - count, next + count);
            }
            if wrong > 0 {
                self.wrong.fetch_add(wrong, Ordering::Relaxed);
            }
        })
    }

    fn check(&self, _: u64) -> Result<(), String> {
        match self.wrong.load(Ordering::Relaxed) {
            0 => Ok(()),
            wrong => Err(format!("{wrong} pages had other bytes than they should have")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads at a time touch more pages than a memory has.
    #[test]
    fn each_subject_resolves_its_faults_beside_the_others() {
        for variant in CASE.variants {
            let setting = Setting { threads: 2, variant, counted: false };
            let subjects = CASE.subjects.iter().filter_map(|spec| match (spec.make)(&setting) {
                Ok(subject) => Some((spec.name, subject)),
                Err(missing) => {
                    assert!(missing.is_no_part() || spec.name != "mmap" && spec.name != "kernel-anon");
                    println!("SKIP {}: {}", spec.name, missing.0);
                    None
                }
            });
            let subjects: Vec<_> = subjects.collect();
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    for (_, subject) in &subjects {
                        scope.spawn(move || subject.worker(0)(PAGES as u64 * 3 + 5));
                    }
                }
            });
            for (name, subject) in &subjects {
                assert_eq!(subject.check(0), Ok(()), "{name} {}", variant.name);
            }
        }
    }
}
