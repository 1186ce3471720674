//! Bytes of a hostile peer, read as a frame of squall-call: a frame within its bounds, or an error.
#![no_main]

#[path = "../../../crates/squall-call/tests/bytes/frames.rs"]
mod frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| frames::any(bytes));
