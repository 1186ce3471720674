//! The process with the shared objects.

use std::error::Error;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use squall::Owned;
use squall::call::{ExportOptions, export};
use squall::objects::gate::Gate;

use crate::service::{Count, Drain, InFlight, Requests, Sessions, Table};
use crate::worker::THREADS;

/// The longest time that the drain may take.
const DRAIN: Duration = Duration::from_secs(60);

/// Starts the workers, lets them serve this many requests, drains them and checks the books.
pub(crate) fn run(workers: u16, count: u64, kill: bool) -> Result<(), Box<dyn Error>> {
    let requests: Owned<dyn Requests> = squall::shared(Count::new());
    let sessions: Owned<dyn Sessions> = squall::shared(Table::new());
    let in_flight = InFlight::new();
    let gate = in_flight.gate();
    let drain: Owned<dyn Drain> = squall::shared(in_flight);
    let tokens: Vec<_> = (0..100).map(|user| sessions.log_in(&format!("user {user}"))).collect();

    let names = format!("squall-workers.{}", std::process::id());
    let _exports = [
        export(requests.handle(), &format!("{names}.requests"))?,
        ExportOptions::new().deny("log_out").export(sessions.handle(), &format!("{names}.sessions"))?,
        export(drain.handle(), &format!("{names}.drain"))?,
    ];
    let mut started = Workers::default();
    (0..workers).try_for_each(|_| started.start(&names))?;
    started.wait_for(requests.handle(), count / 2)?;
    if kill {
        started.kill_one()?;
        started.start(&names)?;
    }
    started.wait_for(requests.handle(), count)?;
    // No new request begins. Those in flight end, or their connections do.
    gate.shutdown_for(DRAIN)?;
    let by_workers = started.end()?;

    let total = requests.total();
    let by_sessions: u64 = tokens.iter().filter_map(|token| sessions.log_out(*token)).sum();
    println!("{total} requests served, {by_workers} of them by workers that ended well");
    let unfinished = if kill { THREADS } else { 0 };
    let by_workers_fits = if kill { by_workers <= total } else { by_workers == total };
    let by_sessions_fits = (total..=total + unfinished).contains(&by_sessions);
    let balanced = by_workers_fits && by_sessions_fits && gate.inside() == 0;
    if balanced {
        Ok(())
    } else {
        Err(format!("{by_sessions} requests of sessions: the books differ").into())
    }
}

/// The worker processes. They end with this value.
#[derive(Default)]
struct Workers(Vec<Child>);

impl Workers {
    fn start(&mut self, names: &str) -> std::io::Result<()> {
        let mut command = Command::new(std::env::current_exe()?);
        self.0.push(command.args(["--worker", names]).stdout(Stdio::piped()).spawn()?);
        Ok(())
    }

    /// Waits until this many requests were served.
    fn wait_for(&mut self, requests: squall::Handle<dyn Requests>, count: u64) -> Result<(), Box<dyn Error>> {
        while requests.total() < count {
            for worker in &mut self.0 {
                if let Some(status) = worker.try_wait()? {
                    return Err(format!("a worker ended: {status}").into());
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Kills a worker, wherever it is.
    fn kill_one(&mut self) -> std::io::Result<()> {
        let Some(mut worker) = self.0.pop() else { return Ok(()) };
        worker.kill()?;
        worker.wait().map(|_| ())
    }

    /// Waits for the workers. Returns the number of requests that they served.
    fn end(&mut self) -> Result<u64, Box<dyn Error>> {
        let mut served = 0;
        for worker in self.0.drain(..) {
            let output = worker.wait_with_output()?;
            if !output.status.success() {
                return Err(format!("a worker ended: {}", output.status).into());
            }
            served += String::from_utf8(output.stdout)?.trim().parse::<u64>()?;
        }
        Ok(served)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}
