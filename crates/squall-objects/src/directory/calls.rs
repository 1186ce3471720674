//! Calls of a directory that lend its tables to a closure.

use squall_core::__macro::Answer as Gone;
use squall_core::Handle;
use squall_parts::dhash::{self, __Filling, Lookup};
use squall_rcu::__pin as pin;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};

use crate::answers::panics_in;

use super::{Answer, Directory, Reservation, Tables, Walk};

/// Runs a read within an operation.
#[inline]
#[track_caller]
pub(super) fn look<K, G, L, S, R>(
    handle: Handle<dyn Directory<K, G, L, S>>,
    gone: impl Gone<R>,
    f: impl FnOnce(Tables<'_, K, G, L, S>) -> R,
) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    pin(|guard| {
        let mut found = None;
        if let Err(error) = handle.try_look(guard, &mut found) {
            return gone.answer(error);
        }
        f(found.expect("this implementation of `Directory` returned no view of its tables"))
    })
}

/// Runs a use that locks, within a call.
#[inline]
#[track_caller]
pub(super) fn act<K, G, L, S, R>(
    handle: Handle<dyn Directory<K, G, L, S>>,
    gone: impl Gone<R>,
    f: impl FnOnce(Tables<'_, K, G, L, S>) -> R,
) -> R
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    let (mut f, mut done) = (Some(f), None);
    if let Err(error) = handle.try_with(&mut |tables| done = f.take().map(|f| f(tables))) {
        return gone.answer(error);
    }
    done.expect("this implementation of `Directory` did not call the closure of `with`")
}

/// Makes one attempt to find a key or to reserve it, within a call. Takes `f` if the key is present.
#[track_caller]
pub(super) fn reserve<K, G, L, S, Q, R>(
    directory: Handle<dyn Directory<K, G, L, S>>,
    key: &Q,
    gone: impl Gone<Result<Lookup<R, dhash::Reservation<K, G, L, S>>, __Filling<K, G>>>,
    f: &mut Option<impl FnOnce(&G, &mut L) -> R>,
) -> Answer<R, K, G, L, S, __Filling<K, G>>
where
    K: Eq + Hash + Clone + Send + Sync + Borrow<Q> + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
    Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
{
    Ok(match act(directory, gone, |tables| tables.here.__find_or_reserve(key, f))? {
        Lookup::Found(found) => Lookup::Found(found),
        Lookup::Empty(key) => Lookup::Empty(Reservation { key, directory }),
    })
}

pub(super) fn walk<K, G, L, S, T: 'static>(
    handle: Handle<dyn Directory<K, G, L, S>>,
    make: fn(&K, &G) -> T,
) -> Walk<T>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    G: Send + Sync + 'static,
    L: Send + 'static,
    S: BuildHasher + Clone + Send + Sync + 'static,
{
    Walk::new(move |from, found| {
        let visit = |key: &K, entry: &G| found.push(make(key, entry));
        act(handle, panics_in!("iter"), |tables| tables.master.visit_from(from, visit))
    })
}
