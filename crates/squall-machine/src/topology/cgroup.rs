//! Limits from control groups: a set of processors, and a share of processor time.
//!
//! Both versions of control groups may be mounted at once, each controller in one of them. A container may
//! see its own group as the root of the mount, or the whole hierarchy. So the mount table decides where to
//! look for the group of a controller. Every group is also held to the limits of the groups above it, so the
//! whole path up to the mount's root is read.

use std::cmp::Ordering;
use std::path::{Component, Path, PathBuf};

use super::{ReadError, Reader, VpSet};

/// A limit of processor time: `quota_us` microseconds in each period of `period_us`.
///
/// # Example
/// ```
/// use squall::topology::Quota;
///
/// let quota = Quota::new(150_000, 100_000).unwrap();
/// assert_eq!(quota.cpus(), 1.5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    quota_us: u64,
    period_us: u64,
}

impl Quota {
    /// Creates a quota of `quota_us` microseconds in every `period_us`. Returns `None` if either is zero,
    /// because the kernel refuses that.
    pub const fn new(quota_us: u64, period_us: u64) -> Option<Quota> {
        if quota_us == 0 || period_us == 0 { None } else { Some(Quota { quota_us, period_us }) }
    }

    /// Returns the processor time per period, in microseconds.
    pub const fn quota_us(&self) -> u64 {
        self.quota_us
    }

    /// Returns the period, in microseconds.
    pub const fn period_us(&self) -> u64 {
        self.period_us
    }

    /// Returns the quota in processors, usually a fraction.
    pub fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }

    /// Returns the number of threads that can run all the time under the quota, rounded up.
    ///
    /// # Example
    /// ```
    /// use squall::topology::Quota;
    ///
    /// assert_eq!(Quota::new(150_000, 100_000).unwrap().cpus_ceil(), 2);
    /// ```
    pub fn cpus_ceil(&self) -> usize {
        usize::try_from(self.quota_us.div_ceil(self.period_us)).unwrap_or(usize::MAX)
    }

    fn compare(&self, other: &Quota) -> Ordering {
        let ours = u128::from(self.quota_us) * u128::from(other.period_us);
        ours.cmp(&(u128::from(other.quota_us) * u128::from(self.period_us)))
    }
}

/// Directories that limit the process, per controller, own group first. Paths are as on `/`.
pub(super) struct ControlGroups {
    v2: Vec<PathBuf>,
    v1_cpu: Vec<PathBuf>,
    v1_cpuset: Vec<PathBuf>,
}

/// One mounted hierarchy.
struct Mount {
    /// The group that the mount shows as its root.
    root: PathBuf,
    point: PathBuf,
}

impl Reader {
    /// Finds the directories of the process's control groups.
    pub(super) fn control_groups(&self) -> Result<ControlGroups, ReadError> {
        let own = self.text(OWN_GROUPS)?.unwrap_or_default();
        let mounts = self.text("proc/self/mountinfo")?.unwrap_or_default();
        let groups = |controller| -> Result<Vec<PathBuf>, ReadError> {
            let path = self.own_group(&own, controller)?;
            Ok(path.map_or_else(Vec::new, |path| path_up(&path, mount(&mounts, controller))))
        };
        Ok(ControlGroups { v2: groups("")?, v1_cpu: groups("cpu")?, v1_cpuset: groups("cpuset")? })
    }

    /// Returns the tightest limit of processor time on the paths of the process's control groups.
    pub(super) fn quota(&self, groups: &ControlGroups) -> Result<Option<Quota>, ReadError> {
        let mut tightest: Option<Quota> = None;
        for group in &groups.v2 {
            let found = self.quota_v2(&group.join("cpu.max"))?;
            tightest = tighter(tightest, found);
        }
        for group in &groups.v1_cpu {
            let found = self.quota_v1(group)?;
            tightest = tighter(tightest, found);
        }
        Ok(tightest)
    }

    /// Returns the processors that the process's control group may use, or `None` if no group restricts them.
    pub(super) fn cpuset(&self, groups: &ControlGroups) -> Result<Option<VpSet>, ReadError> {
        // A group without the controller has no file and inherits from the group above.
        let v2 = groups.v2.iter().map(|group| group.join("cpuset.cpus.effective"));
        let v1_names = |group: &PathBuf| [group.join("cpuset.effective_cpus"), group.join("cpuset.cpus")];
        for file in v2.chain(groups.v1_cpuset.iter().flat_map(v1_names)) {
            match self.value::<VpSet>(file)? {
                Some(set) if !set.is_empty() => return Ok(Some(set)),
                Some(_) | None => {}
            }
        }
        Ok(None)
    }

    fn quota_v2(&self, file: &Path) -> Result<Option<Quota>, ReadError> {
        let Some(text) = self.text(file)? else { return Ok(None) };
        let shown = super::shorten(text.trim());
        let fail = || {
            self.malformed(
                file,
                format!("holds `{shown}`; a limit looks like `max 100000` or `50000 100000`"),
            )
        };
        let (quota, period) = text.trim().split_once(' ').ok_or_else(fail)?;
        let period: u64 = period.parse().map_err(|_| fail())?;
        if quota == "max" {
            return Ok(None);
        }
        let quota: u64 = quota.parse().map_err(|_| fail())?;
        Quota::new(quota, period).map(Some).ok_or_else(fail)
    }

    fn quota_v1(&self, group: &Path) -> Result<Option<Quota>, ReadError> {
        let Some(quota) = self.value::<i64>(group.join("cpu.cfs_quota_us"))? else { return Ok(None) };
        let Some(period) = self.value::<u64>(group.join("cpu.cfs_period_us"))? else { return Ok(None) };
        let Ok(quota) = u64::try_from(quota) else { return Ok(None) };
        let fail = || self.malformed(group.join("cpu.cfs_period_us"), "and its quota must not be zero");
        Quota::new(quota, period).map(Some).ok_or_else(fail)
    }

    /// Finds the path of the process's group, in lines of the form `hierarchy:controllers:path`. Version 2
    /// has an empty list of controllers there.
    fn own_group(&self, lines: &str, controller: &str) -> Result<Option<PathBuf>, ReadError> {
        for line in lines.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                let shown = super::shorten(line);
                let reason = format!("has the line `{shown}`; a line looks like `number:names:path`");
                return Err(self.malformed(OWN_GROUPS, reason));
            };
            if controllers.split(',').any(|name| name == controller) {
                return Ok(Some(PathBuf::from(path)));
            }
        }
        Ok(None)
    }
}

const OWN_GROUPS: &str = "proc/self/cgroup";

/// Lists the directories from the process's group up to the root of the mount.
fn path_up(path: &Path, mount: Mount) -> Vec<PathBuf> {
    let Mount { root, point } = mount;
    // Outside the mount, or above the namespace's root, only the mount's own root is visible.
    let below = path.strip_prefix(&root).unwrap_or(Path::new(""));
    let plain = |path: &Path| path.components().all(|c| matches!(c, Component::Normal(_)));
    let below = if plain(below) { below } else { Path::new("") };
    below.ancestors().map(|group| point.join(group)).collect()
}

/// Finds where a controller's hierarchy is mounted: by the mount table, else at the usual place.
fn mount(table: &str, controller: &str) -> Mount {
    let found = table.lines().filter_map(parse_mount).find(|(sort, options, _)| match controller {
        "" => *sort == "cgroup2",
        _ => *sort == "cgroup" && options.split(',').any(|name| name == controller),
    });
    let usual = || Mount { root: "/".into(), point: Path::new("/sys/fs/cgroup").join(controller) };
    found.map_or_else(usual, |(_, _, mount)| mount)
}

fn tighter(a: Option<Quota>, b: Option<Quota>) -> Option<Quota> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if b.compare(&a) == Ordering::Less { b } else { a }),
        (a, b) => a.or(b),
    }
}

/// Parses a line `id parent device root point options [tags] - type source options` of a mount table. Returns
/// the file system type, its options, and the mount. Lines of another form are ignored.
fn parse_mount(line: &str) -> Option<(&str, &str, Mount)> {
    let (left, right) = line.split_once(" - ")?;
    let mut left = left.split(' ').skip(3);
    let (root, point) = (left.next()?, left.next()?);
    let mut right = right.split(' ');
    let (sort, _source, options) = (right.next()?, right.next()?, right.next()?);
    Some((sort, options, Mount { root: unescape(root), point: unescape(point) }))
}

/// Undoes the mount table's octal escapes of blanks and backslashes.
fn unescape(field: &str) -> PathBuf {
    let mut plain = Vec::new();
    let mut bytes = field.as_bytes();
    while let [first, rest @ ..] = bytes {
        let octal = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok();
        match (first, rest.split_at_checked(3)) {
            (b'\\', Some((digits, after))) if octal(digits).is_some() => {
                plain.extend(octal(digits));
                bytes = after;
            }
            _ => {
                plain.push(*first);
                bytes = rest;
            }
        }
    }
    PathBuf::from(String::from_utf8_lossy(&plain).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_taken_apart() {
        let line =
            r"33 31 0:30 /docker/a\040b /sys/fs/cgroup/cpu\134x rw shared:9 - cgroup cgroup rw,cpu,cpuacct";
        let (sort, options, mount) = parse_mount(line).unwrap();
        assert_eq!((sort, options), ("cgroup", "rw,cpu,cpuacct"));
        assert_eq!(mount.root, Path::new("/docker/a b"));
        assert_eq!(mount.point, Path::new(r"/sys/fs/cgroup/cpu\x"));
        assert!(parse_mount("33 31 0:30 / /x rw").is_none());
        assert_eq!(unescape(r"end\04"), Path::new(r"end\04"));
        assert_eq!(unescape(r"\9zz"), Path::new(r"\9zz"));
    }

    #[test]
    fn the_tighter_quota_is_the_smaller_fraction() {
        let half = Quota::new(100_000, 200_000);
        let two = Quota::new(u64::MAX, u64::MAX / 2);
        assert_eq!(tighter(half, two), half);
        assert_eq!(tighter(two, half), half);
        assert_eq!(tighter(None, two), two);
        assert_eq!(tighter(half, None), half);
        assert_eq!(Quota::new(0, 100), None);
        assert_eq!(Quota::new(100, 0), None);
        assert_eq!(Quota::new(150_001, 100_000).unwrap().cpus_ceil(), 2);
    }
}
