//! Pools of ids and of pages.

use std::hint::black_box;

use crate::case::Setting;
use crate::work::taking::{IDS, Taking};

/// `locked-vec` of `id-pool`: the free ids in a stack under a lock of `parking_lot`.
pub(crate) struct LockedIds(parking_lot::Mutex<Vec<u32>>);

impl Taking for LockedIds {
    fn new(_: &Setting) -> Self {
        LockedIds(parking_lot::Mutex::new((0..IDS).collect()))
    }

    #[inline(always)]
    fn pair(&self) -> u64 {
        let id = self.0.lock().pop().expect("an id is free");
        self.0.lock().push(black_box(id));
        u64::from(id)
    }
}

/// `sharded-slab`: its keys are not dense.
pub(crate) struct Slab(sharded_slab::Slab<()>);

impl Taking for Slab {
    fn new(_: &Setting) -> Self {
        Slab(sharded_slab::Slab::new())
    }

    #[inline(always)]
    fn pair(&self) -> u64 {
        let key = self.0.insert(()).expect("a key is free");
        assert!(self.0.remove(black_box(key)), "the key is there");
        key as u64
    }
}

const PAGE: usize = 4096;
/// Pages of the stack.
const PAGES: usize = 64;

/// `locked-vec` of `page-pool`: the free pages in a stack under a lock of `parking_lot`.
pub(crate) struct LockedPages(parking_lot::Mutex<Vec<Vec<u8>>>);

impl Taking for LockedPages {
    fn new(_: &Setting) -> Self {
        LockedPages(parking_lot::Mutex::new((0..PAGES).map(|_| vec![0; PAGE]).collect()))
    }

    #[inline(always)]
    fn pair(&self) -> u64 {
        let mut page = self.0.lock().pop().expect("a page is free");
        page[0] = page[0].wrapping_add(1);
        let number = u64::from(page[0]);
        self.0.lock().push(page);
        number
    }
}

/// `glibc`: allocates and frees a page.
pub(crate) struct Allocated;

impl Taking for Allocated {
    fn new(_: &Setting) -> Self {
        Allocated
    }

    #[inline(always)]
    fn pair(&self) -> u64 {
        let mut page = Vec::<u8>::with_capacity(PAGE);
        page.push(black_box(1));
        u64::from(black_box(&page)[0])
    }
}
