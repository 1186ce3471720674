//! The patience of a thread that waits: it looks for a while before it sleeps, as long as that pays.
//!
//! Problem: a partner on another processor answers within a few looks, far sooner than a wake-up takes. A
//! partner on this processor cannot run while this thread looks. To yield the processor instead may hand it
//! to a third thread, for milliseconds.
//! Idea: a wait that ends during its looks gives the next ones credit. A wait in vain takes some. Without
//! credit a thread sleeps at once, and looks once in a while to find out whether it pays again.
//!
//! - I1. A wait without credit looks only if it is the last one of [`PROBE`] waits.
//! - I2. A thread that waits for a partner never yields its processor. It looks, or sleeps.
//!
//! Not promised: the best choice for each wait. A partner that changes its processor is noticed late.
//! Cost: three numbers of the waiting thread. Partners write no word for it. In `squall-call` each side
//! writes its processor, but a mailbox has many senders.
//! Source: Karlin et al. 1991: the time to spin before a thread blocks follows from the last waits.

use squall_sys::sync::hint;

/// Looks of a wait before it sleeps.
const LOOKS: u32 = 40;
/// Waits in vain, one after the other, until a thread sleeps at once.
const CREDIT: u8 = 8;
/// Waits without credit until one looks again.
const PROBE: u8 = 64;

/// The patience of one waiting thread or mailbox.
#[derive(Debug)]
pub(crate) struct Patience {
    credit: u8,
    /// Waits since the credit was used up.
    waits: u8,
    /// Looks that the present wait has left.
    left: u32,
}

impl Patience {
    pub(crate) fn new() -> Patience {
        Patience { credit: CREDIT, waits: 0, left: 0 }
    }

    /// Begins a wait.
    pub(crate) fn begin(&mut self) {
        self.left = LOOKS;
        if self.credit == 0 {
            self.waits += 1;
            if self.waits < PROBE {
                self.left = 0;
            } else {
                self.waits = 0;
            }
        }
    }

    /// Returns whether the wait looks once more. If not, it sleeps.
    pub(crate) fn looks_again(&mut self) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        if self.left == 0 {
            self.credit = self.credit.saturating_sub(1);
        }
        hint::spin_loop();
        true
    }

    /// Ends a wait.
    pub(crate) fn end(&mut self) {
        if std::mem::take(&mut self.left) > 0 {
            self.credit = CREDIT;
            self.waits = 0;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Waits for an event that comes after this number of looks. Returns the number of looks.
    fn wait(patience: &mut Patience, comes_after: u32) -> u32 {
        patience.begin();
        let mut looks = 0;
        while looks < comes_after && patience.looks_again() {
            looks += 1;
        }
        patience.end();
        looks
    }

    #[test]
    fn a_thread_looks_as_long_as_that_pays() {
        let mut patience = Patience::new();
        for _ in 0..1_000 {
            assert_eq!(wait(&mut patience, 5), 5);
        }
        for _ in 0..CREDIT {
            assert_eq!(wait(&mut patience, LOOKS + 1), LOOKS);
        }
        let looks: Vec<u32> = (0..2 * PROBE).map(|_| wait(&mut patience, LOOKS + 1)).collect();
        let probes = looks.iter().filter(|looks| **looks > 0).count();
        assert_eq!((probes, looks[usize::from(PROBE) - 1]), (2, LOOKS));
    }

    #[test]
    fn one_look_that_pays_restores_the_credit() {
        let mut patience = Patience::new();
        (0..CREDIT).for_each(|_| _ = wait(&mut patience, LOOKS + 1));
        (1..PROBE).for_each(|_| assert_eq!(wait(&mut patience, 5), 0));
        assert_eq!(wait(&mut patience, 5), 5);
        for _ in 0..CREDIT {
            assert_eq!(wait(&mut patience, LOOKS + 1), LOOKS);
        }
        assert_eq!(wait(&mut patience, 5), 0);
    }
}
