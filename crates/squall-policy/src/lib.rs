#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

pub mod attribute;
pub mod invoke;
pub mod monitor;
mod policy;

pub use policy::{
    Adt, Binding, Block, Condition, Created, Creation, GovernError, Governor, Monitor, Policy, Task,
    ThreadedAdt, governed,
};
