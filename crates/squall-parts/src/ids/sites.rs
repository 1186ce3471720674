//! The sites of the argument about ids. Each model twin weakens one.

use squall_sys::sync::weaken::Site;

/// Acquire of a shard's word. Partner: the Release of `publish`. That one is no site, because the modelled
/// lock orders the stores as well.
pub(super) const LOOK: Site = Site(201);
/// Not an ordering: the search reads all words again before it fails (`ids/I5`).
pub(super) const AGAIN: Site = Site(202);
/// Not an ordering: a returned id waits for the next round (`ids/I2`).
pub(super) const WAIT: Site = Site(203);
/// Not an ordering: an early end of a round holds the search lock (`ids/I4`).
pub(super) const EARLY: Site = Site(205);
/// Not an ordering: a transfer holds the search lock until its ids have arrived (`ids/I4`).
pub(super) const HOLD: Site = Site(204);
