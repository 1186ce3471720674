//! Private mappings.

use crate::memory::State;
use squall_objects::pages::{self, PagePool, Supply};
use squall_pager::cache::{self, FileCache, FileCacheExt, PAGE_BYTES};
use squall_pager::hat::{self, MapError, PrivateMapped};
use squall_pager::region::{Mapping, SharedCache};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

/// Returns a file that no program can map, with a number in the first word of each page.
pub(crate) fn numbered(pages: usize) -> Arc<State> {
    let state = State::with_pages(pages);
    for (number, page) in state.bytes.lock().unwrap().chunks_mut(PAGE_BYTES).enumerate() {
        page[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    }
    state
}

fn map(mapping: Mapping) -> Option<PrivateMapped> {
    // SAFETY: these tests hold no lock of the pager while they touch the memory.
    match unsafe { hat::map_private(mapping) } {
        Ok(mapped) => Some(mapped),
        Err(error @ MapError::Refused(_)) => {
            println!("SKIP: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn word(mapped: &PrivateMapped, page: usize) -> &AtomicU64 {
    assert!(page * PAGE_BYTES < mapped.len());
    // SAFETY: an aligned word of the mapping, which other threads access as a word too.
    unsafe { AtomicU64::from_ptr(mapped.as_ptr().as_ptr().add(page * PAGE_BYTES).cast()) }
}

pub(crate) fn mappable(
    form: cache::Form,
    state: &Arc<State>,
    resident: usize,
) -> (SharedCache, impl Sized + use<>) {
    let memory = pages::distributed(Supply::system(resident));
    memory.set_attribute(pages::Attribute::Chunk, 1);
    (Arc::new(cache::mappable(form, state.source(), memory.handle()).unwrap()), memory)
}

#[test]
fn stores_stay_in_their_mapping_and_outlast_evictions() {
    const PAGES: usize = 64;
    for form in crate::FORMS {
        let state = numbered(PAGES);
        let (cache, _memory) = mappable(form, &state, 8);
        cache.freeze();
        let Some(first) = map(Mapping::new(cache.clone())) else { return };
        let second = map(Mapping::new(cache.clone()).part(8, 40 * PAGE_BYTES as u64)).unwrap();
        for page in (0..PAGES).step_by(3) {
            assert_eq!(word(&first, page).fetch_add(100, Relaxed), page as u64 + 1);
        }
        // The file is larger than its memory, so each page is evicted many times.
        for _ in 0..3 {
            for page in 0..PAGES {
                let changed = if page % 3 == 0 { 100 } else { 0 };
                assert_eq!(word(&first, page).load(Relaxed), page as u64 + 1 + changed, "{page} {form:?}");
            }
            for page in 0..40 {
                assert_eq!(word(&second, page).load(Relaxed), page as u64 + 9);
            }
        }
        assert!(cache.sensors().evictions > 0);
        assert_eq!((cache.sensors().dirty, cache.sensors().private_mappings), (0, 2));
        drop(second);
        assert_eq!(cache.sensors().private_mappings, 1);
        assert_eq!(cache.pin(3).unwrap()[..8], 4_u64.to_le_bytes());
    }
}

#[test]
fn the_pages_of_other_files_and_of_copies_are_mapped_too() {
    let (state, memory) = (numbered(8), pages::distributed(Supply::system(64)));
    let plain = Arc::new(cache::distributed(state.source(), memory.handle()));
    plain.freeze();
    let Some(mapped) = map(Mapping::new(plain.clone())) else { return };
    assert_eq!(word(&mapped, 5).swap(50, Relaxed), 6);
    assert_eq!((word(&mapped, 5).load(Relaxed), plain.pin(5).unwrap()[0]), (50, 6));

    // A copy has pages of its frozen parent, which programs may map, and its own.
    let (warm, _memory) = mappable(cache::Form::Shared, &state, 8);
    let copy = cache::copy_of(warm, cache::Form::Shared, state.source(), memory.handle());
    copy.pin_mut(2).unwrap()[..8].copy_from_slice(&77_u64.to_le_bytes());
    copy.freeze();
    let mapped = map(Mapping::new(Arc::new(copy))).unwrap();
    assert_eq!([1, 2, 3].map(|page| word(&mapped, page).load(Relaxed)), [2, 77, 4]);
}

#[test]
fn many_threads_touch_clones_while_pages_are_evicted() {
    const PAGES: usize = 32;
    let state = numbered(PAGES);
    let (cache, _memory) = mappable(crate::FORMS[1], &state, 8);
    cache.freeze();
    let clones: Option<Vec<_>> = (0..4).map(|_| map(Mapping::new(cache.clone()))).collect();
    let Some(clones) = clones else { return };
    thread::scope(|scope| {
        for worker in 0..8 {
            let clone = &clones[worker / 2];
            scope.spawn(move || {
                for round in 0..200 {
                    word(clone, (worker * 5 + round * 7) % PAGES).fetch_add(1 << 32, Relaxed);
                }
            });
        }
    });
    for clone in &clones {
        let words = (0..PAGES).map(|page| word(clone, page).load(Relaxed));
        let (low, high) =
            words.fold((0, 0), |(low, high), word| (low + (word & 0xFFFF_FFFF), high + (word >> 32)));
        assert_eq!((low, high), ((1..=PAGES as u64).sum(), 400));
    }
    assert_eq!(cache.sensors().dirty, 0);
}

#[test]
fn a_mapping_names_the_reason_for_which_it_is_refused() {
    let state = numbered(4);
    let (cache, _memory) = mappable(cache::Form::Shared, &state, 8);
    // SAFETY: no memory is touched.
    let refused = |mapping| unsafe { hat::map_private(mapping) }.unwrap_err().to_string();
    let open = refused(Mapping::new(cache.clone()));
    if open.contains("userfaultfd") {
        return println!("SKIP: {open}");
    }
    assert!(open.contains("freeze it first"), "{open}");
    cache.freeze();
    let range = refused(Mapping::new(cache.clone()).part(2, 3 * PAGE_BYTES as u64));
    assert_eq!(range, "cannot map 12288 bytes from page 2 on: the file has 16384 bytes");
    assert!(
        refused(Mapping::new(cache.clone()).part(u64::MAX, 1)).contains("from page 18446744073709551615")
    );
    assert!(refused(Mapping::new(cache.clone()).part(1, 0)).contains("0 bytes"));
}
