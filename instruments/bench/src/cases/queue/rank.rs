//! Rank errors: the number of elements that were before each one that a get returned.
//!
//! One thread calls as several clients by turns, so the queue is at rest during each get and the count is
//! exact. Each client gets an element and puts one by turns, in a queue of 10,000 elements. The numbers are
//! equal in each run and on each machine.
//!
//! - `relaxed-S`: the relaxed form with stickiness S. `relaxed-8` has the default attributes.
//! - `local`: the local form with the default attributes. `local-unbalanced`: without moves.
//! - `strict`: all are 0.
//!
//! A row is a form and a number of clients. All clients put and get alike, and priorities are random, as in
//! the timed variants. That favours heaps of each client's own: the new element is most often the first one.

use squall::parts::queue::{Form, Queue};

use crate::case::Setting;
use crate::work::queue::random;

/// Name of the variant.
pub(super) const NAME: &str = "rank";

/// Number of elements.
const ELEMENTS: usize = 10_000;
/// Counted gets in a full run, and in a quick one.
const GETS: (usize, usize) = (200_000, 20_000);
/// Numbers of clients.
const CLIENTS: [usize; 4] = [1, 2, 8, 16];
/// Bits of a priority.
const PRIORITY_BITS: u32 = 20;

/// Counts of elements by their priorities: a Fenwick tree.
struct Present(Vec<u32>);

impl Present {
    fn new() -> Present {
        Present(vec![0; (1 << PRIORITY_BITS) + 1])
    }

    /// Adds one element, or removes one by adding the two's complement of 1.
    fn add(&mut self, priority: u64, change: u32) {
        let mut at = priority as usize + 1;
        while at < self.0.len() {
            self.0[at] = self.0[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    /// Returns the number of elements with a lower priority.
    fn before(&self, priority: u64) -> u32 {
        let (mut at, mut sum) = (priority as usize, 0u32);
        while at > 0 {
            sum = sum.wrapping_add(self.0[at]);
            at &= at - 1;
        }
        sum
    }
}

/// The rank errors of a queue.
struct Ranks {
    mean: f64,
    p99: f64,
    max: f64,
}

fn ranks(queue: &Queue<()>, clients: usize, gets: usize) -> Result<Ranks, String> {
    let mut state = 1;
    let mut next = || random(&mut state) >> (u64::BITS - PRIORITY_BITS);
    let mut present = Present::new();
    let mut put = |present: &mut Present, client: usize| {
        let priority = next();
        present.add(priority, 1);
        queue.client(client).put(priority, ()).map_err(|rejected| rejected.to_string())
    };
    for turn in 0..ELEMENTS {
        put(&mut present, turn % clients)?;
    }
    let mut ranks = Vec::with_capacity(gets);
    for turn in 0..gets {
        let found = queue.client(turn % clients).get();
        let (priority, ()) = found.ok_or("a get found the queue empty, although it is full")?;
        ranks.push(present.before(priority));
        present.add(priority, 1u32.wrapping_neg());
        put(&mut present, turn % clients)?;
    }
    ranks.sort_unstable();
    let sum: u64 = ranks.iter().map(|rank| u64::from(*rank)).sum();
    Ok(Ranks {
        mean: sum as f64 / gets as f64,
        p99: f64::from(ranks[gets * 99 / 100]),
        max: f64::from(ranks[gets - 1]),
    })
}

/// Makes the queues of the rows, with their names.
fn queues(clients: usize) -> Vec<(String, Queue<()>)> {
    let make = |form| {
        let queue = Queue::with_places(form, clients);
        (0..clients).for_each(|place| _ = queue.client(place));
        queue
    };
    let mut queues = vec![("strict".to_owned(), make(Form::Strict))];
    for stickiness in [1, 8, 16, 32] {
        let queue = make(Form::Relaxed);
        queue.attributes().set_stickiness(stickiness);
        queues.push((format!("relaxed-{stickiness}"), queue));
    }
    queues.push(("local".to_owned(), make(Form::Local)));
    let unbalanced = make(Form::Local);
    unbalanced.attributes().set_balance_every(0);
    queues.push(("local-unbalanced".to_owned(), unbalanced));
    queues
}

/// Counts the rank errors in the variant `rank`. The other variants have no such metrics.
pub(super) fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    if setting.variant.name != NAME {
        return Ok(Vec::new());
    }
    let gets = if quick { GETS.1 } else { GETS.0 };
    let mut metrics = Vec::new();
    for clients in CLIENTS {
        for (name, queue) in queues(clients) {
            let Ranks { mean, p99, max } = ranks(&queue, clients, gets)?;
            let columns = [("mean", mean), ("p99", p99), ("max", max)];
            metrics.extend(columns.map(|(column, value)| (format!("{name}/{clients}/{column}"), value)));
        }
    }
    Ok(metrics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_before_a_priority_are_counted() {
        let mut present = Present::new();
        [5, 5, 7, 0].into_iter().for_each(|priority| present.add(priority, 1));
        assert_eq!([0, 1, 5, 6, 8].map(|priority| present.before(priority)), [0, 1, 1, 3, 4]);
        present.add(5, 1u32.wrapping_neg());
        assert_eq!(present.before(8), 3);
    }

    /// Counts decide, so the target holds on each machine.
    #[test]
    fn the_default_relaxed_order_has_at_most_two_elements_per_client_before() {
        for clients in CLIENTS {
            let all = queues(clients);
            let mean = |wanted: &str| {
                let (_, queue) = all.iter().find(|(name, _)| name == wanted).expect("a known row");
                ranks(queue, clients, GETS.1).expect("a full queue").mean
            };
            assert_eq!(Queue::<()>::new(Form::Relaxed).attributes().stickiness(), 8);
            assert!(mean("relaxed-8") <= 2.0 * clients as f64);
            assert_eq!(mean("strict").to_bits(), 0.0f64.to_bits());
        }
    }
}
