//! The program that `browse` watches.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use squall::Owned;
use squall::objects::counter::{self, Counter};
use squall::objects::map::{self, MapExt};
use squall::objects::{gate, read_mostly};

use crate::objects::{Field, Probe};
use crate::rivals::allocators::glibc_live_bytes;

/// Number of objects.
pub(super) const OBJECTS: usize = 10_000;
/// Number of objects of one service. Each kind below has one object in each service.
const KINDS: usize = 10;
/// Replaced objects of each step, and the time between two steps, in the variant `churn`.
const STEP: (usize, Duration) = (10, Duration::from_millis(10));

/// Runs the program that the case `browse` watches: ten thousand named objects, and an inspection server at
/// this path. With `churn`, a thousand of the objects are replaced each second.
///
/// Prints a line once it serves. Prints the live bytes of its heap for each line of input, or an empty line
/// if they are unknown. Ends with its input.
///
/// # Errors
/// The server does not start, or a stream fails.
pub fn browsed_program(socket: &Path, churn: bool) -> io::Result<()> {
    let services: Vec<Service> = (0..OBJECTS / KINDS).map(Service::new).collect();
    let server = squall::browse::Builder::new().path(socket).serve()?;
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        if churn {
            scope.spawn(|| replace(&ends));
        }
        let answered = answer();
        // Relaxed: the flag publishes no other data.
        ends.store(true, Ordering::Relaxed);
        answered
    })?;
    drop(server);
    drop(services);
    Ok(())
}

fn answer() -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "ready")?;
    out.flush()?;
    for line in io::stdin().lock().lines() {
        line?;
        match glibc_live_bytes() {
            Some(bytes) => writeln!(out, "{bytes}")?,
            None => writeln!(out)?,
        }
        out.flush()?;
    }
    Ok(())
}

/// Replaces named counters until the flag is set.
fn replace(ends: &AtomicBool) {
    let mut counters: Vec<Owned<dyn Counter>> = Vec::new();
    for step in 0.. {
        // Relaxed: the flag publishes no other data.
        if ends.load(Ordering::Relaxed) {
            return;
        }
        let (count, pause) = STEP;
        counters = (0..count)
            .map(|index| {
                let counter = counter::adaptive().named(format!("session {}", step * count + index));
                counter.add(1);
                counter
            })
            .collect();
        thread::sleep(pause);
    }
    drop(counters);
}

/// Objects of one service of a larger program: ten, of seven classes. Each was used by one thread.
struct Service(#[expect(dead_code, reason = "it keeps the objects")] Box<dyn Send>);

impl Service {
    fn new(number: usize) -> Service {
        let name = |part: &str| format!("service {number}: {part}");
        let counters =
            ["requests", "errors", "bytes in", "bytes out"].map(|part| counter::adaptive().named(name(part)));
        counters.iter().for_each(|counter| counter.add(number as u64));
        let sessions = map::adaptive::<u64, u64>().named(name("sessions"));
        sessions.insert(number as u64, 1);
        let routes = map::shared::<u64, u64>().named(name("routes"));
        routes.insert(1, number as u64);
        let settings = read_mostly::adaptive(number).named(name("settings"));
        let limits = read_mostly::shared(number).named(name("limits"));
        let state: Owned<dyn Probe> = squall::shared(Field::new());
        let state = state.named(name("state"));
        state.get(1);
        let gate = gate::shared().named(name("shutdown"));
        Service(Box::new((counters, sessions, routes, settings, limits, state, gate)))
    }
}
