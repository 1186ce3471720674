//! Operations on a map with a limit, whose map within is swapped, against std's map and a sum.
#![no_main]

#[macro_use]
#[path = "../../../crates/squall-objects/tests/common/maps.rs"]
mod maps;
#[path = "../../../crates/squall-objects/tests/common/sequences.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::limited(bytes));
