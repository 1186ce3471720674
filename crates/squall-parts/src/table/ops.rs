//! The table's operations, for any layout. Each function runs within an operation that its caller has opened;
//! the `unsafe` ones require it.

use crate::table::compute::{Compute, Computed};
use crate::table::fast::{FastFind, NeedsSlowPath};
use crate::table::layout::{DynHash, DynIsKey, IsKey, Layout};
use crate::table::raw::{Found, Raw};
use crate::table::write::Change;
use squall_rcu::pin;

#[inline(always)]
pub(crate) unsafe fn read<L: Layout, R>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    f: impl FnOnce(&L::Value) -> R,
) -> Option<R> {
    // Not through `try_read`: matching its result again would cost two instructions per lookup.
    // SAFETY: the caller.
    unsafe {
        match raw.find_fast(hash, is_key) {
            FastFind::Found(found) => Some(L::value(found.raw(), f)),
            FastFind::Absent => None,
            FastFind::Unknown => read_slow(raw, hash, is_key, f),
        }
    }
}

/// Fast path of `read`, without a slow path.
#[inline(always)]
pub(crate) unsafe fn try_read<L: Layout, R, F: FnOnce(&L::Value) -> R>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    f: F,
) -> Result<Option<R>, F> {
    // SAFETY: the caller.
    unsafe {
        match raw.find_fast(hash, is_key) {
            FastFind::Found(found) => Ok(Some(L::value(found.raw(), f))),
            FastFind::Absent => Ok(None),
            FastFind::Unknown => Err(f),
        }
    }
}

/// Fast path of `read` for a key that is present.
#[inline(always)]
pub(crate) unsafe fn try_find<L: Layout, R, F: FnOnce(&L::Value) -> R>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    f: F,
) -> Result<R, F> {
    // SAFETY: the caller.
    unsafe {
        match raw.find_fast(hash, is_key) {
            FastFind::Found(found) => Ok(L::value(found.raw(), f)),
            FastFind::Absent | FastFind::Unknown => Err(f),
        }
    }
}

/// Slow path of `read`. It takes the closure along: an entry returned from a call would go through memory, on
/// the fast path too.
#[cold]
#[inline(never)]
unsafe fn read_slow<L: Layout, R>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    f: impl FnOnce(&L::Value) -> R,
) -> Option<R> {
    // SAFETY: the caller.
    unsafe { raw.find(hash, &is_key).map(|found| L::value(found.raw(), f)) }
}

#[inline(always)]
pub(crate) unsafe fn both<L: Layout, R>(
    _: &Raw<L>,
    entry: L::Raw,
    f: impl FnOnce(&L::Key, &L::Value) -> R,
) -> R {
    // SAFETY: the caller.
    unsafe { L::key(entry, |key| L::value(entry, |value| f(key, value))) }
}

#[inline(always)]
pub(crate) unsafe fn put<L: Layout<Key: Eq>, R>(
    raw: &Raw<L>,
    hash: u64,
    key: L::Key,
    value: L::Value,
    rehash: &impl Fn(&L::Key) -> u64,
    f: impl FnOnce(&L::Value) -> R,
) -> Option<R> {
    // SAFETY: the caller.
    unsafe {
        match put_entry(raw, hash, L::new_entry(key, value)) {
            Ok(old) => old.map(|entry| L::value(entry, f)),
            Err(new_entry) => put_slow(raw, hash, new_entry, rehash).map(|entry| L::value(entry, f)),
        }
    }
}

/// Fast path of `put`, without a slow path.
#[inline(always)]
pub(crate) unsafe fn try_put<L: Layout<Key: Eq>, R>(
    raw: &Raw<L>,
    hash: u64,
    key: L::Key,
    value: L::Value,
    f: impl FnOnce(&L::Value) -> R,
) -> Result<Option<R>, (L::Key, L::Value)> {
    // SAFETY: the caller.
    unsafe {
        match put_entry(raw, hash, L::new_entry(key, value)) {
            Ok(old) => Ok(old.map(|entry| L::value(entry, f))),
            Err(new_entry) => Err(L::into_parts(new_entry)),
        }
    }
}

#[inline(always)]
unsafe fn put_entry<L: Layout<Key: Eq>>(
    raw: &Raw<L>,
    hash: u64,
    new_entry: L::NewEntry,
) -> Result<Option<L::Raw>, L::NewEntry> {
    let new = L::as_raw(&new_entry);
    // SAFETY: the caller; `new` is compared before it goes into the table.
    unsafe { raw.put_fast(hash, new_entry, move |found: &L::Key| L::key(new, |key| key == found)) }
}

/// Slow path of `put`. Returns the replaced entry, which stays until the operation ends.
#[cold]
#[inline(never)]
unsafe fn put_slow<L: Layout<Key: Eq>>(
    raw: &Raw<L>,
    hash: u64,
    new_entry: L::NewEntry,
    rehash: DynHash<'_, L::Key>,
) -> Option<L::Raw> {
    let new = L::as_raw(&new_entry);
    let (mut new_entry, mut old) = (Some(new_entry), None);
    // SAFETY: the caller; `new` is compared before it goes into the table.
    unsafe {
        let is_key = move |found: &L::Key| L::key(new, |key| key == found);
        raw.write(hash, &is_key, rehash, &mut |found| {
            old = found;
            new_entry.take().map_or(Change::Nothing, Change::Put)
        });
    }
    old
}

#[inline(always)]
pub(crate) unsafe fn take<L: Layout, R>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    rehash: &impl Fn(&L::Key) -> u64,
    f: impl FnOnce(&L::Value) -> R,
) -> Option<R> {
    // SAFETY: the caller.
    unsafe {
        try_take(raw, hash, is_key, rehash, f)
            .unwrap_or_else(|f| take_slow(raw, hash, &is_key, rehash).map(|entry| L::value(entry, f)))
    }
}

/// Fast path of `take`, without a slow path.
#[inline(always)]
pub(crate) unsafe fn try_take<L: Layout, R, F: FnOnce(&L::Value) -> R>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    rehash: &impl Fn(&L::Key) -> u64,
    f: F,
) -> Result<Option<R>, F> {
    // SAFETY: the caller.
    unsafe {
        match raw.remove_fast(hash, is_key, rehash) {
            Ok(entry) => Ok(entry.map(|entry| L::value(entry, f))),
            Err(NeedsSlowPath) => Err(f),
        }
    }
}

/// Slow path of `take`. Returns the removed entry, which stays until the operation ends.
#[cold]
#[inline(never)]
unsafe fn take_slow<L: Layout>(
    raw: &Raw<L>,
    hash: u64,
    is_key: DynIsKey<'_, L::Key>,
    rehash: DynHash<'_, L::Key>,
) -> Option<L::Raw> {
    let mut removed = None;
    // SAFETY: the caller.
    unsafe {
        raw.write(hash, is_key, rehash, &mut |found| {
            removed = found;
            if found.is_some() { Change::Remove } else { Change::Nothing }
        });
    }
    removed
}

/// Inserts an entry if its key is absent. Otherwise calls `f` with the present value, and key and value come
/// back.
pub(crate) unsafe fn try_insert<L: Layout<Key: Eq>>(
    raw: &Raw<L>,
    hash: u64,
    key: L::Key,
    value: L::Value,
    rehash: DynHash<'_, L::Key>,
    f: &mut dyn FnMut(&L::Value),
) -> Result<(), (L::Key, L::Value)> {
    // SAFETY: the caller, as in `put`.
    unsafe {
        // Search first: making an entry that is not inserted may cost an allocation.
        if let Some(entry) = raw.find_raw(hash, |found| *found == key) {
            L::value(entry, f);
            return Err((key, value));
        }
        let new_entry = L::new_entry(key, value);
        let new = L::as_raw(&new_entry);
        let (mut new_entry, mut there) = (Some(new_entry), None);
        let is_key = move |found: &L::Key| L::key(new, |key| key == found);
        raw.write(hash, &is_key, rehash, &mut |found| {
            there = found;
            match found {
                None => new_entry.take().map_or(Change::Nothing, Change::Put),
                Some(_) => Change::Nothing,
            }
        });
        match (there, new_entry) {
            (Some(entry), Some(new_entry)) => {
                L::value(entry, f);
                Err(L::into_parts(new_entry))
            }
            _ => Ok(()),
        }
    }
}

/// Applies the wanted change to the entry that was found, if it is unchanged.
unsafe fn change_entry<L: Layout>(
    raw: &Raw<L>,
    hash: u64,
    found: Found<'_, L>,
    is_key: DynIsKey<'_, L::Key>,
    rehash: DynHash<'_, L::Key>,
    wanted: Compute<L::Value>,
) -> Option<Computed> {
    let change = match wanted {
        Compute::Keep => return Some(Computed::Kept),
        Compute::Put(value) => Change::Value(L::new_value(value)),
        Compute::Remove => Change::Remove,
    };
    // SAFETY: the caller.
    unsafe { change_found(raw, hash, found, is_key, rehash, change) }
}

/// Makes a change of the entry that was found, if it is unchanged.
#[inline(never)]
unsafe fn change_found<L: Layout>(
    raw: &Raw<L>,
    hash: u64,
    found: Found<'_, L>,
    is_key: DynIsKey<'_, L::Key>,
    rehash: DynHash<'_, L::Key>,
    change: Change<L>,
) -> Option<Computed> {
    let computed = if matches!(change, Change::Remove) { Computed::Removed } else { Computed::Updated };
    let seen = found.raw();
    // SAFETY: the caller; it changes the entry that it found.
    unsafe {
        match raw.change(found, change, rehash) {
            Ok(done) => done.then_some(computed),
            Err(change) => change_entry_slow(raw, hash, seen, is_key, rehash, change).then_some(computed),
        }
    }
}

#[cold]
#[inline(never)]
unsafe fn change_entry_slow<L: Layout>(
    raw: &Raw<L>,
    hash: u64,
    seen: L::Raw,
    is_key: DynIsKey<'_, L::Key>,
    rehash: DynHash<'_, L::Key>,
    change: Change<L>,
) -> bool {
    // An unused change stays here: its drop runs user code, and the closure runs under a lock.
    let mut change = Some(change);
    let mut decide = |found: Option<L::Raw>| match found {
        Some(now) if L::is_same(now, seen) => change.take().unwrap_or(Change::Nothing),
        _ => Change::Nothing,
    };
    // SAFETY: the caller.
    unsafe { raw.write(hash, is_key, rehash, &mut decide) };
    change.is_none()
}

#[inline(always)]
pub(crate) unsafe fn change<L: Layout>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    rehash: &impl Fn(&L::Key) -> u64,
    mut f: impl FnMut(&L::Value) -> Compute<L::Value>,
) -> Computed {
    // SAFETY: the caller.
    unsafe {
        match raw.find_fast(hash, is_key) {
            FastFind::Found(found) => {
                let change = match L::value(found.raw(), &mut f) {
                    Compute::Keep => return Computed::Kept,
                    Compute::Put(value) => match raw.change_value_fast(&found, L::new_value(value)) {
                        Ok(()) => return Computed::Updated,
                        Err(value) => Change::Value(value),
                    },
                    Compute::Remove => Change::Remove,
                };
                if let Some(computed) = change_found(raw, hash, found, &is_key, rehash, change) {
                    return computed;
                }
            }
            FastFind::Absent => return Computed::Kept,
            FastFind::Unknown => {}
        }
        change_slow(raw, hash, &is_key, rehash, &mut f)
    }
}

/// Fast path of `change`, without a slow path for another value.
#[inline(always)]
pub(crate) unsafe fn try_change<L: Layout, F: FnMut(&L::Value) -> Compute<L::Value>>(
    raw: &Raw<L>,
    hash: u64,
    is_key: impl IsKey<L::Key>,
    rehash: &impl Fn(&L::Key) -> u64,
    mut f: F,
) -> Result<Computed, F> {
    // SAFETY: the caller; it changes the entry that it found.
    unsafe {
        let found = match raw.find_fast(hash, is_key) {
            FastFind::Found(found) => found,
            FastFind::Absent => return Ok(Computed::Kept),
            FastFind::Unknown => return Err(f),
        };
        let computed = match L::value(found.raw(), &mut f) {
            Compute::Keep => Some(Computed::Kept),
            Compute::Put(value) => {
                raw.change_value_fast(&found, L::new_value(value)).ok().map(|()| Computed::Updated)
            }
            Compute::Remove => {
                let removed = change_entry_slow(raw, hash, found.raw(), &is_key, rehash, Change::Remove);
                removed.then_some(Computed::Removed)
            }
        };
        computed.ok_or(f)
    }
}

/// Slow path of `change`, for a key in any bucket.
#[inline(never)]
unsafe fn change_slow<L: Layout>(
    raw: &Raw<L>,
    hash: u64,
    is_key: DynIsKey<'_, L::Key>,
    rehash: DynHash<'_, L::Key>,
    f: &mut dyn FnMut(&L::Value) -> Compute<L::Value>,
) -> Computed {
    loop {
        // SAFETY: the caller.
        unsafe {
            let Some(found) = raw.find(hash, is_key) else { return Computed::Kept };
            let wanted = L::value(found.raw(), &mut *f);
            if let Some(computed) = change_entry(raw, hash, found, is_key, rehash, wanted) {
                return computed;
            }
        }
    }
}

/// Decides about an entry from its value, or from its absence.
type Decider<'a, L> = &'a mut dyn FnMut(Option<&<L as Layout>::Value>) -> Compute<<L as Layout>::Value>;

pub(crate) unsafe fn compute<L: Layout<Key: Eq>>(
    raw: &Raw<L>,
    hash: u64,
    mut key: L::Key,
    rehash: DynHash<'_, L::Key>,
    f: Decider<'_, L>,
) -> Computed {
    loop {
        // SAFETY: the caller.
        unsafe {
            let is_key = |found: &L::Key| *found == key;
            if let Some(found) = raw.find(hash, &is_key) {
                let wanted = L::value(found.raw(), |value| f(Some(value)));
                if let Some(computed) = change_entry(raw, hash, found, &is_key, rehash, wanted) {
                    return computed;
                }
                continue;
            }
            let Compute::Put(value) = f(None) else { return Computed::Kept };
            match try_insert(raw, hash, key, value, rehash, &mut |_| ()) {
                Ok(()) => return Computed::Inserted,
                Err((back, _)) => key = back,
            }
        }
    }
}

/// Removes the entry unless `f` returns `true`. If another thread changed it meanwhile, `f` is called again.
pub(crate) unsafe fn keep_if<L: Layout<Key: Eq>>(
    raw: &Raw<L>,
    entry: L::Raw,
    rehash: DynHash<'_, L::Key>,
    f: &mut dyn FnMut(&L::Key, &L::Value) -> bool,
) {
    // SAFETY: the caller; the entry's key stays until the operation ends.
    unsafe {
        let hash = L::key(entry, rehash);
        let is_key = move |found: &L::Key| L::key(entry, |key| key == found);
        if both(raw, entry, &mut *f) || change_entry_slow(raw, hash, entry, &is_key, rehash, Change::Remove) {
            return;
        }
        // Another thread changed it meanwhile.
        while let Some(found) = raw.find(hash, &is_key) {
            if both(raw, found.raw(), &mut *f)
                || change_entry(raw, hash, found, &is_key, rehash, Compute::Remove).is_some()
            {
                return;
            }
        }
    }
}

/// Calls `f` for each entry, within one operation per home.
pub(crate) fn visit<L: Layout>(raw: &Raw<L>, rehash: DynHash<'_, L::Key>, f: &mut dyn FnMut(L::Raw)) {
    let mut from = Some(0);
    let mut entries = Vec::new();
    while let Some(at) = from {
        from = step(raw, at, rehash, &mut entries, f);
    }
}

/// Calls `f` for the entries of one home, in one operation. Returns the position of the next home.
pub(crate) fn step<L: Layout>(
    raw: &Raw<L>,
    from: u64,
    rehash: DynHash<'_, L::Key>,
    entries: &mut Vec<L::Raw>,
    f: &mut dyn FnMut(L::Raw),
) -> Option<u64> {
    pin(|_| {
        entries.clear();
        // SAFETY: within the operation.
        let next = unsafe { raw.visit(from, rehash, entries) };
        entries.drain(..).for_each(f);
        next
    })
}
