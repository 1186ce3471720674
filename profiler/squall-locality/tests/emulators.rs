//! Emulators whose word on their version is not to be trusted: what they load is. Where there is no emulator, the tests say so and pass.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use squall_locality::emulator::Emulator;
use squall_locality::run::Outcome;

use common::{look, options, skip};

/// A new folder, which goes with this.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A script that is run in place of the emulator at `$emulator`.
fn script(name: &str, text: &str) -> (Folder, PathBuf) {
    let folder = Folder(std::env::temp_dir().join(format!("squall-liar-{}-{name}", std::process::id())));
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let emulator = Emulator::find(None).expect("it is there").path;
    let source = folder.0.join("source");
    std::fs::write(&source, format!("#!/bin/sh\nemulator={}\n{text}", emulator.display())).expect("written");
    let path = folder.0.join("emulator");
    // By another process: a child of another test's might have the file open for writing just now, and then nobody may run it.
    let install = Command::new("install").args(["-m", "700"]).arg(&source).arg(&path).status();
    assert!(install.is_ok_and(|status| status.success()), "a script of ours is installed");
    (folder, path)
}

/// How often the script began a program, and with which plugin.
fn begun(folder: &Folder) -> String {
    std::fs::read_to_string(folder.0.join("begun")).unwrap_or_default()
}

/// Looks at a known program under this emulator, and finds what is known of it.
fn finds_what_is_known(emulator: &Path) {
    let mut options = options("known", &["shared", "2", "300"]).expect("an emulator");
    options.emulator = Some(emulator.to_owned());
    let report = look(&options, Some(300), 10);
    assert_eq!((&report.outcome, report.write_shared_accesses), (&Outcome::Exited(0), 600));
}

/// Whether the emulator here has an interface before version 7, which came with 11.1 (11.0.50 and on while it was worked on).
fn is_before_7() -> bool {
    let version = Emulator::find(None).expect("it is there").version;
    let number = version.split("version ").nth(1).unwrap_or_default();
    let mut parts = number.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    let mut part = || parts.next().unwrap_or(0);
    (part(), part(), part()) < (11, 0, 50)
}

#[test]
fn an_emulator_that_says_it_is_newer_than_it_is_is_given_the_older_plugin() {
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
    // The emulator itself refused the first.
    assert_eq!(begun(&folder), "new\nold\n");
}

#[test]
fn an_emulator_that_says_it_is_older_than_it_is_is_given_the_newer_plugin() {
    if options("known", &[]).is_none() {
        return;
    }
    // One of version 7 refuses by itself. One before is made to refuse as that does, and takes what that takes; what loads it needs the
    // older, under the newer's name.
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
    // Of too few arguments: it ends with 2.
    let mut options = options("known", &["shared"]).expect("an emulator");
    options.emulator = Some(path);
    assert_eq!(look(&options, None, 1).outcome, Outcome::Exited(2));
    assert_eq!(begun(&folder), "begun\n");
}
