//! A service that reloads its routes while it serves, and is drained when it ends.
//!
//! Workers take requests as long as they are admitted. Routes are read by every request and written twice a second: a
//! distributed reader-writer lock. The journal is appended to by all: a lock that adapts. The gate is a distributed request
//! counter: the operator stops it for a change that must meet no request (the format of the journal), restarts it, and in the end
//! shuts it down, which returns when the last request is done.
//!
//! `cargo run --release -p squall --example drained_server`

use std::collections::HashMap;
use std::error::Error;
use std::thread;
use std::time::Duration;

use squall::lock::DistributedRwLock;
use squall::objects::lock::AdaptiveLock;
use squall::objects::gate::{self, GateExt, Gate};

/// Path to the number of the backend that serves it.
type Routes = HashMap<&'static str, u32>;

#[derive(Default)]
struct Journal {
    /// Changed only while no request is inside.
    version: u32,
    entries: Vec<(u32, u32)>,
}

struct Service {
    routes: DistributedRwLock<Routes>,
    journal: AdaptiveLock<Journal>,
}

impl Service {
    /// Serves one request. Everything that it writes has the version that it began with: no change meets it in the midst.
    fn serve(&self, path: &str) -> Option<u32> {
        let version = self.journal.lock().version;
        let backend = *self.routes.read().get(path)?;
        let mut journal = self.journal.lock();
        assert_eq!(journal.version, version, "a change met a request");
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
                    // Until the gate is shut down; while it is stopped, this waits.
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
            // A reload needs no stop: each request sees the old routes or the new ones.
            service.routes.write().insert("/search", 2 + round);
            // A change of the format does.
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
        println!("drained: {} requests inside", gate.inside());
        Ok(workers.into_iter().map(|worker| worker.join().expect("no worker panics")).sum())
    })?;
    let journal = service.journal.lock();
    assert_eq!(journal.entries.len() as u64, served, "a request was lost");
    assert!(journal.entries.is_sorted_by_key(|(version, _)| *version), "a request outlived a change");
    println!("{served} requests served; the journal's lock went {}", service.journal.form());
    for decision in service.journal.history() {
        println!("  {decision}");
    }
    Ok(())
}
