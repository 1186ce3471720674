//! The processes of the demo, as their parent sees them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::child::{COMMAND, PATIENCE};
use crate::output::Failure;

/// A running process. It is killed when it is dropped.
pub(super) struct Process {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Process {
    /// Starts a process with this part.
    pub(super) fn start(name: String, part: &str) -> Result<Process, Failure> {
        let failed = |error: std::io::Error| Failure::new(format!("{name} cannot be started: {error}"));
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = Command::new(program);
        command.arg(COMMAND).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (sender, lines) = channel();
        let reader = thread::Builder::new().name("demo-reader".to_owned()).spawn(move || {
            let output = output.map(|output| BufReader::new(output).lines());
            output.into_iter().flatten().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        reader.map_err(failed)?;
        let mut process = Process { name, child, input, lines };
        process.say(part)?;
        Ok(process)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Tells the process a line.
    pub(super) fn say(&mut self, text: &str) -> Result<(), Failure> {
        let said = self.input.as_mut().map(|input| input.write_all(format!("{text}\n").as_bytes()));
        match said {
            Some(Ok(())) => Ok(()),
            _ => Err(Failure::new(format!("{} has ended; its error stands above", self.name))),
        }
    }

    /// Waits for the next line of the process.
    pub(super) fn hear(&self) -> Result<String, Failure> {
        let heard = self.lines.recv_timeout(PATIENCE);
        heard.map_err(|_| Failure::new(format!("{} has ended, or is silent for too long", self.name)))
    }

    /// Waits for a line with this first word, and returns the rest.
    pub(super) fn expect(&self, word: &str) -> Result<String, Failure> {
        let line = self.hear()?;
        match line.split_once(' ').unwrap_or((&line, "")) {
            (first, rest) if first == word => Ok(rest.to_owned()),
            _ => Err(Failure::new(format!("{} says {line:?} instead of {word:?}", self.name))),
        }
    }

    /// Kills the process.
    pub(super) fn kill(mut self) -> Result<(), Failure> {
        self.child.kill().map_err(|error| Failure::new(format!("{} cannot be killed: {error}", self.name)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
