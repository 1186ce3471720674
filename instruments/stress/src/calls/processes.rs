//! Child processes: this program again, in another role. A child ends when its parent does, in any way.
//!
//! A child tells its progress in bytes on its standard output. So its news outlives it.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Signal, set_parent_process_death_signal};

use crate::run::lock;

/// The hidden command of the binary `squall` that runs a child.
pub const COMMAND: &str = "__stress-calls";
/// Variable with the arguments of a child of the tests of this crate.
#[cfg(test)]
pub(super) const VARIABLE: &str = "SQUALL_STRESS_CALLS";

/// Threads of a child, at most.
pub(super) const THREADS_MAX: usize = 40;

/// A kind of news from a child. The byte that follows is the number of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The child is ready for its work.
    Ready = 1,
    /// A call has returned its result.
    Done = 2,
    /// A call has failed after it may have run.
    Unsure = 3,
    /// A call had a wrong result. A text follows, up to the end.
    Wrong = 4,
    /// A forked child has ended.
    Forked = 5,
    /// A forked child lives longer than its parent.
    Left = 6,
}

/// News of one thread of a child.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) done: AtomicU64,
    pub(super) unsure: AtomicU64,
}

/// Everything that a child has told.
#[derive(Debug)]
pub(super) struct Diary {
    pub(super) ready: AtomicU64,
    pub(super) threads: Box<[Told]>,
    pub(super) forked: AtomicU64,
    pub(super) left: AtomicU64,
    pub(super) wrong: Mutex<Option<String>>,
}

impl Diary {
    fn new() -> Diary {
        Diary {
            ready: AtomicU64::new(0),
            threads: (0..THREADS_MAX).map(|_| Told::default()).collect(),
            forked: AtomicU64::new(0),
            left: AtomicU64::new(0),
            wrong: Mutex::new(None),
        }
    }

    /// Whether the child has told a wrong result.
    pub(super) fn is_wrong(&self) -> bool {
        lock(&self.wrong).is_some()
    }

    /// Returns the number of calls that have returned, over all threads.
    pub(super) fn done(&self) -> u64 {
        self.threads.iter().map(|thread| thread.done.load(Ordering::Relaxed)).sum()
    }

    /// Reads all news until the child's output ends.
    fn keep(&self, mut output: impl Read) {
        let mut news = [0; 2];
        while output.read_exact(&mut news).is_ok() {
            let Some(thread) = self.threads.get(usize::from(news[1])) else { return };
            // Relaxed: the reading thread is joined before the counts are used.
            match news[0] {
                kind if kind == News::Ready as u8 => self.ready.fetch_add(1, Ordering::Relaxed),
                kind if kind == News::Done as u8 => thread.done.fetch_add(1, Ordering::Relaxed),
                kind if kind == News::Forked as u8 => self.forked.fetch_add(1, Ordering::Relaxed),
                kind if kind == News::Left as u8 => self.left.fetch_add(1, Ordering::Relaxed),
                kind if kind == News::Unsure as u8 => thread.unsure.fetch_add(1, Ordering::Relaxed),
                _ => {
                    let mut text = String::new();
                    // A text that is cut is told as far as it goes.
                    let _ = output.read_to_string(&mut text);
                    *lock(&self.wrong) = Some(text);
                    return;
                }
            };
        }
    }
}

/// The voice of a child.
#[derive(Debug, Default)]
pub(super) struct Voice(Mutex<()>);

impl Voice {
    /// Tells news. The child ends if its parent has closed the pipe.
    pub(super) fn tell(&self, news: News, thread: usize) {
        self.tell_all(&[(news, 1)], thread);
    }

    /// Tells each news so many times, all of them or none if the child is killed.
    pub(super) fn tell_all(&self, news: &[(News, u32)], thread: usize) {
        let _alone = lock(&self.0);
        let bytes: Vec<u8> = news
            .iter()
            .flat_map(|(news, count)| [*news as u8, thread as u8].repeat(*count as usize))
            .collect();
        let mut out = io::stdout().lock();
        if out.write_all(&bytes).and_then(|()| out.flush()).is_err() {
            std::process::exit(1);
        }
    }

    /// Tells a wrong result, and ends the child.
    pub(super) fn wrong(&self, what: &str) -> ! {
        let _alone = lock(&self.0);
        let mut out = io::stdout().lock();
        let _ = out.write_all(&[News::Wrong as u8, 0]).and_then(|()| out.write_all(what.as_bytes()));
        let _ = out.flush();
        std::process::exit(1);
    }
}

/// Returns the command of a child with these arguments.
pub(super) fn command(arguments: &[String]) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    #[cfg(not(test))]
    command.arg(COMMAND).args(arguments);
    #[cfg(test)]
    command
        .args(["--exact", "calls::tests::child", "--nocapture", "--test-threads", "1"])
        .env(VARIABLE, arguments.join(" "));
    Ok(command)
}

/// A running child.
pub(super) struct Running {
    child: Child,
    /// The child ends when this is closed.
    input: Option<ChildStdin>,
    diary: Arc<Diary>,
    keeper: Option<JoinHandle<()>>,
}

/// How a child ended.
pub(super) struct Ended {
    pub(super) diary: Arc<Diary>,
    /// The signal or status, unless it ended well or was killed by us.
    pub(super) fault: Option<String>,
    /// The input of a killed child, which its forked children may have. They end when it is closed.
    _input: Option<ChildStdin>,
}

impl Running {
    /// Starts a child with these arguments.
    pub(super) fn start(arguments: &[String]) -> io::Result<Running> {
        let mut child = command(arguments)?.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let diary = Arc::new(Diary::new());
        let mut running = Running { child, input, diary: Arc::clone(&diary), keeper: None };
        let Some(mut output) = output else { return Err(io::Error::other("a child has no output")) };
        let keeper = thread::Builder::new().name("stress-diary".to_owned()).spawn(move || {
            #[cfg(test)]
            skip_preamble(&mut output);
            diary.keep(&mut output);
        })?;
        running.keeper = Some(keeper);
        Ok(running)
    }

    pub(super) fn diary(&self) -> &Diary {
        &self.diary
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until `parts` parts of the child are ready, or it has ended.
    pub(super) fn await_ready(&mut self, parts: u64, limit: Duration) -> Result<(), String> {
        let began = Instant::now();
        while self.diary.ready.load(Ordering::Relaxed) < parts {
            let ended = self.child.try_wait().ok().flatten();
            if ended.is_some()
                && let Some(keeper) = self.keeper.take()
            {
                // All that the child has told is in the diary then. It does not panic.
                let _ = keeper.join();
                continue;
            }
            if let Some(told) = lock(&self.diary.wrong).take() {
                return Err(format!("in a child: {told}"));
            }
            if let Some(status) = ended {
                return Err(format!("a child ended before it was ready: {status}"));
            }
            if began.elapsed() > limit {
                return Err(format!("a child was not ready within {limit:?}"));
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Kills the child at once.
    pub(super) fn kill(mut self) -> Ended {
        // Fails only if it has ended.
        let _ = self.child.kill();
        self.reap(true, Duration::MAX)
    }

    /// Asks the child to end, and waits until it has.
    pub(super) fn end(mut self, limit: Duration) -> Ended {
        drop(self.input.take());
        self.reap(false, limit)
    }

    fn reap(&mut self, killed: bool, limit: Duration) -> Ended {
        let began = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if began.elapsed() > limit => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    break Err(format!("it did not end within {limit:?}"));
                }
                Ok(None) => thread::sleep(Duration::from_micros(200)),
                Err(error) => break Err(error.to_string()),
            }
        };
        if let Some(keeper) = self.keeper.take() {
            // It does not panic.
            let _ = keeper.join();
        }
        let fault = match status {
            Ok(status) if killed || status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(why) => Some(why),
        };
        Ended { diary: Arc::clone(&self.diary), fault, _input: self.input.take() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            let _ = self.child.kill();
            self.reap(true, Duration::MAX);
        }
    }
}

/// Child: ends the process with its parent, and when its input is closed.
pub(super) fn end_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    Ok(())
}

/// Child: waits until the parent asks it to end.
pub(super) fn await_end() {
    // An error ends it too.
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

/// Skips the lines that the test harness prints before a test.
#[cfg(test)]
fn skip_preamble(output: &mut impl Read) {
    let mut last = [0; 4];
    let mut byte = [0];
    while &last != b"@@@\n" && output.read_exact(&mut byte).is_ok() {
        last.rotate_left(1);
        last[3] = byte[0];
    }
}
