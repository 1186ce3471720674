//! Swaps, and whether each ended as it may.
//!
//! - one that fails has a reason that it may have: its fault, its deadline, its cancelling, another swap at the same time, the
//!   destruction of the object; or `TimedOut(Block)`, since methods sleep, but not for so long as some swaps wait;
//! - one that had to fail has not succeeded, if it moved anything;
//! - one that is asked for where it would wait for itself is refused, as what it is.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use squall::Handle;
use squall::rcu::{WaitError, defer, in_operation, pin};
use squall::swap::{Cancel, Replacement, Swap, SwapError, SwapFailure, SwapOutcome, SwapPhase, SwapReport, recent};

use super::breaks::Break;
use super::caller::Entry;
use super::chassis::Book;
use super::faults::{Fault, MakePanicked};
use super::interfaces::{Relay, Station};
use super::life::Life;
use super::stations::{Candidate, Kind, of_super};
use super::tally::{What, count};
use super::world::World;
use crate::planned::text_of;
use crate::{Rng, lock};

/// How long calls may be kept waiting.
const DRAINS_US: [u64; 5] = [200, 1_000, 5_000, 20_000, 50_000];
/// What no call takes: no method sleeps for long, and those that wait for each other must not.
const PATIENCE: Duration = Duration::from_secs(30);
/// A swap of so many has it.
const PATIENT_ONE_IN: u64 = 2;
/// The same, in upgrades.
const UPGRADE_DRAIN: Duration = Duration::from_millis(20);
/// Deadlines end within so many microseconds.
const DEADLINE_US_MAX: u64 = 4_000;
/// A swap of so many has a deadline, or can be cancelled.
const LIMIT_ONE_IN: u64 = 6;
/// Of those that can be cancelled, one of so many is before it begins.
const CANCELLED_ONE_IN: u64 = 4;
/// Swaps that wait to be cancelled, at most.
const CANCELS_MAX: usize = 32;
/// Of so many swaps one is judged wrongly where the torture is broken on purpose.
const BREAK_ONE_IN: u64 = 64;

thread_local! {
    /// The object that this thread has the factory make.
    static MAKING: RefCell<Option<Arc<Life>>> = const { RefCell::new(None) };
    /// What the factory's maker has made in this thread.
    static MADE: RefCell<Vec<(u64, Book)>> = const { RefCell::new(Vec::new()) };
    static DRAWS: Cell<u64> = const { Cell::new(0) };
}

/// What is known of a swap, for the judge.
struct Asked {
    kind: Kind,
    fault: Fault,
    drain: Duration,
    deadline: bool,
    cancel: Option<Cancel>,
    /// Another one was asked for at the same time.
    disturbed: bool,
}

/// Asks for a swap where it must be refused.
pub(super) fn refused(world: &'static World, life: &Arc<Life>, wanted: &[SwapFailure]) {
    let Some(co) = life.co.get() else { return };
    let mut rng = Rng::new(life.serial, 0);
    let candidate = Candidate::build(world, Some(life), (Kind::Central, false), Fault::None, &mut rng);
    let outcome = Swap::new(*co).run(candidate.new).map_err(|error| error.failure());
    life.failed(candidate.number);
    count(What::RefusedThere);
    if !outcome.as_ref().is_err_and(|failure| wanted.contains(failure)) {
        let outcome = outcome.map(|report| report.outcome);
        world.trial.accuse(format!("a swap that was to be refused as {wanted:?} ended with {outcome:?}"));
    }
}

/// Asks for a swap by the interface that the object's own one extends.
pub(super) fn refused_of_super(world: &'static World, entry: &Entry) {
    let outcome = Swap::new(Handle::upcast::<dyn Station>(entry.co)).run(of_super(world));
    count(What::RefusedThere);
    match outcome.map_err(|error| error.failure()) {
        Err(SwapFailure::WrongInterface) => {}
        Err(SwapFailure::Destroyed) if entry.life.has_begun_to_end() => {}
        outcome => world.trial.accuse(format!("a swap by another interface ended with {outcome:?}")),
    }
}

/// Asks for a swap inside an operation.
pub(super) fn refused_in_operation(world: &'static World, entry: &Entry) {
    pin(|_| refused(world, &entry.life, &[SwapFailure::InOperation]));
}

/// Asks for a swap in a deferred call. Where there is no reclaimer, that may run in a method of the object.
pub(super) fn refused_in_deferred_call(world: &'static World, entry: &Entry) {
    let life = Arc::clone(&entry.life);
    defer(move || {
        refused(world, &life, &[SwapFailure::InDeferredCall, SwapFailure::InMethod]);
        world.tally.hand_in();
    });
}

/// One swap, of any kind; `inside` a method, or not.
pub(super) fn one(world: &'static World, entry: &Entry, inside: bool, rng: &mut Rng) {
    let Entry { life, .. } = entry;
    let mut fault = Fault::draw(rng);
    if fault.is_of_export() && entry.of_factory {
        // An upgrade would meet it.
        fault = Fault::None;
    }
    // Who comes when another one's export is to fail would meet that.
    let alone = if fault.is_of_export() { life.turn.try_write().ok() } else { None };
    let with_others = if alone.is_none() { life.turn.try_read().ok() } else { None };
    match (&alone, &with_others) {
        (None, None) => return,
        (None, Some(_)) if fault.is_of_export() => fault = Fault::None,
        _ => {}
    }
    let candidate = Candidate::build(world, Some(life), (Kind::draw(rng), entry.of_factory), fault, rng);
    let Candidate { new, kind, number, fault: planted, .. } = candidate;
    // Not in a method, for which others may wait as long.
    let patient = !inside && rng.one_in(PATIENT_ONE_IN);
    let drain = match rng.below(DRAINS_US.len() as u64) {
        _ if patient => PATIENCE,
        index => Duration::from_micros(DRAINS_US[index as usize]),
    };
    let mut swap = Swap::new(entry.co).drain_timeout(drain);
    let deadline = rng.one_in(LIMIT_ONE_IN);
    if deadline {
        swap = swap.timeout(Duration::from_micros(rng.below(DEADLINE_US_MAX)));
    }
    let cancel = rng.one_in(LIMIT_ONE_IN).then(|| offer_cancel(world, rng));
    swap = swap.cancel_on(cancel.as_ref().unwrap_or(&world.last));
    if alone.is_some() {
        life.export.store(fault as u8, Ordering::Relaxed);
    }
    count(What::Asked);
    if patient {
        count(What::Patient);
    }
    // AcqRel, by changes: of two that overlap one finds the other.
    let upgrades = world.upgrades.fetch_add(0, Ordering::AcqRel);
    let began = life.begin_ask();
    let outcome = catch_unwind(AssertUnwindSafe(|| swap.run(new)));
    let mut disturbed = life.end_ask(began);
    if entry.of_factory {
        disturbed |= upgrades % 2 == 1 || world.upgrades.fetch_add(0, Ordering::AcqRel) != upgrades;
    }
    planted.take_back();
    life.export.store(Fault::None as u8, Ordering::Relaxed);
    drop((alone, with_others));
    let asked = Asked { kind, fault, drain, deadline, cancel, disturbed };
    let verdict = match &outcome {
        Ok(outcome) => settle(life, number, outcome).and_then(|()| judge(world, life, &asked, outcome, rng)),
        Err(payload) => {
            life.failed(number);
            match kind == Kind::Eager && payload.is::<MakePanicked>() {
                true => {
                    count(What::Panicked);
                    Ok(())
                }
                false => Err(format!("a swap panicked: {}", text_of(&**payload))),
            }
        }
    };
    if let Err(what) = verdict {
        world.trial.accuse(format!("object #{}: {what}", life.serial));
    }
}

/// A way to cancel it, for others, or used already.
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

/// Tells the book what became of an implementation.
fn settle(life: &Life, number: u64, outcome: &Result<SwapReport, SwapError>) -> Result<(), String> {
    match outcome {
        Ok(_) => Ok(()),
        // It may have served when the object was destroyed.
        Err(error) if error.failure() == SwapFailure::Destroyed && error.report().is_some() => {
            life.unsure(number)
        }
        Err(_) => {
            life.failed(number);
            Ok(())
        }
    }
}

fn judge(
    world: &World,
    life: &Life,
    asked: &Asked,
    outcome: &Result<SwapReport, SwapError>,
    rng: &mut Rng,
) -> Result<(), String> {
    let Asked { kind, fault, drain, deadline, cancel, disturbed } = asked;
    let mut broken = |how| world.is_broken(how) && rng.one_in(BREAK_ONE_IN);
    let error = match outcome {
        Ok(report) => {
            world.tally.note(report, *drain);
            count(What::Swapped);
            let makes = matches!(kind, Kind::Spread | Kind::Eager);
            let must_fail = fault.must_fail() && (*fault != Fault::MakePanics || makes);
            if (must_fail && report.parts > 0) || *kind == Kind::Alien || broken(Break::WrongSuccess) {
                return Err(format!("a swap for {kind:?} has succeeded in spite of {fault:?}: {report:?}"));
            }
            if *fault == Fault::None && !deadline && cancel.is_none() && !disturbed {
                count(What::Undisturbed);
            }
            return Ok(());
        }
        Err(error) => error,
    };
    if let Some(report) = error.report() {
        world.tally.note(report, *drain);
        if report.outcome != SwapOutcome::RolledBack(error.failure()) {
            return Err(format!("{error}; its report says {:?}", report.outcome));
        }
    }
    let may = match error.failure() {
        SwapFailure::Destroyed => tells(What::Destroyed, life.has_begun_to_end()),
        SwapFailure::Busy => tells(What::Busy, *disturbed),
        SwapFailure::NoCommonFormat => tells(What::NoFormat, *kind == Kind::Alien),
        SwapFailure::TimedOut(SwapPhase::Forward) => tells(What::TimedOutForward, *deadline),
        SwapFailure::TimedOut(SwapPhase::Transfer) => tells(What::TimedOutTransfer, *deadline),
        SwapFailure::TimedOut(SwapPhase::Block) => {
            if *fault == Fault::None && !deadline && cancel.is_none() && !disturbed {
                count(What::Undisturbed);
                count(What::UndisturbedTimedOut);
            }
            tells(What::TimedOutBlock, *drain < PATIENCE || *deadline)
        }
        SwapFailure::Cancelled(_) => {
            tells(What::Cancelled, cancel.as_ref().unwrap_or(&world.last).is_cancelled())
        }
        SwapFailure::TransferFailed => tells(What::Failed, fault.may_err() && !broken(Break::WrongFailure)),
        SwapFailure::TransferPanicked => tells(What::Panicked, fault.may_panic()),
        _ => false,
    };
    if may {
        return Ok(());
    }
    Err(format!("a swap failed and had no reason to: {error} (to {kind:?}, {fault:?}, others: {disturbed})"))
}

fn tells(what: What, may: bool) -> bool {
    count(what);
    may
}

/// Has the factory make an object.
pub(super) fn make(world: &World, life: &Arc<Life>) -> Option<squall::Owned<dyn Relay>> {
    MAKING.set(Some(Arc::clone(life)));
    let made = world.factory.try_create();
    MAKING.set(None);
    let candidates = MADE.take();
    match made {
        Ok(owned) => Some(owned),
        Err(_) => {
            candidates.iter().for_each(|(number, _)| life.failed(*number));
            None
        }
    }
}

/// The factory's maker of implementations of this kind.
pub(super) fn maker(world: &'static World, kind: Kind) -> impl Fn() -> Replacement<dyn Relay> + Clone + Send + Sync {
    move || {
        let life = MAKING.take();
        let mut rng = Rng::new(world.numbers.load(Ordering::Relaxed), DRAWS.replace(DRAWS.get() + 1));
        let candidate = Candidate::build(world, life.as_ref(), (kind, true), Fault::None, &mut rng);
        MADE.with_borrow_mut(|made| made.push((candidate.number, candidate.book)));
        candidate.new
    }
}

/// Swaps all objects of the factory, one after the other.
pub(super) fn upgrade(world: &'static World, rng: &mut Rng) {
    let Ok(alone) = world.upgrading.try_lock() else { return };
    let kind = if rng.one_in(2) { Kind::Central } else { Kind::Spread };
    MADE.take();
    // AcqRel: pairs with those in `one`, before and after.
    world.upgrades.fetch_add(1, Ordering::AcqRel);
    let outcome = world.factory.upgrade(maker(world, kind), |swap| swap.drain_timeout(UPGRADE_DRAIN));
    world.upgrades.fetch_add(1, Ordering::AcqRel);
    drop(alone);
    count(What::Upgrades);
    let made = MADE.take();
    let upgraded = match outcome {
        Ok(upgraded) => upgraded,
        Err(error) => return world.trial.accuse(format!("an upgrade: {error}")),
    };
    // The first is made in any case, to see of which class it is.
    if made.len() != upgraded.len().max(1) {
        let (made, all) = (made.len(), upgraded.len());
        world.trial.accuse(format!("an upgrade has made {made} implementations for {all} objects"));
    }
    for (one, (number, book)) in upgraded.iter().zip(&made) {
        let may = match one.outcome.as_ref().map_err(SwapError::failure) {
            Ok(report) => {
                world.tally.note(report, UPGRADE_DRAIN);
                tells(What::Upgraded, true)
            }
            Err(SwapFailure::TimedOut(SwapPhase::Block)) => tells(What::TimedOutBlock, true),
            Err(SwapFailure::Busy | SwapFailure::Replaced) => tells(What::Busy, true),
            Err(SwapFailure::Destroyed) => {
                tells(What::Destroyed, book.get().is_none_or(|life| life.has_begun_to_end()))
            }
            Err(_) => false,
        };
        let settled = book.get().map_or(Ok(()), |life| settle(life, *number, &one.outcome));
        world.judge(settled);
        if !may {
            world.trial.accuse(format!("an upgrade of {}: {:?}", one.id, one.outcome));
        }
    }
}

/// An upgrade that is asked for inside an operation.
pub(super) fn refused_upgrade(world: &'static World) {
    let outcome = pin(|_| world.factory.upgrade(maker(world, Kind::Central), |swap| swap));
    MADE.take();
    if !matches!(outcome, Err(WaitError::InOperation)) {
        world.trial.accuse(format!("an upgrade inside an operation gave {outcome:?}"));
    }
    if in_operation() {
        world.trial.accuse("a thread is still inside an operation after it".to_owned());
    }
}

/// What the library remembers.
pub(super) fn look_back(world: &World) {
    const REMEMBERED_MAX: usize = 256;
    let swaps = recent();
    if swaps.len() > REMEMBERED_MAX {
        world.trial.accuse(format!("{} swaps are remembered", swaps.len()));
    }
}
