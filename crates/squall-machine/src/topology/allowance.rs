//! Allowance: the share of the machine that the process may use. It changes while a program runs; the
//! topology does not.

use super::{Quota, ReadError, Reader, Topology, VpSet};

/// A snapshot of the share that the process may use: allowed VPs, online VPs, and processor time.
///
/// [`crate::Machine::refresh`] takes a snapshot; [`crate::Machine::allowance`] returns the last one.
///
/// # Example
/// ```
/// let allowance = squall::machine().refresh();
/// println!("usable VPs: {}; threads at once: {}", allowance.usable(), allowance.parallelism());
/// assert!(!allowance.usable().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allowance {
    generation: u64,
    readings: Readings,
}

/// The snapshot without its generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Readings {
    online: VpSet,
    allowed: VpSet,
    cpuset: Option<VpSet>,
    quota: Option<Quota>,
    warnings: Vec<String>,
}

impl Allowance {
    /// Gives `readings` a generation.
    pub(crate) fn numbered(generation: u64, readings: Readings) -> Allowance {
        Allowance { generation, readings }
    }

    /// Returns the snapshot without its generation.
    pub(crate) fn readings(&self) -> &Readings {
        &self.readings
    }

    /// Returns the generation. The first snapshot has 1; each refresh that finds a change adds one.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the VPs that are online.
    pub fn online(&self) -> &VpSet {
        &self.readings.online
    }

    /// Returns the affinity mask of the process's first thread. Other threads inherit it unless told
    /// otherwise. The mask lies within the cpuset, may contain offline VPs, and is never empty.
    /// [`crate::Machine::thread_allowed`] reads the mask of one thread.
    pub fn allowed(&self) -> &VpSet {
        &self.readings.allowed
    }

    /// Returns the VPs that the process's control group may use, the widest possible affinity mask. `None` if
    /// no group restricts them.
    pub fn cpuset(&self) -> Option<&VpSet> {
        self.readings.cpuset.as_ref()
    }

    /// Returns the tightest limit of processor time among the process's control groups.
    ///
    /// # Example
    /// ```
    /// if let Some(quota) = squall::machine().allowance().quota() {
    ///     println!("{} processors, in periods of {} us", quota.cpus(), quota.period_us());
    /// }
    /// ```
    pub fn quota(&self) -> Option<Quota> {
        self.readings.quota
    }

    /// Returns the values that could not be read and were assumed, one sentence each.
    pub fn warnings(&self) -> &[String] {
        &self.readings.warnings
    }

    /// Returns the VPs that are allowed and online. If that set is empty because the VPs are being moved,
    /// returns the allowed VPs. Never empty.
    pub fn usable(&self) -> VpSet {
        let usable = self.readings.allowed.intersection(&self.readings.online);
        if usable.is_empty() { self.readings.allowed.clone() } else { usable }
    }

    /// Returns the number of threads that can run at once: the number of usable VPs, or the quota rounded up
    /// if that is less. At least 1.
    ///
    /// # Example
    /// ```
    /// // One worker thread per thread that can run at once.
    /// let workers = squall::machine().allowance().parallelism();
    /// assert!(workers >= 1);
    /// ```
    pub fn parallelism(&self) -> usize {
        let quota = self.readings.quota.map_or(usize::MAX, |quota| quota.cpus_ceil());
        self.usable().len().min(quota)
    }
}

impl Readings {
    pub(crate) fn online(&self) -> &VpSet {
        &self.online
    }

    /// Adds a warning for display.
    pub(crate) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }
}

impl Reader {
    /// Reads the current allowance for the machine in `topology`. An unreadable value counts as unrestricted,
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

    /// Reads the online CPUs from sysfs, else from `/proc/stat`. Returns all possible CPUs if neither lists
    /// them.
    pub(crate) fn online(&self, possible: &VpSet) -> Result<VpSet, ReadError> {
        if let Some(online) = self.value::<VpSet>("sys/devices/system/cpu/online")? {
            return Ok(within(possible, Some(online)));
        }
        let stat = self.text("proc/stat")?.unwrap_or_default();
        let rows = stat.lines().filter_map(|line| line.split(' ').next()?.strip_prefix("cpu"));
        let listed = rows.filter_map(|number| number.parse::<VpSet>().ok());
        Ok(within(possible, listed.reduce(|all, one| all.union(&one))))
    }

    /// Reads the affinity mask from a `status` file of `/proc`, restricted to possible CPUs.
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

/// Returns the possible part of `set`, or all of `possible` if that part is empty.
fn within(possible: &VpSet, set: Option<VpSet>) -> VpSet {
    let inside = set.map_or_else(VpSet::new, |set| set.intersection(possible));
    if inside.is_empty() { possible.clone() } else { inside }
}

fn or_warn<T>(read: Result<T, ReadError>, warnings: &mut Vec<String>) -> Option<T> {
    read.map_err(|e| warnings.push(format!("{e}; its limit is ignored"))).ok()
}
