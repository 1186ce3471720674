//! The common part of all implementations: the object whose state it holds, and its planned fault.
//!
//! - I1. An implementation learns its object when it is made, from the imported state, or from the first
//!   call. One that a factory makes in an upgrade cannot know it before.
//! - I2. When it is dropped, it reports its state to the object's record, unless the state has moved.

use std::error::Error;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use squall::CallErrorKind;
use squall::swap::SwapFailure;

use super::arbiters::take_trace;
use super::breaks::Break;
use super::faults::{Fault, FaultCell, MakePanicked, read};
use super::interfaces::Station;
use super::marks::{Marks, Sums};
use super::record::ObjectRecord;
use super::variants;
use super::world::World;
use crate::run::{Rng, lock};
use crate::skeleton::expected_panic::{ExpectedPanic, raise_expected_panic};

/// Sleep of a slow import.
const SLEEP_MS: u64 = 3;
/// With a planned break, one event in this many goes wrong.
const BREAK_ONE_IN: u64 = 64;

/// The object's record, once it is known.
pub(super) type RecordCell = Arc<OnceLock<Arc<ObjectRecord>>>;

pub(super) struct Implementation {
    pub(super) world: &'static World,
    pub(super) number: u64,
    record_cell: RecordCell,
    fault: FaultCell,
    slept: AtomicBool,
    moved: AtomicBool,
    /// Number of live representatives.
    reps: AtomicU64,
    /// The state of the dropped representatives.
    sums: Mutex<Vec<Sums>>,
}

impl Implementation {
    pub(super) fn new(
        world: &'static World,
        record: Option<&Arc<ObjectRecord>>,
        fault: Fault,
    ) -> Implementation {
        let record_cell = RecordCell::default();
        if let Some(record) = record {
            let _ = record_cell.set(Arc::clone(record));
        }
        world.implementations_made.fetch_add(1, Ordering::Relaxed);
        Implementation {
            world,
            number: world.numbers.fetch_add(1, Ordering::Relaxed),
            record_cell,
            fault: FaultCell::new(fault),
            slept: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            reps: AtomicU64::new(0),
            sums: Mutex::default(),
        }
    }

    pub(super) fn record_cell(&self) -> RecordCell {
        Arc::clone(&self.record_cell)
    }

    pub(super) fn fault(&self) -> FaultCell {
        self.fault.clone()
    }

    /// Makes this an implementation of the object (I1). Records a violation if it belongs to another one.
    pub(super) fn adopt(&self, record: &Arc<ObjectRecord>) {
        let own = self.record_cell.get_or_init(|| Arc::clone(record));
        if own.serial != record.serial {
            let (own, other) = (own.serial, record.serial);
            self.world
                .run_state
                .fail(format!("an implementation of object #{own} was used for object #{other}"));
        }
    }

    pub(super) fn serial(&self) -> u64 {
        self.record_cell.get().map_or(0, |record| record.serial)
    }

    pub(super) fn record(&self) -> Option<&Arc<ObjectRecord>> {
        self.record_cell.get()
    }

    /// Makes the state of a new representative.
    pub(super) fn marks(&self) -> Marks {
        self.reps.fetch_add(1, Ordering::Relaxed);
        self.world.marks_made.fetch_add(1, Ordering::Relaxed);
        Marks::new(self.world.workers.len())
    }

    /// Takes over the state of a representative that is dropped.
    pub(super) fn absorb(&self, marks: &mut Marks) {
        if let Err(what) = marks.die() {
            let (number, serial) = (self.number, self.serial());
            self.world.run_state.fail(format!(
                "the drop of a representative: implementation {number} of object #{serial} {what}"
            ));
        }
        self.reps.fetch_sub(1, Ordering::Relaxed);
        self.world.marks_dropped.fetch_add(1, Ordering::Relaxed);
        let mut sums = lock(&self.sums);
        let more = marks.all();
        sums.resize(more.len(), Sums::default());
        sums.iter_mut().zip(more).for_each(|(sums, more)| *sums = sums.and(more));
    }

    pub(super) fn make_rep(&self) -> Marks {
        if self.fault.get() == Fault::MakePanics {
            std::panic::resume_unwind(Box::new(MakePanicked));
        }
        self.marks()
    }

    pub(super) fn moved(&self) {
        if self.moved.swap(true, Ordering::Relaxed) {
            self.world
                .run_state
                .fail(format!("implementation {} was told twice that its state moved", self.number));
        }
    }

    /// Called by every export.
    pub(super) fn export(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.record().map(|record| read(&record.export)) {
            Some(Fault::ExportErrs) => Err("a planned failure of an export".into()),
            Some(Fault::ExportPanics) => raise_expected_panic(),
            _ => Ok(()),
        }
    }

    /// Called by every import, with the sums to add to `marks`.
    pub(super) fn import(
        &self,
        marks: &Marks,
        mut sums: Vec<Sums>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.fault.get() {
            Fault::ImportErrs => return Err("a planned failure of an import".into()),
            Fault::ImportPanics => raise_expected_panic(),
            Fault::ImportSleeps if !self.slept.swap(true, Ordering::Relaxed) => {
                thread::sleep(Duration::from_millis(SLEEP_MS));
            }
            Fault::ImportCallsOwn => self.call(self.record()),
            Fault::ImportCalls => {
                let place = Rng::new(self.number, 0).below(self.world.places.len() as u64) as usize;
                self.call(self.world.shown(place).map(|entry| entry.record).as_ref());
            }
            Fault::ImportSwaps => {
                if let Some(record) = self.record() {
                    variants::refused(self.world, record, &[SwapFailure::InTransfer]);
                }
            }
            _ => {}
        }
        if self.world.is_broken(Break::LoseState) && self.number.is_multiple_of(BREAK_ONE_IN) {
            sums.iter_mut().for_each(|sums| *sums = Sums::default());
        }
        marks.add(&sums);
        Ok(())
    }

    /// Calls an object while state moves.
    fn call(&self, record: Option<&Arc<ObjectRecord>>) {
        let Some((record, handle)) = record.and_then(|record| Some((record, *record.handle.get()?))) else {
            return;
        };
        let own = self.record().is_some_and(|own| own.serial == record.serial);
        let answer = catch_unwind(|| handle.try_audit(0).map_err(|error| error.reason()));
        let trace = match &answer {
            Ok(Ok((reply, _))) => reply.trace,
            _ => take_trace(),
        };
        if trace.number != 0 {
            self.world.note_met();
        }
        let may = match answer {
            Ok(Ok(_)) => !own,
            Ok(Err(CallErrorKind::InTransfer)) => true,
            Ok(Err(CallErrorKind::Destroyed)) => record.destroy_begun(),
            // An arbiter of the object refused.
            Ok(Err(CallErrorKind::Refused(_))) => !own,
            Ok(Err(_)) => false,
            // An arbiter panicked, or making a representative did.
            Err(payload) => !own && (payload.is::<ExpectedPanic>() || payload.is::<MakePanicked>()),
        };
        if !may {
            let serial = record.serial;
            self.world.run_state.fail(format!(
                "a call of object #{serial} by a state transfer (its own: {own}) had a wrong result"
            ));
        }
    }
}

impl Drop for Implementation {
    fn drop(&mut self) {
        self.world.implementations_dropped.fetch_add(1, Ordering::Relaxed);
        let (serial, reps) = (self.serial(), *self.reps.get_mut());
        if reps != 0 {
            self.world.run_state.fail(format!(
                "implementation {} of object #{serial} was dropped before {reps} of its representatives",
                self.number
            ));
        }
        let Some(record) = self.record_cell.get() else { return };
        if !*self.moved.get_mut() {
            let mut sums = std::mem::take(&mut *lock(&self.sums));
            sums.resize(self.world.workers.len(), Sums::default());
            if self.world.is_broken(Break::DoubleDrop) && self.number.is_multiple_of(BREAK_ONE_IN) {
                record.dropped(self.number, sums.clone());
            }
            record.dropped(self.number, sums);
        }
        if self.world.is_broken(Break::LeakValue) && self.number.is_multiple_of(BREAK_ONE_IN) {
            std::mem::forget(Arc::clone(record));
        }
    }
}
