//! Kernels: Debian's, fetched with `apt-get` into a state folder of our own, and unpacked with `dpkg`.
//!
//! Nothing is installed and the system's own APT state stays as it is; any user may do this. A kernel that was fetched
//! once is used again without asking the mirror.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::machines::Arch;
use crate::shell;

/// Debian's mirror, as its own documents name it.
const MIRROR: &str = "http://deb.debian.org/debian";
/// The keys by which Debian's own tools check that mirror.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// The image of the newest cloud kernel of `suite` for `arch`.
///
/// # Errors
/// When it cannot be had here: no `apt-get` or `dpkg`, no Debian keys, no network, no such suite.
pub(crate) fn image(arch: Arch, suite: &str) -> Result<PathBuf> {
    let folder = shell::target_dir().join("vm").join(format!("{}-{suite}", arch.debian()));
    let unpacked = folder.join("unpacked");
    if let Some(image) = find(&unpacked) {
        return Ok(image);
    }
    for program in ["apt-get", "apt-cache", "dpkg"] {
        if shell::which(program).is_none() {
            bail!("{program} is not here to fetch a kernel with");
        }
    }
    if !Path::new(KEYRING).exists() {
        bail!("{KEYRING} is not here to check the mirror with");
    }
    let package =
        fetch(arch, suite, &folder).with_context(|| format!("kernel of {suite} for {}", arch.debian()))?;
    fs::create_dir_all(&unpacked)?;
    shell::run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    find(&unpacked).with_context(|| format!("no image in {}", package.display()))
}

/// The kernel image in an unpacked package.
fn find(unpacked: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(unpacked.join("boot")).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinu")))
}

/// Fetches the package and returns its file.
fn fetch(arch: Arch, suite: &str, folder: &Path) -> Result<PathBuf> {
    let options = prepare(arch, suite, folder)?;
    let quiet = ["-q", "-o", "Dpkg::Use-Pty=0"];
    shell::output(Command::new("apt-get").args(&options).args(quiet).arg("update"))?;
    let meta = format!("linux-image-cloud-{}", arch.debian());
    let listing = shell::output(Command::new("apt-cache").args(&options).args(["depends", &meta]))?;
    let package = listing
        .lines()
        .find_map(|line| line.trim().strip_prefix("Depends: "))
        .filter(|name| name.starts_with("linux-image"))
        .with_context(|| format!("{meta} names no kernel:\n{listing}"))?;
    let download = folder.join("download");
    let mut get = Command::new("apt-get");
    shell::output(get.current_dir(&download).args(&options).args(quiet).args(["download", package]))?;
    let entries = fs::read_dir(&download)?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "deb"))
        .with_context(|| format!("apt-get download left nothing in {}", download.display()))
}

/// Makes the state folder, and returns the options that confine APT to it.
fn prepare(arch: Arch, suite: &str, folder: &Path) -> Result<Vec<String>> {
    for part in ["lists/partial", "cache/archives/partial", "download"] {
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
