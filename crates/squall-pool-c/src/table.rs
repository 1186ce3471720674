//! Handles: the nodes and pools that a C program has.
//!
//! - I1. A handle is a multiple of [`STEP`], and grows with each handle of the process.
//! - I2. A pool's handle ends with that of its node.
//! - I3. The lock exists from the first node on. So no child of a fork waits for a thread that it lacks: one
//!   that was forked later is told apart before the lock.
//!
//! Cost: a lock, and a search of a tree.

use crate::calls::{NodeHandle, PoolHandle};
use crate::failure::Failure;
use crate::ffi::SquallCode;
use squall_sys::fork::forked;
use squall_sys::sync::{Mutex, MutexGuard, OnceLock, StdArc as Arc, lock};
use std::collections::BTreeMap;

/// The distance of two handles. Handles of one type of C are aligned as pointers are.
const STEP: usize = 16;

/// A node or a pool, as C programs have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handle(pub(crate) usize);

struct Table {
    last: usize,
    nodes: BTreeMap<Handle, Arc<NodeHandle>>,
    pools: BTreeMap<Handle, Arc<PoolHandle>>,
}

static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();

fn lock_table(table: &'static Mutex<Table>) -> MutexGuard<'static, Table> {
    lock(table, "the table of handles")
}

/// Locks the table to look a node or a pool up.
fn table(kind: &str) -> Result<MutexGuard<'static, Table>, Failure> {
    check()?;
    TABLE.get().map(lock_table).ok_or_else(|| unknown(kind))
}

fn next(table: &mut Table) -> Result<Handle, Failure> {
    let no_more =
        || Failure::system("the process has had as many nodes and pools as it can have; restart it");
    table.last = table.last.checked_add(STEP).ok_or_else(no_more)?;
    Ok(Handle(table.last))
}

fn unknown(kind: &str) -> Failure {
    let text = format!("the {kind} is unknown: the pointer is of another kind, or the {kind} has ended");
    Failure::new(SquallCode::Handle, text)
}

/// Checks that this process may have nodes.
pub(crate) fn check() -> Result<(), Failure> {
    // A thread that the child lacks may hold the lock.
    if forked() {
        let text = "this process is the child of a fork, and has no node; make nodes after the fork, or exec";
        return Err(Failure::new(SquallCode::Forked, text));
    }
    Ok(())
}

/// Adds a node.
pub(crate) fn add_node(node: NodeHandle) -> Result<Handle, Failure> {
    check()?;
    // The node has armed the check (I3).
    let empty = || Mutex::new(Table { last: 0, nodes: BTreeMap::new(), pools: BTreeMap::new() });
    let mut table = lock_table(TABLE.get_or_init(empty));
    let handle = next(&mut table)?;
    table.nodes.insert(handle, Arc::new(node));
    Ok(handle)
}

/// Finds a node.
pub(crate) fn node(handle: Handle) -> Result<Arc<NodeHandle>, Failure> {
    table("node")?.nodes.get(&handle).cloned().ok_or_else(|| unknown("node"))
}

/// Removes a node and its pools.
pub(crate) fn remove_node(handle: Handle) -> Result<(), Failure> {
    let mut table = table("node")?;
    let node = table.nodes.remove(&handle).ok_or_else(|| unknown("node"))?;
    let pools: Vec<_> = table.pools.extract_if(.., |_, pool| pool.node == handle).collect();
    // The node ends outside the lock (pool-c/I3).
    drop(table);
    drop(pools);
    drop(node);
    Ok(())
}

/// Adds a pool, if its node still has a handle.
pub(crate) fn add_pool(pool: PoolHandle) -> Result<Handle, Failure> {
    let mut table = table("node")?;
    if !table.nodes.contains_key(&pool.node) {
        drop(table);
        return Err(unknown("node"));
    }
    let handle = next(&mut table)?;
    table.pools.insert(handle, Arc::new(pool));
    Ok(handle)
}

/// Finds a pool.
pub(crate) fn pool(handle: Handle) -> Result<Arc<PoolHandle>, Failure> {
    table("pool")?.pools.get(&handle).cloned().ok_or_else(|| unknown("pool"))
}

/// Removes a pool, perhaps after another thread did.
pub(crate) fn remove_pool(handle: Handle) -> Result<(), Failure> {
    let removed = table("pool")?.pools.remove(&handle);
    drop(removed);
    Ok(())
}
