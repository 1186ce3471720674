//! What a representative of a form with one structure for all lends without being asked.
//!
//! Problem: of a call that costs a few nanoseconds, asking the representative for the structure, and what follows from not knowing which it
//! will be, is a third. Idea: the structure and its kind are said behind the header (`squall_core::lent`), so that a caller's code for
//! the common kinds is compiled into it: first a table, beside it what counts its writers if something does, each VP's own (`Shape::SENSED_BY`),
//! second the form of one lock, third the copies of entries that a representative has, in which what is found is right, and what is not there
//! says nothing.
//!
//! - I1. Only where the representative would do no more about a call than is done here: it notes nothing of a read of a table whose readers
//!   are not counted, nor of one that finds a copy, of a write of a table that nobody adapts, and of a call of the form of one lock by the lock's owner where values are cheap
//!   to copy. Of the writes of a table that a policy looks after some are chosen, as if by chance, and it is told of each of these for many
//!   (`Map::written`). All others ask.

use squall_core::__macro::{Hit, Lends};
use squall_parts::table::Table;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::forms::{FEW_LOG2, Sensor};
use super::locked::Locked;
use super::store::{Form, Store};

/// The structure that [`look`](Map::look) and [`lend`](Map::lend) lend whenever they are asked, so that they need not be.
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

/// For a write, if nobody is to note it but what is noted here.
#[inline(always)]
pub(super) fn for_write<'o, K, V, S>(hit: &Hit<'o, dyn Map<K, V, S>>) -> Option<Store<'o, K, V, S>>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    if let Some(locked) = hit.second() {
        let is_mine = locked.is_mine_for_nothing() && locked.spilled().is_none();
        return is_mine.then(|| Store::new(Form::Locked(locked)));
    }
    let table = hit.first()?;
    if is_noted(hit) {
        hit.target().written();
    }
    Some(Store::table(table))
}

/// Whether a write of a table that is lent is to be noted, for many.
#[inline(always)]
pub(super) fn is_noted<K, V, S>(hit: &Hit<'_, dyn Map<K, V, S>>) -> bool
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    hit.beside().is_some() && hit.is_chosen(FEW_LOG2)
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

    type Map = dyn Map<u64, u64, RandomState>;

    /// Says what is lent.
    struct What;

    impl Act<Map, &'static str> for What {
        fn act<'o>(self, _: &'o Guard, hit: Hit<'o, Map>) -> &'static str {
            match (hit.first(), hit.beside(), hit.second(), hit.third()) {
                (Some(_), None, None, None) => "a table",
                (Some(_), Some(_), None, None) => "a table, and what counts its writers",
                (None, None, Some(_), None) => "one lock",
                (None, None, None, Some(_)) => "copies",
                (None, None, None, None) => "nothing",
                _ => "more than one thing",
            }
        }
    }

    fn lent(co: Handle<Map>) -> &'static str {
        co.__call_act("lend", What, Panic)
    }

    #[test]
    fn each_form_lends_what_it_has() {
        let forms = [
            (map::central(), "a table"),
            (map::locked(), "one lock"),
            (map::replicated(ClusterSize::Cpu), "copies"),
            (map::partitioned(2, |key| key as usize), "nothing"),
            (map::adaptive(), "one lock"),
        ];
        for (owner, expected) in forms {
            assert_eq!(lent(owner.co()), expected);
            // Also who comes the second time, when the header is found at once.
            assert_eq!(lent(owner.co()), expected);
        }
    }

    #[test]
    fn a_map_under_one_lock_that_becomes_a_table_lends_that() {
        use crate::map::{MapExt, forms::One};
        use squall_parts::table::Table;
        let owner = map::adaptive::<u64, u64>();
        owner.co().set(1, 5);
        owner
            .co()
            .swap_to(One::<_, _, _, Table<u64, u64, RandomState>, true>::to_come(()))
            .expect("it is idle");
        // Where readers are counted, too, they ask.
        assert!(["a table, and what counts its writers", "nothing"].contains(&lent(owner.co())));
        assert_eq!(owner.co().get(&1), Some(5));
        assert!(owner.co().update(&1, |value| value + 1) && !owner.co().set(2, 7));
        assert_eq!((owner.co().remove(&1), owner.co().remove(&2)), (Some(6), Some(7)));
    }

    #[test]
    fn of_the_writes_of_an_adaptive_table_one_of_many_is_noted_for_all_of_them() {
        use crate::map::{MapExt, forms::One};
        use squall_parts::table::Table;
        let owner = map::adaptive::<u64, u64>();
        let to = One::<_, _, _, Table<u64, u64, RandomState>, true>::to_come(());
        owner.co().swap_to(to).expect("it is idle");
        let calls: u64 = if cfg!(miri) { 2000 } else { 100_000 };
        for call in 0..calls / 4 {
            owner.co().set(call, 0);
            owner.co().update(&call, |value| value + 1);
            owner.co().remove(&call);
            owner.co().insert(call, 1);
        }
        let sensors = owner.co().sensors();
        let noted = sensors.here + sensors.elsewhere;
        assert!((calls / 2..calls * 2).contains(&noted), "{noted} of {calls}");
    }
}
