//! The fences and orderings that the argument in `raw.rs` names, each of which a model test weakens.

use squall_sys::sync::weaken::Site;

/// The light fence of a reader between its mark and the word. Partner: [`HEAVY`].
pub(crate) const ENTER_LIGHT: Site = Site(40);
/// The full fence of a reader there, where `membarrier` is not used. Partner: [`HEAVY`].
pub(crate) const ENTER_FULL: Site = Site(41);
/// The fence of a writer between the word and the marks. Partners: [`ENTER_LIGHT`], [`ENTER_FULL`], [`LEAVE_LIGHT`],
/// [`LEAVE_FULL`].
pub(crate) const HEAVY: Site = Site(42);
/// The acquire of a reader that goes in. Partner: [`UNLOCK_RELEASE`].
pub(crate) const ENTER_ACQUIRE: Site = Site(43);
/// The release of a writer that goes out. Partner: [`ENTER_ACQUIRE`].
pub(crate) const UNLOCK_RELEASE: Site = Site(44);
/// The release of a mark that is taken away. Partner: [`SCAN_ACQUIRE`].
pub(crate) const LEAVE_RELEASE: Site = Site(45);
/// The release of a mark that is set: it carries on what the one taken away before it released. Partner: [`SCAN_ACQUIRE`].
pub(crate) const MARK_RELEASE: Site = Site(46);
/// The acquire of a writer that looks at a mark. Partners: [`LEAVE_RELEASE`], [`MARK_RELEASE`].
pub(crate) const SCAN_ACQUIRE: Site = Site(47);
/// The light fence of a reader between taking its mark away and the word. Partner: [`HEAVY`].
pub(crate) const LEAVE_LIGHT: Site = Site(48);
/// The full fence of a reader there, where `membarrier` is not used. Partner: [`HEAVY`].
pub(crate) const LEAVE_FULL: Site = Site(49);
/// Not an ordering: a writer waits for the readers that the writer before it had kept waiting.
pub(crate) const READERS_FIRST: Site = Site(50);
