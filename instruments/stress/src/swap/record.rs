//! The record of one object: the marks of its callers, overlapping swaps, and the holders of its state.
//!
//! - I1. The object's owner, its callers, its swaps, and each serving or future implementation hold a
//!   reference to it. The last one to let go balances it.
//! - I2. On a balanced record exactly one dropped implementation still had its state and came from no failed
//!   swap. Its state has the marks of all calls, each once.
//! - I3. `issued` of a lane is written only by the lane's thread (`marks/I1`).
//! - I4. `begun` is written and read by read-modify-writes with acquire and release. A thread that is refused
//!   because the object ends therefore sees that.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use squall::Handle;

use super::arbiters::Arbiters;
use super::interfaces::Relay;
use super::marks::Sums;
use super::world::World;
use crate::run::lock;

#[derive(Default)]
#[repr(align(128))]
struct Issued(AtomicU64);

/// The present and past holders of the state.
#[derive(Default)]
struct Holders {
    /// Dropped implementations whose state had not moved.
    dropped: Vec<(u64, Vec<Sums>)>,
    /// Implementations of failed swaps that are not dropped yet.
    failed: BTreeSet<u64>,
    /// The implementation of a swap during which the object was destroyed. It may have served or not.
    unsure: Option<u64>,
}

/// An object, as its callers know it.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) record: Arc<ObjectRecord>,
    pub(super) handle: Handle<dyn Relay>,
    /// Whether the factory made it.
    pub(super) of_factory: bool,
}

pub(super) struct ObjectRecord {
    pub(super) world: &'static World,
    pub(super) serial: u64,
    /// The object's handle, once it exists.
    pub(super) handle: OnceLock<Handle<dyn Relay>>,
    issued: Box<[Issued]>,
    begun: AtomicBool,
    gone: AtomicBool,
    /// Number of requested swaps: those under way in the lower half, all in the upper half.
    asks: AtomicU64,
    /// Locked for writing by a swap whose export fails on purpose, because other swaps would fail too.
    pub(super) turn: RwLock<()>,
    /// The fault of the next exports.
    pub(super) export: AtomicU8,
    pub(super) arbiters: Arc<Arbiters>,
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
            arbiters: Arc::default(),
            holders: Mutex::default(),
        }
    }

    /// Issues the number of the lane's next mark.
    pub(super) fn issue(&self, lane: usize) -> u64 {
        let issued = &self.issued[lane].0;
        let number = issued.load(Ordering::Relaxed) + 1;
        issued.store(number, Ordering::Relaxed);
        number
    }

    /// Takes back the mark of a call that did not happen.
    pub(super) fn take_back(&self, lane: usize, number: u64) -> Result<(), String> {
        let issued = self.issued(lane);
        if issued != number {
            return Err(format!(
                "a call without effect took mark {number}, but the lane has taken {issued} marks"
            ));
        }
        self.issued[lane].0.store(number - 1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn issued(&self, lane: usize) -> u64 {
        self.issued[lane].0.load(Ordering::Relaxed)
    }

    /// Announces that the owner is about to destroy the object.
    pub(super) fn begin_destroy(&self) {
        // AcqRel: I4.
        self.begun.swap(true, Ordering::AcqRel);
    }

    pub(super) fn destroy_begun(&self) -> bool {
        // AcqRel: I4.
        self.begun.fetch_or(false, Ordering::AcqRel)
    }

    /// Announces that `destroy` has returned.
    pub(super) fn mark_destroyed(&self) {
        // Release: pairs with the acquire in `is_destroyed`: the effects of `destroy` come before.
        self.gone.store(true, Ordering::Release);
    }

    pub(super) fn is_destroyed(&self) -> bool {
        // Acquire: pairs with the release in `mark_destroyed`.
        self.gone.load(Ordering::Acquire)
    }

    /// Announces a swap. Returns a token for `end_ask`.
    pub(super) fn begin_ask(&self) -> u64 {
        // AcqRel: of two overlapping swaps, one sees the other.
        self.asks.fetch_add((1 << 32) | 1, Ordering::AcqRel)
    }

    /// Ends the announcement. Returns whether another swap was announced meanwhile.
    pub(super) fn end_ask(&self, began: u64) -> bool {
        // AcqRel: as in `begin_ask`.
        let before = self.asks.fetch_sub(1, Ordering::AcqRel);
        began as u32 != 0 || before >> 32 != (began >> 32) + 1
    }

    /// Returns whether a swap is announced.
    pub(super) fn swaps_under_way(&self) -> bool {
        self.asks.load(Ordering::Relaxed) as u32 != 0
    }

    /// Records that the swap to this implementation failed.
    pub(super) fn failed(&self, number: u64) {
        let mut holders = lock(&self.holders);
        let before = holders.dropped.len();
        holders.dropped.retain(|(dropped, _)| *dropped != number);
        if holders.dropped.len() == before {
            holders.failed.insert(number);
        }
    }

    /// Records that the object was destroyed during the swap to this implementation.
    pub(super) fn unsure(&self, number: u64) -> Result<(), String> {
        match lock(&self.holders).unsure.replace(number) {
            None => Ok(()),
            Some(_) => Err(format!("object #{} was destroyed during two swaps of it", self.serial)),
        }
    }

    /// Records that an implementation was dropped with this state, which had not moved.
    pub(super) fn dropped(&self, number: u64, state: Vec<Sums>) {
        let mut holders = lock(&self.holders);
        if !holders.failed.remove(&number) {
            holders.dropped.push((number, state));
        }
    }

    /// Checks I2.
    fn balance(&mut self) -> Result<(), String> {
        let holders = std::mem::take(&mut *lock(&self.holders));
        let Holders { mut dropped, failed, unsure } = holders;
        let serial = self.serial;
        if !failed.is_empty() {
            return Err(format!(
                "object #{serial}: {} implementations of failed swaps were never dropped",
                failed.len()
            ));
        }
        if dropped.len() > 1 {
            dropped.retain(|(number, _)| Some(*number) != unsure);
        }
        let wanted = self.issued.iter_mut().map(|issued| Sums::after(*issued.0.get_mut()));
        let wanted: Vec<Sums> = wanted.collect();
        let found = match dropped.as_slice() {
            // The implementation was made without knowing its object, and never called.
            [] => vec![Sums::default(); wanted.len()],
            [(_, state)] => state.clone(),
            more => {
                return Err(format!(
                    "object #{serial}: {} implementations were dropped with its state",
                    more.len()
                ));
            }
        };
        match wanted.iter().zip(&found).position(|(wanted, found)| wanted != found) {
            Some(lane) => Err(format!(
                "object #{serial} ended with {:?} in lane {lane}, but its callers left {:?}",
                found[lane], wanted[lane]
            )),
            None => Ok(()),
        }
    }
}

impl Drop for ObjectRecord {
    fn drop(&mut self) {
        let balance = self.balance();
        // After a violation, threads may have ended at any point.
        if self.world.run_state.violation().is_none() {
            self.world.expect(balance);
        }
        self.world.forget(self.serial);
    }
}
