//! Classes of queues as messages name them: `squall_objects::queue::classes::Strict<u64>`.
//!
//! The types have no values.

use std::marker::PhantomData;

pub(super) struct Strict<T>(PhantomData<T>);
pub(super) struct Relaxed<T>(PhantomData<T>);
pub(super) struct Local<T>(PhantomData<T>);
