//! The frequent operations of a map, one type each, with an inlined fast path for each view.
//!
//! Problem: a closure that the compiler finds too long is called, not inlined, and a hit then saves and
//! restores registers around it. Idea: an [`Action`] has a `try_fast`, which is always compiled into the
//! caller: the fast path on a view. Its `run_slow` also serves forms without a view.

use squall_adapt::sensor::Sensor;
use squall_core::__macro::{Action, Hit};
use squall_core::CallError;
use squall_parts::table::{__clones_without_user_code, Compute, Computed};
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::key::Borrowed;
use super::sensor::SAMPLE_LOG2;
use super::store::Store;
use super::view::Viewed;

/// Whether entries have so many bytes that they skip the fast paths. In unoptimised builds each function of
/// a fast path would copy them.
pub(super) const fn is_large<K, V>() -> bool {
    size_of::<(K, V)>() > 256
}

/// Implements `Action` for an operation on maps of all types, within these bounds.
macro_rules! action {
    (
        [$($of:tt)*] $name:ty => $result:ty, where [$($bounds:tt)*]
        |$this:pat_param, $guard:ident, $hit:ident| $slow:expr,
        fast |$fast_this:pat_param| $fast:expr
    ) => {
        impl<K, V, S, $($of)*> Action<dyn Map<K, V, S>, $result> for $name
        where
            K: Eq + Hash + Send + Sync + 'static,
            V: Send + Sync + 'static,
            S: BuildHasher + Send + Sync + 'static,
            $($bounds)*
        {
            #[inline(always)]
            fn try_fast<'o>(self, $guard: &'o Guard, $hit: Hit<'o, dyn Map<K, V, S>>) -> Result<$result, Self> {
                if const { is_large::<K, V>() } {
                    return Err(self);
                }
                let $fast_this = self;
                $fast
            }

            fn run_slow<'o>(self, $guard: &'o Guard, $hit: Hit<'o, dyn Map<K, V, S>>) -> $result {
                let $this = self;
                $slow
            }
        }
    };
}

/// Whether this write of a table with this sensor is sampled, so that it is reported for many.
#[inline(always)]
fn is_sampled<K, V, S>(hit: &Hit<'_, dyn Map<K, V, S>>, sensor: Option<&Sensor>) -> bool
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    sensor.is_some() && hit.is_chosen(SAMPLE_LOG2)
}

/// Returns the store of a write: the view, if the representative has no more to record than is recorded here.
#[inline(never)]
fn store_for_write<'o, K, V, S>(hit: &Hit<'o, dyn Map<K, V, S>>, guard: &'o Guard) -> Store<'o, K, V, S>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    match hit.view().get() {
        Viewed::Table { table, sensor } => {
            if is_sampled(hit, sensor) {
                hit.target().note_writes();
            }
            Store(table)
        }
        _ => hit.target().write(guard),
    }
}

/// Runs `f` on the store of a write.
fn write<'o, K, V, S, R>(
    hit: &Hit<'o, dyn Map<K, V, S>>,
    guard: &'o Guard,
    f: impl FnOnce(Store<'o, K, V, S>) -> R,
) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    store_for_write(hit, guard).run_write(hit.target(), f)
}

/// Fast path of a write: to the view of a table, or by the owner of a locked map's lock. All other writes
/// take the slow path, as does a write that is sampled. A macro is used because a closure would be called
/// where the compiler finds it too long.
macro_rules! write_fast {
    ($hit:ident, $action:expr, |$table:ident| $in_table:expr, |$locked:ident| $as_owner:expr) => {
        match $hit.view().get() {
            Viewed::Table { table: $table, sensor } if !is_sampled(&$hit, sensor) => $in_table,
            Viewed::Locked($locked) => $as_owner,
            _ => Err($action),
        }
    };
}

/// Calls `f` with the key's value.
pub(super) struct Read<'q, Q: ?Sized, F> {
    pub(super) key: &'q Q,
    pub(super) f: F,
}

action!([Q: Eq + Hash + ?Sized, F, R] Read<'_, Q, F> => Option<R>, where [K: Borrow<Q>, F: FnOnce(&V) -> R]
|Read { key, f }, guard, hit| match hit.view().get() {
    Viewed::Table { table, .. } => table.__read_slow(guard, key, f),
    _ => hit.target().read(guard).read(guard, key, f),
},
fast |Read { key, f }| match hit.view().get() {
    Viewed::Table { table, .. } => table.__try_read(guard, key, f).map_err(|f| Read { key, f }),
    Viewed::Copies(copies) => copies.__try_find(guard, key, f).map(Some).map_err(|f| Read { key, f }),
    Viewed::Locked(locked) => match locked.biased_read(key) {
        Some(read) => Ok(read.map(|value| f(&value))),
        None => Err(Read { key, f }),
    },
    Viewed::Hidden => Err(Read { key, f }),
});

/// Calls `f` with the key's value, in a map that may have been destroyed.
pub(super) struct TryRead<'q, Q: ?Sized, F>(pub(super) Read<'q, Q, F>);

action!([Q: Eq + Hash + ?Sized, F, R] TryRead<'_, Q, F> => Result<Option<R>, CallError>, where [K: Borrow<Q>, F: FnOnce(&V) -> R]
|TryRead(read), guard, hit| Ok(read.run_slow(guard, hit)),
fast |TryRead(read)| read.try_fast(guard, hit).map(Ok).map_err(TryRead));

/// Tests whether the key is present.
pub(super) struct Contains<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
}

action!([Q: Eq + Hash + ?Sized] Contains<'_, Q> => bool, where [K: Borrow<Q>]
|Contains { key }, guard, hit| {
    let store = match hit.view().get() {
        Viewed::Table { table, .. } => Store(table),
        _ => hit.target().read(guard),
    };
    store.0.contains(guard, &Borrowed(key))
},
fast |Contains { key }| {
    let found = match hit.view().get() {
        Viewed::Table { table, .. } => table.__try_read(guard, key, |_| ()).ok().map(|read| read.is_some()),
        Viewed::Copies(copies) => copies.__try_find(guard, key, |_| ()).ok().map(|()| true),
        Viewed::Locked(locked) => locked.biased_read(key).map(|read| read.is_some()),
        Viewed::Hidden => None,
    };
    found.ok_or(Contains { key })
});

/// Sets the key's value, and returns a clone of the old value.
pub(super) struct Insert<K, V> {
    pub(super) key: K,
    pub(super) value: V,
}

action!([] Insert<K, V> => Option<V>, where [V: Clone]
|Insert { key, value }, guard, hit| write(&hit, guard, |store| store.insert(guard, &mut Some((key, value)))),
fast |Insert { key, value }| write_fast!(hit, Insert { key, value }, |table| {
    if !__clones_without_user_code::<V>() {
        // The clone may panic, and comes before the change there.
        return Err(Insert { key, value });
    }
    table.__try_put(guard, key, value, V::clone).map_err(|(key, value)| Insert { key, value })
}, |locked| {
    locked.biased_put(key, value).map_err(|(key, value)| Insert { key, value })
}));

/// Sets the key's value, and returns whether the key was present.
pub(super) struct Set<K, V> {
    pub(super) key: K,
    pub(super) value: V,
}

action!([] Set<K, V> => bool, where []
|Set { key, value }, guard, hit| write(&hit, guard, |store| store.set(guard, &mut Some((key, value)))),
fast |Set { key, value }| write_fast!(hit, Set { key, value }, |table| {
    let put = table.__try_put(guard, key, value, |_| ());
    put.map(|old| old.is_some()).map_err(|(key, value)| Set { key, value })
}, |locked| {
    let put = locked.biased_put(key, value);
    put.map(|old| old.is_some()).map_err(|(key, value)| Set { key, value })
}));

/// Removes the key, and returns a clone of its value.
pub(super) struct Remove<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
}

action!([Q: Eq + Hash + ?Sized] Remove<'_, Q> => Option<V>, where [K: Borrow<Q>, V: Clone]
|Remove { key }, guard, hit| write(&hit, guard, |store| store.remove(guard, key)),
fast |Remove { key }| write_fast!(hit, Remove { key }, |table| {
    if __clones_without_user_code::<V>() {
        table.__try_take(guard, key, V::clone).map_err(|_| Remove { key })
    } else {
        // The clone may panic, and comes before the removal.
        let mut old = None;
        let clone_and_remove = |value: &V| {
            old = Some(value.clone());
            Compute::Remove
        };
        match table.__try_change(guard, key, clone_and_remove) {
            Ok(computed) => Ok(old.filter(|_| computed == Computed::Removed)),
            Err(_) => Err(Remove { key }),
        }
    }
}, |locked| {
    locked.biased_take(key).ok_or(Remove { key })
}));

/// Removes the key, and returns whether it was present.
pub(super) struct Discard<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
}

action!([Q: Eq + Hash + ?Sized] Discard<'_, Q> => bool, where [K: Borrow<Q>]
|Discard { key }, guard, hit| write(&hit, guard, |store| store.delete(guard, key)),
fast |Discard { key }| write_fast!(hit, Discard { key }, |table| {
    let taken = table.__try_take(guard, key, |_| ());
    taken.map(|old| old.is_some()).map_err(|_| Discard { key })
}, |locked| {
    locked.biased_take(key).map(|old| old.is_some()).ok_or(Discard { key })
}));

/// Replaces, removes or keeps the entry of a key that is present, as `f` decides.
pub(super) struct Change<'q, Q: ?Sized, F> {
    pub(super) key: &'q Q,
    pub(super) f: F,
}

action!([Q: Eq + Hash + ?Sized, F] Change<'_, Q, F> => Computed, where [K: Borrow<Q>, F: FnMut(&V) -> Compute<V>]
|Change { key, f }, guard, hit| write(&hit, guard, |store| store.change(guard, key, f)),
fast |Change { key, mut f }| write_fast!(hit, Change { key, f }, |table| {
    table.__try_change(guard, key, f).map_err(|f| Change { key, f })
}, |locked| {
    locked.biased_change(key, &mut f).ok_or(Change { key, f })
}));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::map;
    use squall_core::__macro::Panic;
    use squall_core::Handle;
    use squall_machine::ClusterSize;
    use squall_rcu::Guard;
    use std::hash::RandomState;

    type NumberMap = dyn Map<u64, u64, RandomState>;

    /// Names the view of a map.
    struct ViewName;

    impl Action<NumberMap, &'static str> for ViewName {
        fn run_slow<'o>(self, _: &'o Guard, hit: Hit<'o, NumberMap>) -> &'static str {
            match hit.view().get() {
                Viewed::Table { sensor: None, .. } => "a table",
                Viewed::Table { sensor: Some(_), .. } => "a table and a sensor",
                Viewed::Locked(_) => "one lock",
                Viewed::Copies(_) => "copies",
                Viewed::Hidden => "no view",
            }
        }
    }

    fn view_of(handle: Handle<NumberMap>) -> &'static str {
        handle.__call_action("write", ViewName, Panic)
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
