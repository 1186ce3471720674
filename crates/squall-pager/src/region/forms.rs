//! The object of a region: a body, and an admission that depends on the form.

use squall_core::swap::{Format, RootFormats};
use squall_core::{Cleanup, Handle, Miss, MissAnswer, Owned, RepContext, Root};
use squall_objects::misses::Misses;
use squall_rcu::Guard;
use std::sync::{Arc, OnceLock};

use super::admission::Admission;
use super::body::Body;
use super::{Region, Rights, SharedCache};
use crate::cache::{Access, FileCache, Located, Resident};
use crate::error::PageFault;

/// Root.
pub(super) struct Mapped<A: Admission, const ADAPTS: bool> {
    admission: A,
    /// Empty until a swap moves it in.
    body: OnceLock<Arc<Body>>,
    misses: Misses,
}

/// Representative. The body is the full one of K42, and the admission of this processor is its proxy (CO-50).
/// The alignment prevents false sharing with neighbours in memory, which belong to other processors.
#[repr(align(128))]
pub(super) struct Local<A: Admission, const ADAPTS: bool> {
    admission: A::Local,
    body: Arc<Body>,
    at: RepContext<Mapped<A, ADAPTS>>,
}

/// State that a swap moves.
struct Moved(Arc<Body>);

impl Format for Moved {}

impl<A: Admission, const ADAPTS: bool> Mapped<A, ADAPTS> {
    pub(super) fn new(body: Option<Body>) -> Mapped<A, ADAPTS> {
        let body = body.map(|body| OnceLock::from(Arc::new(body))).unwrap_or_default();
        Mapped { admission: A::new(), body, misses: Misses::default() }
    }
}

impl<A: Admission, const ADAPTS: bool> Root for Mapped<A, ADAPTS> {
    type Interface = dyn Region;
    type Rep = Local<A, ADAPTS>;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn make_rep(&self, at: RepContext<Self>) -> Local<A, ADAPTS> {
        self.misses.set_id(Handle::id(at.handle()));
        let body =
            self.body.get().expect("a representative was made before the mapping had moved in").clone();
        Local { admission: self.admission.local(at.vp()), body, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.body.get().is_none() {
            return miss.refuse("no mapping moved in; repeat the swap with its state");
        }
        let rep = miss.local();
        if !ADAPTS || A::IS_WIDE || self.misses.note(miss.vp()) { rep.cached() } else { rep.once() }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|object| {
                let body = object.root().body.get();
                Ok(Moved(body.ok_or("the region has no mapping: no swap moved its state in")?.clone()))
            })
            .import(|object, state: Moved| {
                let root = object.root();
                if state.0.is_closed() {
                    // No fault is inside a new admission.
                    let _ = root.admission.shut_down();
                }
                let again = "the replacement already has a mapping; make a new one for each swap";
                Ok(root.body.set(state.0).map_err(|_| again)?)
            });
    }
}

impl<A: Admission, const ADAPTS: bool> Region for Local<A, ADAPTS> {
    #[inline]
    fn find<'o>(&self, guard: &'o Guard, offset: u64) -> Option<Resident<'o>> {
        self.body.find(&self.at.root().admission, &self.admission, guard, offset)
    }

    fn fault(&self, offset: u64, access: Access) -> Result<Located, PageFault> {
        self.body.fault(&self.at.root().admission, &self.admission, offset, access)
    }

    fn read_ahead(&self, offset: u64) -> bool {
        self.body.read_ahead(&self.at.root().admission, &self.admission, offset)
    }

    fn truncate(&self, bytes: u64) -> Result<(), PageFault> {
        self.body.truncate(&self.at.root().admission, bytes)
    }

    fn copy(
        &self,
        copies: &mut dyn FnMut(SharedCache) -> [Owned<dyn FileCache>; 2],
    ) -> Result<SharedCache, PageFault> {
        self.body.copy(&self.at.root().admission, copies)
    }

    fn unmap(&self) -> Result<(), PageFault> {
        self.body.unmap(&self.at.root().admission)
    }

    fn is_unmapped(&self) -> bool {
        self.body.is_unmapped()
    }

    fn start(&self) -> u64 {
        self.body.start()
    }

    fn len(&self) -> u64 {
        self.body.len()
    }

    fn first_page(&self) -> u64 {
        self.body.first_page()
    }

    fn rights(&self) -> Rights {
        self.body.rights()
    }

    fn cache(&self) -> SharedCache {
        self.body.cache()
    }
}
