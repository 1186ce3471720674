//! Searches over the adaptive queue. Its policy is stepped with the searchers.
//!
//! Problem: the policy counts calls per second on a thread of its own, so its decisions depend on time.
//! Idea: virtual time. A turn of all searchers takes 20 µs of it, about a branch of 16 cities, and the rounds
//! of the policy run between turns. So the counts are equal in each run.
//!
//! A search of 16 cities is over before the policy has decided. So the queue serves several searches, one
//! after the other.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use squall::adapt::engine::VirtualTime;

use super::step::Steps;
use super::{SearchError, Stepped};
use crate::{Form, Instance, Queued};

/// Virtual time of a turn.
const TURN: Duration = Duration::from_micros(20);

/// Result of searches over one adaptive queue.
#[derive(Clone, Debug)]
pub struct Adapted {
    /// The searches in their order. The counts of the frontier are those since the first search began.
    pub found: Vec<Stepped>,
    /// Decisions of the policy, in words.
    pub changes: Vec<String>,
}

impl Adapted {
    /// The mean of a count over all searches.
    #[must_use]
    pub fn mean(&self, of: impl Fn(&Stepped) -> u64) -> f64 {
        self.found.iter().map(of).sum::<u64>() as f64 / self.found.len() as f64
    }
}

/// Solves an instance `searches` times with searchers that take turns, over one queue of the form
/// [`Form::Adaptive`]. Meanwhile the policies of all objects of the process run on virtual time.
///
/// # Errors
/// [`SearchError`] if the queue loses a subproblem, or there are too many.
///
/// # Panics
/// If there is no searcher, or no virtual topology with a VP for each one: see [`Form::can_step`].
pub fn stepped_adaptive(
    instance: &Instance,
    searchers: usize,
    searches: usize,
) -> Result<Adapted, SearchError> {
    assert!(
        Form::Adaptive.can_step(searchers),
        "an adaptive queue knows its {searchers} searchers by their VPs; set SQUALL_TOPOLOGY=cores:{searchers}"
    );
    let mut time = VirtualTime::start();
    let frontier = Queued::new(Form::Adaptive, searchers);
    // A swap takes real time. A busy machine must not roll it back.
    frontier.set("deadline", "60s");
    let search = Search {
        instance: instance.clone(),
        frontier,
        searchers,
        left: searches,
        steps: None,
        due: Duration::ZERO,
        found: Vec::new(),
        error: None,
    };
    let search = Rc::new(RefCell::new(search));
    let load = Rc::clone(&search);
    time.set_load(move |span| load.borrow_mut().run(span));
    while !time.run_until(Duration::from_secs(60), || search.borrow().is_over()) {}
    time.clear_load();
    let search = Rc::into_inner(search).expect("the load was dropped").into_inner();
    match search.error {
        Some(error) => Err(error),
        None => Ok(Adapted { found: search.found, changes: search.frontier.changes() }),
    }
}

struct Search {
    instance: Instance,
    frontier: Queued,
    searchers: usize,
    /// Searches that have not ended.
    left: usize,
    /// The present search.
    steps: Option<Steps>,
    /// Time that has passed since the last turn.
    due: Duration,
    found: Vec<Stepped>,
    error: Option<SearchError>,
}

impl Search {
    fn is_over(&self) -> bool {
        self.error.is_some() || self.left == 0
    }

    /// Makes the turns of a span.
    fn run(&mut self, span: Duration) {
        self.due += span;
        while self.due >= TURN && !self.is_over() {
            self.due -= TURN;
            self.error = self.turn().err();
        }
    }

    fn turn(&mut self) -> Result<(), SearchError> {
        let (instance, frontier) = (&self.instance, &self.frontier);
        let mut steps = self.steps.take().unwrap_or_else(|| Steps::begin(instance, frontier));
        steps.turn(instance, frontier, self.searchers)?;
        if steps.is_over() {
            self.found.push(steps.end(frontier, self.searchers)?);
            self.left -= 1;
        } else {
            self.steps = Some(steps);
        }
        Ok(())
    }
}
