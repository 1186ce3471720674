//! A turnstile before a lock: it admits a small group, and the next group only after the first has left.
//!
//! If threads come all the time, a thread whose wake-up was lost is woken by the next one. Behind a turnstile
//! no thread comes, so it sleeps until the watch finds it.
//!
//! - I1. At most [`GROUP`] threads enter between two moments at which the turnstile is empty.

use std::sync::atomic::{AtomicU64, Ordering};

/// One thread holds the lock, one waits for it, and the third finds both.
const GROUP: u64 = 3;

/// Threads that entered since the turnstile was empty in the low half; threads that have left in the high
/// half.
#[derive(Default)]
pub(super) struct Turnstile(AtomicU64);

const LEFT_SHIFT: u32 = 32;
const CAME: u64 = (1 << LEFT_SHIFT) - 1;

/// A thread with a pass is inside.
pub(super) struct Pass<'a>(&'a Turnstile);

impl Turnstile {
    /// Enters. Returns `None` if the group is complete.
    pub(super) fn come(&self) -> Option<Pass<'_>> {
        let one_more = |now: u64| (now & CAME < GROUP).then_some(now + 1);
        let outcome = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        // Not `then_some`: it would make and drop a pass even after a failure.
        outcome.is_ok().then(|| Pass(self))
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        let one_less = |now: u64| {
            let left = (now >> LEFT_SHIFT) + 1;
            Some(if left == now & CAME { 0 } else { now + (1 << LEFT_SHIFT) })
        };
        let _ = self.0.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_group_comes_when_the_last_has_gone() {
        let turnstile = Turnstile::default();
        for _ in 0..3 {
            let mut group: Vec<_> = (0..GROUP).map(|_| turnstile.come().expect("there is room")).collect();
            while !group.is_empty() {
                assert!(turnstile.come().is_none());
                group.pop();
            }
        }
        // A group that was never complete.
        drop(turnstile.come());
        let group: Vec<_> = (0..GROUP).map_while(|_| turnstile.come()).collect();
        assert_eq!(group.len() as u64, GROUP);
    }
}
