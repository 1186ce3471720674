//! A service that reloads its routes while it serves, and drains its requests before it ends.
//!
//! - Every request reads the routes: a distributed reader-writer lock.
//! - Every request appends to the journal: an adaptive lock.
//! - A distributed gate counts the requests in flight. The operator stops it to change the journal's format,
//!   since a request must see one format only, and restarts it. In the end the operator shuts the gate down:
//!   `shutdown` returns when the last request is done.
//!
//! `cargo run --release -p squall --example drained_server`

use std::collections::HashMap;
use std::error::Error;
use std::thread;
use std::time::Duration;

use squall::lock::DistributedRwLock;
use squall::objects::gate::{self, Gate, GateExt};
use squall::objects::lock::AdaptiveLock;

/// The number of the backend for each path.
type Routes = HashMap<&'static str, u32>;

#[derive(Default)]
struct Journal {
    /// Changes only while the gate is stopped and all requests are done.
    version: u32,
    entries: Vec<(u32, u32)>,
}

struct Service {
    routes: DistributedRwLock<Routes>,
    journal: AdaptiveLock<Journal>,
}

impl Service {
    /// Serves one request. The journal's version stays the same during the request.
    fn serve(&self, path: &str) -> Option<u32> {
        let version = self.journal.lock().version;
        let backend = *self.routes.read().get(path)?;
        let mut journal = self.journal.lock();
        assert_eq!(journal.version, version, "the version changed during a request");
        journal.entries.push((version, backend));
        Some(backend)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let service = Service {
        routes: DistributedRwLock::new(Routes::from([("/", 1), ("/search", 2)])),
        journal: AdaptiveLock::named("journal", Journal::default()),
    };
    let gate = gate::distributed();
    let gate = gate.handle();
    let served = thread::scope(|scope| -> Result<u64, Box<dyn Error>> {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let service = &service;
                scope.spawn(move || {
                    let mut served = 0u64;
                    // Waits while the gate is stopped; ends when it is shut down.
                    while let Ok(_request) = gate.request() {
                        let path = if served % 4 == worker { "/search" } else { "/" };
                        served += u64::from(service.serve(path).is_some());
                    }
                    served
                })
            })
            .collect();
        for round in 1..=3u32 {
            thread::sleep(Duration::from_millis(60));
            // A reload needs no stop: each request reads the old routes or the new ones.
            service.routes.write().insert("/search", 2 + round);
            // A change of the format needs a stop.
            gate.stop_for(Duration::from_secs(5))?;
            let mut journal = service.journal.lock();
            journal.version = round;
            let entries = journal.entries.len();
            drop(journal);
            gate.restart()?;
            println!("version {round} after {entries} entries");
        }
        thread::sleep(Duration::from_millis(60));
        gate.shutdown()?;
        println!("drained: {} requests in flight", gate.inside());
        Ok(workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).sum())
    })?;
    let journal = service.journal.lock();
    assert_eq!(journal.entries.len() as u64, served, "a request was lost");
    assert!(
        journal.entries.is_sorted_by_key(|(version, _)| *version),
        "a request ran during a change of the version"
    );
    println!("{served} requests served; the form of the journal's lock: {}", service.journal.form());
    for decision in service.journal.history() {
        println!("  {decision}");
    }
    Ok(())
}
