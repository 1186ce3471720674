//! The phases of a swap.
//!
//! - I1. From `attach` on, the swap is counted inside the old object's gate. So the old object stays valid
//!   outside operations, too. The new object belongs to the swap until it serves. The swap belongs to one
//!   thread at a time. A task may take it to another thread while it waits in Forward, and then leaves it to
//!   a thread of its own (`rest`).
//! - I2. User code (exports, imports, drops) runs under no lock and outside every operation. While user code
//!   runs, the waiting calls wait only for this code.
//! - I3. Callers wait from `block` until `decide`. Between the two, no thread of the swap waits for a grace
//!   period.

use squall_machine::Vp;
use squall_rcu::{Marker, WaitError};
use squall_sys::pause;
use squall_sys::sync::Arc;
use squall_sys::sync::Mutex;
use squall_sys::sync::atomic::{AtomicUsize, Ordering, fence};
use squall_sys::sync::thread;
use std::any::{Any, TypeId};
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use crate::call::frames::{in_method, in_transfer, transferring};
use crate::call::mediated::{Full, retire};
use crate::object::owned::wake;
use crate::object::replacement::discard;
use crate::protocol::class::{Class, ObjectKind};
use crate::protocol::destroy::run_drop;
use crate::protocol::formats::{Agreed, List, agree};
use crate::protocol::id::Id;
use crate::protocol::mediation::{Attach, Settled, attach, relieve, settle};
use crate::protocol::mediator::{Mediator, Phase};
use crate::protocol::miss::{InFlight, leave_as_owner};
use crate::protocol::object::Object;
use crate::protocol::reps::{Owner, Rep};
use crate::protocol::sleepers::sleepers;
use crate::protocol::tables::{Tables, existing};
use crate::swap::arbiter::{Business, Serving, TRIES, serving, take_away};
use crate::swap::records::{begun, ended};
use crate::swap::report::{SwapError, SwapFailure, SwapOutcome, SwapPhase, SwapReport, remember};
use crate::swap::rest::Rest;
use crate::swap::{Cancel, Limits};

type Detail = Option<Box<dyn Error + Send + Sync>>;

/// The interval at which a waiting swap checks whether it was cancelled.
const SLICE: Duration = Duration::from_millis(1);
/// The number of checks for the last counted call before the swap sleeps.
const SPINS: usize = 200;
/// The time after which the thread that moves parts starts helpers.
const ALONE: Duration = Duration::from_micros(500);
/// The greatest number of threads that move parts at once.
const MOVERS_MAX: usize = 16;

/// The reason for a rollback, and the error of the users' code.
struct Back(SwapFailure, Detail);

impl From<SwapFailure> for Back {
    fn from(failure: SwapFailure) -> Back {
        Back(failure, None)
    }
}

/// A new object that does not serve yet.
struct Candidate(NonNull<Object>);

impl Drop for Candidate {
    fn drop(&mut self) {
        let this = Sent(self.0);
        // SAFETY: the caller's alone.
        let end = move || run_drop(|| unsafe { discard(this.get()) });
        // Users' drops run outside every operation.
        if squall_rcu::in_operation() { squall_rcu::defer(end) } else { end() }
    }
}

/// An object on its way to another thread.
#[derive(Clone, Copy)]
struct Sent(NonNull<Object>);

// SAFETY: objects are used from any thread.
unsafe impl Send for Sent {}

impl Sent {
    fn get(self) -> NonNull<Object> {
        self.0
    }
}

/// A swap that has begun: calls are passed on to the old object. Its drop rolls the swap back.
pub(crate) struct Begun {
    /// Present until the end.
    run: Option<Run>,
    agreed: Option<Agreed>,
    report: SwapReport,
    clock: Clock,
}

// SAFETY: the run points to objects and a mediator, which are shared among threads. Any thread may own the
// swap and end it (I1).
unsafe impl Send for Begun {}

impl Begun {
    /// Begins to swap the object of this id for `new`, which belongs to the caller.
    pub(crate) fn new(
        id: Id,
        interface: &'static str,
        new: NonNull<Object>,
        limits: Limits,
        expected: Option<&[TypeId]>,
    ) -> Result<Begun, SwapError> {
        let mut new = Candidate(new);
        let refuse = |failure| SwapError::new(interface, id, failure);
        may_swap(id).map_err(refuse)?;
        let Some(tables) = existing() else { return Err(refuse(SwapFailure::NotThere)) };
        let from = class_of(tables, id).map_err(refuse)?;
        if expected.is_some_and(|expected| !expected.contains(&from.more.type_id)) {
            return Err(refuse(SwapFailure::Replaced));
        }
        // SAFETY: ours.
        let to = unsafe { new.0.as_ref() }.class;
        let agreed = match limits.state {
            false => None,
            true => {
                let (mut old_list, mut new_list) = (List::default(), List::default());
                (from.more.formats)(&mut old_list);
                (to.more.formats)(&mut new_list);
                let Some(agreed) = agree(&mut old_list, &mut new_list) else {
                    let detail = format!(
                        "{} exports {}; {} imports {}; list a format in `formats` of both, or swap `without_state`",
                        (from.name)(),
                        old_list.exports(),
                        (to.name)(),
                        new_list.imports()
                    );
                    return Err(refuse(SwapFailure::NoCommonFormat).because(Some(detail.into())));
                };
                Some(agreed)
            }
        };
        // SAFETY: ours, and unseen by other threads.
        unsafe {
            new.0.as_mut().id = id;
            (to.more.prepare)(new.0).map_err(|error| {
                refuse(SwapFailure::TransferFailed).because(Some(error.to_string().into()))
            })?;
        }
        let mut report = SwapReport::new(id, interface, (from.name)(), (to.name)());
        let mut clock = Clock(Instant::now());
        let run = Run::attach(tables, id, from, &new, limits).map_err(refuse)?;
        // From here on `run` owns the new object.
        std::mem::forget(new);
        report.attach = clock.lap();
        begun(id);
        Ok(Begun { run: Some(run), agreed, report, clock })
    }

    /// Ends the swap, on this thread.
    pub(crate) fn end(mut self) -> Result<SwapReport, SwapError> {
        let (agreed, report, clock) = (self.agreed.as_ref(), &mut self.report, &mut self.clock);
        let outcome = self.run.take().map_or(Ok(()), |run| run.on_to_the_end(agreed, report, clock));
        self.tell(outcome)
    }

    /// Returns the id and the interface of the object.
    pub(crate) fn object(&self) -> (Id, &'static str) {
        (self.report.id, self.report.interface)
    }

    /// Ends the swap, and blocks no thread.
    pub(crate) async fn end_in_task(mut self) -> Result<SwapReport, SwapError> {
        let Some(run) = &mut self.run else { return self.end() };
        let cancel = Cancel::new();
        run.limits.abandoned = Some(cancel.clone());
        match run.marker.wait_async().await {
            Ok(()) => Rest::new(self, cancel).await,
            // A child of a fork takes no lock: neither those of the swap nor that of the reports.
            Err(error) if squall_sys::fork::forked() => {
                Err(SwapError::new(self.report.interface, self.report.id, error.into()))
            }
            Err(error) => {
                let outcome = self.abandon(error.into());
                self.tell(outcome)
            }
        }
    }

    /// Rolls the swap back from its first phase.
    fn abandon(&mut self, failure: SwapFailure) -> Result<(), Back> {
        let Some(run) = self.run.take() else { return Ok(()) };
        self.report.forward = self.clock.lap();
        run.decide_on(Err(failure.into()), self.agreed.as_ref(), &mut self.report, &mut self.clock)
    }

    fn tell(mut self, outcome: Result<(), Back>) -> Result<SwapReport, SwapError> {
        self.report.outcome = match &outcome {
            Ok(()) => SwapOutcome::Swapped,
            Err(Back(failure, _)) => SwapOutcome::RolledBack(*failure),
        };
        remember(&self.report);
        ended(&self.report);
        let report = self.report.clone();
        match outcome {
            Ok(()) => Ok(report),
            Err(Back(failure, detail)) => {
                Err(SwapError::new(report.interface, report.id, failure).because(detail).with(report))
            }
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        // In the child of a fork calls fail anyway, and other threads' locks may be held for ever.
        if self.run.is_none() || squall_sys::fork::forked() {
            return;
        }
        let outcome = self.abandon(SwapFailure::Cancelled(SwapPhase::Forward));
        if let Err(Back(failure, _)) = outcome {
            self.report.outcome = SwapOutcome::RolledBack(failure);
            remember(&self.report);
            ended(&self.report);
        }
    }
}

/// Whether the calling thread may swap the object of this id.
pub(super) fn may_swap(id: Id) -> Result<(), SwapFailure> {
    if in_transfer() {
        return Err(SwapFailure::InTransfer);
    }
    if in_method(id) && !squall_rcu::in_operation() {
        return Err(SwapFailure::InMethod);
    }
    squall_rcu::__may_wait().map_err(SwapFailure::from)
}

/// Returns the class of the object that serves under this id, if it can be swapped now.
fn class_of(tables: &Tables, id: Id) -> Result<&'static Class, SwapFailure> {
    // SAFETY: within the operation.
    let look = || match unsafe { serving(tables, id) }? {
        // SAFETY: valid within the operation.
        Serving::Alone(object) => Ok(unsafe { object.as_ref() }.class),
        // SAFETY: valid within the operation.
        Serving::Mediated(mediator) => unsafe {
            match Business::of(mediator.as_ref()) {
                Business::Swap => Err(SwapFailure::Busy),
                Business::Arbitration | Business::Passing => Ok(mediator.as_ref().class()),
            }
        },
    };
    squall_rcu::__try_pin(|_| look()).unwrap_or_else(|error| Err(error.into()))
}

/// A swap in progress: the mediator is installed.
struct Run {
    tables: &'static Tables,
    mediator: NonNull<Mediator>,
    old: NonNull<Object>,
    new: NonNull<Object>,
    limits: Limits,
    /// When it elapses, the calls that began before it are over.
    marker: Marker,
}

impl Run {
    /// Installs a mediator in front of the object of this id and class.
    fn attach(
        tables: &'static Tables,
        id: Id,
        class: &'static Class,
        new: &Candidate,
        limits: Limits,
    ) -> Result<Run, SwapFailure> {
        let new = new.0;
        for _ in 0..TRIES {
            // SAFETY: within the operation, in which the occupant of the slot is valid.
            let attached = squall_rcu::__pin(|_| unsafe {
                let (found, before) = match serving(tables, id)? {
                    Serving::Alone(object) => (object, None),
                    Serving::Mediated(mediator) => match Business::of(mediator.as_ref()) {
                        Business::Swap => return Err(SwapFailure::Busy),
                        Business::Arbitration => (mediator.as_ref().old, Some(mediator)),
                        Business::Passing => return Ok(None),
                    },
                };
                if !std::ptr::eq(found.as_ref().class, class) {
                    return Err(SwapFailure::Busy);
                }
                if !found.as_ref().gate.enter_as_owner() {
                    return Err(SwapFailure::Destroyed);
                }
                let arbitration =
                    before.and_then(|before| Full::of(before).arbitration.as_ref()).map(Arc::clone);
                let mediator = Mediator::new(id, found, Some(new), Phase::Forward);
                let full = Full::new(mediator, arbitration, Some(new.as_ref().class));
                let mediator = NonNull::from(Box::leak(full)).cast::<Mediator>();
                let put = match before {
                    None => attach(tables, mediator),
                    Some(before) => relieve(tables, before, mediator),
                };
                if put == Attach::Attached {
                    before.into_iter().for_each(|before| retire(before));
                    return Ok(Some((mediator, found)));
                }
                leave_as_owner(tables, found);
                if let (Attach::Doomed, Some(before)) = (put, before) {
                    // The old mediator is ours since it was relieved. Our own mediator may have been seen in
                    // a slot other than the first.
                    retire(before);
                    retire(mediator);
                    return Err(SwapFailure::Destroyed);
                }
                drop(Box::from_raw(mediator.cast::<Full>().as_ptr()));
                Ok(None)
            })?;
            if let Some((mediator, old)) = attached {
                let marker = Marker::set();
                return Ok(Run { tables, mediator, old, new, limits, marker });
            }
            thread::yield_now();
        }
        Err(SwapFailure::Busy)
    }

    fn this(&self) -> &Mediator {
        // SAFETY: freed by this thread alone, at the end.
        unsafe { self.mediator.as_ref() }
    }

    fn full(&self) -> &Full {
        // SAFETY: freed by this thread alone, at the end.
        unsafe { Full::of(self.mediator) }
    }

    fn on_to_the_end(
        self,
        agreed: Option<&Agreed>,
        report: &mut SwapReport,
        clock: &mut Clock,
    ) -> Result<(), Back> {
        // No panic is expected here; if one happens, the object must not stay blocked. A signal handler on
        // this thread that calls the object gets an error, where it would wait for this thread.
        let going = AssertUnwindSafe(|| self.go(agreed, report, clock));
        let (gone, _) = transferring(|| catch_unwind(going));
        let moved = gone.unwrap_or_else(|payload| {
            Err(Back(SwapFailure::TransferPanicked, Some(text_of(payload).into())))
        });
        self.decide_on(moved, agreed, report, clock)
    }

    /// Completes the swap if the state has moved, and rolls it back otherwise.
    fn decide_on(
        self,
        moved: Result<(), Back>,
        agreed: Option<&Agreed>,
        report: &mut SwapReport,
        clock: &mut Clock,
    ) -> Result<(), Back> {
        let kept = match &moved {
            Ok(()) => self.decide(Phase::Complete, report),
            Err(_) => self.decide(Phase::RolledBack, report),
        };
        report.complete = clock.lap();
        report.forwarded = self.this().total();
        report.blocked = self.full().parked.load(Ordering::Relaxed);
        self.clear_up(moved.is_ok() && kept != Kept::Destroyed, agreed.is_some());
        moved?;
        if kept == Kept::Destroyed { Err(SwapFailure::Destroyed.into()) } else { Ok(()) }
    }

    /// Runs the phases Forward, Block and Transfer.
    fn go(&self, agreed: Option<&Agreed>, report: &mut SwapReport, clock: &mut Clock) -> Result<(), Back> {
        let forwarded = self.forward();
        report.forward = clock.lap();
        forwarded?;
        let blocked = self.block();
        report.block = clock.lap();
        blocked?;
        let moved = agreed.map_or(Ok(()), |agreed| self.transfer(agreed, report));
        report.transfer = clock.lap();
        moved?;
        self.go_on(SwapPhase::Transfer).map_err(Back::from)
    }

    /// Checks whether the swap may continue.
    fn go_on(&self, phase: SwapPhase) -> Result<(), SwapFailure> {
        if self.this().is_doomed() {
            return Err(SwapFailure::Destroyed);
        }
        let cancels = [&self.limits.cancel, &self.limits.abandoned];
        if cancels.into_iter().flatten().any(Cancel::is_cancelled) {
            return Err(SwapFailure::Cancelled(phase));
        }
        if self.limits.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(SwapFailure::TimedOut(phase));
        }
        Ok(())
    }

    /// Waits until every call is over that began before the mediator was installed.
    fn forward(&self) -> Result<(), SwapFailure> {
        loop {
            self.go_on(SwapPhase::Forward)?;
            let slice = Instant::now() + SLICE;
            let until = self.limits.deadline.map_or(slice, |deadline| deadline.min(slice));
            match self.marker.wait_until(until) {
                Ok(()) => return Ok(()),
                Err(WaitError::Timeout) => {
                    if cfg!(test) {
                        pause::point("forward");
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until no call is in the old object.
    fn block(&self) -> Result<(), SwapFailure> {
        let bound = Instant::now().checked_add(self.limits.drain);
        let sleepers = sleepers(self.this().id.slot());
        self.this().block();
        // SAFETY: the old object is valid (I1), and not closed.
        let try_transfer = || unsafe { self.this().try_transfer(self.tables) };
        for _ in 0..SPINS {
            if try_transfer() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        // SAFETY: the old object is valid (I1), and not closed.
        let outcome = unsafe {
            loop {
                let seen = sleepers.prepare();
                // Repeated: the calls that we wait for may have made representatives.
                self.this().notify(true);
                // Methods that sleep in the object return if their calls can be repeated.
                wake(self.old);
                if try_transfer() {
                    break Ok(());
                }
                if cfg!(test) {
                    pause::point("block");
                }
                if let Err(failure) = self.go_on(SwapPhase::Block) {
                    break Err(failure);
                }
                let now = Instant::now();
                let left = bound.map_or(Some(SLICE), |bound| bound.checked_duration_since(now));
                let Some(left) = left else { break Err(SwapFailure::TimedOut(SwapPhase::Block)) };
                sleepers.wait(seen, Some(left.min(SLICE)));
            }
        };
        // SAFETY: the old object is valid (I1), and not closed.
        unsafe { self.this().notify(false) };
        outcome
    }

    /// Moves the state.
    fn transfer(&self, agreed: &Agreed, report: &mut SwapReport) -> Result<(), Back> {
        let parts = if agreed.by_parts() { self.parts() } else { vec![None] };
        let movement = Movement {
            run: self,
            agreed,
            parts: &parts,
            next: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            failed: Mutex::new(None),
        };
        movement.all();
        report.format = Some(agreed.name());
        report.parts = parts.len();
        report.bytes = movement.bytes.into_inner();
        match movement.failed.into_inner().unwrap_or_else(|poison| poison.into_inner()) {
            Some(back) => Err(back),
            None => Ok(()),
        }
    }

    /// Returns the representatives of the old object.
    fn parts(&self) -> Vec<Option<PartOf>> {
        let mut parts = Vec::new();
        // SAFETY: the old object is valid, and not closed (I1); no representative is added now.
        unsafe {
            let class = self.old.as_ref().class;
            (class.for_each_rep)(self.old, &mut |owner| {
                let vp = match class.kind {
                    ObjectKind::Shared => Vp::current(),
                    ObjectKind::Clustered => Vp::new(Rep::of(owner).as_ref().vp),
                };
                parts.push(Some(PartOf { owner, vp }));
            });
        }
        parts
    }

    /// Installs the new object, or the old one again.
    fn decide(&self, phase: Phase, report: &mut SwapReport) -> Kept {
        let winner = if phase == Phase::Complete { self.new } else { self.old };
        let arbitration = self.full().arbitration.as_ref().filter(|arbitration| arbitration.is_live());
        let next = arbitration.map(|arbitration| {
            let next = Mediator::new(self.this().id, winner, None, Phase::Arbitrate);
            NonNull::from(Box::leak(Full::new(next, Some(Arc::clone(arbitration)), None))).cast::<Mediator>()
        });
        // SAFETY: both objects are valid (I1) to the end of the operation; the mediator is ours.
        let settled = squall_rcu::__pin(|_| unsafe { settle(self.tables, self.mediator, phase, next) });
        self.note_pauses(report);
        match (settled, next) {
            (Settled::Decided { attached: true }, _) | (Settled::Decided { .. }, None) => {}
            // SAFETY: ours, and in no slot; it may have been seen in a slot other than the first.
            (_, Some(next)) => unsafe { retire(next) },
            (Settled::Doomed, None) => {}
        }
        if let (Settled::Decided { attached: true }, Some(arbitration)) = (settled, arbitration) {
            // SeqCst: pairs with the fence of `take_away`.
            fence(Ordering::SeqCst);
            if !arbitration.is_live() {
                take_away(self.tables, self.this().id, arbitration);
            }
        }
        if settled == Settled::Doomed { Kept::Destroyed } else { Kept::Serving }
    }

    /// Records the pauses, once the waiting calls can continue.
    fn note_pauses(&self, report: &mut SwapReport) {
        let full = self.full();
        let now = full.began.elapsed();
        for place in &full.parked_at {
            // Zero if the call has only just begun to wait and has not stored its time.
            if let Some(since) = place.load(Ordering::Relaxed).checked_sub(1) {
                report.pauses.push(now.saturating_sub(Duration::from_nanos(since)));
            }
        }
        report.longest_pause = report.pauses.iter().max().copied().unwrap_or_default();
    }

    /// Ends the object that does not serve. `moved` says that the new one serves, `with_state` that state has
    /// moved.
    fn clear_up(&self, moved: bool, with_state: bool) {
        if moved && with_state {
            // SAFETY: the old object is valid, and no thread calls it any more; once.
            run_drop(|| unsafe { (self.old.as_ref().class.more.moved)(self.old) });
        }
        // SAFETY: kept since `attach`; once.
        squall_rcu::__pin(|_| unsafe { leave_as_owner(self.tables, self.old) });
        if !moved {
            // No thread has called it.
            drop(Candidate(self.new));
        }
        // SAFETY: ours, and in no slot.
        unsafe { retire(self.mediator) };
    }
}

/// Outcome of the last step: whether the object that the swap decided on serves now.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Serving,
    /// The object was destroyed during the swap.
    Destroyed,
}

/// A stopwatch: measures the time since the last lap.
struct Clock(Instant);

impl Clock {
    fn lap(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.0, now)
    }
}

/// A representative of the old object, and the VP for which it was made.
#[derive(Clone, Copy)]
struct PartOf {
    owner: NonNull<Owner>,
    vp: Vp,
}

// SAFETY: representatives are shared among threads.
unsafe impl Send for PartOf {}
// SAFETY: representatives are shared among threads.
unsafe impl Sync for PartOf {}

/// The transfer of the parts of a state.
struct Movement<'a> {
    run: &'a Run,
    agreed: &'a Agreed,
    parts: &'a [Option<PartOf>],
    next: AtomicUsize,
    bytes: AtomicUsize,
    failed: Mutex<Option<Back>>,
}

// SAFETY: the run points to objects and a mediator, which are shared among threads.
unsafe impl Sync for Movement<'_> {}

impl Movement<'_> {
    /// Moves all parts: alone at first, and with helpers if many parts are left and processors are free.
    fn all(&self) {
        let began = Instant::now();
        self.some(|| began.elapsed() < ALONE);
        let left = self.parts.len().saturating_sub(self.next.load(Ordering::Relaxed));
        if left == 0 || self.has_failed() {
            return;
        }
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let helpers = left.min(processors).min(MOVERS_MAX).saturating_sub(1);
        thread::scope(|scope| {
            for _ in 0..helpers {
                let thread = thread::Builder::new().name("squall-transfer".into());
                // Without a helper the transfer only takes longer.
                let _ = thread.spawn_scoped(scope, || self.some(|| true));
            }
            self.some(|| true);
        });
    }

    fn has_failed(&self) -> bool {
        self.failed.lock().unwrap_or_else(|poison| poison.into_inner()).is_some()
    }

    /// Moves parts until all are taken, one has failed, or `go_on` returns false.
    fn some(&self, go_on: impl Fn() -> bool) {
        while go_on() && !self.has_failed() {
            // Relaxed: each index goes to one thread, and their effects are joined at the end.
            let Some(part) = self.parts.get(self.next.fetch_add(1, Ordering::Relaxed)) else { return };
            if let Err(back) = self.one(*part) {
                let mut failed = self.failed.lock().unwrap_or_else(|poison| poison.into_inner());
                let first = failed.replace(back);
                drop(failed);
                // Outside the lock: dropping an error is users' code.
                return discard_error(first);
            }
        }
    }

    fn one(&self, part: Option<PartOf>) -> Result<(), Back> {
        self.run.go_on(SwapPhase::Transfer)?;
        let before = squall_rcu::__set_transferring(true);
        let (moved, parked) = transferring(|| catch_unwind(AssertUnwindSafe(|| self.move_part(part))));
        squall_rcu::__set_transferring(before);
        let outcome = match moved {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Back(SwapFailure::TransferFailed, Some(error))),
            Err(payload) => Err(Back(SwapFailure::TransferPanicked, Some(text_of(payload).into()))),
        };
        if parked {
            discard_error(outcome.err());
            let why = "it called an object and would have waited for a swap";
            return Err(Back(SwapFailure::TransferFailed, Some(why.into())));
        }
        outcome
    }

    fn move_part(&self, part: Option<PartOf>) -> Result<(), Box<dyn Error + Send + Sync>> {
        let &Run { tables, old, new, .. } = self.run;
        // SAFETY: both objects are valid and of the classes that listed the formats, and no thread calls them
        // (I1).
        unsafe {
            let (format, bytes) = self.agreed.take(old, part.map(|part| part.owner))?;
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            let Some(part) = part else { return self.agreed.put(new, None, format) };
            let miss = InFlight::inside(tables, new, 0).ok_or("the new object was destroyed")?;
            let found = (new.as_ref().class.more.resolve)(new, part.vp).map_err(|refusal| refusal.0)?;
            drop(miss);
            self.agreed.put(new, Some(found.owner), format)
        }
    }
}

/// Returns the message of a panic.
fn text_of(payload: Box<dyn Any + Send>) -> String {
    let payload = match payload.downcast::<&str>() {
        Ok(text) => return (*text).to_owned(),
        Err(payload) => payload,
    };
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => {
            // Its own drop is users' code too, and could panic here.
            std::mem::forget(payload);
            "a panic".into()
        }
    }
}

/// Drops an error, which is users' code.
fn discard_error(error: Option<Back>) {
    run_drop(|| drop(error));
}
