//! The fences, orderings and orders of steps that the arguments of `shared.rs` and `spread/` name, each of which a model
//! test weakens.

use squall_sys::sync::weaken::Site;

/// The acquire of who enters a shared counter. Partner: [`RESTART_RELEASE`].
pub(super) const ENTER_ACQUIRE: Site = Site(60);
/// The release of a restart. Partner: [`ENTER_ACQUIRE`].
pub(super) const RESTART_RELEASE: Site = Site(61);
/// The release of who leaves a shared counter. Partner: [`DRAIN_ACQUIRE`].
pub(super) const LEAVE_RELEASE: Site = Site(62);
/// The acquire of who waits until a shared counter is empty. Partner: [`LEAVE_RELEASE`].
pub(super) const DRAIN_ACQUIRE: Site = Site(63);
/// The light fence of a proxy between its count and its state, at the entry. Partner: [`HEAVY`].
pub(super) const PROXY_ENTER_LIGHT: Site = Site(64);
/// The full fence there, where `membarrier` is not used. Partner: [`HEAVY`].
pub(super) const PROXY_ENTER_FULL: Site = Site(65);
/// The light fence of a proxy between its count and its state, when a request leaves. Partner: [`HEAVY`].
pub(super) const PROXY_LEAVE_LIGHT: Site = Site(66);
/// The full fence there, where `membarrier` is not used. Partner: [`HEAVY`].
pub(super) const PROXY_LEAVE_FULL: Site = Site(67);
/// The fence of the control between the states and the counts.
pub(super) const HEAVY: Site = Site(68);
/// The release fence of a request that leaves. Partner: [`SUM_ACQUIRE`].
pub(super) const PROXY_LEAVE_RELEASE: Site = Site(69);
/// The acquire fence of a sum of those who left. Partner: [`PROXY_LEAVE_RELEASE`].
pub(super) const SUM_ACQUIRE: Site = Site(70);
/// The acquire of a proxy's state at the entry. Partner: [`PASS_RELEASE`].
pub(super) const PROXY_ENTER_ACQUIRE: Site = Site(71);
/// The release of a proxy's new state. Partner: [`PROXY_ENTER_ACQUIRE`].
pub(super) const PASS_RELEASE: Site = Site(72);
/// Not an ordering: those who left are summed before those who entered.
pub(super) const LEFT_BEFORE_ENTERED: Site = Site(73);
/// Not an ordering: the word changes before the proxies do.
pub(super) const WORD_BEFORE_PROXIES: Site = Site(74);
/// Not an ordering: a restart ends with the first representative.
pub(super) const FIRST_RESTARTS_LAST: Site = Site(75);
/// Not an ordering: a stop begins with the first representative.
pub(super) const FIRST_STOPS_FIRST: Site = Site(76);
/// Not an ordering: the gates that were closed are known to be so before the sums.
pub(super) const FINISH_CLOSING: Site = Site(77);
/// Not an ordering: the first representative's gate is opened before its state says that others may close it.
pub(super) const GATE_BEFORE_STATE: Site = Site(78);
/// Not an ordering: a proxy whose state changed before it was in the list is born with gates as that asks for.
pub(super) const NEW_GATE: Site = Site(79);
