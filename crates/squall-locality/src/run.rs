//! Running a program under the emulator, and what is left of it afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use squall_locality_plugin::format::ENTRY_BYTES;

use crate::emulator::Emulator;
use crate::symbols::{Function, functions};
use crate::{Error, Options, Window};

/// The two libraries, made by the build script; empty where they could not be.
const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin.so"));
const PRELOAD: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/preload.so"));

/// How the program ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// By itself, with this status.
    Exited(i32),
    /// By this signal.
    Signal(i32),
    /// It did not end in time, and was killed.
    TimedOut,
}

/// A run that is over. Its files go with it.
#[derive(Debug)]
pub struct Run {
    /// Where the plugin's files are.
    pub folder: PathBuf,
    /// The process.
    pub pid: u32,
    /// How it ended.
    pub outcome: Outcome,
    /// Seconds that it took.
    pub seconds: f64,
    /// The emulator.
    pub emulator: Emulator,
}

impl Drop for Run {
    fn drop(&mut self) {
        // What cannot be removed is left to whoever cleans up temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where the tables go: memory, if there is twice the room that they may take, else the folder for temporary files.
fn new_folder(bytes: u64) -> Result<PathBuf, Error> {
    let memory = Path::new("/dev/shm");
    let room = rustix::fs::statvfs(memory).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
    let parent = if room > 2 * bytes { memory.to_path_buf() } else { std::env::temp_dir() };
    for attempt in 0..100 {
        let folder = parent.join(format!("squall-locality-{}-{attempt}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Error(format!("{}: {error}", folder.display()))),
        }
    }
    Err(Error(format!("no new folder can be made in {}", parent.display())))
}

/// Runs the program of `options` to its end, or to its timeout.
///
/// # Errors
/// When there is no emulator, the program or the window's function cannot be found, or nothing can be started.
pub fn run(options: &Options) -> Result<Run, Error> {
    if PLUGIN.is_empty() {
        return Err(Error(
            "this build has no plugin for the emulator: see what its build script warned of".into(),
        ));
    }
    let emulator = Emulator::find(options.emulator.as_deref())?;
    let program = find_program(&options.program)?;
    let folder = new_folder(options.entries_max * ENTRY_BYTES as u64)?;
    let mut run = Run { folder, pid: 0, outcome: Outcome::TimedOut, seconds: 0.0, emulator };
    let write = |name: &str, bytes: &[u8]| {
        let path = run.folder.join(name);
        fs::write(&path, bytes).map(|()| path.clone()).map_err(|e| Error(format!("{}: {e}", path.display())))
    };
    let plugin = write("plugin.so", PLUGIN)?;
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
    };
    let mut command = Command::new(&run.emulator.path);
    let arguments = format!(
        "{},folder={},entries={},window={window}",
        plugin.display(),
        run.folder.display(),
        options.entries_max
    );
    command.arg("-plugin").arg(arguments);
    for other in &options.plugins {
        command.arg("-plugin").arg(other);
    }
    if options.preload && !PRELOAD.is_empty() {
        let inherited = std::env::var("LD_PRELOAD").unwrap_or_default();
        command.arg("-E").arg(format!("LD_PRELOAD={} {inherited}", preload.display()).trim_end());
    }
    command.args(&options.emulator_arguments).arg(&program).args(&options.arguments);
    if options.quiet {
        command.stdout(Stdio::null());
    } else if options.stdout_to_stderr {
        command.stdout(std::io::stderr());
    }
    let begin = Instant::now();
    let mut child = command.spawn().map_err(|e| Error(format!("{}: {e}", run.emulator.path.display())))?;
    run.pid = child.id();
    run.outcome = wait(&mut child, options.timeout).map_err(|e| Error(e.to_string()))?;
    run.seconds = begin.elapsed().as_secs_f64();
    Ok(run)
}

/// A path with a slash as it is, another one on the path.
fn find_program(program: &Path) -> Result<PathBuf, Error> {
    let found = if program.components().count() > 1 || program.is_file() {
        Some(program.to_path_buf())
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
    };
    let found = found.filter(|path| path.is_file());
    let missing = || Error(format!("there is no program {}", program.display()));
    fs::canonicalize(found.ok_or_else(missing)?).map_err(|e| Error(format!("{}: {e}", program.display())))
}

fn symbols_file(functions: &[Function], program: &Path) -> Result<String, Error> {
    let lines = functions.iter().map(|function| format!("{:x} {}\n", function.offset, program.display()));
    Ok(lines.collect())
}

/// Waits for the end, no longer than `timeout`; then the process is killed, and what it counted is still there.
fn wait(child: &mut Child, timeout: Option<Duration>) -> std::io::Result<Outcome> {
    let Some(timeout) = timeout else { return Ok(ended(child.wait()?)) };
    let deadline = Instant::now() + timeout;
    let mut nap = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(ended(status));
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Ok(Outcome::TimedOut);
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(Duration::from_millis(50));
    }
}

fn ended(status: ExitStatus) -> Outcome {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Outcome::Exited(code),
        (None, signal) => Outcome::Signal(signal.unwrap_or(0)),
    }
}
