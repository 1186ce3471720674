//! The keys of the timed operations, drawn beforehand.
//!
//! - I1. All subjects get the same keys. Each thread begins at a place of its own, and goes on from there in
//!   the next slice.

use std::sync::{Arc, Mutex};

use super::draw::{Random, Zipf};
use crate::case::Variant;
use crate::cases::map::Key;

/// Keys of the small and of the large variants.
const KEYS: (u32, u32) = if cfg!(test) { (1_000, 10_000) } else { (10_000, 1_000_000) };
/// Operations drawn for these; powers of two.
const DRAWN: (usize, usize) = if cfg!(test) { (1 << 12, 1 << 14) } else { (1 << 19, 1 << 22) };
/// The keys for each that fits, in the variants with misses.
const KEYS_FOR_EACH: u32 = 10;
/// The exponent of Zipf's law in these.
const EXPONENT: f64 = 0.9;
/// One operation in so many inserts, in `mixed-95`.
const INSERTS: u64 = 20;

/// The keys of a variant.
pub(super) struct Plan {
    pub(super) capacity: usize,
    /// The keys that are inserted beforehand.
    pub(super) present: Vec<u64>,
    /// The keys of the operations.
    pub(super) drawn: Vec<u64>,
    /// Whether an operation inserts; empty if all look up.
    pub(super) inserts: Vec<bool>,
}

/// The last plan. All subjects of a variant run one after the other and share it.
static LAST: Mutex<Option<(&'static str, Arc<Plan>)>> = Mutex::new(None);

/// Whether the variant has timed operations.
pub(super) fn is_timed(variant: &Variant) -> bool {
    matches!(variant.name, "hit-10k" | "hit-1m" | "mixed-95" | "churn" | "load")
}

impl Plan {
    /// The plan of a timed variant; absent for any other one.
    pub(super) fn of(variant: &Variant) -> Option<Arc<Plan>> {
        if !is_timed(variant) {
            return None;
        }
        let mut last = LAST.lock().expect("a thread panicked under the lock");
        if let Some((name, plan)) = &*last
            && *name == variant.name
        {
            return Some(plan.clone());
        }
        // Drops the old plan first.
        *last = None;
        let plan = Arc::new(match variant.name {
            "hit-10k" => Plan::present(KEYS.0, DRAWN.0, false),
            "hit-1m" => Plan::present(KEYS.1, DRAWN.1, false),
            "mixed-95" => Plan::present(KEYS.0, DRAWN.0, true),
            _ => Plan::missing(),
        });
        *last = Some((variant.name, plan.clone()));
        Some(plan)
    }

    /// Keys that are all present, and equally frequent.
    fn present(keys: u32, drawn: usize, inserts: bool) -> Plan {
        let mut random = Random::new(1);
        let numbers = (0..drawn).map(|_| random.below(keys.into()));
        let drawn_keys = u64::row(numbers);
        let inserts = (0..if inserts { drawn } else { 0 }).map(|_| random.below(INSERTS) == 0).collect();
        let present = (0..keys).map(|number| u64::of(number.into())).collect();
        Plan { capacity: 2 * keys as usize, present, drawn: drawn_keys, inserts }
    }

    /// Keys by Zipf's law, of which a part fits.
    fn missing() -> Plan {
        let (mut random, zipf) = (Random::new(2), Zipf::new(KEYS.1, EXPONENT));
        let drawn = u64::row((0..DRAWN.1).map(|_| zipf.rank(&mut random).into()));
        let capacity = (KEYS.1 / KEYS_FOR_EACH) as usize;
        Plan { capacity, present: Vec::new(), drawn, inserts: Vec::new() }
    }
}
