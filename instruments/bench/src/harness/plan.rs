//! The request: thread counts, a variant, and the length of the run.

use super::progress::RunError;
use crate::case::{Case, Variant};
use crate::env;

/// Length and number of slices, and their threads.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Thread counts; empty for the case's own.
    pub threads: Vec<usize>,
    /// Only this variant, if set.
    pub variant: Option<String>,
    /// Short slices and few rounds.
    pub quick: bool,
}

impl Plan {
    pub(crate) fn rounds(&self) -> usize {
        if self.quick { 5 } else { 15 }
    }

    pub(super) fn slice_ns(&self, case: &Case) -> f64 {
        let (full, quick) = case.slice_ms;
        (if self.quick { quick } else { full }) as f64 * 1e6
    }

    /// The thread counts of `case` in this variant. A variant with a fixed number of threads ignores the
    /// plan's counts.
    pub fn thread_counts(&self, case: &Case, variant: &Variant) -> Vec<usize> {
        if let Some(threads) = variant.fixed_threads() {
            return vec![threads];
        }
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

    /// The variants of `case` that fix their threads to a number that the plan does not contain.
    pub fn overruled(&self, case: &'static Case) -> Result<Vec<(&'static str, usize)>, RunError> {
        let fixed = self.variants(case)?.into_iter().filter_map(|v| Some((v.name, v.fixed_threads()?)));
        Ok(fixed.filter(|(_, n)| !self.threads.is_empty() && self.threads != [*n]).collect())
    }

    /// The variants of `case` under this plan; an error if the requested one does not exist.
    pub fn variants(&self, case: &'static Case) -> Result<Vec<&'static Variant>, RunError> {
        let Some(wanted) = &self.variant else {
            let left_out = |v: &&Variant| v.on_request || self.quick && v.thorough;
            return Ok(case.variants.iter().filter(|v| !left_out(v)).collect());
        };
        let found: Vec<_> = case.variants.iter().filter(|v| v.name == wanted).collect();
        if found.is_empty() {
            let names: Vec<_> = case.variants.iter().map(|v| v.name).filter(|n| !n.is_empty()).collect();
            let known = if names.is_empty() { "it has none".to_owned() } else { names.join(", ") };
            return Err(RunError(format!("case {} has no variant {wanted:?} ({known})", case.name)));
        }
        Ok(found)
    }
}
