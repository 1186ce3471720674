//! The books: all adds and gets of all members, and their judgement at the end of a round.
//!
//! - I1. An element goes to one caller, whose get names it. It was added, and its add was not refused.
//! - I2. At the end of a round a member takes all elements of the pools. An element that no get has taken is
//!   *missing*. Only deaths and removals explain that.
//! - I3. A death explains a missing element if the add of the element had begun before the member was dead.
//!   A removal explains as many elements as may have been on their way to or from the member.
//! - I4. In an *exact* round all workers rest, and the stores of the living have all elements. Then a member
//!   dies, or is stopped, or all leave a pool. The missing elements are as many as the dead member had, or as
//!   the last one of the pool has told, or none.
//! - I5. An element is in its pool from the end of its add to the beginning of the get that takes it. A get
//!   in this time does not find the pool empty, except while a member is removed and not yet back.
//!
//! A member that is removed tells the time (`member/I2`). All times are those of one clock.

use std::collections::HashMap;
use std::sync::Mutex;

use super::news::News;
use super::rules::{BULK, LEASE, POOLS, Time, moves_when_idle, pool_name};
use crate::fleets::Spans;
use crate::run::lock;

/// The end of an add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum End {
    #[default]
    Open,
    Added(Time),
    Refused,
    Unsure,
}

/// An element.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The time at which the add began.
    began: Option<Time>,
    end: End,
    /// The time at which the get began that took it.
    got: Option<Time>,
}

/// The removal of a node from its group, up to the return of its elements.
#[derive(Clone, Copy, Debug)]
struct Removal {
    process: u32,
    from: Time,
    to: Time,
}

/// The death of a member.
#[derive(Clone, Copy, Debug)]
struct Death {
    /// A time before it, and one after it.
    before: Time,
    after: Time,
    /// For each pool, the beginning of the member's earliest get that was open.
    gets: [Option<Time>; POOLS],
}

/// The events of a round.
#[derive(Debug, Default)]
struct Round {
    /// The time at which the round began.
    began: Time,
    /// The times of the gets that found a pool empty.
    empty: [Vec<(Time, Time)>; POOLS],
    /// Times in which elements of a pool may be outside of it.
    outside: [Vec<(Time, Time)>; POOLS],
    /// Pools in which a get was given up that may have had an element.
    given_up: [bool; POOLS],
    removals: Vec<Removal>,
    deaths: Vec<Death>,
    /// Pools that all members have left at once.
    ends: [bool; POOLS],
    /// Elements that a last member had when it left.
    last_lost: [u64; POOLS],
}

/// A round whose members rested before one died or was stopped, or before all left a pool (I4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    /// The member that died or was stopped.
    pub(super) process: Option<u32>,
    /// The time at which the members rested.
    pub(super) since: Time,
    /// For each pool, the elements that go with the member, if they are known.
    pub(super) lost: [Option<u64>; POOLS],
}

/// The end of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Balanced,
    /// Elements of this pool are missing that a get may still give back.
    Held(usize),
}

/// The sums of all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) added: u64,
    pub(super) got: u64,
    pub(super) empty: u64,
    /// Gets that found a pool empty, and that were compared with the elements.
    pub(super) compared: u64,
    pub(super) refused: u64,
    pub(super) unsure: u64,
    pub(super) removals: u64,
    /// Elements that went with dead members.
    pub(super) lost: u64,
    /// Elements that went with the last members of pools.
    pub(super) ended: u64,
    /// Pools of exact rounds.
    pub(super) exact: u64,
}

impl Sums {
    /// Adds the sums of other books.
    pub(super) fn plus(self, other: &Sums) -> Sums {
        Sums {
            added: self.added + other.added,
            got: self.got + other.got,
            empty: self.empty + other.empty,
            compared: self.compared + other.compared,
            refused: self.refused + other.refused,
            unsure: self.unsure + other.unsure,
            removals: self.removals + other.removals,
            lost: self.lost + other.lost,
            ended: self.ended + other.ended,
            exact: self.exact + other.exact,
        }
    }
}

#[derive(Debug, Default)]
struct Ledger {
    entries: [HashMap<u64, Entry>; POOLS],
    /// The numbers of elements that are no longer in a pool, by the process that added them.
    closed: HashMap<u32, Spans>,
    /// The gets that are under way, by process and thread: the pool, and the beginning.
    gets: HashMap<(u32, u64), (usize, Time)>,
    /// The last times at which nodes were members.
    calm: HashMap<u32, Time>,
    round: Round,
    sums: Sums,
    wrong: Option<String>,
}

/// Everything that members have told.
#[derive(Debug, Default)]
pub(super) struct Books(Mutex<Ledger>);

/// Describes an element.
fn name(number: u64, pool: usize) -> String {
    format!("element {} of member {} in {}", number as u32, number >> 32, pool_name(pool))
}

/// Returns the process that added an element.
fn adder(number: u64) -> u32 {
    (number >> 32) as u32
}

impl Books {
    /// Notes a broken promise. The first one stays.
    pub(super) fn fail(&self, why: String) {
        lock(&self.0).wrong.get_or_insert(why);
    }

    /// Returns the broken promise, if there is one.
    pub(super) fn check(&self) -> Result<(), String> {
        lock(&self.0).wrong.clone().map_or(Ok(()), Err)
    }

    pub(super) fn sums(&self) -> Sums {
        lock(&self.0).sums
    }

    /// Returns the number of removals in this round.
    pub(super) fn removals(&self) -> usize {
        lock(&self.0).round.removals.len()
    }

    /// Notes that all gets of a pool that were given up have given their elements back.
    pub(super) fn note_given_back(&self, pool: usize) {
        lock(&self.0).round.given_up[pool] = false;
    }

    /// Notes that all members leave a pool now.
    pub(super) fn note_end(&self, pool: usize) {
        lock(&self.0).round.ends[pool] = true;
    }

    /// Notes news of a process.
    pub(super) fn note(&self, process: u32, news: &News) {
        let mut ledger = lock(&self.0);
        if let Err(why) = ledger.note(process, news) {
            ledger.wrong.get_or_insert(why);
        }
    }

    /// Notes that a process was killed between two times. All of its news is here.
    pub(super) fn note_death(&self, process: u32, before: Time, after: Time) {
        let mut ledger = lock(&self.0);
        let mut death = Death { before, after, gets: [None; POOLS] };
        for (_, (pool, began)) in ledger.gets.extract_if(|(of, _), _| *of == process) {
            let earliest = &mut death.gets[pool];
            *earliest = Some(earliest.map_or(began, |before| before.min(began)));
        }
        // A removal before the death was not told perhaps.
        let calm = ledger.calm.remove(&process).unwrap_or(0);
        for (pool, began) in death.gets.iter().enumerate() {
            let from = began.map_or(calm, |began| began.min(calm));
            ledger.round.outside[pool].push((from, after));
        }
        ledger.end_adds(process);
        ledger.round.deaths.push(death);
    }

    /// Notes that a process has left and ended. All of its news is here.
    pub(super) fn note_left(&self, process: u32) {
        let mut ledger = lock(&self.0);
        let open: Vec<_> = ledger.gets.extract_if(|(of, _), _| *of == process).collect();
        for (_, (pool, began)) in open {
            ledger.round.outside[pool].push((began, Time::MAX));
            ledger.round.given_up[pool] = true;
        }
        ledger.calm.remove(&process);
        ledger.end_adds(process);
    }

    /// Returns the number of elements of each pool, if it is known.
    pub(super) fn expected(&self) -> [Option<u64>; POOLS] {
        let ledger = lock(&self.0);
        std::array::from_fn(|pool| {
            let mut here = 0;
            for entry in ledger.entries[pool].values().filter(|entry| entry.got.is_none()) {
                match entry.end {
                    End::Added(_) => here += 1,
                    End::Refused => {}
                    // One of an earlier round was not found since.
                    End::Unsure if entry.began.is_some_and(|began| began < ledger.round.began) => {}
                    End::Open | End::Unsure => return None,
                }
            }
            Some(here).filter(|_| !ledger.round.given_up[pool])
        })
    }

    /// Judges the round, and begins the next one. A member has emptied the pools from `drained` on, and all
    /// members are calm since. `members` bounds the number of members in the round.
    pub(super) fn judge(
        &self,
        members: u64,
        exact: Option<&Exact>,
        drained: Time,
    ) -> Result<Verdict, String> {
        let mut ledger = lock(&self.0);
        if let Some(why) = &ledger.wrong {
            return Err(why.clone());
        }
        let mut sums = ledger.sums;
        for pool in 0..POOLS {
            let missing = ledger.missing(pool, drained)?;
            let explained = ledger.explain(pool, &missing, members);
            match explained {
                Err(_) if ledger.round.given_up[pool] => return Ok(Verdict::Held(pool)),
                explained => explained?,
            }
            if let Some(exact) = exact
                && ledger.compare_exact(pool, missing.len() as u64, members, exact)?
            {
                sums.exact += 1;
            }
            sums.compared += ledger.compare_empty(pool, &missing)?;
            let ended = ledger.round.last_lost[pool].min(missing.len() as u64);
            sums.ended += ended;
            sums.lost += missing.len() as u64 - ended;
        }
        ledger.sums = sums;
        ledger.begin_round(drained);
        Ok(Verdict::Balanced)
    }
}

impl Ledger {
    fn note(&mut self, process: u32, news: &News) -> Result<(), String> {
        match *news {
            News::Add { pool, number, at } => self.entry(pool, number)?.began = Some(at),
            News::Added { pool, number, at } => {
                self.sums.added += 1;
                self.entry(pool, number)?.end = End::Added(at);
            }
            News::Refused { pool, number } => {
                self.sums.refused += 1;
                self.entry(pool, number)?.end = End::Refused;
            }
            News::Unsure { pool, number } => {
                self.sums.unsure += 1;
                self.entry(pool, number)?.end = End::Unsure;
            }
            News::Get { pool, worker, at } => _ = self.gets.insert((process, worker), (pool, at)),
            News::Got { pool, worker, number } => {
                self.sums.got += 1;
                let began = self.end_get(process, worker)?;
                let entry = self.entry(pool, number)?;
                if entry.got.replace(began).is_some() {
                    return Err(format!("{} went to two callers", name(number, pool)));
                }
            }
            News::Empty { pool, worker, at } => {
                self.sums.empty += 1;
                let began = self.end_get(process, worker)?;
                self.round.empty[pool].push((began, at));
            }
            News::Nothing { worker, .. } => _ = self.end_get(process, worker)?,
            News::GivenUp { pool, worker } => {
                let began = self.end_get(process, worker)?;
                // Its element may come back at any later time.
                self.round.outside[pool].push((began, Time::MAX));
                self.round.given_up[pool] = true;
            }
            News::Calm { at } => _ = self.calm.insert(process, at),
            News::Removed { from, to } => self.remove(process, from, to),
            News::Left { at } => {
                let calm = self.calm.get(&process).copied().unwrap_or(at);
                if at - calm > LEASE {
                    // Perhaps it was removed while it left.
                    self.remove(process, calm, at);
                } else {
                    self.round.outside.iter_mut().for_each(|outside| outside.push((calm, at)));
                }
            }
            News::LostAsLast { pool, lost } => self.round.last_lost[pool] += lost,
            News::Wrong(ref why) => return Err(format!("in a member: {why}")),
            _ => {}
        }
        Ok(())
    }

    fn remove(&mut self, process: u32, from: Time, to: Time) {
        self.sums.removals += 1;
        self.round.removals.push(Removal { process, from, to });
        self.round.outside.iter_mut().for_each(|outside| outside.push((from, to)));
    }

    /// Returns the entry of an element. The news of several processes arrives in any order.
    fn entry(&mut self, pool: usize, number: u64) -> Result<&mut Entry, String> {
        if self.closed.get(&adder(number)).is_some_and(|closed| closed.has(number)) {
            return Err(format!("{} went to two callers, or was found after its loss", name(number, pool)));
        }
        Ok(self.entries[pool].entry(number).or_default())
    }

    fn end_get(&mut self, process: u32, worker: u64) -> Result<Time, String> {
        let get = self.gets.remove(&(process, worker));
        get.map(|(_, began)| began).ok_or_else(|| "a get ended that had not begun".to_owned())
    }

    /// Ends the adds of a process that has ended.
    fn end_adds(&mut self, process: u32) {
        for (number, entry) in self.entries.iter_mut().flatten() {
            if adder(*number) == process && entry.end == End::Open && entry.began.is_some() {
                entry.end = End::Unsure;
            }
        }
    }

    /// Returns the missing elements of a pool (I2), with the beginnings and ends of their adds.
    fn missing(&self, pool: usize, drained: Time) -> Result<Vec<(u64, Time, Time)>, String> {
        let mut missing = Vec::new();
        for (number, entry) in &self.entries[pool] {
            let Some(began) = entry.began else {
                return Err(format!("{} went to a caller, and was not added", name(*number, pool)));
            };
            match (entry.end, entry.got) {
                (End::Refused, Some(_)) => {
                    return Err(format!("the add of {} was refused, and a get has it", name(*number, pool)));
                }
                // A watch may add while the pools are emptied.
                (End::Added(at), None) if began < drained => missing.push((*number, began, at)),
                _ => {}
            }
        }
        missing.sort_unstable();
        Ok(missing)
    }

    /// Checks that deaths and removals explain the missing elements (I3).
    fn explain(&self, pool: usize, missing: &[(u64, Time, Time)], members: u64) -> Result<(), String> {
        let died = |began: Time| self.round.deaths.iter().any(|death| began <= death.after);
        let unexplained: Vec<_> = missing.iter().filter(|(_, began, _)| !died(*began)).collect();
        let Some((number, began, _)) = unexplained.first() else { return Ok(()) };
        let removals = self.round.removals.iter().filter(|removal| *began <= removal.to).count() as u64;
        // Asked for by the member, asked of it, and offered by it, with each other member.
        let on_their_way = 3 * BULK as u64 * members * removals;
        // A removed member may have been alone in its view.
        let may_end = removals > 0 || self.round.ends[pool];
        let last = if may_end { self.round.last_lost[pool] } else { 0 };
        if unexplained.len() as u64 <= on_their_way + last {
            return Ok(());
        }
        Err(format!(
            "{} and {} others are gone; deaths explain none of them, and {removals} removals explain {}",
            name(*number, pool),
            unexplained.len() - 1,
            on_their_way + last
        ))
    }

    /// Compares the number of missing elements with that of an exact round (I4). Returns whether it could.
    fn compare_exact(&self, pool: usize, missing: u64, members: u64, exact: &Exact) -> Result<bool, String> {
        let others = |removal: &Removal| removal.to < exact.since || Some(removal.process) != exact.process;
        let Some(lost) = exact.lost[pool].filter(|_| !self.round.removals.iter().any(others)) else {
            return Ok(false);
        };
        let Some(process) = exact.process else {
            let told = self.round.last_lost[pool];
            return match missing == lost + told {
                true => Ok(true),
                false => Err(format!(
                    "{} has lost {missing} elements, but its last member told {told} when all left",
                    pool_name(pool)
                )),
            };
        };
        // Idle members of the others move elements.
        let moving = if moves_when_idle(pool) { BULK as u64 * members } else { 0 };
        if missing.abs_diff(lost) <= moving {
            return Ok(true);
        }
        Err(format!(
            "{} has lost {missing} elements, but {lost} were lost with member {process}",
            pool_name(pool)
        ))
    }

    /// Compares the gets that found a pool empty with its elements (I5). Returns their number.
    fn compare_empty(&self, pool: usize, missing: &[(u64, Time, Time)]) -> Result<u64, String> {
        // The elements by the ends of their adds, each with the longest presence of those before.
        let got = self.entries[pool].iter().filter_map(|(number, entry)| match (entry.end, entry.got) {
            (End::Added(at), Some(got)) => Some((at, got, *number)),
            _ => None,
        });
        let lost = missing.iter().map(|(number, _, at)| (*at, self.lost_after(pool, *at), *number));
        let mut present: Vec<(Time, Time, u64)> = got.chain(lost).collect();
        present.sort_unstable();
        let mut longest = (0, 0);
        for (_, until, number) in &mut present {
            longest = longest.max((*until, *number));
            (*until, *number) = longest;
        }
        let mut compared = 0;
        for (began, ended) in &self.round.empty[pool] {
            let is_outside = |(from, to): &(Time, Time)| from <= ended && began <= to;
            if self.round.outside[pool].iter().any(is_outside) {
                continue;
            }
            compared += 1;
            let before = present.partition_point(|(at, _, _)| at <= began);
            if let Some((_, until, number)) = before.checked_sub(1).map(|last| present[last])
                && until >= *ended
            {
                return Err(format!(
                    "a get found {} empty, but {} was there from {} us before its begin to {} us after its end",
                    pool_name(pool),
                    name(number, pool),
                    (began - present[before - 1].0.min(*began)) / 1000,
                    (until - ended) / 1000
                ));
            }
        }
        Ok(compared)
    }

    /// Returns the time until which a missing element was surely in its pool.
    fn lost_after(&self, pool: usize, added: Time) -> Time {
        let deaths = self.round.deaths.iter().filter(|death| death.after >= added);
        let deaths = deaths.map(|death| death.gets[pool].map_or(death.before, |get| get.min(death.before)));
        let removals = self.round.removals.iter().filter(|removal| removal.to >= added);
        deaths.chain(removals.map(|removal| removal.from)).min().unwrap_or(added)
    }

    /// Closes the elements that are no longer in the pools.
    fn begin_round(&mut self, drained: Time) {
        for entries in &mut self.entries {
            entries.retain(|number, entry| {
                let is_late = entry.began.is_none_or(|began| began >= drained);
                let stays = entry.got.is_none()
                    && match entry.end {
                        End::Open | End::Unsure => true,
                        End::Added(_) => is_late,
                        End::Refused => false,
                    };
                if !stays {
                    self.closed.entry(adder(*number)).or_default().add(*number);
                }
                stays
            });
        }
        self.round = Round { began: drained, ..Round::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: usize = 1;

    fn add(books: &Books, number: u64, began: Time, ended: Time) {
        books.note(1, &News::Add { pool: HERE, number, at: began });
        books.note(1, &News::Added { pool: HERE, number, at: ended });
    }

    /// Begins a get of process 2.
    fn get(books: &Books, worker: u64, at: Time) {
        books.note(2, &News::Get { pool: HERE, worker, at });
    }

    fn got(books: &Books, worker: u64, number: u64) {
        books.note(2, &News::Got { pool: HERE, worker, number });
    }

    fn empty(books: &Books, began: Time, ended: Time) {
        get(books, 0, began);
        books.note(2, &News::Empty { pool: HERE, worker: 0, at: ended });
    }

    fn judge(books: &Books, exact: Option<&Exact>) -> Result<Verdict, String> {
        books.judge(3, exact, 1000)
    }

    fn exact(lost: u64) -> Exact {
        Exact { process: Some(3), since: 400, lost: [Some(lost); POOLS] }
    }

    #[track_caller]
    fn wrong(books: &Books, clue: &str) {
        let why = judge(books, None).expect_err("the books must not balance");
        assert!(why.contains(clue), "{why}");
    }

    #[test]
    fn an_element_goes_to_one_caller_and_was_added() {
        let books = Books::default();
        add(&books, 7, 100, 110);
        get(&books, 0, 120);
        got(&books, 0, 7);
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        assert_eq!((books.sums().added, books.sums().got, books.sums().lost), (1, 1, 0));
        // In a later round, too.
        get(&books, 0, 1100);
        got(&books, 0, 7);
        wrong(&books, "went to two callers");

        let books = Books::default();
        get(&books, 0, 120);
        got(&books, 0, 9);
        wrong(&books, "was not added");
        books.note(1, &News::Add { pool: HERE, number: 9, at: 100 });
        books.note(1, &News::Refused { pool: HERE, number: 9 });
        wrong(&books, "was refused, and a get has it");
        get(&books, 1, 120);
        got(&books, 1, 9);
        wrong(&books, "went to two callers");
    }

    #[test]
    fn a_missing_element_needs_a_death_or_a_removal() {
        let books = Books::default();
        add(&books, 7, 100, 110);
        wrong(&books, "deaths explain none of them, and 0 removals explain 0");
        // A death before the add explains nothing, and a later one does.
        books.note_death(3, 50, 90);
        wrong(&books, "are gone");
        books.note_death(4, 150, 190);
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        assert_eq!(books.sums().lost, 1);
        // It was lost for good.
        get(&books, 0, 1100);
        got(&books, 0, 7);
        wrong(&books, "was found after its loss");

        // A removal explains so many.
        let books = Books::default();
        let most = 3 * BULK as u64 * 3;
        (0..most).for_each(|number| add(&books, number, 100, 110));
        books.note(3, &News::Removed { from: 200, to: 300 });
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        (most..=2 * most).for_each(|number| add(&books, number, 100, 110));
        books.note(3, &News::Removed { from: 200, to: 300 });
        wrong(&books, "and 1 removals explain");
    }

    #[test]
    fn adds_without_an_end_may_be_missing() {
        let (books, open) = (Books::default(), (1 << 32) | 8);
        books.note(1, &News::Add { pool: HERE, number: 7, at: 100 });
        books.note(1, &News::Unsure { pool: HERE, number: 7 });
        books.note(1, &News::Add { pool: HERE, number: open, at: 100 });
        books.note_death(1, 120, 130);
        assert_eq!(books.expected()[HERE], None);
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        assert_eq!(books.expected()[HERE], Some(0));
        // They may be found later, once.
        for number in [7, open] {
            get(&books, 0, 1100);
            got(&books, 0, number);
        }
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        get(&books, 0, 1100);
        got(&books, 0, 7);
        wrong(&books, "two callers");
    }

    #[test]
    fn an_exact_round_has_an_exact_loss() {
        for (lost, is_right) in [(0, false), (1, true), (2, false)] {
            let books = Books::default();
            add(&books, 7, 100, 110);
            assert_eq!(books.expected()[HERE], Some(1));
            books.note_death(3, 500, 510);
            let mut exact = exact(0);
            exact.lost[HERE] = Some(lost);
            assert_eq!(judge(&books, Some(&exact)).is_ok(), is_right, "{lost}");
        }
        // The removal of another member makes it inexact, and an earlier one. That of the stopped one does
        // not.
        for (process, from, is_right) in [(2, 450, true), (3, 200, true), (3, 450, false)] {
            let books = Books::default();
            add(&books, 7, 100, 110);
            books.note(process, &News::Removed { from, to: from + 100 });
            assert_eq!(judge(&books, Some(&exact(0))).is_ok(), is_right, "{process}");
        }
    }

    #[test]
    fn the_last_member_of_a_pool_tells_its_loss() {
        let at_end = Exact { process: None, ..exact(0) };
        for (told, is_right) in [(0, false), (1, false), (2, true), (3, false)] {
            let books = Books::default();
            (7..9).for_each(|number| add(&books, number, 100, 110));
            books.note_end(HERE);
            books.note(2, &News::LostAsLast { pool: HERE, lost: told });
            assert_eq!(judge(&books, Some(&at_end)).is_ok(), is_right, "{told}");
            let sums = books.sums();
            assert_eq!((sums.lost, sums.ended), (0, if is_right { 2 } else { 0 }), "{told}");
        }
        // Others have stayed in the pool, so the member was not the last one.
        let books = Books::default();
        add(&books, 7, 100, 110);
        books.note(2, &News::LostAsLast { pool: HERE, lost: 1 });
        wrong(&books, "are gone");
    }

    #[test]
    fn a_pool_with_an_element_is_not_empty() {
        let books = Books::default();
        add(&books, 7, 100, 110);
        // Before the end of the add, and after the begin of the get that takes it.
        empty(&books, 105, 150);
        empty(&books, 150, 250);
        get(&books, 1, 200);
        got(&books, 1, 7);
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        assert_eq!((books.sums().empty, books.sums().compared), (2, 2));

        let books = Books::default();
        add(&books, 7, 100, 110);
        add(&books, 8, 120, 125);
        empty(&books, 130, 150);
        get(&books, 1, 200);
        got(&books, 1, 7);
        get(&books, 1, 140);
        got(&books, 1, 8);
        wrong(&books, "a get found /distributed empty, but element 7 of member 0");
    }

    #[test]
    fn an_element_that_a_death_took_was_there_before() {
        let books = Books::default();
        add(&books, 7, 100, 110);
        // The get of the dead member took it perhaps.
        get(&books, 4, 160);
        books.note(2, &News::Calm { at: 195 });
        books.note_death(2, 200, 210);
        empty(&books, 150, 170);
        empty(&books, 220, 230);
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        assert_eq!(books.sums().compared, 1);

        let books = Books::default();
        add(&books, 7, 100, 110);
        books.note(2, &News::Calm { at: 195 });
        books.note_death(2, 200, 210);
        empty(&books, 150, 170);
        wrong(&books, "a get found /distributed empty");
    }

    #[test]
    fn elements_of_a_removed_member_are_outside_of_the_pool() {
        let books = Books::default();
        add(&books, 7, 100, 110);
        empty(&books, 190, 310);
        books.note(3, &News::Removed { from: 200, to: 300 });
        get(&books, 1, 400);
        got(&books, 1, 7);
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        assert_eq!((books.sums().compared, books.sums().removals), (0, 1));

        // Its elements are back.
        let books = Books::default();
        add(&books, 7, 100, 110);
        books.note(3, &News::Removed { from: 200, to: 300 });
        empty(&books, 310, 320);
        get(&books, 1, 400);
        got(&books, 1, 7);
        wrong(&books, "a get found /distributed empty");
    }

    #[test]
    fn a_get_that_was_given_up_may_give_back_late() {
        let books = Books::default();
        add(&books, 7, 100, 110);
        get(&books, 0, 120);
        books.note(2, &News::GivenUp { pool: HERE, worker: 0 });
        empty(&books, 130, 140);
        assert_eq!(judge(&books, None), Ok(Verdict::Held(HERE)));
        get(&books, 0, 150);
        got(&books, 0, 7);
        assert_eq!(judge(&books, None), Ok(Verdict::Balanced));
        assert_eq!(books.sums().compared, 0);

        let books = Books::default();
        add(&books, 7, 100, 110);
        get(&books, 0, 120);
        books.note(2, &News::GivenUp { pool: HERE, worker: 0 });
        books.note_given_back(HERE);
        wrong(&books, "are gone");
    }
}
