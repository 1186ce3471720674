//! The server as a program.

#![allow(dead_code, reason = "each test uses a part")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use crate::common::TIMEOUT;

/// The program, until the drop.
pub(crate) struct Program {
    pub(crate) child: Child,
    /// The first lines that it printed: the places where it listens.
    pub(crate) places: Vec<String>,
}

impl Program {
    pub(crate) fn start(arguments: &[&str], places: usize) -> Program {
        let mut command = Command::new(env!("CARGO_BIN_EXE_squall-cached"));
        let mut child = command.args(arguments).stderr(Stdio::piped()).spawn().expect("the server starts");
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let places = (0..places)
            .map(|_| {
                let line = lines.next().expect("it prints where it listens").expect("it is text");
                line.strip_prefix("serving on ").expect("it is a place").to_owned()
            })
            .collect();
        Program { child, places }
    }

    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        kill.args([&format!("-{name}"), &self.child.id().to_string()]);
        assert!(kill.status().expect("there is the program kill").success());
    }

    /// Returns whether the program ended without an error.
    pub(crate) fn end(&mut self) -> bool {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("it is our child") {
                return status.success();
            }
            assert!(begun.elapsed() < TIMEOUT, "the program does not end");
            thread::yield_now();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
