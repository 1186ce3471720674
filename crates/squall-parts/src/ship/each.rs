//! Calls to all clusters of a size, down the tree of clusters.
//!
//! Problem: one thread that ships to each of n clusters makes n sends, one after the other.
//!
//! Idea: a node of the tree is a cluster of clusters. The first thread that runs for a node ships a call to
//! each of its other children, and then goes on itself with the child that it is in. So the distribution
//! runs in parallel. A thread makes a send for each further child of a node. Results are counted up the same
//! tree: the last child of a node counts the node at its parent.
//!
//! - I1. Each cluster of the finest level has one result: of the closure, or the error that it did not run.
//! - I2. Each result is stored before its leaf arrives at the tally (`tally/I1`). So the last thread of all
//!   has seen every result.
//!
//! Not promised: the order in which clusters run.
//! Cost: a tree and a list of results per round; a message for each node but the first children.
//! Source: Unrau et al. 1995, §5.2.2 (HU-17: one processor of each cluster tells the others), §6 (HU-18:
//! spanning tree) and §3.1 (HU-23: superclusters).

use super::pending::{ShipError, may_wait, outcome};
use super::tally::Tally;
use super::vps::{inbox_of, note_look, waiting};
use crate::unpark::{Unpark, park_until};
use squall_machine::{Cluster, ClusterSize, ClusterTree, TreeNode, Vp, machine};
use squall_rcu::__run_served as run_served;
use squall_sys::fork::forked;
use squall_sys::sync::atomic::{AtomicUsize, Ordering};
use squall_sys::sync::{Arc, Mutex, MutexGuard, lock};
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The results of a call to each cluster.
#[derive(Debug)]
#[non_exhaustive]
pub struct Each<R> {
    /// The results, by cluster.
    pub results: Vec<Result<R, ShipError>>,
    /// Messages that were sent to nodes of each level, coarsest level first. A node that its parent's thread
    /// was in, or that its parent's thread did the work of, has no message.
    pub messages: Vec<usize>,
}

/// A call to each cluster, on its way: [`ship_each`].
///
/// [Wait](PendingEach::wait) for it, [poll](PendingEach::try_take) it, or await it. Unlike those of a
/// [`PendingCall`](super::PendingCall), the calls go on if this is dropped, and each cluster has its own
/// result in [`Each`]. The errors of the waits concern the caller, such as [`ShipError::InOperation`].
#[must_use = "the calls go on without it, and their results are lost"]
pub struct PendingEach<R: Send + 'static>(Arc<dyn Outcome<R>>);

/// A round, without the type of its closure.
trait Outcome<R>: Send + Sync {
    fn end(&self) -> &Tally;
    fn take(&self) -> Each<R>;
}

/// The place of a result.
type Place<R> = Mutex<Option<Result<R, ShipError>>>;

struct Round<F, R> {
    tree: ClusterTree<'static>,
    call: F,
    /// By cluster of the finest level.
    results: Box<[Place<R>]>,
    /// By level, coarsest first.
    messages: Box<[AtomicUsize]>,
    end: Tally,
}

/// Runs `call` once in each cluster of this size, in parallel, and returns the pending results.
///
/// The call for the calling thread's own cluster runs before this returns, with the locks that the caller
/// holds; inside an operation it is sent, too. The others run as those of [`ship`](super::ship) do, on the
/// first VP of the cluster with a free slot. If all inboxes of a cluster are full, the call does not run
/// there, and its result is [`ShipError::Full`]. If the system refuses a thread, it is
/// [`ShipError::NoThread`].
///
/// # Cost
/// A message for each cluster, without the caller's own; the sends proceed in parallel below the first level
/// of the tree. Each message wakes or makes a thread, which then stays for a second. A list of results, and
/// the tree.
///
/// # Source
/// Unrau et al. 1995, §6 (HU-18) and §5.2.2 (HU-17).
///
/// # Example
/// ```
/// use squall::{ClusterSize, machine, ship};
///
/// let each = ship::ship_each(ClusterSize::Node, |node| node.index()).wait().unwrap();
/// let nodes: Vec<usize> = each.results.into_iter().map(|result| result.unwrap()).collect();
/// assert_eq!(nodes.len(), machine().clusters(ClusterSize::Node).len());
/// assert!(nodes.is_sorted());
/// ```
pub fn ship_each<R, F>(size: ClusterSize, call: F) -> PendingEach<R>
where
    R: Send + 'static,
    F: Fn(Cluster) -> R + Send + Sync + 'static,
{
    let coarser = ClusterSize::LEVELS.into_iter().filter(|level| *level > size);
    let sizes: Vec<ClusterSize> = match size {
        ClusterSize::Fixed(_) => vec![size, ClusterSize::Machine],
        level => std::iter::once(level).chain(coarser).collect(),
    };
    let tree = machine().tree(&sizes).expect("the levels of a machine nest");
    let round = Arc::new(Round {
        results: tree.levels()[tree.levels().len() - 1].iter().map(|_| Mutex::new(None)).collect(),
        messages: tree.levels().iter().map(|_| AtomicUsize::new(0)).collect(),
        end: Tally::new(tree.down().map(|node| tree.children(node).len() as u32), tree.roots().len() as u32),
        tree,
        call,
    });
    if !forked() {
        round.go_on(round.tree.roots());
    }
    PendingEach(round)
}

/// Runs `call` once on each VP, in parallel, and returns the pending results in the order of the VPs. Like
/// [`ship_each`] for clusters of one VP.
///
/// # Cost
/// That of [`ship_each`]: a thread for each VP, unless one is there.
///
/// # Example
/// ```
/// use squall::{machine, ship};
///
/// let each = ship::ship_all(|vp| vp).wait().unwrap();
/// let vps: Vec<_> = each.results.into_iter().map(|result| result.unwrap()).collect();
/// assert!(vps.into_iter().eq(machine().vps().iter()));
/// ```
pub fn ship_all<R, F>(call: F) -> PendingEach<R>
where
    R: Send + 'static,
    F: Fn(Vp) -> R + Send + Sync + 'static,
{
    let vps = machine().clusters(ClusterSize::Cpu);
    ship_each(ClusterSize::Cpu, move |cluster| call(vps.members(cluster)[0]))
}

impl<R: Send + 'static, F: Fn(Cluster) -> R + Send + Sync + 'static> Round<F, R> {
    /// Ships a call to each of these nodes, and goes on with the one that the thread is in.
    fn go_on(self: &Arc<Self>, nodes: impl Iterator<Item = TreeNode>) {
        let here = Vp::current();
        let mut mine = None;
        for node in nodes {
            if self.tree.members(node).contains(&here) && !squall_rcu::in_operation() {
                mine = Some(node);
            } else {
                self.ship_to(node);
            }
        }
        if let Some(node) = mine {
            self.run(node);
        }
    }

    /// Does the work of a node, on a VP of it if possible.
    fn run(self: &Arc<Self>, node: TreeNode) {
        if !self.tree.is_leaf(node) {
            return self.go_on(self.tree.children(node));
        }
        let cluster = self.tree.cluster(node);
        self.give(node, outcome(catch_unwind(AssertUnwindSafe(|| run_served(|| (self.call)(cluster))))));
    }

    fn ship_to(self: &Arc<Self>, node: TreeNode) {
        let (messages, mut why) = (&self.messages[self.tree.depth(node)], ShipError::Full);
        for vp in self.tree.members(node) {
            let (to, round) = (inbox_of(*vp), self.clone());
            // Before the round can end. Relaxed: read after the end.
            messages.fetch_add(1, Ordering::Relaxed);
            match to.inbox.send(move || round.run(node)).map(|ticket| to.let_run(ticket)) {
                Ok(true) => return,
                Ok(false) => why = ShipError::NoThread,
                Err(_) => {}
            }
            messages.fetch_sub(1, Ordering::Relaxed);
        }
        if self.tree.is_leaf(node) {
            self.give(node, Err(why));
        } else {
            // The thread passes the call on in place of one of the node.
            self.go_on(self.tree.children(node));
        }
    }

    /// Gives a leaf its result (I2).
    fn give(&self, leaf: TreeNode, result: Result<R, ShipError>) {
        *lock_of(&self.results[self.tree.cluster(leaf).index()]) = Some(result);
        let parent = |node| self.tree.parent(self.tree.node(node)).map(TreeNode::index);
        self.end.arrive(leaf.index(), parent);
    }
}

fn lock_of<T>(result: &Mutex<T>) -> MutexGuard<'_, T> {
    lock(result, "a result of a call to all clusters")
}

impl<R: Send, F: Send + Sync> Outcome<R> for Round<F, R> {
    fn end(&self) -> &Tally {
        &self.end
    }

    fn take(&self) -> Each<R> {
        let taken = |result: &Mutex<Option<_>>| {
            lock_of(result).take().expect("the results of a call to all clusters were taken before")
        };
        Each {
            results: self.results.iter().map(taken).collect(),
            messages: self.messages.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
        }
    }
}

impl<R: Send + 'static> PendingEach<R> {
    /// Returns whether all results are there.
    pub fn is_finished(&self) -> bool {
        let is_over = self.0.end().is_over();
        if !is_over {
            note_look();
        }
        is_over
    }

    /// Returns the results if all are there, and takes them.
    ///
    /// # Panics
    /// If they were taken before.
    pub fn try_take(&mut self) -> Option<Each<R>> {
        self.is_finished().then(|| self.0.take())
    }

    /// Blocks the thread until all results are there.
    ///
    /// # Errors
    /// [`ShipError::InOperation`] and [`ShipError::MayNotWait`], also if the results are there, and
    /// [`ShipError::Forked`]. The calls go on.
    ///
    /// # Panics
    /// If the results were taken before.
    pub fn wait(mut self) -> Result<Each<R>, ShipError> {
        self.block(None)?;
        Ok(self.0.take())
    }

    /// Blocks the thread until all results are there, for at most `limit`.
    ///
    /// # Errors
    /// As of [`wait`](PendingEach::wait).
    ///
    /// # Panics
    /// If the results were taken before.
    pub fn wait_timeout(&mut self, limit: Duration) -> Result<Option<Each<R>>, ShipError> {
        self.block(Instant::now().checked_add(limit))?;
        Ok(self.try_take())
    }

    fn block(&mut self, deadline: Option<Instant>) -> Result<(), ShipError> {
        may_wait()?;
        let end = self.0.end();
        if end.is_over() {
            return Ok(());
        }
        if forked() {
            return Err(ShipError::Forked);
        }
        let sleep = || {
            if !end.watch(&Unpark::waker()) {
                park_until(deadline, || end.is_over());
            }
        };
        waiting(|| end.is_over(), sleep);
        Ok(())
    }
}

impl<R: Send + 'static> Future for PendingEach<R> {
    type Output = Each<R>;

    /// In the child of a fork, the future of calls that had not all ended is never ready.
    ///
    /// # Panics
    /// If the results were taken before.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Each<R>> {
        let this = self.get_mut();
        if this.is_finished() || this.0.end().watch(context.waker()) {
            Poll::Ready(this.0.take())
        } else {
            Poll::Pending
        }
    }
}

impl<R: Send + 'static> fmt::Debug for PendingEach<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingEach").field("is_finished", &self.0.end().is_over()).finish_non_exhaustive()
    }
}
