//! Requests to the cache server: sent whole or in pieces, they get the same answers, and other clients are undisturbed.
#![no_main]

#[path = "../../../examples/cache/tests/common/mod.rs"]
mod common;

use common::{answers, cache, say};
use squall_cache_example::Store;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [cut, said @ ..] = bytes else { return };
    let (whole, parts) = (cache(), cache());
    let answered = answers(&whole, [said]);
    let in_parts = answers(&parts, said.chunks(usize::from(*cut) + 1));
    assert!(answered.is_empty() || answered.ends_with(b"\r\n"));
    // What `stats` says depends on how much was read by then.
    if !said.windows(5).any(|word| word == b"stats") {
        assert_eq!(answered, in_parts);
    }
    assert_eq!((whole.used_bytes(), whole.store().len()), (parts.used_bytes(), parts.store().len()));
    assert_eq!(say(&whole, "verbosity 0\r\n"), "OK\r\n");
});
