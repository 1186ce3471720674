//! An instance: the weights of all arcs between its cities.
//!
//! - I1. There are from [`CITIES_MIN`] to [`CITIES_MAX`] cities, and each weight is at most [`WEIGHT_MAX`].
//!   So the length of a tour, and the sum of all weights, fit into 64 bits.

use std::fmt;

/// Fewest cities of an instance.
pub const CITIES_MIN: usize = 2;
/// Most cities of an instance. The search holds a matrix for each open subproblem.
pub const CITIES_MAX: usize = 200;
/// Largest weight of an arc.
pub const WEIGHT_MAX: u32 = i32::MAX as u32;

/// A travelling salesman problem.
///
/// ```
/// use squall_tsp::Instance;
///
/// let instance = Instance::new("three", vec![0, 1, 9, 9, 0, 1, 1, 9, 0]).unwrap();
/// assert_eq!((instance.cities(), instance.weight(0, 1)), (3, 1));
/// assert!(!instance.is_symmetric());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    name: String,
    cities: usize,
    /// Row by row: the weight of the arc from the row's city to the column's.
    weights: Vec<u32>,
    places: Option<Vec<[f64; 2]>>,
    stated_optimum: Option<u64>,
}

/// The reason why weights are no instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstanceError {
    /// The number of weights is no square of a permitted number of cities.
    Count(usize),
    /// The weight from one city to another one is too large.
    Weight {
        /// The first city.
        from: usize,
        /// The second city.
        to: usize,
        /// The weight.
        weight: u32,
    },
}

impl fmt::Display for InstanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstanceError::Count(count) => write!(
                f,
                "{count} weights are no square matrix of {CITIES_MIN} to {CITIES_MAX} cities; give one row per city"
            ),
            InstanceError::Weight { from, to, weight } => write!(
                f,
                "the weight {weight} from city {} to city {} is above {WEIGHT_MAX}; scale all weights down",
                from + 1,
                to + 1
            ),
        }
    }
}

impl std::error::Error for InstanceError {}

impl Instance {
    /// Makes an instance from a square matrix of weights, row by row. The diagonal is ignored.
    ///
    /// # Errors
    /// [`InstanceError`] if the matrix has too few or too many rows, is no square, or has too large a weight.
    ///
    /// ```
    /// use squall_tsp::{Instance, InstanceError};
    ///
    /// assert_eq!(Instance::new("none", vec![1, 2, 3]), Err(InstanceError::Count(3)));
    /// assert!(Instance::new("two", vec![0, 7, 7, 0]).unwrap().is_symmetric());
    /// ```
    pub fn new(name: impl Into<String>, mut weights: Vec<u32>) -> Result<Instance, InstanceError> {
        let cities = weights.len().isqrt();
        if cities * cities != weights.len() || !(CITIES_MIN..=CITIES_MAX).contains(&cities) {
            return Err(InstanceError::Count(weights.len()));
        }
        (0..cities).for_each(|city| weights[city * cities + city] = 0);
        if let Some(at) = weights.iter().position(|weight| *weight > WEIGHT_MAX) {
            return Err(InstanceError::Weight { from: at / cities, to: at % cities, weight: weights[at] });
        }
        Ok(Instance { name: name.into(), cities, weights, places: None, stated_optimum: None })
    }

    /// Adds the places of the cities on a plane, for drawings.
    ///
    /// # Panics
    /// If there is not one place per city.
    #[must_use]
    pub fn with_places(mut self, places: Vec<[f64; 2]>) -> Instance {
        assert_eq!(places.len(), self.cities, "each city has one place");
        self.places = Some(places);
        self
    }

    /// Adds the optimum that the file states. The search ignores it; tests and demos compare.
    #[must_use]
    pub fn with_stated_optimum(mut self, optimum: u64) -> Instance {
        self.stated_optimum = Some(optimum);
        self
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of cities.
    #[must_use]
    pub fn cities(&self) -> usize {
        self.cities
    }

    /// The weight of the arc between two cities, numbered from zero.
    ///
    /// # Panics
    /// If there is no such city.
    #[must_use]
    pub fn weight(&self, from: usize, to: usize) -> u32 {
        assert!(to < self.cities, "there is no city {to}");
        self.weights[from * self.cities + to]
    }

    /// Whether each arc weighs as much as its reverse.
    #[must_use]
    pub fn is_symmetric(&self) -> bool {
        (0..self.cities).all(|from| (0..from).all(|to| self.weight(from, to) == self.weight(to, from)))
    }

    /// The places of the cities, if the file has any.
    #[must_use]
    pub fn places(&self) -> Option<&[[f64; 2]]> {
        self.places.as_deref()
    }

    /// The optimum that the file states in a comment, if any.
    #[must_use]
    pub fn stated_optimum(&self) -> Option<u64> {
        self.stated_optimum
    }
}
