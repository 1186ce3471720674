//! `cargo run -p xtask -- vm`: boots whole emulated machines and runs Squall's stresses on them.
//!
//! Idea: code that depends on the machine (its topology, CPU hotplug, the kernel's version) is tested on many
//! emulated machines. QEMU emulates every instruction (TCG), and Debian's kernel runs unchanged. The only
//! programs are the first process, `squall-vm-init`, and the binary `squall`; both are linked statically.
//!
//! - I1. A machine passes only if its console shows the verdict `VM OK` and QEMU then ends by itself with
//!   success.
//! - I2. `SKIP`, which is not a failure, is printed only for a missing instrument: QEMU, a kernel, a cross
//!   linker, or a boot that reaches the first program. A build that fails, or a machine that is silent after
//!   its first line, fails.
//! - I3. A boot that does not reach the first program is reported and tried again, up to `BOOTS` boots in
//!   all.
//!
//! Not promised: anything about speed, or about the weak memory order of real Arm processors. TCG shows
//! neither.
//!
//! Source: the kernel's `tools/testing/selftests/rcutorture`, which boots its torture tests in the same way.

mod console;
mod debian;
mod initramfs;
mod kernel;
mod machines;
mod profiler;

use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::shell::{self, Outcome};
use console::{Boot, Limits};
use machines::{Arch, MACHINES, Machine};

/// Options of `vm`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Machines by number of processors
    #[arg(long, value_delimiter = ',', default_value = "8,16,32")]
    cpus: Vec<u32>,
    /// Machines by instruction set
    #[arg(long, value_delimiter = ',', default_value = "x86_64,aarch64")]
    arch: Vec<Arch>,
    /// Seconds of each stress
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Seed of each stress
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stresses, each with its arguments and environment settings
    #[arg(
        long,
        value_delimiter = ';',
        default_value = "percpu;rcu;objects,--real;percpu,SQUALL_RSEQ=off;rcu,SQUALL_MEMBARRIER=off"
    )]
    stress: Vec<String>,
    /// Run these modules of the locality profiler's tests instead of the stresses, such as `known,guests`.
    /// They are built for the machine and use Debian's user-mode emulator there
    #[arg(long, value_delimiter = ',')]
    profiler: Vec<String>,
    /// Seconds after which a running machine is killed
    #[arg(long, default_value_t = 900)]
    timeout: u64,
    /// Seconds after which a machine is killed and booted again if its first program has printed no line
    #[arg(long, default_value_t = 150)]
    boot_timeout: u64,
    /// Show the whole console
    #[arg(long)]
    verbose: bool,
}

impl Options {
    fn limits(&self) -> Limits {
        let first_program = Duration::from_secs(self.boot_timeout.min(self.timeout));
        Limits { first_program, whole: Duration::from_secs(self.timeout) }
    }
}

/// The number of console lines shown if a machine fails or a boot is lost.
const TAIL: usize = 60;
/// The number of lost boots after which a machine is skipped.
const BOOTS: u32 = 3;

/// Runs the chosen machines, one after the other.
///
/// # Errors
/// If a machine fails, or if the options choose no known machine.
pub(crate) fn command(options: &Options) -> Result<()> {
    let chosen: Vec<&Machine> = MACHINES
        .iter()
        .filter(|machine| options.arch.contains(&machine.arch) && options.cpus.contains(&machine.cpus()))
        .collect();
    if chosen.is_empty() {
        bail!(
            "no machine matches --arch and --cpus; known are:\n{}",
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

/// Builds and boots one machine, and returns its outcome.
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
    let (initramfs, orders) = if options.profiler.is_empty() {
        (build(arch)?, orders(machine, options))
    } else {
        let emulator = match profiler::emulator(arch) {
            Ok(emulator) => emulator,
            Err(error) => return Ok(Outcome::Skipped(format!("{error:#}"))),
        };
        let built = profiler::build(arch, &options.profiler)?;
        (profiler::pack(arch, &emulator, &built)?, built.orders())
    };
    let line = command_line(machine, &orders);
    boot_until_reached(machine, || boot_once(machine, &image, &initramfs, &line, options))
}

/// Boots until a boot reaches the first program, at most [`BOOTS`] times.
fn boot_until_reached(machine: impl Display, mut boot: impl FnMut() -> Result<Boot>) -> Result<Outcome> {
    let mut last = String::new();
    for number in 1..=BOOTS {
        match boot()? {
            Boot::Passed => return Ok(Outcome::Passed),
            Boot::Failed(why) => bail!(why),
            Boot::Lost(why) => {
                println!("vm: {machine}: boot {number} of {BOOTS} {why}; Squall did not run");
                last = why;
            }
        }
    }
    Ok(Outcome::Skipped(format!("{BOOTS} boots were lost; the last one {last}")))
}

/// Boots the machine once and watches it to its end.
fn boot_once(
    machine: &Machine,
    image: &Path,
    initramfs: &Path,
    line: &str,
    options: &Options,
) -> Result<Boot> {
    let mut child = start(machine, image, initramfs, line)?;
    let limits = options.limits();
    let watched = console::lines(&mut child).map(|lines| console::watch(&lines, limits, options.verbose));
    let ended = matches!(watched, Ok((_, true)));
    if !ended {
        // An error means that it ended by itself after the limit.
        let _ = child.kill();
    }
    let status = child.wait()?;
    let (seen, _) = watched?;
    let boot = seen.boot(ended.then_some(status), limits);
    if boot != Boot::Passed {
        for line in seen.tail(TAIL) {
            println!("  | {line}");
        }
        println!("  QEMU's messages: {}", messages_file(machine).display());
    }
    Ok(boot)
}

/// Starts the emulator with its console on a pipe.
fn start(machine: &Machine, image: &Path, initramfs: &Path, line: &str) -> Result<Child> {
    let log = messages_file(machine);
    let messages = fs::File::create(&log).with_context(|| log.display().to_string())?;
    Command::new(machine.arch.qemu())
        .args(machine.arguments())
        .args(["-display", "none", "-nodefaults", "-no-reboot", "-serial", "stdio"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(initramfs)
        .args(["-append", line])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(messages)
        .spawn()
        .with_context(|| format!("cannot start {}", machine.arch.qemu()))
}

/// The file of the emulator's messages. On every boot the emulator lists the features that it lacks.
fn messages_file(machine: &Machine) -> PathBuf {
    shell::target_dir().join("vm").join(format!("{}-{}.log", machine.arch.name(), machine.cpus()))
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

/// The reason why this host cannot build for `arch`; `None` if it can.
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

/// The folder of the standard library of this target, if it is installed.
fn target_libdir(arch: Arch) -> Option<PathBuf> {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let dir = shell::output(rustc.args(["--print", "target-libdir", "--target", arch.target()])).ok()?;
    Some(PathBuf::from(dir.trim()))
}

fn linker(arch: Arch) -> String {
    format!("{}-linux-gnu-gcc", arch.name())
}

/// Builds the two statically linked programs and packs them.
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

/// Kernel parameters. A panic ends QEMU. The kernel logs everything until the first program reduces the log
/// level, so that a lost boot has lines to show.
///
/// The kernel starts on one processor, and the first program brings the others online. A starting kernel
/// patches its code, and QEMU before 8.1 now and then continues with the old code on other processors. These
/// then hit the breakpoint at the patched place forever, and the boot hangs.
const KERNEL: &str = "panic=-1 loglevel=7 maxcpus=1";

/// The kernel's command line, with the arguments of the first process.
fn command_line(machine: &Machine, orders: &str) -> String {
    format!("console={} {} {KERNEL}{orders}", machine.arch.console(), machine.arch.early_console())
}

/// Arguments of the first process: the facts of the machine and its stresses.
fn orders(machine: &Machine, options: &Options) -> String {
    let facts: Vec<String> = machine.facts().iter().map(|(fact, value)| format!("{fact}:{value}")).collect();
    let mut line = format!(" squall.expect={} squall.seconds={}", facts.join(","), options.seconds);
    line += &format!(" squall.seed={} squall.threads={}", options.seed, 2 * machine.cpus());
    for stress in &options.stress {
        line += &format!(" squall.stress={stress}");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::console::Boot;
    use super::{BOOTS, Outcome, boot_until_reached, parse_version};

    #[test]
    fn the_version_of_qemu_is_its_first_two_numbers() {
        let text = "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18+b3)\nCopyright (c) 2003-2022";
        assert_eq!(parse_version(text), Some((7, 2)));
        assert_eq!(parse_version("QEMU emulator version 10.0.2"), Some((10, 0)));
        assert_eq!(parse_version("no number"), None);
    }

    /// The outcome of boots with these ends, and the number of boots used.
    fn boots(ends: &[Boot]) -> (anyhow::Result<Outcome>, usize) {
        let mut left = ends.iter().cloned();
        let outcome = boot_until_reached("machine", || Ok(left.next().expect("one boot too many")));
        (outcome, ends.len() - left.len())
    }

    #[test]
    fn a_lost_boot_is_tried_again_and_a_failed_one_is_not() {
        let (lost, failed) = (Boot::Lost("hung".into()), Boot::Failed("no".into()));
        let (outcome, count) = boots(&[lost.clone(), lost.clone(), Boot::Passed]);
        assert_eq!((outcome.unwrap(), count), (Outcome::Passed, 3));
        let (outcome, count) = boots(&[lost, failed, Boot::Passed]);
        assert_eq!((outcome.unwrap_err().to_string().as_str(), count), ("no", 2));
    }

    #[test]
    fn a_machine_whose_boots_are_all_lost_is_skipped() {
        let (outcome, count) = boots(&[const { Boot::Lost(String::new()) }; BOOTS as usize]);
        assert!(matches!(outcome.unwrap(), Outcome::Skipped(_)));
        assert_eq!(count, BOOTS as usize);
    }
}
