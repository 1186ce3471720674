#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod adaptive;
pub mod calls;
pub mod control;
pub mod costs;
pub mod decision;
pub mod engine;
pub mod estimate;
pub mod family;
pub mod hysteresis;
mod live;
mod records;
pub mod sensor;
pub mod settings;
pub mod stays;
