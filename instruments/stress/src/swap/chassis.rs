//! What every implementation of the torture's objects carries: whose state it holds, and what is to go wrong with it.
//!
//! - I1. An implementation knows its object from its making, or from the state that it imports, or from the first call: one
//!   that a factory makes in an upgrade cannot know it before.
//! - I2. When it is dropped it tells the object's book what it held, unless its state had moved.

use std::error::Error;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use squall::CallErrorKind;
use squall::swap::SwapFailure;

use super::breaks::Break;
use super::faults::{Fault, MakePanicked, Planted, read};
use super::interfaces::Station;
use super::life::Life;
use super::marks::{Marks, Sums};
use super::swaps;
use super::via::take_via;
use super::world::World;
use crate::planned::{Planned, panic_as_planned};
use crate::{Rng, lock};

/// How long an import that takes its time sleeps.
const SLEEP_MS: u64 = 3;
/// Of so many things one goes wrong where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 64;

/// Whose state it is, as far as that is known.
pub(super) type Book = Arc<OnceLock<Arc<Life>>>;

pub(super) struct Chassis {
    pub(super) world: &'static World,
    pub(super) number: u64,
    book: Book,
    fault: Planted,
    slept: AtomicBool,
    moved: AtomicBool,
    /// Representatives that are there.
    reps: AtomicU64,
    /// What those held that were dropped.
    sums: Mutex<Vec<Sums>>,
}

impl Chassis {
    pub(super) fn new(world: &'static World, life: Option<&Arc<Life>>, fault: Fault) -> Chassis {
        let book = Book::default();
        if let Some(life) = life {
            let _ = book.set(Arc::clone(life));
        }
        world.chassis_made.fetch_add(1, Ordering::Relaxed);
        Chassis {
            world,
            number: world.numbers.fetch_add(1, Ordering::Relaxed),
            book,
            fault: Planted::new(fault),
            slept: AtomicBool::new(false),
            moved: AtomicBool::new(false),
            reps: AtomicU64::new(0),
            sums: Mutex::default(),
        }
    }

    pub(super) fn book(&self) -> Book {
        Arc::clone(&self.book)
    }

    pub(super) fn fault(&self) -> Planted {
        self.fault.clone()
    }

    /// It is an implementation of this object (I1). Accuses if it is another one's.
    pub(super) fn adopt(&self, life: &Arc<Life>) {
        let own = self.book.get_or_init(|| Arc::clone(life));
        if own.serial != life.serial {
            let (own, other) = (own.serial, life.serial);
            self.world
                .trial
                .accuse(format!("an implementation of object #{own} was taken for one of #{other}"));
        }
    }

    pub(super) fn serial(&self) -> u64 {
        self.book.get().map_or(0, |life| life.serial)
    }

    pub(super) fn life(&self) -> Option<&Arc<Life>> {
        self.book.get()
    }

    /// New state for a representative.
    pub(super) fn marks(&self) -> Marks {
        self.reps.fetch_add(1, Ordering::Relaxed);
        self.world.marks_made.fetch_add(1, Ordering::Relaxed);
        Marks::new(self.world.posts.len())
    }

    /// A representative's state is dropped with it.
    pub(super) fn absorb(&self, marks: &mut Marks) {
        if let Err(what) = marks.die() {
            let (number, serial) = (self.number, self.serial());
            self.world.trial.accuse(format!("a drop: implementation {number} of object #{serial} {what}"));
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
                .trial
                .accuse(format!("implementation {} was told twice that its state moved", self.number));
        }
    }

    /// Called by every export.
    pub(super) fn export(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.life().map(|life| read(&life.export)) {
            Some(Fault::ExportErrs) => Err("an export that errs as planned".into()),
            Some(Fault::ExportPanics) => panic_as_planned(),
            _ => Ok(()),
        }
    }

    /// Called by every import, with what it adds to `marks`.
    pub(super) fn import(
        &self,
        marks: &Marks,
        mut sums: Vec<Sums>,
    ) -> Result<(), Box<dyn Error + Send + Sync>> {
        match self.fault.get() {
            Fault::ImportErrs => return Err("an import that errs as planned".into()),
            Fault::ImportPanics => panic_as_planned(),
            Fault::ImportSleeps if !self.slept.swap(true, Ordering::Relaxed) => {
                thread::sleep(Duration::from_millis(SLEEP_MS));
            }
            Fault::ImportCallsOwn => self.call(self.life()),
            Fault::ImportCalls => {
                let place = Rng::new(self.number, 0).below(self.world.places.len() as u64) as usize;
                self.call(self.world.shown(place).map(|entry| entry.life).as_ref());
            }
            Fault::ImportSwaps => {
                if let Some(life) = self.life() {
                    swaps::refused(self.world, life, &[SwapFailure::InTransfer]);
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
    fn call(&self, life: Option<&Arc<Life>>) {
        let Some((life, co)) = life.and_then(|life| Some((life, *life.co.get()?))) else { return };
        let own = self.life().is_some_and(|own| own.serial == life.serial);
        let answer = catch_unwind(|| co.try_audit(0).map_err(|error| error.reason()));
        let via = match &answer {
            Ok(Ok((told, _))) => told.via,
            _ => take_via(),
        };
        if via.number != 0 {
            self.world.note_met();
        }
        let may = match answer {
            Ok(Ok(_)) => !own,
            Ok(Err(CallErrorKind::InTransfer)) => true,
            Ok(Err(CallErrorKind::Destroyed)) => life.has_begun_to_end(),
            // An arbiter of it.
            Ok(Err(CallErrorKind::Refused(_))) => !own,
            Ok(Err(_)) => false,
            // An arbiter, or the making of a representative.
            Err(payload) => !own && (payload.is::<Planned>() || payload.is::<MakePanicked>()),
        };
        if !may {
            let serial = life.serial;
            self.world
                .trial
                .accuse(format!("object #{serial} answered whoever moves the state, itself: {own}"));
        }
    }
}

impl Drop for Chassis {
    fn drop(&mut self) {
        self.world.chassis_dropped.fetch_add(1, Ordering::Relaxed);
        let (serial, reps) = (self.serial(), *self.reps.get_mut());
        if reps != 0 {
            self.world.trial.accuse(format!(
                "implementation {} of object #{serial} was dropped before {reps} of its representatives",
                self.number
            ));
        }
        let Some(life) = self.book.get() else { return };
        if !*self.moved.get_mut() {
            let mut sums = std::mem::take(&mut *lock(&self.sums));
            sums.resize(self.world.posts.len(), Sums::default());
            if self.world.is_broken(Break::DoubleDrop) && self.number.is_multiple_of(BREAK_ONE_IN) {
                life.dropped(self.number, sums.clone());
            }
            life.dropped(self.number, sums);
        }
        if self.world.is_broken(Break::LeakValue) && self.number.is_multiple_of(BREAK_ONE_IN) {
            std::mem::forget(Arc::clone(life));
        }
    }
}
