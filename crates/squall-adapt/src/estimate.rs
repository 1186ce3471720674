//! Default cost estimate: a shared form with one representative, and a distributed form with one per cluster.
//!
//! Problem: the author of an object knows which methods visit all representatives, but not the cost of a load
//! in nanoseconds. Idea: a call costs about the same in each form, except for the cache lines that other VPs
//! have written since the caller's previous call. The call counts tell how many these are.
//!
//! A line that is in transfer most of the time makes its callers wait for each other. So a transfer costs
//! more, the larger the part of the time is during which the shared form's line is in transfer.

use squall_machine::{ClusterSize, Vp, VpSet, machine};

use crate::calls::Calls;
use crate::family::{Cost, Load, Shape};

/// Upper limit for the utilisation of a cache line. At this limit a caller waits for about a hundred others.
const BUSY_MAX: f64 = 0.99;

/// Costs of calls in nanoseconds, without the transfer of cache lines. Only their ratios matter.
///
/// ```
/// use squall::adapt::estimate::CallCosts;
///
/// // A call takes a lock in the shared form, and none in the distributed form.
/// let costs = CallCosts { shared_ns: 20.0, ..CallCosts::DEFAULT };
/// assert!(costs.shared_ns > costs.local_ns);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CallCosts {
    /// A call in the shared form.
    pub shared_ns: f64,
    /// A call in the distributed form that stays in the caller's representative.
    pub local_ns: f64,
    /// Visit of one representative by a global method.
    pub visit_ns: f64,
    /// Bytes of the shared form.
    pub shared_bytes: usize,
    /// Bytes of the distributed form without its representatives.
    pub root_bytes: usize,
    /// Bytes of a representative of the distributed form.
    pub rep_bytes: usize,
}

impl CallCosts {
    /// Costs of a few instructions per call, and small representatives.
    pub const DEFAULT: CallCosts = CallCosts {
        shared_ns: 7.0,
        local_ns: 7.0,
        visit_ns: 1.5,
        shared_bytes: 512,
        root_bytes: 256,
        rep_bytes: 256,
    };
}

impl Default for CallCosts {
    fn default() -> CallCosts {
        CallCosts::DEFAULT
    }
}

/// Estimate of the cost of a load in a shared form (index 0) and in a distributed form (index 1).
///
/// [`Adaptive`](crate::adaptive::Adaptive) uses it. A [`Family`](crate::family::Family) can use it too.
///
/// ```
/// use squall::adapt::estimate::Estimate;
/// use squall::adapt::family::{Cost, Load};
///
/// fn estimate_costs(load: &Load<'_>) -> Vec<Cost> {
///     Estimate { global: &["total"], ..Estimate::DEFAULT }.costs(load)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Names of the methods that visit every representative of the distributed form, to read it. A name that
    /// no method has is without effect here; [`Adaptive`](crate::adaptive::Adaptive) rejects it.
    pub global: &'static [&'static str],
    /// Names of the methods that change nothing and read only the caller's representative.
    pub reads: &'static [&'static str],
    /// Size of the clusters of the distributed form.
    pub size: ClusterSize,
    /// Costs of the calls.
    pub costs: CallCosts,
}

impl Estimate {
    /// All methods change the caller's representative, which serves one processor.
    pub const DEFAULT: Estimate =
        Estimate { global: &[], reads: &[], size: ClusterSize::Cpu, costs: CallCosts::DEFAULT };

    /// Estimates the cost of a load in both forms.
    pub fn costs(&self, load: &Load<'_>) -> Vec<Cost> {
        let callers = self.callers(load.calls, &load.callers);
        // If the form is already distributed, a global method visits the existing representatives.
        let reps = (load.shape.form != 0).then_some(load.before.reps);
        let line_ns = load.costs.transfer_ns;
        vec![self.shared(&callers, line_ns), self.distributed(&callers, reps, line_ns)]
    }

    /// Returns the calling VPs with their rates. The call count gives the rates; the entry bits add the VPs
    /// whose threads did not run during it.
    fn callers(&self, calls: &Calls, vps: &VpSet) -> Vec<Caller> {
        let seconds = calls.span.as_secs_f64().max(1e-9);
        let clusters = machine().clusters(self.size);
        let cluster = |vp: Vp| clusters.get(vp).map_or(vp.index(), |cluster| cluster.index());
        let mut callers: Vec<Caller> = Vec::new();
        for ((vp, _), row) in calls.by_vp.iter().zip(&calls.table) {
            let mut rates = Rates::default();
            for ((method, _), count) in calls.by_method.iter().zip(row) {
                let rate = if self.global.contains(method) {
                    &mut rates.globals
                } else if self.reads.contains(method) {
                    &mut rates.reads
                } else {
                    &mut rates.writes
                };
                *rate += *count as f64 / seconds;
            }
            callers.push(Caller { vp: *vp, cluster: cluster(*vp), rates });
        }
        let least = callers.iter().map(|caller| caller.rates).reduce(Rates::least).unwrap_or_default();
        let is_counted = |vp: Vp| callers.iter().any(|caller| caller.vp == vp);
        let missed: Vec<Vp> = vps.iter().filter(|vp| !is_counted(*vp)).collect();
        callers.extend(missed.iter().map(|vp| Caller { vp: *vp, cluster: cluster(*vp), rates: least }));
        callers
    }

    fn shared(&self, callers: &[Caller], line_ns: f64) -> Cost {
        let sum = total(callers);
        // Returns how many of a caller's calls find a line that another VP has changed, or has read since the
        // caller changed it.
        let fetches = |caller: &Caller| {
            let (own, others) = (caller.rates, sum.without(caller.rates));
            own.writes * between(others.all(), own.all())
                + (own.reads + own.globals) * between(others.writes, own.all())
        };
        let fetched: f64 = callers.iter().map(fetches).sum();
        let busy = (fetched * line_ns / 1e9).min(BUSY_MAX);
        let wait = (1.0 / (1.0 - busy)).min(callers.len().max(1) as f64);
        let ns_per_s = sum.all() * self.costs.shared_ns + fetched * line_ns * wait;
        Cost { shape: Shape { form: 0, place: None }, ns_per_s, bytes: self.costs.shared_bytes }
    }

    /// Estimates the cost in the distributed form. Without a number of representatives, each calling cluster
    /// would get one.
    fn distributed(&self, callers: &[Caller], reps: Option<usize>, line_ns: f64) -> Cost {
        let clusters = by_cluster(callers);
        let sum = total(callers);
        let reps = reps.unwrap_or(clusters.len()).max(1);
        let CallCosts { local_ns, visit_ns, root_bytes, rep_bytes, .. } = self.costs;
        let cost = |caller: &Caller| {
            let own = caller.rates;
            let home = clusters.iter().find(|(cluster, _)| *cluster == caller.cluster);
            let home = home.map_or(own, |(_, rates)| *rates);
            // In the caller's representative: lines that its cluster's other VPs changed, or that a global
            // method read.
            let near = home.without(own);
            let visits = (sum.globals - own.globals).max(0.0);
            let local = own.writes * between(near.writes + near.reads + visits, own.writes)
                + own.reads * between(near.writes, own.reads);
            // A global method fetches the line of each other representative that has changed since.
            let far = clusters.iter().filter(|(cluster, _)| *cluster != caller.cluster);
            let fetched: f64 = far.map(|(_, rates)| between(rates.writes, own.globals)).sum();
            (own.writes + own.reads) * local_ns
                + local * line_ns
                + own.globals * (local_ns + visit_ns * reps as f64 + fetched * line_ns)
        };
        let ns_per_s = callers.iter().map(cost).sum();
        Cost { shape: Shape { form: 1, place: None }, ns_per_s, bytes: root_bytes + reps * rep_bytes }
    }
}

impl Default for Estimate {
    fn default() -> Estimate {
        Estimate::DEFAULT
    }
}

/// Calls per second, by the kind of their method.
#[derive(Clone, Copy, Debug, Default)]
struct Rates {
    writes: f64,
    reads: f64,
    globals: f64,
}

impl Rates {
    fn all(self) -> f64 {
        self.writes + self.reads + self.globals
    }

    fn plus(self, other: Rates) -> Rates {
        self.with(other, |a, b| a + b)
    }

    fn without(self, other: Rates) -> Rates {
        self.with(other, |a, b| (a - b).max(0.0))
    }

    fn least(self, other: Rates) -> Rates {
        self.with(other, f64::min)
    }

    fn with(self, other: Rates, f: impl Fn(f64, f64) -> f64) -> Rates {
        Rates {
            writes: f(self.writes, other.writes),
            reads: f(self.reads, other.reads),
            globals: f(self.globals, other.globals),
        }
    }
}

/// Calls of one VP.
#[derive(Clone, Copy, Debug)]
struct Caller {
    vp: Vp,
    cluster: usize,
    rates: Rates,
}

/// Returns the probability that another VP used the line since a VP's last call, for the given rates of both.
fn between(others: f64, own: f64) -> f64 {
    if own > 0.0 { (others / own).min(1.0) } else { 0.0 }
}

fn total(callers: &[Caller]) -> Rates {
    callers.iter().fold(Rates::default(), |sum, caller| sum.plus(caller.rates))
}

/// Returns the calling clusters, with the sums of their VPs' rates.
fn by_cluster(callers: &[Caller]) -> Vec<(usize, Rates)> {
    let mut clusters: Vec<(usize, Rates)> = Vec::new();
    for caller in callers {
        match clusters.iter_mut().find(|(cluster, _)| *cluster == caller.cluster) {
            Some((_, rates)) => *rates = rates.plus(caller.rates),
            None => clusters.push((caller.cluster, caller.rates)),
        }
    }
    clusters
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TOTALS: Estimate = Estimate { global: &["total"], reads: &["get"], ..Estimate::DEFAULT };

    /// Returns the costs in both forms of a load with these calls of `add`, `get` and `total` in a
    /// millisecond, for each calling VP.
    fn costs(vps: &[[u64; 3]], reps: Option<usize>) -> [f64; 2] {
        let by = |at: usize| vps.iter().map(|row| row[at]).sum::<u64>();
        let calls = Calls {
            span: Duration::from_millis(1),
            by_method: vec![("add", by(0)), ("get", by(1)), ("total", by(2))],
            by_vp: (0..).map(Vp::new).zip(vps.iter().map(|row| row.iter().sum())).collect(),
            table: vps.iter().map(|row| row.to_vec()).collect(),
        };
        let callers = TOTALS.callers(&calls, &VpSet::new());
        [TOTALS.shared(&callers, 25.0).ns_per_s, TOTALS.distributed(&callers, reps, 25.0).ns_per_s]
    }

    #[test]
    fn calls_of_one_vp_cost_the_same_in_both_forms() {
        let [shared, distributed] = costs(&[[1000, 500, 0]], None);
        assert!((shared - distributed).abs() < 1.0, "{shared} {distributed}");
    }

    #[test]
    fn changes_by_several_vps_cost_less_in_the_distributed_form() {
        for vps in [2, 4, 16] {
            let [shared, distributed] = costs(&vec![[1000, 0, 0]; vps], None);
            assert!(shared > distributed * 2.0, "{vps} VPs: {shared} {distributed}");
        }
    }

    #[test]
    fn reads_without_changes_cost_the_same_in_both_forms() {
        let [shared, distributed] = costs(&[[0, 1000, 0]; 4], None);
        assert!((shared - distributed).abs() < 1.0, "{shared} {distributed}");
    }

    #[test]
    fn global_methods_cost_less_in_the_shared_form() {
        let [shared, distributed] = costs(&[[10, 0, 1000]; 4], Some(16));
        assert!(distributed > shared * 1.5, "{shared} {distributed}");
    }

    #[test]
    fn a_load_without_calls_costs_nothing() {
        assert_eq!(costs(&[], None), [0.0, 0.0]);
    }
}
