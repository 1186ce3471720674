//! A tour: an order of all cities, with its length.
//!
//! - I1. A tour visits each city of its instance once, and its length is the sum of its arcs. Only
//!   [`Tour::new`] makes one, and it computes both from the instance.

use std::fmt;

use crate::Instance;

/// A closed tour through all cities of an instance.
///
/// ```
/// use squall_tsp::{Instance, Tour};
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// assert_eq!(Tour::new(&instance, vec![0, 1, 2]).unwrap().length(), 3);
/// assert!(Tour::new(&instance, vec![0, 1, 1]).is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tour {
    cities: Vec<usize>,
    length: u64,
}

/// An order of cities that is no tour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TourError {
    cities: usize,
    order: Vec<usize>,
}

impl fmt::Display for TourError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the order {:?} does not visit each of {} cities once", self.order, self.cities)
    }
}

impl std::error::Error for TourError {}

impl Tour {
    /// Makes a tour of the instance from an order of its cities.
    ///
    /// # Errors
    /// [`TourError`] if the order does not contain each city once.
    pub fn new(instance: &Instance, order: Vec<usize>) -> Result<Tour, TourError> {
        let mut seen = vec![false; instance.cities()];
        let is_new = |city: &usize| seen.get_mut(*city).is_some_and(|seen| !std::mem::replace(seen, true));
        if order.len() != instance.cities() || !order.iter().all(is_new) {
            return Err(TourError { cities: instance.cities(), order });
        }
        let next = order.iter().cycle().skip(1);
        let length = order.iter().zip(next).map(|(&from, &to)| u64::from(instance.weight(from, to))).sum();
        Ok(Tour { cities: order, length })
    }

    /// The cities in their order, numbered from zero.
    #[must_use]
    pub fn cities(&self) -> &[usize] {
        &self.cities
    }

    /// The sum of the weights of all arcs, with the one back to the first city.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }
}
