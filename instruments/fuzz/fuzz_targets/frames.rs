//! Bytes of a hostile peer, read as a frame of squall-call: a frame within its bounds, or an error.
#![no_main]

#[path = "../../../crates/squall-call/tests/frames/operations.rs"]
mod operations;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| operations::any(bytes));
