//! KTK's kinds of objects, as policies (KT-05).

mod adt;
mod monitor;
mod task;
mod threaded;

pub use adt::Adt;
pub use monitor::{Condition, Monitor};
pub use task::Task;
pub use threaded::ThreadedAdt;

/// Refusal of a call from inside an operation, by a policy that waits.
const IN_OPERATION: &str = "it may block, but was called inside an operation; call it outside";
/// Refusal of a call from an export or an import, by a policy that runs calls on another thread.
const IN_TRANSFER: &str =
    "another thread would run it, but this thread moves an object's state and must not wait";
