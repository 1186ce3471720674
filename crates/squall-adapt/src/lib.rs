#![forbid(unsafe_code)]
//! When and why an object changes its shape; how is the business of the floors below.
//!
#![doc = include_str!("../README.md")]

pub mod calls;
pub mod control;
pub mod decision;
pub mod engine;
pub mod family;
mod live;
pub mod settings;
pub mod hysteresis;
