//! Operations on a map with a limit, whose map within is swapped, against std's map and a sum.
#![no_main]

#[path = "../../../crates/squall-objects/tests/sequences_common/mod.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::limited(bytes));
