//! Walks over an object's representatives along the machine's tree of clusters: up (gather) and down
//! (broadcast).
//!
//! Problem: the tree has a node for each cluster of each level. An object has few representatives, and they
//! are found in no order.
//! Idea: the tree numbers its leaves so that the leaves of one node are consecutive (`tree/I2`). So each
//! representative is first put at its leaf's place. Walking the places in order is walking the tree, and a
//! node is complete when the next leaf is not below it. The walk visits only nodes with representatives below
//! them, and one bit for each place.
//!
//! - I1. `in_order` passes on each given representative once, in the order of their places. It has received
//!   all before it passes on the first.
//! - I2. If a bit of `Places` is set, the place is written.
//! - I3. While `up` is at a leaf, `sums[d]` combines the complete nodes of depth `d` that have the same
//!   parent as the leaf's ancestor of depth `d`.
//!
//! Cost: up to `PLACES` clusters the walk allocates no memory. Beyond, the representatives are sorted in a
//! vector.
//! Source: Hurricane's superclusters, §3.1; sum, gather and broadcast as part of the model.

use squall_machine::{Cluster, ClusterSize, ClusterTree, Clusters, TreeNode, machine};
use squall_sys::sync::OnceLock;
use std::mem::MaybeUninit;

/// The longest path from a root to a leaf, both counted.
const DEPTHS: usize = ClusterSize::LEVELS.len();

/// The trees over the clusters of each level, made on first use.
static TREES: [OnceLock<Option<ClusterTree<'static>>>; DEPTHS] = [const { OnceLock::new() }; DEPTHS];

/// Returns the tree with these clusters as leaves. Returns `None` for sizes that are no level of the machine.
/// Also returns `None` if the machine's topology was refined between the making of the clusters and of the
/// tree.
fn tree_over(clusters: &Clusters) -> Option<&'static ClusterTree<'static>> {
    let level = ClusterSize::LEVELS.iter().position(|&size| size == clusters.size())?;
    let tree = TREES[level].get_or_init(|| machine().tree(&ClusterSize::LEVELS[level..]).ok()).as_ref()?;
    let leaves = tree.levels().last()?;
    std::ptr::eq(*leaves, clusters).then_some(tree)
}

/// Returns the number of a cluster's leaf among the leaves; without a tree, the cluster's own number.
#[inline]
fn place(tree: Option<&ClusterTree<'_>>, clusters: &Clusters, cluster: Cluster) -> usize {
    tree.map_or(cluster.index(), |tree| tree.leaf(cluster).index() - first_leaf(tree, clusters))
}

/// Returns the number of the first leaf. Leaves are the last nodes of a tree.
#[inline]
fn first_leaf(tree: &ClusterTree<'_>, clusters: &Clusters) -> usize {
    tree.len() - clusters.len()
}

/// Combines the values of the representatives, children before parents.
pub(crate) fn gather<'a, P: 'a, T>(
    clusters: &Clusters,
    reps: impl Iterator<Item = (Cluster, &'a P)>,
    map: impl FnMut(&P) -> T,
    combine: impl FnMut(T, T) -> T,
) -> Option<T> {
    up(tree_over(clusters), clusters, reps, map, combine)
}

/// Calls `f` with each representative, in the order of the tree.
pub(crate) fn broadcast<'a, P: 'a>(
    clusters: &Clusters,
    reps: impl Iterator<Item = (Cluster, &'a P)>,
    mut f: impl FnMut(&P),
) {
    let tree = tree_over(clusters);
    let placed = reps.map(|(cluster, rep)| (place(tree, clusters, cluster), rep));
    in_order(clusters.len(), placed, |_, rep| f(rep));
}

/// Combines the values along a given tree. Without a tree, all clusters have one parent.
fn up<'a, P: 'a, T>(
    tree: Option<&ClusterTree<'_>>,
    clusters: &Clusters,
    reps: impl Iterator<Item = (Cluster, &'a P)>,
    mut map: impl FnMut(&P) -> T,
    mut combine: impl FnMut(T, T) -> T,
) -> Option<T> {
    let deepest = tree.map_or(0, |tree| tree.levels().len() - 1);
    let first = tree.map_or(0, |tree| first_leaf(tree, clusters));
    let mut sums = [const { None }; DEPTHS];
    let mut last: Option<TreeNode> = None;
    let placed = reps.map(|(cluster, rep)| (place(tree, clusters, cluster), rep));
    in_order(clusters.len(), placed, |place, rep| {
        if let Some(tree) = tree {
            let leaf = tree.node(first + place);
            let complete = last.replace(leaf).map_or(0, |last| complete_above(tree, last, leaf));
            close(&mut sums[deepest - complete..=deepest], &mut combine);
        }
        add(&mut sums[deepest], map(rep), &mut combine);
    });
    close(&mut sums[..=deepest], &mut combine);
    sums[0].take()
}

/// Returns the number of nodes above the leaf `last` that are complete if `next` is the next leaf.
#[inline]
fn complete_above(tree: &ClusterTree<'_>, last: TreeNode, next: TreeNode) -> usize {
    let (mut last, mut next, mut count) = (last, next, 0);
    while let (Some(done), Some(begun)) = (tree.parent(last), tree.parent(next))
        && done != begun
    {
        (last, next, count) = (done, begun, count + 1);
    }
    count
}

/// Adds the values of complete nodes to their parents' values, deepest first. `sums[0]` remains.
fn close<T>(sums: &mut [Option<T>], combine: &mut impl FnMut(T, T) -> T) {
    for depth in (1..sums.len()).rev() {
        if let Some(value) = sums[depth].take() {
            add(&mut sums[depth - 1], value, combine);
        }
    }
}

fn add<T>(sum: &mut Option<T>, value: T, combine: &mut impl FnMut(T, T) -> T) {
    *sum = Some(match sum.take() {
        Some(sum) => combine(sum, value),
        None => value,
    });
}

/// The number of places on the stack, one pointer each.
const PLACES: usize = if cfg!(miri) { 16 } else { 512 };
const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = PLACES.div_ceil(WORD_BITS);

/// Representatives, indexed by the number of their place.
struct Places<'a, P> {
    reps: [MaybeUninit<&'a P>; PLACES],
    /// The places that are written.
    written: [u64; WORDS],
}

/// Calls `f` with all of `reps` in the order of their places, which are distinct and below `places` (I1).
fn in_order<'a, P: 'a>(
    places: usize,
    reps: impl Iterator<Item = (usize, &'a P)>,
    mut f: impl FnMut(usize, &'a P),
) {
    if places > PLACES {
        let mut reps: Vec<(usize, &P)> = reps.collect();
        reps.sort_unstable_by_key(|(place, _)| *place);
        return reps.into_iter().for_each(|(place, rep)| f(place, rep));
    }
    let mut at = Places { reps: [const { MaybeUninit::uninit() }; PLACES], written: [0; WORDS] };
    for (place, rep) in reps {
        at.reps[place].write(rep);
        at.written[place / WORD_BITS] |= 1 << (place % WORD_BITS);
    }
    for word in 0..places.div_ceil(WORD_BITS) {
        let mut written = at.written[word];
        while written != 0 {
            let place = word * WORD_BITS + written.trailing_zeros() as usize;
            written &= written - 1;
            // SAFETY: its bit is set (I2).
            f(place, unsafe { at.reps[place].assume_init() });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use squall_machine::topology::Topology;
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;

    /// The calls in order: `Some` of a mapped cluster, or `None` for two combined values.
    type Calls = RefCell<Vec<Option<usize>>>;

    /// A small generator of random numbers (xorshift).
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 % limit as u64) as usize
        }

        /// Selects `count` of the clusters, in random order.
        fn some_of(&mut self, clusters: &Clusters, count: usize) -> Vec<Cluster> {
            let mut all: Vec<Cluster> = clusters.iter().collect();
            (0..count).for_each(|at| all.swap(at, at + self.below(clusters.len() - at)));
            all.truncate(count);
            all
        }
    }

    fn text(cluster: Cluster, calls: &Calls) -> String {
        calls.borrow_mut().push(Some(cluster.index()));
        cluster.index().to_string()
    }

    fn brackets(a: &str, b: &str, calls: &Calls) -> String {
        calls.borrow_mut().push(None);
        format!("({a} {b})")
    }

    /// The specification: visits every cluster of every level, and combines the values of its children.
    fn asked(
        tree: &ClusterTree<'_>,
        nodes: &mut dyn Iterator<Item = TreeNode>,
        there: &BTreeSet<Cluster>,
        calls: &Calls,
    ) -> Option<String> {
        let mut sum: Option<String> = None;
        for node in nodes {
            let value = if tree.is_leaf(node) {
                there.get(&tree.cluster(node)).map(|cluster| text(*cluster, calls))
            } else {
                asked(tree, &mut tree.children(node), there, calls)
            };
            sum = match (sum, value) {
                (Some(sum), Some(value)) => Some(brackets(&sum, &value, calls)),
                (sum, value) => sum.or(value),
            };
        }
        sum
    }

    fn with_cluster(reps: &[Cluster]) -> impl Iterator<Item = (Cluster, &Cluster)> {
        reps.iter().map(|cluster| (*cluster, cluster))
    }

    /// Gathers from a selection of clusters along a tree, and compares with the specification.
    fn compare(topology: &Topology, sizes: &[ClusterSize], seed: u64) {
        let levels: Vec<Clusters> = sizes.iter().map(|size| topology.clusters(*size)).collect();
        let tree = ClusterTree::new(&levels).unwrap();
        let leaves = &levels[0];
        let mut random = Random(seed);
        let mut counts = vec![leaves.len() / 2];
        if cfg!(not(miri)) {
            counts.extend([0, 1, 2, 3, leaves.len()]);
            counts.extend((0..6).map(|_| random.below(leaves.len() + 1)));
        }
        for count in counts {
            let reps = random.some_of(leaves, count.min(leaves.len()));
            let (calls, expected_calls) = (Calls::default(), Calls::default());
            let gathered = up(
                Some(&tree),
                leaves,
                with_cluster(&reps),
                |rep| text(*rep, &calls),
                |a, b| brackets(&a, &b, &calls),
            );
            let there = reps.iter().copied().collect();
            let expected = asked(&tree, &mut tree.roots(), &there, &expected_calls);
            let why = format!("{} leaves of {sizes:?}, {count} representatives, seed {seed}", leaves.len());
            assert_eq!(gathered, expected, "{why}");
            assert_eq!(calls.into_inner(), expected_calls.into_inner(), "{why}");
        }
    }

    /// Shapes that no machine has, and shapes at the limit of the places on the stack.
    fn specs() -> Vec<String> {
        let odd =
            ["threads:1", "nodes:3,cores:5", "caches:7,threads:3", "nodes:2,caches:3,cores:3,threads:2"];
        let full = [format!("nodes:2,cores:{}", PLACES / 2), format!("caches:{}", PLACES + 1)];
        let specs = odd.map(str::to_owned).into_iter().chain(full);
        // Miri is slow, and checks only the memory accesses.
        specs.skip(if cfg!(miri) { 4 } else { 0 }).collect()
    }

    #[test]
    fn co_15_a_gather_combines_as_if_it_asked_every_cluster_of_every_level() {
        for (spec, seed) in specs().iter().zip(1..) {
            let topology = Topology::virtual_of(spec.parse().unwrap());
            for level in 0..if cfg!(miri) { 1 } else { DEPTHS } {
                compare(&topology, &ClusterSize::LEVELS[level..], seed);
            }
        }
    }

    #[test]
    fn co_15_a_gather_goes_up_a_tree_whose_last_branches_are_short() {
        let topology = Topology::virtual_of("cores:11".parse().unwrap());
        let sizes = [1, 2, 4, 8].map(ClusterSize::fixed);
        compare(&topology, &sizes, 1);
        compare(&topology, &sizes[1..], 2);
        compare(&topology, &[ClusterSize::Cpu, ClusterSize::fixed(3), ClusterSize::fixed(9)], 3);
    }

    /// Two nodes of two cores of two threads, numbered alternately: node 0 has 0, 2, 4 and 6; 0 and 4 are
    /// threads of one core.
    #[cfg(not(miri))]
    #[test]
    fn co_15_a_gather_goes_up_a_tree_whose_neighbours_have_no_consecutive_numbers() {
        let root = std::env::temp_dir().join(format!("squall-gather-{}", std::process::id()));
        let write = |path: String, text: String| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let cpus = "sys/devices/system/cpu";
        for list in ["possible", "present", "online"] {
            write(format!("{cpus}/{list}"), "0-7\n".to_owned());
        }
        for cpu in 0..8 {
            for list in ["core_cpus_list", "thread_siblings_list"] {
                write(format!("{cpus}/cpu{cpu}/topology/{list}"), format!("{},{}\n", cpu % 4, cpu % 4 + 4));
            }
        }
        for node in 0..2 {
            let members = [node, node + 2, node + 4, node + 6].map(|cpu| cpu.to_string()).join(",");
            write(format!("sys/devices/system/node/node{node}/cpulist"), members + "\n");
        }
        let topology = squall_machine::topology::Reader::at(&root).topology();
        std::fs::remove_dir_all(&root).unwrap();
        let topology = topology.unwrap();
        let levels = ClusterSize::LEVELS.map(|size| topology.clusters(size));
        let tree = ClusterTree::new(&levels).unwrap();
        let all: Vec<Cluster> = levels[0].iter().collect();
        let gathered = up(
            Some(&tree),
            &levels[0],
            with_cluster(&all),
            |rep| rep.index().to_string(),
            |a, b| format!("({a} {b})"),
        );
        assert_eq!(gathered.unwrap(), "(((0 4) (2 6)) ((1 5) (3 7)))");
        (0..DEPTHS).for_each(|level| compare(&topology, &ClusterSize::LEVELS[level..], 7));
    }

    #[test]
    fn without_a_tree_clusters_are_combined_by_number() {
        let clusters = Topology::virtual_of("cores:9".parse().unwrap()).clusters(ClusterSize::fixed(2));
        let reps = [3, 0, 4].map(Cluster::new);
        let gathered = up(
            None,
            &clusters,
            with_cluster(&reps),
            |rep| rep.index().to_string(),
            |a, b| format!("({a} {b})"),
        );
        assert_eq!(gathered.unwrap(), "((0 3) 4)");
        assert_eq!(up(None, &clusters, with_cluster(&[]), |_| 0, |a, b| a + b), None);
    }

    #[cfg_attr(miri, ignore = "Miri takes long to panic, and the values are in no unsafe block's hands")]
    #[test]
    fn values_are_dropped_once_wherever_a_gather_panics() {
        let topology = Topology::virtual_of("nodes:2,cores:2,threads:2".parse().unwrap());
        let levels = ClusterSize::LEVELS.map(|size| topology.clusters(size));
        let tree = ClusterTree::new(&levels).unwrap();
        let all: Vec<Cluster> = levels[0].iter().collect();
        let calls = 2 * all.len() - 1;
        for fatal in 0..=calls {
            let (value, count) = (Rc::new(()), RefCell::new(0));
            let call = || {
                *count.borrow_mut() += 1;
                assert!(*count.borrow() <= fatal, "as asked");
                Rc::clone(&value)
            };
            let gather = || up(Some(&tree), &levels[0], with_cluster(&all), |_| call(), |_, _| call());
            let ended = catch_unwind(AssertUnwindSafe(gather));
            assert_eq!(ended.is_ok(), fatal == calls);
            drop(ended);
            assert_eq!(Rc::strong_count(&value), 1, "{fatal} calls of {calls}");
        }
    }
}
