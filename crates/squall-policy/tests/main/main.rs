//! Tests of policies, attributes and invocations through their public interfaces.

mod attributes;
mod fixed;
mod invocations;
mod kinds;
mod modes;
mod policies;
