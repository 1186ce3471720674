//! KTK's kinds of objects, as policies (KT-05).

mod adt;
mod monitor;
mod task;
mod threaded;

pub use adt::Adt;
pub use monitor::{Condition, Monitor};
pub use task::Task;
pub use threaded::ThreadedAdt;

/// Why a call from inside an operation is refused by what waits.
const IN_OPERATION: &str = "it may wait, and was called inside an operation, where nothing may";
/// Why a call from an export or an import is refused by what has another thread make it.
const IN_TRANSFER: &str = "another thread would make it, and who moves an object's state waits for none";
