//! What the tests that run an example below the profiler share.

use std::path::PathBuf;
use std::time::Duration;

use squall_locality::emulator::Emulator;
use squall_locality::lines::Rules;
use squall_locality::model::Model;
use squall_locality::report::{Report, Request, report};
use squall_locality::run::run;
use squall_locality::{Options, Window, read};

/// An example, which Cargo builds with the tests; none where it did not.
pub(crate) fn built(example: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let path = test.parent()?.parent()?.join("examples").join(example);
    path.is_file().then_some(path)
}

/// To run an example with these arguments; nothing, if there is no emulator or the example was not built.
pub(crate) fn options(example: &str, arguments: &[&str]) -> Option<Options> {
    if let Err(error) = Emulator::find(None) {
        eprintln!("SKIP: {error}");
        return None;
    }
    let Some(program) = built(example) else {
        eprintln!("SKIP: the example `{example}` was not built");
        return None;
    };
    Some(Options {
        arguments: arguments.iter().map(Into::into).collect(),
        entries_max: 1 << 20,
        timeout: Some(Duration::from_secs(300)),
        quiet: true,
        ..Options::new(program)
    })
}

/// The report of a run, of so many lines at most.
pub(crate) fn look(options: &Options, ops: Option<u64>, lines_max: usize) -> Report {
    let run = run(options).expect("it runs");
    let sources = read::sources(&run.folder).expect("files");
    let request = Request {
        command: Vec::new(),
        emulator: String::new(),
        outcome: run.outcome.clone(),
        seconds: 0.0,
        pid: run.pid,
        function: match &options.window {
            Window::Function(name) => Some(name.clone()),
            _ => None,
        },
        rules: Rules { ops, line_bytes: 64, with_main: false },
        model: Model::preset("server").expect("it is there"),
        processors: vec![1, 64],
        lines_max,
    };
    report(&sources, &request)
}
