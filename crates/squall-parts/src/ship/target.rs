//! The target of a call: a cluster, and the VP of it that gets the call.

use super::SendError;
use super::vps::existing;
use squall_machine::{Cluster, ClusterSize, Clusters, Vp, machine};

/// The cluster that a call goes to, and the choice among its VPs.
///
/// A [`Vp`] converts to the cluster of that VP alone, and a pair of a size and a cluster to that cluster.
///
/// # Example
/// ```
/// use squall::ship::{Choice, Target, ship};
/// use squall::{Cluster, ClusterSize};
///
/// let target = Target::from((ClusterSize::Node, Cluster::new(0))).choice(Choice::Idle);
/// let sum = ship(target, || 1 + 2)?;
/// assert_eq!(sum.wait()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    place: Place,
    choice: Choice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Vp(Vp),
    Cluster(ClusterSize, Cluster),
}

/// The choice of a VP in the target cluster.
///
/// # Source
/// Unrau et al. 1995, §6 (HU-09): processor i of a cluster interrupts processor i of the other one. The paper
/// proposes any idle processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Choice {
    /// The VP with the caller's position in its own cluster, modulo the size of the target.
    #[default]
    SameIndex,
    /// The VP with the fewest calls that wait or run there, or have a result that was not taken. Among those,
    /// one that a thread is ready to serve. If its inbox is full, any other one.
    Idle,
}

impl From<Vp> for Target {
    fn from(vp: Vp) -> Target {
        Target { place: Place::Vp(vp), choice: Choice::SameIndex }
    }
}

impl From<&Vp> for Target {
    fn from(vp: &Vp) -> Target {
        Target::from(*vp)
    }
}

impl From<(ClusterSize, Cluster)> for Target {
    fn from((size, cluster): (ClusterSize, Cluster)) -> Target {
        Target { place: Place::Cluster(size, cluster), choice: Choice::SameIndex }
    }
}

impl Target {
    /// Sets the choice of the VP.
    pub fn choice(self, choice: Choice) -> Target {
        Target { choice, ..self }
    }

    /// Checks that the machine has the VP of the target.
    ///
    /// # Panics
    /// If it lacks the VP.
    #[track_caller]
    pub(super) fn check(self) {
        if let Place::Vp(vp) = self.place {
            assert!(machine().vps().contains(vp), "this machine has no {vp}");
        }
    }

    /// Returns whether the target contains `here`.
    #[inline]
    pub fn contains(self, here: Vp) -> bool {
        match self.place {
            Place::Vp(vp) => vp == here,
            Place::Cluster(size, cluster) => machine().clusters(size).cluster_of(here) == cluster,
        }
    }

    /// Returns the VPs of the target, the one with the position of `here` in its own cluster first.
    ///
    /// # Panics
    /// If the machine has no such cluster.
    pub fn vps(self, here: Vp) -> Vec<Vp> {
        let (size, cluster) = match self.place {
            Place::Vp(vp) => return vec![vp],
            Place::Cluster(size, cluster) => (size, cluster),
        };
        let clusters = machine().clusters(size);
        let members = clusters.members(cluster);
        let same = position(clusters, here) % members.len();
        [&members[same..], &members[..same]].concat()
    }

    /// Calls `attempt` with the VPs to try, best first, for a caller on `here`, until it succeeds. A failed
    /// attempt returns its argument, for the next one. Returns the last error.
    ///
    /// # Panics
    /// If the machine has no such cluster.
    pub(super) fn try_each<T, U>(
        self,
        here: Vp,
        argument: T,
        mut attempt: impl FnMut(Vp, T) -> Result<U, SendError<T>>,
    ) -> Result<U, SendError<T>> {
        let (size, cluster) = match self.place {
            Place::Vp(vp) => return attempt(vp, argument),
            Place::Cluster(size, cluster) => (size, cluster),
        };
        if self.choice == Choice::SameIndex {
            let clusters = machine().clusters(size);
            let members = clusters.members(cluster);
            return attempt(members[position(clusters, here) % members.len()], argument);
        }
        let mut candidates = self.vps(here);
        candidates.sort_by_cached_key(|vp| load(*vp));
        let mut result = attempt(candidates[0], argument);
        for vp in &candidates[1..] {
            match result {
                Ok(done) => return Ok(done),
                Err(error) => result = attempt(*vp, error.into_call()),
            }
        }
        result
    }
}

/// Returns the position of `vp` in its cluster.
fn position(clusters: &Clusters, vp: Vp) -> usize {
    let members = clusters.members(clusters.cluster_of(vp));
    members.iter().position(|member| *member == vp).unwrap_or(0)
}

/// Returns the number of slots in use of a VP, and whether no thread is ready to serve it.
fn load(vp: Vp) -> (u32, bool) {
    match existing(vp) {
        Some(inbox) => (inbox.inbox.used(), !(inbox.is_served() || inbox.staff.is_idle())),
        None => (0, true),
    }
}
