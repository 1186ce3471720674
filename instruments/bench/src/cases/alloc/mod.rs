//! `alloc`: one thread allocates and frees a block. `alloc-remote`: two threads do. `alloc-memory`: the
//! memory it takes.
//!
//! `alloc` has patterns of blocks with one size each, known at compile time, or of mixed sizes from 16 to
//! 1,024 bytes. `tight` frees each block at once. `random` keeps 1,000 and replaces one at random. `burst`
//! allocates 10,000 and then frees them in that order. A word of each block is written. An operation
//! allocates one block and frees one.
//!
//! Source: Tornado §4 and figure 8 (n threads malloc and free).

mod memory;
mod remote;

pub(super) use memory::CASE as MEMORY;
pub(super) use remote::CASE as REMOTE;

use crate::case::{Case, Make, Missing, PLAIN, Scale, Spec, Subject, Variant, Worker};
use crate::rivals::allocators::{Allocator, Any, Fixed, Glibc, Ours, Tcmalloc};
#[cfg(feature = "rivals")]
use crate::rivals::allocators::{Jemalloc, Mimalloc, Snmalloc};
use std::marker::PhantomData;

const fn variant(name: &'static str, about: &'static str, thorough: bool) -> Variant {
    Variant { name, about, thorough, ..PLAIN }
}

/// The subjects of a case about allocators.
macro_rules! allocators {
    ($make:ident) => {
        &[
            Spec::ours("squall", $make::<Ours>()),
            #[cfg(feature = "rivals")]
            Spec::rival("jemalloc", $make::<Jemalloc>()),
            #[cfg(feature = "rivals")]
            Spec::rival("mimalloc", $make::<Mimalloc>()),
            #[cfg(feature = "rivals")]
            Spec::rival("snmalloc", $make::<Snmalloc>()),
            #[cfg(not(feature = "rivals"))]
            Spec::rival("jemalloc", crate::cases::alloc::not_built),
            #[cfg(not(feature = "rivals"))]
            Spec::rival("mimalloc", crate::cases::alloc::not_built),
            #[cfg(not(feature = "rivals"))]
            Spec::rival("snmalloc", crate::cases::alloc::not_built),
            Spec::rival("tcmalloc", $make::<Tcmalloc>()),
            Spec::rival("glibc", $make::<Glibc>()),
        ]
    };
}
use allocators;

pub(super) static CASE: Case = Case {
    name: "alloc",
    about: "one block allocated and freed by one thread",
    variants: &[
        variant("tight-64", "64 bytes, freed at once", false),
        variant("tight-16", "16 bytes, freed at once", true),
        variant("tight-256", "256 bytes, freed at once", true),
        variant("random-64", "64 bytes, replacing one of 1,000 at random", false),
        variant("random-16", "16 bytes, replacing one of 1,000 at random", true),
        variant("random-256", "256 bytes, replacing one of 1,000 at random", true),
        variant("random-mixed", "16 to 1,024 bytes, replacing one of 1,000 at random", false),
        variant("burst-64", "64 bytes, 10,000 before they are freed", false),
        variant("burst-16", "16 bytes, 10,000 before they are freed", true),
        variant("burst-256", "256 bytes, 10,000 before they are freed", true),
    ],
    subjects: allocators!(make),
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: true,
    metrics: None,
    default_threads: &[],
};

const fn make<A: Allocator>() -> Make {
    |setting| {
        if let Some(why) = A::missing() {
            return Err(Missing(why));
        }
        Ok(Box::new(Local::<A> { variant: setting.variant.name, counted: setting.counted, of: PhantomData }))
    }
}

/// Every thread uses only its own blocks.
struct Local<A> {
    variant: &'static str,
    counted: bool,
    of: PhantomData<A>,
}

/// Blocks alive at a time.
const KEPT: usize = 1_000;
const BURST: usize = 10_000;
const MIXED_MAX: usize = 1_024;

impl<A: Allocator> Subject for Local<A> {
    fn worker(&self, thread: usize) -> Worker<'_> {
        A::begin_thread(self.counted, thread);
        warm_up::<A>();
        let seed = 0x9E37_79B9_7F4A_7C15 ^ thread as u64;
        match self.variant {
            "tight-16" => Box::new(tight::<A, 16>),
            "tight-256" => Box::new(tight::<A, 256>),
            "random-16" => random::<A, 16>(seed),
            "random-64" => random::<A, 64>(seed),
            "random-256" => random::<A, 256>(seed),
            "random-mixed" => mixed::<A>(seed),
            "burst-16" => burst::<A, 16>(),
            "burst-64" => burst::<A, 64>(),
            "burst-256" => burst::<A, 256>(),
            _ => Box::new(tight::<A, 64>),
        }
    }
}

/// Excludes the allocator's work for the first block of a thread and of the process.
fn warm_up<A: Allocator>() {
    drop((Fixed::<A, 16>::new(), Fixed::<A, 64>::new(), Fixed::<A, 256>::new()));
}

fn tight<A: Allocator, const SIZE: usize>(ops: u64) {
    for _ in 0..ops {
        let mut block = Fixed::<A, SIZE>::new();
        // Otherwise the compiler, which knows the C library's functions, removes both.
        block.touch();
    }
}

fn random<'a, A: Allocator, const SIZE: usize>(mut state: u64) -> Worker<'a> {
    let mut kept: Vec<Fixed<A, SIZE>> = (0..KEPT).map(|_| Fixed::new()).collect();
    Box::new(move |ops| {
        for op in 0..ops {
            let mut block = Fixed::new();
            block.write(op);
            kept[below(&mut state, KEPT)] = block;
        }
    })
}

fn mixed<'a, A: Allocator>(mut state: u64) -> Worker<'a> {
    let size = |state: &mut u64| 16 + below(state, MIXED_MAX - 15);
    let mut kept: Vec<Any<A>> = (0..KEPT).map(|_| Any::new(size(&mut state))).collect();
    Box::new(move |ops| {
        for op in 0..ops {
            let mut block = Any::new(size(&mut state));
            block.write(op);
            kept[below(&mut state, KEPT)] = block;
        }
    })
}

fn burst<'a, A: Allocator, const SIZE: usize>() -> Worker<'a> {
    let mut kept: Vec<Fixed<A, SIZE>> = Vec::with_capacity(BURST);
    Box::new(move |ops| {
        let mut left = ops as usize;
        while left > 0 {
            let now = left.min(BURST);
            for op in 0..now {
                let mut block = Fixed::new();
                block.write(op as u64);
                kept.push(block);
            }
            kept.clear();
            left -= now;
        }
    })
}

/// A number below `bound`, from a state that it changes (xorshift).
fn below(state: &mut u64, bound: usize) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    (((*state >> 32) * bound as u64) >> 32) as usize
}

/// Stands for a rival that this binary was built without.
#[cfg(not(feature = "rivals"))]
fn not_built(_: &crate::case::Setting) -> Result<Box<dyn Subject>, Missing> {
    Err(Missing("squall was built without its feature `rivals`".to_owned()))
}
