#![forbid(unsafe_code)]
//! Policies: code around an object that decides how a call is made, and the attributes that steer it.
//!
#![doc = include_str!("../README.md")]

pub mod attribute;
pub mod invoke;
pub mod monitor;
mod policy;

pub use policy::{
    Adt, Binding, Block, Condition, Created, Creation, GovernError, Governor, Monitor, Policy, Task, ThreadedAdt, governed,
};
