//! What we may use of the machine just now: it changes while a program runs, the topology does not.

use super::{Quota, ReadError, Reader, Topology, VpSet};

/// A snapshot of what the process may use: which VPs, which of them run at all, and how much processor time.
///
/// [`crate::Machine::refresh`] takes one, [`crate::Machine::allowance`] gives the last one taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    generation: u64,
    readings: Readings,
}

/// The snapshot without its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readings {
    online: VpSet,
    allowed: VpSet,
    cpuset: Option<VpSet>,
    quota: Option<Quota>,
    warnings: Vec<String>,
}

impl Allowance {
    /// `readings`, numbered.
    pub(crate) fn numbered(generation: u64, readings: Readings) -> Allowance {
        Allowance { generation, readings }
    }

    /// What was read.
    pub(crate) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Grows by one whenever a refresh finds something changed; the first snapshot is 1.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// VPs whose processor is online.
    pub fn online(&self) -> &VpSet {
        &self.readings.online
    }

    /// VPs in the affinity mask of the process's first thread, which its other threads inherit unless they are told
    /// otherwise; it already lies within the cpuset. May name VPs that are offline. Never empty.
    /// [`crate::Machine::thread_allowed`] has the mask of one thread.
    pub fn allowed(&self) -> &VpSet {
        &self.readings.allowed
    }

    /// VPs that the process's control group may use: as far as a mask can be widened. `None` if there is no such group.
    pub fn cpuset(&self) -> Option<&VpSet> {
        self.readings.cpuset.as_ref()
    }

    /// The tightest limit of processor time on the process's control groups.
    pub fn quota(&self) -> Option<Quota> {
        self.readings.quota
    }

    /// What could not be read and was assumed, in sentences for people.
    pub fn warnings(&self) -> &[String] {
        &self.readings.warnings
    }

    /// VPs that are allowed and online; if none is (they are being moved), those allowed. Never empty.
    pub fn usable(&self) -> VpSet {
        let usable = self.readings.allowed.intersection(&self.readings.online);
        if usable.is_empty() { self.readings.allowed.clone() } else { usable }
    }

    /// How many threads can run at once: the usable VPs, or the quota rounded up if that is less. At least 1.
    pub fn parallelism(&self) -> usize {
        let quota = self.readings.quota.map_or(usize::MAX, |quota| quota.cpus_ceil());
        self.usable().len().min(quota)
    }
}

impl Readings {
    pub(crate) fn online(&self) -> &VpSet {
        &self.online
    }

    /// Adds a sentence for people.
    pub(crate) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

impl Reader {
    /// What may be used now of the machine that `topology` tells of. What cannot be read is taken as unrestricted,
    /// with a warning.
    pub(crate) fn readings(&self, topology: &Topology) -> Readings {
        let mut warnings = Vec::new();
        let groups = or_warn(self.control_groups(), &mut warnings);
        let quota = groups.as_ref().and_then(|g| or_warn(self.quota(g), &mut warnings)).flatten();
        let possible = topology.possible();
        if topology.is_virtual() {
            let (online, allowed) = (possible.clone(), possible.clone());
            return Readings { online, allowed, cpuset: None, quota, warnings };
        }
        let online = or_warn(self.online(possible), &mut warnings).unwrap_or_else(|| possible.clone());
        let allowed = or_warn(self.mask_of("proc/self/status"), &mut warnings).flatten();
        let cpuset = groups.as_ref().and_then(|g| or_warn(self.cpuset(g), &mut warnings)).flatten();
        Readings {
            online,
            allowed: within(possible, allowed),
            cpuset: cpuset.map(|set| set.intersection(possible)),
            quota,
            warnings,
        }
    }

    /// The CPUs that are online: by sysfs, else by `/proc/stat`; all that are possible if neither tells.
    pub(crate) fn online(&self, possible: &VpSet) -> Result<VpSet, ReadError> {
        if let Some(online) = self.value::<VpSet>("sys/devices/system/cpu/online")? {
            return Ok(within(possible, Some(online)));
        }
        let stat = self.text("proc/stat")?.unwrap_or_default();
        let rows = stat.lines().filter_map(|line| line.split(' ').next()?.strip_prefix("cpu"));
        let listed = rows.filter_map(|number| number.parse::<VpSet>().ok());
        Ok(within(possible, listed.reduce(|all, one| all.union(&one))))
    }

    /// The affinity mask in a `status` file of `/proc`, within what is possible.
    pub(crate) fn mask(&self, file: &str, possible: &VpSet) -> Result<VpSet, ReadError> {
        Ok(within(possible, self.mask_of(file)?))
    }

    fn mask_of(&self, file: &str) -> Result<Option<VpSet>, ReadError> {
        let Some(list) = self.status_field(file, "Cpus_allowed_list:")? else { return Ok(None) };
        match list.parse() {
            Ok(mask) => Ok(Some(mask)),
            Err(e) => Err(self.malformed(file, format!("has as Cpus_allowed_list {e}"))),
        }
    }
}

/// The part of `set` that is possible; all that is possible if there is none.
fn within(possible: &VpSet, set: Option<VpSet>) -> VpSet {
    let inside = set.map_or_else(VpSet::new, |set| set.intersection(possible));
    if inside.is_empty() { possible.clone() } else { inside }
}

fn or_warn<T>(read: Result<T, ReadError>, warnings: &mut Vec<String>) -> Option<T> {
    read.map_err(|e| warnings.push(format!("{e}; so no restriction is assumed from it"))).ok()
}
