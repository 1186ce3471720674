//! Programs that must compile, programs that must not, and the messages. These tests start the compiler.
//!
//! - `ui/refused`: traits that `#[interface]` rejects. All messages are the macro's.
//! - `ui/laws`: programs that the types reject. The messages are the compiler's, partly with text of Squall,
//!   and depend on the Rust version of the workspace.
//! - `ui/idioms`: code for other libraries that would have another meaning here. `tests/idioms` has the rest.
//! - `ui/accepted`: programs that must compile, but cannot be modules of a test.
//! - `ui/crates`: an interface in one crate, its implementations and uses in others; and a program that lacks
//!   features.
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
    let status =
        cargo(&place, &["interfaces", "extended", "program"], &["run", "--package", "program"]).status();
    let status = status.expect("cargo can be started");
    assert!(status.success(), "{status}");
}

/// Returns the command that runs cargo on a workspace of these packages in `place`.
fn cargo(place: &Path, members: &[&str], arguments: &[&str]) -> Command {
    let members = format!("[workspace]\nresolver = \"3\"\nmembers = {members:?}\n");
    fs::write(place.join("Cargo.toml"), members).expect("a manifest");
    // The versions of the workspace, since they are already downloaded.
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    fs::copy(lock, place.join("Cargo.lock")).expect("the workspace's lock file");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo
        .args(arguments)
        .args(["--quiet", "--offline"])
        .current_dir(place)
        // One for all workspaces, so that Squall is compiled once.
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("crates-target"))
        // The flags of sanitizers and model checkers must not reach the compiler's plug-ins.
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_BOOTSTRAP")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    cargo
}

#[test]
#[cfg_attr(miri, ignore = "starts cargo")]
fn an_item_without_its_feature_names_the_feature() {
    if emulated() {
        return;
    }
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("features");
    write_package(&place, "features", &[], ("main.rs", include_str!("ui/crates/features.rs")));
    let output = cargo(&place, &["features"], &["build"]).output().expect("cargo can be started");
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{messages}");
    for (feature, items) in [
        ("adaptive-lock", 2),
        ("bags", 1),
        ("browse", 1),
        // An import, and the attribute of a remote interface.
        ("call", 2),
        ("directories", 2),
        ("gates", 2),
        ("monitors", 1),
        ("policies", 2),
        ("queues", 1),
    ] {
        let hints = messages.matches(&format!("`{feature}` feature")).count();
        assert_eq!(hints, items, "hints at `{feature}` in:\n{messages}");
    }
}
