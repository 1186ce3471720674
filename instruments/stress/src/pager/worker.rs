//! The body of a thread: pins of pages, and the checks of each pin.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use squall::pager::cache::{Attribute, FileCache, FileCacheExt, PAGE_BYTES};
use squall::pager::region::RegionExt;
use squall::pager::source::SourceErrorKind;
use squall::pager::{Frame, FrameMut, PageFault};
use squall::swap::swap;

use super::books::{File, PageBook, Place};
use super::breaks::Break;
use super::counts::{Stat, count, count_many};
use super::pattern::Content;
use super::round::{PAGES_MAX, Slot, World, cache_form, list_form};
use super::store::REFUSAL;
use crate::run::{Rng, lock};
use crate::skeleton::delay::delay;
use crate::skeleton::placement::switch_vp;
use crate::violations::Violations;

/// Maximum number of frames that a thread holds.
pub(super) const HELD_MAX: usize = 4;
/// Maximum number of steps of a thread.
const STEPS_MAX: u64 = 1_500;

const PAGE: u64 = PAGE_BYTES as u64;

/// A frame.
enum Pinned {
    Read(Frame),
    /// With the book of the page, if the pin is exact.
    Write(FrameMut, Option<Arc<PageBook>>),
}

/// A frame that a thread holds.
struct Held {
    /// The family of the file, and the number of the page (`pager/I1`).
    key: (u64, u64),
    pinned: Pinned,
    /// The contents of the page since it was pinned.
    content: Content,
    /// Number of words that may be written.
    words: u64,
}

impl Held {
    fn bytes(&self) -> &[u8] {
        match &self.pinned {
            Pinned::Read(frame) => frame,
            Pinned::Write(frame, _) => frame,
        }
    }

    /// Checks that the page is as it was, and drops the frame.
    fn end(self, violations: &Violations) {
        let found = Content::read(self.key.1, self.bytes());
        if found != Ok(self.content) && !violations.is_over() {
            let what = format!("page {} changed while it was pinned", self.key.1);
            violations.fail(format!("{what}: {found:?} instead of {:?}", self.content));
        }
    }
}

/// The way by which a thread reaches a page.
enum Door {
    Process(Arc<Place>),
    Region(Arc<Place>),
    Cache(Arc<File>),
}

impl Door {
    fn place(&self) -> Option<&Arc<Place>> {
        match self {
            Door::Process(place) | Door::Region(place) => Some(place),
            Door::Cache(_) => None,
        }
    }
}

/// A look at the books before and after a pin.
struct Look {
    file: Arc<File>,
    /// The length of the region in bytes.
    bytes: u64,
    epochs: (u64, u64),
    book: Arc<PageBook>,
    is_own: bool,
    /// Number of pages of the file.
    pages: u64,
    /// Number of words of the page.
    words: u64,
}

impl Look {
    fn new(door: &Door, page: u64) -> Look {
        let place_epoch = door.place().map_or(0, |place| place.epoch.look());
        let (file, bytes) = match door {
            Door::Process(place) | Door::Region(place) => place.look(),
            Door::Cache(file) => (file.clone(), u64::MAX),
        };
        let epochs = (place_epoch, file.epoch.look());
        let (book, is_own) = file.book(page);
        let (pages, words) = (file.pages(), file.words(page));
        Look { file, bytes, epochs, book, is_own, pages, words }
    }

    /// Returns whether a pin between the two looks is exact (`books/I2`).
    fn is_exact(&self, later: &Look) -> bool {
        let (place, file) = self.epochs;
        place % 2 == 0
            && file % 2 == 0
            && self.epochs == later.epochs
            && Arc::ptr_eq(&self.file, &later.file)
            && Arc::ptr_eq(&self.book, &later.book)
    }
}

/// A thread.
pub(super) struct Worker {
    held: Vec<Held>,
    pub(super) rng: Rng,
}

impl Worker {
    pub(super) fn new(rng: Rng) -> Worker {
        Worker { held: Vec::with_capacity(HELD_MAX), rng }
    }

    /// Takes a random number of steps.
    pub(super) fn live(&mut self, world: &World<'_>) {
        for _ in 0..1 + self.rng.below(STEPS_MAX) {
            if world.violations.is_over() {
                break;
            }
            self.step(world);
        }
    }

    fn step(&mut self, world: &World<'_>) {
        match self.rng.below(256) {
            0..90 => self.pin(world, false),
            90..160 => self.pin(world, true),
            160..195 => self.drop_one(world),
            195..205 => self.write_again(world),
            205..212 => {
                if let Some(file) = self.any_file(world) {
                    let wanted = self.rng.below(6) as usize;
                    count_many(Stat::Evicted, file.handle.try_evict(wanted).unwrap_or(0) as u64);
                }
            }
            212..216 => self.sync(world),
            216..222 => self.set_len(world),
            222..226 => self.truncate(world),
            226..232 => self.remap(world),
            232..236 => self.copy(world),
            236..244 => self.swap(world),
            244..247 => self.change(world),
            247 => {
                world.home.confine(None, &mut self.rng);
                switch_vp(&mut self.rng);
            }
            _ => delay(&mut self.rng),
        }
    }

    /// Returns whether the thread may wait for something with this key (`pager/I1`).
    pub(super) fn may_wait_for(&self, key: (u64, u64)) -> bool {
        self.held.iter().all(|held| held.key < key)
    }

    /// Returns whether the thread may wait for all pages of the family of a file (`pager/I1`).
    pub(super) fn may_wait_for_family(&self, file: &File) -> bool {
        self.held.iter().all(|held| held.key.0 < file.family.number)
    }

    pub(super) fn any_place(&mut self, world: &World<'_>) -> Option<Arc<Place>> {
        let at = self.rng.below(world.slots.len() as u64) as usize;
        Slot::place(&world.slots[at])
    }

    /// Returns the file of a place, or one that no place has any more.
    pub(super) fn any_file(&mut self, world: &World<'_>) -> Option<Arc<File>> {
        if self.rng.one_in(3) {
            let former = lock(&world.former);
            let at = self.rng.below(former.len().max(1) as u64) as usize;
            return former.get(at).cloned();
        }
        self.any_place(world).map(|place| place.look().0)
    }

    /// Pins a random page, checks it, and keeps the frame or drops it.
    fn pin(&mut self, world: &World<'_>, writes: bool) {
        if self.held.len() == HELD_MAX {
            return self.drop_one(world);
        }
        let door = match self.rng.below(3) {
            0 => self.any_file(world).map(Door::Cache),
            1 => self.any_place(world).map(Door::Region),
            _ => self.any_place(world).map(|place| match place.addresses {
                Some(_) => Door::Process(place),
                None => Door::Region(place),
            }),
        };
        let Some(door) = door else { return };
        let mut offset = self.rng.below(PAGES_MAX + 2) * PAGE + self.rng.below(PAGE);
        if let Door::Process(place) = &door {
            // Further addresses have no region.
            offset %= place.addresses.unwrap_or(PAGE);
        }
        let page = door.place().map_or(0, |place| place.first_page) + offset / PAGE;
        let before = Look::new(&door, page);
        let key = (before.file.family.number, page);
        // A region that changes waits for its faults, and a fault may wait for a page of the family.
        let may_wait = match &door {
            Door::Cache(_) => self.may_wait_for(key),
            Door::Process(_) | Door::Region(_) => self.may_wait_for_family(&before.file),
        };
        if !may_wait {
            return;
        }
        let pinned = match (&door, writes) {
            (Door::Process(place), false) => {
                world.processes[place.process].pin(place.region.start() + offset).map(Pinned::Read)
            }
            (Door::Region(place), false) => place.region.handle().pin(offset).map(Pinned::Read),
            (Door::Cache(file), false) => file.handle.pin(page).map(Pinned::Read),
            (Door::Process(place), true) => {
                let frame = world.processes[place.process].pin_mut(place.region.start() + offset);
                frame.map(|frame| Pinned::Write(frame, None))
            }
            (Door::Region(place), true) => {
                place.region.handle().pin_mut(offset).map(|frame| Pinned::Write(frame, None))
            }
            (Door::Cache(file), true) => file.handle.pin_mut(page).map(|frame| Pinned::Write(frame, None)),
        };
        count(if writes { Stat::Changes } else { Stat::Reads });
        let exact = before.is_exact(&Look::new(&door, page));
        match pinned {
            Err(error) => self.check_error(world, &door, &before, exact, writes, page, offset, &error),
            Ok(pinned) => {
                let held = Held { key, pinned, content: Content::default(), words: 0 };
                if let Some(held) = check_pin(world, &before, exact, offset, held, &mut self.rng) {
                    self.keep(world, held);
                }
            }
        }
    }

    /// Keeps a frame, or ends it at once.
    fn keep(&mut self, world: &World<'_>, mut held: Held) {
        if world.breaks(Break::ChangePinned, &mut self.rng) {
            held.content = world.content(held.key.0, 1);
        }
        if self.rng.one_in(2) {
            self.held.push(held);
        } else if world.breaks(Break::ForgetFrame, &mut self.rng)
            && let Pinned::Read(frame) = held.pinned
        {
            std::mem::forget(frame);
        } else {
            held.end(&world.violations);
        }
    }

    fn drop_one(&mut self, world: &World<'_>) {
        if !self.held.is_empty() {
            let at = self.rng.below(self.held.len() as u64) as usize;
            self.held.swap_remove(at).end(&world.violations);
        }
    }

    /// Writes a page again that the thread has pinned for a while.
    fn write_again(&mut self, world: &World<'_>) {
        let Some(held) = self.held.last_mut() else { return };
        write(world, held);
    }

    /// Checks an error of a pin.
    #[expect(clippy::too_many_arguments, reason = "all that is known about the pin")]
    fn check_error(
        &self,
        world: &World<'_>,
        door: &Door,
        look: &Look,
        exact: bool,
        writes: bool,
        page: u64,
        offset: u64,
        error: &PageFault,
    ) {
        let place = door.place();
        // Acquire, here and below: pairs with the Release before a file or a region ends or is copied.
        let is_ending = place.is_some_and(|place| place.is_ending.load(Ordering::Acquire));
        let (stat, is_legal) = match error {
            PageFault::Source(source) => match (source.kind(), source.page()) {
                (SourceErrorKind::Other(why), Some(at)) if why.to_string() == REFUSAL => {
                    let may_be_other = writes && look.file.is_limited.load(Ordering::Relaxed);
                    (Stat::Errors, !exact || at == page || may_be_other)
                }
                (SourceErrorKind::BeyondEnd { .. }, Some(at)) => (Stat::Beyond, at == page && !exact),
                (_, None) => return world.fail(format!("an error does not name the page {page}: {error}")),
                _ => (Stat::Errors, false),
            },
            PageFault::BeyondEnd { page: at, .. } => {
                (Stat::Beyond, *at == page && (!exact || page >= look.pages))
            }
            PageFault::BeyondRegion { .. } => (Stat::Beyond, !exact || offset >= look.bytes),
            PageFault::NoMemory { page: at, .. } => (Stat::NoMemory, *at == page),
            PageFault::Frozen { .. } => {
                if world.broken == Some(Break::ThawParent) {
                    world.fail(format!("page {page} was pinned for writing, although the file is frozen"));
                }
                // Acquire: pairs with the Release before the copy.
                (Stat::Frozen, writes && look.file.is_frozen.load(Ordering::Acquire))
            }
            PageFault::ReadOnly { .. } => {
                (Stat::Closed, writes && place.is_some_and(|place| place.is_read_only))
            }
            PageFault::Unmapped { .. } | PageFault::NoRegion { .. } => (Stat::Closed, is_ending),
            PageFault::Call(_) => {
                // Acquire: pairs with the Release before the stress lets go of the cache.
                let file_ends = place.is_none() && look.file.is_ending.load(Ordering::Acquire);
                (Stat::Ended, is_ending || file_ends)
            }
            _ => (Stat::Errors, false),
        };
        count(stat);
        if !is_legal && !world.violations.is_over() {
            let kind = if writes { "for writing" } else { "for reading" };
            world.fail(format!("a pin of page {page} {kind} failed without a reason: {error}"));
        }
    }

    /// Swaps a cache, a region, or a list of regions. A swap may give up while calls are inside.
    fn swap(&mut self, world: &World<'_>) {
        match self.rng.below(4) {
            0 | 1 => {
                let Some(file) = self.any_file(world) else { return };
                let new = squall::pager::cache::new_cache(cache_form(&mut self.rng));
                count_many(Stat::CacheSwaps, u64::from(swap(file.handle, new).is_ok()));
            }
            2 => {
                let Some(place) = self.any_place(world) else { return };
                let new = squall::pager::region::new_region(super::control::region_form(&mut self.rng));
                count_many(Stat::RegionSwaps, u64::from(swap(place.region.handle(), new).is_ok()));
            }
            _ => {
                let process = &world.processes[self.rng.below(2) as usize];
                let swapped = process.regions().set_form(list_form(&mut self.rng));
                count_many(Stat::ListSwaps, u64::from(swapped.is_ok()));
            }
        }
    }

    /// Changes an attribute of a cache.
    fn change(&mut self, world: &World<'_>) {
        let Some(file) = self.any_file(world) else { return };
        if self.rng.one_in(2) {
            // Relaxed: the fault that writes other pages saw the limit, which is set later.
            file.is_limited.store(true, Ordering::Relaxed);
            let most = if self.rng.one_in(2) { usize::MAX } else { 1 + self.rng.below(8) as usize };
            let _ = file.handle.try_set_attribute(Attribute::DirtyMax, most);
        } else {
            let _ = file.handle.try_set_attribute(Attribute::PatienceMs, self.rng.below(20) as usize);
        }
    }

    /// Pins some pages for reading, while no thread writes. Their frames outlive the world.
    pub(super) fn pin_late(&mut self, world: &World<'_>) {
        for _ in 0..HELD_MAX {
            if self.held.len() < HELD_MAX && !world.violations.is_over() {
                self.pin(world, false);
            }
        }
        count_many(Stat::Late, self.held.len() as u64);
    }

    /// Checks and drops all frames.
    pub(super) fn drop_all(&mut self, violations: &Violations) {
        self.held.drain(..).for_each(|held| held.end(violations));
    }
}

/// Checks the page of a new frame. Writes it, if the frame is for writing and the pin is exact.
fn check_pin(
    world: &World<'_>,
    look: &Look,
    exact: bool,
    offset: u64,
    mut held: Held,
    rng: &mut Rng,
) -> Option<Held> {
    let page = held.key.1;
    held.content = match Content::read(page, held.bytes()) {
        Ok(content) => content,
        Err(what) => {
            world.fail(what);
            return None;
        }
    };
    let (family, file) = (held.key.0, &look.file);
    if !held.content.is_zero() && held.content.family() != family {
        world.fail(format!("page {page} shows a page of family {} in {family}", held.content.family()));
    }
    if !exact {
        return Some(held);
    }
    count(Stat::Exact);
    let said = look.book.content();
    if held.content != said {
        let found = held.content;
        world.fail(format!("page {page} shows {found:?}, although the books say {said:?}"));
    }
    if page >= look.pages || offset >= look.bytes {
        world.fail(format!("page {page} was pinned, although it lies beyond the end"));
    }
    if let Pinned::Write(_, book) = &mut held.pinned {
        if look.book.is_sealed() && look.is_own {
            world.fail(format!("page {page} was pinned for writing, although the file is frozen"));
        }
        held.words = look.words;
        let own = file.own_book(page);
        // A page that was cut off since has another book.
        if file.epoch.look() != look.epochs.1 || rng.one_in(8) {
            return Some(held);
        }
        *book = Some(own);
        write(world, &mut held);
    } else if !look.is_own {
        look.book.seal();
    }
    Some(held)
}

/// Writes a page that is pinned exactly for writing.
fn write(world: &World<'_>, held: &mut Held) {
    if let Pinned::Write(frame, Some(book)) = &mut held.pinned {
        held.content = world.content(held.key.0, held.words);
        held.content.write(held.key.1, frame);
        book.set(held.content);
    }
}
