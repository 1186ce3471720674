//! The size of an object's clusters as an attribute: read and set by name, by whoever has an object's id, as those of policies are.

use squall_policy::attribute::Attribute;
use squall_adapt::control::{PlannedSwap, register_attribute};
use squall_core::{Handle, Interface};
use squall_machine::ClusterSize;

/// How large the clusters are of which each has a representative of its own. Read-mostly values have it, cached lists and maps that are not
/// of the shared form, directories, and maps that are replicated or partitioned. It is set by a swap, while the object is used, as
/// their methods `set_cluster_size` do: by [`squall_adapt::control::set_attribute`], or from outside by a browser.
///
/// ```
/// use squall_adapt::control;
/// use squall_core::Handle;
/// use squall_machine::ClusterSize;
/// use squall_objects::read_mostly::{self, ReadMostly};
///
/// let limits = read_mostly::distributed([10, 20], ClusterSize::Node);
/// control::set_attribute(Handle::id(limits.handle()), "cluster-size", "core").unwrap();
/// assert_eq!(limits.cluster_size(), ClusterSize::Core);
/// ```
pub static CLUSTER_SIZE: Attribute<ClusterSize> = Attribute::new("cluster-size", ClusterSize::Machine)
    .about("how large the clusters are of which each has a representative of its own; set by a swap");

/// Makes it known of an interface: how it is read, if an object has it, and what is to take which object's place to set it.
pub(crate) fn have<I: ?Sized + Interface>(
    read: fn(Handle<I>) -> Option<ClusterSize>,
    make: fn(Handle<I>, ClusterSize) -> Option<PlannedSwap<I>>,
) {
    register_attribute(&CLUSTER_SIZE, read, make);
}
