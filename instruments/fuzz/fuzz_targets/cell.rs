//! Operations on a read-mostly value of every form, with swaps between, against a value and its version.
#![no_main]

#[path = "../../../crates/squall-objects/tests/sequences_common/mod.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::cell(bytes));
