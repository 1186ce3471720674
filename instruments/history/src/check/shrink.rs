//! Reduces a wrong history to a sufficient subset of its calls.
//!
//! - I1. The rest is wrong only if the whole is. A call that only reads may be omitted. The answer of another
//!   call may be forgiven, so that it is done at any time or never. Both steps only allow more orders. A
//!   writing call is omitted only if it could only come after all remaining calls. Otherwise another call may
//!   have read its value.

use super::search::{Found, Mark, Marked, Start, Window};
use super::{PENDING_CALLS_MAX, show};
use crate::history::Call;
use crate::spec::Spec;

/// Maximum number of steps to decide whether one call may be omitted.
const STEPS_PER_CALL_MAX: u64 = 20_000;

/// Explains why these calls, begun in any of these states, have no order.
pub(super) fn explain<S: Spec>(
    spec: &S,
    mut calls: Vec<Marked<'_, S>>,
    starts: &[Start<S::State>],
    steps_max: u64,
) -> String {
    let steps = steps_max.min(STEPS_PER_CALL_MAX);
    let wrong =
        |calls: &[Marked<'_, S>]| matches!(Window::new(spec, calls).search(starts, steps), Found::None(_));
    loop {
        let mut changed = false;
        for place in (0..calls.len()).rev() {
            let (call, mark) = calls[place];
            let weaker = if spec.only_reads(&call.op) { Mark::Left } else { Mark::Pending };
            let may = matches!(mark, Mark::Returned | Mark::Pending) && mark != weaker;
            if !may || (weaker == Mark::Pending && forgiven(&calls) >= PENDING_CALLS_MAX) {
                continue;
            }
            calls[place].1 = weaker;
            if wrong(&calls) {
                changed = true;
            } else {
                calls[place].1 = mark;
            }
        }
        if !changed {
            break;
        }
    }
    omit_last(&mut calls);
    let window = Window::new(spec, &calls);
    let end = match window.search(starts, steps_max) {
        Found::None(longest) => Some((window.expected_next(&longest), longest)),
        Found::Ends(_) | Found::TooHard => None,
    };
    show::show(&calls, starts, end)
}

/// Number of calls whose answer is forgiven or absent.
fn forgiven<O, R>(calls: &[(&Call<O, R>, Mark)]) -> usize {
    calls.iter().filter(|(call, mark)| *mark == Mark::Pending || call.ret.is_none()).count()
}

/// Omits calls that can be done only after all others.
fn omit_last<O, R>(calls: &mut [(&Call<O, R>, Mark)]) {
    let core: Vec<_> =
        calls.iter().filter(|(_, mark)| *mark == Mark::Returned).map(|(call, _)| *call).collect();
    for (call, mark) in calls.iter_mut().filter(|(_, mark)| *mark == Mark::Pending) {
        if core.iter().all(|core| core.is_before(call)) {
            *mark = Mark::Left;
        }
    }
}
