#![forbid(unsafe_code)]
//! The travelling salesman: problems in the format of TSPLIB.

#[cfg(squall_global_alloc)]
use squall_alloc as _;

mod instance;
mod tour;
pub mod tsplib;

pub use instance::{CITIES_MAX, CITIES_MIN, Instance, InstanceError, WEIGHT_MAX};
pub use tour::{Tour, TourError};
