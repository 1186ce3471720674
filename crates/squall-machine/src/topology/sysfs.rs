//! Reads the levels from `/sys/devices/system`.
//!
//! A list in one CPU's file describes all its members, so most files are never opened. A machine of 256 CPUs
//! with 16 caches has its caches read from 16 directories. Lists are merged, not compared: a CPU that goes
//! offline between two reads leaves a shorter list, never a contradiction.

use std::collections::{BTreeMap, BTreeSet};

use super::groups::Groups;
use super::vpset::parse_mask;
use super::{Levels, ReadError, Reader, Source, Topology, VpSet, limit_of};
use crate::Vp;

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// Intel's names for the kinds of processor in one machine, fastest first.
const INTEL_KINDS: [&str; 3] = ["cpu_core", "cpu_atom", "cpu_lowpower"];

impl Reader {
    /// Reads the machine.
    ///
    /// # Errors
    /// [`ReadError`] names the first malformed file. [`Reader::topology_or_flat`] goes on without that file.
    pub fn topology(&self) -> Result<Topology, ReadError> {
        let (possible, source) = match self.possible()? {
            Some(found) => found,
            None => return Ok(counted("there is no list of processors in /sys or /proc".to_owned())),
        };
        let limit = limit_of(&possible);
        let mut warnings = Vec::new();
        if source == Source::MaskWidth {
            warnings.push("/sys does not list the processors: up to three VPs may not exist".to_owned());
        }
        let (core, core_known) = self.cores(&possible, limit)?;
        let (mut cache, cache_known) = self.caches(&possible, limit)?;
        let known = core_known.union(&cache_known);
        let unplaced = if known.is_empty() { VpSet::new() } else { possible.difference(&known) };
        if core_known.is_empty() {
            warnings.push("the kernel reports no cores: each VP counts as a core".to_owned());
        }
        if cache_known.is_empty() {
            warnings
                .push("the kernel reports no caches: each package and node counts as one cache".to_owned());
            cache = self.packages(&possible.difference(&unplaced), limit)?;
        }
        let (node, memory_nodes) = self.nodes(&possible, limit, &mut warnings)?;
        let has_node_numbers = node.is_some();
        let node = node.unwrap_or_else(|| vec![0; limit]);

        let mut topology = Topology::build(source, possible, Levels { core, cache, node });
        topology.kinds = self.kinds(&topology.possible)?;
        topology.memory_nodes = memory_nodes;
        topology.has_node_numbers = has_node_numbers;
        topology.warnings.append(&mut warnings);
        topology.warnings.extend(super::unplaced_warning(&unplaced));
        topology.unplaced = unplaced;
        Ok(topology)
    }

    /// Reads the machine. If a file is malformed, returns a flat topology (one cache, one node) of the known
    /// VPs, with the reason among its warnings.
    pub fn topology_or_flat(&self) -> Topology {
        let error = match self.topology() {
            Ok(topology) => return topology,
            Err(error) => error,
        };
        let reason = format!("{error}; so the VPs are taken as one cache and one node");
        match self.possible().or_else(|_| self.possible_by_mask()) {
            Ok(Some((possible, source))) => Topology::flat(source, possible, reason),
            Ok(None) | Err(_) => counted(reason),
        }
    }

    /// Reads which CPUs the kernel may ever run a thread on (topology/I1), and from which source. Returns
    /// `None` if neither source exists.
    fn possible(&self) -> Result<Option<(VpSet, Source)>, ReadError> {
        let file = format!("{CPUS}/possible");
        match self.value::<VpSet>(&file)? {
            Some(set) if set.is_empty() => Err(self.malformed(&file, "names no processor")),
            Some(set) => Ok(Some((set, Source::Sysfs))),
            None => self.possible_by_mask(),
        }
    }

    /// Counts CPUs by the width of a mask: the kernel prints as many digits as its highest possible CPU
    /// needs.
    fn possible_by_mask(&self) -> Result<Option<(VpSet, Source)>, ReadError> {
        let Some(mask) = self.status_field("proc/self/status", "Cpus_allowed:")? else { return Ok(None) };
        let (_, width) = parse_mask(&mask).map_err(|e| self.malformed("proc/self/status", e.to_string()))?;
        Ok((width > 0).then(|| (VpSet::first_n(width), Source::MaskWidth)))
    }

    /// Groups CPUs by core. The set contains the CPUs listed by some core.
    fn cores(&self, possible: &VpSet, limit: usize) -> Result<(Groups, VpSet), ReadError> {
        self.listed(possible, limit, ["core_cpus_list", "thread_siblings_list"])
    }

    /// Groups CPUs by package. There is one package if the kernel lists no packages.
    fn packages(&self, placed: &VpSet, limit: usize) -> Result<Groups, ReadError> {
        let (mut groups, known) = self.listed(placed, limit, ["package_cpus_list", "core_siblings_list"])?;
        if known.is_empty() {
            groups.join_all(placed);
        }
        Ok(groups)
    }

    /// Groups CPUs by a list in their `topology` directories. `names` are alternatives; the first that exists
    /// is read.
    fn listed(&self, possible: &VpSet, limit: usize, names: [&str; 2]) -> Result<(Groups, VpSet), ReadError> {
        let mut found = Found::new(limit);
        for vp in possible {
            if found.known.contains(vp) {
                continue;
            }
            for name in names {
                let file = format!("{CPUS}/cpu{}/topology/{name}", vp.index());
                if let Some(list) = self.value::<VpSet>(file)? {
                    found.add(vp, &list.intersection(possible));
                    break;
                }
            }
        }
        Ok((found.groups, found.known))
    }

    /// Groups CPUs by their highest data or unified cache (topology/I3). The set contains the CPUs listed by
    /// some such cache.
    fn caches(&self, possible: &VpSet, limit: usize) -> Result<(Groups, VpSet), ReadError> {
        let mut found = Found::new(limit);
        for vp in possible {
            if found.known.contains(vp) {
                continue;
            }
            let directory = format!("{CPUS}/cpu{}/cache", vp.index());
            let mut highest: Option<(u32, u32)> = None;
            for index in self.numbered(&directory, "index")?.unwrap_or_default() {
                let Some(level) = self.value::<u32>(format!("{directory}/index{index}/level"))? else {
                    continue;
                };
                if highest.is_none_or(|(best, _)| level > best)
                    && self.holds_data(format!("{directory}/index{index}/type"))?
                {
                    highest = Some((level, index));
                }
            }
            let Some((_, index)) = highest else { continue };
            let list = self.value::<VpSet>(format!("{directory}/index{index}/shared_cpu_list"))?;
            let list = list.unwrap_or_else(|| [vp].into_iter().collect());
            found.add(vp, &list.intersection(possible));
        }
        Ok((found.groups, found.known))
    }

    fn holds_data(&self, file: String) -> Result<bool, ReadError> {
        let Some(sort) = self.text(&file)? else { return Ok(false) };
        match sort.trim() {
            "Data" | "Unified" => Ok(true),
            "Instruction" => Ok(false),
            other => {
                let shown = super::shorten(other);
                Err(self
                    .malformed(&file, format!("holds `{shown}`; a cache is Data, Instruction or Unified")))
            }
        }
    }

    /// Reads the node number of each CPU and the nodes without CPUs. The first is `None` on a kernel without
    /// nodes.
    fn nodes(
        &self,
        possible: &VpSet,
        limit: usize,
        warnings: &mut Vec<String>,
    ) -> Result<(Option<Vec<u32>>, Vec<u32>), ReadError> {
        let numbers = self.numbered(NODES, "node")?.unwrap_or_default();
        if numbers.is_empty() {
            return Ok((None, Vec::new()));
        }
        let mut node_of: BTreeMap<Vp, u32> = BTreeMap::new();
        let mut twice = VpSet::new();
        for &number in &numbers {
            let list = self.value::<VpSet>(format!("{NODES}/node{number}/cpulist"))?.unwrap_or_default();
            for vp in &list.intersection(possible) {
                if *node_of.entry(vp).or_insert(number) != number {
                    twice.insert(vp);
                }
            }
        }
        // A node's list omits offline CPUs; the CPU's own directory still names its node.
        let unlisted: Vec<Vp> = possible.iter().filter(|vp| !node_of.contains_key(vp)).collect();
        for vp in unlisted {
            let named = self.numbered(format!("{CPUS}/cpu{}", vp.index()), "node")?.unwrap_or_default();
            node_of.extend(named.first().map(|&number| (vp, number)));
        }
        if !twice.is_empty() {
            warnings.push(format!("VPs {twice} are in several nodes: the first node counts"));
        }
        let used: BTreeSet<u32> = node_of.values().copied().collect();
        let first = used.first().copied().unwrap_or(numbers[0]);
        let memory_nodes = numbers.into_iter().filter(|n| *n != first && !used.contains(n)).collect();
        let mut node = vec![first; limit];
        node_of.iter().for_each(|(vp, &number)| node[vp.index()] = number);
        Ok((Some(node), memory_nodes))
    }

    /// Groups CPUs by kind, fastest first.
    fn kinds(&self, possible: &VpSet) -> Result<Vec<VpSet>, ReadError> {
        let mut kinds = Vec::new();
        for name in INTEL_KINDS {
            let list = self.value::<VpSet>(format!("sys/devices/{name}/cpus"))?.unwrap_or_default();
            kinds.push(list.intersection(possible));
        }
        kinds.retain(|kind| !kind.is_empty());
        if !kinds.is_empty() {
            return Ok(kinds);
        }
        let mut by_capacity: BTreeMap<u32, VpSet> = BTreeMap::new();
        for vp in possible {
            let file = format!("{CPUS}/cpu{}/cpu_capacity", vp.index());
            if let Some(capacity) = self.value::<u32>(file)? {
                by_capacity.entry(capacity).or_default().insert(vp);
            }
        }
        if by_capacity.len() < 2 {
            return Ok(vec![possible.clone()]);
        }
        Ok(by_capacity.into_values().rev().collect())
    }

    /// Reads the value of a `name: value` line of a file in `/proc`.
    pub(super) fn status_field(&self, file: &str, name: &str) -> Result<Option<String>, ReadError> {
        let text = self.text(file)?.unwrap_or_default();
        Ok(text.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim().to_owned()))
    }
}

/// Groups read so far, and the CPUs that their lists named.
struct Found {
    groups: Groups,
    known: VpSet,
}

impl Found {
    fn new(limit: usize) -> Found {
        Found { groups: Groups::singletons(limit), known: VpSet::new() }
    }

    /// Records that the file of `vp` lists `members`. An empty list means that the CPU is going offline; `vp`
    /// then stays unknown.
    fn add(&mut self, vp: Vp, members: &VpSet) {
        if let Some(first) = members.first() {
            self.known.insert(vp);
            self.known.extend(members);
            self.groups.join_all(members);
            self.groups.join(first.index() as u32, vp.index() as u32);
        }
    }
}

/// Builds a virtual topology for a machine that does not describe its processors (topology/I1).
fn counted(reason: String) -> Topology {
    let count = squall_sys::sync::thread::available_parallelism().map_or(1, usize::from);
    let warning =
        format!("{reason}; the VPs are virtual, one per processor that the standard library counts");
    Topology::flat(Source::Count, VpSet::first_n(count.min(VpSet::LIMIT)), warning)
}
