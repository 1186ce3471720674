//! The fences and orderings of the argument in `raw.rs`. Each model twin weakens one.

use squall_sys::sync::weaken::Site;

/// Light fence of a reader between setting its mark and reading the word. Partner: [`HEAVY`].
pub(crate) const ENTER_LIGHT: Site = Site(40);
/// Full fence of a reader at that place, used without `membarrier`. Partner: [`HEAVY`].
pub(crate) const ENTER_FULL: Site = Site(41);
/// Fence of a writer between setting the word and reading the marks. Partners: [`ENTER_LIGHT`],
/// [`ENTER_FULL`], [`LEAVE_LIGHT`], [`LEAVE_FULL`].
pub(crate) const HEAVY: Site = Site(42);
/// Acquire of a reader that goes in. Partner: [`UNLOCK_RELEASE`].
pub(crate) const ENTER_ACQUIRE: Site = Site(43);
/// Release of a writer that leaves. Partner: [`ENTER_ACQUIRE`].
pub(crate) const UNLOCK_RELEASE: Site = Site(44);
/// Release of clearing a mark. Partner: [`SCAN_ACQUIRE`].
pub(crate) const LEAVE_RELEASE: Site = Site(45);
/// Release of setting a mark: it passes on the writes released by clearing the previous mark. Partner:
/// [`SCAN_ACQUIRE`].
pub(crate) const MARK_RELEASE: Site = Site(46);
/// Acquire of a writer that reads a mark. Partners: [`LEAVE_RELEASE`], [`MARK_RELEASE`].
pub(crate) const SCAN_ACQUIRE: Site = Site(47);
/// Light fence of a reader between clearing its mark and reading the word. Partner: [`HEAVY`].
pub(crate) const LEAVE_LIGHT: Site = Site(48);
/// Full fence of a reader at that place, used without `membarrier`. Partner: [`HEAVY`].
pub(crate) const LEAVE_FULL: Site = Site(49);
/// Not an ordering: a writer waits for the readers that the previous writer had delayed.
pub(crate) const READERS_FIRST: Site = Site(50);
