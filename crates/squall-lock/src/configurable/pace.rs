//! Executes a method of waiting that does not sleep: checks the lock again and again, with pauses or yields
//! between.
//!
//! - I1. Deadline and cancellation are checked at the end of each method, and after every `CLOCK_EVERY`
//!   pauses.

use squall_sys::sync::hint::spin_loop;
use squall_sys::sync::thread;

use super::request::{Ask, LockError};
use super::waiting::Method;

/// The number of pauses between two checks of the clock and of the cancellation.
const CLOCK_EVERY: u32 = 64;

/// The most pauses between two checks of the lock.
pub(super) const GAP_MAX: u32 = 256;

/// The outcome of one method.
pub(super) enum Paced<R> {
    Found(R),
    Nothing,
    /// The wait must end.
    Over(LockError),
}

/// Calls `look` as often as the method says, until it returns something. Adds the pauses to `spins`.
pub(super) fn pace<R>(
    method: Method,
    ask: &Ask<'_>,
    spins: &mut u32,
    mut look: impl FnMut() -> Option<R>,
) -> Paced<R> {
    let (mut left, mut gap) = match method {
        // At least one look: otherwise a list of zero amounts would never look.
        Method::Spin(looks) | Method::Yield(looks) => (u32::from(looks).max(1), 1),
        Method::Backoff(pauses) => (u32::from(pauses).max(1), 1),
        Method::StandBy(pauses) => (u32::from(pauses).max(1), GAP_MAX),
        Method::Block => (0, 1),
    };
    let mut until_clock = CLOCK_EVERY;
    while left > 0 {
        if let Some(found) = look() {
            return Paced::Found(found);
        }
        let took = if let Method::Yield(_) = method {
            thread::yield_now();
            CLOCK_EVERY
        } else {
            (0..gap).for_each(|_| spin_loop());
            *spins += gap;
            gap
        };
        left = left.saturating_sub(gap);
        // In a model a second look would repeat the first.
        if cfg!(loom) {
            break;
        }
        if let Method::Backoff(_) = method {
            gap = (gap * 2).min(GAP_MAX);
        }
        until_clock = until_clock.saturating_sub(took);
        if until_clock == 0 {
            until_clock = CLOCK_EVERY;
            if let Some(why) = ask.over() {
                return Paced::Over(why);
            }
        }
    }
    ask.over().map_or(Paced::Nothing, Paced::Over)
}
