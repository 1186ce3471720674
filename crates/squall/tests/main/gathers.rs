//! Gathers and broadcasts on machines of odd shapes. The tests compare them with a visit to every cluster of
//! every level.
#![cfg(not(miri))]

use crate::common::{again, is_child};
use squall::TreeNode;
use squall::{Cluster, ClusterSize, ClusterTree, Handle, Owned, RepContext, Root, Vp, machine};
use std::sync::atomic::{AtomicU64, Ordering};

/// The machines. The last test starts a process for each.
const SHAPES: [&str; 6] = [
    "nodes:3,caches:2,cores:3,threads:2",
    "threads:1",
    "nodes:5,cores:3",
    "caches:7,threads:3",
    // One cluster more than a gather orders on the stack.
    "nodes:3,caches:3,cores:19,threads:3",
    "nodes:2,caches:2,cores:2,threads:17",
];

#[test]
fn the_tests_pass_on_each_shape() {
    if !is_child() {
        SHAPES.iter().for_each(|shape| drop(again(&["gathers::"], &[("SQUALL_TOPOLOGY", shape)])));
    }
}

/// Runs `f` on this VP.
fn on<T>(vp: Vp, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(vp, f).unwrap()
}

/// The root of a distributed sum.
struct Sum;

struct Part {
    n: AtomicU64,
    at: RepContext<Sum>,
}

#[squall::interface]
trait Look: Send + Sync {
    fn add(&self, n: u64);
    /// Passes the context of the serving representative to `f`.
    fn look(&self, f: &mut dyn FnMut(&RepContext<Sum>));
}

impl Root for Sum {
    type Interface = dyn Look;
    type Rep = Part;
    fn make_rep(&self, at: RepContext<Sum>) -> Part {
        Part { n: AtomicU64::new(0), at }
    }
}

impl Look for Part {
    fn add(&self, n: u64) {
        self.n.fetch_add(n, Ordering::Relaxed);
    }
    fn look(&self, f: &mut dyn FnMut(&RepContext<Sum>)) {
        f(&self.at);
    }
}

impl Part {
    fn n(&self) -> u64 {
        self.n.load(Ordering::Relaxed)
    }
    fn text(&self) -> String {
        self.at.cluster().index().to_string()
    }
}

fn brackets(a: String, b: String) -> String {
    format!("({a} {b})")
}

/// The value that a gather promises: each level combines the values of its children.
fn asked(
    at: &RepContext<Sum>,
    tree: &ClusterTree<'_>,
    nodes: &mut dyn Iterator<Item = TreeNode>,
) -> Option<String> {
    let value = |node| {
        if tree.is_leaf(node) {
            at.of_cluster(tree.cluster(node)).map(Part::text)
        } else {
            asked(at, tree, &mut tree.children(node))
        }
    };
    nodes.filter_map(value).reduce(brackets)
}

/// The order of a broadcast, and the text of a gather.
fn expected(at: &RepContext<Sum>) -> (Vec<Cluster>, Option<String>) {
    let there = |cluster: &Cluster| at.of_cluster(*cluster).is_some();
    match ClusterSize::LEVELS.iter().position(|level| *level == at.clusters().size()) {
        Some(level) => {
            let tree = machine().tree(&ClusterSize::LEVELS[level..]).unwrap();
            let leaves = tree.down().filter(|node| tree.is_leaf(*node)).map(|node| tree.cluster(node));
            (leaves.filter(there).collect(), asked(at, &tree, &mut tree.roots()))
        }
        None => {
            let order: Vec<Cluster> = at.clusters().iter().filter(there).collect();
            let text = order.iter().map(|cluster| cluster.index().to_string()).reduce(brackets);
            (order, text)
        }
    }
}

fn check(at: &RepContext<Sum>, clusters: usize, total: u64, why: &str) {
    // By iteration, up the tree, and with frozen membership.
    assert_eq!(at.reps().map(Part::n).sum::<u64>(), total, "{why}");
    assert_eq!(at.gather(Part::n, |a, b| a + b), Some(total), "{why}");
    assert_eq!(at.freeze(|parts| parts.count()), clusters, "{why}");
    let (order, text) = expected(at);
    assert_eq!(order.len(), clusters, "{why}");
    let mut told = Vec::new();
    at.broadcast(|part| told.push(part.at.cluster()));
    assert_eq!(told, order, "{why}");
    let mut mapped = Vec::new();
    let gathered = at.gather(
        |part| {
            mapped.push(part.at.cluster());
            part.text()
        },
        brackets,
    );
    assert_eq!((mapped, gathered), (order, text), "{why}");
}

#[test]
fn co_15_a_gather_by_tree_is_the_flat_one_in_the_order_of_the_tree() {
    if !is_child() {
        return;
    }
    let sizes = ClusterSize::LEVELS.into_iter().chain([1, 3, 5].map(ClusterSize::fixed));
    for size in sizes {
        let sum = Sum.create(size);
        let parts = sum.handle();
        let vps: Vec<Vp> = machine().vps().iter().collect();
        let mut called = std::collections::BTreeSet::new();
        // The step and the number of VPs have no common divisor, so each VP is visited once, in a mixed
        // order.
        let step = (vps.len() / 3..).find(|step| divisor(*step, vps.len()) == 1).unwrap();
        for (count, n) in (1..=vps.len()).zip(1_u64..) {
            let vp = vps[count * step % vps.len()];
            on(vp, || parts.add(n));
            called.insert(machine().clusters(size).cluster_of(vp));
            if count < 8 || count.is_power_of_two() || count == vps.len() {
                let why = format!("{size}, {count} of {} VPs", vps.len());
                on(vp, || parts.look(&mut |at| check(at, called.len(), n * (n + 1) / 2, &why)));
            }
        }
        Owned::destroy(sum).wait().unwrap();
    }
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[test]
fn co_15_a_gather_is_of_the_representatives_there_are_when_it_begins() {
    if !is_child() {
        return;
    }
    let sum = Sum.create(ClusterSize::Cpu);
    let parts = sum.handle();
    let vps: Vec<Vp> = machine().vps().iter().collect();
    let (first, rest) = vps.split_first().unwrap();
    let call_all = || rest.iter().for_each(|vp| on(*vp, || parts.add(1)));
    on(*first, || {
        parts.look(&mut |at| {
            // Each visit makes all other representatives. The gather leaves them out; the next one has them.
            let gathered = at.gather(
                |_| {
                    call_all();
                    1
                },
                |a, b| a + b,
            );
            assert_eq!(gathered, Some(1));
            assert_eq!(at.gather(|_| 1, |a, b| a + b), Some(vps.len()));
            let mut told = 0;
            at.broadcast(|_| told += 1);
            assert_eq!(told, vps.len());
        });
    });
    assert_eq!(squall::info_of(Handle::id(parts)).unwrap().reps.len(), vps.len());
    Owned::destroy(sum).wait().unwrap();
}

#[test]
fn co_15_a_gather_within_a_gather_is_another() {
    if !is_child() {
        return;
    }
    let sum = Sum.create(ClusterSize::Cpu);
    let parts = sum.handle();
    let count = machine().vps().len().min(20) as u64;
    machine().vps().iter().take(20).for_each(|vp| on(vp, || parts.add(1)));
    on(Vp::new(0), || {
        parts.look(&mut |at| {
            let squared = at.gather(|part| part.at.gather(Part::n, |a, b| a + b).unwrap(), |a, b| a + b);
            assert_eq!(squared, Some(count * count));
        });
    });
    Owned::destroy(sum).wait().unwrap();
}
