//! A search on a modelled machine: many searchers with a clock each, stepped by one thread.
//!
//! Problem: turns of equal length do not show a lock that holds all searchers up.
//! Idea: each step takes time in units of a local access. The searcher with the earliest clock steps next.
//! Subproblems, counts and moves are those of the real queue.
//!
//! - I1. An access of the one heap of [`Form::Central`] begins when the one before has ended.
//! - I2. Children are put at the end of their branch, so other searchers do not see them earlier.
//!
//! Not modelled: the lock of another searcher's heap is taken as free, and caches are not modelled.
//! Source: the ratio of local and remote accesses is that of KTK, table 2 (13 and 54 µs).

use super::{SearchError, Work, finish, is_empty, open_max, proven};
use crate::{BestTour, Form, Frontier, FrontierCounts, Instance, Node, Queued};

/// An access of a searcher's own heap.
const LOCAL: u64 = 1;
/// An access of another searcher's heap.
const REMOTE: u64 = 4;
/// A branch. With it, one heap for all limits the speed-up to about 4, as Clémençon et al. measured (AD-03).
const BRANCH: u64 = 60;

/// Result of a search on a modelled machine.
#[derive(Clone, Copy, Debug)]
pub struct Modelled {
    /// Length of the proven optimum.
    pub length: u64,
    /// Time until the last searcher has ended, in local accesses.
    pub time: u64,
    /// Counts of all searchers.
    pub work: Work,
    /// Counts of the frontier.
    pub frontier: FrontierCounts,
    /// Time in which searchers waited for the lock of the one heap.
    pub lock_wait: u64,
}

/// A searcher: its clock, and the children that it puts at that time.
#[derive(Default)]
struct Searcher {
    clock: u64,
    children: Vec<Node>,
}

struct Machine<'a> {
    frontier: &'a Queued,
    /// The time at which the lock of the one heap is free.
    free_at: u64,
    lock_wait: u64,
}

impl Machine<'_> {
    /// Does `accesses` accesses of the searcher's usual heap, one after the other.
    fn access(&mut self, searcher: usize, clock: &mut u64, accesses: u64) {
        if self.frontier.form() != Form::Central {
            *clock += accesses * LOCAL;
            return;
        }
        for _ in 0..accesses {
            let begin = self.free_at.max(*clock);
            self.lock_wait += begin - *clock;
            self.free_at = begin + if searcher == 0 { LOCAL } else { REMOTE };
            *clock = self.free_at;
        }
    }

    fn put(&mut self, searcher: usize, clock: &mut u64, children: Vec<Node>) {
        self.access(searcher, clock, children.len() as u64);
        children.into_iter().for_each(|child| self.frontier.put(searcher, child));
    }

    /// Gets a subproblem. The accesses of other heaps are known from the counts.
    fn get(&mut self, searcher: usize, clock: &mut u64) -> Option<Node> {
        let before = self.frontier.counts();
        self.access(searcher, clock, 1);
        let node = self.frontier.get(searcher);
        let after = self.frontier.counts();
        let mut others = after.moved - before.moved;
        if self.frontier.form() != Form::Central {
            others += after.remote_gets.zip(before.remote_gets).map_or(0, |(after, before)| after - before);
        }
        *clock += others * REMOTE;
        node
    }
}

/// Solves an instance on the modelled machine.
///
/// # Errors
/// [`SearchError`] if the queue loses a subproblem, or there are too many.
///
/// # Panics
/// If there is no searcher.
///
/// ```
/// use squall_tsp::{Form, Queued, modelled, shipped};
///
/// let instance = shipped::find("plane12").unwrap().instance();
/// let time = |searchers| modelled(&instance, &Queued::new(Form::Ring, searchers), searchers).unwrap().time;
/// assert!(time(2) < time(1));
/// ```
pub fn modelled(instance: &Instance, frontier: &Queued, searchers: usize) -> Result<Modelled, SearchError> {
    assert!(searchers > 0, "a search has a searcher");
    let (best, mut work) = (BestTour::new(), Work::default());
    let mut machine = Machine { frontier, free_at: 0, lock_wait: 0 };
    let mut all: Vec<Searcher> = (0..searchers).map(|_| Searcher::default()).collect();
    let mut open = 0;
    if let Some(root) = Node::root(instance) {
        (all[0].children, open) = (vec![root], 1_u64);
    }
    let mut time = 0;
    while open > 0 {
        let searcher = (0..searchers).min_by_key(|it| all[*it].clock).expect("there is a searcher");
        let Searcher { mut clock, children } = std::mem::take(&mut all[searcher]);
        machine.put(searcher, &mut clock, children);
        let mut next = Vec::new();
        if let Some(node) = machine.get(searcher, &mut clock) {
            let expanded = work.expanded;
            next = finish(node, instance, &best, &mut work);
            open = (open + next.len() as u64).checked_sub(1).ok_or(SearchError::Invented)?;
            clock += BRANCH * (work.expanded - expanded);
        } else {
            work.waits += 1;
            if all.iter().all(|it| it.children.is_empty()) {
                return Err(SearchError::Lost { open });
            }
        }
        time = time.max(clock);
        all[searcher] = Searcher { clock, children: next };
        if open > open_max(instance) {
            return Err(SearchError::TooManyOpen { open });
        }
    }
    if !is_empty(frontier, searchers) {
        return Err(SearchError::Invented);
    }
    let length = proven(&best).length();
    Ok(Modelled { length, time, work, frontier: frontier.counts(), lock_wait: machine.lock_wait })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    fn run(name: &str, form: Form, searchers: usize) -> Modelled {
        let instance = shipped::find(name).expect("it is shipped").instance();
        let found = modelled(&instance, &Queued::new(form, searchers), searchers).expect("an optimum");
        assert_eq!(Some(found.length), instance.stated_optimum(), "{name}, {form:?}, {searchers}");
        found
    }

    #[test]
    fn each_shipped_instance_has_its_optimum_in_each_form() {
        for it in shipped::ALL {
            for form in Form::ALL {
                let _ = run(it.name(), form, 5);
            }
        }
    }

    #[test]
    fn one_searcher_takes_the_time_of_its_steps() {
        let Modelled { time, work, lock_wait, .. } = run("plane10", Form::Central, 1);
        // Each subproblem is put and taken once. The last get finds the queue empty, if it comes to that.
        let accesses = 2 * (work.expanded + work.pruned) + work.waits;
        assert_eq!((time, lock_wait), (BRANCH * work.expanded + LOCAL * accesses, 0));
    }

    #[test]
    fn ex_q4_one_heap_limits_the_speed_up_and_the_ring_does_not() {
        let time = |form, searchers| run("plane16", form, searchers).time as f64;
        let alone = time(Form::Central, 1);
        let speed_up = |form| alone / time(form, 16);
        let (central, ring) = (speed_up(Form::Central), speed_up(Form::Ring));
        assert!((3.0..5.0).contains(&central), "{central}");
        assert!(ring > 2.0 * central, "{ring}");
        assert!(speed_up(Form::Naive) < central);
        assert!(run("plane16", Form::Central, 16).lock_wait > 0);
    }
}
