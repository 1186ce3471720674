//! The first process (`/init`) of the emulated machine that `cargo run -p xtask -- vm` boots.
//!
//! The program is linked statically. With the binary `squall` it is the whole user space of the machine.
//! Steps:
//!
//! 1. Mount the file systems that std, glibc and Squall read.
//! 2. Bring the processors online that the kernel left offline while it started.
//! 3. Compare the machine that `squall info --json` reports with the one on the kernel's command line.
//! 4. Run each stress, while taking processors offline and bringing them back.
//! 5. Take half of the processors offline, and check that `squall info` still counts all of them. Bring them
//!    back, and compare the whole machine again.
//! 6. Print `VM OK` or `VM FAILED: why` on the console, and power the machine off.
//!
//! If the command line names tests, the program runs them in place of steps 3 to 5. Each test must succeed. A
//! test that finds no emulator fails.
//!
//! - I1. Every path prints one verdict line and then powers off. So xtask never has to guess whether a silent
//!   machine passed.
//! - I2. After a stress, every processor is online that was online before.
//!
//! Not promised: use outside an emulated machine, since the program powers the machine off.

#![forbid(unsafe_code)]

#[cfg(all(test, squall_global_alloc))]
use squall_alloc as _;

mod hotplug;
mod order;
mod topology;

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use order::Order;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};

/// The binary under test, where xtask puts it in the initial file system.
const SQUALL: &str = "/squall";
/// File with the kernel's console log level: the console shows messages more severe than this number.
const PRINTK: &str = "/proc/sys/kernel/printk";
/// Time limit of a stress, in multiples of its requested length. [`GRACE_SECONDS`] are added.
const PATIENCE_FACTOR: u64 = 4;
/// Seconds added to the time limit: an emulated machine of 32 processors starts and joins threads slowly.
const GRACE_SECONDS: u64 = 320;

fn main() {
    if std::process::id() != 1 {
        eprintln!(
            "squall-vm-init is the first process of an emulated machine; start it with: cargo run -p xtask -- vm"
        );
        std::process::exit(2);
    }
    // Print this line first: xtask boots a machine again if the line does not appear.
    println!("vm: first program");
    match run() {
        Ok(()) => println!("VM OK"),
        Err(why) => println!("VM FAILED: {why}"),
    }
    rustix::fs::sync();
    let refused = reboot(RebootCommand::PowerOff);
    // Reached only if the kernel refuses. Returning from the first process makes the kernel panic, which also
    // ends QEMU.
    println!("VM FAILED: power off: {refused:?}");
}

fn run() -> Result<(), String> {
    mounts()?;
    quieten_kernel()?;
    let order = Order::from_kernel()?;
    println!("vm: kernel {}", read("/proc/sys/kernel/osrelease"));
    hotplug::bring_all()?;
    println!("vm: possible {} online {}", read(topology::POSSIBLE), read(topology::ONLINE));
    if !order.tests.is_empty() {
        return order.tests.iter().try_for_each(|test| run_test(test));
    }
    info()?;
    topology::check(SQUALL, &order)?;
    for stress in &order.stresses {
        run_stress(&order, stress)?;
    }
    if order.hotplug {
        let mut processors = hotplug::Processors::find()?;
        processors.thin_out();
        println!("vm: online {}", read(topology::ONLINE));
        let thinned = topology::check_vps(SQUALL, &order);
        processors.restore()?;
        thinned?;
    }
    topology::check(SQUALL, &order)
}

/// Mounts the file systems that std, glibc and Squall read.
fn mounts() -> Result<(), String> {
    let wanted = [
        ("proc", "/proc", "proc"),
        ("sysfs", "/sys", "sysfs"),
        ("devtmpfs", "/dev", "devtmpfs"),
        ("tmpfs", "/tmp", "tmpfs"),
    ];
    for (source, target, kind) in wanted {
        std::fs::create_dir_all(target).map_err(|e| format!("cannot create {target}: {e}"))?;
        mount(source, target, kind, MountFlags::empty(), None)
            .map_err(|e| format!("cannot mount {target}: {e}"))?;
    }
    Ok(())
}

/// Keeps the kernel's less severe messages off the console, because they would break up our lines. Until here
/// the console shows all messages.
fn quieten_kernel() -> Result<(), String> {
    std::fs::write(PRINTK, "3").map_err(|e| format!("cannot write {PRINTK}: {e}"))
}

/// Prints `squall info` for the log.
///
/// # Errors
/// If the program fails.
fn info() -> Result<(), String> {
    let status =
        Command::new(SQUALL).arg("info").status().map_err(|e| format!("cannot start {SQUALL}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("squall info failed: {status}")) }
}

/// Runs one stress to its end while processors go offline and come back.
///
/// `stress` is the name of the stress, followed by environment settings and switches. Examples: `rcu`,
/// `rcu,SQUALL_RSEQ=off`, `objects,--real`.
fn run_stress(order: &Order, stress: &str) -> Result<(), String> {
    let mut words = stress.split(',');
    let name = words.next().unwrap_or_default();
    let mut command = Command::new(SQUALL);
    command.args(["stress", name]);
    command.args(["--seconds", &order.seconds.to_string(), "--seed", &order.seed.to_string()]);
    command.args(["--threads", &order.threads.to_string()]);
    for word in words {
        if word.starts_with("--") {
            command.arg(word);
        } else {
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| format!("stress {stress}: {word} is neither NAME=VALUE nor a switch"))?;
            command.env(key, value);
        }
    }
    println!("vm: stress {stress} for {} s with {} threads", order.seconds, order.threads);
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("cannot start stress {stress}: {e}"))?;
    let mut processors = hotplug::Processors::find()?;
    let outcome = supervise(&mut child, &mut processors, order);
    processors.restore()?;
    let status = outcome.map_err(|why| format!("stress {stress}: {why}"))?;
    let took = start.elapsed().as_secs();
    println!(
        "vm: stress {stress} {status} after {took} s, {} processors taken off and back",
        processors.cycles()
    );
    if !status.success() {
        return Err(format!("stress {stress} failed: {status}"));
    }
    if processors.cycles() == 0 && processors.removable() > 0 {
        return Err(format!("stress {stress}: ended before a single processor was taken offline"));
    }
    Ok(())
}

/// Runs the test program `PROGRAM`, or with `PROGRAM,FILTER` its tests that match the filter. A test that
/// finds no emulator fails.
fn run_test(test: &str) -> Result<(), String> {
    println!("vm: test {test}");
    let start = Instant::now();
    let (program, filter) = test.split_once(',').unwrap_or((test, ""));
    let mut command = Command::new(program);
    command.args((!filter.is_empty()).then_some(filter));
    command.env("PATH", "/usr/bin").env("SQUALL_TEST_NEEDS", "emulator").env("RUST_BACKTRACE", "0");
    // Run one test at a time, and print its name before it runs.
    command.args(["--test-threads", "1", "--nocapture"]);
    let status = command.status().map_err(|e| format!("cannot start test {test}: {e}"))?;
    let took = start.elapsed().as_secs();
    println!("vm: test {test} {status} after {took} s");
    if status.success() { Ok(()) } else { Err(format!("test {test} failed: {status}")) }
}

/// Waits for `child`, while taking processors offline and bringing them back. Kills it at the time limit.
fn supervise(
    child: &mut Child,
    processors: &mut hotplug::Processors,
    order: &Order,
) -> Result<std::process::ExitStatus, String> {
    let limit = Duration::from_secs(order.seconds * PATIENCE_FACTOR + GRACE_SECONDS);
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            let killed = child.kill().and_then(|()| child.wait());
            return Err(format!("still running after {} s, killed: {killed:?}", limit.as_secs()));
        }
        // Step only during the requested time, and leave the final joins of the stress undisturbed.
        if order.hotplug && start.elapsed().as_secs() < order.seconds {
            processors.step()?;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Returns the trimmed text of a small file, or the reason why it cannot be read, for the log.
fn read(path: &str) -> String {
    match std::fs::read_to_string(path) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => format!("({path}: {error})"),
    }
}
