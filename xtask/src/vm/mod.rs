//! `cargo run -p xtask -- vm`: whole emulated machines, booted for Squall.
//!
//! Idea: what depends on the machine (topology, processors that come and go, the kernel's version) is tried on machines
//! that we do not have. QEMU emulates every instruction (TCG), Debian's kernel runs unchanged, and the only program is
//! our own first process, `squall-vm-init`, with the binary `squall` beside it; both are linked statically.
//!
//! - I1. A machine passes only when its console shows the verdict `VM OK` and QEMU ends by itself with success.
//! - I2. `SKIP` is printed, and counts as no failure, only for a missing instrument: QEMU, a kernel, a cross linker.
//!   A build that fails or a machine that says nothing is a failure.
//!
//! Not promised: anything about speed or about the weak memory order of real Arm processors; TCG shows neither.
//!
//! Source: the kernel's own `tools/testing/selftests/rcutorture`, which boots its torture tests in the same way.

mod initramfs;
mod kernel;
mod machines;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell::{self, Outcome};
use machines::{Arch, MACHINES, Machine};

/// What `vm` can be asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Numbers of processors
    #[arg(long, value_delimiter = ',', default_value = "8,16,32")]
    cpus: Vec<u32>,
    /// Instruction sets
    #[arg(long, value_delimiter = ',', default_value = "x86_64,aarch64")]
    arch: Vec<Arch>,
    /// Length of each stress
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seed of each stress
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stresses, each with the environment settings it is run under
    #[arg(
        long,
        value_delimiter = ';',
        default_value = "percpu;rcu;percpu,SQUALL_RSEQ=off;rcu,SQUALL_MEMBARRIER=off"
    )]
    stress: Vec<String>,
    /// Seconds after which a machine that has not ended is killed
    #[arg(long, default_value_t = 600)]
    timeout: u64,
    /// Shows the whole console
    #[arg(long)]
    verbose: bool,
}

/// Lines of the console that are shown when a machine fails.
const TAIL: usize = 60;

/// Runs the machines asked for, one after the other.
///
/// # Errors
/// When a machine fails, or none of those we know was asked for.
pub(crate) fn command(options: &Options) -> Result<()> {
    let chosen: Vec<&Machine> = MACHINES
        .iter()
        .filter(|machine| options.arch.contains(&machine.arch) && options.cpus.contains(&machine.cpus()))
        .collect();
    if chosen.is_empty() {
        bail!(
            "no machine of that kind; known are:\n{}",
            MACHINES.iter().map(|m| format!("  {m}\n")).collect::<String>()
        );
    }
    let mut failed = Vec::new();
    for machine in chosen {
        println!("vm: {machine}");
        let start = Instant::now();
        match boot(machine, options) {
            Ok(Outcome::Passed) => println!("vm: {machine}: passed in {} s", start.elapsed().as_secs()),
            Ok(Outcome::Skipped(why)) => println!("SKIP: {machine}: {why}"),
            Err(error) => {
                println!("vm: {machine}: FAILED: {error:#}");
                failed.push(machine.to_string());
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join("; ")) }
}

/// Builds, boots and judges one machine.
fn boot(machine: &Machine, options: &Options) -> Result<Outcome> {
    let arch = machine.arch;
    if shell::which(arch.qemu()).is_none() {
        return Ok(Outcome::Skipped(format!("{} is not installed", arch.qemu())));
    }
    if let Some(why) = missing_compiler(arch) {
        return Ok(Outcome::Skipped(why));
    }
    let suite = machine.suite(qemu_version(arch)?);
    let image = match kernel::image(arch, suite) {
        Ok(image) => image,
        Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
    };
    let initramfs = build(arch)?;
    // The emulator's own complaints: on every boot it lists what it does not emulate.
    let log = shell::target_dir().join("vm").join(format!("{}-{}.log", arch.name(), machine.cpus()));
    let complaints = fs::File::create(&log).with_context(|| log.display().to_string())?;
    let mut child = Command::new(arch.qemu())
        .args(machine.arguments())
        .args(["-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio"])
        .arg("-kernel")
        .arg(&image)
        .arg("-initrd")
        .arg(&initramfs)
        .args(["-append", &command_line(machine, options)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(complaints)
        .spawn()
        .with_context(|| format!("cannot start {}", arch.qemu()))?;
    let verdict = watch(&mut child, options);
    if verdict.is_err() {
        // It may have ended by itself; then there is nothing to kill.
        let _ = child.kill();
    }
    let status = child.wait()?;
    verdict?;
    if !status.success() {
        bail!("{} ended with {status}; see {}", arch.qemu(), log.display());
    }
    Ok(Outcome::Passed)
}

/// The version of the emulator, its first two numbers.
fn qemu_version(arch: Arch) -> Result<(u32, u32)> {
    let text = shell::output(Command::new(arch.qemu()).arg("--version"))?;
    parse_version(&text).with_context(|| format!("no version in: {text}"))
}

/// The first two numbers of the first word of the form `7.2.22`.
fn parse_version(text: &str) -> Option<(u32, u32)> {
    text.split_whitespace().find_map(|word| {
        let mut numbers = word.split('.');
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    })
}

/// Why nothing can be built for this instruction set here, if so.
fn missing_compiler(arch: Arch) -> Option<String> {
    if arch.name() == std::env::consts::ARCH {
        return None;
    }
    let linker = linker(arch);
    if shell::which(&linker).is_none() {
        return Some(format!("{linker} is not installed"));
    }

    match target_libdir(arch) {
        Some(dir) if dir.is_dir() => None,
        _ => Some(format!("Rust's target {} is not installed", arch.target())),
    }
}

/// Where the standard library of this target lies, if it is installed.
fn target_libdir(arch: Arch) -> Option<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let dir = shell::output(rustc.args(["--print", "target-libdir", "--target", arch.target()])).ok()?;
    Some(PathBuf::from(dir.trim()))
}

fn linker(arch: Arch) -> String {
    format!("{}-linux-gnu-gcc", arch.name())
}

/// Builds the two programs, linked statically, and packs them.
fn build(arch: Arch) -> Result<PathBuf> {
    let target_dir = shell::target_dir().join("vm").join("build");
    let mut cargo = shell::cargo();
    cargo.args(["build", "--quiet", "--release", "--target", arch.target()]);
    cargo.args(["-p", "squall-cli", "-p", "squall-vm-init"]);
    cargo.arg("--target-dir").arg(&target_dir);
    cargo.env("RUSTFLAGS", "-C target-feature=+crt-static -C strip=symbols");
    if arch.name() != std::env::consts::ARCH {
        let name = arch.target().to_uppercase().replace('-', "_");
        cargo.env(format!("CARGO_TARGET_{name}_LINKER"), linker(arch));
    }
    shell::run(&mut cargo)?;
    let built = target_dir.join(arch.target()).join("release");
    let mut archive = initramfs::Archive::default();
    for folder in ["dev", "proc", "sys", "tmp"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    archive.program("init", &read(&built.join("squall-vm-init"))?);
    archive.program("squall", &read(&built.join("squall"))?);
    let file = shell::target_dir().join("vm").join(format!("initramfs-{}", arch.name()));
    fs::write(&file, archive.finish()).with_context(|| file.display().to_string())?;
    Ok(file)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// What the kernel and our first process are told.
fn command_line(machine: &Machine, options: &Options) -> String {
    let facts: Vec<String> = machine.facts().iter().map(|(fact, value)| format!("{fact}:{value}")).collect();
    let mut line = format!("console={} panic=-1 quiet loglevel=3", machine.arch.console());
    line += &format!(" squall.expect={} squall.seconds={}", facts.join(","), options.seconds);
    line += &format!(" squall.seed={} squall.threads={}", options.seed, 2 * machine.cpus());
    for stress in &options.stress {
        line += &format!(" squall.stress={stress}");
    }
    line
}

/// Reads the console to its end, and returns an error unless it shows the verdict we want.
fn watch(child: &mut Child, options: &Options) -> Result<()> {
    let lines = console(child)?;
    let end = Instant::now() + Duration::from_secs(options.timeout);
    let mut seen: Vec<String> = Vec::new();
    let mut verdict = None;
    let ended = loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if options.verbose || line.starts_with("vm:") {
                    println!("  {line}");
                }
                verdict = verdict.or_else(|| judge(&line));
                seen.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => break true,
            Err(RecvTimeoutError::Timeout) => break false,
        }
    };
    let why = match verdict {
        Some(Ok(())) if ended => return Ok(()),
        Some(Ok(())) => "said VM OK but did not power off".to_owned(),
        Some(Err(why)) => why,
        None if ended => "ended without a verdict".to_owned(),
        None => format!("gave no verdict within {} s", options.timeout),
    };
    for line in &seen[seen.len().saturating_sub(TAIL)..] {
        println!("  | {line}");
    }
    bail!(why)
}

/// The verdict in this line of the console, if it is one.
fn judge(line: &str) -> Option<Result<(), String>> {
    if line == "VM OK" {
        return Some(Ok(()));
    }
    if let Some(why) = line.strip_prefix("VM FAILED: ") {
        return Some(Err(why.to_owned()));
    }
    line.contains("Kernel panic").then(|| Err(line.to_owned()))
}

/// The lines of the console as they come; the channel closes when QEMU ends.
fn console(child: &mut Child) -> Result<Receiver<String>> {
    let stdout = child.stdout.take().context("QEMU has no stdout")?;
    let (send, receive) = channel();
    std::thread::Builder::new().name("vm-console".into()).spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut bytes = Vec::new();
        // The console is not always UTF-8: firmware speaks first. An error or an end both mean that QEMU is gone.
        while reader.read_until(b'\n', &mut bytes).is_ok_and(|n| n > 0) {
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            bytes.clear();
            if send.send(line).is_err() {
                break;
            }
        }
    })?;
    Ok(receive)
}

#[cfg(test)]
mod tests {
    use super::{judge, parse_version};

    #[test]
    fn the_version_of_qemu_is_its_first_two_numbers() {
        let text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022";
        assert_eq!(parse_version(text), Some((7, 2)));
        assert_eq!(parse_version("QEMU emulator version 10.0.2"), Some((10, 0)));
        assert_eq!(parse_version("no number"), None);
    }

    #[test]
    fn only_a_verdict_is_a_verdict() {
        assert_eq!(judge("VM OK"), Some(Ok(())));
        assert_eq!(
            judge("VM FAILED: stress rcu: exit status: 1"),
            Some(Err("stress rcu: exit status: 1".into()))
        );
        assert!(judge("[    1.0] Kernel panic - not syncing: Attempted to kill init!").unwrap().is_err());
        assert_eq!(judge("vm: VM OK is not this line"), None);
    }
}
