//! Folders for a run's files on a machine with a `noexec` memory file system. The test restarts itself in a
//! mount namespace that imitates such a machine. If no namespace can be created, the test prints SKIP and
//! passes.

use std::path::Path;
use std::process::Command;

use squall_locality::run::{Outcome, run};

use crate::common::{options, skip};

/// Environment variable that tells the restarted test the expected outcome.
const PLACES: &str = "SQUALL_TEST_PLACES";

#[test]
fn libraries_are_loaded_from_a_folder_without_noexec() {
    let Some(options) = options("known", &["shared", "2", "100"]) else { return };
    match std::env::var(PLACES).as_deref() {
        Err(_) => start_again(),
        Ok("temporary") => {
            let run = run(&options).expect("a run");
            assert_eq!(run.outcome, Outcome::Exited(0));
            assert!(run.folder.starts_with(std::env::temp_dir()), "{}", run.folder.display());
            assert!(std::fs::read_dir(&run.folder).expect("its files").count() > 3);
        }
        Ok(_) => {
            let error = run(&options).expect_err("no library can be loaded from anywhere").0;
            for part in ["/dev/shm", "noexec", "TMPDIR"] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}

/// Restarts this test where `/dev/shm` is `noexec`, once with a usable folder for temporary files and once
/// without.
fn start_again() {
    let test = std::env::current_exe().expect("the path of this program");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("places");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mount = "mount -t tmpfs -o noexec none /dev/shm";
    let in_namespace = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", script, "sh"]).arg(&test).arg(&folder);
        command.args(["--exact", "places::libraries_are_loaded_from_a_folder_without_noexec", "--nocapture"]);
        command
    };
    match in_namespace(mount).status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return skip("namespaces", &format!("no namespace of mounts can be had here: {status}"));
        }
        Err(error) => return skip("namespaces", &format!("unshare: {error}")),
    }
    for (places, more) in [
        ("temporary", "export TMPDIR=$folder"),
        ("none", "mount -t tmpfs -o noexec none $folder && export TMPDIR=$folder"),
    ] {
        let script = format!("test=$1 folder=$2; shift 2; {mount} && {more} && exec \"$test\" \"$@\"");
        let output = in_namespace(&script).env(PLACES, places).output().expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{places}: {said}");
        // A filter that matches no test, or a skipped test, would also exit with 0.
        assert!(said.contains("1 passed") && !said.contains("SKIP"), "{places}: {said}");
    }
}
