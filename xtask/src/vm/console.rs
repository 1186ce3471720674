//! The console of an emulated machine: its lines, and the outcome of the boot that they show.
//!
//! Problem: now and then the kernel hangs or panics under QEMU before it starts the first program, most often
//! on a busy host. Such a boot is no test of Squall. Idea: the first program prints a line at once (`vm:
//! ...`). A boot without such a line is lost and is tried again.
//!
//! - I1. A boot is lost only if it did not reach the first program: the console shows no line of that program
//!   and no panic that names it. A boot that reached the first program passes or fails.
//! - I2. If the emulator ends with an error before the first program, it refused its arguments. That is a
//!   failure, because another boot would be refused too.

use std::io::{BufRead, BufReader};
use std::process::{Child, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The outcome of one boot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Boot {
    /// The first program reported success, and the machine powered off.
    Passed,
    /// The first program failed, or the emulator refused its arguments, for this reason.
    Failed(String),
    /// The boot did not reach the first program. The text continues a sentence that begins "the boot".
    Lost(String),
}

/// The time limits of a boot, from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Until the first program prints a line.
    pub(crate) first_program: Duration,
    /// Until the machine has powered off.
    pub(crate) whole: Duration,
}

/// Words of the panics that name the first program: it ended, or the kernel could not start it.
const BLAMED: [&str; 4] = ["kill init", "No working init", "Requested init", "Unable to mount root"];

/// The lines that a console has shown.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    lines: Vec<String>,
    reached: bool,
    verdict: Option<Result<(), String>>,
}

impl Seen {
    /// Adds the next line.
    fn add(&mut self, line: String) {
        self.reached |= reached(&line);
        self.verdict = self.verdict.take().or_else(|| verdict_in(&line));
        self.lines.push(line);
    }

    /// The last lines, at most `count`.
    pub(crate) fn tail(&self, count: usize) -> &[String] {
        &self.lines[self.lines.len().saturating_sub(count)..]
    }

    /// The outcome of this boot. `status` is the emulator's exit status; it is absent if the emulator was
    /// killed at a time limit.
    pub(crate) fn boot(&self, status: Option<ExitStatus>, limits: Limits) -> Boot {
        if self.reached {
            self.outcome_after_start(status, limits)
        } else {
            self.outcome_before_start(status, limits)
        }
    }

    fn outcome_before_start(&self, status: Option<ExitStatus>, limits: Limits) -> Boot {
        const LOST: &str = "did not reach the first program";
        match (&self.verdict, status) {
            (Some(Err(panic)), _) => Boot::Lost(format!("{LOST}: {panic}")),
            (_, None) => Boot::Lost(format!("{LOST} within {} s", limits.first_program.as_secs())),
            // An exit code is an error of the emulator; a crash gives a signal instead.
            (_, Some(status)) if status.code().is_some_and(|code| code != 0) => {
                Boot::Failed(format!("QEMU ended with {status} before the first program"))
            }
            (_, Some(status)) => Boot::Lost(format!("{LOST}: QEMU ended with {status}")),
        }
    }

    fn outcome_after_start(&self, status: Option<ExitStatus>, limits: Limits) -> Boot {
        match (&self.verdict, status) {
            (Some(Ok(())), Some(status)) if status.success() => Boot::Passed,
            (Some(Ok(())), Some(status)) => {
                Boot::Failed(format!("printed VM OK, but QEMU ended with {status}"))
            }
            (Some(Ok(())), None) => Boot::Failed("printed VM OK but did not power off".to_owned()),
            (Some(Err(why)), _) => Boot::Failed(why.clone()),
            (None, Some(_)) => Boot::Failed("ended without a verdict".to_owned()),
            (None, None) => Boot::Failed(format!("gave no verdict within {} s", limits.whole.as_secs())),
        }
    }
}

/// Whether this line shows that the kernel started the first program.
fn reached(line: &str) -> bool {
    let blamed = || line.contains("Kernel panic") && BLAMED.iter().any(|words| line.contains(words));
    line.starts_with("vm:") || line.starts_with("VM ") || blamed()
}

/// The verdict in this line of the console; `None` if the line is no verdict.
fn verdict_in(line: &str) -> Option<Result<(), String>> {
    if line == "VM OK" {
        return Some(Ok(()));
    }
    if let Some(why) = line.strip_prefix("VM FAILED: ") {
        return Some(Err(why.to_owned()));
    }
    line.contains("Kernel panic").then(|| Err(line.to_owned()))
}

/// Reads the console until it ends or a limit is reached, and prints the lines of the first program; with
/// `verbose`, all lines. Returns the lines seen, and whether the console ended.
pub(crate) fn watch(lines: &Receiver<String>, limits: Limits, verbose: bool) -> (Seen, bool) {
    let start = Instant::now();
    let mut seen = Seen::default();
    loop {
        let limit = if seen.reached { limits.whole } else { limits.first_program };
        match lines.recv_timeout(limit.saturating_sub(start.elapsed())) {
            Ok(line) => {
                if verbose || line.starts_with("vm:") {
                    println!("  {line}");
                }
                seen.add(line);
            }
            Err(RecvTimeoutError::Disconnected) => return (seen, true),
            Err(RecvTimeoutError::Timeout) => return (seen, false),
        }
    }
}

/// The lines of the console as they come; the channel closes when QEMU ends.
pub(crate) fn lines(child: &mut Child) -> Result<Receiver<String>> {
    let stdout = child.stdout.take().context("QEMU has no stdout")?;
    let (send, receive) = channel();
    std::thread::Builder::new().name("vm-console".into()).spawn(move || {
        let mut reader = BufReader::new(stdout);
        let mut bytes = Vec::new();
        // Firmware may print bytes that are not UTF-8. Both an error and an end mean that QEMU has ended.
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
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::{Boot, Limits, verdict_in, watch};

    /// Limits of zero: `watch` still reads the lines that are already there.
    const LIMITS: Limits = Limits { first_program: Duration::ZERO, whole: Duration::ZERO };
    const INIT_PANIC: &str =
        "[    1.0] Kernel panic - not syncing: Attempted to kill init! exitcode=0x0000000b";
    const EARLY_PANIC: &str = "[    0.1] Kernel panic - not syncing: IO-APIC + timer doesn't work!";

    /// The outcome of a machine that shows these lines and then ends with this wait status, or hangs.
    fn boot(shown: &[&str], status: Option<i32>) -> Boot {
        let (send, receive) = channel();
        for line in shown {
            send.send((*line).to_owned()).unwrap();
        }
        let hangs = status.is_none().then_some(send);
        let (seen, ended) = watch(&receive, LIMITS, false);
        assert_eq!(ended, hangs.is_none());
        seen.boot(status.map(ExitStatus::from_raw), LIMITS)
    }

    fn lost(boot: &Boot) -> bool {
        matches!(boot, Boot::Lost(_))
    }

    #[test]
    fn a_boot_without_a_line_of_the_first_program_is_lost() {
        let (exit, abort) = (Some(0), Some(6));
        for status in [None, exit, abort] {
            assert!(lost(&boot(&[], status)), "{status:?}");
            assert!(lost(&boot(&["[    0.0] Linux version 6.1"], status)), "{status:?}");
            assert!(lost(&boot(&[EARLY_PANIC], status)), "{status:?}");
        }
        assert_eq!(boot(&[], None), Boot::Lost("did not reach the first program within 0 s".into()));
        assert_eq!(
            boot(&[EARLY_PANIC], exit),
            Boot::Lost(format!("did not reach the first program: {EARLY_PANIC}"))
        );
    }

    #[test]
    fn a_machine_that_reached_the_first_program_passes_or_fails() {
        let failed = |why: &str| Boot::Failed(why.into());
        assert_eq!(boot(&["vm: kernel", "VM OK"], Some(0)), Boot::Passed);
        assert_eq!(boot(&["vm: kernel", "VM FAILED: no"], Some(0)), failed("no"));
        assert_eq!(boot(&["vm: kernel", EARLY_PANIC], Some(0)), failed(EARLY_PANIC));
        assert_eq!(boot(&["vm: kernel", "VM OK"], None), failed("printed VM OK but did not power off"));
        assert_eq!(boot(&["vm: kernel"], None), failed("gave no verdict within 0 s"));
        assert_eq!(boot(&["vm: kernel"], Some(0)), failed("ended without a verdict"));
        assert_eq!(boot(&["VM FAILED: mount"], Some(0)), failed("mount"));
        assert!(!lost(&boot(&["vm: kernel", "VM OK"], Some(6))));
    }

    #[test]
    fn a_first_program_that_dies_or_cannot_be_started_is_a_failure() {
        assert_eq!(boot(&[INIT_PANIC], Some(0)), Boot::Failed(INIT_PANIC.into()));
        assert_eq!(boot(&[INIT_PANIC], None), Boot::Failed(INIT_PANIC.into()));
    }

    #[test]
    fn an_emulator_that_refuses_the_machine_is_a_failure() {
        assert!(matches!(boot(&[], Some(1 << 8)), Boot::Failed(_)));
    }

    #[test]
    fn only_a_verdict_is_a_verdict() {
        assert_eq!(verdict_in("VM OK"), Some(Ok(())));
        assert_eq!(
            verdict_in("VM FAILED: stress rcu: exit status: 1"),
            Some(Err("stress rcu: exit status: 1".into()))
        );
        assert!(verdict_in(INIT_PANIC).unwrap().is_err());
        assert_eq!(verdict_in("vm: VM OK is not this line"), None);
    }
}
