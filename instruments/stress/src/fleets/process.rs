//! A member process, as its parent sees it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::books::Books;
use super::member::{LEAVE, LOAD, News, Part};
use crate::run::lock;

/// The hidden command of the binary `squall` that runs a member.
pub const COMMAND: &str = "__fleet-member";
/// Variable that marks a member process of the tests of this crate.
#[cfg(test)]
pub(super) const VARIABLE: &str = "SQUALL_STRESS_FLEETS";

/// The news of a member about itself.
#[derive(Debug, Default)]
struct Told {
    root: Option<String>,
    is_ready: bool,
    /// Members that the fleet wants, and that were not started yet.
    wanted: u32,
    /// Whether the fleet asks this member to leave.
    is_asked: bool,
    has_left: bool,
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Diary {
    told: Mutex<Told>,
    changed: Condvar,
}

/// A running member process.
pub(super) struct Process {
    child: Child,
    /// The member ends when this is closed.
    input: Option<ChildStdin>,
    diary: Arc<Diary>,
    keeper: Option<JoinHandle<()>>,
}

impl Process {
    /// Starts a member, behind the words of `entry`. Its death follows that of the calling thread.
    pub(super) fn start(entry: &[String], part: &Part, books: &Arc<Books>) -> io::Result<Process> {
        let program = std::env::current_exe()?;
        let mut command = match entry {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        #[cfg(not(test))]
        command.arg(COMMAND);
        #[cfg(test)]
        command
            .args(["--exact", "fleets::tests::child", "--nocapture", "--test-threads", "1"])
            .env(VARIABLE, "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let diary = Arc::new(Diary::default());
        let mut process = Process { child, input, diary: Arc::clone(&diary), keeper: None };
        let Some(output) = output else { return Err(io::Error::other("a member has no output")) };
        let books = Arc::clone(books);
        let keep = move || keep(BufReader::new(output), &diary, &books);
        process.keeper = Some(thread::Builder::new().name("stress-diary".to_owned()).spawn(keep)?);
        process.write(&part.line())?;
        Ok(process)
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        match &mut self.input {
            Some(input) => input.write_all(line.as_bytes()).and_then(|()| input.flush()),
            None => Ok(()),
        }
    }

    /// Waits until the member has told something, has ended, or the time is over.
    fn await_told<T>(&self, limit: Duration, find: impl Fn(&Told) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut told = lock(&self.diary.told);
        loop {
            if let Some(found) = find(&told) {
                return Some(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if told.has_ended || left.is_zero() {
                return None;
            }
            told = match self.diary.changed.wait_timeout(told, left) {
                Ok((told, _)) => told,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Waits until the member serves. Returns the right to all names, if the member founded the group.
    pub(super) fn await_ready(&self, limit: Duration) -> Result<Option<String>, String> {
        let ready = self.await_told(limit, |told| told.is_ready.then(|| told.root.clone()));
        ready.ok_or_else(|| format!("a member was not ready within {limit:?}, or has ended"))
    }

    /// Tells the member its load.
    pub(super) fn set_load(&mut self, waiting: u64) -> io::Result<()> {
        self.write(&format!("{LOAD}{waiting}\n"))
    }

    /// Takes the news that the fleet wants a further member.
    pub(super) fn take_wanted(&self) -> bool {
        let mut told = lock(&self.diary.told);
        let is_wanted = told.wanted > 0;
        told.wanted = told.wanted.saturating_sub(1);
        is_wanted
    }

    /// Whether the fleet asks the member to leave.
    pub(super) fn is_asked(&self) -> bool {
        lock(&self.diary.told).is_asked
    }

    /// Asks the member to leave.
    pub(super) fn ask_to_leave(&mut self) -> io::Result<()> {
        self.write(LEAVE)
    }

    /// Waits until the member that was asked to leave has done so, and has ended.
    pub(super) fn await_left(mut self, limit: Duration) -> Result<(), String> {
        let left = self.await_told(limit, |told| told.has_left.then_some(()));
        drop(self.input.take());
        let ended = self.await_end(limit);
        left.ok_or_else(|| format!("a member has not left within {limit:?}")).and(ended)
    }

    /// Asks the member to end at once, and waits until it has.
    pub(super) fn end(mut self, limit: Duration) -> Result<(), String> {
        drop(self.input.take());
        self.await_end(limit)
    }

    /// Kills the member, and waits until it has ended and all of its news is in the books.
    pub(super) fn kill(mut self) -> Result<(), String> {
        self.child.kill().map_err(|error| format!("a member cannot be killed: {error}"))?;
        let status = self.child.wait().map_err(|error| error.to_string())?;
        self.join_keeper();
        match status.signal() {
            Some(_) => Ok(()),
            None => Err(format!("a member had ended before it was killed: {status}")),
        }
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or("a process has no number")?;
        kill_process(pid, signal).map_err(|error| format!("a member gets no signal: {error}"))
    }

    fn await_end(&mut self, limit: Duration) -> Result<(), String> {
        let over = self.await_told(limit, |told| told.has_ended.then_some(()));
        if over.is_none() {
            // Fails only if it has ended.
            let _ = self.child.kill();
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        self.join_keeper();
        match over {
            None => Err(format!("a member did not end within {limit:?}")),
            Some(()) if status.success() => Ok(()),
            Some(()) => Err(format!("a member ended badly: {status}")),
        }
    }

    fn join_keeper(&mut self) {
        if let Some(keeper) = self.keeper.take() {
            // It does not panic.
            let _ = keeper.join();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.join_keeper();
        }
    }
}

/// Reads all news of a member.
fn keep(output: impl BufRead, diary: &Diary, books: &Books) {
    let lines = output.lines().map_while(Result::ok);
    // The harness of the tests prints lines of its own before.
    #[cfg(test)]
    let lines = lines.skip_while(|line| !line.ends_with("@@@")).skip(1);
    for line in lines {
        match News::parse(&line) {
            Some(News::Ran(client, place, number)) => books.ran(client, place, number),
            // Relaxed: only the sum matters.
            Some(News::Born) => _ = books.lives.fetch_add(1, Ordering::Relaxed),
            Some(News::Wrong(why)) => books.fail(format!("in a member: {why}")),
            Some(News::Founded(root)) => lock(&diary.told).root = Some(root),
            Some(News::Ready) => lock(&diary.told).is_ready = true,
            Some(News::Wants) => lock(&diary.told).wanted += 1,
            Some(News::Asked) => lock(&diary.told).is_asked = true,
            Some(News::Left) => lock(&diary.told).has_left = true,
            None => books.fail(format!("a member told {line:?}")),
        }
        diary.changed.notify_all();
    }
    lock(&diary.told).has_ended = true;
    diary.changed.notify_all();
}
