//! Implementation of all forms: views of one set of lists. The forms differ in the place that a call uses.
//!
//! There is one class for a single representative and one for several, so that a policy can tell them apart.

use squall_adapt::family::is_reading;
use squall_core::swap::{Format, RootFormats};
use squall_core::{Cleanup, Handle, Miss, MissAnswer, RepContext, Root};
use squall_machine::{Cluster, Vp, machine};
use squall_sys::frame::Frame;
use std::sync::{Arc, OnceLock};

use super::lists::{Lists, Member, Supply};
use super::{Attribute, Members, PagePool, PagePoolView, PageUser};
use crate::misses::Misses;

/// Root. `ADAPTS`: its misses post to the policy. `WIDE`: there is a representative for each calling VP.
pub(super) struct Pool<const ADAPTS: bool, const WIDE: bool> {
    /// Empty until a swap moves the pages in.
    lists: OnceLock<Arc<Lists>>,
    /// In a form that is not wide, all callers use the place of this VP: the first one that calls.
    home: OnceLock<Vp>,
    misses: Misses,
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors.
#[repr(align(128))]
pub(super) struct Local {
    lists: Arc<Lists>,
    place: usize,
    /// Whether all callers use this place.
    is_only: bool,
    own: Handle<dyn PagePool>,
}

/// State that a swap moves: the lists and tables, shared.
struct Moved(Arc<Lists>);

impl Format for Moved {}

impl<const ADAPTS: bool, const WIDE: bool> Pool<ADAPTS, WIDE> {
    pub(super) fn new(lists: Arc<Lists>) -> Pool<ADAPTS, WIDE> {
        if WIDE {
            lists.scatter();
        }
        Pool { lists: lists.into(), home: Vp::current().into(), misses: Misses::default() }
    }

    /// Makes a pool without pages, as a replacement.
    pub(super) fn vacant() -> Pool<ADAPTS, WIDE> {
        Pool { lists: OnceLock::new(), home: OnceLock::new(), misses: Misses::default() }
    }
}

impl<const ADAPTS: bool, const WIDE: bool> Root for Pool<ADAPTS, WIDE> {
    type Interface = dyn PagePool;
    type Rep = Local;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn view(rep: &Local) -> PagePoolView<'_> {
        PagePoolView { lists: Some((&rep.lists, rep.lists.place(rep.place))) }
    }

    fn make_rep(&self, at: RepContext<Self>) -> Local {
        self.misses.set_id(Handle::id(at.handle()));
        // `handle_miss` refuses calls of a vacant pool, and no part of the state moves alone.
        let lists = self.lists.get().cloned().unwrap_or_else(|| Arc::new(Lists::new(Supply::system(0))));
        let place = if WIDE { at.vp() } else { *self.home.get_or_init(|| at.vp()) }.index();
        if !WIDE {
            lists.gather(place);
        }
        Local { lists, place, is_only: !WIDE, own: at.handle() }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.lists.get().is_none() {
            return miss.refuse("no pages moved in; repeat the swap with its state");
        }
        // A reader of counts is no caller, so no representative is made for it.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        if let Some(any) = is_reading().then(any).flatten() {
            return any.once();
        }
        let rep = miss.local();
        if !ADAPTS || WIDE || self.misses.note(miss.vp()) { rep.cached() } else { rep.once() }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let lists = whole.root().lists.get();
                Ok(Moved(lists.ok_or("the pool has no pages: no swap moved its state in")?.clone()))
            })
            .import(|whole, state: Moved| {
                if WIDE {
                    state.0.scatter();
                }
                let again = "the replacement already has pages; make a new one for each swap";
                Ok(whole.root().lists.set(state.0).map_err(|_| again)?)
            });
    }
}

impl Local {
    /// Returns the place of all members, if there is only one.
    fn only(&self) -> Option<usize> {
        self.is_only.then_some(self.place)
    }
}

impl PagePool for Local {
    #[inline]
    fn take(&self) -> Result<Frame, Handle<dyn PagePool>> {
        self.lists.take(self.place, self.own)
    }

    fn take_batch(&self, max: usize) -> Vec<Frame> {
        self.lists.take_batch(self.place, max, self.own)
    }

    #[inline]
    fn put(&self, frame: Frame) {
        self.lists.put(self.lists.place(self.place), frame);
    }

    fn put_batch(&self, frames: Vec<Frame>) {
        self.lists.put_batch(self.place, frames);
    }

    fn give_up(&self, wanted: usize) -> usize {
        self.lists.give_up(wanted)
    }

    fn attach_user(&self, user: Handle<dyn PageUser>) {
        self.lists.attach(self.only(), Member::User(user));
    }

    fn detach_user(&self, user: Handle<dyn PageUser>) {
        self.lists.detach(self.only(), Member::User(user));
    }

    fn attach_pool(&self, below: Handle<dyn PagePool>) {
        self.lists.attach(self.only(), Member::Pool(below));
    }

    fn detach_pool(&self, below: Handle<dyn PagePool>) {
        self.lists.detach(self.only(), Member::Pool(below));
    }

    fn members(&self, place: usize) -> Option<Members> {
        self.lists.members(place)
    }

    fn parent(&self) -> Option<Handle<dyn PagePool>> {
        self.lists.parent()
    }

    fn used(&self) -> usize {
        self.lists.used()
    }

    fn free(&self) -> usize {
        self.lists.free()
    }

    fn max_pages(&self) -> usize {
        self.lists.max()
    }

    fn set_max_pages(&self, max: usize) {
        self.lists.set_max(max);
    }

    fn attribute(&self, attribute: Attribute) -> usize {
        self.lists.attribute(attribute)
    }

    fn set_attribute(&self, attribute: Attribute, value: usize) {
        self.lists.set_attribute(attribute, value);
    }
}
