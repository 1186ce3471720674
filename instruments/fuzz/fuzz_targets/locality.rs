//! Files that the locality profiler's plugin may have left, analysed.
#![no_main]

#[path = "../../../profiler/squall-locality/tests/main/stream_common.rs"]
mod stream_common;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| stream_common::analyse(bytes));
