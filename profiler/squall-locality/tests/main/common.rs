//! Helpers of the tests that profile an example.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use squall_locality::emulator::Emulator;
use squall_locality::lines::Rules;
use squall_locality::model::Model;
use squall_locality::report::{Report, Request, report};
use squall_locality::run::{Run, run};
use squall_locality::{Options, Window, read};

/// Environment variable with a comma-separated list of requirements. A test that would be skipped for lack of
/// one fails.
const NEEDS: &str = "SQUALL_TEST_NEEDS";

/// Reports a skipped test. Writes to stderr directly, because the test harness hides the output of passing
/// tests.
///
/// # Panics
/// If the missing requirement is in [`NEEDS`].
pub(crate) fn skip(lacks: &str, why: &str) {
    let needs = std::env::var(NEEDS).unwrap_or_default();
    assert!(!needs.split(',').any(|need| need == lacks), "{NEEDS}={needs}, and {why}");
    // Stderr may be closed.
    let _ = writeln!(std::io::stderr(), "SKIP {lacks}: {why}");
}

/// Path of an example, which Cargo builds with the tests.
///
/// # Panics
/// If the example was not built.
pub(crate) fn built(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the path of this program");
    let folder = test.parent().and_then(|deps| deps.parent()).expect("Cargo's folder");
    let path = folder.join("examples").join(example);
    assert!(path.is_file(), "{} is not there: it is built by `cargo test` or `--examples`", path.display());
    path
}

/// Checks that the emulator `named`, or the default one, can be used. Fails with the reason.
pub(crate) fn emulator(named: Option<&Path>) -> Result<(), String> {
    use object::Object;
    let found = Emulator::find(named).map_err(|error| error.0)?;
    let bytes = std::fs::read(&found.path).map_err(|error| format!("{}: {error}", found.path.display()))?;
    // A file that is not ELF (a script) may start a suitable emulator.
    match object::File::parse(&*bytes) {
        Ok(program) if program.section_by_name(".interp").is_none() => {
            Err(format!("{} is linked statically and can load no plugin", found.path.display()))
        }
        _ => Ok(()),
    }
}

/// Options for an example with these arguments, or `None` without a usable emulator.
pub(crate) fn options(example: &str, arguments: &[&str]) -> Option<Options> {
    if let Err(why) = emulator(None) {
        skip("emulator", &why);
        return None;
    }
    let mut options = Options::new(built(example));
    options.arguments = arguments.iter().map(Into::into).collect();
    options.entries_max = 1 << 20;
    options.timeout = Some(Duration::from_secs(300));
    options.quiet = true;
    Some(options)
}

/// Runs and reports at most `lines_max` lines.
pub(crate) fn look(options: &Options, ops: Option<u64>, lines_max: usize) -> Report {
    report_on(&run(options).expect("a run"), options, ops, lines_max)
}

/// Report on this run.
pub(crate) fn report_on(run: &Run, options: &Options, ops: Option<u64>, lines_max: usize) -> Report {
    let sources = read::sources(&run.folder).expect("files");
    let mut request = Request::new(Rules::new(ops, 64), Model::preset("server").expect("a known preset"));
    request.outcome = run.outcome.clone();
    request.pid = run.pid;
    if let Window::Function(name) = &options.window {
        request.function = Some(name.clone());
    }
    request.processors = vec![1, 64];
    request.lines_max = lines_max;
    report(&sources, &request)
}
