//! The sites of the argument of loads. Each model twin weakens one. None of them is an ordering: the list has
//! a lock.

use squall_sys::sync::weaken::Site;

/// A caller that adds a load finds the key absent under the lock (`loads/I2`).
pub(super) const FIND_AGAIN: Site = Site(248);
/// A turn without a value wakes a caller that waits (`loads/I3`).
pub(super) const PASS_ON: Site = Site(249);
/// A waiting caller that leaves wakes the next one (`loads/I3`).
pub(super) const LEAVE: Site = Site(250);
