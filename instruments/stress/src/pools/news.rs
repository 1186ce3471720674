//! The lines between a member process and its parent.

use squall::fleet::GroupKey;

use super::breaks::Break;
use super::rules::{POOLS, Time};
use crate::skeleton::breaks::Breaks;

/// The news of a member to its parent, one on each line of its standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The member founded the group. The right to all names follows.
    Founded(String),
    /// The member serves in all pools.
    Ready,
    /// An add of an element begins.
    Add { pool: usize, number: u64, at: Time },
    /// The add has returned: the element is in the pool.
    Added { pool: usize, number: u64, at: Time },
    /// The add had no effect.
    Refused { pool: usize, number: u64 },
    /// The add may have taken effect, or may still do so.
    Unsure { pool: usize, number: u64 },
    /// A get of a thread begins.
    Get { pool: usize, worker: u64, at: Time },
    /// The get has an element.
    Got { pool: usize, worker: u64, number: u64 },
    /// The get found the pool empty.
    Empty { pool: usize, worker: u64, at: Time },
    /// The get was refused or given up before it could take an element.
    Nothing { pool: usize, worker: u64 },
    /// The get was given up. It may have taken an element, and given it back later.
    GivenUp { pool: usize, worker: u64 },
    /// The node has a lease, and was not removed from its group before this time.
    Calm { at: Time },
    /// The node was removed from its group in this time, and all its elements are back in the pools.
    Removed { from: Time, to: Time },
    /// The member has left a pool as the last one, with elements.
    LostAsLast { pool: usize, lost: u64 },
    /// The member has left a pool.
    Quit,
    /// The member has joined a pool again.
    Renewed,
    /// No operation of a worker is under way.
    Rested,
    /// The member has added elements to each pool.
    Filled,
    /// All pools have the expected number of members.
    Settled,
    /// The elements in the stores of the member.
    Held([u64; POOLS]),
    /// The member has emptied all pools.
    Drained,
    /// The member has left the group.
    Left { at: Time },
    /// A promise is broken.
    Wrong(String),
}

impl News {
    pub(super) fn line(&self) -> String {
        let (word, numbers): (&str, Vec<u64>) = match self {
            News::Founded(right) => return format!("founded {right}\n"),
            News::Wrong(why) => return format!("wrong {}\n", why.replace('\n', " ")),
            News::Ready => ("ready", vec![]),
            News::Add { pool, number, at } => ("add", vec![*pool as u64, *number, *at]),
            News::Added { pool, number, at } => ("added", vec![*pool as u64, *number, *at]),
            News::Refused { pool, number } => ("refused", vec![*pool as u64, *number]),
            News::Unsure { pool, number } => ("unsure", vec![*pool as u64, *number]),
            News::Get { pool, worker, at } => ("get", vec![*pool as u64, *worker, *at]),
            News::Got { pool, worker, number } => ("got", vec![*pool as u64, *worker, *number]),
            News::Empty { pool, worker, at } => ("empty", vec![*pool as u64, *worker, *at]),
            News::Nothing { pool, worker } => ("nothing", vec![*pool as u64, *worker]),
            News::GivenUp { pool, worker } => ("given-up", vec![*pool as u64, *worker]),
            News::Calm { at } => ("calm", vec![*at]),
            News::Removed { from, to } => ("removed", vec![*from, *to]),
            News::LostAsLast { pool, lost } => ("lost-as-last", vec![*pool as u64, *lost]),
            News::Quit => ("quit", vec![]),
            News::Renewed => ("renewed", vec![]),
            News::Rested => ("rested", vec![]),
            News::Filled => ("filled", vec![]),
            News::Settled => ("settled", vec![]),
            News::Held(held) => ("held", held.to_vec()),
            News::Drained => ("drained", vec![]),
            News::Left { at } => ("left", vec![*at]),
        };
        let numbers = numbers.iter().map(|number| format!(" {number}"));
        format!("{word}{}\n", numbers.collect::<String>())
    }

    pub(super) fn parse(line: &str) -> Option<News> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "founded" => return Some(News::Founded(rest.to_owned())),
            "wrong" => return Some(News::Wrong(rest.to_owned())),
            _ => {}
        }
        let numbers: Result<Vec<u64>, _> =
            rest.split(' ').filter(|number| !number.is_empty()).map(str::parse).collect();
        let numbers = numbers.ok()?;
        let pool = |pool: u64| usize::try_from(pool).ok().filter(|pool| *pool < POOLS);
        Some(match (word, &numbers[..]) {
            ("ready", []) => News::Ready,
            ("add", &[of, number, at]) => News::Add { pool: pool(of)?, number, at },
            ("added", &[of, number, at]) => News::Added { pool: pool(of)?, number, at },
            ("refused", &[of, number]) => News::Refused { pool: pool(of)?, number },
            ("unsure", &[of, number]) => News::Unsure { pool: pool(of)?, number },
            ("get", &[of, worker, at]) => News::Get { pool: pool(of)?, worker, at },
            ("got", &[of, worker, number]) => News::Got { pool: pool(of)?, worker, number },
            ("empty", &[of, worker, at]) => News::Empty { pool: pool(of)?, worker, at },
            ("nothing", &[of, worker]) => News::Nothing { pool: pool(of)?, worker },
            ("given-up", &[of, worker]) => News::GivenUp { pool: pool(of)?, worker },
            ("calm", &[at]) => News::Calm { at },
            ("removed", &[from, to]) => News::Removed { from, to },
            ("lost-as-last", &[of, lost]) => News::LostAsLast { pool: pool(of)?, lost },
            ("quit", []) => News::Quit,
            ("renewed", []) => News::Renewed,
            ("rested", []) => News::Rested,
            ("filled", []) => News::Filled,
            ("settled", []) => News::Settled,
            ("held", held) => News::Held(held.try_into().ok()?),
            ("drained", []) => News::Drained,
            ("left", &[at]) => News::Left { at },
            _ => return None,
        })
    }
}

/// An order of the parent, one on each line of a member's standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Let the workers work.
    Work,
    /// Let the workers end their operations, and tell.
    Rest,
    /// Add some elements to each pool.
    Fill,
    /// Wait until all pools have so many members, all of them vote, and this one serves.
    Settle(usize),
    /// Tell the elements of the stores.
    Hold,
    /// Leave a pool, and join it again.
    Renew(usize),
    /// Leave a pool.
    Quit(usize),
    /// Join a pool that the member has left.
    Enter(usize),
    /// Take all elements of all pools.
    Drain,
    /// Lose an element of each pool: a planned break.
    Lose,
    /// Leave the group, and end.
    Leave,
}

impl Order {
    pub(super) fn line(self) -> String {
        match self {
            Order::Work => "work\n".to_owned(),
            Order::Rest => "rest\n".to_owned(),
            Order::Fill => "fill\n".to_owned(),
            Order::Settle(members) => format!("settle {members}\n"),
            Order::Hold => "hold\n".to_owned(),
            Order::Renew(pool) => format!("renew {pool}\n"),
            Order::Quit(pool) => format!("quit {pool}\n"),
            Order::Enter(pool) => format!("enter {pool}\n"),
            Order::Drain => "drain\n".to_owned(),
            Order::Lose => "lose\n".to_owned(),
            Order::Leave => "leave\n".to_owned(),
        }
    }

    pub(super) fn parse(line: &str) -> Option<Order> {
        let line = line.trim_end();
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let pool = || rest.parse().ok().filter(|pool| *pool < POOLS);
        Some(match word {
            "work" => Order::Work,
            "rest" => Order::Rest,
            "fill" => Order::Fill,
            "settle" => Order::Settle(rest.parse().ok()?),
            "hold" => Order::Hold,
            "renew" => Order::Renew(pool()?),
            "quit" => Order::Quit(pool()?),
            "enter" => Order::Enter(pool()?),
            "drain" => Order::Drain,
            "lose" => Order::Lose,
            "leave" => Order::Leave,
            _ => return None,
        })
    }
}

/// The part of a member. It arrives on the standard input, since arguments of a process are no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) key: GroupKey,
    /// The right to all names, unless this member founds the group.
    pub(super) root: Option<String>,
    /// The endpoint of the transport.
    pub(super) endpoint: String,
    /// The number of the process in its group, from 1.
    pub(super) number: u32,
    /// The number of worker threads.
    pub(super) workers: u64,
    pub(super) seed: u64,
    pub(super) broken: Option<Break>,
    /// Endpoints of living members.
    pub(super) seeds: Vec<String>,
}

impl Part {
    pub(super) fn line(&self) -> String {
        let broken = Break::ALL.iter().find(|(_, planned)| Some(*planned) == self.broken);
        let broken = broken.map_or("-", |(name, _)| name);
        let root = self.root.as_deref().unwrap_or("-");
        let (key, endpoint, seeds) = (self.key, &self.endpoint, self.seeds.join(","));
        let (number, workers, seed) = (self.number, self.workers, self.seed);
        format!("{key} {root} {endpoint} {number} {workers} {seed} {broken} {seeds}\n")
    }

    pub(super) fn parse(line: &str) -> Option<Part> {
        let fields: Vec<&str> = line.trim_end_matches('\n').split(' ').collect();
        let [key, root, endpoint, number, workers, seed, broken, seeds] = fields[..] else { return None };
        let broken = match broken {
            "-" => None,
            name => Some(Break::ALL.iter().find(|(known, _)| *known == name)?.1),
        };
        Some(Part {
            key: key.parse().ok()?,
            root: (root != "-").then(|| root.to_owned()),
            endpoint: endpoint.to_owned(),
            number: number.parse().ok()?,
            workers: workers.parse().ok()?,
            seed: seed.parse().ok()?,
            broken,
            seeds: seeds.split(',').filter(|seed| !seed.is_empty()).map(str::to_owned).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_orders_and_parts_arrive() {
        let (pool, worker, number, at) = (6, 4, u64::MAX, 77);
        let news = [
            News::Founded("12/".to_owned()),
            News::Ready,
            News::Add { pool, number, at },
            News::Added { pool, number, at },
            News::Refused { pool, number },
            News::Unsure { pool, number },
            News::Get { pool, worker, at },
            News::Got { pool, worker, number },
            News::Empty { pool, worker, at },
            News::Nothing { pool, worker },
            News::GivenUp { pool, worker },
            News::Calm { at },
            News::Removed { from: 3, to: at },
            News::LostAsLast { pool, lost: 2 },
            News::Quit,
            News::Renewed,
            News::Rested,
            News::Filled,
            News::Settled,
            News::Held([1, 2, 3, 4, 5, 6, 7]),
            News::Drained,
            News::Left { at },
            News::Wrong("two words".to_owned()),
        ];
        for news in news {
            assert_eq!(News::parse(news.line().trim_end()), Some(news));
        }
        for bad in ["add 7 1 1", "add 1 1", "held 1 2", "readily", "running 1 test", "calm x"] {
            assert_eq!(News::parse(bad), None, "{bad}");
        }
        use Order::*;
        for order in [Work, Rest, Fill, Settle(5), Hold, Renew(6), Quit(2), Enter(0), Drain, Lose, Leave] {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
        assert_eq!([Order::parse("renew 7"), Order::parse("settle"), Order::parse("")], [None; 3]);
        let key: GroupKey = "0123456789abcdef0123456789abcdef".parse().expect("a key");
        let founder = Part {
            key,
            root: None,
            endpoint: "a".to_owned(),
            number: 1,
            workers: 3,
            seed: u64::MAX,
            broken: None,
            seeds: Vec::new(),
        };
        let other = Part {
            root: Some("5/".to_owned()),
            broken: Some(Break::AddTwice),
            seeds: vec!["host/a".to_owned(), "host/b".to_owned()],
            ..founder.clone()
        };
        for part in [founder, other] {
            assert_eq!(Part::parse(&part.line()), Some(part));
        }
        assert_eq!(Part::parse("\n"), None);
    }
}
