//! `browse`: the cost of a look at a program.
//!
//! A child process has ten thousand named objects of seven classes. Six of ten are adaptive. A second child
//! is `squall browse` with its default interval of a second. This process plays the page: it asks for the
//! changed rows once a second. The number in `--threads` is the number of open pages. Metrics:
//!
//! - `program_percent`: processor time of the program while a page is open, less that of an equal span
//!   before, in percent of one processor. Includes all of its threads.
//! - `server_thread_percent`: processor time of the program's thread that answers, in percent of one
//!   processor.
//! - `command_percent`: processor time of `squall browse`, in percent of one processor.
//! - `page_kib_per_s`: bytes of rows that one page receives, in KiB per second.
//! - `closed_percent`, `closed_wakeups`: processor time and context switches of the answering thread, within
//!   a span in which the command still runs but no page is open.
//! - `kept_threads`, `kept_bytes`: threads and live bytes of the program's heap after the command has ended,
//!   less those before the first look. `kept_bytes` needs glibc, and is left out of `churn`, in which the
//!   program itself changes its heap.
//! - `waiting_threads`: threads of the program that wait for a client then.
//!
//! Source of the times: `/proc/PID/task/*/schedstat`, in nanoseconds. Memory caches of glibc's threads are
//! switched off in the program, because their blocks count as live.

mod program;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::case::{Case, PLAIN, Scale, Setting, Variant};
use crate::harness::field;

pub use program::browsed_program;

pub(super) static CASE: Case = Case {
    name: "browse",
    about: "processor time and memory of a program with 10,000 objects while a page of squall browse looks at it; metrics only",
    variants: &[
        Variant { name: "quiet", about: "no object changes", ..PLAIN },
        Variant { name: CHURN, about: "a thousand objects are replaced each second", ..PLAIN },
    ],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[1],
};

const CHURN: &str = "churn";
/// Length of each span in a full and in a quick run.
const SPAN: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(4));
/// Time for a change to take effect: more than two polls.
const SETTLE: Duration = Duration::from_millis(2500);
/// Time after which the command has given its connection up, because no page asks: ten intervals.
const REST: Duration = Duration::from_secs(13);
/// Longest time for the program to notice the end of its client.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time between two requests of a page.
const INTERVAL: Duration = Duration::from_secs(1);

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let span = if quick { SPAN.1 } else { SPAN.0 };
    let churns = setting.variant.name == CHURN;
    let mut program = Program::start(churns)?;
    thread::sleep(SETTLE);
    let before = program.footprint()?;
    let alone = program.busy_percent(span)?;

    let command = Browse::start(&program.socket)?;
    let pages = (0..setting.threads)
        .map(|number| Page::open(&command.address, number))
        .collect::<Result<Vec<_>, _>>()?;
    thread::sleep(SETTLE);
    let (began, bytes_before) = (Instant::now(), pages.iter().map(Page::bytes).sum::<u64>());
    let (command_before, answers_before) = (command.task_ns()?, program.answering_ns()?);
    let watched = program.busy_percent(span)?;
    let of_span = |ns: u64| percent(ns, began.elapsed());
    let command_percent = of_span(command.task_ns()?.saturating_sub(command_before));
    let answers_percent = of_span(program.answering_ns()?.saturating_sub(answers_before));
    let bytes = pages.iter().map(Page::bytes).sum::<u64>() - bytes_before;
    let kib_per_s = bytes as f64 / 1024.0 / began.elapsed().as_secs_f64() / pages.len() as f64;

    pages.into_iter().try_for_each(Page::close)?;
    thread::sleep(REST);
    let (began, closed_before, switches) = (Instant::now(), program.answering_ns()?, program.switches()?);
    thread::sleep(span);
    let closed_percent = percent(program.answering_ns()?.saturating_sub(closed_before), began.elapsed());
    let wakeups = program.switches()?.saturating_sub(switches);

    drop(command);
    let after = program.footprint_like(&before)?;
    let metric = |name: &str, value: f64| (name.to_owned(), value);
    let mut metrics = vec![
        metric("objects", program::OBJECTS as f64),
        metric("program_percent", watched - alone),
        metric("server_thread_percent", answers_percent),
        metric("command_percent", command_percent),
        metric("page_kib_per_s", kib_per_s),
        metric("closed_percent", closed_percent),
        metric("closed_wakeups", wakeups as f64),
        metric("waiting_threads", after.answering_threads as f64),
        metric("kept_threads", after.threads as f64 - before.threads as f64),
    ];
    if let (false, Some(then), Some(now)) = (churns, before.heap_bytes, after.heap_bytes) {
        metrics.push(metric("kept_bytes", now as f64 - then as f64));
    }
    Ok(metrics)
}

fn percent(ns: u64, span: Duration) -> f64 {
    ns as f64 / span.as_nanos() as f64 * 100.0
}

/// A child process, which is killed when this is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Starts this program with other arguments. Returns it with its streams.
    fn start(
        arguments: &[&str],
        socket: &Path,
    ) -> Result<(Running, ChildStdin, BufReader<ChildStdout>), String> {
        let told = |error: io::Error| format!("cannot start squall {}: {error}", arguments.join(" "));
        let program = std::env::current_exe().map_err(told)?;
        let mut command = Command::new(program);
        command.args(arguments).arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
        let mut child = command.spawn().map_err(told)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let running = Running(child);
        let (Some(input), Some(output)) = (input, output) else {
            return Err("a child has no pipes".to_owned());
        };
        Ok((running, input, BufReader::new(output)))
    }

    /// Processor time of the living threads of this name, or of all, in nanoseconds.
    fn task_ns(&self, name: Option<&str>) -> Result<u64, String> {
        let mut sum = 0;
        for task in self.tasks(name)? {
            let text = read(&task.join("schedstat"))?;
            let ns = text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
            sum += ns.ok_or("the kernel keeps no times in /proc/PID/task/*/schedstat")?;
        }
        Ok(sum)
    }

    /// Folders of the living threads of this name, or of all.
    fn tasks(&self, name: Option<&str>) -> Result<Vec<PathBuf>, String> {
        let folder = PathBuf::from(format!("/proc/{}/task", self.0.id()));
        let told = |error: io::Error| format!("cannot read {}: {error}", folder.display());
        let mut tasks = Vec::new();
        for task in fs::read_dir(&folder).map_err(told)? {
            let task = task.map_err(told)?.path();
            if name.is_none_or(|name| read(&task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)) {
                tasks.push(task);
            }
        }
        Ok(tasks)
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// The watched program.
struct Program {
    child: Running,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    socket: PathBuf,
}

/// Threads, descriptors and memory of the program at one moment.
struct Footprint {
    threads: usize,
    answering_threads: usize,
    descriptors: usize,
    heap_bytes: Option<u64>,
}

impl Program {
    /// Starts the program, and waits until it serves.
    fn start(churns: bool) -> Result<Program, String> {
        let socket = std::env::temp_dir().join(format!("squall-bench-browse-{}.sock", std::process::id()));
        let arguments: &[&str] = if churns { &["browsed", "--churn"] } else { &["browsed"] };
        let (child, input, output) = Running::start(arguments, &socket)?;
        let mut program = Program { child, input, output, socket };
        match program.line()?.as_str() {
            "ready" => Ok(program),
            other => Err(format!("the watched program did not start; it said {other:?}")),
        }
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let told = |error: io::Error| format!("cannot talk to the watched program: {error}");
        self.output.read_line(&mut line).map_err(told)?;
        Ok(line.trim_end().to_owned())
    }

    fn footprint(&mut self) -> Result<Footprint, String> {
        self.input
            .write_all(b"bytes\n")
            .map_err(|error| format!("the watched program has ended: {error}"))?;
        let heap_bytes = self.line()?.parse().ok();
        Ok(Footprint {
            threads: self.child.tasks(None)?.len(),
            answering_threads: self.child.tasks(Some(squall::browse::THREAD_NAME))?.len(),
            descriptors: self.descriptors()?,
            heap_bytes,
        })
    }

    /// Waits until the program has as many open files as before, because its client has gone. Returns its
    /// footprint then.
    fn footprint_like(&mut self, before: &Footprint) -> Result<Footprint, String> {
        let began = Instant::now();
        while self.descriptors()? > before.descriptors && began.elapsed() < PATIENCE {
            thread::sleep(Duration::from_millis(10));
        }
        thread::sleep(SETTLE);
        self.footprint()
    }

    fn descriptors(&self) -> Result<usize, String> {
        let folder = format!("/proc/{}/fd", self.child.0.id());
        fs::read_dir(&folder).map(Iterator::count).map_err(|error| format!("cannot read {folder}: {error}"))
    }

    /// Share of one processor that the program uses in the next span, in percent.
    fn busy_percent(&self, span: Duration) -> Result<f64, String> {
        let (began, before) = (Instant::now(), self.child.task_ns(None)?);
        thread::sleep(span);
        Ok(percent(self.child.task_ns(None)?.saturating_sub(before), began.elapsed()))
    }

    /// Processor time of the thread that answers clients.
    fn answering_ns(&self) -> Result<u64, String> {
        self.child.task_ns(Some(squall::browse::THREAD_NAME))
    }

    /// Context switches of the thread that answers clients.
    fn switches(&self) -> Result<u64, String> {
        let tasks = self.child.tasks(Some(squall::browse::THREAD_NAME))?;
        tasks.iter().try_fold(0, |sum, task| {
            let status = read(&task.join("status"))?;
            let switches =
                field(&status, "voluntary_ctxt_switches:") + field(&status, "nonvoluntary_ctxt_switches:");
            Ok(sum + switches)
        })
    }
}

/// The server of the page.
struct Browse {
    child: Running,
    address: String,
    _streams: (ChildStdin, BufReader<ChildStdout>),
}

impl Browse {
    fn start(socket: &Path) -> Result<Browse, String> {
        let (child, input, mut output) = Running::start(&["browse"], socket)?;
        let mut address = String::new();
        output.read_line(&mut address).map_err(|error| format!("squall browse said nothing: {error}"))?;
        Ok(Browse { child, address: address.trim_end().to_owned(), _streams: (input, output) })
    }

    fn task_ns(&self) -> Result<u64, String> {
        self.child.task_ns(None)
    }
}

/// An open page: a thread that asks for the changed rows once a second, over one connection.
struct Page {
    bytes: Arc<AtomicU64>,
    /// The thread ends when this is dropped.
    close: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Page {
    fn open(address: &str, number: usize) -> Result<Page, String> {
        let rest = address.strip_prefix("http://").and_then(|rest| rest.split_once('/'));
        let (host, token) = rest.ok_or_else(|| format!("squall browse printed no address: {address:?}"))?;
        let told = |error: io::Error| format!("cannot open the page {address:?}: {error}");
        let stream = TcpStream::connect(host).map_err(told)?;
        let (host, path) = (host.to_owned(), format!("/{token}rows/{number}"));
        let (bytes, (close, closed)) = (Arc::new(AtomicU64::new(0)), mpsc::channel());
        let sum = Arc::clone(&bytes);
        let thread = thread::spawn(move || follow(stream, &host, &path, &sum, &closed));
        Ok(Page { bytes, close: Some(close), thread: Some(thread) })
    }

    /// Bytes received so far.
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Closes the page.
    fn close(mut self) -> Result<(), String> {
        drop(self.close.take());
        let ended = self.thread.take().map(JoinHandle::join);
        match ended {
            Some(Ok(Err(error))) => Err(format!("a page failed: {error}")),
            Some(Err(_)) => Err("a page failed".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Asks for the rows after the latest ones, until the page is closed.
fn follow(
    mut stream: TcpStream,
    host: &str,
    path: &str,
    bytes: &AtomicU64,
    closed: &mpsc::Receiver<()>,
) -> io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut number = 0;
    let mut body = Vec::new();
    while closed.recv_timeout(INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {
        write!(stream, "GET {path}/{number} HTTP/1.1\r\nhost: {host}\r\n\r\n")?;
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some(("content-length", digits)) => length = digits.parse().map_err(io::Error::other)?,
                Some(_) => {}
                None if line.trim_end().is_empty() => break,
                None if line.contains(" 200 ") => {}
                None => return Err(io::Error::other(line)),
            }
        }
        body.resize(length, 0);
        reader.read_exact(&mut body)?;
        // Relaxed: the sum publishes no other data.
        bytes.fetch_add(length as u64, Ordering::Relaxed);
        // An answer without a number says that the program was slow.
        number = number_of(&body).unwrap_or(number);
    }
    Ok(())
}

/// Returns the number of an update, which is its first field.
fn number_of(body: &[u8]) -> Option<u64> {
    let rest = body.strip_prefix(b"{\"number\":")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}
