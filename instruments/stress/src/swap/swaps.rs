//! Swaps, and the checks of their results.
//!
//! - A failed swap has a valid reason: its fault, its deadline, its cancellation, another swap at the same
//!   time, or the destruction of the object. `TimedOut(Block)` is valid for short drain timeouts, because
//!   methods sleep.
//! - A swap that must fail has not succeeded, if it moved any state.
//! - A swap that would wait for itself is refused with the right error.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use squall::Handle;
use squall::rcu::{WaitError, defer, in_operation, pin};
use squall::swap::{
    Cancel, Replacement, Swap, SwapError, SwapFailure, SwapOutcome, SwapPhase, SwapReport, recent,
};

use super::breaks::Break;
use super::counts::{Stat, count};
use super::faults::{Fault, MakePanicked};
use super::implementation::RecordCell;
use super::interfaces::{Relay, Station};
use super::record::{Entry, ObjectRecord};
use super::variants::{Candidate, Kind, of_super, refused};
use super::world::World;
use crate::run::{Rng, lock};
use crate::skeleton::expected_panic::panic_message;

/// Drain timeouts in microseconds.
const DRAINS_US: [u64; 5] = [200, 1_000, 5_000, 20_000, 50_000];
/// A drain timeout longer than any call: no method sleeps for long, and calls do not wait for each other.
const PATIENCE: Duration = Duration::from_secs(30);
/// One swap in this many uses it.
const PATIENT_ONE_IN: u64 = 2;
/// The drain timeout of upgrades.
const UPGRADE_DRAIN: Duration = Duration::from_millis(20);
/// Maximum deadline in microseconds.
const DEADLINE_US_MAX: u64 = 4_000;
/// One swap in this many has a deadline, or can be cancelled.
const LIMIT_ONE_IN: u64 = 6;
/// One cancellable swap in this many is cancelled before it begins.
const CANCELLED_ONE_IN: u64 = 4;
/// Maximum number of swaps that wait to be cancelled.
const CANCELS_MAX: usize = 32;
/// With a planned break, one swap in this many is checked wrongly.
const BREAK_ONE_IN: u64 = 64;

thread_local! {
    /// The object that this thread creates through the factory.
    static MAKING: RefCell<Option<Arc<ObjectRecord>>> = const { RefCell::new(None) };
    /// The implementations that the factory's maker has made in this thread.
    static MADE: RefCell<Vec<(u64, RecordCell)>> = const { RefCell::new(Vec::new()) };
    static DRAWS: Cell<u64> = const { Cell::new(0) };
}

/// The plan of a swap, for its check.
struct Asked {
    kind: Kind,
    fault: Fault,
    drain: Duration,
    deadline: bool,
    cancel: Option<Cancel>,
    /// Another swap was requested at the same time.
    disturbed: bool,
}

/// Requests a swap through the super-interface.
pub(super) fn refused_of_super(world: &'static World, entry: &Entry) {
    let outcome = Swap::new(Handle::upcast::<dyn Station>(entry.handle)).run(of_super(world));
    count(Stat::RefusedThere);
    match outcome.map_err(|error| error.failure()) {
        Err(SwapFailure::WrongInterface) => {}
        Err(SwapFailure::Destroyed) if entry.record.destroy_begun() => {}
        outcome => world.run_state.fail(format!("a swap through the super-interface ended with {outcome:?}")),
    }
}

/// Requests a swap inside an operation.
pub(super) fn refused_in_operation(world: &'static World, entry: &Entry) {
    pin(|_| refused(world, &entry.record, &[SwapFailure::InOperation]));
}

/// Requests a swap in a deferred call. Without a reclaimer, that call may run in a method of the object.
pub(super) fn refused_in_deferred_call(world: &'static World, entry: &Entry) {
    let record = Arc::clone(&entry.record);
    defer(move || {
        refused(world, &record, &[SwapFailure::InDeferredCall, SwapFailure::InMethod]);
        world.counts.flush();
    });
}

/// Runs one swap of any kind. `inside` means inside a method.
pub(super) fn one(world: &'static World, entry: &Entry, inside: bool, rng: &mut Rng) {
    let Entry { record, .. } = entry;
    let mut fault = Fault::draw(rng);
    if fault.is_of_export() && entry.of_factory {
        // An upgrade would run into the failing export.
        fault = Fault::None;
    }
    // Other swaps would run into the failing export, so they are excluded.
    let alone = if fault.is_of_export() { record.turn.try_write().ok() } else { None };
    let with_others = if alone.is_none() { record.turn.try_read().ok() } else { None };
    match (&alone, &with_others) {
        (None, None) => return,
        (None, Some(_)) if fault.is_of_export() => fault = Fault::None,
        _ => {}
    }
    let candidate = Candidate::build(world, Some(record), (Kind::draw(rng), entry.of_factory), fault, rng);
    let Candidate { new, kind, number, fault: planted, .. } = candidate;
    // Not in a method, because other swaps may wait for that method as long.
    let patient = !inside && rng.one_in(PATIENT_ONE_IN);
    let drain = match rng.below(DRAINS_US.len() as u64) {
        _ if patient => PATIENCE,
        index => Duration::from_micros(DRAINS_US[index as usize]),
    };
    let mut swap = Swap::new(entry.handle).drain_timeout(drain);
    let deadline = rng.one_in(LIMIT_ONE_IN);
    if deadline {
        swap = swap.timeout(Duration::from_micros(rng.below(DEADLINE_US_MAX)));
    }
    let cancel = rng.one_in(LIMIT_ONE_IN).then(|| offer_cancel(world, rng));
    swap = swap.cancel_on(cancel.as_ref().unwrap_or(&world.last));
    if alone.is_some() {
        record.export.store(fault as u8, Ordering::Relaxed);
    }
    count(Stat::Asked);
    if patient {
        count(Stat::Patient);
    }
    // AcqRel, by read-modify-writes: of two that overlap, one sees the other.
    let upgrades = world.upgrades.fetch_add(0, Ordering::AcqRel);
    let began = record.begin_ask();
    let outcome = catch_unwind(AssertUnwindSafe(|| swap.run(new)));
    let mut disturbed = record.end_ask(began);
    if entry.of_factory {
        disturbed |= upgrades % 2 == 1 || world.upgrades.fetch_add(0, Ordering::AcqRel) != upgrades;
    }
    planted.take_back();
    record.export.store(Fault::None as u8, Ordering::Relaxed);
    drop((alone, with_others));
    let asked = Asked { kind, fault, drain, deadline, cancel, disturbed };
    let verdict = match &outcome {
        Ok(outcome) => {
            record_outcome(record, number, outcome).and_then(|()| judge(world, record, &asked, outcome, rng))
        }
        Err(payload) => {
            record.failed(number);
            match kind == Kind::Eager && payload.is::<MakePanicked>() {
                true => {
                    count(Stat::Panicked);
                    Ok(())
                }
                false => Err(format!("a swap panicked: {}", panic_message(&**payload))),
            }
        }
    };
    if let Err(what) = verdict {
        world.run_state.fail(format!("object #{}: {what}", record.serial));
    }
}

/// Makes a cancellation: already used, or offered to other threads.
fn offer_cancel(world: &World, rng: &mut Rng) -> Cancel {
    let cancel = Cancel::new();
    if rng.one_in(CANCELLED_ONE_IN) {
        cancel.cancel();
    } else {
        let mut cancels = lock(&world.cancels);
        if cancels.len() >= CANCELS_MAX {
            cancels.pop_front();
        }
        cancels.push_back(cancel.clone());
    }
    cancel
}

/// Records the fate of an implementation.
fn record_outcome(
    record: &ObjectRecord,
    number: u64,
    outcome: &Result<SwapReport, SwapError>,
) -> Result<(), String> {
    match outcome {
        Ok(_) => Ok(()),
        // The implementation may have served when the object was destroyed.
        Err(error) if error.failure() == SwapFailure::Destroyed && error.report().is_some() => {
            record.unsure(number)
        }
        Err(_) => {
            record.failed(number);
            Ok(())
        }
    }
}

fn judge(
    world: &World,
    record: &ObjectRecord,
    asked: &Asked,
    outcome: &Result<SwapReport, SwapError>,
    rng: &mut Rng,
) -> Result<(), String> {
    let Asked { kind, fault, drain, deadline, cancel, disturbed } = asked;
    let mut broken = |how| world.breaks(how, BREAK_ONE_IN, rng);
    let error = match outcome {
        Ok(report) => {
            world.times.record(report, *drain);
            count(Stat::Swapped);
            let makes = matches!(kind, Kind::Spread | Kind::Eager);
            let must_fail = fault.must_fail() && (*fault != Fault::MakePanics || makes);
            if (must_fail && report.parts > 0) || *kind == Kind::Alien || broken(Break::WrongSuccess) {
                return Err(format!("a swap to {kind:?} succeeded in spite of {fault:?}: {report:?}"));
            }
            if *fault == Fault::None && !deadline && cancel.is_none() && !disturbed {
                count(Stat::Undisturbed);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    if let Some(report) = error.report() {
        world.times.record(report, *drain);
        if report.outcome != SwapOutcome::RolledBack(error.failure()) {
            return Err(format!("a swap failed with {error}, but its report says {:?}", report.outcome));
        }
    }
    let may = match error.failure() {
        SwapFailure::Destroyed => tells(Stat::Destroyed, record.destroy_begun()),
        SwapFailure::Busy => tells(Stat::Busy, *disturbed),
        SwapFailure::NoCommonFormat => tells(Stat::NoFormat, *kind == Kind::Alien),
        SwapFailure::TimedOut(SwapPhase::Forward) => tells(Stat::TimedOutForward, *deadline),
        SwapFailure::TimedOut(SwapPhase::Transfer) => tells(Stat::TimedOutTransfer, *deadline),
        SwapFailure::TimedOut(SwapPhase::Block) => {
            if *fault == Fault::None && !deadline && cancel.is_none() && !disturbed {
                count(Stat::Undisturbed);
                count(Stat::UndisturbedTimedOut);
            }
            tells(Stat::TimedOutBlock, *drain < PATIENCE || *deadline)
        }
        SwapFailure::Cancelled(_) => {
            tells(Stat::Cancelled, cancel.as_ref().unwrap_or(&world.last).is_cancelled())
        }
        SwapFailure::TransferFailed => tells(Stat::Failed, fault.may_err() && !broken(Break::WrongFailure)),
        SwapFailure::TransferPanicked => tells(Stat::Panicked, fault.may_panic()),
        _ => false,
    };
    if may {
        return Ok(());
    }
    Err(format!(
        "a swap failed without a valid reason: {error} (to {kind:?}, {fault:?}, disturbed: {disturbed})"
    ))
}

fn tells(what: Stat, may: bool) -> bool {
    count(what);
    may
}

/// Creates an object through the factory.
pub(super) fn make(world: &World, record: &Arc<ObjectRecord>) -> Option<squall::Owned<dyn Relay>> {
    MAKING.set(Some(Arc::clone(record)));
    let made = world.factory.try_create();
    MAKING.set(None);
    let candidates = MADE.take();
    match made {
        Ok(owned) => Some(owned),
        Err(_) => {
            candidates.iter().for_each(|(number, _)| record.failed(*number));
            None
        }
    }
}

/// Returns the factory's maker of implementations of this kind.
pub(super) fn maker(
    world: &'static World,
    kind: Kind,
) -> impl Fn() -> Replacement<dyn Relay> + Clone + Send + Sync {
    move || {
        let record = MAKING.take();
        let mut rng = Rng::new(world.numbers.load(Ordering::Relaxed), DRAWS.replace(DRAWS.get() + 1));
        let candidate = Candidate::build(world, record.as_ref(), (kind, true), Fault::None, &mut rng);
        MADE.with_borrow_mut(|made| made.push((candidate.number, candidate.record_cell)));
        candidate.new
    }
}

/// Swaps all objects of the factory, one after another.
pub(super) fn upgrade(world: &'static World, rng: &mut Rng) {
    let Ok(alone) = world.upgrading.try_lock() else { return };
    let kind = if rng.one_in(2) { Kind::Central } else { Kind::Spread };
    MADE.take();
    // AcqRel: pairs with the two read-modify-writes in `one`.
    world.upgrades.fetch_add(1, Ordering::AcqRel);
    let outcome = world.factory.upgrade(maker(world, kind), |swap| swap.drain_timeout(UPGRADE_DRAIN));
    world.upgrades.fetch_add(1, Ordering::AcqRel);
    drop(alone);
    count(Stat::Upgrades);
    let made = MADE.take();
    let upgraded = match outcome {
        Ok(upgraded) => upgraded,
        Err(error) => return world.run_state.fail(format!("an upgrade failed: {error}")),
    };
    // The first implementation is always made, to learn its class.
    if made.len() != upgraded.len().max(1) {
        let (made, all) = (made.len(), upgraded.len());
        world.run_state.fail(format!("an upgrade made {made} implementations for {all} objects"));
    }
    for (one, (number, record_cell)) in upgraded.iter().zip(&made) {
        let may = match one.outcome.as_ref().map_err(SwapError::failure) {
            Ok(report) => {
                world.times.record(report, UPGRADE_DRAIN);
                tells(Stat::Upgraded, true)
            }
            Err(SwapFailure::TimedOut(SwapPhase::Block)) => tells(Stat::TimedOutBlock, true),
            Err(SwapFailure::Busy | SwapFailure::Replaced) => tells(Stat::Busy, true),
            Err(SwapFailure::Destroyed) => {
                tells(Stat::Destroyed, record_cell.get().is_none_or(|record| record.destroy_begun()))
            }
            Err(_) => false,
        };
        let recorded =
            record_cell.get().map_or(Ok(()), |record| record_outcome(record, *number, &one.outcome));
        world.expect(recorded);
        if !may {
            world.run_state.fail(format!("an upgrade of {} ended with {:?}", one.id, one.outcome));
        }
    }
}

/// Requests an upgrade inside an operation.
pub(super) fn refused_upgrade(world: &'static World) {
    let outcome = pin(|_| world.factory.upgrade(maker(world, Kind::Central), |swap| swap));
    MADE.take();
    if !matches!(outcome, Err(WaitError::InOperation)) {
        world.run_state.fail(format!("an upgrade inside an operation returned {outcome:?}, not InOperation"));
    }
    if in_operation() {
        world.run_state.fail("a thread is inside an operation after a refused upgrade".to_owned());
    }
}

/// Checks the size of the log of swaps.
pub(super) fn look_back(world: &World) {
    const REMEMBERED_MAX: usize = 256;
    let swaps = recent();
    if swaps.len() > REMEMBERED_MAX {
        world
            .run_state
            .fail(format!("the log of swaps has {} entries, more than {REMEMBERED_MAX}", swaps.len()));
    }
}
