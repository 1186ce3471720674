//! Debian's kernels, unpacked without being installed. A kernel that was fetched once is used again without
//! the mirror.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::debian::Suite;
use super::machines::Arch;
use crate::shell;

/// The image of the newest cloud kernel of `suite` for `arch`.
///
/// # Errors
/// If `apt-get`, `dpkg`, Debian's keys, the network or the suite is missing.
pub(crate) fn image(arch: Arch, suite: &str) -> Result<PathBuf> {
    let folder = shell::target_dir().join("vm").join(format!("{}-{suite}", arch.debian()));
    let unpacked = folder.join("unpacked");
    if let Some(image) = find(&unpacked) {
        return Ok(image);
    }
    fetch(arch, suite, &folder, &unpacked)
        .with_context(|| format!("kernel of {suite} for {}", arch.debian()))?;
    find(&unpacked).with_context(|| format!("{} has no kernel image", unpacked.display()))
}

/// The kernel image in an unpacked package.
fn find(unpacked: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(unpacked.join("boot")).ok()?;
    entries
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinu")))
}

/// Fetches the kernel's package and unpacks it.
fn fetch(arch: Arch, suite: &str, folder: &Path, unpacked: &Path) -> Result<()> {
    let suite = Suite::ask(arch, suite, folder)?;
    let meta = format!("linux-image-cloud-{}", arch.debian());
    let depends = suite.depends(&meta)?;
    let package = depends
        .into_iter()
        .find(|name| name.starts_with("linux-image"))
        .with_context(|| format!("package {meta} depends on no kernel"))?;
    suite.unpack(&[package], unpacked)
}
