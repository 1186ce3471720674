//! Operations on maps with copies or parts in clusters, on cached maps and lists and on directories, from everywhere and with swaps between.
#![no_main]

#[path = "../../../crates/squall-objects/tests/common/sequences_distributed.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::any(bytes));
