//! The event counts on which calls wait for a swap: a fixed number, selected by slot.

use squall_machine::park::EventCount;
use squall_sys::apart::Apart;

/// Number of event counts.
const PLACES: usize = 64;
static SLEEPERS: [Apart<EventCount>; PLACES] = [const { Apart::new(EventCount::new()) }; PLACES];

/// Implements [`Platform::sleepers`](super::platform::Platform::sleepers).
pub(crate) fn sleepers(slot: u32) -> &'static EventCount {
    &SLEEPERS[slot as usize % PLACES]
}
