//! A read-mostly value inside an object of your own: a limiter that admits requests by a configuration.
//!
//! The root has the master of the configuration. Each representative has a replica, beside the statistics of
//! its cluster, so that a call reads local memory only. A change reaches every replica before it returns.
//! Calls do not wait for it.
//!
//! `cargo run --release -p squall --example embedded_config`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use squall::parts::replica::{Conflict, Master, Replica};
use squall::prelude::*;

/// How large a request may be.
#[derive(Clone, Debug)]
struct Config {
    bytes_max: u64,
    name: String,
}

#[interface]
trait Limiter: Send + Sync {
    /// Admits or rejects a request of this size.
    fn admit(&self, bytes: u64) -> bool;
    /// Changes the configuration if it still has this version. Returns the new version.
    #[blocking]
    fn configure(&self, version: u64, config: Config) -> Result<u64, Conflict<Config>>;
    /// Returns the configuration and its version.
    fn config(&self) -> (Config, u64);
    /// Returns the numbers of admitted and rejected requests.
    fn statistics(&self) -> (u64, u64);
}

struct Limits {
    config: Master<Config>,
}

#[repr(align(128))]
struct LocalLimits {
    config: Replica<Config>,
    admitted: AtomicU64,
    rejected: AtomicU64,
    context: RepContext<Limits>,
}

impl Root for Limits {
    type Interface = dyn Limiter;
    type Rep = LocalLimits;

    fn make_rep(&self, context: RepContext<Limits>) -> LocalLimits {
        // The replica is empty: its first read fetches the value.
        let config = self.config.replica();
        LocalLimits { config, admitted: AtomicU64::new(0), rejected: AtomicU64::new(0), context }
    }
}

impl Limiter for LocalLimits {
    fn admit(&self, bytes: u64) -> bool {
        let admits = self.config.read(&self.context.root().config, |config| bytes <= config.bytes_max);
        let count = if admits { &self.admitted } else { &self.rejected };
        count.fetch_add(1, Ordering::Relaxed);
        admits
    }

    fn configure(&self, version: u64, config: Config) -> Result<u64, Conflict<Config>> {
        // Updates every replica, down the tree of clusters.
        self.context.root().config.compare_and_set(version, config, |reach| {
            self.context.broadcast(|rep| reach(&rep.config));
        })
    }

    fn config(&self) -> (Config, u64) {
        self.config.read(&self.context.root().config, |config| {
            (Config::clone(config), squall::parts::replica::Versioned::version(config))
        })
    }

    fn statistics(&self) -> (u64, u64) {
        let of =
            |rep: &LocalLimits| (rep.admitted.load(Ordering::Relaxed), rep.rejected.load(Ordering::Relaxed));
        self.context.gather(of, |a, b| (a.0 + b.0, a.1 + b.1)).unwrap_or_default()
    }
}

fn main() {
    let config = Config { bytes_max: 100, name: "small".into() };
    let limiter = Limits { config: Master::new(config) }.create(ClusterSize::Core);
    let handle = limiter.handle();
    let stop = AtomicBool::new(false);
    let calls: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let stop = &stop;
                scope.spawn(move || {
                    let calls = (0u64..).take_while(|_| !stop.load(Ordering::Relaxed));
                    calls.inspect(|call| _ = handle.admit((call + worker) % 400)).count() as u64
                })
            })
            .collect();
        for bytes_max in [200, 300, 50] {
            thread::sleep(std::time::Duration::from_millis(20));
            let (old, version) = handle.config();
            let new = Config { bytes_max, name: format!("{}, then {bytes_max}", old.name) };
            let version = handle.configure(version, new).expect("only this thread changes the configuration");
            // From here on, calls on every processor use the new configuration.
            assert!(!handle.admit(bytes_max + 1) && handle.admit(bytes_max));
            println!("version {version}: up to {bytes_max} bytes");
        }
        let late = handle.configure(1, Config { bytes_max: 0, name: "late".into() }).unwrap_err();
        println!("a change of an old version fails: {late}");
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let (admitted, rejected) = handle.statistics();
    println!("{admitted} admitted, {rejected} rejected; the limits were {}", handle.config().0.name);
    assert_eq!(admitted + rejected, calls + 6, "each call is counted");
}
