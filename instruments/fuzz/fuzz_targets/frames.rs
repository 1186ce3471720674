//! Bytes of a hostile peer of squall-call: a frame within its bounds, arguments, or an error.
#![no_main]

#[path = "../../../crates/squall-call/tests/bytes/frames.rs"]
mod frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| frames::any(bytes));
