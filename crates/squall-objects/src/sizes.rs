//! The cluster size of an object as an attribute, so that it can be read and set by name through the object's
//! id.

use squall_adapt::control::{PlannedSwap, register_attribute};
use squall_core::{Handle, Interface};
use squall_machine::ClusterSize;
use squall_policy::attribute::Attribute;

/// Size of the clusters that have a representative each.
///
/// Read-mostly values, directories, and replicated or partitioned maps have this attribute. Cached lists and
/// maps have it unless their form is shared. Setting the attribute swaps the object while threads use it,
/// like `set_cluster_size`. A browser or
/// [`squall::adapt::control::set_attribute`](squall_adapt::control::set_attribute) sets it.
///
/// ```
/// use squall::adapt::control;
/// use squall::objects::read_mostly::{self, ReadMostly};
/// use squall::{ClusterSize, Handle};
///
/// let limits = read_mostly::distributed([10, 20], ClusterSize::Node);
/// control::set_attribute(Handle::id(limits.handle()), "cluster-size", "core").unwrap();
/// assert_eq!(limits.cluster_size(), ClusterSize::Core);
/// ```
pub static CLUSTER_SIZE: Attribute<ClusterSize> = Attribute::new("cluster-size", ClusterSize::Machine)
    .about("size of the clusters that have a representative each; set by a swap");

/// Registers the attribute for an interface. `read` returns the size if the object has one; `make` plans the
/// swap that sets it.
pub(crate) fn have<I: ?Sized + Interface>(
    read: fn(Handle<I>) -> Option<ClusterSize>,
    make: fn(Handle<I>, ClusterSize) -> Option<PlannedSwap<I>>,
) {
    register_attribute(&CLUSTER_SIZE, read, make);
}
