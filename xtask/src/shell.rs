//! Running other programs, and finding out which of them are installed.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The outcome of a check that may lack its instrument.
#[derive(Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Outcome {
    /// The check ran and holds.
    Passed,
    /// The check did not run, for this reason.
    Skipped(String),
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("xtask lies in a folder of the repository").to_path_buf()
}

/// The folder of build products: `CARGO_TARGET_DIR`, or `target` in the repository.
pub(crate) fn target_dir() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) => root().join(dir),
        None => root().join("target"),
    }
}

/// The path of `program`, searched on `PATH`.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A `cargo` command that runs in the root of the repository.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs `command` to its end. The child shares our stdout and stderr.
///
/// # Errors
/// If the command cannot be started or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{status} from {command:?}");
    }
    Ok(())
}

/// Runs `command` to its end and returns its stdout.
///
/// # Errors
/// If the command cannot be started or fails; the error carries its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start {command:?}"))?;
    if !output.status.success() {
        bail!("{} from {command:?}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
