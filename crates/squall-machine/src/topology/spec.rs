//! Virtual machines: the number of parts at each level, and the topology that follows.

use std::fmt;
use std::str::FromStr;

use super::shorten;

/// A virtual topology: `nodes:2,caches:2,cores:4,threads:2` is 2 nodes of 2 caches of 4 cores of 2 threads,
/// 32 VPs.
///
/// The counts multiply. In the text form keys come in any order, each at most once, and a missing key is 1.
/// VPs are numbered densely: threads of a core adjacent, then cores of a cache, then caches of a node.
///
/// # Example
/// ```
/// use squall::topology::VirtualSpec;
///
/// let spec: VirtualSpec = "nodes:2,caches:2,cores:4,threads:2".parse().unwrap();
/// assert_eq!(spec.vps(), 32);
/// assert!("nodes:0".parse::<VirtualSpec>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VirtualSpec {
    nodes: u32,
    caches: u32,
    cores: u32,
    threads: u32,
}

impl VirtualSpec {
    /// Largest number of VPs of a virtual machine.
    pub const VPS_MAX: u32 = 4096;

    /// Creates a machine with `nodes` nodes, `caches` caches per node, `cores` cores per cache and `threads`
    /// threads per core.
    ///
    /// # Errors
    /// [`SpecError`] if a count is zero, or if there would be more than [`VirtualSpec::VPS_MAX`] VPs.
    ///
    /// # Example
    /// ```
    /// use squall::topology::VirtualSpec;
    ///
    /// let spec = VirtualSpec::new(2, 1, 4, 2).unwrap();
    /// assert_eq!(spec.to_string(), "nodes:2,caches:1,cores:4,threads:2");
    /// assert_eq!(spec.vps(), 16);
    /// ```
    pub fn new(nodes: u32, caches: u32, cores: u32, threads: u32) -> Result<VirtualSpec, SpecError> {
        for (key, count) in KEYS.iter().zip([nodes, caches, cores, threads]) {
            if count == 0 {
                return Err(SpecError::new(format!("{key}:0"), "has no VP; a count is at least 1"));
            }
        }
        let spec = VirtualSpec { nodes, caches, cores, threads };
        let vps = [nodes, caches, cores, threads].iter().try_fold(1u32, |all, &n| all.checked_mul(n));
        match vps {
            Some(vps) if vps <= Self::VPS_MAX => Ok(spec),
            _ => Err(SpecError::new(spec.to_string(), "has too many VPs; the counts multiply")),
        }
    }

    /// Returns the number of VPs.
    pub fn vps(&self) -> u32 {
        self.nodes * self.caches * self.cores * self.threads
    }

    /// Returns the number of VPs per core, per cache and per node.
    pub(super) fn strides(&self) -> [u32; 3] {
        let core = self.threads;
        let cache = core * self.cores;
        [core, cache, cache * self.caches]
    }
}

/// The keys, coarsest first.
const KEYS: [&str; 4] = ["nodes", "caches", "cores", "threads"];

impl fmt::Display for VirtualSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VirtualSpec { nodes, caches, cores, threads } = self;
        write!(f, "nodes:{nodes},caches:{caches},cores:{cores},threads:{threads}")
    }
}

impl FromStr for VirtualSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<VirtualSpec, SpecError> {
        let mut counts: [Option<u32>; 4] = [None; 4];
        for item in text.split(',') {
            let fail = |reason| SpecError::new(shorten(item), reason);
            let (key, count) = item.split_once(':').ok_or_else(|| fail("is not of the form key:count"))?;
            let index = KEYS.iter().position(|k| *k == key).ok_or_else(|| fail("has an unknown key"))?;
            if count.is_empty() || !count.bytes().all(|b| b.is_ascii_digit()) {
                return Err(fail("has a count that is not a number"));
            }
            let count = count.parse().map_err(|_| fail("has a count that is too large"))?;
            if counts[index].replace(count).is_some() {
                return Err(fail("repeats its key"));
            }
        }
        let [nodes, caches, cores, threads] = counts.map(|count| count.unwrap_or(1));
        VirtualSpec::new(nodes, caches, cores, threads)
    }
}

/// Error: a virtual topology was rejected. The message shows a correct one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError {
    item: String,
    reason: &'static str,
}

impl SpecError {
    fn new(item: String, reason: &'static str) -> SpecError {
        SpecError { item, reason }
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` {}; write for example nodes:2,caches:2,cores:4,threads:2 (any order, each key at most once, \
             a missing key is 1, at most {} VPs in all)",
            self.item,
            self.reason,
            VirtualSpec::VPS_MAX
        )
    }
}

impl std::error::Error for SpecError {}
