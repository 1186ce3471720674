//! The location of a node, and the distance between two.

use serde::{Deserialize, Serialize};

/// The location of a node: its machine, and its part of the machine.
///
/// Calls and messages go to the nearest service: on the calling node, then behind the same cache, at the same
/// memory, on the same machine, and on another one. Equally near services share the calls.
///
/// Source: Wentzlaff 2012, §3.2.3 and §3.2.4 (FO-11, FO-13).
/// # Examples
/// ```
/// use squall::fleet::Location;
///
/// let here = Location { host: 7, memory: Some(0), cache: Some(4) };
/// let other_cache = Location { cache: Some(0), ..here };
/// assert!(here.distance(here) < here.distance(other_cache));
/// assert!(here.distance(other_cache) < here.distance(Location::of_host(7)));
/// assert!(here.distance(Location::of_host(7)) < here.distance(Location::of_host(8)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Location {
    /// The number of the machine.
    pub host: u64,
    /// The NUMA node, if the node keeps to one.
    pub memory: Option<u32>,
    /// The last-level cache, if the node keeps to the processors of one.
    pub cache: Option<u32>,
}

impl Location {
    /// The distance to another machine.
    pub(crate) const FARTHEST: u8 = 4;

    /// A node that may run on all processors of a machine.
    pub fn of_host(host: u64) -> Location {
        Location { host, memory: None, cache: None }
    }

    /// Returns the distance to another node: 1 behind the same cache, 2 at the same memory, 3 on the same
    /// machine, and 4 on another one.
    pub fn distance(self, other: Location) -> u8 {
        let same = |a: Option<u32>, b: Option<u32>| a.is_some() && a == b;
        if self.host != other.host {
            Location::FARTHEST
        } else if same(self.cache, other.cache) {
            1
        } else if same(self.memory, other.memory) {
            2
        } else {
            3
        }
    }
}
