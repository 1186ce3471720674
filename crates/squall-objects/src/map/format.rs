//! `EntriesFormat`: the state format in which entries move between forms.

use squall_core::swap::Format;
use squall_parts::table::Table;
use std::sync::Arc;

/// The state format of maps: a table of all entries.
pub(super) struct EntriesFormat<K: Send + Sync + 'static, V: Send + Sync + 'static, S>(
    pub(super) Arc<Table<K, V, S>>,
);

impl<K, V, S> Format for EntriesFormat<K, V, S>
where
    K: Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Send + Sync + 'static,
{
}
