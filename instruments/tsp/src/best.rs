//! The best tour so far, which all searchers read to prune and few change.
//!
//! - I1. The length never grows. A change takes effect only if its tour is shorter than the one it replaces.
//!
//! Progress: a read is wait-free. A change blocks other changes, and no reader.
//! Source: KTK, §3 (AD-01): a shared object beside the queue, a read-mostly minimum.

use std::sync::Arc;

use squall::objects::read_mostly::{self, OwnedReadMostly, ReadMostlyExt};

use crate::Tour;

/// The shortest tour that any searcher has found.
///
/// ```
/// use squall_tsp::{BestTour, Instance, Offer, Tour};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// let best = BestTour::new();
/// assert_eq!(best.length(), u64::MAX);
/// let [long, short] = [vec![0, 2, 1], vec![0, 1, 2]].map(|order| Tour::new(&instance, order).unwrap());
/// assert_eq!(best.offer(long.clone()), Offer::Adopted);
/// assert_eq!(best.offer(short), Offer::Adopted);
/// assert_eq!(best.offer(long), Offer::NotShorter);
/// assert_eq!(best.tour().unwrap().length(), 3);
/// ```
#[derive(Debug)]
pub struct BestTour {
    tour: OwnedReadMostly<Option<Arc<Tour>>>,
}

/// Result of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Offer {
    /// The tour is now the best one.
    Adopted,
    /// The best tour is as short, or shorter.
    NotShorter,
}

impl BestTour {
    /// Makes an object without a tour.
    #[must_use]
    pub fn new() -> BestTour {
        BestTour { tour: read_mostly::adaptive(None) }
    }

    /// The length of the best tour, or `u64::MAX` before the first one.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.tour.read(length)
    }

    /// The best tour, if there is one.
    #[must_use]
    pub fn tour(&self) -> Option<Arc<Tour>> {
        self.tour.get_cloned()
    }

    /// Replaces the best tour if this one is shorter.
    pub fn offer(&self, tour: Tour) -> Offer {
        if tour.length() >= self.length() {
            return Offer::NotShorter;
        }
        let offered = Some(Arc::new(tour));
        let mut offer = Offer::NotShorter;
        self.tour.update(|best| {
            let is_shorter = length(&offered) < length(best);
            offer = if is_shorter { Offer::Adopted } else { Offer::NotShorter };
            if is_shorter { offered.clone() } else { best.clone() }
        });
        offer
    }
}

impl Default for BestTour {
    fn default() -> BestTour {
        BestTour::new()
    }
}

fn length(tour: &Option<Arc<Tour>>) -> u64 {
    tour.as_ref().map_or(u64::MAX, |tour| tour.length())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::Instance;

    /// The only tour of two cities, with this length.
    fn tour(length: u32) -> Tour {
        let instance = Instance::new("two", vec![0, length, 0, 0]).expect("an instance");
        Tour::new(&instance, vec![0, 1]).expect("a tour")
    }

    #[test]
    fn the_shortest_of_all_threads_remains_and_the_length_never_grows() {
        let best = BestTour::new();
        let adopted: usize = thread::scope(|scope| {
            let offers = [0, 1].map(|thread| {
                let best = &best;
                scope.spawn(move || {
                    let (mut seen, mut adopted) = (u64::MAX, 0);
                    for length in (10..200).rev().filter(|length| length % 2 == thread) {
                        adopted += usize::from(best.offer(tour(length)) == Offer::Adopted);
                        let now = best.length();
                        assert!(now <= seen && now <= u64::from(length));
                        seen = now;
                    }
                    adopted
                })
            });
            offers.map(|offers| offers.join().expect("no offer panics")).iter().sum()
        });
        assert_eq!(best.length(), 10);
        assert!((95..=190).contains(&adopted), "{adopted} offers were adopted");
    }
}
