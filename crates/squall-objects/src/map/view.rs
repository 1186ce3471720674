//! Views of a map: the structures that a representative publishes behind its header, for calls without a
//! virtual call.
//!
//! Problem: a third of a call that costs a few nanoseconds is the virtual call that returns the store, and
//! the branches on its form. Idea: the structure and its kind are published behind the header
//! (`squall_core::view`). The caller's code for the frequent kinds is inlined. The first view is a table,
//! with the sensor of its writers beside it if each VP has a sensor of its own
//! (`Structure::SENSOR_CLUSTERS`). The second view is a locked map. The third is a representative's table
//! of copies: a hit there is valid, and a miss proves no absence.
//!
//! - I1. A call uses a view only if the representative would do no more about the call than the code here
//!   does. A representative records no read of a table without counted readers, and no read that finds a
//!   copy. It records no write of a table that does not adapt. It records no call by the owner of a locked
//!   map's lock where values are cheap to copy. Of the writes of an adaptive table some are sampled, and
//!   each of these is reported for many (`Map::note_writes`). All other calls go through the
//!   representative.

use squall_core::__macro::{Hit, Lends};
use squall_parts::table::Table;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::locked::Locked;
use super::sensor::{SAMPLE_LOG2, Sensor};
use super::store::{Form, Store};

/// The structure that [`read`](Map::read) and [`write`](Map::write) return, published as a view.
impl<K, V, S> Lends for dyn Map<K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    type First = Table<K, V, S>;
    type Beside = Sensor;
    type Second = Locked<K, V, S>;
    type Third = Table<K, V, S>;
}

/// Returns the store for a write by a view, if the representative has no more to record than is recorded
/// here.
#[inline(always)]
pub(super) fn for_write<'o, K, V, S>(hit: &Hit<'o, dyn Map<K, V, S>>) -> Option<Store<'o, K, V, S>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    if let Some(locked) = hit.second() {
        let is_biased_to_me = locked.needs_no_record() && locked.spilled().is_none();
        return is_biased_to_me.then(|| Store::new(Form::Locked(locked)));
    }
    let table = hit.first()?;
    if is_sampled(hit) {
        hit.target().note_writes();
    }
    Some(Store::table(table))
}

/// Whether this write of a table is sampled, so that it is reported for many.
#[inline(always)]
pub(super) fn is_sampled<K, V, S>(hit: &Hit<'_, dyn Map<K, V, S>>) -> bool
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    hit.beside().is_some() && hit.is_chosen(SAMPLE_LOG2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map;
    use squall_core::__macro::{Act, Panic};
    use squall_core::Handle;
    use squall_machine::ClusterSize;
    use squall_rcu::Guard;
    use std::hash::RandomState;

    type NumberMap = dyn Map<u64, u64, RandomState>;

    /// Names the view of a map.
    struct ViewName;

    impl Act<NumberMap, &'static str> for ViewName {
        fn act<'o>(self, _: &'o Guard, hit: Hit<'o, NumberMap>) -> &'static str {
            match (hit.first(), hit.beside(), hit.second(), hit.third()) {
                (Some(_), None, None, None) => "a table",
                (Some(_), Some(_), None, None) => "a table and a sensor",
                (None, None, Some(_), None) => "one lock",
                (None, None, None, Some(_)) => "copies",
                (None, None, None, None) => "no view",
                _ => "several views",
            }
        }
    }

    fn view_of(handle: Handle<NumberMap>) -> &'static str {
        handle.__call_act("write", ViewName, Panic)
    }

    #[test]
    fn each_form_publishes_its_view() {
        let forms = [
            (map::shared(), "a table"),
            (map::locked(), "one lock"),
            (map::replicated(ClusterSize::Cpu), "copies"),
            (map::partitioned(2, |key| key as usize), "no view"),
            (map::adaptive(), "one lock"),
        ];
        for (owner, expected) in forms {
            assert_eq!(view_of(owner.handle()), expected);
            // A second call finds the header at once.
            assert_eq!(view_of(owner.handle()), expected);
        }
    }

    #[test]
    fn a_locked_map_that_became_a_table_publishes_the_table() {
        use crate::map::{MapExt, single::Single};
        use squall_parts::table::Table;
        let owner = map::adaptive::<u64, u64>();
        owner.handle().set(1, 5);
        owner
            .handle()
            .swap_to(Single::<_, _, _, Table<u64, u64, RandomState>, true>::replacement(()))
            .expect("it is idle");
        // If readers are counted too, there is no view.
        assert!(["a table and a sensor", "no view"].contains(&view_of(owner.handle())));
        assert_eq!(owner.handle().get(&1), Some(5));
        assert!(owner.handle().update(&1, |value| value + 1) && !owner.handle().set(2, 7));
        assert_eq!((owner.handle().remove(&1), owner.handle().remove(&2)), (Some(6), Some(7)));
    }

    #[test]
    fn writes_of_an_adaptive_table_are_sampled() {
        use crate::map::{MapExt, single::Single};
        use squall_parts::table::Table;
        let owner = map::adaptive::<u64, u64>();
        let to = Single::<_, _, _, Table<u64, u64, RandomState>, true>::replacement(());
        owner.handle().swap_to(to).expect("it is idle");
        let calls: u64 = if cfg!(miri) { 2000 } else { 100_000 };
        for call in 0..calls / 4 {
            owner.handle().set(call, 0);
            owner.handle().update(&call, |value| value + 1);
            owner.handle().remove(&call);
            owner.handle().insert(call, 1);
        }
        let sensors = owner.handle().sensors();
        let noted = sensors.here + sensors.elsewhere;
        assert!((calls / 2..calls * 2).contains(&noted), "{noted} of {calls}");
    }
}
