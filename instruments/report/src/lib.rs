#![forbid(unsafe_code)]
//! Experiments of the literature, run on this machine and compared with the papers.
//!
//! An [`Experiment`] has a question, the paper's answer in words, code that runs it, and a predicate that
//! compares the shape of our figures with the paper's. [`ALL`] lists them, one file each. [`run`] runs some
//! of them, and [`write`](page::write) writes one HTML page and the plots as SVG files.
//!
//! - I1. A verdict is computed from the data of the run alone. Each experiment has an example of data with
//!   the paper's shape and one with the opposite shape; a test checks that their verdicts differ.
//! - I2. A figure is timed by `squall bench`, counted by `squall locality` while real code runs, or counted
//!   by real code that one thread steps. Each plot says which.
//! - I3. Without its instrument an experiment has the verdict `part`, with the reason.
//!
//! Timed and emulated code runs in child processes of the binary `squall`, so that an experiment does not
//! affect the next one.

#[cfg(squall_global_alloc)]
use squall_alloc as _;

mod count;
mod experiment;
mod experiments;
mod found;
mod lab;
mod load;
pub mod page;
mod plot;
pub mod readme;
mod run;

pub use experiment::{Done, Experiment, Paper, Verdict};
pub use experiments::{ALL, find};
pub use found::{Axis, Figure, Found, Means, Plot, Series};
pub use lab::{Lab, Missing};
pub use plot::svg;
pub use run::{Progress, run};
