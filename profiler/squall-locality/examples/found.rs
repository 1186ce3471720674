//! Finds false sharing in published crates.
//!
//! `cargo run -p squall-locality --example found` profiles a small program for each crate and prints the line
//! it finds. It exits with 1 if the expected line is not reported as falsely shared, or its source is not
//! named. The programs use the crates as documented; each thread works on its own data.

use std::cell::Cell;
use std::process::exit;
use std::sync::{Barrier, Mutex};

use squall_locality::emulator::Emulator;
use squall_locality::lines::{Rules, Sharing};
use squall_locality::model::Model;
use squall_locality::objects::{Object, Objects};
use squall_locality::report::{LineReport, Request, report};
use squall_locality::run::{Outcome, run};
use squall_locality::symbols::Frame;
use squall_locality::{Options, read};
use squall_locality_plugin::mark;

const OPS: u64 = 1_000;
/// Enough threads that some of their blocks span several lines, independent of other allocations.
const THREADS: usize = 16;

/// The expected finding in a crate.
struct Known {
    /// Name of the program.
    name: &'static str,
    /// Source file: parts of its path.
    file: (&'static str, &'static str),
    /// Function in that file that allocates the line's block.
    function: &'static str,
    /// Explanation.
    what: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        name: "evmap",
        file: ("/evmap-", "/src/read/mod.rs"),
        function: "new",
        what: "epochs of readers that were cloned one after the other lie side by side",
    },
    Known {
        name: "thread_local",
        file: ("/thread_local-", "/src/lib.rs"),
        function: "allocate_bucket",
        what: "values of several threads lie side by side in one block",
    },
];

fn main() {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        None => find_all(),
        Some("evmap") => evmap(),
        Some("thread_local") => thread_local(),
        Some(other) => panic!("no program {other}"),
    }
}

/// Runs `f` between marks in several threads at once, each with its own result of `first`.
fn at_once<T>(threads: usize, first: impl Fn(usize) -> T + Sync, f: impl Fn(&T) + Sync) {
    let barrier = Barrier::new(threads);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (first, f, barrier) = (&first, &f, &barrier);
            scope.spawn(move || {
                let own = first(thread);
                barrier.wait();
                mark::begin();
                f(&own);
                mark::end();
                barrier.wait();
            });
        }
    });
}

/// Threads that read constant data, each through its own handle.
fn evmap() {
    let (reader, mut writer) = evmap::new::<u64, u64>();
    (0..64).for_each(|key| _ = writer.insert(key, key));
    writer.refresh();
    // Each thread takes one handle and uses only that.
    let handles: Vec<_> = (0..THREADS).map(|_| Mutex::new(Some(reader.clone()))).collect();
    let take =
        |thread: usize| handles[thread].lock().expect("not poisoned").take().expect("it is taken once");
    let read = |handle: &evmap::ReadHandle<u64, u64>| {
        for i in 0..OPS {
            assert_eq!(handle.get_one(&(i % 64)).map(|value| *value), Some(i % 64));
        }
    };
    at_once(THREADS, take, |handle| read(handle));
}

/// Threads that count, each in its own cell.
fn thread_local() {
    let counts = thread_local::ThreadLocal::<Cell<u64>>::new();
    let count = || {
        let own = counts.get_or_default();
        own.set(own.get() + 1);
    };
    at_once(THREADS, |_| count(), |_| (0..OPS).for_each(|_| count()));
}

fn find_all() {
    if let Err(error) = Emulator::find(None) {
        println!("SKIP: {error}");
        return;
    }
    let missing = KNOWN.iter().filter(|known| !is_found(known)).count();
    if missing > 0 {
        println!("{missing} of {} were not found", KNOWN.len());
        exit(1);
    }
}

/// Whether the profiler finds the line. Prints the result.
fn is_found(known: &Known) -> bool {
    let mut options = Options::new(std::env::current_exe().expect("the path of this program"));
    options.arguments = vec![known.name.into()];
    let run = run(&options).unwrap_or_else(|error| {
        println!("{}: {error}", known.name);
        exit(1)
    });
    assert_eq!(run.outcome, Outcome::Exited(0), "{} runs", known.name);
    let sources = read::sources(&run.folder).expect("the run's files");
    let model = Model::preset("server").expect("a known preset");
    let mut request = Request::new(Rules::new(Some(OPS), 64), model);
    request.pid = run.pid;
    request.lines_max = 100;
    let report = report(&sources, &request);
    let Some((line, frame)) = report.lines.iter().find_map(|line| Some((line, named(line, known)?))) else {
        println!("{}: not found among {} lines", known.name, report.lines.len());
        return false;
    };
    println!(
        "{}: {}: {} accesses of {} threads, {} of them to bytes that nobody shares; {} at {}:{}",
        known.name,
        known.what,
        line.write_shared,
        line.threads.len(),
        line.falsely_shared,
        frame.function,
        Objects::shown(frame.file.as_deref().unwrap_or_default()),
        frame.line.unwrap_or(0)
    );
    true
}

/// The frame that names the line, if the line is the expected one: falsely shared, in a block allocated
/// there.
fn named<'a>(line: &'a LineReport, known: &Known) -> Option<&'a Frame> {
    let Object::Heap { blocks } = &line.object else { return None };
    let is_there = |frame: &&Frame| {
        let file = frame.file.as_deref().unwrap_or_default();
        frame.function.contains(known.function) && file.contains(known.file.0) && file.ends_with(known.file.1)
    };
    let mut asked = blocks.iter().flat_map(|block| &block.frames);
    asked.find(is_there).filter(|_| line.sharing == Sharing::False)
}
