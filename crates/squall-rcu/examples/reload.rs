//! A server with a routing table that every request reads and that is reloaded from time to time. Requests
//! never wait for a reload. The old table is dropped when the last request that saw it has ended.
//!
//! `cargo run --release -p squall-rcu --example reload`

use squall_rcu::{Rcu, barrier, pin, stats};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The backend for each request path.
struct Routes {
    version: u64,
    backends: HashMap<String, String>,
}

fn load(version: u64) -> Box<Routes> {
    let backends = (0..100).map(|i| (format!("/service/{i}"), format!("backend-{}", (i + version) % 7)));
    Box::new(Routes { version, backends: backends.collect() })
}

fn main() {
    let routes = Rcu::new(load(0));
    let stop = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    let reloads = thread::scope(|scope| {
        for worker in 0..4_u64 {
            let (routes, stop, served) = (&routes, &stop, &served);
            scope.spawn(move || {
                let (mut requests, mut newest) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let path = format!("/service/{}", (requests + worker) % 100);
                    // One request is one operation, so the table stays valid until the request ends.
                    let version = pin(|o| {
                        let routes = routes.load(o);
                        assert!(routes.backends.contains_key(&path));
                        routes.version
                    });
                    assert!(version >= newest, "a request saw an older table than the one before it");
                    newest = version;
                    requests += 1;
                }
                served.fetch_add(requests, Ordering::Relaxed);
            });
        }
        let begun = Instant::now();
        let mut version = 0;
        while begun.elapsed() < Duration::from_millis(500) {
            version += 1;
            routes.replace(load(version));
            thread::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        version
    });
    let dropped = barrier().expect("the main thread is outside every operation");
    println!(
        "{} requests on {reloads} tables; the last {dropped} were dropped just now",
        served.into_inner()
    );
    println!("{:?}", stats());
}
