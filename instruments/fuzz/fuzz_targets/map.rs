//! Operations on a map of every form, with swaps between, against std's map.
#![no_main]

#[path = "../../../crates/squall-objects/tests/sequences_common/mod.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::map(bytes));
