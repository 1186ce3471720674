//! Classes of bags as messages name them: `squall_objects::bag::classes::Shared<u64>`.
//!
//! The types have no values.

use std::marker::PhantomData;

pub(super) struct Shared<T>(PhantomData<T>);
pub(super) struct Distributed<T>(PhantomData<T>);
