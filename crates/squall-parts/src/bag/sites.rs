//! The sites of the bag's argument. Each model twin weakens one.

use squall_sys::sync::weaken::Site;

/// Acquire of a size. Partner: the Release of `publish`.
pub(super) const LEN: Site = Site(124);
/// Release of an arrival. Partner: the Acquire of the passes.
pub(super) const ARRIVE: Site = Site(125);
/// Not an ordering: the size is stored before the arrival (`bag/I2`, `bag/I4`).
pub(super) const LATE: Site = Site(126);
/// Not an ordering: a transfer counts itself in (`bag/I3`).
pub(super) const EXPECT: Site = Site(127);
/// Acquire of the number of transfers in progress. Partner: [`ENDED`].
pub(super) const INBOUND: Site = Site(128);
/// Release of the end of a transfer. Partner: [`INBOUND`].
pub(super) const ENDED: Site = Site(129);
/// Not an ordering: `get` compares the arrivals in a second pass (`bag/I4`).
pub(super) const AGAIN: Site = Site(130);
