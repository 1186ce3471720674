//! Operations on a table, against std's map.
#![no_main]

#[path = "../../../crates/squall-objects/tests/sequences_common/mod.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::table(bytes));
