//! The figures of a case at one variant and thread count.

use super::median;
use crate::case::{Case, Role, Variant};

/// All figures of one subject at one thread count.
#[derive(Clone, Debug)]
pub struct SubjectResult {
    /// Its name.
    pub name: &'static str,
    /// Its role.
    pub role: Role,
    /// Nanoseconds per operation, one value per kept round.
    pub ns: Vec<f64>,
    /// Metrics: name and one value per kept round.
    pub metrics: Vec<(String, Vec<f64>)>,
}

impl SubjectResult {
    /// The median, in nanoseconds per operation.
    pub fn median_ns(&self) -> f64 {
        median(&self.ns)
    }
}

/// All subjects of a case at one variant and thread count.
#[derive(Clone, Debug)]
pub struct Table {
    /// The case.
    pub case: &'static Case,
    /// The variant.
    pub variant: &'static Variant,
    /// Measured threads.
    pub threads: usize,
    /// Whether each measured thread had a processor of its own.
    pub pinned: bool,
    /// The subjects that ran.
    pub subjects: Vec<SubjectResult>,
    /// Ratios made by the case itself, each with the rival below the line if the name does not say it.
    pub ratios: Vec<(String, f64, &'static str)>,
    /// Metrics of the case itself.
    pub metrics: Vec<(String, f64)>,
    /// Rounds begun.
    pub rounds: usize,
    /// Rounds with foreign load among these.
    pub disturbed: usize,
    /// Whether disturbed rounds were kept because too few were clean.
    pub kept_disturbed: bool,
}

impl Table {
    /// The subject with this name, if it ran.
    pub fn subject(&self, name: &str) -> Option<&SubjectResult> {
        self.subjects.iter().find(|subject| subject.name == name)
    }
}
