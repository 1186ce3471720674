//! Control operations of a thread: syncs, lengths, truncations, maps, unmaps and copies. At most one thread
//! at a time changes the lengths and the regions of a family.

use std::sync::Arc;
use std::sync::MutexGuard;
use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use squall::pager::PageFault;
use squall::pager::cache::{self, FileCache, PAGE_BYTES};
use squall::pager::region::{self, Mapping, Region, RegionExt, Rights};
use squall::pager::source::{Source, SourceErrorKind};

use super::books::{Family, File, Place};
use super::breaks::Break;
use super::counts::{Stat, count};
use super::round::{PAGES_MAX, Slot, World, cache_form};
use super::store::{REFUSAL, Stress};
use super::worker::Worker;
use crate::run::{Rng, lock};

const PAGE: u64 = PAGE_BYTES as u64;

/// Returns a random form of a region.
pub(super) fn region_form(rng: &mut Rng) -> region::Form {
    match rng.below(3) {
        0 => region::Form::Shared,
        1 => region::Form::Distributed,
        _ => region::Form::Quiescent,
    }
}

/// Takes the control of a family, unless another thread has it.
fn control(family: &Family) -> Option<MutexGuard<'_, ()>> {
    match family.control.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poison)) => Some(poison.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Checks an error of an operation on a whole file.
fn check_error(world: &World<'_>, file: &File, what: &str, error: &PageFault) {
    let is_legal = match error {
        PageFault::Source(source) => match source.kind() {
            SourceErrorKind::Other(why) => {
                count(Stat::Errors);
                why.to_string() == REFUSAL
            }
            _ => false,
        },
        PageFault::NoMemory { .. } => {
            count(Stat::NoMemory);
            true
        }
        PageFault::Call(_) => {
            count(Stat::Ended);
            // Acquire: pairs with the Release before the stress lets go of the cache.
            file.is_ending.load(Ordering::Acquire)
        }
        _ => false,
    };
    if !is_legal {
        world.fail(format!("{what} failed without a reason: {error}"));
    }
}

impl Worker {
    /// Syncs a file, and checks that its source has at least the writes that came before.
    pub(super) fn sync(&mut self, world: &World<'_>) {
        let Some(file) = self.any_file(world) else { return };
        if !self.may_wait_for_family(&file) {
            return;
        }
        let (epoch, pages) = (file.epoch.look(), file.own_contents());
        let synced = if world.breaks(Break::SkipSync, &mut self.rng) { Ok(0) } else { file.handle.sync() };
        if let Err(error) = synced {
            return check_error(world, &file, "a sync", &error);
        }
        count(Stat::Syncs);
        let stored: Vec<_> = pages.iter().map(|(page, _)| file.store.content(*page)).collect();
        if epoch % 2 != 0 || epoch != file.epoch.look() {
            return;
        }
        for ((page, said), stored) in pages.into_iter().zip(stored) {
            let stored = stored.unwrap_or_default();
            if stored.serial() < said.serial() {
                world.fail(format!(
                    "a sync returned, but the source has {stored:?} of page {page}, and not {said:?}"
                ));
            }
        }
    }

    /// Changes the length of a file.
    pub(super) fn set_len(&mut self, world: &World<'_>) {
        let Some(place) = self.any_place(world) else { return };
        let file = place.look().0;
        let Some(_control) = control(&file.family) else { return };
        if !self.may_wait_for_family(&file) || file.is_frozen.load(Ordering::Relaxed) {
            return;
        }
        let mut bytes = self.rng.below(PAGES_MAX + 1) * PAGE;
        if self.rng.one_in(2) {
            bytes = (bytes + self.rng.below(PAGE)).min(PAGES_MAX * PAGE) / 8 * 8;
        }
        let former = file.bytes();
        file.epoch.change(|| match file.handle.set_len(bytes) {
            Ok(()) => {
                count(if bytes < former { Stat::Shrinks } else { Stat::Grows });
                file.set_bytes(bytes);
            }
            Err(error) => check_error(world, &file, "a change of a length", &error),
        });
        if let Ok(found) = file.handle.try_len()
            && found != file.bytes()
        {
            world.fail(format!("a file has {found} bytes, although the books say {}", file.bytes()));
        }
        if file.bytes() < former && world.breaks(Break::WriteCut, &mut self.rng) {
            let _ = Stress(file.store.clone()).write(former / PAGE + 1, &[0; PAGE_BYTES]);
        }
    }

    /// Shortens a region, or tries to lengthen it, which is refused.
    pub(super) fn truncate(&mut self, world: &World<'_>) {
        let Some(place) = self.any_place(world) else { return };
        let family = place.look().0.family.clone();
        let Some(_control) = control(&family) else { return };
        let (file, former) = place.look();
        if !self.may_wait_for_family(&file) || place.is_ending.load(Ordering::Relaxed) {
            return;
        }
        let bytes = if self.rng.one_in(4) { former + PAGE } else { former - self.rng.below(former / 4 + 1) };
        place.epoch.change(|| match place.region.handle().truncate(bytes) {
            Ok(()) if bytes <= former => {
                count(Stat::Truncations);
                place.set(file, bytes);
            }
            Err(PageFault::BeyondRegion { .. }) if bytes > former => {}
            result => {
                world.fail(format!("a truncation of a region from {former} to {bytes} bytes: {result:?}"));
            }
        });
    }

    /// Unmaps the region of a slot, or maps one there.
    pub(super) fn remap(&mut self, world: &World<'_>) {
        let at = self.rng.below(world.slots.len() as u64) as usize;
        let Some(slot) = Slot::take(&world.slots[at]) else { return };
        let Some(place) = slot.place() else {
            return slot.set(Some(self.map(world)));
        };
        let file = place.look().0;
        let control = control(&file.family).filter(|_| self.may_wait_for_family(&file));
        if control.is_none() {
            return slot.set(Some(place));
        }
        let file = place.look().0;
        // Release: pairs with the Acquire of a thread that checks an error of the region.
        place.is_ending.store(true, Ordering::Release);
        let ignores = world.breaks(Break::IgnoreUnmap, &mut self.rng);
        if !ignores && let Err(error) = world.processes[place.process].unmap(place.region.start()) {
            world.fail(format!("an unmap failed: {error}"));
        }
        count(Stat::Unmaps);
        if let Ok(frame) = place.region.handle().pin(0) {
            world.fail(format!("page {} was pinned by a region after it was unmapped", frame.page()));
        }
        drop(control);
        slot.set(None);
        world.let_go(file, &mut self.rng);
    }

    /// Maps a new file, or one that a place has.
    pub(super) fn map(&mut self, world: &World<'_>) -> Arc<Place> {
        let process = self.rng.below(2) as usize;
        let mapped =
            if self.rng.one_in(4) { self.any_place(world).map(|place| place.look().0) } else { None };
        let mapped = mapped.and_then(|file| lock(&file.cache).clone().map(|cache| (file.clone(), cache)));
        let (file, cache) = mapped.unwrap_or_else(|| {
            let file = world.file(process, &mut self.rng);
            let cache = lock(&file.cache).clone().expect("a new file has a cache");
            (file, cache)
        });
        let first_page = if self.rng.one_in(3) { self.rng.below(3) } else { 0 };
        let bytes = PAGE * (1 + self.rng.below(PAGES_MAX));
        let is_read_only = self.rng.one_in(8);
        let rights = if is_read_only { Rights::Read } else { Rights::ReadWrite };
        let mapping = Mapping::new(cache).part(first_page, bytes).with_rights(rights);
        let start = world.addresses();
        let region = world.processes[process].map_at(start, region_form(&mut self.rng), mapping);
        let region = region.expect("fresh addresses are free");
        Place::new(process, region, first_page, is_read_only, file, bytes, Some(bytes))
    }

    /// Copies a region.
    pub(super) fn copy(&mut self, world: &World<'_>) {
        let Some(place) = self.any_place(world) else { return };
        let family = place.look().0.family.clone();
        let Some(control) = control(&family) else { return };
        let (file, bytes) = place.look();
        if !self.may_wait_for_family(&file) || place.is_ending.load(Ordering::Relaxed) {
            return;
        }
        let free = world.slots.iter().find_map(|slot| Slot::take(slot).filter(|slot| slot.place().is_none()));
        let Some(free) = free else { return };
        let copy = place.epoch.change(|| self.copy_file(world, &place, &file, bytes));
        drop(control);
        free.set(copy);
        world.let_go(file, &mut self.rng);
    }

    /// Copies a region while the thread has the control of its family.
    fn copy_file(
        &mut self,
        world: &World<'_>,
        place: &Arc<Place>,
        file: &Arc<File>,
        bytes: u64,
    ) -> Option<Arc<Place>> {
        let rng = &mut self.rng;
        let stores = [(), ()].map(|()| world.store(file.bytes(), rng));
        // Release: pairs with the Acquire of a thread that checks an error of the file.
        file.is_frozen.store(true, Ordering::Release);
        let form = region_form(rng);
        let process = &world.processes[place.process];
        let copied = process.copy(place.region.start(), form, &mut |parent| {
            stores.clone().map(|store| {
                let pool = if rng.one_in(2) { world.pool.handle() } else { process.page_manager() };
                cache::copy_of(parent.clone(), cache_form(rng), squall::shared(Stress(store)), pool)
            })
        });
        let mut region = match copied {
            Ok(region) => region,
            Err(error) => {
                world.fail(format!("a copy of a region failed: {error}"));
                return None;
            }
        };
        count(Stat::Copies);
        let [own, other] = stores;
        let own_cache = place.region.handle().cache();
        if world.breaks(Break::ShareCopy, rng) {
            let mapping = Mapping::new(own_cache.clone()).part(place.first_page, bytes);
            region = process.map(form, mapping).expect("an address space has room for a region");
        }
        place.set(File::new(&file.family, own_cache, own, Some(file.clone())), bytes);
        let other = File::new(&file.family, region.handle().cache(), other, Some(file.clone()));
        Some(Place::new(place.process, region, place.first_page, place.is_read_only, other, bytes, None))
    }
}
