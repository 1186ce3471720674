//! Cost model of sharing. Results are estimates, not measurements.
//!
//! The model knows how often each thread touches each line, but not the order. It assumes:
//!
//! 1. Each thread has its own processor with a large cache. Each line is in a MESI state in each cache.
//! 2. A thread comes to a line in *visits*; each visit needs the line once. The number of visits is the count
//!    of the thread's most frequent instruction on the line. It is at least the number of operations, if that
//!    number is known and the thread accesses the line as often. The same rule applied to writes gives the
//!    writing visits.
//! 3. Plain stores wait in the store buffer and leave together; loads from the buffer do not need the line.
//!    For a thread that writes a line without atomic instructions and touches no byte that others write,
//!    `stores_together` visits count as one.
//! 4. Visits of different threads are shuffled; every order is equally likely. Consider a thread with v
//!    visits, w of them writing, while others visit the line A times and write it W times:
//!    - v W / (v + W) visits are *transfers*: another thread wrote the line since the last visit, so it must
//!      be fetched.
//!    - w A / (w + A) writes find the line not exclusive. Those that are no transfers are *upgrades*: the
//!      line is present, and copies in other caches must be invalidated.
//! 5. A transfer costs the near latency inside a cluster and the far latency otherwise. Threads fill clusters
//!    one after the other, and each other user is equally likely to supply the line. An upgrade costs the
//!    same as a transfer.
//! 6. Any other access costs the hit latency. An atomic access costs the atomic latency in addition.
//! 7. A line makes one transfer or upgrade at a time. A thread's operations take the sum of their hits and
//!    misses, and all threads together cannot exceed the throughput of their busiest line.
//!
//! Modelled transfers never exceed the bound over all interleavings: v W / (v + W) is at most v and at most
//! W, and both are at most the accesses. The bound does not cover upgrades, which are a separate figure. A
//! test checks both against a MESI simulator with random streams.
//!
//! For other numbers of processors, the curve assumes that threads are alike. A line touched by at least
//! three quarters of the working threads is touched by all threads. Any other line belongs to a group, whose
//! size stays that of the run; more threads form more groups.
//!
//! Not modelled: instructions without memory access, bandwidth, prefetching, backoff, waiting for a held
//! lock, and the real order of accesses. The model ranks lines; it does not predict times.

use serde::Serialize;

use crate::Error;
use crate::lines::{Line, Lines, Phase, Touch};

/// The modelled machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Model {
    /// Name of the preset, followed by overridden values.
    pub name: String,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Cost of an access that hits, in nanoseconds.
    pub hit_ns: f64,
    /// Additional cost of an atomic instruction in nanoseconds, for hits and misses.
    pub atomic_ns: f64,
    /// Latency of a transfer inside a cluster, in nanoseconds.
    pub near_ns: f64,
    /// Latency of any other transfer, in nanoseconds.
    pub far_ns: f64,
    /// Processors that share a last-level cache.
    pub cluster: u32,
    /// Number of storing visits that count as one (assumption 3).
    pub stores_together: f64,
}

/// Presets: name, line bytes, [hit, atomic, near, far] in nanoseconds, cluster, stores together. Round
/// numbers near published measurements of such machines; good for rankings, not for predictions.
const PRESETS: &[(&str, u32, [f64; 4], u32, f64)] = &[
    ("server", 64, [0.2, 5.0, 40.0, 120.0], 16, 8.0),
    ("epyc", 64, [0.2, 4.0, 25.0, 110.0], 16, 8.0),
    ("xeon", 64, [0.2, 5.0, 50.0, 130.0], 64, 8.0),
    ("neoverse", 64, [0.2, 3.0, 45.0, 150.0], 64, 8.0),
    ("laptop", 64, [0.2, 4.0, 30.0, 60.0], 8, 8.0),
    ("numa-1999", 128, [5.0, 50.0, 300.0, 1_000.0], 4, 2.0),
];

impl Model {
    /// Returns the preset with this name.
    ///
    /// # Errors
    /// If there is no such preset. The error lists the names.
    pub fn preset(name: &str) -> Result<Model, Error> {
        let found = PRESETS.iter().find(|preset| preset.0 == name);
        let Some((name, line_bytes, latencies, cluster, stores_together)) = found else {
            let names: Vec<&str> = Model::names().collect();
            return Err(Error(format!("no preset {name}; there are {}", names.join(", "))));
        };
        let (name, line_bytes, cluster, stores_together) =
            ((*name).to_owned(), *line_bytes, *cluster, *stores_together);
        let [hit_ns, atomic_ns, near_ns, far_ns] = *latencies;
        Ok(Model { name, line_bytes, hit_ns, atomic_ns, near_ns, far_ns, cluster, stores_together })
    }

    /// Names of all presets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.0)
    }

    /// Overrides the given latencies and notes them in the name.
    ///
    /// # Errors
    /// If a latency is negative, infinite or NaN.
    pub fn with_latencies(mut self, near_ns: Option<f64>, far_ns: Option<f64>) -> Result<Model, Error> {
        for (name, given, taken) in [("near", near_ns, &mut self.near_ns), ("far", far_ns, &mut self.far_ns)]
        {
            let Some(ns) = given else { continue };
            if !(ns.is_finite() && ns >= 0.0) {
                return Err(Error(format!(
                    "the {name} latency is {ns}: it must be a number of nanoseconds, at least 0"
                )));
            }
            *taken = ns;
            self.name = format!("{}, {name} {ns} ns", self.name);
        }
        Ok(self)
    }

    /// Sets the cluster size from a topology: the processors below one cache.
    ///
    /// # Errors
    /// If the text does not have the form `nodes:2,caches:2,cores:4,threads:2`.
    pub fn with_topology(mut self, text: &str) -> Result<Model, Error> {
        let mut below_cache = 1u32;
        for level in text.split(',') {
            let wrong = || Error(format!("{level} in the topology {text} is not of the form LEVEL:NUMBER"));
            let (name, number) = level.split_once(':').ok_or_else(wrong)?;
            let number: u32 = number.trim().parse().ok().filter(|n| *n > 0).ok_or_else(wrong)?;
            match name.trim() {
                "nodes" | "caches" => below_cache = 1,
                "cores" | "threads" => below_cache = below_cache.checked_mul(number).ok_or_else(wrong)?,
                _ => return Err(wrong()),
            }
        }
        self.cluster = below_cache;
        self.name = format!("{} with {text}", self.name);
        Ok(self)
    }

    /// Mean latency of a transfer of a line that this many processors use.
    fn latency(&self, processors: f64) -> f64 {
        if processors <= 1.0 {
            return self.near_ns;
        }
        let mates = (f64::from(self.cluster).min(processors) - 1.0).max(0.0);
        let near = mates / (processors - 1.0);
        near * self.near_ns + (1.0 - near) * self.far_ns
    }

    /// Expected transfers of the line in the run; at most [`Line::transfers_at_most`]. `ops` is the number of
    /// operations per thread, if known.
    #[must_use]
    pub fn transfers(&self, line: &Line, ops: Option<u64>) -> f64 {
        self.misses(line, ops, 1.0).transfers
    }

    /// Expected upgrades of the line in the run: writes that find the line present but shared.
    #[must_use]
    pub fn upgrades(&self, line: &Line, ops: Option<u64>) -> f64 {
        self.misses(line, ops, 1.0).upgrades
    }

    /// Time of the line's transfers and upgrades in the run, in nanoseconds.
    #[must_use]
    pub fn cost_ns(&self, line: &Line, ops: Option<u64>) -> f64 {
        self.misses(line, ops, 1.0).all() * self.latency(line.touches.len() as f64)
    }

    /// Expected transfers and upgrades of the whole run, by distance.
    ///
    /// Working threads have processors in the order of their numbers. [`Model::cluster`] processors form a
    /// cluster. A transfer comes from the last writer, and each write by others is equally likely to be the
    /// last. An upgrade invalidates the last other user. Unlike the [curve](Model::curve), the sum contains
    /// lines that are shared rarely, such as those of new memory. It uses counts alone, and no clock.
    #[must_use]
    pub fn misses_by_distance(&self, lines: &Lines, ops: Option<u64>) -> ByDistance {
        let mut working: Vec<usize> =
            (0..lines.threads.len()).filter(|at| lines.threads[*at].works).collect();
        working.sort_by_key(|at| lines.threads[*at].head.number);
        let mut cluster_of = vec![None; lines.threads.len()];
        for (processor, thread) in working.into_iter().enumerate() {
            cluster_of[thread] = Some(processor as u32 / self.cluster.max(1));
        }
        let mut sum = ByDistance::default();
        for line in &lines.shared {
            // Cluster, visits and writing visits of each user.
            let users: Vec<(u32, f64, f64)> = line
                .touches
                .iter()
                .filter_map(|touch| {
                    let (visits, writes) = self.visits(line, touch, ops);
                    Some((cluster_of[touch.thread]?, visits, writes))
                })
                .collect();
            for (at, &(cluster, v, w)) in users.iter().enumerate() {
                // Visits and writes of others: in this cluster, and in other ones.
                let mut others = [(0.0, 0.0); 2];
                for &(of, visits, writes) in users.iter().enumerate().filter(|it| it.0 != at).map(|it| it.1) {
                    let distance = &mut others[usize::from(of != cluster)];
                    *distance = (distance.0 + visits, distance.1 + writes);
                }
                let (visits, writes) = (others[0].0 + others[1].0, others[0].1 + others[1].1);
                let misses = expected(v, w, visits, writes);
                let part = |far: f64, all: f64| if all > 0.0 { far / all } else { 0.0 };
                let far = misses.transfers * part(others[1].1, writes)
                    + misses.upgrades * part(others[1].0, visits);
                sum.far += far;
                sum.near += misses.all() - far;
            }
        }
        let kept = lines.one_in() as f64;
        ByDistance { near: sum.near * kept, far: sum.far * kept }
    }

    /// Time per operation and speed-up for other numbers of processors.
    #[must_use]
    pub fn curve(&self, lines: &Lines, ops: Option<u64>, processors: &[u32]) -> Vec<Point> {
        let working: Vec<_> = lines.threads.iter().filter(|thread| thread.works).collect();
        if working.is_empty() {
            return Vec::new();
        }
        let threads = working.len() as f64;
        let all_ops = ops.unwrap_or(1).max(1) as f64 * threads;
        let accesses = working.iter().fold(0u64, |sum, thread| sum.saturating_add(thread.accesses));
        let atomics = working.iter().fold(0u64, |sum, thread| sum.saturating_add(thread.atomics));
        let hits_ns = (accesses as f64 * self.hit_ns + atomics as f64 * self.atomic_ns) / all_ops;
        let run = RunFacts { ops, threads, all_ops, hits_ns, kept: lines.one_in() as f64 };
        let one = self.nanoseconds(lines, 1, &run);
        let point = |processors: &u32| {
            let ns_per_op = self.nanoseconds(lines, *processors, &run);
            let speed_up = if ns_per_op > 0.0 { f64::from(*processors) * one / ns_per_op } else { 0.0 };
            Point { processors: *processors, ns_per_op, speed_up }
        };
        processors.iter().map(point).collect()
    }

    /// Expected misses of all users of a line, with the users' frequencies from the run and `scale` times as
    /// many users.
    fn misses(&self, line: &Line, ops: Option<u64>, scale: f64) -> Misses {
        if line.phase == Phase::HandedOver {
            // Each user but the first fetches the line once.
            return Misses { transfers: line.touches.len().saturating_sub(1) as f64, upgrades: 0.0 };
        }
        let visits: Vec<(f64, f64)> =
            line.touches.iter().map(|touch| self.visits(line, touch, ops)).collect();
        let all: f64 = visits.iter().map(|visits| visits.0).sum();
        let all_writes: f64 = visits.iter().map(|visits| visits.1).sum();
        let mut sum = Misses::default();
        for (v, w) in visits {
            let misses = expected(v, w, (all * scale - v).max(0.0), (all_writes * scale - w).max(0.0));
            sum.transfers += misses.transfers;
            sum.upgrades += misses.upgrades;
        }
        sum
    }

    /// Visits and writing visits of a thread (assumptions 2 and 3).
    fn visits(&self, line: &Line, touch: &Touch, ops: Option<u64>) -> (f64, f64) {
        let (most, most_writes) = touch.most;
        let ops = ops.unwrap_or(0);
        let visits = most.max(touch.accesses().min(ops)) as f64;
        let writes = most_writes.max(touch.writes.min(ops)) as f64;
        let others = line.touches.iter().filter(|other| other.thread != touch.thread);
        let others_write = others.fold(0, |bytes, other| bytes | other.written_bytes);
        let own = touch.read_bytes & others_write == 0;
        if touch.writes > 0 && touch.atomics == 0 && own && touch.read_bytes != 0 {
            ((visits / self.stores_together).max(1.0), (writes / self.stores_together).max(1.0))
        } else {
            (visits, writes)
        }
    }

    /// Time of one operation with this many threads, in nanoseconds.
    fn nanoseconds(&self, lines: &Lines, processors: u32, run: &RunFacts) -> f64 {
        let wanted = f64::from(processors);
        let mut thread_ns = run.hits_ns;
        let mut line_ns: f64 = 0.0;
        for line in lines.shared.iter().filter(|line| line.phase.lasts()) {
            let users = line.touches.iter().filter(|touch| touch.often).count() as f64;
            let everybodys = users >= 0.75 * run.threads;
            let users_then = if everybodys { wanted } else { users.min(wanted) };
            if users_then < 2.0 {
                continue;
            }
            // Misses on the line per operation of the average thread. A group's line stands for one line per
            // group.
            let misses = self.misses(line, run.ops, users_then / users).all() / run.all_ops;
            let ns = misses * self.latency(users_then);
            thread_ns += ns * run.kept;
            // All operations of the line's users pass through it one miss at a time. Users of a group's line
            // are fewer, and miss more often.
            let in_line = if everybodys { wanted } else { users_then * run.threads / users };
            line_ns = line_ns.max(ns * in_line);
        }
        thread_ns.max(line_ns)
    }
}

/// Returns the expected misses of a user with `v` visits, `w` of them writing, while others visit the line
/// `others` times and write it `others_write` times (assumption 4).
fn expected(v: f64, w: f64, others: f64, others_write: f64) -> Misses {
    let part = |of: f64, others: f64| if of > 0.0 { of * others / (of + others) } else { 0.0 };
    // Writes that find the line not exclusive, and are transfers.
    let come = if w > 0.0 { w * others_write / (v + others_write) } else { 0.0 };
    Misses { transfers: part(v, others_write), upgrades: (part(w, others) - come).max(0.0) }
}

/// Expected transfers and upgrades by the distance of the two processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ByDistance {
    /// Within a cluster.
    pub near: f64,
    /// Between clusters.
    pub far: f64,
}

/// Expected misses of a line's users.
#[derive(Clone, Copy, Debug, Default)]
struct Misses {
    transfers: f64,
    upgrades: f64,
}

impl Misses {
    fn all(self) -> f64 {
        self.transfers + self.upgrades
    }
}

/// Facts about the run that the curve needs.
struct RunFacts {
    ops: Option<u64>,
    threads: f64,
    all_ops: f64,
    /// Time of the hits of one operation.
    hits_ns: f64,
    /// Number of lines that each kept line stands for.
    kept: f64,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Point {
    /// Number of processors and of threads.
    pub processors: u32,
    /// Time of one operation of a thread, in nanoseconds.
    pub ns_per_op: f64,
    /// Throughput of all threads divided by the throughput of one thread alone.
    pub speed_up: f64,
}
