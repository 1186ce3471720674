//! What was found in crates that others wrote is found again. Where there is no emulator, the test says so and passes.

mod common;

use std::process::Command;

use common::{built, emulator, skip};

#[test]
fn false_sharing_in_crates_of_others_is_found_and_named() {
    if let Err(why) = emulator(None) {
        return skip("emulator", &why);
    }
    let output = Command::new(built("found")).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    for part in [
        "flurry: what its reclaimer",
        "allocate_bucket at seize-",
        "thread_local: values",
        "allocate_bucket at thread_local-",
    ] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}
