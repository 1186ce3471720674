//! A read-mostly value inside an object of one's own: a limiter that admits requests by a configuration.
//!
//! Each representative has a replica of the configuration beside the statistics of its cluster, so that a call reads both
//! there; the root has the master. A change goes to every replica before it returns, and no call waits for it.
//!
//! `cargo run --release -p squall --example embedded_config`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use squall::prelude::*;
use squall::parts::replica::{Conflict, Master, Replica};

/// How large a request may be.
#[derive(Clone, Debug)]
struct Config {
    bytes_max: u64,
    name: String,
}

#[interface]
trait Limiter: Send + Sync {
    /// Whether a request of this size is admitted.
    fn admit(&self, bytes: u64) -> bool;
    /// Changes the configuration, unless somebody else has since `version`. Returns the new version.
    #[blocking]
    fn configure(&self, version: u64, config: Config) -> Result<u64, Conflict<Config>>;
    /// The configuration, and its version.
    fn config(&self) -> (Config, u64);
    /// Requests that were admitted, and such that were not.
    fn statistics(&self) -> (u64, u64);
}

struct Limits {
    config: Master<Config>,
}

#[repr(align(128))]
struct LocalLimits {
    config: Replica<Config>,
    admitted: AtomicU64,
    refused: AtomicU64,
    at: RepContext<Limits>,
}

impl Root for Limits {
    type Interface = dyn Limiter;
    type Rep = LocalLimits;

    fn make_rep(&self, at: RepContext<Limits>) -> LocalLimits {
        // It holds nothing yet: the first read fetches the value that there is then.
        let config = self.config.replica();
        LocalLimits { config, admitted: AtomicU64::new(0), refused: AtomicU64::new(0), at }
    }
}

impl Limiter for LocalLimits {
    fn admit(&self, bytes: u64) -> bool {
        let admits = self.config.read(&self.at.root().config, |config| bytes <= config.bytes_max);
        let count = if admits { &self.admitted } else { &self.refused };
        count.fetch_add(1, Ordering::Relaxed);
        admits
    }

    fn configure(&self, version: u64, config: Config) -> Result<u64, Conflict<Config>> {
        // The walk: every replica, down the tree of clusters.
        self.at.root().config.compare_and_set(version, config, |reach| {
            self.at.broadcast(|rep| reach(&rep.config));
        })
    }

    fn config(&self) -> (Config, u64) {
        self.config.read(&self.at.root().config, |config| {
            (Config::clone(config), squall::parts::replica::Versioned::version(config))
        })
    }

    fn statistics(&self) -> (u64, u64) {
        let of =
            |rep: &LocalLimits| (rep.admitted.load(Ordering::Relaxed), rep.refused.load(Ordering::Relaxed));
        self.at.gather(of, |a, b| (a.0 + b.0, a.1 + b.1)).unwrap_or_default()
    }
}

fn main() {
    let config = Config { bytes_max: 100, name: "small".into() };
    let limiter = Limits { config: Master::new(config) }.create(ClusterSize::Core);
    let co = limiter.handle();
    let stop = AtomicBool::new(false);
    let calls: u64 = thread::scope(|scope| {
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let stop = &stop;
                scope.spawn(move || {
                    let calls = (0u64..).take_while(|_| !stop.load(Ordering::Relaxed));
                    calls.inspect(|call| _ = co.admit((call + worker) % 400)).count() as u64
                })
            })
            .collect();
        for bytes_max in [200, 300, 50] {
            thread::sleep(std::time::Duration::from_millis(20));
            let (old, version) = co.config();
            let new = Config { bytes_max, name: format!("{}, then {bytes_max}", old.name) };
            let version = co.configure(version, new).expect("nobody else changes it");
            // From here on every call, wherever it is made, goes by the new one.
            assert!(!co.admit(bytes_max + 1) && co.admit(bytes_max));
            println!("version {version}: up to {bytes_max} bytes");
        }
        let late = co.configure(1, Config { bytes_max: 0, name: "late".into() }).unwrap_err();
        println!("a change that came too late: {late}");
        stop.store(true, Ordering::Relaxed);
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let (admitted, refused) = co.statistics();
    println!("{admitted} admitted, {refused} refused; the configuration was {}", co.config().0.name);
    assert_eq!(admitted + refused, calls + 6, "every call was counted");
}
