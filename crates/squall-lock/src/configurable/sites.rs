//! The orderings and steps of the argument in `raw.rs`, which model tests weaken one by one.

use squall_sys::sync::weaken::Site;

/// The acquire of whoever takes the free lock. Partner: [`RELEASE`].
pub(crate) const ACQUIRE: Site = Site(80);
/// The release of whoever frees the lock. Partner: [`ACQUIRE`].
pub(crate) const RELEASE: Site = Site(81);
/// The release with which a registered waiter is given the lock. Partner: [`GRANT_ACQUIRE`].
pub(crate) const GRANT_RELEASE: Site = Site(82);
/// The acquire of a registered waiter that finds itself given the lock. Partner: [`GRANT_RELEASE`].
pub(crate) const GRANT_ACQUIRE: Site = Site(83);
/// Step: a thread that is about to sleep looks, under the lock of the queue, whether the lock is still held (W2).
pub(crate) const LAST_LOOK: Site = Site(84);
/// Step: a waiter that was counted on does not leave while the lock is free (W3).
pub(crate) const DUTY: Site = Site(85);
/// Step: a thread that registers looks once more whether the lock is free (W2).
pub(crate) const REGISTERED_LOOK: Site = Site(86);
/// Step: whoever times out of the list looks whether it was given the lock meanwhile (W4).
pub(crate) const LATE_GRANT: Site = Site(87);
/// Step: a change of attributes wakes those who sleep (W5).
pub(crate) const CHANGE_WAKES: Site = Site(88);
/// Step: a thread that is about to sleep looks whether it was cancelled (W6).
pub(crate) const CANCEL_LOOK: Site = Site(90);
/// Step: a thread that is about to sleep looks whether the attributes are those that it waits by (W5).
pub(crate) const CHANGE_LOOK: Site = Site(91);
