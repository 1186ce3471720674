//! When a map changes its form: what its load would cost in each.
//!
//! A map that one processor uses is best under a lock, if it is small and much of what is done are writes: then a write is what std's map
//! does, and the line of the lock stays where it is. Where several use it that line, and what std's map has behind it, travels with each
//! call, and those who come while it does wait for each other. In a table they meet where two want the same bucket. A table is read for
//! less than a lock is taken; a write costs more.
//!
//! The sensors count calls of the small form, which takes a lock anyway, and writes of the table, on each processor for itself. A
//! small map that grows becomes a table by itself, at once and within its form (`locked.rs`), for two reasons: the longer it waited, the more
//! its callers would have to wait while it is copied; and whoever fills a map is faster than any policy.

use squall_adapt::engine;
use squall_adapt::family::{Cost, Family, Form, Load, Reading, Shape};
use squall_core::swap::New;
use squall_core::{CallError, CoRef, info_of};
use squall_table::Table;
use std::hash::{BuildHasher, Hash};
use std::marker::PhantomData;

use super::forms::{One, Terms};
use super::locked::{Copies, Locked};
use super::{ADAPTS, Mapping};

/// The form in which an adaptive map begins: as [`locked`](super::locked), up to 16,384 entries.
pub const SMALL: &str = "small";
/// The form into which it grows: [`central`](super::central).
pub const CENTRAL: &str = "central";

/// Steps of a sensor until it posts, at first.
pub(super) const ALARM: u32 = 1024;
/// Entries of the small form. To copy so many takes some milliseconds at most.
pub(super) const MOST: usize = 16_384;

/// Asks the policy for a look.
pub(super) fn post<K, V, S>(co: CoRef<dyn Mapping<K, V, S>>) -> bool
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    engine::post(CoRef::id(co))
}

/// The family of maps of these types.
pub(super) fn family<K, V, S>() -> &'static Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    &Maps(PhantomData)
}

/// Of what a small form is made.
pub(super) fn small<K: Clone, V: Clone, S: Clone>() -> Terms<K, V, S> {
    Terms { copies: Copies::new(), most: MOST }
}

pub(super) struct Maps<K, V, S>(PhantomData<fn(K, V, S)>);

impl<K, V, S> Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    const FORMS: [Form; 2] = [
        Form::of::<One<K, V, S, Locked<K, V, S>, ADAPTS>>(SMALL),
        Form::of::<One<K, V, S, Table<K, V, S>, ADAPTS>>(CENTRAL),
    ];
}
const SMALL_FORM: usize = 0;
const CENTRAL_FORM: usize = 1;

impl<K, V, S> Family for Maps<K, V, S>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    type Interface = dyn Mapping<K, V, S>;

    fn name(&self) -> &'static str {
        "map"
    }

    fn forms(&self) -> &'static [Form] {
        &Self::FORMS
    }

    fn make(&self, shape: Shape, _: CoRef<dyn Mapping<K, V, S>>) -> New<dyn Mapping<K, V, S>> {
        match shape.form {
            CENTRAL_FORM => One::<K, V, S, Table<K, V, S>, ADAPTS>::to_come(()),
            _ => One::<K, V, S, Locked<K, V, S>, ADAPTS>::to_come(small()),
        }
    }

    fn read(&self, co: CoRef<dyn Mapping<K, V, S>>) -> Result<Reading, CallError> {
        let sensors = co.try_sensors()?;
        let bytes = info_of(CoRef::id(co)).map_or(0, |info| info.bytes);
        Ok(Reading {
            local: sensors.here,
            foreign: sensors.elsewhere,
            reps: sensors.reps,
            bytes: bytes + sensors.entries * entry_bytes::<K, V>(),
            ..Reading::default()
        })
    }

    fn arm(&self, co: CoRef<dyn Mapping<K, V, S>>, after: u32) -> Result<(), CallError> {
        co.try_arm(after)
    }

    fn judge(&self, load: &Load<'_>) -> Vec<Cost> {
        let large = load.before.bytes > MOST * entry_bytes::<K, V>();
        judge(&callers(load), large, load.before.bytes, load.transfer_ns)
    }
}

/// About what an entry takes, in either form.
const fn entry_bytes<K, V>() -> usize {
    size_of::<(K, V)>() * 3 / 2 + 2
}

/// What a read and a write cost, under a lock and in a table, in nanoseconds, as one machine had them (`squall bench map-get map-mixed`, ten
/// thousand entries, one thread). They matter as ratios.
const SMALL_READ: f64 = 11.0;
const SMALL_WRITE: f64 = 22.0;
const CENTRAL_READ: f64 = 7.5;
const CENTRAL_WRITE: f64 = 32.0;
/// Lines that travel with a call of the small form, and with a write of the table; and how many of the latter's calls find that another
/// wrote to their bucket since.
const SMALL_LINES: f64 = 3.0;
const CENTRAL_LINES: f64 = 2.0;
const MEETINGS: f64 = 0.1;
/// A lock is never taken for busier: who waits for it waits for a hundred others at most.
const BUSY_MAX: f64 = 0.99;

/// What one VP does in a second.
#[derive(Clone, Copy, Debug)]
struct Caller {
    reads: f64,
    writes: f64,
}

impl Caller {
    fn calls(&self) -> f64 {
        self.reads + self.writes
    }
}

/// Who calls: by the calls that were counted; and those whom the count missed, since they did not run just then, are taken for such as the
/// least of those who were counted.
fn callers(load: &Load<'_>) -> Vec<Caller> {
    let counted = load.calls.rates_of("look").zip(load.calls.rates_of("with"));
    let mut callers: Vec<Caller> = counted
        .map(|((_, reads), (_, writes))| Caller { reads, writes })
        .filter(|c| c.calls() > 0.0)
        .collect();
    let is_counted = |vp| load.calls.by_vp.iter().any(|(counted, _)| *counted == vp);
    let missed = load.callers.iter().filter(|vp| !is_counted(*vp)).count();
    let least = callers.iter().copied().min_by(|a, b| a.calls().total_cmp(&b.calls()));
    callers.extend(least.into_iter().flat_map(|least| std::iter::repeat_n(least, missed)));
    callers
}

fn judge(callers: &[Caller], large: bool, bytes: usize, line: f64) -> Vec<Cost> {
    let sum = |of: fn(&Caller) -> f64| callers.iter().map(of).sum::<f64>();
    let (reads, writes) = (sum(|c| c.reads), sum(|c| c.writes));
    // Of one's calls, those before which others came.
    let after_others = |c: &Caller| c.calls().min(reads + writes - c.calls());
    let fetched = callers.iter().map(after_others).sum::<f64>() * SMALL_LINES * line;
    let held = reads * SMALL_READ + writes * SMALL_WRITE;
    // The lock is held meanwhile; where that is nearly always, those who want it wait for each other.
    let busy = ((held + fetched) / 1e9).min(BUSY_MAX);
    let wait = (1.0 / (1.0 - busy)).min(callers.len().max(1) as f64);
    let after_writers = |c: &Caller| c.calls().min(writes - c.writes) * MEETINGS;
    let central = reads * CENTRAL_READ
        + writes * CENTRAL_WRITE
        + callers.iter().map(after_writers).sum::<f64>() * CENTRAL_LINES * line;
    // One that is too large for a lock has a table within its form, and only pays for finding that out.
    let small = if large { central * 1.5 } else { held + fetched * wait };
    let cost = |form, ns_per_s| Cost { shape: Shape { form, place: None }, ns_per_s, bytes };
    vec![cost(SMALL_FORM, small), cost(CENTRAL_FORM, central)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The form that this load should have: VPs, and what each reads and writes in a second.
    fn best(vps: usize, reads: f64, writes: f64, large: bool) -> usize {
        let costs = judge(&vec![Caller { reads, writes }; vps], large, 0, 25.0);
        costs.iter().min_by(|a, b| a.ns_per_s.total_cmp(&b.ns_per_s)).unwrap().shape.form
    }

    #[test]
    fn co_71_what_several_share_is_a_table() {
        for vps in [2, 8, 64] {
            assert_eq!(best(vps, 1e6, 1e6, false), CENTRAL_FORM, "{vps}");
            assert_eq!(best(vps, 0.0, 1e6, false), CENTRAL_FORM, "{vps}");
            assert_eq!(best(vps, 1e6, 0.0, false), CENTRAL_FORM, "{vps}");
        }
    }

    #[test]
    fn co_71_what_one_alone_writes_is_under_a_lock_while_it_is_small() {
        assert_eq!(best(1, 1e5, 1e6, false), SMALL_FORM);
        assert_eq!(best(1, 1e5, 1e6, true), CENTRAL_FORM);
        assert_eq!(best(1, 1e6, 1e3, false), CENTRAL_FORM, "it is read for less than a lock is taken");
    }

    #[test]
    fn co_71_the_more_share_it_the_dearer_is_the_lock_for_each() {
        let for_each = |vps: usize| {
            let costs = judge(&vec![Caller { reads: 1e5, writes: 1e5 }; vps], false, 0, 25.0);
            costs[SMALL_FORM].ns_per_s / vps as f64
        };
        assert!(for_each(1) < for_each(2) && for_each(2) < for_each(4) && for_each(4) < for_each(16));
    }
}
