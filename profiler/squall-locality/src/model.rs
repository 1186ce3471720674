//! What the sharing would cost on a machine: a model, and no measurement.
//!
//! The model knows lines and who touches them how often, and nothing of the order. It assumes that
//!
//! 1. a line is in one of MESI's states in each processor's cache, caches are large, and every thread has a processor;
//! 2. what a thread does to a line comes in *visits*, each of which wants the line once: as many as the instruction there runs that
//!    runs most, but no fewer than its operations, if they are known and it touches the line as often. Of these as many write as the
//!    instruction that writes most, by the same rule;
//! 3. plain stores wait in the processor's store buffer and go out together, and loads of what waits there do not need the line: of a
//!    thread that writes a line without atomic instructions, and touches none of the bytes that others write, so many visits are one;
//! 4. the visits of different threads are shuffled, every order as likely as any other. Of a thread with v visits, w of them writes, while
//!    others visit it A times and write it W times,
//!    - v W / (v + W) are *transfers*: since the thread's last visit another wrote the line, so that it has to come;
//!    - w A / (w + A) writes do not find the line the thread's alone; those that are no transfers are *upgrades*: the line is there, and
//!      copies that others read have to go;
//! 5. a transfer costs the near latency if the line comes from a processor of the same cluster, else the far one; threads fill
//!    the clusters one after the other, and a line comes from any of its other users with the same probability. An upgrade waits for
//!    those that have a copy, and costs the same;
//! 6. any other access costs the hit latency, an atomic one the atomic latency besides;
//! 7. a line makes one transfer or upgrade at a time: a thread's operations take the sum of its hits and misses, and all threads
//!    together make no more operations than their busiest line lets through.
//!
//! Transfers by the model are never more than the bound that no interleaving exceeds, v W / (v + W) being no more than v and no more than
//! W, which are no more than the accesses; upgrades are not in that bound, and are a figure of their own. A test plays random streams by a
//! MESI simulator against all three.
//!
//! A curve is drawn for a number of processors other than that of the run by the assumption that threads are alike: a line
//! that at least three quarters of the working threads touch is touched by all of them, whatever their number; any other is
//! one of a group's, as large as it was in the run, and there are more groups where there are more threads.
//!
//! Not in the model: instructions that touch no memory, bandwidth, prefetching, back-off, what waits for a lock that is
//! held, and the order in which threads really come. It ranks; it does not predict times.

use serde::Serialize;

use crate::Error;
use crate::lines::{Line, Lines, Phase, Touch};

/// The machine that is modelled.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Model {
    /// A preset's name, and what was given in place of its numbers.
    pub name: String,
    /// Bytes of a line.
    pub line_bytes: u32,
    /// Nanoseconds of an access that hits.
    pub hit_ns: f64,
    /// Nanoseconds that an atomic instruction takes besides, whether it hits or not.
    pub atomic_ns: f64,
    /// Nanoseconds of a transfer from a processor of the same cluster.
    pub near_ns: f64,
    /// Nanoseconds of a transfer from any other.
    pub far_ns: f64,
    /// Processors that share a last-level cache.
    pub cluster: u32,
    /// Visits of plain stores that go out together.
    pub stores_together: f64,
}

/// Presets: name, line, hit, atomic, near, far, cluster, stores together. Round numbers of the kind that measurements of such machines
/// give; for rankings, not for predictions.
const PRESETS: &[(&str, u32, [f64; 4], u32, f64)] = &[
    ("server", 64, [0.2, 5.0, 40.0, 120.0], 16, 8.0),
    ("epyc", 64, [0.2, 4.0, 25.0, 110.0], 16, 8.0),
    ("xeon", 64, [0.2, 5.0, 50.0, 130.0], 64, 8.0),
    ("neoverse", 64, [0.2, 3.0, 45.0, 150.0], 64, 8.0),
    ("laptop", 64, [0.2, 4.0, 30.0, 60.0], 8, 8.0),
    ("numa-1999", 128, [5.0, 50.0, 300.0, 1_000.0], 4, 2.0),
];

impl Model {
    /// The preset of this name.
    ///
    /// # Errors
    /// When there is none; the error names those there are.
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

    /// The names of all presets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|preset| preset.0)
    }

    /// Takes latencies in place of the preset's, where they are given, and says so in the name.
    ///
    /// # Errors
    /// When one is below 0, or no number.
    pub fn with_latencies(mut self, near_ns: Option<f64>, far_ns: Option<f64>) -> Result<Model, Error> {
        for (what, given, taken) in [("near", near_ns, &mut self.near_ns), ("far", far_ns, &mut self.far_ns)]
        {
            let Some(ns) = given else { continue };
            if !(ns.is_finite() && ns >= 0.0) {
                return Err(Error(format!(
                    "the {what} latency is {ns}, and has to be a number of nanoseconds, not below 0"
                )));
            }
            *taken = ns;
            self.name = format!("{}, {what} {ns} ns", self.name);
        }
        Ok(self)
    }

    /// Takes the size of a cluster from a topology: the processors of one of its caches.
    ///
    /// # Errors
    /// When the text is not of the form `nodes:2,caches:2,cores:4,threads:2`.
    pub fn with_topology(mut self, text: &str) -> Result<Model, Error> {
        let mut below_cache = 1u32;
        for level in text.split(',') {
            let wrong = || Error(format!("{level} in the topology {text} is not: level, colon, number"));
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

    /// Mean latency of a transfer of a line among so many processors.
    fn latency(&self, processors: f64) -> f64 {
        if processors <= 1.0 {
            return self.near_ns;
        }
        let mates = (f64::from(self.cluster).min(processors) - 1.0).max(0.0);
        let near = mates / (processors - 1.0);
        near * self.near_ns + (1.0 - near) * self.far_ns
    }

    /// Transfers of this line that are to be expected in the run, of so many operations of each thread: no more than [`Line::transfers_at_most`].
    #[must_use]
    pub fn transfers(&self, line: &Line, ops: Option<u64>) -> f64 {
        self.misses(line, ops, 1.0).transfers
    }

    /// Writes that find the line there, but not alone, as they are to be expected in the run.
    #[must_use]
    pub fn upgrades(&self, line: &Line, ops: Option<u64>) -> f64 {
        self.misses(line, ops, 1.0).upgrades
    }

    /// Nanoseconds that the transfers and upgrades of this line take in the run.
    #[must_use]
    pub fn cost_ns(&self, line: &Line, ops: Option<u64>) -> f64 {
        self.misses(line, ops, 1.0).all() * self.latency(line.touches.len() as f64)
    }

    /// How the work of one thread's operations would go with other numbers of processors.
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

    /// Misses of all users of a line, each as often as in the run, with `scale` times as many users of each kind.
    fn misses(&self, line: &Line, ops: Option<u64>, scale: f64) -> Misses {
        if line.phase == Phase::HandedOver {
            // One way, once for each that takes over: where others wrote it, which is at least once for all but one.
            return Misses { transfers: line.touches.len().saturating_sub(1) as f64, upgrades: 0.0 };
        }
        let part = |of: f64, others: f64| if of > 0.0 { of * others / (of + others) } else { 0.0 };
        let visits: Vec<(f64, f64)> =
            line.touches.iter().map(|touch| self.visits(line, touch, ops)).collect();
        let all: f64 = visits.iter().map(|visits| visits.0).sum();
        let all_writes: f64 = visits.iter().map(|visits| visits.1).sum();
        let mut misses = Misses::default();
        for (v, w) in visits {
            let (others, others_write) = ((all * scale - v).max(0.0), (all_writes * scale - w).max(0.0));
            misses.transfers += part(v, others_write);
            // Of the writes that do not find it alone, the part that is a transfer.
            let come = if w > 0.0 { w * others_write / (v + others_write) } else { 0.0 };
            misses.upgrades += (part(w, others) - come).max(0.0);
        }
        misses
    }

    /// How often a thread comes to a line, and how often of these to write.
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

    /// Nanoseconds of one operation of one of so many threads.
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
            // Misses on it in one operation of the mean thread; of a group's lines there are as many more as threads.
            let misses = self.misses(line, run.ops, users_then / users).all() / run.all_ops;
            let ns = misses * self.latency(users_then);
            thread_ns += ns * run.kept;
            // Its users' operations go through it, one miss at a time; those of a group are fewer and miss more often.
            let in_line = if everybodys { wanted } else { users_then * run.threads / users };
            line_ns = line_ns.max(ns * in_line);
        }
        thread_ns.max(line_ns)
    }
}

/// What a line's users do not find in their caches.
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

/// What the curve has to know of the run.
struct RunFacts {
    ops: Option<u64>,
    threads: f64,
    all_ops: f64,
    /// Nanoseconds of the hits of one operation.
    hits_ns: f64,
    /// How many lines one that was kept stands for.
    kept: f64,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Point {
    /// Processors, and threads.
    pub processors: u32,
    /// Nanoseconds of one operation of each thread.
    pub ns_per_op: f64,
    /// Operations of all in the time in which one thread alone does one.
    pub speed_up: f64,
}
