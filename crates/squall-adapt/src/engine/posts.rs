//! Where objects ask to be looked at.
//!
//! Problem: a sensor trips in the midst of a call, inside an operation, perhaps in a signal handler: it must neither lock,
//! nor allocate, nor wait. Idea: a fixed board of words. A post puts its object's id into a free one and rings a bell;
//! who looks takes all ids off.
//!
//! - I1. A word is the bits of an id, or zero. An id's generation is not zero.
//! - I2. A post that found a place is taken off by a look that begins later.

use std::sync::atomic::{AtomicU64, Ordering};

use squall_core::Id;

/// Places on the board, and how many of them a post looks at.
const PLACES: usize = 512;
const PROBES: usize = 32;

#[derive(Debug)]
pub(super) struct Posts([AtomicU64; PLACES]);

fn bits(id: Id) -> u64 {
    u64::from(id.generation()) << 32 | u64::from(id.slot())
}

impl Posts {
    pub(super) const fn new() -> Posts {
        Posts([const { AtomicU64::new(0) }; PLACES])
    }

    /// Puts an id there. Returns whether it is there; if not, the board is full just now.
    pub(super) fn put(&self, id: Id) -> bool {
        let (bits, first) = (bits(id), id.slot().wrapping_mul(0x9E37_79B1) as usize);
        (0..PROBES).any(|step| {
            let place = &self.0[first.wrapping_add(step) % PLACES];
            // Release: pairs with the exchange in `take`: who takes it sees what the sensor saw. An id that is there already
            // will be taken: the board holds it once more where two put it at once.
            match place.compare_exchange(0, bits, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => true,
                Err(there) => there == bits,
            }
        })
    }

    /// Whether there is any.
    pub(super) fn any(&self) -> bool {
        self.0.iter().any(|place| place.load(Ordering::Relaxed) != 0)
    }

    /// Takes all ids off.
    pub(super) fn take(&self) -> Vec<Id> {
        let taken = self.0.iter().filter_map(|place| {
            if place.load(Ordering::Relaxed) == 0 {
                return None;
            }
            // Acquire: pairs with the release in `put`.
            let bits = place.swap(0, Ordering::Acquire);
            Id::from_parts(bits as u32, (bits >> 32) as u32)
        });
        let mut ids: Vec<Id> = taken.collect();
        ids.sort();
        ids.dedup();
        ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_taken_once_and_a_full_board_says_so() {
        let posts = Posts::new();
        let id = |slot| Id::from_parts(slot, 7).unwrap();
        assert!(posts.put(id(3)) && posts.put(id(3)) && posts.put(id(4)));
        assert_eq!(posts.take(), [id(3), id(4)]);
        assert_eq!(posts.take(), []);
        let put = (0..PLACES as u32 * 2).filter(|slot| posts.put(id(*slot))).count();
        assert!(put <= PLACES, "{put}");
        assert_eq!(posts.take().len(), put);
    }
}
