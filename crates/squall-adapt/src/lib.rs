#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod calls;
pub mod control;
pub mod decision;
pub mod engine;
pub mod family;
pub mod hysteresis;
mod live;
pub mod settings;
