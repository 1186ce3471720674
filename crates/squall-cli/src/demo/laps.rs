//! The laps of a comparison, and the table of its results.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};

/// Minimum number of laps per row. Fewer laps run only if they take longer than `LAPS_TIME_MAX`.
pub(super) const ROUNDS_MIN: usize = 3;
/// Maximum number of laps per row. Short laps are repeated up to this number within `LAPS_TIME`.
pub(super) const ROUNDS_MAX: usize = 15;
/// After this time, no round beyond the minimum begins.
pub(super) const LAPS_TIME: Duration = Duration::from_secs(2);
/// After this time, no round begins.
pub(super) const LAPS_TIME_MAX: Duration = Duration::from_secs(20);
/// Makes a table with left-aligned names and right-aligned numbers.
pub(super) fn new_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.iter().copied());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
