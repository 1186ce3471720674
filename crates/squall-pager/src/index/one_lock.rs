//! One hash table under one lock: the form for a cache that one processor uses.

use foldhash::fast::FixedState;
use squall_rcu::Guard;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use super::{Index, Lookup, Position, Reservation};
use crate::error::PageFault;
use crate::slot::{Entry, Slot};

/// The largest number of entries that a visit reads under one holding of the lock.
const VISITED: usize = 64;

/// The state of a page with an entry.
enum State {
    Present(Entry),
    /// A caller fills the page. It leaves its error here.
    Filling(Arc<OnceLock<PageFault>>),
}

#[derive(Default)]
struct Table {
    places: HashMap<u64, usize, FixedState>,
    /// Pages by place, so that a walk can go on where it stopped.
    pages: Vec<Option<(u64, State)>>,
    free: Vec<usize>,
}

impl Table {
    fn get(&self, number: u64) -> Option<&State> {
        let place = *self.places.get(&number)?;
        self.pages[place].as_ref().map(|(_, state)| state)
    }

    /// Sets the state of a page, or removes it. Returns the former state, to be dropped without the lock.
    fn set(&mut self, number: u64, state: Option<State>) -> Option<State> {
        let place = self.places.get(&number).copied();
        match (place, state) {
            (None, None) => None,
            (Some(place), Some(state)) => self.pages[place].replace((number, state)).map(|(_, state)| state),
            (Some(place), None) => {
                self.places.remove(&number);
                self.free.push(place);
                self.pages[place].take().map(|(_, state)| state)
            }
            (None, Some(state)) => {
                let place = self.free.pop().unwrap_or_else(|| {
                    self.pages.push(None);
                    self.pages.len() - 1
                });
                self.places.insert(number, place);
                self.pages[place] = Some((number, state));
                None
            }
        }
    }
}

#[derive(Default)]
struct Inner {
    table: Mutex<Table>,
    filled: Condvar,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The index. Reservations keep its table.
#[derive(Default)]
pub(crate) struct OneLock(Arc<Inner>);

struct Reserved {
    inner: Arc<Inner>,
    number: u64,
    error: Arc<OnceLock<PageFault>>,
    has_ended: bool,
}

impl Reserved {
    fn end(&mut self, state: Option<State>) {
        self.has_ended = true;
        let former = self.inner.lock().set(self.number, state);
        self.inner.filled.notify_all();
        drop(former);
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(None);
        }
    }
}

impl Reservation for Reserved {
    fn fill(mut self: Box<Self>, entry: Entry) -> Result<(), Entry> {
        self.end(Some(State::Present(entry)));
        Ok(())
    }

    fn fail(mut self: Box<Self>, error: PageFault) {
        // At most one call for each reservation.
        let _ = self.error.set(error);
        self.end(None);
    }
}

impl Index for OneLock {
    type Local = ();
    const IS_WIDE: bool = false;

    fn local(&self) {}

    #[inline]
    fn find<'o>(&self, (): &(), guard: &'o Guard, number: u64) -> Option<&'o Slot> {
        match self.0.lock().get(number) {
            Some(State::Present(entry)) => Some(entry.lend(guard)),
            Some(State::Filling(_)) | None => None,
        }
    }

    fn reserve(&self, (): &(), number: u64, wait: bool) -> Result<Lookup, PageFault> {
        let mut table = self.0.lock();
        let waited_for = match table.get(number) {
            Some(State::Present(entry)) => return Ok(Lookup::Found(entry.to_arc())),
            Some(State::Filling(_)) if !wait => return Ok(Lookup::Busy),
            Some(State::Filling(error)) => Some(error.clone()),
            None => None,
        };
        if let Some(error) = waited_for {
            let is_filled = |table: &Table| match table.get(number) {
                Some(State::Filling(other)) => !Arc::ptr_eq(other, &error),
                Some(State::Present(_)) | None => true,
            };
            while !is_filled(&table) {
                table = self.0.filled.wait(table).unwrap_or_else(PoisonError::into_inner);
            }
            if let Some(error) = error.get() {
                return Err(error.clone());
            }
            drop(table);
            return self.reserve(&(), number, wait);
        }
        let error = Arc::new(OnceLock::new());
        table.set(number, Some(State::Filling(error.clone())));
        Ok(Lookup::Reserved(Box::new(Reserved { inner: self.0.clone(), number, error, has_ended: false })))
    }

    fn insert(&self, number: u64, entry: Entry) {
        let former = self.0.lock().set(number, Some(State::Present(entry)));
        drop(former);
    }

    fn remove(&self, slot: &Slot) -> bool {
        let mut table = self.0.lock();
        let is_same = matches!(table.get(slot.number()), Some(State::Present(entry)) if entry.is(slot));
        let former = if is_same { table.set(slot.number(), None) } else { None };
        drop(table);
        // The last share of a slot may return its page to a pool.
        drop(former);
        is_same
    }

    fn visit(&self, from: Position, f: &mut dyn FnMut(u64, &Entry)) -> Option<Position> {
        let (found, next) = {
            let table = self.0.lock();
            let end = (from.within as usize).saturating_add(VISITED).min(table.pages.len());
            let pages = table.pages.get(from.within as usize..end).unwrap_or_default();
            let present = pages.iter().flatten().filter_map(|(number, state)| match state {
                State::Present(entry) => Some((*number, entry.clone())),
                State::Filling(_) => None,
            });
            (
                Vec::from_iter(present),
                (end < table.pages.len()).then_some(Position { within: end as u64, ..from }),
            )
        };
        found.iter().for_each(|(number, entry)| f(*number, entry));
        next
    }

    fn len(&self) -> usize {
        self.0.lock().places.len()
    }
}
