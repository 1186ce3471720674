//! A value that is really freed, with plain fields, as users of [`squall_rcu::Rcu`] have it. The sanitizers
//! check it better than any code.

use std::sync::atomic::{AtomicU64, Ordering};

static MADE: AtomicU64 = AtomicU64::new(0);
static DROPPED: AtomicU64 = AtomicU64::new(0);

const ALIVE: u64 = 0xA11F_E000_A11F_E000;
const DEAD: u64 = 0xDEAD_DEAD_DEAD_DEAD;

pub(super) struct Leaf {
    value: u64,
    complement: u64,
    life: AtomicU64,
}

impl Leaf {
    pub(super) fn new(value: u64) -> Leaf {
        MADE.fetch_add(1, Ordering::Relaxed);
        Leaf { value, complement: !value, life: AtomicU64::new(ALIVE) }
    }

    pub(super) fn is_sound(&self) -> bool {
        self.value == !self.complement && self.life.load(Ordering::Relaxed) == ALIVE
    }

    /// Returns the number of leaves that were not dropped.
    pub(super) fn alive() -> u64 {
        // Acquire: pairs with the release in `drop`: a counted drop was counted as made before.
        let dropped = DROPPED.load(Ordering::Acquire);
        MADE.load(Ordering::Relaxed) - dropped
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.value = DEAD;
        self.complement = DEAD;
        *self.life.get_mut() = DEAD;
        // Release: pairs with the acquire in `alive`.
        DROPPED.fetch_add(1, Ordering::Release);
    }
}
