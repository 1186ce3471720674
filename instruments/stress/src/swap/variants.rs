//! The implementations: one representative, or one per cluster. Their state moves in parts, whole, as text,
//! or in a format that the others do not know. `F` marks those that a factory makes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use squall::swap::{Format, Replacement, RootFormats, State, StateFormats, Swap, SwapFailure};
use squall::{ClusterSize, RepContext, Root, Vp, machine};

use super::counts::{Stat, count};
use super::faults::{Fault, FaultCell};
use super::implementation::{Implementation, RecordCell};
use super::interfaces::{Relay, Station};
use super::marks::{Marks, Sums};
use super::record::ObjectRecord;
use super::world::World;
use crate::run::Rng;

/// State in transfer.
struct Moving {
    record: Option<Arc<ObjectRecord>>,
    sums: Vec<Sums>,
}

impl Format for Moving {
    fn bytes(&self) -> usize {
        size_of_val(self.sums.as_slice())
    }
}

/// A format without another user.
struct Foreign;
impl Format for Foreign {}

impl Moving {
    fn text(&self) -> String {
        let mut text = self.record.as_ref().map_or(0, |record| record.serial).to_string();
        for Sums { last, count, sum } in &self.sums {
            text += &format!(";{last},{count},{sum}");
        }
        text
    }

    fn parse(world: &'static World, text: &str) -> Option<Moving> {
        let mut words = text.split(';');
        let record = world.record(words.next()?.parse().ok()?);
        let sums = words.map(|word| {
            let mut numbers = word.split(',').map(str::parse::<u64>);
            let (last, count, sum) = (numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?);
            Some(Sums { last, count, sum })
        });
        Some(Moving { record, sums: sums.collect::<Option<_>>()? })
    }
}

/// The common operations of all implementations.
pub(super) trait Body {
    /// Whether all calls come to this representative.
    const EXACT: bool;
    fn implementation(&self) -> &Implementation;
    fn own(&self) -> &Marks;
    /// Returns the marks of a lane over all representatives.
    fn sums(&self, lane: usize) -> Sums;
    /// Sleeps, if it can, until it is woken. Returns false if the call must end without an effect.
    fn sleep(&self) -> bool;
    fn wake(&self);
}

/// An implementation with one representative.
pub(super) struct Single<const KIND: u8> {
    implementation: Implementation,
    marks: Marks,
}

const CENTRAL: u8 = 0;
const CENTRAL_OF_FACTORY: u8 = 1;
const TEXT: u8 = 2;
const ALIEN: u8 = 3;

impl<const KIND: u8> Single<KIND> {
    fn new(implementation: Implementation) -> Single<KIND> {
        Single { marks: implementation.marks(), implementation }
    }

    fn take(&self) -> squall::swap::Transferred<Moving> {
        self.implementation.export()?;
        Ok(Moving { record: self.implementation.record().cloned(), sums: self.marks.all() })
    }

    fn put(&self, moving: Moving) -> squall::swap::Transferred<()> {
        put(&self.implementation, &self.marks, moving)
    }
}

fn put(implementation: &Implementation, marks: &Marks, moving: Moving) -> squall::swap::Transferred<()> {
    if let Some(record) = &moving.record {
        implementation.adopt(record);
    }
    implementation.import(marks, moving.sums)
}

impl<const KIND: u8> Body for Single<KIND> {
    const EXACT: bool = true;

    fn implementation(&self) -> &Implementation {
        &self.implementation
    }

    fn own(&self) -> &Marks {
        &self.marks
    }

    fn sums(&self, lane: usize) -> Sums {
        self.marks.of(lane)
    }

    fn sleep(&self) -> bool {
        true
    }

    fn wake(&self) {}
}

impl<const KIND: u8> State for Single<KIND> {
    fn formats(formats: &mut StateFormats<'_, Self>) {
        if KIND == ALIEN {
            formats.export(|_| Ok(Foreign)).import(|_, Foreign| Ok(()));
            return;
        }
        if KIND != TEXT {
            formats.export_part(Self::take).import_part(Self::put);
        }
        formats.export(|this| Ok(this.take()?.text())).import(|this, text: String| {
            this.put(Moving::parse(this.implementation.world, &text).ok_or("the text is not a valid state")?)
        });
    }

    fn moved(&self) {
        self.implementation.moved();
    }
}

impl<const KIND: u8> Drop for Single<KIND> {
    fn drop(&mut self) {
        self.implementation.absorb(&mut self.marks);
    }
}

/// An implementation with one representative per cluster.
pub(super) struct Spread<const F: bool, const EAGER: bool> {
    implementation: Implementation,
    draws: AtomicU64,
    wakes: AtomicU64,
}

pub(super) struct Leaf<const F: bool, const EAGER: bool> {
    marks: Marks,
    at: RepContext<Spread<F, EAGER>>,
}

impl<const F: bool, const EAGER: bool> Root for Spread<F, EAGER> {
    type Interface = dyn Relay;
    type Rep = Leaf<F, EAGER>;
    const EAGER: bool = EAGER;

    fn make_rep(&self, at: RepContext<Self>) -> Leaf<F, EAGER> {
        Leaf { marks: self.implementation.make_rep(), at }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats.export_part(|root, rep| {
            root.implementation.export()?;
            Ok(Moving { record: root.implementation.record().cloned(), sums: rep.marks.all() })
        });
        formats.import_part(|root, rep, moving: Moving| put(&root.implementation, &rep.marks, moving));
        formats.export(|whole| {
            let implementation = &whole.root().implementation;
            implementation.export()?;
            let mut sums = vec![Sums::default(); implementation.world.workers.len()];
            for (_, rep) in whole.reps() {
                sums.iter_mut().zip(rep.marks.all()).for_each(|(sums, more)| *sums = sums.and(more));
            }
            Ok(Moving { record: implementation.record().cloned(), sums }.text())
        });
        formats.import(|whole, text: String| {
            let root = whole.root();
            let moving =
                Moving::parse(root.implementation.world, &text).ok_or("the text is not a valid state")?;
            let mut rng = Rng::new(root.implementation.number, root.draws.fetch_add(1, Ordering::Relaxed));
            put(&root.implementation, &whole.rep(any_vp(&mut rng)).marks, moving)
        });
    }

    fn moved(&self) {
        self.implementation.moved();
    }
}

impl<const F: bool, const EAGER: bool> Body for Leaf<F, EAGER> {
    const EXACT: bool = false;

    fn implementation(&self) -> &Implementation {
        &self.at.root().implementation
    }

    fn own(&self) -> &Marks {
        &self.marks
    }

    fn sums(&self, lane: usize) -> Sums {
        if lane.is_multiple_of(2) {
            return self.at.reps().map(|rep| rep.marks.of(lane)).fold(Sums::default(), Sums::and);
        }
        self.at.gather(|rep| rep.marks.of(lane), Sums::and).unwrap_or_default()
    }

    fn sleep(&self) -> bool {
        let wakes = &self.at.root().wakes;
        let seen = wakes.load(Ordering::Relaxed);
        self.at.sleep_until(|| (wakes.load(Ordering::Relaxed) != seen).then_some(())).is_ok()
    }

    fn wake(&self) {
        self.at.root().wakes.fetch_add(1, Ordering::Relaxed);
        self.at.wake();
    }
}

impl<const F: bool, const EAGER: bool> Drop for Leaf<F, EAGER> {
    fn drop(&mut self) {
        self.at.root().implementation.absorb(&mut self.marks);
    }
}

/// Returns a random VP of this machine.
pub(super) fn any_vp(rng: &mut Rng) -> Vp {
    let vp = Vp::new(rng.below(machine().vp_limit() as u64) as u32);
    if machine().vps().contains(vp) { vp } else { Vp::current() }
}

/// Returns a random cluster size.
fn any_size(rng: &mut Rng) -> ClusterSize {
    match rng.below(7) {
        level @ 0..5 => ClusterSize::LEVELS[level as usize],
        _ => ClusterSize::fixed(1 + rng.below(9) as u32),
    }
}

/// The kind of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Central,
    Text,
    Spread,
    Eager,
    /// Its state has no common format with the others.
    Alien,
}

impl Kind {
    pub(super) fn draw(rng: &mut Rng) -> Kind {
        match rng.below(64) {
            0 => Kind::Alien,
            1 => Kind::Eager,
            2..12 => Kind::Text,
            12..30 => Kind::Central,
            _ => Kind::Spread,
        }
    }
}

/// A future implementation and its properties.
pub(super) struct Candidate {
    pub(super) new: Replacement<dyn Relay>,
    pub(super) kind: Kind,
    pub(super) number: u64,
    pub(super) record_cell: RecordCell,
    pub(super) fault: FaultCell,
}

impl Candidate {
    /// Builds a candidate; for an object of the factory if `of_factory`.
    pub(super) fn build(
        world: &'static World,
        record: Option<&Arc<ObjectRecord>>,
        (kind, of_factory): (Kind, bool),
        fault: Fault,
        rng: &mut Rng,
    ) -> Candidate {
        let implementation = Implementation::new(world, record, fault);
        let (number, record_cell, fault) =
            (implementation.number, implementation.record_cell(), implementation.fault());
        let (draws, wakes) = (AtomicU64::new(0), AtomicU64::new(0));
        let new = match (kind, of_factory) {
            (Kind::Alien, _) => Replacement::swappable(Single::<ALIEN>::new(implementation)),
            (Kind::Text, false) => Replacement::swappable(Single::<TEXT>::new(implementation)),
            (Kind::Central, false) => Replacement::swappable(Single::<CENTRAL>::new(implementation)),
            (Kind::Text | Kind::Central, true) => {
                Replacement::swappable(Single::<CENTRAL_OF_FACTORY>::new(implementation))
            }
            (Kind::Eager, _) => {
                Replacement::root(Spread::<false, true> { implementation, draws, wakes }, any_size(rng))
            }
            (Kind::Spread, false) => {
                Replacement::root(Spread::<false, false> { implementation, draws, wakes }, any_size(rng))
            }
            (Kind::Spread, true) => {
                Replacement::root(Spread::<true, false> { implementation, draws, wakes }, any_size(rng))
            }
        };
        Candidate { new, kind, number, record_cell, fault }
    }
}

/// Returns an implementation of the super-interface.
pub(super) fn of_super(world: &'static World) -> Replacement<dyn Station> {
    Replacement::swappable(Single::<CENTRAL>::new(Implementation::new(world, None, Fault::None)))
}

/// Requests a swap that must be refused.
pub(super) fn refused(world: &'static World, record: &Arc<ObjectRecord>, wanted: &[SwapFailure]) {
    let Some(handle) = record.handle.get() else { return };
    let mut rng = Rng::new(record.serial, 0);
    let candidate = Candidate::build(world, Some(record), (Kind::Central, false), Fault::None, &mut rng);
    let outcome = Swap::new(*handle).run(candidate.new).map_err(|error| error.failure());
    record.failed(candidate.number);
    count(Stat::RefusedThere);
    if !outcome.as_ref().is_err_and(|failure| wanted.contains(failure)) {
        let outcome = outcome.map(|report| report.outcome);
        world
            .run_state
            .fail(format!("a swap that had to fail with one of {wanted:?} ended with {outcome:?}"));
    }
}
