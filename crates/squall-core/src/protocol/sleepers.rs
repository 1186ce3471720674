//! Where calls wait for a swap: a fixed number of event counts, shared by slot.

use squall_machine::park::EventCount;
use squall_sys::apart::Apart;

/// Places where those sleep who wait for swaps.
const PLACES: usize = 64;
static SLEEPERS: [Apart<EventCount>; PLACES] = [const { Apart::new(EventCount::new()) }; PLACES];

/// See [`Platform::sleepers`].
pub(crate) fn sleepers(slot: u32) -> &'static EventCount {
    &SLEEPERS[slot as usize % PLACES]
}
