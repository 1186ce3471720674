//! A turnstile before a lock: it lets few in, and then nobody until they are gone.
//!
//! Where threads come all the time, one whose wake-up was lost is woken by the next that comes. Behind a turnstile nobody
//! comes: it sleeps until the watch finds it.
//!
//! - I1. No more than [`GROUP`] come in between two moments at which nobody is in.

use std::sync::atomic::{AtomicU64, Ordering};

/// One who holds the lock, and one who waits for it; the third finds both.
const GROUP: u64 = 3;

/// Who came in since nobody was in, in the low half; and who has left again, in the high half.
#[derive(Default)]
pub(super) struct Turnstile(AtomicU64);

const LEFT_SHIFT: u32 = 32;
const CAME: u64 = (1 << LEFT_SHIFT) - 1;

/// Who has it is in.
pub(super) struct Pass<'a>(&'a Turnstile);

impl Turnstile {
    /// None if the group is complete.
    pub(super) fn come(&self) -> Option<Pass<'_>> {
        let one_more = |now: u64| (now & CAME < GROUP).then_some(now + 1);
        let outcome = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        // Not `then_some`: a pass that nobody has would leave at once.
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
