//! The book of one object: what its callers have done to it, who may have disturbed its swaps, and who holds its state.
//!
//! - I1. It is kept by the object's owner, its callers, its swaps, and each implementation that serves or is to. Who lets go
//!   last balances it.
//! - I2. On a balanced book one implementation was dropped whose state had not moved, and which no failed swap had brought;
//!   and it has the marks of all calls, each once.
//! - I3. `issued` of a lane is written by the lane's thread alone (`marks/I1`).
//! - I4. `begun` is written and judged by changes that acquire and release: who is refused because the object ends finds
//!   it so.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, RwLock};

use squall::Handle;

use super::interfaces::Relay;
use super::marks::Sums;
use super::arbiters::Arbiters;
use super::world::World;
use crate::run::lock;

#[derive(Default)]
#[repr(align(128))]
struct Issued(AtomicU64);

/// Who holds, or held, the state.
#[derive(Default)]
struct Holders {
    /// Implementations that were dropped and whose state had not moved.
    dropped: Vec<(u64, Vec<Sums>)>,
    /// Those that failed swaps brought, and that are not dropped yet.
    failed: BTreeSet<u64>,
    /// That of a swap during which the object was destroyed: nobody knows how far it came.
    unsure: Option<u64>,
}

pub(super) struct ObjectRecord {
    pub(super) world: &'static World,
    pub(super) serial: u64,
    /// The object, once it is there.
    pub(super) handle: OnceLock<Handle<dyn Relay>>,
    issued: Box<[Issued]>,
    begun: AtomicBool,
    gone: AtomicBool,
    /// Swaps asked for: those under way in the lower half, all in the upper.
    asks: AtomicU64,
    /// Taken for writing by a swap whose export is to fail: others would meet that, too.
    pub(super) turn: RwLock<()>,
    /// What the next exports do.
    pub(super) export: AtomicU8,
    pub(super) arbiters: Arbiters,
    holders: Mutex<Holders>,
}

impl ObjectRecord {
    pub(super) fn new(world: &'static World, serial: u64) -> ObjectRecord {
        ObjectRecord {
            world,
            serial,
            handle: OnceLock::new(),
            issued: (0..world.workers.len()).map(|_| Issued::default()).collect(),
            begun: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            asks: AtomicU64::new(0),
            turn: RwLock::new(()),
            export: AtomicU8::new(0),
            arbiters: Arbiters::default(),
            holders: Mutex::default(),
        }
    }

    /// The number of the lane's next mark.
    pub(super) fn issue(&self, lane: usize) -> u64 {
        let issued = &self.issued[lane].0;
        let number = issued.load(Ordering::Relaxed) + 1;
        issued.store(number, Ordering::Relaxed);
        number
    }

    /// The call that was to leave this mark has not happened.
    pub(super) fn take_back(&self, lane: usize, number: u64) -> Result<(), String> {
        let issued = self.issued(lane);
        if issued != number {
            return Err(format!(
                "a call that did not happen has made calls: its mark {number}, the last {issued}"
            ));
        }
        self.issued[lane].0.store(number - 1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn issued(&self, lane: usize) -> u64 {
        self.issued[lane].0.load(Ordering::Relaxed)
    }

    /// The owner is about to destroy it.
    pub(super) fn begin_destroy(&self) {
        // AcqRel: I4.
        self.begun.swap(true, Ordering::AcqRel);
    }

    pub(super) fn destroy_begun(&self) -> bool {
        // AcqRel: I4.
        self.begun.fetch_or(false, Ordering::AcqRel)
    }

    /// `destroy` has returned.
    pub(super) fn mark_destroyed(&self) {
        // Release: pairs with the acquire of `is_gone`: whatever `destroy` did happened before.
        self.gone.store(true, Ordering::Release);
    }

    pub(super) fn is_destroyed(&self) -> bool {
        // Acquire: pairs with the release of `mark_gone`.
        self.gone.load(Ordering::Acquire)
    }

    /// A swap is asked for. Returns what `was_disturbed` wants.
    pub(super) fn begin_ask(&self) -> u64 {
        // AcqRel: whoever is asked for overlapping finds it so.
        self.asks.fetch_add((1 << 32) | 1, Ordering::AcqRel)
    }

    /// It is over. Returns whether another one was asked for meanwhile.
    pub(super) fn end_ask(&self, began: u64) -> bool {
        // AcqRel: as above.
        let before = self.asks.fetch_sub(1, Ordering::AcqRel);
        began as u32 != 0 || before >> 32 != (began >> 32) + 1
    }

    /// Whether one is being asked for.
    pub(super) fn swaps_under_way(&self) -> bool {
        self.asks.load(Ordering::Relaxed) as u32 != 0
    }

    /// The swap that brought this implementation failed.
    pub(super) fn failed(&self, number: u64) {
        let mut holders = lock(&self.holders);
        let before = holders.dropped.len();
        holders.dropped.retain(|(dropped, _)| *dropped != number);
        if holders.dropped.len() == before {
            holders.failed.insert(number);
        }
    }

    /// The object was destroyed during the swap that brought this implementation.
    pub(super) fn unsure(&self, number: u64) -> Result<(), String> {
        match lock(&self.holders).unsure.replace(number) {
            None => Ok(()),
            Some(_) => Err(format!("object #{} was destroyed during two swaps of it", self.serial)),
        }
    }

    /// An implementation was dropped, with this state, which had not moved.
    pub(super) fn dropped(&self, number: u64, state: Vec<Sums>) {
        let mut holders = lock(&self.holders);
        if !holders.failed.remove(&number) {
            holders.dropped.push((number, state));
        }
    }

    /// I2.
    fn balance(&mut self) -> Result<(), String> {
        let holders = std::mem::take(&mut *lock(&self.holders));
        let Holders { mut dropped, failed, unsure } = holders;
        let serial = self.serial;
        if !failed.is_empty() {
            return Err(format!(
                "object #{serial}: {} that failed swaps brought were never dropped",
                failed.len()
            ));
        }
        if dropped.len() > 1 {
            dropped.retain(|(number, _)| Some(*number) != unsure);
        }
        let wanted = self.issued.iter_mut().map(|issued| Sums::after(*issued.0.get_mut()));
        let wanted: Vec<Sums> = wanted.collect();
        let found = match dropped.as_slice() {
            // One that was made without knowing whose it is, and never called.
            [] => vec![Sums::default(); wanted.len()],
            [(_, state)] => state.clone(),
            more => {
                return Err(format!("object #{serial}: {} implementations had its state last", more.len()));
            }
        };
        match wanted.iter().zip(&found).position(|(wanted, found)| wanted != found) {
            Some(lane) => Err(format!(
                "object #{serial} ended with {:?} of lane {lane}, and its callers say {:?}",
                found[lane], wanted[lane]
            )),
            None => Ok(()),
        }
    }
}

impl Drop for ObjectRecord {
    fn drop(&mut self) {
        let balance = self.balance();
        // After a violation threads may have ended anywhere.
        if self.world.run_state.violation().is_none() {
            self.world.expect(balance);
        }
        self.world.forget(self.serial);
    }
}
