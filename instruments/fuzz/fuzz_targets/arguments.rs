//! Bytes of a hostile peer, decoded as arguments or a result: values that can be encoded again, or an error.
#![no_main]

#[path = "../../../crates/squall-call/tests/bytes/arguments.rs"]
mod arguments;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| arguments::any(bytes));
