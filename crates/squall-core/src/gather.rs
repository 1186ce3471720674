//! Going over an object's representatives along the machine's tree of clusters, up (gather) and down (broadcast).
//!
//! Problem: the tree has a node for each cluster of each level, while an object has few representatives, and they are found
//! in no order. Idea: the tree numbers its leaves so that those of one node follow each other (`tree/I2`). So each
//! representative is put at its leaf's place first. Going over the places in order is going over the tree, and a node
//! is complete as soon as the next leaf is not below it. Nothing is visited that has no representative below it, but
//! one bit for each place.
//!
//! - I1. `in_order` hands out each representative that it is given once, in the order of their places. It has them all
//!   before it hands out the first.
//! - I2. Where a bit of `Places` is set, the place is written.
//! - I3. While `up` is at a leaf, `sums[d]` combines the nodes of depth `d` that are complete and have the parent of the
//!   leaf's ancestor of that depth.
//!
//! Cost: up to `PLACES` clusters nothing is allocated. Beyond, the representatives are sorted in a vector.
//! Source: Hurricane's superclusters, §3.1; sum, gather and broadcast as part of the model.

use squall_machine::{Cluster, ClusterSize, ClusterTree, Clusters, TreeNode, machine};
use squall_sync::sync::OnceLock;
use std::mem::MaybeUninit;

/// The longest way from a root to a leaf, both counted.
const DEPTHS: usize = ClusterSize::LEVELS.len();

/// The trees over the clusters of each level, made when first needed.
static TREES: [OnceLock<Option<ClusterTree<'static>>>; DEPTHS] = [const { OnceLock::new() }; DEPTHS];

/// The tree whose leaves are these clusters; none for sizes that are no level of the machine, or where the machine learnt
/// more about itself between the making of the two.
fn tree_over(clusters: &Clusters) -> Option<&'static ClusterTree<'static>> {
    let level = ClusterSize::LEVELS.iter().position(|&size| size == clusters.size())?;
    let tree = TREES[level].get_or_init(|| machine().tree(&ClusterSize::LEVELS[level..]).ok()).as_ref()?;
    let leaves = tree.levels().last()?;
    std::ptr::eq(*leaves, clusters).then_some(tree)
}

/// The number of a cluster's leaf among the leaves; where there is no tree, its own number.
#[inline]
fn place(tree: Option<&ClusterTree<'_>>, clusters: &Clusters, cluster: Cluster) -> usize {
    tree.map_or(cluster.index(), |tree| tree.leaf(cluster).index() - first_leaf(tree, clusters))
}

/// Leaves are the last nodes of a tree.
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

/// As [`gather`], on a given tree; where there is none, all clusters have one parent.
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

/// How many nodes above the leaf `last` are complete, if `next` is the next leaf.
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

/// Combines the values of the nodes that are complete, deepest first, each into its parent's: all but the first.
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

/// So many places lie on the stack, one pointer each.
const PLACES: usize = if cfg!(miri) { 128 } else { 512 };
const WORD_BITS: usize = u64::BITS as usize;

/// Representatives by place.
struct Places<'a, P> {
    reps: [MaybeUninit<&'a P>; PLACES],
    /// Which places are written.
    written: [u64; PLACES / WORD_BITS],
}

/// Calls `f` with all of `reps` in the order of their places, which differ and are below `places` (I1).
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
    let mut at = Places { reps: [const { MaybeUninit::uninit() }; PLACES], written: [0; PLACES / WORD_BITS] };
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
