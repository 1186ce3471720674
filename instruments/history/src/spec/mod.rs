//! Sequential specifications: the behaviour of an object used by a single thread.

pub(crate) mod key;
mod queue;
mod register;

pub use key::{Key, KeyOp, KeyRet, Plan};
pub use queue::{AnyOp, AnyQueue, Elements, QueueOp, QueueRet, StrictQueue};
pub use register::{Register, RegisterOp, RegisterRet, Versioned};

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::hash::Hash;

/// Sequential behaviour of an object.
pub trait Spec {
    /// State of the object.
    type State: Clone + Eq + Hash + Debug;
    /// Operation.
    type Op: Clone + Debug;
    /// Answer.
    type Ret: Clone + PartialEq + Debug;

    /// Returns the state after the operation, and the answer. The function is deterministic.
    fn apply(&self, state: &Self::State, op: &Self::Op) -> (Self::State, Self::Ret);

    /// Whether the operation leaves every state unchanged. Such a call can be omitted from a wrong history if
    /// the rest stays wrong.
    fn only_reads(&self, op: &Self::Op) -> bool;
}

/// An operation on one key.
#[derive(Clone, PartialEq, Eq)]
pub struct At<K, O> {
    /// The key.
    pub key: K,
    /// The operation.
    pub op: O,
}

impl<K: Debug, O: Debug> Debug for At<K, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.key, self.op)
    }
}

/// Independent objects, one per key: a map, if `S` specifies one key.
#[derive(Clone, Debug)]
pub struct Keyed<S, K, T> {
    spec: S,
    /// State of an unchanged key.
    start: T,
    keys: std::marker::PhantomData<fn(K)>,
}

impl<S: Spec, K> Keyed<S, K, S::State> {
    /// Objects with this specification, all in state `start`.
    pub fn new(spec: S, start: S::State) -> Self {
        Keyed { spec, start, keys: std::marker::PhantomData }
    }
}

impl<S, K> Spec for Keyed<S, K, S::State>
where
    S: Spec,
    K: Clone + Ord + Hash + Debug,
{
    /// Keys with a state other than the start.
    type State = BTreeMap<K, S::State>;
    type Op = At<K, S::Op>;
    type Ret = S::Ret;

    fn apply(&self, state: &Self::State, at: &Self::Op) -> (Self::State, S::Ret) {
        let (there, ret) = self.spec.apply(state.get(&at.key).unwrap_or(&self.start), &at.op);
        let mut state = state.clone();
        if there == self.start {
            state.remove(&at.key);
        } else {
            state.insert(at.key.clone(), there);
        }
        (state, ret)
    }

    fn only_reads(&self, at: &Self::Op) -> bool {
        self.spec.only_reads(&at.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_independent() {
        let map = Keyed::new(Key, None);
        let at = |key, op| At { key, op };
        let (state, _) = map.apply(&BTreeMap::new(), &at(1, KeyOp::Insert(7)));
        assert_eq!(map.apply(&state, &at(2, KeyOp::Get)).1, KeyRet::Value(None));
        assert_eq!(map.apply(&state, &at(1, KeyOp::Get)).1, KeyRet::Value(Some(7)));
        let (state, ret) = map.apply(&state, &at(1, KeyOp::Remove));
        assert_eq!((state.len(), ret), (0, KeyRet::Value(Some(7))));
    }
}
