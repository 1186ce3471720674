//! Classes of maps as messages name them: `squall_objects::map::classes::Shared<u64, String>`.
//!
//! The types have no values. A class's own type also names its hasher and its structure, which callers of
//! [`shared`](super::shared) and its like never wrote.

use std::marker::PhantomData;

/// Declares the types.
macro_rules! classes {
    ($($name:ident),*) => { $(pub(super) struct $name<K, V>(PhantomData<(K, V)>);)* };
}

classes!(Locked, Small, Shared, Partitioned, Replicated, Limited);
