//! Debian packages of any architecture: fetched with `apt-get` into a separate state folder, and unpacked
//! with `dpkg`.
//!
//! The system stays unchanged: packages are unpacked without being installed, and APT uses the separate state
//! folder. Any user may do this.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::machines::Arch;
use crate::shell;

/// Debian's official mirror.
const MIRROR: &str = "http://deb.debian.org/debian";
/// The keys with which Debian's tools verify the mirror.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Options that keep `apt-get` from drawing on a terminal.
const QUIET: [&str; 3] = ["-q", "-o", "Dpkg::Use-Pty=0"];

/// The current package lists of a suite for one architecture.
pub(crate) struct Suite {
    folder: PathBuf,
    /// Options that confine APT to the folder.
    options: Vec<String>,
}

impl Suite {
    /// Fetches the package lists of `suite` for `arch` from the mirror, into `folder`.
    ///
    /// # Errors
    /// If `apt-get`, `dpkg`, Debian's keys, the network or the suite is missing.
    pub(crate) fn ask(arch: Arch, suite: &str, folder: &Path) -> Result<Suite> {
        for program in ["apt-get", "apt-cache", "dpkg"] {
            if shell::which(program).is_none() {
                bail!("{program} is not installed, but is needed to fetch Debian packages");
            }
        }
        if !Path::new(KEYRING).exists() {
            bail!("{KEYRING} is missing, but is needed to verify the mirror; install debian-archive-keyring");
        }
        let asked = Suite { folder: folder.to_path_buf(), options: prepare(arch, suite, folder)? };
        shell::output(asked.command("apt-get").args(QUIET).arg("update"))?;
        Ok(asked)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(&self.options);
        command
    }

    /// The packages that this one depends on, as `apt-cache depends` lists them.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let listing = shell::output(self.command("apt-cache").args(["depends", package]))?;
        Ok(listing
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: ").map(str::to_owned))
            .collect())
    }

    /// These packages and all packages that they depend on, directly or indirectly.
    pub(crate) fn closure(&self, packages: &[&str]) -> Result<Vec<String>> {
        let leave_out = ["recommends", "suggests", "conflicts", "breaks", "replaces", "enhances"];
        let mut command = self.command("apt-cache");
        command.args(["depends", "--recurse"]).args(leave_out.map(|kind| format!("--no-{kind}")));
        let listing = shell::output(command.args(packages))?;
        let mut all: Vec<String> = listing
            .lines()
            .filter(|line| line.starts_with(|c: char| c.is_ascii_alphanumeric()))
            .map(str::to_owned)
            .collect();
        all.sort();
        all.dedup();
        Ok(all)
    }

    /// Fetches these packages and unpacks them all into `to`.
    pub(crate) fn unpack(&self, packages: &[String], to: &Path) -> Result<()> {
        let download = self.folder.join("download");
        // An interrupted run may have left other packages there.
        let _ = fs::remove_dir_all(&download);
        fs::create_dir_all(&download)?;
        shell::output(
            self.command("apt-get").current_dir(&download).args(QUIET).arg("download").args(packages),
        )?;
        // Rename at the end, so that `to` is complete if it exists.
        let part = to.with_extension("part");
        let _ = fs::remove_dir_all(&part);
        fs::create_dir_all(&part)?;
        let mut files: Vec<PathBuf> = fs::read_dir(&download)?.flatten().map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|e| e == "deb"));
        if files.len() < packages.len() {
            bail!("apt-get download fetched {} of {} packages", files.len(), packages.len());
        }
        for file in &files {
            shell::run(Command::new("dpkg").arg("-x").arg(file).arg(&part))?;
        }
        let _ = fs::remove_dir_all(to);
        fs::rename(&part, to).with_context(|| to.display().to_string())
    }
}

/// Makes the state folder and returns the options that confine APT to it.
fn prepare(arch: Arch, suite: &str, folder: &Path) -> Result<Vec<String>> {
    for part in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(folder.join(part))?;
    }
    let sources = folder.join("sources.list");
    fs::write(&sources, format!("deb [signed-by={KEYRING}] {MIRROR} {suite} main\n"))?;
    let status = folder.join("status");
    fs::write(&status, "")?;
    let name = arch.debian();
    let settings = [
        format!("APT::Architecture={name}"),
        format!("APT::Architectures::={name}"),
        format!("Dir::Etc::sourcelist={}", sources.display()),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        format!("Dir::State::lists={}", folder.join("lists").display()),
        format!("Dir::State::status={}", status.display()),
        format!("Dir::Cache={}", folder.join("cache").display()),
        "Acquire::Languages=none".to_owned(),
        "Acquire::Retries=2".to_owned(),
        "APT::Sandbox::User=root".to_owned(),
    ];
    Ok(settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting]).collect())
}
