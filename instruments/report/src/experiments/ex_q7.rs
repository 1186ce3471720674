//! EX-Q7: the cost of monitoring (KTK, §5.2).

use crate::{Experiment, Found, Lab, Means, Missing, Paper, Verdict};

pub(super) static EX_Q7: Experiment = Experiment {
    id: "EX-Q7",
    title: "Monitoring: a general monitor, or a monitor in the lock",
    question: "Is a general monitor fast enough to adapt a lock?",
    paper: Paper {
        source: "A. Gheith et al., KTK, 1994, §5.2.",
        found: "No. A general monitor takes 58 to 118 µs for a fact, plus 38 µs for each 8 bytes. A sensor inside the \
                lock takes 5.5 µs, as long as the lock's own operation of 6 µs.",
    },
    here: "The general monitor copies a record to a reader in another thread. The configurable lock keeps a monitor \
           beside its attributes. After each 64 sections a thread reads the monitor and sets an attribute. Both are \
           compared with a lock and an unlock of std's mutex in the same run. In the paper, the operation of a lock and \
           its sensor took 11.5 µs together.",
    agrees_if: "a record takes more than twice the mutex's time, and a section of the configurable lock at most twice.",
    command: "squall report EX-Q7",
    seconds: (30, 120),
    run,
    verdict,
    alike: || found(58.0, 11.5, 6.0),
    opposite: || found(5.0, 40.0, 6.0),
};

const GENERAL: &str = "a record to the general monitor";
const OWN: &str = "a section of a lock with its own monitor";
const MUTEX: &str = "a lock and an unlock";

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let times = lab.bench("monitor", "", &[1])?;
    Ok(found(times.ns("squall-general", 1), times.ns("squall-in-object", 1), times.metric("mutex_ns", 1)))
}

fn verdict(found: &Found) -> Verdict {
    let [general, own, mutex] = [GENERAL, OWN, MUTEX].map(|name| found.value(name));
    let why = format!(
        "a record takes {general:.1} ns, a section of a lock with its own monitor {own:.1} ns, a lock and an unlock of \
         std's mutex {mutex:.1} ns"
    );
    Verdict::of(general > 2.0 * mutex && own <= 2.0 * mutex, why)
}

fn found(general: f64, own: f64, mutex: f64) -> Found {
    let mut found = Found::default();
    for (name, value) in [(GENERAL, general), (OWN, own), (MUTEX, mutex)] {
        found.figure(name, value, "ns", Means::Timed);
    }
    found
}
