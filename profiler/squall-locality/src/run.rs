//! Runs a program under the emulator and ends its processes when the run is stopped.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::StatVfsMountFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait as wait_for_any};
use squall_locality_plugin::format::{ENTRY_BYTES, run as at};
use squall_locality_plugin::plugin::MET;

use crate::emulator::Emulator;
use crate::shown::shown;
use crate::symbols::{Function, functions};
use crate::{Error, Options, Window};

/// Libraries compiled by the build script; empty if it could not compile them.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));
const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// How the program ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Exited with this status.
    Exited(i32),
    /// Killed by this signal.
    Signal(i32),
    /// Killed when the timeout expired.
    TimedOut,
    /// Stopped on purpose: SIGTERM or SIGINT, sent to the program or passed on by the caller, and the program
    /// ended in time.
    Stopped(i32),
    /// Killed, because it did not end in time after the caller passed this signal on.
    Interrupted(i32),
}

/// A finished run. Dropping it removes its files.
#[derive(Debug)]
#[non_exhaustive]
pub struct Run {
    /// Folder of the plugin's files.
    pub folder: PathBuf,
    /// Id of the program's process.
    pub pid: u32,
    /// How the program ended.
    pub outcome: Outcome,
    /// Duration in seconds.
    pub seconds: f64,
    /// The emulator.
    pub emulator: Emulator,
}

impl Drop for Run {
    fn drop(&mut self) {
        // Files that cannot be removed are left to the cleanup of temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A candidate folder for the run's files.
#[derive(Debug)]
struct Place {
    path: PathBuf,
    /// Free bytes of the folder's file system.
    room: u64,
    /// Whether libraries can be loaded from the folder.
    runs: bool,
}

impl Place {
    fn at(path: PathBuf) -> Place {
        // If the file system cannot be queried, creating the folder will report the error.
        let (room, runs) = rustix::fs::statvfs(&path).map_or((0, true), |fs| {
            (fs.f_bavail.saturating_mul(fs.f_frsize), !fs.f_flag.contains(StatVfsMountFlags::NOEXEC))
        });
        Place { path, room, runs }
    }
}

/// Chooses the folder for the tables and the two libraries, which take `bytes` bytes. Memory is preferred if
/// it has one and a half times that room, else the folder for temporary files. Folders mounted with `noexec`
/// are excluded.
fn choose_folder<'a>(memory: &'a Place, temporary: &'a Place, bytes: u64) -> Result<&'a Place, Error> {
    let fits = memory.room > bytes.saturating_add(bytes / 2);
    match (memory.runs, temporary.runs) {
        (true, true) => Ok(if fits { memory } else { temporary }),
        (true, false) => Ok(memory),
        (false, true) => Ok(temporary),
        (false, false) => Err(Error(format!(
            "no library can be loaded from {} or {}, because both are mounted with noexec: set TMPDIR to another folder",
            memory.path.display(),
            temporary.path.display()
        ))),
    }
}

/// Creates a private folder for the run's files.
fn new_folder(bytes: u64) -> Result<PathBuf, Error> {
    let (memory, temporary) = (Place::at("/dev/shm".into()), Place::at(std::env::temp_dir()));
    let parent = &choose_folder(&memory, &temporary, bytes)?.path;
    for attempt in 0..100 {
        let folder = parent.join(format!("squall-locality-{}-{attempt}", std::process::id()));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error(format!("{}: {error}", folder.display()))),
        }
    }
    Err(Error(format!("no new folder can be made in {}", parent.display())))
}

/// Error of a build without a plugin, with the remedy.
fn missing_plugin(why: &str) -> Error {
    Error(format!(
        "this build has no plugin for the emulator, because its build script failed: {why}; rebuild with a C compiler \
         as linker (cc, or the target's `linker` in Cargo's configuration) and the standard library of {} \
         (`rustup target add`), or set SQUALL_LOCALITY_RUSTC to another compiler",
        env!("SQUALL_PLUGIN_TARGET")
    ))
}

/// Environment variable that marks the processes of a run. Its value is the run's folder.
const MARK: &str = "SQUALL_LOCALITY_RUN";

/// Runs the program of `options` until it ends, times out, or the caller stops it.
///
/// After a timeout or a stop, all its processes are killed, in any session. After a normal end, processes
/// that outlive the program continue without being counted.
///
/// # Errors
/// If there is no emulator, the program or the window's function is not found, or the program cannot be
/// started.
pub fn run(options: &Options) -> Result<Run, Error> {
    if PLUGIN.is_empty() {
        return Err(missing_plugin(env!("SQUALL_PLUGIN_WHY")));
    }
    let emulator = Emulator::find(options.emulator.as_deref())?;
    let program = find_program(&options.program)?;
    // Twice the size of the entries with their index, which is the limit that the plugin keeps.
    let bytes = options.entries_max.saturating_mul(3 * ENTRY_BYTES as u64).max(8 << 20);
    let folder = new_folder(bytes)?;
    let mut run = Run { folder, pid: 0, outcome: Outcome::TimedOut, seconds: 0.0, emulator };
    let write = |name: &str, bytes: &[u8]| {
        let path = run.folder.join(name);
        fs::write(&path, bytes).map(|()| path.clone()).map_err(|e| Error(format!("{}: {e}", path.display())))
    };
    let preload = write("preload.so", PRELOAD)?;
    let window = match &options.window {
        Window::Auto => "auto",
        Window::Whole => "none",
        Window::Marks => "marks",
        Window::Function(name) => {
            let text: String = symbols_file(&functions(&program, name)?, &program)?;
            write("symbols", text.as_bytes())?;
            "symbols"
        }
        Window::Switch(switch) => {
            if switch.is_on() {
                "on"
            } else {
                "off"
            }
        }
    };
    let _adopts = Subreaper::begin(options.no_other_children);
    let begin = Instant::now();
    for name in run.emulator.plugin_names() {
        let plugin = write(name, PLUGIN)?;
        let mut argument = plugin.into_os_string();
        argument.push(format!(
            ",folder={},entries={},window={window}",
            run.folder.display(),
            options.entries_max
        ));
        let mut command = command(&run, options, &program, &argument, &preload);
        let mut child =
            command.spawn().map_err(|e| Error(format!("{}: {e}", run.emulator.path.display())))?;
        run.pid = child.id();
        let kin = RunProcesses { folder: &run.folder, alone: options.no_other_children };
        let page = run.folder.join("run");
        match wait(&mut child, options, &kin, begin, &page) {
            Ok(outcome) => run.outcome = outcome,
            Err(error) => {
                // The run returns an error, so no process may continue.
                let _ = end_all(&mut child, &kin);
                return Err(Error(format!("waiting for the program: {error}")));
            }
        }
        if !was_refused(&run) {
            break;
        }
    }
    run.seconds = begin.elapsed().as_secs_f64();
    Ok(run)
}

/// Whether the emulator refused the plugin or failed to start. Both end it before the program begins. An
/// emulator refuses a plugin if their interface versions differ, and prints the reason. An emulator that
/// fails to start prints its reason twice, once per attempt.
fn was_refused(run: &Run) -> bool {
    matches!(run.outcome, Outcome::Exited(status) if status != 0) && !run.folder.join(MET).exists()
}

/// Command line of the emulator with the plugin.
fn command(run: &Run, options: &Options, program: &Path, plugin: &OsStr, preload: &Path) -> Command {
    let mut command = Command::new(&run.emulator.path);
    command.arg("-plugin").arg(plugin);
    for other in &options.plugins {
        command.arg("-plugin").arg(other);
    }
    if options.preload && !PRELOAD.is_empty() {
        let inherited = std::env::var("LD_PRELOAD").unwrap_or_default();
        command.arg("-E").arg(format!("LD_PRELOAD={} {inherited}", preload.display()).trim_end());
    }
    // The program sees the typed name as `argv[0]`. Some programs depend on it.
    command.arg("-0").arg(&options.program);
    command.args(&options.emulator_arguments).arg(program).args(&options.arguments);
    if options.quiet {
        command.stdout(Stdio::null());
    } else if options.stdout_to_stderr {
        command.stdout(std::io::stderr());
    }
    command.env(MARK, &run.folder);
    command
}

/// Resolves the program as a shell does: a name with a slash is a path, any other is looked up in `PATH`.
fn find_program(program: &Path) -> Result<PathBuf, Error> {
    let has_slash = program.as_os_str().as_encoded_bytes().contains(&b'/');
    let found = if has_slash {
        Some(program.to_path_buf()).filter(|path| path.is_file())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| can_run(file))
    };
    let missing = || {
        let place = if has_slash { "" } else { " in PATH" };
        Error(format!("there is no program {}{place}", program.display()))
    };
    let found = found.ok_or_else(missing)?;
    let failed = |e: std::io::Error| Error(format!("{}: {e}", program.display()));
    let mut first = Vec::new();
    fs::File::open(&found).and_then(|file| file.take(256).read_to_end(&mut first)).map_err(failed)?;
    if let Some(why) = not_a_program(&first) {
        return Err(Error(format!("{} {why}", program.display())));
    }
    fs::canonicalize(found).map_err(failed)
}

/// Returns why a file with this beginning cannot be emulated. The emulator's own message is hard to
/// understand.
fn not_a_program(first: &[u8]) -> Option<String> {
    if first.starts_with(b"\x7fELF") {
        return None;
    }
    let Some(line) = first.strip_prefix(b"#!") else {
        return Some("is no program: it is not an ELF file".to_owned());
    };
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let interpreter = String::from_utf8_lossy(line);
    Some(format!(
        "is a script: pass its interpreter ({}) as the program, and the script as its argument; programs that it starts by `exec` are not counted",
        shown(interpreter.trim())
    ))
}

fn can_run(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

fn symbols_file(functions: &[Function], program: &Path) -> Result<String, Error> {
    let lines = functions.iter().map(|function| format!("{:x} {}\n", function.offset, program.display()));
    Ok(lines.collect())
}

/// Time for the program to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// Waits until the program ends, the timeout expires, or the caller stops the run. In the last two cases it
/// kills the processes; their counts remain.
fn wait(
    child: &mut Child,
    options: &Options,
    kin: &RunProcesses<'_>,
    begin: Instant,
    page: &Path,
) -> std::io::Result<Outcome> {
    // A deadline beyond the clock's range never comes.
    let deadline = options.timeout.and_then(|timeout| begin.checked_add(timeout));
    let mut nap = Duration::from_millis(1);
    loop {
        let status = child.try_wait()?;
        // Read after `try_wait`. A terminal sends its signal to the program as well, so `stop` may be set by
        // the time the program has ended.
        let told = options.stop.as_ref().map_or(0, |stop| stop.load(Ordering::Relaxed));
        if told != 0 {
            let told = i32::try_from(told).unwrap_or(0);
            let status = match status {
                Some(status) => Some(status),
                None => interrupt(child, told)?,
            };
            end_all(child, kin)?;
            return Ok(status.map_or(Outcome::Interrupted(told), |status| after(told, ended(status))));
        }
        if let Some(status) = status {
            return Ok(match ended(status) {
                Outcome::Signal(signal) if is_on_purpose(signal) => Outcome::Stopped(signal),
                outcome => outcome,
            });
        }
        if let Window::Switch(switch) = &options.window {
            switch.follow(|on| set_paused(page, !on).is_ok());
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            end_all(child, kin)?;
            return Ok(Outcome::TimedOut);
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(50));
    }
}

/// Writes to the page of the run whether counting is paused.
fn set_paused(page: &Path, paused: bool) -> std::io::Result<()> {
    let file = fs::File::options().write(true).open(page)?;
    file.write_all_at(&u64::from(paused).to_le_bytes(), at::PAUSED as u64)
}

/// Whether people and service managers end servers by this signal.
fn is_on_purpose(signal: i32) -> bool {
    [Signal::TERM, Signal::INT].iter().any(|known| known.as_raw() == signal)
}

/// Outcome of a program that ended after the caller passed a signal on.
fn after(told: i32, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Exited(status) if status != 0 && status != 128 + told => outcome,
        Outcome::Signal(signal) if signal != told => outcome,
        _ if is_on_purpose(told) => Outcome::Stopped(told),
        _ => Outcome::Interrupted(told),
    }
}

/// Sends the signal to the program and waits up to [`GRACE`] for its end. Returns its status if it ended.
fn interrupt(child: &mut Child, signal: i32) -> std::io::Result<Option<ExitStatus>> {
    if let Some(signal) = Signal::from_named_raw(signal)
        && let Some(pid) = Pid::from_raw(child.id().cast_signed())
    {
        // An error means that the program has ended in the meantime.
        let _ = kill_process(pid, signal);
    }
    let deadline = Instant::now() + GRACE;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Makes this process the subreaper for orphaned processes of the program, until dropped.
struct Subreaper(bool);

impl Subreaper {
    fn begin(wanted: bool) -> Subreaper {
        let is_already = rustix::process::child_subreaper().is_ok_and(|on| on.is_some());
        // If it fails, the processes are still found by their environment.
        Subreaper(
            wanted
                && !is_already
                && rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok(),
        )
    }
}

impl Drop for Subreaper {
    fn drop(&mut self) {
        if self.0 {
            // Setting succeeded, so resetting will, too.
            let _ = rustix::process::set_child_subreaper(None);
        }
    }
}

/// Maximum number of rounds that look for remaining processes.
const ROUNDS_MAX: usize = 200;

/// Kills the program and its processes in rounds, until none is left. Processes created during a round are
/// found in the next one.
fn end_all(child: &mut Child, kin: &RunProcesses<'_>) -> std::io::Result<()> {
    // The pid of a child that was not yet waited for is reserved; after the wait, another process may get it.
    let program = matches!(child.try_wait(), Ok(None)).then(|| child.id().cast_signed());
    let mut known = HashSet::new();
    // Collects the processes before the first kill, because killing a parent re-parents its children.
    kin.find(program, &mut known);
    if program.is_some() {
        child.kill()?;
    }
    for _ in 0..ROUNDS_MAX {
        for pid in known.iter().filter_map(|process| Pid::from_raw(process.pid)) {
            // An error means that the process has ended in the meantime.
            let _ = kill_process(pid, Signal::KILL);
        }
        if program.is_some() {
            child.wait()?;
        }
        // Reaps adopted processes. This process has no other children, and the program itself was waited for.
        while kin.alone && wait_for_any(WaitOptions::NOHANG).is_ok_and(|ended| ended.is_some()) {}
        if !kin.find(None, &mut known) {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Identity of a process: pid and start time, because pids are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Process {
    pid: i32,
    began: u64,
}

/// Finds the processes of a run. They have the run's mark in their environment, which forks inherit and
/// sessions keep. If this process has no other children, the processes that it adopted belong to the run,
/// too. So do all descendants of both.
struct RunProcesses<'a> {
    folder: &'a Path,
    alone: bool,
}

impl RunProcesses<'_> {
    /// Adds living processes of the run to `known`, except the program itself (pid `program`), and removes
    /// dead ones. Returns whether any is left.
    fn find(&self, program: Option<i32>, known: &mut HashSet<Process>) -> bool {
        let mut mark = format!("{MARK}=").into_bytes();
        mark.extend_from_slice(self.folder.as_os_str().as_encoded_bytes());
        let here = std::process::id().cast_signed();
        let alive: Vec<(Process, i32)> = processes().collect();
        known.retain(|process| alive.iter().any(|(found, _)| found == process));
        for (process, parent) in &alive {
            let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
            let is_marked = environment.split(|byte| *byte == 0).any(|variable| variable == mark);
            if is_marked || Some(*parent) == program || self.alone && *parent == here {
                known.insert(*process);
            }
        }
        known.retain(|process| process.pid != here && Some(process.pid) != program);
        // A parent in this set is alive, so its pid is not reused.
        let mut parents: HashSet<i32> = known.iter().map(|process| process.pid).collect();
        loop {
            let before = parents.len();
            for (process, parent) in &alive {
                if parents.contains(parent) && parents.insert(process.pid) {
                    known.insert(*process);
                }
            }
            if parents.len() == before {
                break;
            }
        }
        !known.is_empty()
    }
}

/// Lists the living processes, each with the pid of its parent.
fn processes() -> impl Iterator<Item = (Process, i32)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in parentheses may contain any character. State and parent follow it; the start time is
        // field 22.
        let words: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
        let (state, parent, began) = (words.first()?, words.get(1)?, words.get(19)?);
        let is_alive = !matches!(*state, "Z" | "X");
        is_alive.then_some((Process { pid, began: began.parse().ok()? }, parent.parse().ok()?))
    })
}

fn ended(status: ExitStatus) -> Outcome {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Outcome::Exited(code),
        (None, signal) => Outcome::Signal(signal.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_program_is_refused() {
        assert_eq!(not_a_program(b"\x7fELF\x02\x01"), None);
        assert!(not_a_program(b"").expect("it is empty").contains("no program"));
        let why = not_a_program(b"#! /usr/bin/env python3\nprint()\n").expect("it is a script");
        assert!(why.contains("(/usr/bin/env python3)"), "{why}");
        assert!(
            find_program(Path::new("/proc/self/status")).expect_err("it is text").0.contains("no program")
        );
    }

    #[test]
    fn a_program_that_ends_after_a_signal_was_stopped_on_purpose() {
        use Outcome::{Exited, Interrupted, Signal, Stopped};
        for (told, outcome, is) in [
            (15, Exited(0), Stopped(15)),
            (2, Exited(130), Stopped(2)),
            (15, Signal(15), Stopped(15)),
            (15, Exited(1), Exited(1)),
            (15, Signal(11), Signal(11)),
            (1, Exited(0), Interrupted(1)),
        ] {
            assert_eq!(after(told, outcome), is);
        }
    }

    #[test]
    fn the_folder_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let folder = new_folder(0).expect("a folder");
        let mode = fs::metadata(&folder).expect("the folder exists").permissions().mode();
        fs::remove_dir(&folder).expect("it is empty");
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn the_chosen_folder_has_room_and_loads_libraries() {
        let place = |path: &str, room, runs| Place { path: path.into(), room, runs };
        let chosen = |room, memory_runs, temporary_runs| {
            let (memory, temporary) =
                (place("/memory", room, memory_runs), place("/files", 0, temporary_runs));
            choose_folder(&memory, &temporary, 1_000).map(|place| place.path.display().to_string())
        };
        assert_eq!(chosen(1_501, true, true).as_deref(), Ok("/memory"));
        assert_eq!(chosen(1_500, true, true).as_deref(), Ok("/files"));
        assert_eq!(chosen(1_501, false, true).as_deref(), Ok("/files"));
        // Little room is better than no folder.
        assert_eq!(chosen(10, true, false).as_deref(), Ok("/memory"));
        let Error(said) = chosen(1_501, false, false).expect_err("an error");
        for part in ["/memory", "/files", "noexec", "TMPDIR"] {
            assert!(said.contains(part), "{said}");
        }
        assert!(Place::at("/proc/self".into()).room == 0 && Place::at("/no/such/folder".into()).runs);
    }

    #[test]
    fn a_build_without_a_plugin_reports_reason_and_remedy() {
        let Error(said) = missing_plugin("error: linker `cc` not found");
        for part in
            ["linker `cc` not found", "C compiler", "rustup target add", "SQUALL_LOCALITY_RUSTC", "gnu"]
        {
            assert!(said.contains(part), "{said}");
        }
    }
}
