//! EX-T4: small operations by many threads at once (Tornado, figure 8).

use crate::lab::Loop;
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(super) static EX_T4: Experiment = Experiment {
    id: "EX-T4",
    title: "Small operations by many threads at once",
    question: "Do independent operations slow each other down when more threads make them?",
    paper: Paper {
        source: "B. Gamsa et al., Tornado, OSDI 1999, figure 8.",
        found: "malloc with free, and a miss on an object of one's own, take almost the same time on 16 processors as on one. \
                Collecting destroyed objects, and calls of one common object in another address space, become a little \
                slower and vary over the threads. With 4-way caches all four are flat, so the cause is conflicts \
                in the caches, not sharing.",
    },
    here: "The emulator has no cache conflicts. Create, call and destroy stands for the collection. While processors are \
           busy with other programs, a background thread reclaims objects for them and shares their lists of free \
           memory, so this figure varies between runs. All threads call one common object of a server. It is a server in \
           the same process, so that its accesses can be counted, and the kernel's part is left out. The range over the threads is that of their accesses.",
    agrees_if: "at 16 processors malloc with free, a miss and a call of a server take at most 1.2 times as long as at one, and vary by \
                less than 5 % over the threads. The end of an object may slow down, but less than 4 times: a common lock \
                would make it 16 times.",
    command: "squall report EX-T4",
    seconds: (30, 90),
    run,
    verdict,
    alike: || {
        found([[1.0, 1.0, 1.05], [1.0, 1.0, 1.1], [1.0, 1.5, 2.0], [1.0, 1.0, 1.0]], [0.0, 0.01, 0.3, 0.0])
    },
    opposite: || {
        found([[1.0, 6.0, 12.0], [1.0, 1.0, 1.1], [1.0, 3.0, 5.0], [1.0, 8.0, 16.0]], [0.0, 0.01, 0.3, 0.0])
    },
};

/// Name, and case, variant and subject of the loop.
const OPERATIONS: [(&str, &str, &str, &str); 4] = [
    ("malloc and free", "alloc", "tight-64", "squall"),
    ("a miss", "miss", "cached", "squall"),
    ("create, call, destroy", "lifecycle", "", "squall"),
    ("call of a common server", "call-process", "same-core", "squall"),
];
/// The operation that may slow down and vary over the threads.
const ENDS: usize = 2;
const COUNTED: [usize; 5] = [1, 2, 4, 8, 16];

fn run(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    // Short runs count the start-up of the reclamation, too.
    let ops = if lab.quick { 5000 } else { 20_000 };
    let (mut series, mut ranges) = (Vec::new(), [f64::NAN; 4]);
    for (at, (name, case, variant, subject)) in OPERATIONS.into_iter().enumerate() {
        let mut points = Vec::new();
        for threads in COUNTED {
            let counts = lab.count(Loop { case, subject, variant, threads, ops })?;
            points.push((threads as f64, counts.modelled_ns));
            ranges[at] = counts.thread_range;
        }
        series.push(Series { name: name.to_owned(), points });
    }
    Ok(make(series, ranges))
}

fn make(series: Vec<Series>, ranges: [f64; 4]) -> Found {
    let plot = Plot {
        name: "ex-t4",
        title: "Small operations, by the number of processors",
        x: Axis::linear("processors, each with one thread"),
        y: Axis::log("ns per operation"),
        means: Means::Modelled,
        series,
    };
    let mut found = Found { plots: vec![plot], ..Found::default() };
    for ((name, ..), range) in OPERATIONS.into_iter().zip(ranges) {
        found.figure(range_of(name), range * 100.0, "%", Means::Counted);
    }
    found
}

fn range_of(name: &str) -> String {
    format!("range over 16 threads: {name}")
}

fn verdict(found: &Found) -> Verdict {
    let growths = OPERATIONS.map(|(name, ..)| found.series("ex-t4", name).growth());
    let ranges = OPERATIONS.map(|(name, ..)| found.value(&range_of(name)));
    let even = ranges.iter().enumerate().all(|(at, range)| at == ENDS || *range < 5.0);
    let [malloc, miss, ends, call] = growths;
    let why = format!(
        "by the model of a server, on 16 processors malloc and free takes {malloc:.2} times as long as on one, a miss {miss:.2} times, the life of \
         an object {ends:.2} times, a call of a server {call:.2} times; over the threads they vary by {:.1} %, {:.1} %, {:.1} % \
         and {:.1} %",
        ranges[0], ranges[1], ranges[2], ranges[3]
    );
    let flat = growths.iter().enumerate().all(|(at, times)| *times <= if at == ENDS { 4.0 } else { 1.2 });
    Verdict::of(flat && even, why)
}

fn found(times: [[f64; 3]; 4], ranges: [f64; 4]) -> Found {
    let series = OPERATIONS.into_iter().zip(times).map(|((name, ..), times)| {
        let points = [1.0, 8.0, 16.0].into_iter().zip(times).collect();
        Series { name: name.to_owned(), points }
    });
    make(series.collect(), ranges)
}
