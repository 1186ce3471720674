//! The dynamic program of Held and Karp: the optimum of a small instance, for comparison.
//!
//! - I1. `cost(set, last)` is the length of the shortest path from city 0 through all cities of `set`, with
//!   the end `last`. Sets are computed in ascending order, so all their subsets come before.
//!
//! Cost: for n cities, n·2ⁿ words of memory and n²·2ⁿ steps.
//! Source: M. Held, R. Karp, 1962.

use crate::{Instance, Tour};

/// Most cities of the dynamic program.
pub const CITIES_MAX: usize = 18;

/// Computes an optimal tour of an instance with at most [`CITIES_MAX`] cities.
///
/// ```
/// use squall_tsp::{Instance, exact::held_karp};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// assert_eq!(held_karp(&instance).unwrap().length(), 3);
/// ```
#[must_use]
pub fn held_karp(instance: &Instance) -> Option<Tour> {
    if instance.cities() > CITIES_MAX {
        return None;
    }
    // City 0 is in no set; bit i stands for city i + 1.
    let others = instance.cities() - 1;
    let weight = |from: usize, to: usize| u64::from(instance.weight(from, to));
    let mut costs = vec![u64::MAX; others << others];
    for last in 0..others {
        costs[(1 << last) * others + last] = weight(0, last + 1);
    }
    for set in 1..1_usize << others {
        for last in (0..others).filter(|last| set & (1 << last) != 0) {
            let cost = costs[set * others + last];
            for to in (0..others).filter(|to| set & (1 << to) == 0) {
                let longer = &mut costs[(set | 1 << to) * others + to];
                *longer = (*longer).min(cost + weight(last + 1, to + 1));
            }
        }
    }
    let cost = |set: usize, last: usize| costs[set * others + last];
    let mut set = (1 << others) - 1;
    let mut last = (0..others).min_by_key(|last| cost(set, *last) + weight(last + 1, 0))?;
    let length = cost(set, last) + weight(last + 1, 0);
    let mut order = vec![last + 1];
    while set != 1 << last {
        let rest = set & !(1 << last);
        let mut before = (0..others).filter(|it| rest & (1 << it) != 0);
        let found = before.find(|it| cost(rest, *it) + weight(it + 1, last + 1) == cost(set, last));
        (set, last) = (rest, found.expect("a path has a city before its last one"));
        order.push(last + 1);
    }
    order.push(0);
    order.reverse();
    let tour = Tour::new(instance, order).ok()?;
    assert_eq!(tour.length(), length, "the tour has the computed length");
    Some(tour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_cities_are_refused() {
        let instance = Instance::new("large", vec![1; 19 * 19]).expect("an instance");
        assert_eq!(held_karp(&instance), None);
        let instance = Instance::new("two", vec![0, 3, 4, 0]).expect("an instance");
        assert_eq!(held_karp(&instance).map(|tour| tour.length()), Some(7));
    }
}
