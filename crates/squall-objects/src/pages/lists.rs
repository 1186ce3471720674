//! The pages of a pool: free lists and tables per place, an overflow list per node, and a supply.
//!
//! All forms share it: they differ in the places that their calls use. So a swap moves no page.
//!
//! - I1. A page is in one list, in use, or held by one call.
//! - I2. No code of a program, and no call of another object, runs under a lock of this module.
//! - I3. A page's label is the node of the place for which its chunk was made. If the lists are wide, a page
//!   that comes to a place of another node goes to `away` there. The page leaves for its own node's
//!   overflow list with the next batch.
//! - I4. A call that moves pages is counted while they are in no list. A search without success is repeated
//!   if another such call ran meanwhile. So it can miss only pages that came back by [`Lists::put`].
//!
//! Cost: in balance, the lock of the VP's own. Beyond the threshold, and if the list is empty, the lock of a
//! node's overflow list once per batch.
//! Source: Appavoo 2005, §4.1.2 (CO-45, CO-46). Our own: overflow lists by node, pages of other places before
//! reclamation, and attributes in place of constants.

use squall_core::__macro::{Action, Hit};
use squall_core::{CallError, CallErrorKind, Handle, tables};
use squall_lock::VpLock;
use squall_machine::{ClusterSize, Vp, machine};
use squall_rcu::Guard;
use squall_sys::frame::{CHUNK_FRAMES, Frame, Source};
use squall_sys::padded::CachePadded;
use squall_sys::sync::{lock, recheck};
use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::{Attribute, Members, PagePool, PageUser};
use crate::answers::returns_in;

pub(super) struct Lists {
    places: Box<[OnceLock<Box<Place>>]>,
    /// Overflow lists by node.
    overflow: Box<[CachePadded<Mutex<Vec<Frame>>>]>,
    supply: Supply,
    moves: CachePadded<Moves>,
    /// Whether a form with several representatives uses the lists. Otherwise one place has all free pages.
    is_wide: AtomicBool,
    attributes: [AtomicUsize; Attribute::COUNT],
}

/// The place that chunks come from.
pub(super) enum Supply {
    System(Arc<Source>),
    Pool(Arc<Parent>),
}

/// The pool above. `used` counts the pages that it lent; it is an estimate if pages strayed between pools.
pub(super) struct Parent {
    pool: Handle<dyn PagePool>,
    used: CachePadded<AtomicUsize>,
    max: AtomicUsize,
    /// Handle of this pool, once it is attached to its parent.
    own: OnceLock<Handle<dyn PagePool>>,
    /// Whether the pool's lists were dropped. Written under the lock of [`PARENTS`].
    has_ended: AtomicBool,
}

/// The parents of pools, by their handles: until the lists of the pool are dropped, and no page of it is out.
///
/// A page of a pool that takes none back goes to the pool above, so that the pools in between count it no
/// longer. Then the lists cannot be reached through the handle.
static PARENTS: Mutex<BTreeMap<Handle<dyn PagePool>, Arc<Parent>>> = Mutex::new(BTreeMap::new());

fn parents() -> MutexGuard<'static, BTreeMap<Handle<dyn PagePool>, Arc<Parent>>> {
    lock(&PARENTS, "the parents of page pools")
}

/// Returns pages of a pool that refused them, for this reason, to the nearest pool above that takes them, or
/// else to the system.
#[cold]
pub(super) fn return_above(mut pool: Handle<dyn PagePool>, mut error: CallError, mut frames: Vec<Frame>) {
    loop {
        if is_without_locks(&error) {
            return;
        }
        let parent = parents().get(&pool).cloned();
        let Some(parent) = parent else { return };
        let count = frames.len();
        let answer = put_all(parent.pool, &mut frames);
        parent.uncount(count);
        parent.forget_if_ended(pool);
        match answer {
            Ok(()) => return,
            Err(above) => (pool, error) = (parent.pool, above),
        }
    }
}

/// Returns whether this thread must take no lock, since its holder may never go on. It may be a thread that
/// the child of a fork does not have, or the code that a signal handler interrupted.
fn is_without_locks(error: &CallError) -> bool {
    matches!(error.reason(), CallErrorKind::Forked | CallErrorKind::Reentrant)
}

/// Returns pages to a pool. They stay in `frames` if it refuses them.
fn put_all(pool: Handle<dyn PagePool>, frames: &mut Vec<Frame>) -> Result<(), CallError> {
    pool.__call_action("put_batch", PutAll(frames), returns_in!("put_batch"))
}

/// A call of `put_batch` with these pages.
struct PutAll<'a>(&'a mut Vec<Frame>);

impl Action<dyn PagePool, Result<(), CallError>> for PutAll<'_> {
    fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, dyn PagePool>) -> Result<(), CallError> {
        hit.target().put_batch(mem::take(self.0));
        Ok(())
    }
}

/// The free list and the tables of one VP.
pub(super) struct Place {
    node: usize,
    /// The kernel's number of that node, if new chunks are to prefer its memory.
    memory: Option<usize>,
    inner: CachePadded<VpLock<Inner>>,
}

#[derive(Default)]
struct Inner {
    /// Free pages of this node. The last one is next.
    near: Vec<Frame>,
    /// Free pages of other nodes.
    away: Vec<Frame>,
    /// Users and pools below, each with the number of its attachments.
    users: BTreeMap<Handle<dyn PageUser>, usize>,
    pools: BTreeMap<Handle<dyn PagePool>, usize>,
}

/// The calls that move pages between lists, or from the supply to a list.
#[derive(Default)]
struct Moves {
    /// Number of such calls now.
    moving: AtomicUsize,
    /// Number of such calls that ended and had pages.
    moved: AtomicUsize,
}

/// A call that moves pages, until it is dropped.
struct Moving<'a>(&'a Moves);

impl Moves {
    fn begin(&self) -> Moving<'_> {
        // AcqRel: the locks that the call takes then order this before its removals.
        self.moving.fetch_add(1, Ordering::AcqRel);
        Moving(self)
    }
}

impl Moving<'_> {
    /// Ends the call. `had_pages`: pages have moved.
    fn end(self, had_pages: bool) {
        if had_pages {
            // Release, and before the end: a thread that sees the end sees this, too.
            self.0.moved.fetch_add(1, Ordering::Release);
        }
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire of `take_slowly`, which then sees `moved` and the lists.
        self.0.moving.fetch_sub(1, Ordering::Release);
    }
}

/// An entry of a table.
#[derive(Clone, Copy)]
pub(super) enum Member {
    User(Handle<dyn PageUser>),
    Pool(Handle<dyn PagePool>),
}

impl Member {
    /// Returns the VP that is the home of the member's id.
    fn home(self) -> Option<Vp> {
        tables::home_of(match self {
            Member::User(user) => Handle::id(user),
            Member::Pool(pool) => Handle::id(pool),
        })
    }
}

impl Inner {
    fn attach(&mut self, member: Member, times: usize) {
        *match member {
            Member::User(user) => self.users.entry(user).or_default(),
            Member::Pool(pool) => self.pools.entry(pool).or_default(),
        } += times;
    }

    /// Detaches a member once. Returns `false` if it is not in this table.
    fn detach(&mut self, member: Member) -> bool {
        fn count_down<K: Ord>(table: &mut BTreeMap<K, usize>, key: K) -> bool {
            let Some(times) = table.get_mut(&key) else { return false };
            *times -= 1;
            if *times == 0 {
                table.remove(&key);
            }
            true
        }
        match member {
            Member::User(user) => count_down(&mut self.users, user),
            Member::Pool(pool) => count_down(&mut self.pools, pool),
        }
    }

    /// Takes all members out.
    fn take_members(&mut self) -> Vec<(Member, usize)> {
        let users = mem::take(&mut self.users).into_iter().map(|(user, times)| (Member::User(user), times));
        let pools = mem::take(&mut self.pools).into_iter().map(|(pool, times)| (Member::Pool(pool), times));
        users.chain(pools).collect()
    }

    /// Takes up to `max` pages, those of this node first.
    fn take(&mut self, max: usize, into: &mut Vec<Frame>) {
        for list in [&mut self.near, &mut self.away] {
            let kept = list.len().saturating_sub(max.saturating_sub(into.len()));
            into.extend(list.drain(kept..));
        }
    }
}

impl Place {
    /// Takes a page of this place's node, if there is one here.
    #[inline]
    pub(super) fn take(&self) -> Option<Frame> {
        self.inner.lock().near.pop()
    }
}

impl Lists {
    pub(super) fn new(supply: Supply) -> Lists {
        let nodes = machine().clusters(ClusterSize::Node).len().max(1);
        Lists {
            places: (0..machine().vp_limit()).map(|_| OnceLock::new()).collect(),
            overflow: (0..nodes).map(|_| CachePadded::new(Mutex::default())).collect(),
            supply,
            moves: CachePadded::new(Moves::default()),
            is_wide: AtomicBool::new(false),
            attributes: Attribute::ALL.map(|attribute| AtomicUsize::new(attribute.default_value())),
        }
    }

    #[inline]
    pub(super) fn place(&self, place: usize) -> &Place {
        let slot = &self.places[place];
        slot.get().unwrap_or_else(|| slot.get_or_init(|| Box::new(self.make_place(place))))
    }

    #[cold]
    fn make_place(&self, place: usize) -> Place {
        let vp = Vp::new(place as u32);
        let nodes = machine().clusters(ClusterSize::Node);
        let node = nodes.get(vp).map_or(0, |node| node.index()).min(self.overflow.len() - 1);
        let number = machine().topology().node_number(vp).filter(|_| nodes.len() > 1);
        Place {
            node,
            memory: number.map(|number| number as usize),
            inner: CachePadded::new(VpLock::new(vp, Inner::default())),
        }
    }

    /// Returns the places that exist.
    fn existing(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter_map(OnceLock::get).map(|place| &**place)
    }

    fn overflow(&self, node: usize) -> MutexGuard<'_, Vec<Frame>> {
        lock(&self.overflow[node], "an overflow list of pages")
    }

    #[inline]
    pub(super) fn attribute(&self, attribute: Attribute) -> usize {
        // Relaxed, both: no order is promised.
        self.attributes[attribute as usize].load(Ordering::Relaxed)
    }

    pub(super) fn set_attribute(&self, attribute: Attribute, value: usize) {
        self.attributes[attribute as usize].store(value, Ordering::Relaxed);
    }

    fn batch(&self) -> usize {
        self.attribute(Attribute::Batch).max(1)
    }

    /// Takes a page. On failure returns the pool that is short of pages. `own` is the caller's handle.
    #[inline]
    pub(super) fn take(&self, at: usize, own: Handle<dyn PagePool>) -> Result<Frame, Handle<dyn PagePool>> {
        let place = self.place(at);
        match place.take() {
            Some(frame) => Ok(frame),
            None => self.take_slowly(place, own),
        }
    }

    /// Takes up to `max` pages. Calls no other object than the parent.
    pub(super) fn take_batch(&self, at: usize, max: usize, own: Handle<dyn PagePool>) -> Vec<Frame> {
        let place = self.place(at);
        let mut frames = Vec::new();
        while frames.len() < max {
            place.inner.lock().take(max, &mut frames);
            if frames.len() == max {
                break;
            }
            let Ok(frame) = self.take_slowly(place, own) else { break };
            frames.push(frame);
        }
        frames
    }

    #[cold]
    #[inline(never)]
    fn take_slowly(&self, place: &Place, own: Handle<dyn PagePool>) -> Result<Frame, Handle<dyn PagePool>> {
        let mut tries = 0;
        loop {
            // Acquire, all three: pair with the Release of `Moving` (I4).
            let moved = self.moves.moved.load(Ordering::Acquire);
            let moving = self.moves.begin();
            let taken = self.search(place, own);
            moving.end(taken.is_ok());
            let is_still = || {
                self.moves.moving.load(Ordering::Acquire) == 0
                    // Acquire: pairs with the Release of `Moving`.
                    && self.moves.moved.load(Ordering::Acquire) == moved
            };
            if taken.is_ok() || is_still() {
                return taken;
            }
            tries += 1;
            recheck::wait(tries);
        }
    }

    /// Looks for a page wherever there may be one.
    fn search(&self, place: &Place, own: Handle<dyn PagePool>) -> Result<Frame, Handle<dyn PagePool>> {
        let batch = self.batch();
        let some_of = |node: usize| {
            let mut list = self.overflow(node);
            let kept = list.len().saturating_sub(batch);
            list.split_off(kept)
        };
        if let Some(frame) = self.keep_all_but_one(place, some_of(place.node)) {
            return Ok(frame);
        }
        let short = match self.fetch(place, own) {
            Ok(frames) => match self.keep_all_but_one(place, frames) {
                Some(frame) => return Ok(frame),
                None => own,
            },
            Err(short) => short,
        };
        // Pages that are free, but elsewhere.
        if let Some(frame) = place.inner.lock().away.pop() {
            return Ok(frame);
        }
        for node in 0..self.overflow.len() {
            if let Some(frame) = self.keep_all_but_one(place, some_of(node)) {
                return Ok(frame);
            }
        }
        for other in self.existing() {
            let mut frames = Vec::new();
            {
                let mut inner = other.inner.lock();
                let half = (inner.near.len() + inner.away.len()).div_ceil(2);
                inner.take(half.min(batch), &mut frames);
            }
            if let Some(frame) = self.keep_all_but_one(place, frames) {
                return Ok(frame);
            }
        }
        Err(short)
    }

    /// Gets a chunk of pages from the supply: empty if the limit of this pool is reached, an error with the
    /// pool above that is short.
    fn fetch(&self, place: &Place, own: Handle<dyn PagePool>) -> Result<Vec<Frame>, Handle<dyn PagePool>> {
        let chunk = self.attribute(Attribute::Chunk).clamp(1, CHUNK_FRAMES);
        match &self.supply {
            Supply::System(source) => Ok(source.chunk(chunk, place.node as u32, place.memory)),
            Supply::Pool(parent) => parent.fetch(chunk, own),
        }
    }

    /// Keeps pages in this place, except for one, which it returns.
    fn keep_all_but_one(&self, place: &Place, mut frames: Vec<Frame>) -> Option<Frame> {
        let frame = frames.pop()?;
        self.keep(place, frames);
        Some(frame)
    }

    /// Returns a page to the free list of a place.
    #[inline]
    pub(super) fn put(&self, place: &Place, frame: Frame) {
        let mut inner = place.inner.lock();
        if self.is_near(place, &frame) {
            inner.near.push(frame);
        } else {
            inner.away.push(frame);
        }
        if !self.is_full(&inner) {
            return;
        }
        let moving = self.moves.begin();
        let surplus = self.surplus(&mut inner);
        drop(inner);
        self.spill(surplus);
        moving.end(true);
    }

    /// Returns several pages.
    pub(super) fn put_batch(&self, at: usize, frames: Vec<Frame>) {
        self.keep(self.place(at), frames);
    }

    /// Returns whether a page belongs to `near` of this place.
    #[inline]
    fn is_near(&self, place: &Place, frame: &Frame) -> bool {
        // With one node, the label need not be read.
        self.overflow.len() == 1 || !self.is_wide() || frame.label() as usize == place.node
    }

    #[inline]
    fn is_wide(&self) -> bool {
        // Relaxed: both values are right at any time.
        self.is_wide.load(Ordering::Relaxed)
    }

    /// Returns whether a list is too long.
    #[inline]
    fn is_full(&self, inner: &Inner) -> bool {
        (inner.near.len() > self.attribute(Attribute::Threshold) || inner.away.len() >= self.batch())
            && self.is_wide()
    }

    fn keep(&self, place: &Place, frames: Vec<Frame>) {
        if frames.is_empty() {
            return;
        }
        let (near, away): (Vec<_>, Vec<_>) = frames.into_iter().partition(|frame| self.is_near(place, frame));
        let mut inner = place.inner.lock();
        inner.near.extend(near);
        inner.away.extend(away);
        let moving = self.moves.begin();
        let mut surplus = Vec::new();
        while self.is_full(&inner) {
            surplus.append(&mut self.surplus(&mut inner));
        }
        drop(inner);
        let had_pages = !surplus.is_empty();
        self.spill(surplus);
        moving.end(had_pages);
    }

    /// Takes a batch out of a list that is too long: the pages that have lain there longest.
    #[cold]
    fn surplus(&self, inner: &mut Inner) -> Vec<Frame> {
        let batch = self.batch();
        if inner.away.len() >= batch {
            return mem::take(&mut inner.away);
        }
        let count = batch.min(inner.near.len());
        inner.near.drain(..count).collect()
    }

    /// Moves pages to the overflow lists of their nodes.
    #[cold]
    fn spill(&self, mut surplus: Vec<Frame>) {
        let last = self.overflow.len() - 1;
        for node in 0..=last {
            let mut here: Vec<Frame> = if last == 0 {
                mem::take(&mut surplus)
            } else {
                surplus.extract_if(.., |frame| (frame.label() as usize).min(last) == node).collect()
            };
            if !here.is_empty() {
                self.overflow(node).append(&mut here);
            }
        }
    }

    /// Takes up to `max` free pages of any place.
    fn take_free(&self, max: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        for node in 0..self.overflow.len() {
            let mut list = self.overflow(node);
            let kept = list.len().saturating_sub(max - frames.len());
            frames.extend(list.drain(kept..));
        }
        for place in self.existing() {
            if frames.len() >= max {
                break;
            }
            place.inner.lock().take(max, &mut frames);
        }
        frames
    }

    /// Gives up to `wanted` free pages back to the supply, and returns their number.
    pub(super) fn give_up(&self, wanted: usize) -> usize {
        let frames = self.take_free(wanted);
        let count = frames.len();
        match &self.supply {
            Supply::System(_) => drop(frames),
            Supply::Pool(parent) => parent.give_back(frames),
        }
        count
    }

    /// Returns the number of pages that the supply has given.
    pub(super) fn used(&self) -> usize {
        match &self.supply {
            Supply::System(source) => source.used(),
            Supply::Pool(parent) => parent.used.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of free pages.
    pub(super) fn free(&self) -> usize {
        let overflow: usize = (0..self.overflow.len()).map(|node| self.overflow(node).len()).sum();
        let free = |place: &Place| {
            let inner = place.inner.lock();
            inner.near.len() + inner.away.len()
        };
        overflow + self.existing().map(free).sum::<usize>()
    }

    pub(super) fn parent(&self) -> Option<Handle<dyn PagePool>> {
        match &self.supply {
            Supply::System(_) => None,
            Supply::Pool(parent) => Some(parent.pool),
        }
    }

    /// Attaches this pool, of which `own` is the handle, to its parent.
    pub(super) fn attach_to_parent(&self, own: Handle<dyn PagePool>) {
        if let Supply::Pool(parent) = &self.supply {
            parents().insert(own, parent.clone());
            parent.own.get_or_init(|| own);
            parent.pool.attach_pool(own);
        }
    }

    pub(super) fn max(&self) -> usize {
        match &self.supply {
            Supply::System(source) => source.max(),
            Supply::Pool(parent) => parent.max.load(Ordering::Relaxed),
        }
    }

    pub(super) fn set_max(&self, max: usize) {
        match &self.supply {
            Supply::System(source) => source.set_max(max),
            Supply::Pool(parent) => parent.max.store(max, Ordering::Relaxed),
        }
    }

    /// Attaches a member: to the table of its home, or of the only place.
    pub(super) fn attach(&self, only: Option<usize>, member: Member) {
        self.table_of(only, member).inner.lock().attach(member, 1);
    }

    /// Detaches a member.
    pub(super) fn detach(&self, only: Option<usize>, member: Member) {
        let table = self.table_of(only, member);
        let detach = |place: &Place| place.inner.lock().detach(member);
        // It is in another table if a form with other tables was swapped in or out. `gather` may move it to
        // this one meanwhile, so the last look is here again.
        let _ = detach(table) || self.existing().any(detach) || detach(table);
    }

    fn table_of(&self, only: Option<usize>, member: Member) -> &Place {
        let home = || member.home().map_or(0, Vp::index);
        self.place(only.unwrap_or_else(home))
    }

    /// Returns the members in the table of one place, empty beyond the last place.
    pub(super) fn members(&self, at: usize) -> Option<Members> {
        let place = self.places.get(at)?.get();
        Some(place.map_or_else(Members::default, |place| {
            let inner = place.inner.lock();
            Members {
                users: inner.users.keys().copied().collect(),
                pools: inner.pools.keys().copied().collect(),
            }
        }))
    }

    /// Moves free pages and members of all places to one, for a form with one representative.
    pub(super) fn gather(&self, at: usize) {
        let to = self.place(at);
        // First: from here on no list is too long.
        self.is_wide.store(false, Ordering::Relaxed);
        // With both locks held, so that a member is in one table at any time. No other function nests them,
        // except for calls of this one, which have the same `to`.
        let mut inner = to.inner.lock();
        for from in self.existing().filter(|from| !std::ptr::eq(*from, to)) {
            let mut from = from.inner.lock();
            inner.near.append(&mut from.near);
            inner.near.append(&mut from.away);
            from.take_members().into_iter().for_each(|(member, times)| inner.attach(member, times));
        }
    }

    /// Moves members to the tables of their homes, and surplus pages to the overflow lists, for a form with
    /// several representatives.
    pub(super) fn scatter(&self) {
        self.is_wide.store(true, Ordering::Relaxed);
        for from in self.existing() {
            let (frames, members) = {
                let mut inner = from.inner.lock();
                (mem::take(&mut inner.near), inner.take_members())
            };
            self.keep(from, frames);
            for (member, times) in members {
                self.table_of(None, member).inner.lock().attach(member, times);
            }
        }
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        let Supply::Pool(parent) = &self.supply else { return };
        if let Some(own) = parent.own.get() {
            // A parent that was destroyed has no table.
            let detached = parent.pool.try_detach_pool(*own);
            if detached.is_err_and(|error| is_without_locks(&error)) {
                return;
            }
        }
        parent.give_back(self.take_free(usize::MAX));
        if let Some(own) = parent.own.get() {
            parent.end(*own);
        }
    }
}

impl Supply {
    pub(super) fn system(max: usize) -> Supply {
        Supply::System(Arc::new(Source::new(max)))
    }

    pub(super) fn pool(pool: Handle<dyn PagePool>, max: usize) -> Supply {
        let (used, max) = (CachePadded::new(AtomicUsize::new(0)), AtomicUsize::new(max));
        Supply::Pool(Arc::new(Parent {
            pool,
            used,
            max,
            own: OnceLock::new(),
            has_ended: AtomicBool::new(false),
        }))
    }
}

impl Parent {
    fn fetch(&self, chunk: usize, own: Handle<dyn PagePool>) -> Result<Vec<Frame>, Handle<dyn PagePool>> {
        let mut counted = Counted { parent: self, count: 0 };
        // Relaxed, here and below: the word guards no other data.
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            counted.count = chunk.min(self.max.load(Ordering::Relaxed).saturating_sub(used));
            Some(used + counted.count)
        });
        if counted.count == 0 {
            return Ok(Vec::new());
        }
        let mut frames = match self.pool.try_take() {
            Ok(Ok(frame)) => vec![frame],
            Ok(Err(short)) => return Err(short),
            // A pool whose parent was destroyed gets no more pages.
            Err(_) => return Err(own),
        };
        frames.extend(self.pool.try_take_batch(counted.count - 1).unwrap_or_default());
        counted.count = counted.count.saturating_sub(frames.len());
        Ok(frames)
    }

    fn give_back(&self, mut frames: Vec<Frame>) {
        let count = frames.len();
        if count > 0 {
            if let Err(error) = put_all(self.pool, &mut frames) {
                return_above(self.pool, error, frames);
            }
            self.uncount(count);
        }
    }

    /// Counts pages as lent no longer. If pages strayed between pools, more may come back than are counted.
    fn uncount(&self, count: usize) {
        let _ = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| Some(used.saturating_sub(count)));
    }

    /// Ends the pool of this handle.
    fn end(&self, own: Handle<dyn PagePool>) {
        let mut parents = parents();
        self.has_ended.store(true, Ordering::Relaxed);
        self.remove_if_unused(own, &mut parents);
    }

    /// Forgets the parent of a pool that has ended, if that was its last page.
    fn forget_if_ended(&self, own: Handle<dyn PagePool>) {
        self.remove_if_unused(own, &mut parents());
    }

    fn remove_if_unused(
        &self,
        own: Handle<dyn PagePool>,
        parents: &mut BTreeMap<Handle<dyn PagePool>, Arc<Parent>>,
    ) {
        if self.has_ended.load(Ordering::Relaxed) && self.used.load(Ordering::Relaxed) == 0 {
            parents.remove(&own);
        }
    }
}

/// Pages that are counted as lent, and did not come. Dropped, it ends that.
struct Counted<'a> {
    parent: &'a Parent,
    count: usize,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.parent.uncount(self.count);
    }
}
