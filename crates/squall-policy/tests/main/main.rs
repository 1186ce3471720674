//! Tests of policies, attributes, invocations and monitors through their public interfaces.

mod attributes;
mod fixed;
mod invocations;
mod kinds;
mod modes;
mod monitors;
mod policies;
mod records;
