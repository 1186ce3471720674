//! Blocks of every size and placement: taken, changed and freed by several threads, against a model.
#![no_main]

#[path = "../../../crates/squall-alloc/tests/sequences_common/mod.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::alloc(bytes));
