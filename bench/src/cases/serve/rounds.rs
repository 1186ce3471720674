//! Rounds of turns, and what is said of them.
//!
//! The servers live through all rounds, with their connections. A turn of a child is not looked at for foreign load: its own would be
//! taken for some.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::client::{Client, Load, Script};
use super::subjects::{ENTRIES, Entry, Running};
use crate::case::Role;
use crate::env;
use crate::harness::{CLEAN_ROUNDS_MIN, RoundWatch, SubjectResult, Table, median, paired_ratio, quantile};

/// Length of a turn, in a full and in a quick run.
const TURN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(60));
/// Requests of each connection before the clock runs.
const WARM: usize = 50;

/// A figure of a turn.
type Figure = fn(&Turn) -> f64;

/// What came of a turn.
struct Turn {
    /// Nanoseconds per request, whoever made it.
    ns: f64,
    p50_us: f64,
    p99_us: f64,
}

/// One server, its connections, and its turns.
struct Contestant {
    entry: &'static Entry,
    clients: Vec<Client>,
    turns: Vec<Turn>,
    /// Behind the clients: these leave first.
    _running: Running,
}

impl Contestant {
    fn new(
        entry: &'static Entry,
        running: Running,
        threads: usize,
        script: &Arc<Script>,
    ) -> Result<Contestant, String> {
        let connect = |index| Client::new(running.address, script, index);
        let clients = (0..threads).map(connect).collect::<Result<Vec<_>, _>>();
        let mut clients = clients.map_err(|error| format!("{}: {error}", entry.name))?;
        if let Some(first) = clients.first_mut() {
            first.fill().map_err(|error| format!("{}: {error}", entry.name))?;
        }
        Ok(Contestant { entry, clients, turns: Vec::new(), _running: running })
    }

    fn turn(&mut self, length: Duration) -> Result<Turn, String> {
        let begin = Barrier::new(self.clients.len());
        let asked = std::thread::scope(|scope| {
            let asking = |client| {
                let begin = &begin;
                scope.spawn(move || ask(client, begin, length))
            };
            let threads: Vec<_> = self.clients.iter_mut().map(asking).collect();
            let joined = threads.into_iter().map(|thread| thread.join().expect("it returns its error"));
            joined.collect::<Result<Vec<Asked>, _>>()
        });
        let asked = asked.map_err(|error| format!("{}: {error}", self.entry.name))?;
        let began = asked.iter().map(|asked| asked.began).min().ok_or("nobody asked")?;
        let ended = asked.iter().map(|asked| asked.ended).max().ok_or("nobody asked")?;
        let took_us: Vec<f64> = asked.into_iter().flat_map(|asked| asked.took_us).collect();
        Ok(Turn {
            ns: (ended - began).as_nanos() as f64 / took_us.len().max(1) as f64,
            p50_us: quantile(&took_us, 0.5),
            p99_us: quantile(&took_us, 0.99),
        })
    }
}

/// What one connection saw.
struct Asked {
    began: Instant,
    ended: Instant,
    took_us: Vec<f64>,
}

fn ask(client: &mut Client, begin: &Barrier, length: Duration) -> std::io::Result<Asked> {
    let warmed: std::io::Result<()> = (0..WARM).try_for_each(|_| client.ask());
    // Whoever failed meets the others all the same.
    begin.wait();
    warmed?;
    let began = Instant::now();
    let (mut before, mut took_us) = (began, Vec::with_capacity(1 << 14));
    while before - began < length {
        client.ask()?;
        let now = Instant::now();
        took_us.push((now - before).as_nanos() as f64 / 1e3);
        before = now;
    }
    Ok(Asked { began, ended: before, took_us })
}

/// Rounds as they are made, and which of them other load disturbed.
pub(super) struct Rounds {
    contestants: Vec<Contestant>,
    length: Duration,
    disturbed: Vec<bool>,
}

impl Rounds {
    /// Starts those who can be; whoever cannot is not in the table.
    pub(super) fn begin(threads: usize, load: Load, quick: bool) -> Result<Rounds, String> {
        let script = Script::new(load);
        let started = ENTRIES.iter().filter_map(|entry| (entry.start)().ok().map(|running| (entry, running)));
        let made = started.map(|(entry, running)| Contestant::new(entry, running, threads, &script));
        let mut contestants = made.collect::<Result<Vec<_>, _>>()?;
        let length = if quick { TURN.1 } else { TURN.0 };
        for contestant in &mut contestants {
            contestant.turn(length)?;
        }
        Ok(Rounds { contestants, length, disturbed: Vec::new() })
    }

    pub(super) fn round(&mut self) -> Result<(), String> {
        let processors = env::processors();
        let (round, count) = (self.disturbed.len(), self.contestants.len());
        let mut disturbed = false;
        for place in 0..count {
            let contestant = &mut self.contestants[(place + round) % count];
            let watch = contestant.entry.is_store.then(|| RoundWatch::begin(&processors));
            let turn = contestant.turn(self.length)?;
            disturbed |= watch.is_some_and(|watch| watch.disturbed());
            contestant.turns.push(turn);
        }
        self.disturbed.push(disturbed);
        Ok(())
    }

    pub(super) fn tell(self, table: &mut Table) {
        let disturbed = self.disturbed.iter().filter(|&&foreign| foreign).count();
        table.rounds = self.disturbed.len();
        table.disturbed = disturbed;
        table.kept_disturbed = table.rounds - disturbed < CLEAN_ROUNDS_MIN;
        let kept: Vec<usize> =
            (0..table.rounds).filter(|&round| table.kept_disturbed || !self.disturbed[round]).collect();
        let of = |contestant: &Contestant, figure: Figure| -> Vec<f64> {
            kept.iter().map(|&round| figure(&contestant.turns[round])).collect()
        };
        let stores = || self.contestants.iter().filter(|c| c.entry.is_store && c.entry.role == Role::Rival);
        let ours = self.contestants.iter().find(|c| c.entry.role == Role::Ours);
        let figures: [(&str, Figure); 2] =
            [("best-store", |turn| turn.ns), ("best-store-p99", |turn| turn.p99_us)];
        for (what, figure) in figures {
            // The best is another one for each, perhaps.
            let of_median = |contestant: &Contestant| median(&of(contestant, figure));
            let best = stores().min_by(|a, b| of_median(a).total_cmp(&of_median(b)));
            if let (Some(ours), Some(best)) = (ours, best) {
                let ratio = paired_ratio(&of(ours, figure), &of(best, figure));
                table.ratios.push((format!("{}/{what}", ours.entry.name), ratio, best.entry.name));
            }
        }
        let subject = |contestant: &Contestant| SubjectResult {
            name: contestant.entry.name,
            role: contestant.entry.role,
            ns: of(contestant, |turn| turn.ns),
            metrics: vec![
                ("requests_per_s".to_owned(), of(contestant, |turn| 1e9 / turn.ns)),
                ("p50_us".to_owned(), of(contestant, |turn| turn.p50_us)),
                ("p99_us".to_owned(), of(contestant, |turn| turn.p99_us)),
            ],
        };
        table.subjects = self.contestants.iter().map(subject).collect();
    }
}
