//! A server and a client of one engine, as child processes.

use super::hosts::Hosts;
use super::program::{Engine, command};
use crate::case::{Missing, Setting, SliceEnd, Subject, Worker};
use crate::harness::field;
use crate::rivals::calls::process_time::process_ns;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A child that takes and gives lines. It ends when it is dropped.
#[derive(Debug)]
pub(super) struct Program {
    child: Child,
    /// Closed on drop, which ends the child.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Program {
    fn start(mut command: Command) -> io::Result<Program> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let missing = || io::Error::other("the child has no pipe");
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Program { child, to, from })
    }

    /// Gives the child a line.
    pub(super) fn tell(&mut self, line: &str) -> io::Result<()> {
        let to = self.to.as_mut().ok_or_else(|| io::Error::other("the child was ended"))?;
        to.write_all(format!("{line}\n").as_bytes())
    }

    /// Waits for a line that begins with this word, and returns the rest of it.
    pub(super) fn hear(&mut self, word: &str) -> io::Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        match line.strip_prefix(word) {
            Some(rest) => Ok(rest.trim().to_owned()),
            None => Err(io::Error::other(format!("the child said {line:?} in place of {word}"))),
        }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills the child, as a host that loses its power, and waits for its end.
    pub(super) fn kill(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.to = None;
        // Fails only if it was waited for.
        let _ = self.child.wait();
    }
}

/// Starts the server of an engine, on the other host if there are two. Returns its endpoint too.
pub(super) fn serve(
    engine: &Engine,
    hosts: Option<&Hosts>,
    port: &str,
) -> Result<(Program, String), Missing> {
    let mut words = engine.command()?;
    let mut address = "127.0.0.1".to_owned();
    if let Some(hosts) = hosts {
        let entering = ["ip", "netns", "exec", &hosts.other].map(str::to_owned);
        words = [&entering[..], &words].concat();
        address = hosts.there.to_string();
    }
    words.extend(["serve".to_owned(), format!("{address}:{port}")]);
    let mut server = Program::start(command(&words)).map_err(|error| failed(engine, &error))?;
    let endpoint = server.hear("ready").map_err(|error| failed(engine, &error))?;
    Ok((server, endpoint))
}

/// Starts the client of an engine. It has done a round trip.
pub(super) fn client(
    engine: &Engine,
    hosts: Option<&Hosts>,
    endpoint: &str,
    bytes: u32,
) -> Result<Program, Missing> {
    let own = hosts.map_or_else(|| "127.0.0.1".to_owned(), |hosts| hosts.here.to_string());
    let mut words = engine.command()?;
    words.extend(["client".to_owned(), format!("{own}:0"), endpoint.to_owned(), bytes.to_string()]);
    let mut client = Program::start(command(&words)).map_err(|error| failed(engine, &error))?;
    client.hear("ready").map_err(|error| failed(engine, &error))?;
    Ok(client)
}

fn failed(engine: &Engine, error: &io::Error) -> Missing {
    Missing(format!("{} failed: {error}", engine.name))
}

/// A number of `/proc/PID/status`; zero if the process has ended.
fn status(pid: u32, name: &str) -> u64 {
    fs::read_to_string(format!("/proc/{pid}/status")).map_or(0, |status| field(&status, name))
}

/// The dropped fields end in this order.
struct Link {
    client: Mutex<Program>,
    server: Program,
    client_pid: u32,
    _hosts: Option<Hosts>,
}

/// Makes the subject of an engine.
pub(super) fn subject(engine: &'static Engine, setting: &Setting) -> Result<Box<dyn Subject>, Missing> {
    if setting.counted {
        return Err(Missing(
            "its processes are out of sight of an instrument: use `squall bench`".to_owned(),
        ));
    }
    engine.command()?;
    let far = setting.variant.name.starts_with("hosts");
    let hosts = far.then(Hosts::new).transpose().map_err(Missing)?;
    let (server, endpoint) = serve(engine, hosts.as_ref(), "0")?;
    let client = client(engine, hosts.as_ref(), &endpoint, setting.variant.number())?;
    let client_pid = client.pid();
    Ok(Box::new(Link { client: Mutex::new(client), server, client_pid, _hosts: hosts }))
}

impl Subject for Link {
    fn worker(&self, _: usize) -> Worker<'_> {
        Box::new(|ops| {
            let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
            let done = client.tell(&ops.to_string()).and_then(|()| client.hear("done"));
            done.expect("the client failed");
        })
    }

    fn end_slice(&self, _: u64) -> SliceEnd {
        let metrics = vec![
            ("threads", status(self.client_pid, "Threads:") as f64),
            ("rss_mib", status(self.client_pid, "VmRSS:") as f64 / 1024.0),
        ];
        SliceEnd { done: None, metrics }
    }

    fn busy_elsewhere_ns(&self) -> u64 {
        process_ns(self.client_pid).unwrap_or(0) + process_ns(self.server.pid()).unwrap_or(0)
    }
}
