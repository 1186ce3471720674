//! Tests of policies, attributes, invocations and monitors through their public interfaces.

mod attributes;
mod invocations;
mod kinds;
mod monitors;
mod policies;
