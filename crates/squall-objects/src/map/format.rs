//! `EntriesFormat`: the state format in which entries move between forms.

use squall_core::swap::Format;
use squall_parts::table::Table;
use std::error::Error;
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

/// The error of an export from a map that has no entries yet.
#[cold]
pub(super) fn no_entries() -> Box<dyn Error + Send + Sync> {
    "the map has no entries: no swap moved its state in".into()
}

/// The error of a second import.
#[cold]
pub(super) fn has_entries() -> Box<dyn Error + Send + Sync> {
    "the replacement already has entries; make a new one for each swap".into()
}
