//! Emulators that report a wrong version. If there is no emulator, the tests print SKIP and pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use squall_locality::emulator::Emulator;
use squall_locality::run::Outcome;

use crate::common::{look, options, skip};

/// A new folder, removed on drop.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Creates a script that runs in place of the emulator at `$emulator`.
fn script(name: &str, text: &str) -> (Folder, PathBuf) {
    let folder = Folder(std::env::temp_dir().join(format!("squall-liar-{}-{name}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let emulator = Emulator::find(None).expect("an emulator").path;
    let source = folder.0.join("source");
    std::fs::write(&source, format!("#!/bin/sh\nemulator={}\n{text}", emulator.display())).expect("written");
    let path = folder.0.join("emulator");
    // Another process writes the script. In this process a child forked by another test could inherit the
    // file open for writing, and running it would fail with `ETXTBSY`.
    let install = Command::new("install").args(["-m", "700"]).arg(&source).arg(&path).status();
    assert!(install.is_ok_and(|status| status.success()), "the script is installed");
    (folder, path)
}

/// One line per start of a program: the plugin it was given.
fn begun(folder: &Folder) -> String {
    std::fs::read_to_string(folder.0.join("begun")).unwrap_or_default()
}

/// Profiles a known program under this emulator and checks its counts.
fn finds_what_is_known(emulator: &Path) {
    let mut options = options("known", &["shared", "2", "300"]).expect("an emulator");
    options.emulator = Some(emulator.to_owned());
    let report = look(&options, Some(300), 10);
    assert_eq!((&report.outcome, report.write_shared_accesses), (&Outcome::Exited(0), 600));
}

/// Whether the emulator here has a plugin interface before version 7, which came with 11.1 (development
/// version 11.0.50).
fn is_before_7() -> bool {
    let version = Emulator::find(None).expect("an emulator").version;
    let number = version.split("version ").nth(1).unwrap_or_default();
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    (part(), part(), part()) < (11, 0, 50)
}

#[test]
fn an_emulator_that_claims_a_newer_version_gets_the_older_plugin() {
    if options("known", &[]).is_none() {
        return;
    }
    if !is_before_7() {
        return skip("old-emulator", "the emulator here has version 7 of the interface");
    }
    let (folder, path) = script(
        "newer",
        "here=$(dirname \"$0\")\n\
         case $1 in --version) echo 'qemu-x86_64 version 11.1.0'; exit;; --help) exec \"$emulator\" --help;; esac\n\
         case $2 in */plugin-7.so,*) echo new >> \"$here/begun\";; *) echo old >> \"$here/begun\";; esac\n\
         exec \"$emulator\" \"$@\"\n",
    );
    finds_what_is_known(&path);
    // The emulator rejected the first plugin.
    assert_eq!(begun(&folder), "new\nold\n");
}

#[test]
fn an_emulator_that_claims_an_older_version_gets_the_newer_plugin() {
    if options("known", &[]).is_none() {
        return;
    }
    // An emulator with interface 7 rejects the older plugin by itself. For an earlier one, the script rejects
    // the older plugin as interface 7 does. It accepts the newer one and loads the library under the older
    // name.
    let takes = if is_before_7() {
        "*) echo old >> \"$here/begun\"; echo 'TCG plugin requires API version 1, but the minimum is 7' >&2; exit 1;;\n\
         esac\n\
         plugin=${2%%,*}; rest=${2#*,}; shift 2\n\
         cp \"$plugin\" \"$here/plugin.so\"\n\
         exec \"$emulator\" -plugin \"$here/plugin.so,$rest\" \"$@\"\n"
    } else {
        "*) echo old >> \"$here/begun\";;\n\
         esac\n\
         exec \"$emulator\" \"$@\"\n"
    };
    let text = format!(
        "here=$(dirname \"$0\")\n\
         case $1 in --version) echo 'qemu-x86_64 version 7.2.0'; exit;; --help) exec \"$emulator\" --help;; esac\n\
         case $2 in\n\
         */plugin-7.so,*) echo new >> \"$here/begun\";;\n\
         {takes}"
    );
    let (folder, path) = script("older", &text);
    finds_what_is_known(&path);
    assert_eq!(begun(&folder), "old\nnew\n");
}

#[test]
fn a_program_that_fails_is_run_once() {
    if options("known", &[]).is_none() {
        return;
    }
    let (folder, path) = script(
        "counts",
        "case $1 in --version|--help) exec \"$emulator\" \"$1\";; esac\n\
         echo begun >> \"$(dirname \"$0\")/begun\"\n\
         exec \"$emulator\" \"$@\"\n",
    );
    // Too few arguments: the program exits with 2.
    let mut options = options("known", &["shared"]).expect("an emulator");
    options.emulator = Some(path);
    assert_eq!(look(&options, None, 1).outcome, Outcome::Exited(2));
    assert_eq!(begun(&folder), "begun\n");
}
