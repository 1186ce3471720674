//! Superclusters: clusters of several sizes as one tree, to be walked down (broadcast) or up (gather).
//!
//! - I1. Every cluster, except those of the coarsest size, lies within exactly one cluster of the next size.
//!   A list of sizes that breaks this rule is rejected.
//! - I2. Nodes are numbered from the coarsest level down, and within a level in the order of their parents.
//!   So a parent comes before its children, the children of one parent are consecutive, and a walk is a loop
//!   over numbers.
//!
//! Not promised: a single root, or balance. Two levels that coincide give nodes with one child.
//! Cost: building takes O(VPs × sizes); each step of a walk is one array read.
//! Source: Unrau et al., "Hierarchical Clustering", §3.1 and §5.2 (superclusters, and a notification tree
//! over them, which the paper proposes and did not build).

use std::fmt;
use std::ops::Range;

use super::{Cluster, ClusterSize, Clusters};
use crate::Vp;

/// Clusters of several sizes, each within one of the next size. [`crate::Machine::tree`] builds it.
///
/// # Example
/// ```
/// use squall::topology::{Topology, VirtualSpec};
/// use squall::{ClusterSize, ClusterTree};
///
/// let spec: VirtualSpec = "nodes:2,cores:4".parse().unwrap();
/// let topology = Topology::virtual_of(spec);
/// let sizes = [ClusterSize::Cpu, ClusterSize::Node, ClusterSize::Machine];
/// let levels = sizes.map(|size| topology.clusters(size));
/// let tree = ClusterTree::new(levels.each_ref()).unwrap();
///
/// // A gather: each node adds up its children, children first.
/// let mut sums = vec![0; tree.len()];
/// for node in tree.up() {
///     let below: usize = tree.children(node).map(|child| sums[child.index()]).sum();
///     sums[node.index()] = if tree.is_leaf(node) { 1 } else { below };
/// }
/// let root = tree.roots().next().unwrap();
/// assert_eq!(sums[root.index()], 8);
/// ```
#[derive(Debug)]
pub struct ClusterTree<'a> {
    /// Coarsest first.
    levels: Box<[&'a Clusters]>,
    /// Number of the first node of each level, and one end element.
    starts: Box<[u32]>,
    nodes: Box<[Node]>,
    /// Node number by cluster number, for the finest level.
    leaves: Box<[u32]>,
}

#[derive(Clone, Debug)]
struct Node {
    cluster: Cluster,
    /// Unused in the coarsest level.
    parent: u32,
    children: Range<u32>,
}

/// A node of a [`ClusterTree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeNode(u32);

impl TreeNode {
    /// Returns the node's number in the tree, dense from 0, for indexing an array with one element per node.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl<'a> ClusterTree<'a> {
    /// Builds the tree of the given clusters, finest size first. All must belong to one machine.
    ///
    /// # Errors
    /// [`TreeError`] if `levels` is empty, if the machines have different VPs, or if a cluster lies across
    /// two of the next size.
    ///
    /// # Example
    /// ```
    /// use squall::topology::Topology;
    /// use squall::{ClusterSize, ClusterTree};
    ///
    /// let topology = Topology::virtual_of("nodes:2,cores:3".parse().unwrap());
    /// let levels = [ClusterSize::Core, ClusterSize::Node].map(|size| topology.clusters(size));
    /// let tree = ClusterTree::new(&levels).unwrap();
    /// assert_eq!((tree.roots().len(), tree.len()), (2, 8));
    /// ```
    pub fn new(levels: impl IntoIterator<Item = &'a Clusters>) -> Result<ClusterTree<'a>, TreeError> {
        let mut levels: Box<[&Clusters]> = levels.into_iter().collect();
        levels.reverse();
        let Some((coarsest, finer)) = levels.split_first() else { return Err(TreeError::NoSizes) };
        let node = |cluster, parent| Node { cluster, parent, children: 0..0 };
        let mut nodes: Vec<Node> = coarsest.iter().map(|cluster| node(cluster, 0)).collect();
        let mut starts = vec![0, nodes.len() as u32];
        let mut outer = *coarsest;
        let mut node_of: Box<[u32]> = (0..nodes.len() as u32).collect();
        for inner in finer {
            let mut placed = parents(inner, outer)?;
            placed.sort_by_key(|(cluster, parent)| (node_of[parent.index()], *cluster));
            let mut inner_of = vec![0; inner.len()].into_boxed_slice();
            for (cluster, parent) in placed {
                let (number, parent) = (nodes.len() as u32, node_of[parent.index()]);
                inner_of[cluster.index()] = number;
                nodes.push(node(cluster, parent));
                let children = &mut nodes[parent as usize].children;
                *children = if children.end == 0 { number..number + 1 } else { children.start..number + 1 };
            }
            starts.push(nodes.len() as u32);
            (outer, node_of) = (inner, inner_of);
        }
        Ok(ClusterTree { levels, starts: starts.into(), nodes: nodes.into(), leaves: node_of })
    }

    /// Returns the number of nodes, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a machine has a VP, so there is a node")]
    #[inline]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the levels, coarsest first. `levels()[depth]` has the clusters of the nodes at that depth.
    #[inline]
    pub fn levels(&self) -> &[&'a Clusters] {
        &self.levels
    }

    /// Returns the node with number `index`: the inverse of [`TreeNode::index`].
    ///
    /// # Panics
    /// If `index` is not below [`len`](ClusterTree::len).
    #[inline]
    pub fn node(&self, index: usize) -> TreeNode {
        assert!(index < self.nodes.len(), "this tree has no node {index}");
        TreeNode(index as u32)
    }

    /// Iterates over the nodes of the coarsest size.
    pub fn roots(&self) -> impl ExactSizeIterator<Item = TreeNode> + DoubleEndedIterator + use<> {
        (0..self.starts[1]).map(TreeNode)
    }

    /// Iterates over all nodes, each before its children: the order of a broadcast.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, machine};
    ///
    /// // Broadcast: each node passes its message to its children.
    /// let tree = machine().tree(&ClusterSize::LEVELS).unwrap();
    /// let mut message = vec![""; tree.len()];
    /// tree.roots().for_each(|root| message[root.index()] = "flush");
    /// for node in tree.down() {
    ///     tree.children(node).for_each(|child| message[child.index()] = message[node.index()]);
    /// }
    /// assert!(message.iter().all(|text| *text == "flush"));
    /// ```
    pub fn down(&self) -> impl ExactSizeIterator<Item = TreeNode> + DoubleEndedIterator + use<> {
        (0..self.nodes.len() as u32).map(TreeNode)
    }

    /// Iterates over all nodes, each after its children: the order of a gather.
    pub fn up(&self) -> impl ExactSizeIterator<Item = TreeNode> + DoubleEndedIterator + use<> {
        self.down().rev()
    }

    /// Returns the node that contains `node`, or `None` for a root.
    #[inline]
    pub fn parent(&self, node: TreeNode) -> Option<TreeNode> {
        (node.0 >= self.starts[1]).then(|| TreeNode(self.nodes[node.index()].parent))
    }

    /// Iterates over the nodes of the next finer size within `node`. Empty for a leaf.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, Machine};
    ///
    /// let machine = Machine::virtual_of("nodes:2,cores:3".parse().unwrap());
    /// let tree = machine.tree(&[ClusterSize::Core, ClusterSize::Node]).unwrap();
    /// let node = tree.roots().next().unwrap();
    /// assert_eq!(tree.children(node).len(), 3);
    /// ```
    pub fn children(
        &self,
        node: TreeNode,
    ) -> impl ExactSizeIterator<Item = TreeNode> + DoubleEndedIterator + use<> {
        self.nodes[node.index()].children.clone().map(TreeNode)
    }

    /// True if `node` is of the finest size.
    pub fn is_leaf(&self, node: TreeNode) -> bool {
        self.depth(node) + 1 == self.levels.len()
    }

    /// Returns the number of levels above `node`.
    pub fn depth(&self, node: TreeNode) -> usize {
        self.starts[1..].partition_point(|start| *start <= node.0)
    }

    /// Returns the cluster of `node`, among those of `levels()[depth(node)]`.
    pub fn cluster(&self, node: TreeNode) -> Cluster {
        self.nodes[node.index()].cluster
    }

    /// Returns the VPs below `node`, lowest first.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, machine};
    ///
    /// let tree = machine().tree(&[ClusterSize::Core, ClusterSize::Machine]).unwrap();
    /// for node in tree.down() {
    ///     println!("depth {}: VPs {:?}", tree.depth(node), tree.members(node));
    /// }
    /// ```
    pub fn members(&self, node: TreeNode) -> &'a [Vp] {
        self.levels[self.depth(node)].members(self.cluster(node))
    }

    /// Returns the leaf of a cluster of the finest size. Leaves are the last nodes in the numbering.
    ///
    /// # Panics
    /// If the finest size has no cluster `cluster`.
    #[inline]
    pub fn leaf(&self, cluster: Cluster) -> TreeNode {
        TreeNode(self.leaves[cluster.index()])
    }

    /// Returns the leaf that contains `vp`.
    ///
    /// # Panics
    /// If the machine has no VP `vp`.
    pub fn leaf_of(&self, vp: Vp) -> TreeNode {
        let finest = self.levels[self.levels.len() - 1];
        self.leaf(finest.cluster_of(vp))
    }

    /// Iterates over the nodes that contain `vp`, from its leaf to its root.
    ///
    /// # Panics
    /// If the machine has no VP `vp`.
    ///
    /// # Example
    /// ```
    /// use squall::{ClusterSize, Vp, machine};
    ///
    /// let tree = machine().tree(&[ClusterSize::Cpu, ClusterSize::Machine]).unwrap();
    /// let path: Vec<_> = tree.path(Vp::current()).collect();
    /// assert_eq!(path.len(), 2);
    /// assert_eq!(tree.parent(path[0]), Some(path[1]));
    /// ```
    pub fn path(&self, vp: Vp) -> impl Iterator<Item = TreeNode> + use<'_, 'a> {
        std::iter::successors(Some(self.leaf_of(vp)), |node| self.parent(*node))
    }
}

/// Finds the cluster of `outer` that contains each cluster of `inner`.
fn parents(inner: &Clusters, outer: &Clusters) -> Result<Vec<(Cluster, Cluster)>, TreeError> {
    let place = |cluster| {
        let members = inner.members(cluster);
        let parent_of = |vp: &Vp| outer.get(*vp).ok_or(TreeError::NotOneMachine { vp: *vp });
        let parent = parent_of(&members[0])?;
        for vp in members {
            let other = parent_of(vp)?;
            if other != parent {
                let (inner, outer) = (inner.size(), outer.size());
                let vps = members.iter().copied().collect();
                return Err(TreeError::Straddles { inner, cluster, vps, outer, parents: [parent, other] });
            }
        }
        Ok((cluster, parent))
    };
    if let Some(vp) = outer.members.iter().find(|vp| inner.get(**vp).is_none()) {
        return Err(TreeError::NotOneMachine { vp: *vp });
    }
    inner.iter().map(place).collect()
}

/// Error: a list of sizes does not form a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TreeError {
    /// The list is empty.
    NoSizes,
    /// The sizes were taken from different machines; one of them lacks this VP.
    NotOneMachine {
        /// The missing VP.
        vp: Vp,
    },
    /// A cluster lies across two of the next size.
    Straddles {
        /// The finer size.
        inner: ClusterSize,
        /// The cluster, of the finer size.
        cluster: Cluster,
        /// VPs of the cluster.
        vps: crate::VpSet,
        /// The coarser size.
        outer: ClusterSize,
        /// Two clusters of the coarser size that share VPs with the cluster.
        parents: [Cluster; 2],
    },
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TreeError::NoSizes => f.write_str("a tree of clusters needs at least one size"),
            TreeError::NotOneMachine { vp } => {
                write!(f, "the levels of a tree belong to different machines: one has no VP {}", vp.index())
            }
            TreeError::Straddles { inner, cluster, vps, outer, parents: [first, second] } => write!(
                f,
                "cluster {} of size {inner} (VPs {vps}) lies across clusters {} and {} of size {outer}; \
                 list sizes finest first, each nested in the next",
                cluster.index(),
                first.index(),
                second.index()
            ),
        }
    }
}

impl std::error::Error for TreeError {}
