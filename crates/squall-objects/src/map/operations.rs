//! The frequent operations of a map, one type each, with an inlined fast path for each view.
//!
//! Problem: a closure that the compiler finds too long is called, not inlined, and a hit then saves and
//! restores registers around it. Idea: a type with an `act_briefly` function is always compiled into the
//! caller. That function is the fast path on a view. `act` is the slow path; it also serves forms without a
//! view.

use squall_core::__macro::{Act, Hit};
use squall_core::CallError;
use squall_parts::table::{Compute, Computed};
use squall_rcu::Guard;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use super::Map;
use super::store::Store;
use super::view::{for_write, is_sampled};

/// Implements `Act` for an operation on maps of all types, within these bounds. `briefly` is its fast path.
macro_rules! act {
    (
        [$($of:tt)*] $name:ty => $result:ty, where [$($bounds:tt)*]
        |$this:pat_param, $guard:ident, $hit:ident| $do:expr
        $(, briefly |$brief:pat_param| $briefly:expr)?
    ) => {
        impl<K, V, S, $($of)*> Act<dyn Map<K, V, S>, $result> for $name
        where
            K: Eq + Hash + Send + Sync + 'static,
            V: Send + Sync + 'static,
            S: BuildHasher + Send + Sync + 'static,
            $($bounds)*
        {
            #[inline(always)]
            fn act<'o>(self, $guard: &'o Guard, $hit: Hit<'o, dyn Map<K, V, S>>) -> $result {
                let $this = self;
                $do
            }

            $(#[inline(always)]
            fn act_briefly<'o>(self, $guard: &'o Guard, $hit: Hit<'o, dyn Map<K, V, S>>) -> Result<$result, Self> {
                let $brief = self;
                $briefly
            })?
        }
    };
}

/// Writes to the store of a call: to the view if that is allowed, otherwise to the store that the
/// representative returns.
#[inline(always)]
fn write_store<'o, K, V, S, R>(
    hit: &Hit<'o, dyn Map<K, V, S>>,
    guard: &'o Guard,
    f: impl FnOnce(&'o Guard, Store<'o, K, V, S>) -> R,
) -> R
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let store = for_write(hit).unwrap_or_else(|| hit.target().write(guard));
    store.run_write(hit.target(), guard, f)
}

/// Fast path of a write: to the view of a table, or by the owner of a locked map's lock. All other writes
/// take the slow path, as does a write that is sampled. So a table's write tests for no other form. A macro
/// is used because a closure would be called where the compiler finds it too long.
macro_rules! in_table {
    ($hit:ident, $guard:ident, $act:expr, |$table:ident| $do:expr, |$locked:ident| $as_owner:expr) => {{
        // Tested first, and not as the last arm below: otherwise the compiled path of the locked form is
        // slower. Measure it by `squall loop map-mixed --subject squall-locked --variant
        // 10k-u64-uniform-50-50`.
        if $hit.first().is_none() {
            let act = match $hit.second() {
                Some($locked) => match $as_owner {
                    Ok(result) => return Ok(result),
                    Err(act) => act,
                },
                None => $act,
            };
            return Ok(act.act($guard, $hit));
        }
        match $hit.first() {
            Some($table) if !is_sampled(&$hit) => $do,
            _ => Err($act),
        }
    }};
}

/// Calls `f` with the key's value.
pub(super) struct Read<'q, Q: ?Sized, F> {
    pub(super) key: &'q Q,
    pub(super) f: F,
}

act!([Q: Eq + Hash + ?Sized, F, R] Read<'_, Q, F> => Option<R>, where [K: Borrow<Q>, F: FnOnce(&V) -> R]
|Read { key, f }, guard, hit| match hit.first() {
    Some(table) => table.read_in(guard, key, f),
    None => hit.target().read(guard).read(guard, key, f),
},
briefly |Read { key, f }| {
    if let Some(table) = hit.first() {
        return table.read_at_home(guard, key, f).map_err(|f| Read { key, f });
    }
    if let Some(copies) = hit.third() {
        return copies.find_at_home(guard, key, f).map(Some).map_err(|f| Read { key, f });
    }
    match hit.second().and_then(|locked| locked.biased_read(key)) {
        Some(read) => Ok(read.map(|value| f(&value))),
        None => Err(Read { key, f }),
    }
});

/// Calls `f` with the key's value, in a map that may have been destroyed.
pub(super) struct TryRead<'q, Q: ?Sized, F>(pub(super) Read<'q, Q, F>);

act!([Q: Eq + Hash + ?Sized, F, R] TryRead<'_, Q, F> => Result<Option<R>, CallError>, where [K: Borrow<Q>, F: FnOnce(&V) -> R]
|TryRead(read), guard, hit| Ok(read.act(guard, hit)),
briefly |TryRead(read)| read.act_briefly(guard, hit).map(Ok).map_err(TryRead));

/// Tests whether the key is present.
pub(super) struct Contains<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
}

act!([Q: Eq + Hash + ?Sized] Contains<'_, Q> => bool, where [K: Borrow<Q>]
|Contains { key }, guard, hit| match hit.first() {
    Some(table) => table.read_in(guard, key, |_| ()).is_some(),
    None => hit.target().read(guard).contains(guard, key),
},
briefly |Contains { key }| {
    let found = if let Some(table) = hit.first() {
        table.read_at_home(guard, key, |_| ()).ok().map(|read| read.is_some())
    } else if let Some(copies) = hit.third() {
        copies.find_at_home(guard, key, |_| ()).ok().map(|()| true)
    } else {
        hit.second().and_then(|locked| locked.biased_read(key)).map(|read| read.is_some())
    };
    found.ok_or(Contains { key })
});

/// Sets the key's value, and returns a clone of the old value.
pub(super) struct Insert<K, V> {
    pub(super) key: K,
    pub(super) value: V,
}

act!([] Insert<K, V> => Option<V>, where [V: Clone]
|Insert { key, value }, guard, hit| write_store(&hit, guard, |guard, store| store.insert(guard, key, value)),
briefly |Insert { key, value }| in_table!(hit, guard, Insert { key, value }, |table| {
    table.put_at_home(guard, key, value, V::clone).map_err(|(key, value)| Insert { key, value })
}, |locked| {
    locked.biased_put(key, value).map_err(|(key, value)| Insert { key, value })
}));

/// Sets the key's value, and returns whether the key was present.
pub(super) struct Set<K, V> {
    pub(super) key: K,
    pub(super) value: V,
}

act!([] Set<K, V> => bool, where []
|Set { key, value }, guard, hit| write_store(&hit, guard, |guard, store| store.set(guard, key, value)),
briefly |Set { key, value }| in_table!(hit, guard, Set { key, value }, |table| {
    let put = table.put_at_home(guard, key, value, |_| ());
    put.map(|old| old.is_some()).map_err(|(key, value)| Set { key, value })
}, |locked| {
    let put = locked.biased_put(key, value);
    put.map(|old| old.is_some()).map_err(|(key, value)| Set { key, value })
}));

/// Removes the key, and returns a clone of its value.
pub(super) struct Remove<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
}

act!([Q: Eq + Hash + ?Sized] Remove<'_, Q> => Option<V>, where [K: Borrow<Q>, V: Clone]
|Remove { key }, guard, hit| write_store(&hit, guard, |guard, store| store.remove(guard, key)),
briefly |Remove { key }| in_table!(hit, guard, Remove { key }, |table| {
    table.take_at_home(guard, key, V::clone).map_err(|_| Remove { key })
}, |locked| {
    locked.biased_take(key).ok_or(Remove { key })
}));

/// Removes the key, and returns whether it was present.
pub(super) struct Discard<'q, Q: ?Sized> {
    pub(super) key: &'q Q,
}

act!([Q: Eq + Hash + ?Sized] Discard<'_, Q> => bool, where [K: Borrow<Q>]
|Discard { key }, guard, hit| write_store(&hit, guard, |guard, store| store.discard(guard, key)),
briefly |Discard { key }| in_table!(hit, guard, Discard { key }, |table| {
    let taken = table.take_at_home(guard, key, |_| ());
    taken.map(|old| old.is_some()).map_err(|_| Discard { key })
}, |locked| {
    locked.biased_take(key).map(|old| old.is_some()).ok_or(Discard { key })
}));

/// Replaces, removes or keeps the entry of a key that is present, as `f` decides.
pub(super) struct Change<'q, Q: ?Sized, F> {
    pub(super) key: &'q Q,
    pub(super) f: F,
}

act!([Q: Eq + Hash + ?Sized, F] Change<'_, Q, F> => Computed, where [K: Borrow<Q>, F: FnMut(&V) -> Compute<V>]
    |Change { key, f }, guard, hit| write_store(&hit, guard, |guard, store| store.change(guard, key, f)),
briefly |Change { key, mut f }| {
    if hit.first().is_some() {
        return match hit.first() {
            Some(table) if !is_sampled(&hit) => table.compute_if_present_at_home(guard, key, f).map_err(|f| Change { key, f }),
            _ => Err(Change { key, f }),
        };
    }
    hit.second().and_then(|locked| locked.biased_change(key, &mut f)).ok_or(Change { key, f })
});
