//! What is asked for: thread counts, a variant, and how long.

use super::RunError;
use crate::case::{Case, Variant};
use crate::env;

/// How long and how often.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Thread counts; empty for the case's own.
    pub threads: Vec<usize>,
    /// Only this variant, where one is named.
    pub variant: Option<String>,
    /// Short slices and few rounds.
    pub quick: bool,
}

impl Plan {
    pub(super) fn rounds(&self) -> usize {
        if self.quick { 5 } else { 15 }
    }

    pub(super) fn slice_ns(&self, case: &Case) -> f64 {
        let (full, quick) = case.slice_ms;
        (if self.quick { quick } else { full }) as f64 * 1e6
    }

    /// The thread counts of `case` under this plan.
    pub fn thread_counts(&self, case: &Case) -> Vec<usize> {
        if !self.threads.is_empty() {
            return self.threads.clone();
        }
        if !case.default_threads.is_empty() {
            return case.default_threads.to_vec();
        }
        let mut counts = vec![1, 2, env::processors().len()];
        counts.retain(|&n| n <= env::processors().len());
        counts.dedup();
        counts
    }

    /// The variants of `case` under this plan; an error when the one asked for does not exist.
    pub fn variants(&self, case: &'static Case) -> Result<Vec<&'static Variant>, RunError> {
        let Some(wanted) = &self.variant else { return Ok(case.variants.iter().collect()) };
        let found: Vec<_> = case.variants.iter().filter(|v| v.name == wanted).collect();
        if found.is_empty() {
            let names: Vec<_> = case.variants.iter().map(|v| v.name).filter(|n| !n.is_empty()).collect();
            let known = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
            return Err(RunError(format!("case {} has no variant {wanted:?} ({known})", case.name)));
        }
        Ok(found)
    }
}
