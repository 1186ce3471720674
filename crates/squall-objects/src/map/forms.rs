//! Objects of the forms with one structure: the root and the representatives. Each representative holds the
//! structure itself, so that a call finds it there. The root gets it from a swap that moves the entries in.
//!
//! The entries move as a shared [`Table`]. A form with a table moves in the time of a call; others clone
//! their entries.

use squall_adapt::family::is_reading;
use squall_core::__macro::{Lender, Lent};
use squall_core::swap::{Format, Replacement, RootFormats};
use squall_core::{RepContext, Miss, MissAnswer, Root};
use squall_machine::{Cluster, ClusterSize, Vp, machine};
use squall_rcu::{Guard, RcuArc};
use squall_parts::table::Table;
use std::cell::Cell;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::locked::{Copies, Locked};
use super::policy::{ALARM, APART, is_apart, post};
use super::replicated::{Place, Replicated};
use super::store::{Form, Store};
use super::{Map, Sensors};

/// The state format of maps: a table of all entries.
pub(super) struct Moved<K: Send + Sync + 'static, V: Send + Sync + 'static, S>(
    pub(super) Arc<Table<K, V, S>>,
);

impl<K, V, S> Format for Moved<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Send + Sync + 'static,
{
}

/// A structure that can hold the entries of a form.
pub(super) trait Shape<K, V, S>: Send + Sync + Sized + 'static
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    /// Data beside a table from which this structure is made.
    type With: Copy + Send + Sync + 'static;
    /// Clusters that have a representative each in an adaptive map. A small size keeps the sensors apart; a
    /// structure with a part per cluster needs its own size.
    const SENSED_BY: ClusterSize;
    /// The part of the structure that a representative holds.
    type Here: Send + Sync + 'static;

    fn here(this: &Arc<Self>) -> Arc<Self::Here>;
    fn form(here: &Self::Here) -> Form<'_, K, V, S>;
    /// Returns the view that a representative with this sensor publishes.
    fn direct<'a>(
        here: &'a Self::Here,
        sensor: Option<&'a Sensor>,
    ) -> Option<Lent<'a, dyn Map<K, V, S>>> {
        let _ = (here, sensor);
        None
    }
    /// Returns the number of copies of entries that this part holds.
    fn copies(here: &Self::Here) -> usize {
        let _ = here;
        0
    }
    fn of_table(table: Arc<Table<K, V, S>>, with: Self::With) -> Arc<Self>;
    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>>;
}

impl<K, V, S> Shape<K, V, S> for Table<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type With = ();
    const SENSED_BY: ClusterSize = ClusterSize::Cpu;
    type Here = Self;

    fn here(this: &Arc<Self>) -> Arc<Self> {
        this.clone()
    }

    #[inline(always)]
    fn form(here: &Self) -> Form<'_, K, V, S> {
        Form::Shared(here)
    }

    fn direct<'a>(here: &'a Self, sensor: Option<&'a Sensor>) -> Option<Lent<'a, dyn Map<K, V, S>>> {
        // Where a replicated form may pay, reads are counted, so there is no view.
        (!counts_readers(sensor.is_some())).then_some(Lent::First(here, sensor))
    }

    fn of_table(table: Arc<Table<K, V, S>>, (): ()) -> Arc<Self> {
        table
    }

    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>> {
        this.clone()
    }
}

/// How a locked form clones its contents, and how many entries it may have before a table replaces it.
pub(super) struct Terms<K, V, S> {
    pub(super) copies: Copies<K, V, S>,
    pub(super) most: usize,
}

impl<K, V, S> Clone for Terms<K, V, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, V, S> Copy for Terms<K, V, S> {}

impl<K, V, S> Shape<K, V, S> for Locked<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type With = Terms<K, V, S>;
    const SENSED_BY: ClusterSize = ClusterSize::Machine;
    type Here = Self;

    fn here(this: &Arc<Self>) -> Arc<Self> {
        this.clone()
    }

    #[inline(always)]
    fn form(here: &Self) -> Form<'_, K, V, S> {
        match here.spilled() {
            None => Form::Locked(here),
            Some(table) => Form::Shared(table),
        }
    }

    fn direct<'a>(here: &'a Self, _: Option<&'a Sensor>) -> Option<Lent<'a, dyn Map<K, V, S>>> {
        Some(Lent::Second(here))
    }

    fn of_table(table: Arc<Table<K, V, S>>, with: Terms<K, V, S>) -> Arc<Self> {
        Arc::new(Locked::of_table(table, with.most, with.copies))
    }

    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>> {
        Locked::to_table(this)
    }
}

/// One table with the entries, and a table of copies for each representative.
impl<K, V, S> Shape<K, V, S> for Replicated<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type With = Copies<K, V, S>;
    const SENSED_BY: ClusterSize = APART;
    type Here = Place<K, V, S>;

    fn here(this: &Arc<Self>) -> Arc<Place<K, V, S>> {
        Arc::new(this.join())
    }

    #[inline(always)]
    fn form(here: &Place<K, V, S>) -> Form<'_, K, V, S> {
        Form::Replicated(here)
    }

    fn direct<'a>(here: &'a Place<K, V, S>, _: Option<&'a Sensor>) -> Option<Lent<'a, dyn Map<K, V, S>>> {
        Some(Lent::Third(here.here()))
    }

    fn copies(here: &Place<K, V, S>) -> usize {
        here.copies()
    }

    fn of_table(table: Arc<Table<K, V, S>>, copies: Copies<K, V, S>) -> Arc<Self> {
        Arc::new(Replicated::of_table(table, copies))
    }

    fn to_table(this: &Arc<Self>) -> Arc<Table<K, V, S>> {
        this.table()
    }
}

/// The root of a map with one structure. `ADAPTS`: its sensors post to the policy.
pub(super) struct One<K, V, S, F, const ADAPTS: bool>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Shape<K, V, S>,
{
    store: OnceLock<Arc<F>>,
    with: F::With,
    types: PhantomData<fn(K, V, S)>,
}

/// A representative of a map with one structure, on cache lines of its own.
#[repr(align(128))]
pub(super) struct Local<K, V, S, F, const ADAPTS: bool>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Shape<K, V, S>,
{
    store: RcuArc<F::Here>,
    /// Present in adaptive forms. A separate allocation, away from the words that every call reads.
    sensor: Option<Arc<Sensor>>,
    /// Whether the sensor, which is each processor's own, also counts reads of a table.
    counts_readers: bool,
    at: RepContext<One<K, V, S, F, ADAPTS>>,
}

/// Whether reads of a table are counted: only where a replicated form may pay, since it serves readers.
fn counts_readers(adapts: bool) -> bool {
    adapts && is_apart()
}

/// Counts of calls, and an alarm. Concurrent steps may get lost: a policy that the alarm calls looks
/// closer.
#[derive(Debug)]
#[repr(align(128))]
pub struct Sensor {
    /// Index of the VP that called last, plus one.
    last: AtomicU32,
    /// Steps until the alarm posts to the policy. Zero: it is off.
    alarm: AtomicU32,
    /// Calls from the VP that had also made the call before, and calls from other VPs.
    here: AtomicU64,
    elsewhere: AtomicU64,
}

impl Sensor {
    fn new() -> Arc<Sensor> {
        let [here, elsewhere] = [const { AtomicU64::new(0) }; 2];
        Arc::new(Sensor { last: AtomicU32::new(0), alarm: AtomicU32::new(ALARM), here, elsewhere })
    }

    /// Counts this many calls.
    #[inline]
    fn step(&self, calls: u32, post: impl FnOnce() -> bool) {
        let bump = |count: &AtomicU64| {
            let next = count.load(Ordering::Relaxed).wrapping_add(calls.into());
            count.store(next, Ordering::Relaxed);
        };
        let vp = Vp::current().index() as u32 + 1;
        if self.last.load(Ordering::Relaxed) == vp {
            bump(&self.here);
        } else {
            self.last.store(vp, Ordering::Relaxed);
            bump(&self.elsewhere);
        }
        let left = self.alarm.load(Ordering::Relaxed);
        if left > 0 {
            self.alarm.store(left.saturating_sub(calls), Ordering::Relaxed);
            if left <= calls && !post() {
                self.alarm.store(ALARM, Ordering::Relaxed);
            }
        }
    }
}

/// One of this many calls of a thread is sampled, at random, and counts for all of them. For calls that
/// would otherwise write to shared memory only to be counted. Random, so that a thread that alternates
/// between two maps is sampled in both.
const FEW: u32 = 1 << FEW_LOG2;
pub(super) const FEW_LOG2: u32 = 6;

/// Whether this call is sampled.
#[inline]
fn is_noted() -> bool {
    thread_local! {
        static DRAWN: Cell<u64> = const { Cell::new(0) };
    }
    // Knuth's linear congruential generator, with good topmost bits.
    let drawn = DRAWN.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    DRAWN.set(drawn);
    drawn >> (u64::BITS - FEW.ilog2()) == 0
}

impl<K, V, S, F, const ADAPTS: bool> One<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Shape<K, V, S>,
{
    pub(super) const SIZE: ClusterSize = if ADAPTS { F::SENSED_BY } else { ClusterSize::Machine };

    pub(super) fn new(store: F, with: F::With) -> Self {
        One { store: OnceLock::from(Arc::new(store)), ..One::vacant(with) }
    }

    /// Returns an implementation that gets its entries from a swap.
    pub(super) fn to_come(with: F::With) -> Replacement<dyn Map<K, V, S>> {
        Replacement::root(Self::vacant(with), Self::SIZE)
    }

    fn vacant(with: F::With) -> Self {
        One { store: OnceLock::new(), with, types: PhantomData }
    }
}

impl<K, V, S, F, const ADAPTS: bool> Root for One<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Shape<K, V, S>,
{
    type Interface = dyn Map<K, V, S>;
    type Rep = Local<K, V, S, F, ADAPTS>;

    const LENDER: Lender<Self::Rep, Self::Interface> =
        Lender::of(|rep| F::direct(&rep.store, rep.sensor.as_deref()));

    fn make_rep(&self, at: RepContext<Self>) -> Self::Rep {
        let store = self.store.get().expect("a miss is refused while nothing moved in");
        let counts_readers = F::SENSED_BY == ClusterSize::Cpu && counts_readers(ADAPTS);
        let here = F::here(store);
        let sensor = ADAPTS.then(Sensor::new);
        Local { store: here.into(), sensor, counts_readers, at }
    }

    fn handle_miss<'a>(&'a self, miss: Miss<'a, Self>) -> MissAnswer<'a, Self> {
        if self.store.get().is_none() {
            return miss.refuse("no entries moved in");
        }
        // A policy that reads sensors gets any representative. No representative is made for it.
        let any = || (0..machine().vp_limit()).find_map(|cluster| miss.find(Cluster::new(cluster as u32)));
        match (ADAPTS && is_reading()).then(any).flatten() {
            Some(any) => any.once(),
            None => miss.local().cached(),
        }
    }

    fn formats(formats: &mut RootFormats<'_, Self>) {
        formats
            .export(|whole| {
                let store = whole.root().store.get().ok_or("entries that were never moved in")?;
                Ok(Moved(F::to_table(store)))
            })
            .import(|whole, state: Moved<K, V, S>| {
                let root = whole.root();
                let store = F::of_table(state.0, root.with);
                root.store.set(store).map_err(|_| "the new object has entries already".into())
            });
    }
}

impl<K, V, S, F, const ADAPTS: bool> Local<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Shape<K, V, S>,
{
    #[inline]
    fn note(&self, calls: u32) {
        if let Some(sensor) = &self.sensor {
            sensor.step(calls, || post(self.at.handle()));
        }
    }

    /// Samples a call if the sensor is shared by threads that need not wait for each other otherwise.
    #[inline]
    fn note_few(&self) {
        if is_noted() {
            self.note(FEW);
        }
    }

    fn sees_all_calls(form: &Form<'_, K, V, S>) -> bool {
        match form {
            Form::Shared(_) => F::SENSED_BY != ClusterSize::Machine,
            Form::Replicated(_) => false,
            _ => true,
        }
    }
}

impl<K, V, S, F, const ADAPTS: bool> Map<K, V, S> for Local<K, V, S, F, ADAPTS>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
    F: Shape<K, V, S>,
{
    #[inline]
    fn look<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        let form = F::form(self.store.lend(guard));
        if ADAPTS {
            match form {
                // An owner is not counted. Losing the lock triggers the policy.
                Form::Locked(map) if map.is_mine_for_nothing() => {}
                Form::Locked(_) => self.note(1),
                // A table that has replaced a locked map's hash table is sampled for reads too. The policy
                // then gives it a form of its own.
                Form::Shared(_) if F::SENSED_BY == ClusterSize::Machine => self.note_few(),
                Form::Shared(_) if self.counts_readers => self.note_few(),
                // A reader of a table writes no shared memory.
                _ => {}
            }
        }
        Store::new(form)
    }

    #[inline]
    fn lend<'o>(&self, guard: &'o Guard) -> Store<'o, K, V, S> {
        let form = F::form(self.store.lend(guard));
        if ADAPTS {
            match &form {
                Form::Locked(map) if map.is_mine_for_nothing() => {}
                form if Self::sees_all_calls(form) => self.note(1),
                _ => self.note_few(),
            }
        }
        Store::new(form)
    }

    #[cold]
    fn written(&self) {
        self.note(FEW);
    }

    /// If the policy misses this post or makes no change, the sensor posts again.
    #[cold]
    fn spilled(&self) {
        if ADAPTS {
            post(self.at.handle());
        }
    }

    fn sensors(&self) -> Sensors {
        let form = F::form(&self.store);
        let spilled = F::SENSED_BY == ClusterSize::Machine && matches!(form, Form::Shared(_));
        let can_be_owned = matches!(form, Form::Locked(map) if map.can_be_owned());
        let entries = Store::new(form).len();
        let mut sensors = Sensors { entries, spilled, can_be_owned, ..Sensors::default() };
        for rep in self.at.reps() {
            sensors.reps += 1;
            sensors.copies += F::copies(&rep.store);
            if let Some(sensor) = &rep.sensor {
                sensors.here = sensors.here.wrapping_add(sensor.here.load(Ordering::Relaxed));
                sensors.elsewhere = sensors.elsewhere.wrapping_add(sensor.elsewhere.load(Ordering::Relaxed));
            }
        }
        sensors
    }

    fn arm(&self, after: u32) {
        let sensors = self.at.reps().filter_map(|rep| rep.sensor.as_ref());
        sensors.for_each(|sensor| sensor.alarm.store(after, Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_uses_two_maps_in_turn_is_noted_in_both() {
        let mut noted = [0_u32; 2];
        (0..FEW as usize * 200).for_each(|call| noted[call % 2] += u32::from(is_noted()));
        assert!(noted.iter().all(|noted| (50..150).contains(noted)), "{noted:?}");
    }

    #[test]
    fn a_sensor_posts_when_its_alarm_is_used_up_and_again_if_nobody_heard() {
        for calls in [1, FEW] {
            let sensor = Sensor::new();
            let posts = |heard: bool| {
                let posts = Cell::new(0);
                let post = || {
                    posts.set(posts.get() + 1);
                    heard
                };
                (0..ALARM / calls).for_each(|_| sensor.step(calls, post));
                posts.get()
            };
            assert_eq!([posts(false), posts(false), posts(true), posts(true)], [1, 1, 1, 0], "{calls}");
            let seen = sensor.here.load(Ordering::Relaxed) + sensor.elsewhere.load(Ordering::Relaxed);
            assert_eq!(seen, u64::from(4 * ALARM));
            // The number of steps that are left does not matter.
            sensor.alarm.store(1, Ordering::Relaxed);
            assert_eq!(posts(true), 1);
        }
    }
}
