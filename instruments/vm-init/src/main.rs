//! The first process (`/init`) of the emulated machine that `cargo run -p xtask -- vm` boots.
//!
//! It is linked statically and is, with the binary `squall`, all the user space there is. It
//!
//! 1. mounts what a Linux process expects to find,
//! 2. brings the processors online that the kernel left off while it started,
//! 3. compares the machine that `squall info --json` reports with the one that the kernel's command line announces,
//! 4. runs each stress while it takes processors offline and brings them back,
//! 5. counts the processors while half of them are offline, compares the machine again, says `VM OK` or `VM FAILED: why` on the console, and powers the machine off.
//!
//! Where it is told of tests, it runs those instead of all that needs `squall`: each has to succeed, with the emulator that it needs.
//!
//! - I1. Every way out prints one verdict line and then powers off: xtask never has to guess whether a silent machine
//!   passed.
//! - I2. When a stress is over, every processor that was online before it is online again.
//!
//! Not promised: anything on a machine that is not emulated. It ends by powering the machine off.

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
/// Which of its messages the kernel shows on the console: those more severe than this number.
const PRINTK: &str = "/proc/sys/kernel/printk";
/// How long a stress may take beyond the seconds it was asked for, in multiples of them, plus [`GRACE_SECONDS`].
const PATIENCE_FACTOR: u64 = 4;
/// Seconds of patience on top: an emulated machine of 32 processors is slow to start and join threads.
const GRACE_SECONDS: u64 = 320;

fn main() {
    if std::process::id() != 1 {
        eprintln!(
            "squall-vm-init is the first process of an emulated machine; start it with: cargo run -p xtask -- vm"
        );
        std::process::exit(2);
    }
    // The first thing it does: xtask boots a machine again that did not come as far as this line.
    println!("vm: first program");
    match run() {
        Ok(()) => println!("VM OK"),
        Err(why) => println!("VM FAILED: {why}"),
    }
    rustix::fs::sync();
    let refused = reboot(RebootCommand::PowerOff);
    // Only reached when the kernel refuses; returning from the first process makes it panic, which ends QEMU too.
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
        std::fs::create_dir_all(target).map_err(|e| format!("create {target}: {e}"))?;
        mount(source, target, kind, MountFlags::empty(), None).map_err(|e| format!("mount {target}: {e}"))?;
    }
    Ok(())
}

/// Keeps the kernel's lesser messages off the console, where they would tear our lines. It says all of them until here.
fn quieten_kernel() -> Result<(), String> {
    std::fs::write(PRINTK, "3").map_err(|e| format!("{PRINTK}: {e}"))
}

/// Prints `squall info` for the log; it must at least succeed.
fn info() -> Result<(), String> {
    let status = Command::new(SQUALL).arg("info").status().map_err(|e| format!("{SQUALL} info: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("squall info: {status}")) }
}

/// Runs one stress to its end while processors go offline and come back.
///
/// `stress` is the stress's name, and then what it runs with, environment settings and switches: `rcu`,
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
            let (key, value) = word.split_once('=').ok_or_else(|| format!("bad setting {word}"))?;
            command.env(key, value);
        }
    }
    println!("vm: stress {stress} for {} s with {} threads", order.seconds, order.threads);
    let start = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("stress {stress}: {e}"))?;
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
        return Err(format!("stress {stress}: {status}"));
    }
    if processors.cycles() == 0 && processors.removable() > 0 {
        return Err(format!("stress {stress}: ended before a single processor was taken offline"));
    }
    Ok(())
}

/// Runs the tests of `PROGRAM` or `PROGRAM,FILTER`. A test that finds no emulator fails.
fn run_test(test: &str) -> Result<(), String> {
    println!("vm: test {test}");
    let start = Instant::now();
    let (program, filter) = test.split_once(',').unwrap_or((test, ""));
    let mut command = Command::new(program);
    command.args((!filter.is_empty()).then_some(filter));
    command.env("PATH", "/usr/bin").env("SQUALL_TEST_NEEDS", "emulator").env("RUST_BACKTRACE", "0");
    // One at a time, with its name before it runs.
    let status =
        command.args(["--test-threads", "1", "--nocapture"]).status().map_err(|e| format!("{test}: {e}"))?;
    let took = start.elapsed().as_secs();
    println!("vm: test {test} {status} after {took} s");
    if status.success() { Ok(()) } else { Err(format!("{test}: {status}")) }
}

/// Waits for `child`, taking processors off and back meanwhile, and kills it when it outlives every patience.
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
        // Only while the stress is meant to be running: its last joins need no more disturbance.
        if order.hotplug && start.elapsed().as_secs() < order.seconds {
            processors.step()?;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The trimmed text of a small file, or why it cannot be read, for the log.
fn read(path: &str) -> String {
    match std::fs::read_to_string(path) {
        Ok(text) => text.trim().to_owned(),
        Err(error) => format!("({path}: {error})"),
    }
}
