//! A member process, as its parent sees it.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::books::Books;
use super::news::{News, Order, Part};
use super::rules::{PATIENCE, POOLS};
use crate::run::lock;

/// The hidden command of the binary `squall` that runs a member.
pub const COMMAND: &str = "__pool-member";
/// Variable that marks a member process of the tests of this crate.
#[cfg(test)]
pub(super) const VARIABLE: &str = "SQUALL_STRESS_POOLS";

/// The answers of a member to its orders.
#[derive(Debug, Default)]
struct Told {
    root: Option<String>,
    is_ready: bool,
    quit: u64,
    renewed: u64,
    rested: u64,
    filled: u64,
    settled: u64,
    drained: u64,
    held: Option<[u64; POOLS]>,
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

/// An answer that can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Quit,
    Renewed,
    Rested,
    Filled,
    Settled,
    Drained,
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
            .args(["--exact", "pools::tests::child", "--nocapture", "--test-threads", "1"])
            .env(VARIABLE, "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let diary = Arc::new(Diary::default());
        let mut process = Process { child, input, diary: Arc::clone(&diary), keeper: None };
        let Some(output) = output else { return Err(io::Error::other("a member has no output")) };
        let (books, number) = (Arc::clone(books), part.number);
        let keep = move || keep(BufReader::new(output), number, &diary, &books);
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

    pub(super) fn order(&mut self, order: Order) -> Result<(), String> {
        self.write(&order.line()).map_err(|error| format!("a member gets no order: {error}"))
    }

    /// Waits until the member has told something, has ended, or the time is over.
    fn await_told<T>(&self, what: &str, find: impl Fn(&mut Told) -> Option<T>) -> Result<T, String> {
        let deadline = Instant::now() + PATIENCE;
        let mut told = lock(&self.diary.told);
        loop {
            if let Some(found) = find(&mut told) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if told.has_ended {
                return Err(format!("a member has ended before it {what}"));
            }
            if left.is_zero() {
                return Err(format!("a member has not {what} within {PATIENCE:?}"));
            }
            told = match self.diary.changed.wait_timeout(told, left) {
                Ok((told, _)) => told,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
    }

    /// Waits until the member serves. Returns the right to all names, if the member founded the group.
    pub(super) fn await_ready(&self) -> Result<Option<String>, String> {
        self.await_told("joined all pools", |told| told.is_ready.then(|| told.root.clone()))
    }

    /// Waits for the answer to an order, once for each order.
    pub(super) fn await_answer(&self, answer: Answer) -> Result<(), String> {
        let (what, count): (_, fn(&mut Told) -> &mut u64) = match answer {
            Answer::Quit => ("left a pool", |told| &mut told.quit),
            Answer::Renewed => ("renewed its member", |told| &mut told.renewed),
            Answer::Rested => ("ended its operations", |told| &mut told.rested),
            Answer::Filled => ("added its elements", |told| &mut told.filled),
            Answer::Settled => ("found all members in all pools", |told| &mut told.settled),
            Answer::Drained => ("emptied the pools", |told| &mut told.drained),
        };
        let take = |told: &mut Told| {
            let count = count(told);
            count.checked_sub(1).map(|left| *count = left)
        };
        self.await_told(what, take)
    }

    /// Waits for the elements of the member's stores.
    pub(super) fn await_held(&self) -> Result<[u64; POOLS], String> {
        self.await_told("told its elements", |told| told.held.take())
    }

    /// Waits until the member that was ordered to leave has done so, and has ended.
    pub(super) fn await_left(mut self) -> Result<(), String> {
        let left = self.await_told("left", |told| told.has_left.then_some(()));
        drop(self.input.take());
        left.and(self.await_end())
    }

    /// Asks the member to end at once, and waits until it has.
    pub(super) fn end(mut self) -> Result<(), String> {
        drop(self.input.take());
        self.await_end()
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

    fn await_end(&mut self) -> Result<(), String> {
        let over = self.await_told("ended", |told| told.has_ended.then_some(()));
        if over.is_err() {
            // Fails only if it has ended.
            let _ = self.child.kill();
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        self.join_keeper();
        over?;
        if status.success() { Ok(()) } else { Err(format!("a member ended badly: {status}")) }
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

/// Reads all news of a member into the books.
fn keep(output: impl BufRead, number: u32, diary: &Diary, books: &Books) {
    let lines = output.lines().map_while(Result::ok);
    // The harness of the tests prints lines of its own before.
    #[cfg(test)]
    let lines = lines.skip_while(|line| !line.ends_with("@@@")).skip(1);
    for line in lines {
        let Some(news) = News::parse(&line) else {
            books.fail(format!("a member told {line:?}"));
            continue;
        };
        // The books have it before the answer is seen.
        books.note(number, &news);
        let mut told = lock(&diary.told);
        match news {
            News::Founded(root) => told.root = Some(root),
            News::Ready => told.is_ready = true,
            News::Quit => told.quit += 1,
            News::Renewed => told.renewed += 1,
            News::Rested => told.rested += 1,
            News::Filled => told.filled += 1,
            News::Settled => told.settled += 1,
            News::Drained => told.drained += 1,
            News::Held(held) => told.held = Some(held),
            News::Left { .. } => told.has_left = true,
            _ => continue,
        }
        drop(told);
        diary.changed.notify_all();
    }
    lock(&diary.told).has_ended = true;
    diary.changed.notify_all();
}
