//! Operations on maps with copies or parts in clusters, on cached maps and lists and on directories, from everywhere and with swaps between.
#![no_main]

#[path = "../../../crates/squall-objects/tests/spread_common/mod.rs"]
mod spread;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| spread::any(bytes));
