//! Operations on a read-mostly value of every form, with swaps between, against a value and its version.
#![no_main]

#[macro_use]
#[path = "../../../crates/squall-objects/tests/common/maps.rs"]
mod maps;
#[path = "../../../crates/squall-objects/tests/common/sequences.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::cell(bytes));
