//! The work of `swap`: objects that are called and replaced, and the shape of such an object.

use squall::swap::SwapReport;

use crate::case::Missing;
use crate::objects::sum_of_calls;
use crate::ours_machine::processors_count;

/// An object that is called and replaced.
pub(crate) trait Replace: Send + Sync {
    /// Makes `count` calls and checks their results.
    fn calls(&self, count: u64);

    /// Makes a new object and puts it in the place of the present one.
    ///
    /// # Errors
    /// The replacement failed in a way that must not occur here.
    fn replace(&self) -> Result<Replaced, String>;

    /// Makes the representatives before a replacement.
    fn settle(&self) {}
}

/// Makes the calls of one batch by `call`, with numbers from zero on; the results are checked as a sum.
#[inline(always)]
pub(crate) fn checked(count: u64, call: impl Fn(u64) -> u64) {
    let sum = (0..count).fold(0u64, |sum, n| sum.wrapping_add(call(n)));
    assert_eq!(sum, sum_of_calls(count), "a call was lost, or ran twice");
}

/// Result of one replacement.
pub(crate) struct Replaced {
    /// Whether the new object serves. Otherwise the deadline passed before all calls had left the old one.
    pub(crate) done: bool,
    /// Report of the swap, if there is one.
    pub(crate) report: Option<SwapReport>,
}

impl Replaced {
    /// The new object serves; there is no report.
    pub(crate) const PLAIN: Replaced = Replaced { done: true, report: None };
    /// The old object serves on.
    pub(crate) const TIMED_OUT: Replaced = Replaced { done: false, report: None };

    pub(crate) fn swapped(report: SwapReport) -> Replaced {
        Replaced { done: true, report: Some(report) }
    }
}

/// Properties of the swapped object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Representatives of a distributed object; absent for a shared object.
    pub(crate) reps: Option<usize>,
    /// Bytes of state that move; absent if there is no state.
    pub(crate) state_bytes: Option<usize>,
    /// Whether the state moves by a pointer.
    pub(crate) by_pointer: bool,
}

impl Shape {
    /// The shape of a variant, if this machine is large enough.
    pub(crate) fn of(variant: &str) -> Result<Shape, Missing> {
        let mut shape = Shape { reps: None, state_bytes: None, by_pointer: false };
        let mut words = variant.split('-');
        while let Some(word) = words.next() {
            match word {
                "reps" => shape.reps = words.next().and_then(|count| count.parse().ok()),
                "state" => shape.state_bytes = words.next().and_then(bytes),
                "pointer" => shape.by_pointer = true,
                _ => {}
            }
        }
        let (there, reps) = (processors_count(), shape.reps.unwrap_or(1));
        if reps > there {
            return Err(Missing(format!(
                "{variant} needs {reps} processors and there are {there}: \
                 SQUALL_TOPOLOGY=nodes:4,caches:2,cores:4,threads:2 has 64"
            )));
        }
        Ok(shape)
    }
}

/// Parses a size such as `64k`.
fn bytes(word: &str) -> Option<usize> {
    let (digits, unit) = match word.strip_suffix(['k', 'm']) {
        Some(digits) if word.ends_with('k') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (word, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_matches_the_name_of_its_variant() {
        let shape = |reps, state_bytes, by_pointer| Shape { reps, state_bytes, by_pointer };
        assert!(Shape::of("null").is_ok_and(|s| s == shape(None, None, false)));
        assert!(Shape::of("reps-1").is_ok_and(|s| s == shape(Some(1), None, false)));
        assert!(Shape::of("state-0").is_ok_and(|s| s == shape(None, Some(0), false)));
        assert!(Shape::of("state-64k").is_ok_and(|s| s == shape(None, Some(65536), false)));
        assert!(Shape::of("state-16m-pointer").is_ok_and(|s| s == shape(None, Some(16 << 20), true)));
        assert!(Shape::of("reps-1-state-16m").is_ok_and(|s| s == shape(Some(1), Some(16 << 20), false)));
        let there = processors_count();
        let too_many = Shape::of(&format!("reps-{}", there + 1));
        assert!(too_many.is_err_and(|Missing(why)| why.contains("SQUALL_TOPOLOGY")));
    }
}
