//! Going over an object's clusters along the machine's tree.
//!
//! Source: Hurricane's superclusters, §3.1; sum, gather and broadcast as part of the model.

use squall_machine::{Cluster, ClusterSize, ClusterTree, Clusters, TreeNode, machine};
use squall_sync::sync::OnceLock;

/// The trees over the clusters of each level, made when first needed.
static TREES: [OnceLock<Option<ClusterTree<'static>>>; ClusterSize::LEVELS.len()] =
    [const { OnceLock::new() }; ClusterSize::LEVELS.len()];

/// The tree whose leaves are these clusters; none for sizes that are no level of the machine, or clusters of before the
/// machine learnt more about itself.
fn tree_over(clusters: &Clusters) -> Option<&'static ClusterTree<'static>> {
    let level = ClusterSize::LEVELS.iter().position(|&size| size == clusters.size())?;
    let tree = TREES[level].get_or_init(|| machine().tree(&ClusterSize::LEVELS[level..]).ok()).as_ref()?;
    let leaves = tree.levels().last()?;
    std::ptr::eq(*leaves, clusters).then_some(tree)
}

/// Combines the values of the representatives that `find` finds, children before parents.
pub(crate) fn gather<'a, P: 'a, T>(
    clusters: &Clusters,
    find: impl Fn(Cluster) -> Option<&'a P>,
    mut map: impl FnMut(&P) -> T,
    mut combine: impl FnMut(T, T) -> T,
) -> Option<T> {
    let mut leaf = |cluster| find(cluster).map(&mut map);
    match tree_over(clusters) {
        Some(tree) => fold(tree, &mut tree.roots(), &mut leaf, &mut combine),
        None => clusters.iter().filter_map(leaf).reduce(combine),
    }
}

fn fold<T>(
    tree: &ClusterTree<'_>,
    nodes: &mut dyn Iterator<Item = TreeNode>,
    leaf: &mut dyn FnMut(Cluster) -> Option<T>,
    combine: &mut dyn FnMut(T, T) -> T,
) -> Option<T> {
    let mut sum = None;
    for node in nodes {
        let value = if tree.is_leaf(node) {
            leaf(tree.cluster(node))
        } else {
            fold(tree, &mut tree.children(node), leaf, combine)
        };
        sum = match (sum, value) {
            (Some(sum), Some(value)) => Some(combine(sum, value)),
            (sum, value) => sum.or(value),
        };
    }
    sum
}

/// Calls `f` with each cluster, in the order of the tree.
pub(crate) fn leaves(clusters: &Clusters, mut f: impl FnMut(Cluster)) {
    match tree_over(clusters) {
        Some(tree) => tree.down().filter(|&node| tree.is_leaf(node)).for_each(|node| f(tree.cluster(node))),
        None => clusters.iter().for_each(f),
    }
}
