//! Changes of one entry, as a closure decides from its value.
//!
//! - I1. A change claims the entry that the closure saw (stored/I1), and then replaces or removes it, if the
//!   table still has it. Otherwise another thread was faster, and the closure decides again.

use squall_parts::table::{Compute, Computed as Changed};
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::{Inner, Key, Value};
use crate::listener::{RemovalCause, Told};
use crate::ops::compute::{Computed, Op};
use crate::stored::{Span, Stored};

type Decide<'a, V> = dyn FnMut(Option<&V>) -> Op<V> + 'a;

impl<K: Key, V: Value, S: BuildHasher, T: Span> Inner<K, V, S, T> {
    /// Inserts, replaces, removes or keeps an entry, as `f` decides, in one atomic step.
    pub(crate) fn compute(&self, mut key: K, f: &mut Decide<'_, V>) -> Computed {
        self.telling(|told| {
            loop {
                if let Some(computed) = self.compute_present(&key, f, told) {
                    return computed;
                }
                match self.compute_absent(key, f, told) {
                    Ok(computed) => return computed,
                    Err(back) => key = back,
                }
            }
        })
    }

    /// Returns no effect if the key is not in the table.
    fn compute_present(&self, key: &K, f: &mut Decide<'_, V>, told: &mut Told<'_, K, V>) -> Option<Computed> {
        let mut room = self.room();
        let (mut computed, mut new_cost, mut panicked, mut refused) = (None, 0, None, None);
        let changed = self.table.compute_if_present(key, |old| {
            // The rest of an attempt in which another thread was faster.
            room.give_back();
            refused = None;
            if panicked.is_some() {
                return Compute::Keep;
            }
            let (generation, now) = (self.generation(), self.now());
            let dead = old.cause(generation, now);
            let value = dead.is_none().then_some(&old.value);
            let (effect, new) = match f(value) {
                Op::Nop => (Computed::Kept, None),
                Op::Remove if value.is_some() => (Computed::Removed, None),
                Op::Remove => (Computed::Kept, None),
                Op::Put(new) if value.is_some() => (Computed::Replaced, Some(new)),
                Op::Put(new) => (Computed::Inserted, Some(new)),
            };
            computed = Some(effect);
            if effect == Computed::Kept {
                return Compute::Keep;
            }
            // Until the claim, code of the program may panic. The entry is then as it was.
            let before = value.map(|_| old.span.ends());
            let new = new.map(|new| (self.cost(key, &new), self.ends(now, key, &new, before), new));
            let other = if new.is_some() { RemovalCause::Replaced } else { RemovalCause::Explicit };
            let note = told.prepare(key, &old.value, dead.unwrap_or(other));
            let noted = told.clone_key(key).filter(|_| new.is_some());
            if room.claim(old) {
                told.add(note);
            }
            let Some((cost, ends, new)) = new else { return Compute::Remove };
            old.touch(self.present());
            let mark = value.map(|_| old.mark_now());
            // A claimed entry that stayed would have no part of the bound: if the policy panics, it leaves.
            let made = || self.make_room(self.table.hasher().hash_one(key), cost, mark, &mut room, told);
            match catch_unwind(AssertUnwindSafe(made)) {
                Ok(Some(mark)) => {
                    new_cost = cost;
                    Compute::Put(Stored::new(new, cost, ends, generation, mark))
                }
                Err(panic) => {
                    panicked = Some(panic);
                    Compute::Remove
                }
                Ok(None) => {
                    computed = Some(Computed::Refused);
                    refused = noted.map(|key| (key, new));
                    Compute::Remove
                }
            }
        });
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
        match changed {
            Changed::Updated => room.spend(new_cost),
            Changed::Removed => {
                if let Some((key, new)) = refused {
                    told.note_owned(key, new, RemovalCause::Size);
                }
            }
            Changed::Kept | Changed::Inserted if computed == Some(Computed::Kept) => {}
            // The entry is gone.
            Changed::Kept | Changed::Inserted => return None,
        }
        computed
    }

    /// Returns the key if another thread has inserted it.
    fn compute_absent(
        &self,
        key: K,
        f: &mut Decide<'_, V>,
        told: &mut Told<'_, K, V>,
    ) -> Result<Computed, K> {
        let Op::Put(value) = f(None) else { return Ok(Computed::Kept) };
        let cost = self.cost(&key, &value);
        let ends = self.ends(self.now(), &key, &value, None);
        let mut room = self.room();
        let hash = self.table.hasher().hash_one(&key);
        let Some(mark) = self.make_room(hash, cost, None, &mut room, told) else {
            told.note_owned(key, value, RemovalCause::Size);
            return Ok(Computed::Refused);
        };
        let stored = Stored::new(value, cost, ends, self.generation(), mark);
        match catch_unwind(AssertUnwindSafe(|| self.table.try_insert(key, stored))) {
            Ok(Ok(())) => room.spend(cost),
            Ok(Err((key, _))) => return Err(key),
            Err(panic) => {
                // A hash panicked. The entry may be in the table: its room is not given back twice.
                room.spend(cost);
                resume_unwind(panic);
            }
        }
        Ok(Computed::Inserted)
    }
}
