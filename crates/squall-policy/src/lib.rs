#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

pub mod attribute;
#[cfg(feature = "policies")]
pub mod invoke;
#[cfg(feature = "monitors")]
pub mod monitor;
#[cfg(feature = "policies")]
mod policy;

#[cfg(feature = "policies")]
pub use policy::{
    Adt, Binding, Block, Condition, Constant, Created, Creation, Fixed, GovernError, Governor, Monitor,
    Policy, Setting, Steered, Task, ThreadedAdt, governed,
};
