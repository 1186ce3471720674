//! The distributed hash table as an index, in two forms.
//!
//! [`Replicated`]: a local table in each representative. A second lookup of a page by a representative writes
//! no shared memory. The first lookup of a page costs it a replica, so the form is for pages that are used
//! again and again on several processors.
//!
//! [`Partitioned`]: several master tables, without local ones. Neighbouring pages are in one partition. The
//! form is for pages that each processor touches apart from the others.
//!
//! Source: Appavoo 2005, §4.1.4, Fig 4.16 to 4.18 (CO-63, CO-64); Unrau et al. 1995 (HU-14, HU-15): the
//! master is the page directory, and a replica is the local stand-in for a page.

use foldhash::fast::FixedState;
use squall_parts::dhash::{self, LocalTable, MasterTable};
use squall_rcu::Guard;

use super::{Index, Lookup, Position, Reservation};
use crate::error::PageFault;
use crate::slot::{Entry, Slot};

type Master = MasterTable<u64, Entry, (), FixedState>;
type Local = LocalTable<u64, Entry, (), FixedState>;
type Reserved = dhash::Reservation<u64, Entry, (), FixedState>;

fn master() -> Master {
    MasterTable::with_hasher(FixedState::default(), |_| ())
}

impl Reservation for Reserved {
    fn fill(self: Box<Self>, entry: Entry) -> Result<(), Entry> {
        dhash::Reservation::fill(*self, entry).map_err(|revoked| revoked.0)
    }

    fn fail(self: Box<Self>, error: PageFault) {
        dhash::Reservation::fail(*self, error);
    }
}

/// Translates the answer of the table. An error is that of the caller that filled the page.
fn answer(
    found: Result<dhash::Lookup<std::sync::Arc<Slot>, Reserved>, dhash::FillError>,
) -> Result<Lookup, PageFault> {
    match found {
        Ok(dhash::Lookup::Found(slot)) => Ok(Lookup::Found(slot)),
        Ok(dhash::Lookup::Empty(reserved)) => Ok(Lookup::Reserved(Box::new(reserved))),
        Err(error) => Err(error.inner().downcast_ref().cloned().expect("only `fail` above passes errors")),
    }
}

/// Removes the slot. Never waits for a caller that fills the page: its slot is another one.
fn remove(table: &Master, slot: &Slot) -> bool {
    let number = slot.number();
    if table.read(&number, |entry| entry.is(slot)) != Some(true) {
        return false;
    }
    let found = table.try_find_or_reserve(&number, |element| {
        let is_same = element.global().is(slot);
        if is_same {
            element.empty_data();
        }
        is_same
    });
    // A reservation that this made is withdrawn by its drop.
    matches!(found, Ok(dhash::Lookup::Found(true)))
}

/// A master table with local tables.
pub(crate) struct Replicated(Master);

impl Replicated {
    pub(crate) fn new() -> Replicated {
        Replicated(master())
    }
}

impl Index for Replicated {
    type Local = Local;
    const IS_WIDE: bool = true;

    fn local(&self) -> Local {
        self.0.local()
    }

    #[inline]
    fn find<'o>(&self, local: &Local, guard: &'o Guard, number: u64) -> Option<&'o Slot> {
        local.read(&number, |entry| entry.lend(guard))
    }

    fn reserve(&self, local: &Local, number: u64, wait: bool) -> Result<Lookup, PageFault> {
        if wait {
            answer(local.find_or_reserve(&number, |entry, ()| entry.to_arc()))
        } else {
            match local.try_find_or_reserve(&number, |entry, ()| entry.to_arc()) {
                Ok(found) => answer(Ok(found)),
                Err(dhash::Busy) => Ok(Lookup::Busy),
            }
        }
    }

    fn insert(&self, number: u64, entry: Entry) {
        self.0.find_or_allocate_and_lock(&number, || entry, |_, _| ());
    }

    fn remove(&self, slot: &Slot) -> bool {
        remove(&self.0, slot)
    }

    fn visit(&self, from: Position, f: &mut dyn FnMut(u64, &Entry)) -> Option<Position> {
        let next = self.0.visit_from(from.within, |number, entry| f(*number, entry));
        next.map(|within| Position { within, ..from })
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// Several master tables. The number of a page, without its last bits, chooses one.
pub(crate) struct Partitioned {
    tables: Box<[Master]>,
    /// Pages of the same `number >> shift` are in one partition.
    shift: u32,
}

impl Partitioned {
    pub(crate) fn new(partitions: usize, shift: u32) -> Partitioned {
        let tables = (0..partitions.max(1)).map(|_| master()).collect();
        Partitioned { tables, shift: shift.min(u64::BITS - 1) }
    }

    #[inline]
    fn table(&self, number: u64) -> &Master {
        &self.tables[((number >> self.shift) % self.tables.len() as u64) as usize]
    }
}

impl Index for Partitioned {
    type Local = ();
    const IS_WIDE: bool = true;

    fn local(&self) {}

    #[inline]
    fn find<'o>(&self, (): &(), guard: &'o Guard, number: u64) -> Option<&'o Slot> {
        self.table(number).read(&number, |entry| entry.lend(guard))
    }

    fn reserve(&self, (): &(), number: u64, wait: bool) -> Result<Lookup, PageFault> {
        let table = self.table(number);
        if wait {
            answer(table.find_or_reserve(&number, |element| element.global().to_arc()))
        } else {
            match table.try_find_or_reserve(&number, |element| element.global().to_arc()) {
                Ok(found) => answer(Ok(found)),
                Err(dhash::Busy) => Ok(Lookup::Busy),
            }
        }
    }

    fn insert(&self, number: u64, entry: Entry) {
        self.table(number).find_or_allocate_and_lock(&number, || entry, |_, _| ());
    }

    fn remove(&self, slot: &Slot) -> bool {
        remove(self.table(slot.number()), slot)
    }

    fn visit(&self, from: Position, f: &mut dyn FnMut(u64, &Entry)) -> Option<Position> {
        let table = self.tables.get(from.part)?;
        match table.visit_from(from.within, |number, entry| f(*number, entry)) {
            Some(within) => Some(Position { within, ..from }),
            None => {
                (from.part + 1 < self.tables.len()).then_some(Position { part: from.part + 1, within: 0 })
            }
        }
    }

    fn len(&self) -> usize {
        self.tables.iter().map(MasterTable::len).sum()
    }
}
