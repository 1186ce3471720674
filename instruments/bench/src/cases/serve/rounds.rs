//! Rounds of turns, and their figures.
//!
//! The servers and their connections live through all rounds. The turn of a child process is not watched for
//! foreign load: the child's own load would count as foreign.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use super::client::{Client, Load, Script};
use super::subjects::{ENTRIES, Entry, Kind, Running};
use crate::case::Role;
use crate::env;
use crate::harness::{CLEAN_ROUNDS_MIN, RoundWatch, SubjectResult, Table, median, paired_ratio, quantile};

/// Length of a turn, in a full and in a quick run.
const TURN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(60));
/// Requests of each connection before the clock runs.
const WARM: usize = 50;

/// A figure of a turn.
type Figure = fn(&Turn) -> f64;

/// Result of a turn.
struct Turn {
    /// Nanoseconds per request, by any connection.
    ns: f64,
    p50_us: f64,
    p99_us: f64,
}

/// One server, its connections, and its turns.
struct Contestant {
    entry: &'static Entry,
    clients: Vec<Client>,
    turns: Vec<Turn>,
    /// Declared after the clients, which are dropped first.
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
            let joined = threads.into_iter().map(|thread| thread.join().expect("a client panicked"));
            joined.collect::<Result<Vec<Asked>, _>>()
        });
        let asked = asked.map_err(|error| format!("{}: {error}", self.entry.name))?;
        let began = asked.iter().map(|asked| asked.began).min().ok_or("there are no connections")?;
        let ended = asked.iter().map(|asked| asked.ended).max().ok_or("there are no connections")?;
        let took_us: Vec<f64> = asked.into_iter().flat_map(|asked| asked.took_us).collect();
        Ok(Turn {
            ns: (ended - began).as_nanos() as f64 / took_us.len().max(1) as f64,
            p50_us: quantile(&took_us, 0.5),
            p99_us: quantile(&took_us, 0.99),
        })
    }
}

/// Observations of one connection.
struct Asked {
    began: Instant,
    ended: Instant,
    took_us: Vec<f64>,
}

fn ask(client: &mut Client, begin: &Barrier, length: Duration) -> std::io::Result<Asked> {
    let warmed: std::io::Result<()> = (0..WARM).try_for_each(|_| client.ask());
    // A failed connection passes the gate too, since the others wait there.
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

/// The rounds so far, and which of them other load disturbed.
pub(super) struct Rounds {
    contestants: Vec<Contestant>,
    length: Duration,
    disturbed: Vec<bool>,
}

impl Rounds {
    /// Starts every available server; a missing one is not in the table.
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
            let watch = (contestant.entry.kind != Kind::Other).then(|| RoundWatch::begin(&processors));
            let turn = contestant.turn(self.length)?;
            disturbed |= watch.is_some_and(|watch| watch.disturbed());
            contestant.turns.push(turn);
        }
        self.disturbed.push(disturbed);
        Ok(())
    }

    pub(super) fn fill_table(self, table: &mut Table) {
        let disturbed = self.disturbed.iter().filter(|&&foreign| foreign).count();
        table.rounds = self.disturbed.len();
        table.disturbed = disturbed;
        table.kept_disturbed = table.rounds - disturbed < CLEAN_ROUNDS_MIN;
        let kept: Vec<usize> =
            (0..table.rounds).filter(|&round| table.kept_disturbed || !self.disturbed[round]).collect();
        let of = |contestant: &Contestant, figure: Figure| -> Vec<f64> {
            kept.iter().map(|&round| figure(&contestant.turns[round])).collect()
        };
        let find = |kind, role| {
            self.contestants.iter().filter(move |c| c.entry.kind == kind && c.entry.role == role)
        };
        let stores: Vec<&Contestant> = find(Kind::Store, Role::Rival).collect();
        if let Some(ours) = find(Kind::Store, Role::Ours).next() {
            let figures: [(&str, Figure); 2] = [("", |turn| turn.ns), ("-p99", |turn| turn.p99_us)];
            for (what, figure) in figures {
                let rows: Vec<Vec<f64>> = stores.iter().map(|store| of(store, figure)).collect();
                if let Some(paired) = against_best(&of(ours, figure), &rows) {
                    let name = paired.which.map_or("one or the other", |best| stores[best].entry.name);
                    let ratio = paired_ratio(&paired.ours, &paired.best);
                    table.ratios.push((format!("{}/best-store{what}", ours.entry.name), ratio, name));
                }
                if let Some(again) = find(Kind::Again, Role::Ours).next() {
                    let ratio = paired_ratio(&of(ours, figure), &of(again, figure));
                    table.ratios.push((format!("{}/again{what}", ours.entry.name), ratio, again.entry.name));
                }
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

/// Figures of common rounds.
#[derive(Debug, Default, PartialEq)]
struct Paired {
    ours: Vec<f64>,
    best: Vec<f64>,
    /// The rival, if the figures belong to a single one.
    which: Option<usize>,
}

/// Divides ours by the best rival. The best rival of one half of the rounds is compared in the other half.
/// Otherwise chance would favour the rival: the best of many rivals in some rounds is partly the luckiest in
/// those rounds. It would beat even a server equal to itself.
fn against_best(ours: &[f64], rivals: &[Vec<f64>]) -> Option<Paired> {
    let half = |row: &[f64], odd: usize| -> Vec<f64> { row.iter().skip(odd).step_by(2).copied().collect() };
    let best_of = |odd: usize| {
        let middle = |rival: usize| {
            let figures = half(&rivals[rival], odd);
            if figures.is_empty() { f64::INFINITY } else { median(&figures) }
        };
        (0..rivals.len()).min_by(|&a, &b| middle(a).total_cmp(&middle(b)))
    };
    let best = [best_of(1)?, best_of(0)?];
    let mut paired = Paired { which: (best[0] == best[1]).then_some(best[0]), ..Paired::default() };
    for (odd, best) in best.into_iter().enumerate() {
        paired.ours.extend(half(ours, odd));
        paired.best.extend(half(&rivals[best], odd));
    }
    (!paired.ours.is_empty()).then_some(paired)
}

#[cfg(test)]
mod tests {
    use super::against_best;

    #[test]
    fn the_best_is_chosen_and_compared_in_different_rounds() {
        // Each rival is lucky in one half of the rounds; choosing by all rounds would make a rival look
        // better than ours.
        let ours = [10.0; 4];
        let lucky = vec![vec![1.0, 10.0, 1.0, 10.0], vec![10.0, 1.0, 10.0, 1.0]];
        let paired = against_best(&ours, &lucky).unwrap();
        assert_eq!((paired.best, paired.which), (vec![10.0; 4], None));
        let faster = vec![vec![9.0; 4], vec![8.0; 4]];
        let paired = against_best(&ours, &faster).unwrap();
        assert_eq!((paired.ours, paired.best, paired.which), (vec![10.0; 4], vec![8.0; 4], Some(1)));
        assert_eq!(against_best(&ours, &[]), None);
    }
}
