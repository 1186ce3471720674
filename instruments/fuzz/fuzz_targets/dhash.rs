//! Operations on a hash table in many places, against a map in one.
#![no_main]

#[path = "../../../crates/squall-parts/tests/dhash_sequences_common/mod.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::dhash(bytes));
