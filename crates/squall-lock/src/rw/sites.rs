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
/// Not an ordering: a reader that waits sets WAITS.
pub(crate) const ANNOUNCE: Site = Site(51);
/// Acquire of a counted reader that goes in. Partner: [`UNLOCK_RELEASE`].
pub(crate) const COUNT_ACQUIRE: Site = Site(52);
/// Release of a counted reader that leaves. Partner: [`COUNT_SEEN`].
pub(crate) const COUNT_RELEASE: Site = Site(53);
/// Acquire of a writer that reads the count. Partner: [`COUNT_RELEASE`].
pub(crate) const COUNT_SEEN: Site = Site(54);
/// Not an ordering: the last counted reader wakes the writer.
pub(crate) const COUNT_SIGNAL: Site = Site(55);
/// Not an ordering: a reader with a mark reads UNBIASED again.
pub(crate) const UNBIASED_SEEN: Site = Site(56);
/// Not an ordering: a writer of a biased lock reads the marks.
pub(crate) const REVOKE: Site = Site(57);
