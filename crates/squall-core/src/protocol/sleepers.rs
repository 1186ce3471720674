//! The event counts on which calls wait for a swap: a fixed number, selected by slot.

use squall_machine::park::EventCount;
use squall_sys::padded::CachePadded;

/// Number of event counts.
const PLACES: usize = 64;
static SLEEPERS: [CachePadded<EventCount>; PLACES] = [const { CachePadded::new(EventCount::new()) }; PLACES];

/// Implements [`Platform::sleepers`](super::platform::Platform::sleepers).
pub(crate) fn sleepers(slot: u32) -> &'static EventCount {
    &SLEEPERS[slot as usize % PLACES]
}
