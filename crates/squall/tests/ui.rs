//! Programs that must compile, programs that must not, and the messages. These tests start the compiler.
//!
//! - `ui/refused`: traits that `#[interface]` rejects. All messages are the macro's.
//! - `ui/laws`: programs that the types reject. The messages are the compiler's, partly with text of Squall,
//!   and depend on the Rust version of the workspace.
//! - `ui/idioms`: code for other libraries that would have another meaning here. `tests/idioms` has the rest.
//! - `ui/accepted`: programs that must compile, but cannot be modules of a test.
//! - `ui/crates`: an interface in one crate, its implementations and uses in others.
//!
//! `TRYBUILD=overwrite cargo test -p squall --test ui` rewrites the messages. Read them before you keep them.

#[cfg(squall_global_alloc)]
use squall as _;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Returns true under an emulator, where the compiler is missing.
fn emulated() -> bool {
    let emulated = env::var_os("SQUALL_TEST_RUNNER").is_some();
    if emulated {
        eprintln!("SKIP under an emulator");
    }
    emulated
}

#[test]
#[cfg_attr(miri, ignore = "starts cargo")]
fn messages() {
    if emulated() {
        return;
    }
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/accepted/*.rs");
    cases.compile_fail("tests/ui/refused/*.rs");
    cases.compile_fail("tests/ui/laws/*.rs");
    cases.compile_fail("tests/ui/idioms/*.rs");
}

/// Writes a package that depends on `squall` and on other packages in `place`.
fn write_package(place: &Path, name: &str, others: &[&str], (file, source): (&str, &str)) {
    let squall = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut manifest = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\nsquall = \
         {{ path = {squall:?} }}\n"
    );
    for other in others {
        manifest += &format!("{other} = {{ path = \"../{other}\" }}\n");
    }
    let folder = place.join(name);
    fs::create_dir_all(folder.join("src")).expect("a folder for tests");
    fs::write(folder.join("Cargo.toml"), manifest).expect("a manifest");
    fs::write(folder.join("src").join(file), source).expect("a source");
}

#[test]
#[cfg_attr(miri, ignore = "starts cargo")]
fn an_interface_of_another_crate() {
    if emulated() {
        return;
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("another-crate");
    write_package(&place, "interfaces", &[], ("lib.rs", include_str!("ui/crates/interfaces.rs")));
    write_package(&place, "extended", &["interfaces"], ("lib.rs", include_str!("ui/crates/extended.rs")));
    write_package(
        &place,
        "program",
        &["interfaces", "extended"],
        ("main.rs", include_str!("ui/crates/program.rs")),
    );
    let members = "[workspace]\nresolver = \"3\"\nmembers = [\"interfaces\", \"extended\", \"program\"]\n";
    fs::write(place.join("Cargo.toml"), members).expect("a manifest");
    // The versions of the workspace, since they are already downloaded.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    fs::copy(lock, place.join("Cargo.lock")).expect("the workspace's lock file");
    let status = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["run", "--quiet", "--offline", "--package", "program"])
        .current_dir(&place)
        .env("CARGO_TARGET_DIR", place.join("target"))
        // The flags of sanitizers and model checkers must not reach the compiler's plug-ins.
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_BOOTSTRAP")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "{status}");
}
