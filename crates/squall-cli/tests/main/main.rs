//! Tests of the binary `squall`, as scripts run it.

#[cfg(squall_global_alloc)]
use squall as _;

mod common;
mod contract;
mod demo;
mod stress_adapt;
mod stress_alloc;
mod stress_locks;
mod stress_maps;
mod stress_objects;
mod stress_rcu;
mod stress_swap;
mod top;
