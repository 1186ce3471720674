//! Tests of the binary `squall`, as scripts run it.

#[cfg(squall_global_alloc)]
use squall as _;

mod browse;
mod call_process;
mod common;
mod contract;
mod demo;
mod fleet;
mod report;
mod stress;
mod top;
mod tsp;
