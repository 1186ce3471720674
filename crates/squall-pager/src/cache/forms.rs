//! The object of a file cache: a body, and an index that depends on the form.

use squall_adapt::family::is_reading;
use squall_core::swap::{Format, RootFormats};
use squall_core::{Cleanup, Handle, Miss, MissAnswer, RepContext, Root};
use squall_machine::{Cluster, machine};
use squall_objects::misses::Misses;
use squall_rcu::Guard;
use std::sync::{Arc, OnceLock};

use super::body::Body;
use super::{Access, Attribute, Backing, FileCache, Fill, Located, Resident, Sensors, SharedCache};
use crate::error::PageFault;
use crate::index::{Index, Position};
use crate::replicas::Replicas;
use crate::slot::Entry;
use crate::source::Source;
use crate::writers::LocalWriters;

/// Root.
pub(super) struct Cache<I: Index, const ADAPTS: bool> {
    index: I,
    /// Empty until a swap moves it in.
    body: OnceLock<Arc<Body>>,
    misses: Misses,
}

/// Representative. The alignment prevents false sharing with neighbours in memory, which belong to other
/// processors. The fields that a lookup reads come first, so that they share a line.
#[repr(C, align(128))]
pub(super) struct Local<I: Index, const ADAPTS: bool> {
    /// Empty in a cache without replicas.
    replicas: Option<Arc<Replicas>>,
    at: RepContext<Cache<I, ADAPTS>>,
    index: I::Local,
    body: Arc<Body>,
    writers: Arc<LocalWriters>,
}

/// State that a swap moves.
struct Moved {
    body: Arc<Body>,
    entries: Vec<(u64, Entry)>,
}

impl Format for Moved {}

impl<I: Index, const ADAPTS: bool> Cache<I, ADAPTS> {
    pub(super) fn new(index: I, body: Option<Arc<Body>>) -> Cache<I, ADAPTS> {
        Cache { index, body: body.map(OnceLock::from).unwrap_or_default(), misses: Misses::default() }
    }

    fn entries(&self) -> Vec<(u64, Entry)> {
        let (mut entries, mut from) = (Vec::new(), Some(Position::default()));
        while let Some(at) = from {
            from = self.index.visit(at, &mut |number, entry| entries.push((number, entry.clone())));
        }
        entries
    }
}

impl<I: Index, const ADAPTS: bool> Root for Cache<I, ADAPTS> {
    type Interface = dyn FileCache;
    type Rep = Local<I, ADAPTS>;
    const CLEANUP: Cleanup = Cleanup::Anywhere;

    fn make_rep(&self, at: RepContext<Self>) -> Local<I, ADAPTS> {
        self.misses.set_id(Handle::id(at.handle()));
        let body = self.body.get().expect("a representative was made before the pages had moved in").clone();
        let (writers, replicas) = (body.writers(at.vp()), body.replicas().cloned());
        Local { index: self.index.local(), writers, replicas, body, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.body.get().is_none() {
            return miss.refuse("no pages moved in; repeat the swap with its state");
        }
        // A reader of counts is no caller, so no representative is made for it.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        if let Some(any) = is_reading().then(any).flatten() {
            return any.once();
        }
        let rep = miss.local();
        // The form with many tables posts through the engine's looks alone.
        if !ADAPTS || I::IS_WIDE || self.misses.note(miss.vp()) { rep.cached() } else { rep.once() }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|object| {
                let root = object.root();
                let body = root.body.get().ok_or("the cache has no pages: no swap moved its state in")?;
                Ok(Moved { body: body.clone(), entries: root.entries() })
            })
            .import(|object, state: Moved| {
                let root = object.root();
                root.body
                    .set(state.body)
                    .map_err(|_| "the replacement already has pages; make a new one for each swap")?;
                state.entries.into_iter().for_each(|(number, entry)| root.index.insert(number, entry));
                Ok(())
            });
    }
}

impl<I: Index, const ADAPTS: bool> FileCache for Local<I, ADAPTS> {
    #[inline]
    fn find<'o>(&self, guard: &'o Guard, page: u64) -> Option<Resident<'o>> {
        let find = || self.at.root().index.find(&self.index, guard, page);
        match &self.replicas {
            None => find(),
            Some(replicas) => replicas.find(guard, page, find),
        }
        .map(Resident)
    }

    fn fault(&self, page: u64, access: Access) -> Result<Located, PageFault> {
        let faulted = self.body.fault(&self.at.root().index, &self.index, page, access)?;
        let writing = match access {
            Access::Read => None,
            Access::Write => Some(self.body.write(&self.writers)?),
        };
        Ok(Located { slot: faulted.slot, writing, filled_from: faulted.filled_from })
    }

    fn read_ahead(&self, page: u64) -> bool {
        self.body.read_ahead(&self.at.root().index, &self.index, page)
    }

    fn begin(&self, page: u64) -> Result<Option<Fill>, PageFault> {
        self.body.begin(&self.at.root().index, &self.index, page)
    }

    fn evict(&self, wanted: usize) -> usize {
        self.body.evict(&self.at.root().index, wanted)
    }

    fn sync(&self) -> Result<usize, PageFault> {
        self.body.sync(&self.at.root().index)
    }

    fn set_len(&self, bytes: u64) -> Result<(), PageFault> {
        self.body.set_len(&self.at.root().index, &self.index, &self.writers, bytes)
    }

    fn len(&self) -> u64 {
        self.body.len()
    }

    fn freeze(&self) {
        self.body.freeze(&self.at.root().index);
    }

    fn source(&self) -> Handle<dyn Source> {
        self.body.source()
    }

    fn lender(&self, page: u64) -> Option<SharedCache> {
        self.body.lender(page)
    }

    fn original(&self) -> Option<SharedCache> {
        self.body.original()
    }

    fn backing(&self) -> Backing {
        self.body.backing()
    }

    fn attribute(&self, attribute: Attribute) -> usize {
        self.body.attribute(attribute)
    }

    fn set_attribute(&self, attribute: Attribute, value: usize) {
        self.body.set_attribute(attribute, value);
    }

    fn sensors(&self) -> Sensors {
        self.body.sensors(self.at.root().index.len())
    }
}
