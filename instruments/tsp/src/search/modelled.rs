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
//! Source: the ratios of local and remote accesses are those of KTK, tables 1 and 2.

use super::{SearchError, Work, finish, is_empty, open_max, proven};
use crate::{BestTour, Form, Frontier, FrontierCounts, Instance, Node, Queued};

/// The costs of a modelled machine, in any unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An access of a searcher's own heap.
    pub local: u64,
    /// An access of another searcher's heap.
    pub remote: u64,
    /// A branch.
    pub branch: u64,
}

impl Costs {
    /// A Kendall Square KSR1: a remote access takes about 4 times as long as a local one (54 and 13 µs). With
    /// this branch, one heap for all limits the speed-up to about 4, as Clémençon et al. measured (AD-03).
    pub const KSR1: Costs = Costs { local: 1, remote: 4, branch: 60 };
    /// A BBN Butterfly GP1000: a remote access takes about twice as long as a local one (110 and 51 µs).
    pub const BBN: Costs = Costs { local: 1, remote: 2, branch: 60 };
}

/// Result of a search on a modelled machine.
#[derive(Clone, Debug)]
pub struct Modelled {
    /// Length of the proven optimum.
    pub length: u64,
    /// Time until the last searcher has ended.
    pub time: u64,
    /// Counts of all searchers.
    pub work: Work,
    /// Counts of the frontier.
    pub frontier: FrontierCounts,
    /// Begin and end of each wait for the lock of the one heap.
    pub lock_waits: Vec<(u64, u64)>,
}

impl Modelled {
    /// The sum of all waits for the lock of the one heap.
    #[must_use]
    pub fn lock_wait(&self) -> u64 {
        self.lock_waits.iter().map(|(begin, end)| end - begin).sum()
    }

    /// The mean number of searchers that wait for the lock of the one heap, in each of `spans` equal parts of
    /// the time.
    ///
    /// # Panics
    /// If `spans` is zero.
    #[must_use]
    pub fn waiting(&self, spans: usize) -> Vec<f64> {
        assert!(spans > 0, "the time has a part");
        let span = self.time as f64 / spans as f64;
        let mut waiting = vec![0.0; spans];
        for &(begin, end) in &self.lock_waits {
            let (begin, end) = (begin as f64 / span, end as f64 / span);
            let touched = begin as usize..(end.ceil() as usize).min(spans);
            for (at, waiting) in touched.clone().zip(&mut waiting[touched]) {
                *waiting += end.min(at as f64 + 1.0) - begin.max(at as f64);
            }
        }
        waiting
    }
}

/// A searcher: its clock, and the children that it puts at that time.
#[derive(Default)]
struct Searcher {
    clock: u64,
    children: Vec<Node>,
}

struct Machine<'a> {
    frontier: &'a Queued,
    costs: Costs,
    /// The time at which the lock of the one heap is free.
    free_at: u64,
    lock_waits: Vec<(u64, u64)>,
}

impl Machine<'_> {
    /// Does `accesses` accesses of the searcher's usual heap, one after the other.
    fn access(&mut self, searcher: usize, clock: &mut u64, accesses: u64) {
        if self.frontier.form() != Form::Central {
            *clock += accesses * self.costs.local;
            return;
        }
        for _ in 0..accesses {
            let begin = self.free_at.max(*clock);
            if begin > *clock {
                self.lock_waits.push((*clock, begin));
            }
            self.free_at = begin + if searcher == 0 { self.costs.local } else { self.costs.remote };
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
        *clock += others * self.costs.remote;
        node
    }
}

/// Solves an instance on the modelled machine.
///
/// # Errors
/// [`SearchError`] if the queue loses a subproblem, or there are too many.
///
/// # Panics
/// If there is no searcher, or the form is not [modelled](Form::modelled).
///
/// ```
/// use squall_tsp::{Costs, Form, Queued, modelled, shipped};
///
/// let instance = shipped::find("plane12").unwrap().instance();
/// let time = |searchers| {
///     modelled(&instance, &Queued::new(Form::Ring, searchers), searchers, Costs::KSR1).unwrap().time
/// };
/// assert!(time(2) < time(1));
/// ```
pub fn modelled(
    instance: &Instance,
    frontier: &Queued,
    searchers: usize,
    costs: Costs,
) -> Result<Modelled, SearchError> {
    assert!(searchers > 0, "a search has a searcher");
    let form = frontier.form();
    assert!(
        form.can_step(searchers) && form != Form::Adaptive,
        "the form {} is not modelled here for {searchers} searchers",
        form.name()
    );
    let (best, mut work) = (BestTour::new(), Work::default());
    let mut machine = Machine { frontier, costs, free_at: 0, lock_waits: Vec::new() };
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
            clock += costs.branch * (work.expanded - expanded);
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
    Ok(Modelled { length, time, work, frontier: frontier.counts(), lock_waits: machine.lock_waits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shipped;

    const COSTS: Costs = Costs::KSR1;

    fn run(name: &str, form: Form, searchers: usize) -> Modelled {
        let instance = shipped::find(name).expect("it is shipped").instance();
        let found = modelled(&instance, &Queued::new(form, searchers), searchers, COSTS).expect("an optimum");
        assert_eq!(Some(found.length), instance.stated_optimum(), "{name}, {form:?}, {searchers}");
        found
    }

    #[test]
    fn each_shipped_instance_has_its_optimum_in_each_form() {
        for it in shipped::ALL {
            for form in Form::modelled(5) {
                let _ = run(it.name(), form, 5);
            }
        }
    }

    #[test]
    fn one_searcher_takes_the_time_of_its_steps() {
        let Modelled { time, work, lock_waits, .. } = run("plane10", Form::Central, 1);
        // Each subproblem is put and taken once. The last get finds the queue empty, if it comes to that.
        let accesses = 2 * (work.expanded + work.pruned) + work.waits;
        assert_eq!((time, lock_waits), (COSTS.branch * work.expanded + COSTS.local * accesses, Vec::new()));
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
    }

    #[test]
    fn the_waits_of_all_spans_add_up() {
        let found = run("plane14", Form::Central, 10);
        for spans in [1, 7, 50] {
            let waiting = found.waiting(spans);
            let sum = waiting.iter().sum::<f64>() * found.time as f64 / spans as f64;
            assert!((sum - found.lock_wait() as f64).abs() < 1e-6 * sum, "{sum} of {}", found.lock_wait());
            // The holder does not wait.
            assert!(waiting.iter().all(|waiting| (0.0..=9.0 + 1e-9).contains(waiting)), "{waiting:?}");
        }
        assert_eq!(run("plane14", Form::Ring, 10).lock_wait(), 0);
    }
}
