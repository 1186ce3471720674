//! `squall fleet ls`: the directory of a group, as tables or as JSON.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use squall::fleet::{EndInfo, GroupInfo, NodeFigures, NodeId, ServiceInfo};

use super::group::VisitArgs;
use crate::output::{Failure, controls_terminal, line, printable_json};

/// Blanks between two columns.
const GAP: &str = "  ";

#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    visit: VisitArgs,
    /// Print one JSON object, and no other text, to stdout.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ListArgs) -> Result<(), Failure> {
    let visitor = args.visit.visit()?;
    let listing = Listing::new(&args.visit.show(&visitor)?, &BTreeMap::new(), &mut Rates::default());
    if args.json { listing.print_json() } else { listing.lines(false).into_iter().try_for_each(line) }
}

/// The directory of a group, as it is printed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Listing {
    leader: Option<String>,
    members: Vec<Member>,
    names: Vec<Name>,
    /// Names with a claim to all longer names.
    reserved: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Member {
    node: String,
    endpoint: String,
    /// The number of the machine, in hexadecimal digits.
    machine: String,
    leader: bool,
    votes: bool,
    leaving: bool,
    /// Absent in `ls`, and for a member that does not answer in time.
    figures: Option<Figures>,
}

/// Figures of a member, as it tells them.
#[derive(Clone, Debug, Default, Serialize)]
struct Figures {
    term: u64,
    lease_ms: u64,
    /// Its calls with a result, and those without one.
    calls_done: u64,
    calls_lost: u64,
    /// Calls of its services that have begun, and those that run.
    served: u64,
    running: u64,
    sessions: u64,
    shards: u64,
    /// The latest ends of members that it has seen, oldest first.
    ends: Vec<End>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct End {
    endpoint: String,
    reason: String,
    ago_ms: u64,
}

impl Figures {
    fn new(figures: &NodeFigures) -> Figures {
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let end = |end: &EndInfo| End {
            endpoint: end.endpoint.clone(),
            reason: end.reason.to_string(),
            ago_ms: millis(end.age),
        };
        let calls = &figures.calls;
        Figures {
            term: figures.term,
            lease_ms: millis(figures.lease_left),
            calls_done: calls.done,
            calls_lost: calls.total().saturating_sub(calls.done),
            served: figures.served,
            running: figures.running,
            sessions: figures.sessions,
            shards: figures.shards,
            ends: figures.ends.iter().map(end).collect(),
        }
    }

    /// Formats the columns of the table.
    fn cells(&self) -> [String; 5] {
        let lease = if self.lease_ms > 0 { "yes" } else { "no" };
        let numbers = [self.served, self.sessions, self.calls_done, self.calls_lost].map(|it| it.to_string());
        let [served, sessions, done, lost] = numbers;
        [lease.to_owned(), served, sessions, done, lost]
    }
}

/// The columns of the figures.
const FIGURES: [&str; 5] = ["lease", "served", "sessions", "calls", "lost"];

#[derive(Clone, Debug, Serialize)]
struct Name {
    name: String,
    stateless: bool,
    /// A name with agreed members, such as a pool.
    roster: bool,
    /// The endpoints of the members that serve it. A roster has one entry for each of its members.
    nodes: Vec<String>,
    shards: Vec<Shard>,
    /// Changes of owners, targets and members of a roster per second since the look before; absent at the
    /// first.
    changes_per_s: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
struct Shard {
    shard: usize,
    owner: Option<String>,
    target: Option<String>,
    epoch: u64,
    born: u64,
}

/// The epochs of all shards and rosters at the last look.
#[derive(Debug, Default)]
pub(super) struct Rates(Option<(Instant, HashMap<String, u64>)>);

impl Rates {
    /// Returns the changes per second of each name, and remembers the epochs.
    fn see(&mut self, info: &GroupInfo, now: Instant) -> HashMap<String, f64> {
        let sum = |service: &ServiceInfo| {
            let shards = service.shards.iter().map(|shard| shard.epoch);
            shards.chain(service.roster_epoch).sum()
        };
        let sums: HashMap<String, u64> =
            info.services.iter().map(|service| (service.name.to_string(), sum(service))).collect();
        let before = self.0.replace((now, sums.clone()));
        let Some((then, before)) = before else { return HashMap::new() };
        let seconds = now.duration_since(then).as_secs_f64().max(1e-3);
        let rate = |(name, sum): (String, u64)| {
            let changes = sum.saturating_sub(*before.get(&name)?);
            Some((name, changes as f64 / seconds))
        };
        sums.into_iter().filter_map(rate).collect()
    }
}

impl Listing {
    pub(super) fn new(
        info: &GroupInfo,
        figures: &BTreeMap<NodeId, NodeFigures>,
        rates: &mut Rates,
    ) -> Listing {
        let rates = rates.see(info, Instant::now());
        let endpoints: BTreeMap<NodeId, &str> =
            info.members.iter().map(|member| (member.node, &*member.endpoint)).collect();
        // A member that has just gone has a number alone.
        let at = |node: NodeId| endpoints.get(&node).map_or_else(|| node.to_string(), |at| (*at).to_owned());
        let members = info.members.iter().map(|member| Member {
            node: member.node.to_string(),
            endpoint: member.endpoint.clone(),
            machine: format!("{:016x}", member.host),
            leader: info.leader == Some(member.node),
            votes: member.votes,
            leaving: member.leaving,
            figures: figures.get(&member.node).map(Figures::new),
        });
        let names = info.services.iter().map(|service| Name {
            name: service.name.to_string(),
            stateless: service.stateless,
            roster: service.roster_epoch.is_some(),
            nodes: service.nodes.iter().map(|node| at(*node)).collect(),
            shards: (service.shards.iter().enumerate())
                .map(|(shard, info)| Shard {
                    shard,
                    owner: info.owner.map(at),
                    target: info.target.map(at),
                    epoch: info.epoch,
                    born: info.born,
                })
                .collect(),
            changes_per_s: rates.get(service.name.as_str()).copied(),
        });
        Listing {
            leader: info.leader.map(at),
            members: members.collect(),
            names: names.collect(),
            reserved: info.reserved.iter().map(ToString::to_string).collect(),
        }
    }

    pub(super) fn print_json(&self) -> Result<(), Failure> {
        match serde_json::to_string(self) {
            Ok(json) => line(printable_json(&json)),
            Err(error) => Err(Failure::new(format!("the group cannot be written as JSON: {error}"))),
        }
    }

    /// Formats the directory as tables. `rates` adds the figures of members and the changes per second.
    pub(super) fn lines(&self, rates: bool) -> Vec<String> {
        let mut rows = vec![["member", "endpoint", "machine", "state"].map(str::to_owned).to_vec()];
        rows.extend(self.members.iter().map(|member| {
            let states = [(member.leader, "leader"), (member.votes, "votes"), (member.leaving, "leaving")];
            let states: Vec<&str> = states.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            let state = if states.is_empty() { "-".to_owned() } else { states.join(", ") };
            let mut row = vec![member.node.clone(), member.endpoint.clone(), member.machine.clone(), state];
            let none = || FIGURES.map(|_| "-".to_owned());
            row.extend(member.figures.as_ref().map_or_else(none, Figures::cells));
            row
        }));
        rows[0].extend(FIGURES.map(str::to_owned));
        if !rates {
            rows.iter_mut().for_each(|row| row.truncate(row.len() - FIGURES.len()));
        }
        let mut lines = table(&rows);
        if self.leader.is_none() {
            lines.push("The group has no leader: most of its voters do not answer.".to_owned());
        }
        lines.push(String::new());
        let mut rows = vec![["name", "kind", "changes/s", "members"].map(str::to_owned).to_vec()];
        rows.extend(self.names.iter().map(|name| {
            let kind = match (name.shards.len(), name.stateless) {
                _ if name.roster => "roster".to_owned(),
                (0, false) => "service".to_owned(),
                (0, true) => "stateless".to_owned(),
                (shards, _) => format!("{shards} shards"),
            };
            let rate = name.changes_per_s.map_or("-".to_owned(), |rate| format!("{rate:.1}"));
            vec![name.name.clone(), kind, rate, list(&name.nodes)]
        }));
        rows.extend(
            self.reserved
                .iter()
                .map(|name| vec![format!("{name}/*"), "reserved".to_owned(), "-".to_owned(), "-".to_owned()]),
        );
        if !rates {
            rows.iter_mut().for_each(|row| drop(row.remove(2)));
        }
        lines.extend(table(&rows));
        for name in self.names.iter().filter(|name| !name.shards.is_empty()) {
            lines.push(String::new());
            lines.extend(name.owners());
        }
        lines
    }
}

impl Name {
    /// Formats the owners of the shards.
    fn owners(&self) -> Vec<String> {
        let mut owned: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for shard in &self.shards {
            owned.entry(shard.owner.as_deref().unwrap_or("-")).or_default().push(shard.shard);
        }
        let title = [format!("owner of {}", self.name), "shards".to_owned(), "numbers".to_owned()];
        let mut rows = vec![title.to_vec()];
        let row = |(owner, shards): (&str, Vec<usize>)| {
            vec![owner.to_owned(), shards.len().to_string(), spans(&shards)]
        };
        rows.extend(owned.into_iter().map(row));
        let mut lines = table(&rows);
        lines.extend(self.shards.iter().filter_map(|shard| {
            let target = printed(shard.target.as_deref()?);
            Some(format!("shard {} moves to {target}", shard.shard))
        }));
        lines
    }
}

fn list(texts: &[String]) -> String {
    if texts.is_empty() { "-".to_owned() } else { texts.join(", ") }
}

/// Formats numbers in rising order as spans.
fn spans(numbers: &[usize]) -> String {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match spans.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => spans.push((*number, *number)),
        }
    }
    let span = |(first, last): &(usize, usize)| -> Box<dyn Display> {
        if first == last { Box::new(*first) } else { Box::new(format!("{first}-{last}")) }
    };
    spans.iter().map(|pair| span(pair).to_string()).collect::<Vec<_>>().join(", ")
}

/// Escapes characters of other programs that control a terminal.
fn printed(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter {
            _ if controls_terminal(letter) => shown.extend(letter.escape_default()),
            _ => shown.push(letter),
        }
    }
    shown
}

/// Aligns the columns. The first row is the heading.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| printed(cell)).collect()).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows.first().map_or(0, Vec::len)).map(width).collect();
    let format = |row: &Vec<String>| {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        cells.join(GAP).trim_end().to_owned()
    };
    rows.iter().map(format).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn listing() -> Listing {
        let member = |node: &str, leader| Member {
            node: node.to_owned(),
            endpoint: format!("host/{node}"),
            machine: "00000000000000ab".to_owned(),
            leader,
            votes: true,
            leaving: !leader,
            figures: leader.then(|| Figures {
                lease_ms: 640,
                served: 12,
                calls_done: 3,
                ..Figures::default()
            }),
        };
        let shard = |shard, owner: &str, target: Option<&str>| Shard {
            shard,
            owner: Some(owner.to_owned()),
            target: target.map(str::to_owned),
            epoch: 3,
            born: 1,
        };
        let shards =
            vec![shard(0, "host/a", None), shard(1, "host/a", None), shard(2, "host/b", Some("host/a"))];
        let nodes = vec!["host/a".to_owned(), "host/b\u{1b}[2J".to_owned()];
        let name = |name: &str, shards| Name {
            name: name.to_owned(),
            stateless: true,
            roster: false,
            nodes: nodes.clone(),
            shards,
            changes_per_s: Some(1.25),
        };
        Listing {
            leader: Some("host/a".to_owned()),
            members: vec![member("a", true), member("b", false)],
            names: vec![
                name("/counters", shards),
                name("/echo", Vec::new()),
                Name { stateless: false, roster: true, ..name("/pages", Vec::new()) },
            ],
            reserved: vec!["/sys".to_owned()],
        }
    }

    #[test]
    fn a_group_is_listed_in_aligned_columns() {
        assert_eq!(
            listing().lines(true),
            [
                "member  endpoint  machine           state           lease  served  sessions  calls  lost",
                "a       host/a    00000000000000ab  leader, votes   yes    12      0         3      0",
                "b       host/b    00000000000000ab  votes, leaving  -      -       -         -      -",
                "",
                "name       kind       changes/s  members",
                "/counters  3 shards   1.2        host/a, host/b\\u{1b}[2J",
                "/echo      stateless  1.2        host/a, host/b\\u{1b}[2J",
                "/pages     roster     1.2        host/a, host/b\\u{1b}[2J",
                "/sys/*     reserved   -          -",
                "",
                "owner of /counters  shards  numbers",
                "host/a              2       0-1",
                "host/b              1       2",
                "shard 2 moves to host/a",
            ]
        );
        let without = listing().lines(false);
        assert!(!without.join("\n").contains("changes/s"));
        assert_eq!(without[0], "member  endpoint  machine           state");
    }

    #[test]
    fn numbers_are_joined_to_spans() {
        assert_eq!(spans(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(spans(&[]), "");
    }
}
