//! Subjects `squall-*` of the cases about pages, used as an application would.

use std::sync::{Arc, Mutex, PoisonError};

use crossbeam_utils::CachePadded;
use squall::objects::cached;
use squall::objects::map::{self, MapExt, OwnedMap};
use squall::objects::pages::{self, PagePool, Supply};
use squall::pager::cache::{self, Access, Attribute, FileCache, FileCacheExt, Located, PAGE_BYTES, Resident};
use squall::pager::process::Process;
use squall::pager::region::{self, Mapping, Region, RegionExt, SharedCache};
use squall::pager::source::{self, Source};
use squall::pager::{Frame, PageFault};
use squall::rcu::Guard;
use squall::{ClusterSize, Handle, Owned};

use crate::cases::pager::{Pinned, Scope};

fn zeros(pages: u64) -> Owned<dyn Source> {
    source::zero_fill(pages * PAGE_BYTES as u64)
}

/// The forms of the objects on the way of a fault. A letter stands for each: see [`Forms::letter`].
#[derive(Clone, Debug)]
pub(crate) struct Forms {
    list: cached::Form,
    /// Whether a lookup in the list holds a lock, as in K42's shared process.
    list_is_locked: bool,
    region: region::Form,
    pool_is_shared: bool,
    cache: cache::Form,
}

impl Forms {
    /// The code of a subject `squall-LRMC`. The letters are the forms of the list of regions of the process,
    /// of the region, of the page manager, and of the file cache.
    pub(crate) const fn code(name: &str) -> u32 {
        let name = name.as_bytes();
        let at = name.len() - 4;
        u32::from_be_bytes([name[at], name[at + 1], name[at + 2], name[at + 3]])
    }

    /// The forms with this code. `d` is distributed, `s` shared, `q` quiescent, and `l` shared with lookups
    /// under a lock. `p` is partitioned, with `2^shift` neighbouring pages in a partition.
    pub(crate) fn of(code: u32, shift: u32) -> Forms {
        let [list, region, pool, cache] = code.to_be_bytes();
        Forms {
            list: if list == b'd' {
                cached::Form::distributed(ClusterSize::Cpu)
            } else {
                cached::Form::shared()
            },
            list_is_locked: list == b'l',
            region: match region {
                b's' => region::Form::Shared,
                b'q' => region::Form::Quiescent,
                _ => region::Form::Distributed,
            },
            pool_is_shared: pool == b's',
            cache: match cache {
                b's' => cache::Form::Shared,
                b'p' => cache::Form::Partitioned { partitions: 64, shift },
                _ => cache::Form::Distributed(ClusterSize::Cpu),
            },
        }
    }

    /// Makes the page manager. The caches belong to it directly, as K42's process forwards each request.
    pub(crate) fn page_manager(&self) -> Owned<dyn PagePool> {
        let supply = Supply::system(PAGES_MAX);
        if self.pool_is_shared { pages::shared(supply) } else { pages::distributed(supply) }
    }
}

/// Limit of the pages of a subject.
const PAGES_MAX: usize = 1 << 21;

/// A process.
pub(crate) struct Space {
    process: Process,
    /// Held by lookups of regions, if the list is locked.
    lock: Option<CachePadded<Mutex<()>>>,
    forms: Forms,
}

impl Space {
    pub(crate) fn new(forms: &Forms, pool: Handle<dyn PagePool>) -> Space {
        let process = Process::new(forms.list.clone(), pool, 0);
        Space { process, lock: forms.list_is_locked.then(CachePadded::default), forms: forms.clone() }
    }

    /// Looks up the region at this address under the lock. Returns it with the offset in it.
    fn locked(&self, lock: &Mutex<()>, address: u64) -> (Handle<dyn Region>, u64) {
        let _lock = lock.lock().unwrap_or_else(PoisonError::into_inner);
        let mapped = self.process.region(address).expect("the region is mapped");
        (mapped.handle(), address - mapped.start())
    }

    /// Maps memory of zeros. Returns its address, and its cache.
    pub(crate) fn map(&self, pages: u64, pool: Handle<dyn PagePool>) -> (u64, SharedCache) {
        let cache = Arc::new(cache::with_form(self.forms.cache, zeros(pages), pool));
        (self.map_file(&cache), cache)
    }

    /// Touches the page at this address.
    #[inline]
    pub(crate) fn touch(&self, address: u64) {
        let frame = match &self.lock {
            Some(lock) => {
                let (region, offset) = self.locked(lock, address);
                region.pin_mut(offset)
            }
            None => self.process.pin_mut(address),
        };
        let mut frame = frame.expect("the memory suffices");
        frame[0] = frame[0].wrapping_add(1);
    }

    /// Pins the page at this address for reading.
    #[inline]
    pub(crate) fn pin(&self, address: u64) -> Result<Frame, PageFault> {
        match &self.lock {
            Some(lock) => {
                let (region, offset) = self.locked(lock, address);
                region.pin(offset)
            }
            None => self.process.pin(address),
        }
    }

    /// Pins the page at this address, and returns whether it has this byte.
    #[inline]
    pub(crate) fn contains(&self, address: u64, byte: u8) -> bool {
        self.pin(address).expect("the memory suffices").contains(&byte)
    }

    /// Maps a file. Returns its address.
    pub(crate) fn map_file(&self, cache: &SharedCache) -> u64 {
        self.map_part(Mapping::new(cache.clone()))
    }

    fn map_part(&self, mapping: Mapping) -> u64 {
        let mapped = self.process.map(self.forms.region, mapping);
        mapped.expect("the address space has room").start()
    }

    /// Looks up the region at this address.
    pub(crate) fn look_up(&self, address: u64) {
        self.process.region(address).expect("the region is mapped");
    }

    pub(crate) fn unmap(&self, address: u64) -> bool {
        self.process.unmap(address).is_ok()
    }
}

/// Makes a file of zeros in memory, of which all pages are resident and have been read often.
pub(crate) fn resident_file(forms: &Forms, pages: u64, pool: Handle<dyn PagePool>) -> SharedCache {
    let cache = cache::with_form(forms.cache, zeros(pages), pool);
    for _ in 0..PINS_UNTIL_SETTLED {
        (0..pages).for_each(|page| drop(cache.pin(page).expect("the memory suffices")));
    }
    Arc::new(cache)
}

fn pinned_number(frame: Result<Frame, PageFault>) -> u64 {
    frame.map_or(u64::MAX, |frame| frame.page())
}

/// The number of pins of a page after which a latch has taken its form for many readers.
const PINS_UNTIL_SETTLED: usize = if cfg!(test) { 2 } else { 300 };

/// A file whose pages are resident, and their pool.
struct File {
    cache: SharedCache,
    _pool: Owned<dyn PagePool>,
}

impl File {
    fn new(form: u8, scope: &Scope) -> File {
        let forms = Forms::of(u32::from_be_bytes([b'd', b'd', b'd', form]), 6);
        let pool = forms.page_manager();
        let cache = resident_file(&forms, scope.pages, pool.handle());
        for page in 0..scope.pages {
            (0..PINS_UNTIL_SETTLED).for_each(|_| drop(cache.pin(page)));
        }
        File { cache, _pool: pool }
    }
}

/// `squall-cache-*`: a cache in the form of this letter.
pub(crate) struct CachePins<const FORM: u8> {
    cache: Handle<dyn FileCache>,
    _file: File,
}

impl<const FORM: u8> Pinned for CachePins<FORM> {
    fn new(scope: &Scope) -> Self {
        let file = File::new(FORM, scope);
        CachePins { cache: file.cache.handle(), _file: file }
    }

    #[inline(always)]
    fn pin(&self, page: u64) -> u64 {
        pinned_number(self.cache.pin(page))
    }
}

/// `squall-region-*`: a region in the form of this letter, of a file in a distributed cache.
pub(crate) struct RegionPins<const FORM: u8> {
    region: Handle<dyn Region>,
    _owner: Owned<dyn Region>,
    _file: File,
}

impl<const FORM: u8> Pinned for RegionPins<FORM> {
    fn new(scope: &Scope) -> Self {
        let file = File::new(b'd', scope);
        let form = Forms::of(u32::from_be_bytes([b'd', FORM, b'd', b'd']), 6).region;
        let owner = region::with_form(form, 0, Mapping::new(file.cache.clone()));
        RegionPins { region: owner.handle(), _owner: owner, _file: file }
    }

    #[inline(always)]
    fn pin(&self, page: u64) -> u64 {
        pinned_number(self.region.pin(page * PAGE_BYTES as u64))
    }
}

/// `squall-process-*`: a process with a list in the form of this letter. It maps a quarter of a file in each
/// of four distributed regions.
pub(crate) struct ProcessPins<const FORM: u8> {
    space: Space,
    /// First address of each region.
    starts: [u64; 4],
    quarter: u64,
    _file: File,
}

impl<const FORM: u8> Pinned for ProcessPins<FORM> {
    fn new(scope: &Scope) -> Self {
        let file = File::new(b'd', scope);
        let forms = Forms::of(u32::from_be_bytes([FORM, b'd', b'd', b'd']), 6);
        let space = Space::new(&forms, file._pool.handle());
        let quarter = scope.pages / 4;
        let starts = std::array::from_fn(|part| {
            let mapping = Mapping::new(file.cache.clone());
            space.map_part(mapping.part(part as u64 * quarter, quarter * PAGE_BYTES as u64))
        });
        ProcessPins { space, starts, quarter, _file: file }
    }

    fn address(&self, page: u64) -> u64 {
        self.starts[(page / self.quarter) as usize] + page % self.quarter * PAGE_BYTES as u64
    }

    #[inline(always)]
    fn pin(&self, address: u64) -> u64 {
        pinned_number(self.space.pin(address))
    }
}

/// `squall-map-get`: a lookup in a map of numbers, without a page.
pub(crate) struct MapGet {
    map: Handle<dyn map::Map<u64, u64, foldhash::fast::FixedState>>,
    _owner: OwnedMap<u64, u64, foldhash::fast::FixedState>,
}

impl Pinned for MapGet {
    fn new(scope: &Scope) -> MapGet {
        let owner = map::shared_with(0, foldhash::fast::FixedState::default());
        (0..scope.pages).for_each(|page| _ = owner.insert(page, page));
        MapGet { map: owner.handle(), _owner: owner }
    }

    #[inline(always)]
    fn pin(&self, page: u64) -> u64 {
        self.map.get(&page).unwrap_or(u64::MAX)
    }
}

/// Caches with one lock each, for [`Scope::PART`] neighbouring pages each. The pages are zero and stay
/// pinned. It has no other operations: the probe of K42 before its partitioned cache was written.
struct Trivial(Vec<Owned<dyn FileCache>>);

impl Trivial {
    fn part(&self, page: u64) -> Handle<dyn FileCache> {
        self.0[(page / Scope::PART) as usize % self.0.len()].handle()
    }

    fn refusal() -> PageFault {
        PageFault::Frozen { file: "a trivial cache".into() }
    }
}

impl FileCache for Trivial {
    fn find<'o>(&self, guard: &'o Guard, page: u64) -> Option<Resident<'o>> {
        self.part(page).find(guard, page)
    }

    fn fault(&self, page: u64, access: Access) -> Result<Located, PageFault> {
        self.part(page).fault(page, access)
    }

    fn evict(&self, _: usize) -> usize {
        0
    }

    fn sync(&self) -> Result<usize, PageFault> {
        Err(Trivial::refusal())
    }

    fn set_len(&self, _: u64) -> Result<(), PageFault> {
        Err(Trivial::refusal())
    }

    fn len(&self) -> u64 {
        self.0[0].len()
    }

    fn freeze(&self) {}

    fn source(&self) -> Handle<dyn Source> {
        self.0[0].source()
    }

    fn attribute(&self, attribute: Attribute) -> usize {
        self.0[0].attribute(attribute)
    }

    fn set_attribute(&self, _: Attribute, _: usize) {}
}

/// `squall-probe-*`: a distributed region of a trivial cache, or of a shared one.
pub(crate) struct ProbePins<const TRIVIAL: bool> {
    region: Handle<dyn Region>,
    _owner: Owned<dyn Region>,
    _pool: Owned<dyn PagePool>,
}

impl<const TRIVIAL: bool> Pinned for ProbePins<TRIVIAL> {
    fn new(scope: &Scope) -> Self {
        let pool = pages::distributed(Supply::system(PAGES_MAX));
        let parts = if TRIVIAL { scope.pages / Scope::PART } else { 1 };
        let parts = (0..parts).map(|_| cache::shared(zeros(scope.pages), pool.handle()));
        let trivial = Trivial(parts.collect());
        for page in 0..scope.pages {
            (0..PINS_UNTIL_SETTLED).for_each(|_| drop(trivial.part(page).pin(page)));
            if TRIVIAL {
                // The page stays pinned.
                std::mem::forget(trivial.part(page).pin(page));
            }
        }
        let cache = if TRIVIAL {
            squall::shared::<dyn FileCache, _>(trivial)
        } else {
            trivial.0.into_iter().next().expect("it has one part")
        };
        let owner = region::with_form(region::Form::Distributed, 0, Mapping::new(Arc::new(cache)));
        ProbePins { region: owner.handle(), _owner: owner, _pool: pool }
    }

    #[inline(always)]
    fn pin(&self, page: u64) -> u64 {
        pinned_number(self.region.pin(page * PAGE_BYTES as u64))
    }
}
