//! Operations on a hash table in many places, against a map in one.
#![no_main]

#[path = "../../../crates/squall-parts/tests/main/dhash_sequences/operations.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::dhash(bytes));
