//! Operations on partitioned and copied maps, cached maps and lists, and directories: from any VP, with swaps.
#![no_main]

#[path = "../../../crates/squall-objects/tests/common/sequences_distributed.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::any(bytes));
