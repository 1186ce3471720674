//! The locality profiler on a machine of another architecture. Its tests are built for that machine and run
//! there under Debian's user-mode emulator of that architecture. The command line, the plugin and the counted
//! programs are all of that architecture too.
//!
//! Idea: a test looks for its examples beside itself, under the paths of the machine that built it. So the
//! initial file system holds every file under the path that it has here.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::debian::Suite;
use super::initramfs::Archive;
use super::linker;
use super::machines::Arch;
use crate::shell;

/// The suite of the emulator and the libraries. Its emulator is the oldest that the profiler supports.
const SUITE: &str = "bookworm";
/// The package of the emulator, and the package of a program that a test starts.
const PACKAGES: [&str; 2] = ["qemu-user", "coreutils"];
/// The program that a test starts.
const STARTED: &str = "bin/false";
/// Modules of tests that need a compiler or a shell. The machine has neither.
const LEFT_OUT: [&str; 2] = ["aarch64", "emulators"];

/// Fetches the emulator for `arch`, itself a program of `arch`, with its libraries. Returns the root of their
/// files.
///
/// # Errors
/// If the packages cannot be fetched.
pub(crate) fn emulator(arch: Arch) -> Result<PathBuf> {
    let folder = shell::target_dir().join("vm").join(format!("{}-emulator", arch.debian()));
    let unpacked = folder.join("unpacked");
    if !unpacked.is_dir() {
        let suite = Suite::ask(arch, SUITE, &folder)?;
        suite.unpack(&suite.closure(&PACKAGES)?, &unpacked)?;
    }
    Ok(unpacked)
}

/// The programs to run on the machine.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// The test program.
    tests: Vec<PathBuf>,
    /// Modules of tests to run.
    modules: Vec<String>,
    /// The examples that the tests run.
    examples: Vec<PathBuf>,
    /// The first program.
    init: Option<PathBuf>,
}

/// Builds the profiler's tests for `arch`, with the examples that they run. `names` selects modules of tests.
///
/// # Errors
/// If the build fails, or a module does not exist.
pub(crate) fn build(arch: Arch, names: &[String]) -> Result<Built> {
    let mut built = Built { modules: names.to_vec(), ..Built::default() };
    let folder = shell::root().join("profiler/squall-locality/tests/main");
    for name in names {
        if LEFT_OUT.contains(&name.as_str()) {
            bail!("the tests of {name} need a compiler or a shell, which the machine lacks");
        }
        if !folder.join(name).with_extension("rs").is_file() {
            bail!("there is no module {name} in {}", folder.display());
        }
    }
    built.add(&cargo(arch, &["build", "-p", "squall-locality", "--examples", "--test", "main"])?);
    built.add(&cargo(arch, &["build", "-p", "squall-vm-init"])?);
    if built.tests.len() != 1 {
        bail!("{} test programs were built instead of one", built.tests.len());
    }
    Ok(built)
}

/// Runs Cargo for `arch` and returns its messages.
fn cargo(arch: Arch, arguments: &[&str]) -> Result<String> {
    let mut cargo = shell::cargo();
    cargo.args(arguments).args(["--quiet", "--target", arch.target(), "--message-format", "json"]);
    if arch.name() != std::env::consts::ARCH {
        let name = arch.target().to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{name}_LINKER"), linker(arch));
    }
    shell::output(&mut cargo)
}

impl Built {
    /// Adds the programs named in Cargo's messages.
    fn add(&mut self, said: &str) {
        for line in said.lines() {
            let Ok(message) = serde_json::from_str::<serde_json::Value>(line) else { continue };
            let Some(path) = message["executable"].as_str().map(PathBuf::from) else { continue };
            match message["target"]["kind"][0].as_str() {
                Some("test") => self.tests.push(path),
                Some("example") => self.examples.push(path),
                Some("bin") => self.init = Some(path),
                _ => {}
            }
        }
    }

    /// Arguments for the first program: the test program once per module, with the module as a filter.
    pub(crate) fn orders(&self) -> String {
        let Some(test) = self.tests.first() else { return String::new() };
        let test = test.display();
        self.modules.iter().map(|module| format!(" squall.test={test},{module}::")).collect()
    }
}

/// Packs the emulator and the built programs into an initial file system.
///
/// # Errors
/// If a file cannot be read or written.
pub(crate) fn pack(arch: Arch, emulator: &Path, built: &Built) -> Result<PathBuf> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "tmp"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    let init = built.init.as_ref().context("the first program was not built")?;
    archive.program("init", &read(init)?);
    for path in built.tests.iter().chain(&built.examples) {
        archive.program(below_root(path)?, &read(path)?);
    }
    let name = format!("usr/bin/qemu-{}", arch.name());
    for name in [name.as_str(), STARTED] {
        archive.program(name, &read(&emulator.join(name))?);
    }
    for folder in ["lib", "lib64", "usr/lib"] {
        libraries(&mut archive, emulator, Path::new(folder))?;
    }
    let file = shell::target_dir().join("vm").join(format!("initramfs-profiler-{}", arch.name()));
    fs::write(&file, archive.finish()).with_context(|| file.display().to_string())?;
    Ok(file)
}

/// Adds the shared libraries in this folder and its subfolders.
fn libraries(archive: &mut Archive, root: &Path, folder: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(root.join(folder)) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        let text = name.to_str().context("a name that is not UTF-8")?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            libraries(archive, root, &name)?;
        } else if !text.contains(".so") {
            continue;
        } else if kind.is_symlink() {
            let target = fs::read_link(entry.path())?;
            archive.link(text, target.to_str().context("a link that is not UTF-8")?);
        } else {
            archive.program(text, &read(&entry.path())?);
        }
    }
    Ok(())
}

/// A path's name in the archive.
fn below_root(path: &Path) -> Result<&str> {
    let below = path.strip_prefix("/").ok().and_then(Path::to_str);
    below.with_context(|| format!("{} cannot be packed", path.display()))
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_programs_are_sorted_by_their_kind() {
        let line = |kind: &str, path: &str| {
            format!(r#"{{"reason":"compiler-artifact","target":{{"kind":["{kind}"]}},"executable":{path}}}"#)
        };
        let mut built = Built { modules: vec!["known".to_owned(), "whose".to_owned()], ..Built::default() };
        let said = [
            line("lib", "null"),
            line("test", r#""/t/deps/main-1""#),
            line("example", r#""/t/examples/known""#),
            line("bin", r#""/t/squall-vm-init""#),
            "no message".to_owned(),
        ];
        built.add(&said.join("\n"));
        assert_eq!(built.orders(), " squall.test=/t/deps/main-1,known:: squall.test=/t/deps/main-1,whose::");
        assert_eq!(built.examples, [Path::new("/t/examples/known")]);
        assert_eq!(built.init.as_deref(), Some(Path::new("/t/squall-vm-init")));
        assert_eq!(below_root(Path::new("/t/deps/main-1")).expect("it is absolute"), "t/deps/main-1");
        assert!(below_root(Path::new("known")).is_err());
    }
}
