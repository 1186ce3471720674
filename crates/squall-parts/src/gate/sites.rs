//! The fences, orderings and orders of steps in the arguments of `shared.rs` and `spread/`. Each model twin
//! weakens one.

use squall_sys::sync::weaken::Site;

/// Acquire of a request that enters a shared counter. Partner: [`RESTART_RELEASE`].
pub(super) const ENTER_ACQUIRE: Site = Site(60);
/// Release of a restart. Partner: [`ENTER_ACQUIRE`].
pub(super) const RESTART_RELEASE: Site = Site(61);
/// Release of a request that leaves a shared counter. Partner: [`DRAIN_ACQUIRE`].
pub(super) const LEAVE_RELEASE: Site = Site(62);
/// Acquire of a control that waits until a shared counter is empty. Partner: [`LEAVE_RELEASE`].
pub(super) const DRAIN_ACQUIRE: Site = Site(63);
/// Light fence between a proxy's count and its state, when a request enters. Partner: [`HEAVY`].
pub(super) const PROXY_ENTER_LIGHT: Site = Site(64);
/// Full fence at that place, used without `membarrier`. Partner: [`HEAVY`].
pub(super) const PROXY_ENTER_FULL: Site = Site(65);
/// Light fence between a proxy's count and its state, when a request leaves. Partner: [`HEAVY`].
pub(super) const PROXY_LEAVE_LIGHT: Site = Site(66);
/// Full fence at that place, used without `membarrier`. Partner: [`HEAVY`].
pub(super) const PROXY_LEAVE_FULL: Site = Site(67);
/// Fence of the control between setting the states and reading the counts. Partners: [`PROXY_ENTER_LIGHT`],
/// [`PROXY_ENTER_FULL`], [`PROXY_LEAVE_LIGHT`], [`PROXY_LEAVE_FULL`].
pub(super) const HEAVY: Site = Site(68);
/// Release fence of a request that leaves. Partner: [`SUM_ACQUIRE`].
pub(super) const PROXY_LEAVE_RELEASE: Site = Site(69);
/// Acquire fence after the sum of the `left` counts. Partner: [`PROXY_LEAVE_RELEASE`].
pub(super) const SUM_ACQUIRE: Site = Site(70);
/// Acquire of reading a proxy's state when a request enters. Partner: [`PASS_RELEASE`].
pub(super) const PROXY_ENTER_ACQUIRE: Site = Site(71);
/// Release of setting a proxy's state. Partner: [`PROXY_ENTER_ACQUIRE`].
pub(super) const PASS_RELEASE: Site = Site(72);
/// Not an ordering: the `left` counts are summed before the `entered` counts.
pub(super) const LEFT_BEFORE_ENTERED: Site = Site(73);
/// Not an ordering: the word changes before the proxies do.
pub(super) const WORD_BEFORE_PROXIES: Site = Site(74);
/// Not an ordering: a restart ends with the first representative.
pub(super) const FIRST_RESTARTS_LAST: Site = Site(75);
/// Not an ordering: a stop begins with the first representative.
pub(super) const FIRST_STOPS_FIRST: Site = Site(76);
/// Not an ordering: the closing of the gates is finished before the sums.
pub(super) const FINISH_CLOSING: Site = Site(77);
/// Not an ordering: the first representative's gate opens before its state lets other operations close it.
pub(super) const GATE_BEFORE_STATE: Site = Site(78);
/// Not an ordering: a proxy is pushed with gates that match the state it is pushed in.
pub(super) const NEW_GATE: Site = Site(79);
/// Not an ordering: a future looks at its gate again after it has left its waker.
pub(super) const LOOK_AGAIN: Site = Site(107);
/// Acquire of a thread that finds a gate's tasks. Partner: [`TASKS_RELEASE`].
pub(super) const TASKS_ACQUIRE: Site = Site(108);
/// Release of the thread that makes a gate's tasks. Partner: [`TASKS_ACQUIRE`].
pub(super) const TASKS_RELEASE: Site = Site(109);
