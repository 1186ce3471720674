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
/// Not an ordering: a shard waits for transfers to it before it leaves (`bag/I5`).
pub(super) const OUTSTANDING: Site = Site(131);
/// Not an ordering: `get` compares the changes of the roster (`bag/I5`).
pub(super) const CHANGES: Site = Site(132);
/// The fence of a waiter that announces itself first. Partner: [`LOOK`].
pub(super) const ANNOUNCE: Site = Site(133);
/// The fence between an arrival and the look for waiters. Partners: [`ANNOUNCE`], [`QUEUE`].
pub(super) const LOOK: Site = Site(134);
/// The fence of a waiter that finds the bag announced. Partner: the fence of `serve_announced`.
pub(super) const QUEUE: Site = Site(135);
/// Not an ordering: a waiter looks for an element after it has queued (`wait/I1`).
pub(super) const RECHECK: Site = Site(136);
/// Not an ordering: a transfer looks for waiters after its arrival (`wait/I1`).
pub(super) const MOVED: Site = Site(137);
/// Not an ordering: a cancelled wait gives its element back (`wait/I3`).
pub(super) const BACK: Site = Site(138);
/// Not an ordering: `get` notices a shard that is leaving (`bag/I5`).
pub(super) const LEAVING: Site = Site(139);
/// Not an ordering: with all shards locked, `get` looks for transfers in progress (`bag/I3`).
pub(super) const ALL_INBOUND: Site = Site(140);
/// Not an ordering: with all shards locked, `get` compares the changes of the roster (`bag/I5`).
pub(super) const ALL_CHANGES: Site = Site(141);
/// Not an ordering: an element counts as given before it leaves its shard (`wait/I2`).
pub(super) const GIVEN: Site = Site(142);
/// Not an ordering: `get` takes back an element that was given (`wait/I2`).
pub(super) const TAKE_BACK: Site = Site(143);
/// Not an ordering: an element is taken back in one step (`wait/I2`).
pub(super) const ONE_STEP: Site = Site(146);
/// Not an ordering: an announcement with waiters stays (`wait/I1`).
pub(super) const WITHDRAW: Site = Site(144);
/// Not an ordering: a transfer without demand looks for waiters (`wait/I1`).
pub(super) const GIFT: Site = Site(145);
/// Not an ordering: the size of a shard is read under its lock before spare elements leave it.
pub(super) const KEEP: Site = Site(245);
