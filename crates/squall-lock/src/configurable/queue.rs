//! The list of registered waiters.
//!
//! - Q1. A node lies on the stack of the waiting thread, which does not return while the node is in the list.
//!   A holder removed the node and told the thread, or the thread removed the node itself, under the list's
//!   lock.
//! - Q2. QUEUED is set while the list is not empty. It changes only under the list's lock.
//! - Q3. A thread that has told a waiter its result no longer touches the node. It may still use the node's
//!   address as a key.
//! - Q4. [`Order::ClusterFirst`] passes over the thread that asked first at most [`CLUSTER_RUN`] times in a
//!   row. So each waiting thread is next at some time.
//!
//! Source: KT-16 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1).

use std::ptr::NonNull;

use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::{Mutex, MutexGuard};

use super::monitor::Monitor;
use super::pace::{Paced, pace};
use super::raw::{QUEUED, RawLock};
use super::request::{Ask, LockError};
use super::scheduling::Order;
use super::sites;
use super::waiting::{Method, Waiting};
use crate::parking::{self, FilterOp, ParkToken, UnparkToken};
use crate::records;
use crate::steps::Steps;

/// The number of grants in a row to one cluster after which the thread that asked first is next.
const CLUSTER_RUN: u32 = 32;

/// The thread waits and checks its state now and then.
const WAITING: u32 = 0;
/// The thread sleeps, or is about to.
const ASLEEP: u32 = 1;
/// The node was removed: the thread holds the lock.
const OWNER: u32 = 2;
/// The node was removed: the thread is being woken and counted.
const COUNTED: u32 = 3;

/// The result that a waiter is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Owner,
    Counted,
}

/// The result of a wait in the list.
pub(super) enum Left {
    Owner,
    Counted,
    Over(LockError),
}

struct Node {
    state: AtomicU32,
    priority: i32,
    cluster: u32,
    /// Defines the order of asking.
    ticket: u64,
}

impl Node {
    fn key(&self) -> usize {
        std::ptr::from_ref(&self.state) as usize
    }

    /// Returns the result, once the waiter was told.
    fn told(&self) -> Option<Told> {
        // Acquire: pairs with the Release in `List::pass`.
        match self.state.load(sites::GRANT_ACQUIRE.order(Ordering::Acquire)) {
            OWNER => Some(Told::Owner),
            COUNTED => Some(Told::Counted),
            _ => None,
        }
    }
}

#[derive(Debug)]
struct Inner {
    nodes: Vec<NonNull<Node>>,
    tickets: u64,
    /// The number of times in a row that the thread that asked first was passed over.
    passed_over: u32,
}

// SAFETY: threads share the nodes under the lock of the list (Q1), and all fields of a node are `Sync`.
unsafe impl Send for Inner {}

impl Inner {
    /// Iterates over the nodes.
    fn nodes(&self) -> impl Iterator<Item = &Node> {
        // SAFETY: a node in the list is alive (Q1). It stays in the list while the list's lock is held, and
        // `self` proves that it is.
        self.nodes.iter().map(|node| unsafe { node.as_ref() })
    }

    /// Returns the index of the next thread, if there is one.
    fn pick(&mut self, order: Order, here: u32) -> Option<usize> {
        let first = || self.nodes().enumerate().min_by_key(|(_, node)| node.ticket).map(|(at, _)| at);
        match order {
            Order::FirstCome => first(),
            Order::Priority => {
                let key = |node: &Node| (std::cmp::Reverse(node.priority), node.ticket);
                self.nodes().enumerate().min_by_key(|(_, node)| key(node)).map(|(at, _)| at)
            }
            Order::ClusterFirst => {
                let first = first()?;
                let near = self.nodes().enumerate().filter(|(_, node)| node.cluster == here);
                let near = near.min_by_key(|(_, node)| node.ticket).map(|(at, _)| at);
                let picked = near.filter(|_| self.passed_over < CLUSTER_RUN).unwrap_or(first);
                self.passed_over = if picked == first { 0 } else { self.passed_over + 1 };
                Some(picked)
            }
        }
    }
}

/// Wakes the waiter of the node at this address, and no other. The node may be gone by now, and its memory
/// may have become another lock.
fn wake(key: usize) {
    let ours = |token: ParkToken| if token.0 == key { FilterOp::Unpark } else { FilterOp::Skip };
    parking::unpark_filter(key, ours, |_| UnparkToken(super::tokens::AGAIN));
}

/// Returns the cluster of the calling thread.
#[cfg(not(loom))]
fn here() -> u32 {
    // A machine of unknown topology is one cluster.
    let Ok(machine) = squall_machine::try_machine() else { return 0 };
    let clusters = machine.clusters(machine.default_cluster_size());
    clusters.get(squall_machine::Vp::current()).map_or(0, |cluster| cluster.index() as u32)
}

#[cfg(loom)]
fn here() -> u32 {
    0
}

#[derive(Debug)]
pub(super) struct List(Mutex<Inner>);

impl List {
    #[cfg(not(loom))]
    pub(super) const fn new() -> List {
        List(Mutex::new(Inner { nodes: Vec::new(), tickets: 0, passed_over: 0 }))
    }

    #[cfg(loom)]
    pub(super) fn new() -> List {
        List(Mutex::new(Inner { nodes: Vec::new(), tickets: 0, passed_over: 0 }))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Only a failed allocation can panic under this lock, and it comes before any change.
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Waits in the list according to `ask`. A thread that was in the list before passes its `ticket` and
    /// keeps its place.
    pub(super) fn wait<S: Steps>(
        &self,
        lock: &RawLock<S>,
        ask: &Ask<'_>,
        ticket: &mut Option<u64>,
        spins: &mut u32,
        traced: &records::Wait,
    ) -> Left {
        // Needed in any case: the order may change while the thread waits.
        let cluster = here();
        let mut inner = self.lock();
        // Reserve before the node is in the list, so that a failed allocation changes no state.
        inner.nodes.reserve(1);
        let ticket = *ticket.get_or_insert(inner.tickets);
        inner.tickets = inner.tickets.max(ticket + 1);
        let node = &Node { state: AtomicU32::new(WAITING), priority: ask.priority, cluster, ticket };
        inner.nodes.push(NonNull::from(node));
        lock.word.fetch_or(QUEUED, Ordering::Relaxed);
        S::step();
        // From here on a release sees QUEUED. An earlier release left the lock free (W2).
        if !sites::REGISTERED_LOOK.is_weak() && lock.try_take(false) {
            self.take_out(lock, &mut inner, node);
            return Left::Owner;
        }
        drop(inner);
        loop {
            let by = lock.waiting.get();
            let waiting = ask.waiting.unwrap_or(by);
            for method in waiting.methods() {
                let told = match pace(method, ask, spins, || node.told()) {
                    Paced::Found(told) => Some(told),
                    Paced::Over(why) => return self.leave(lock, node, why),
                    Paced::Nothing if method == Method::Block => {
                        self.sleep(lock, ask, node, by, spins, traced)
                    }
                    Paced::Nothing => None,
                };
                match told {
                    Some(Told::Owner) => return Left::Owner,
                    Some(Told::Counted) => return Left::Counted,
                    None if method == Method::Block => break,
                    None => {}
                }
            }
        }
    }

    /// Sleeps until the thread is told a result or must check again.
    fn sleep<S: Steps>(
        &self,
        lock: &RawLock<S>,
        ask: &Ask<'_>,
        node: &Node,
        by: Waiting,
        spins: &mut u32,
        traced: &records::Wait,
    ) -> Option<Told> {
        S::step();
        let inner = self.lock();
        // A later change of attributes finds this thread asleep (W5).
        if lock.waiting.get() != by && !sites::CHANGE_LOOK.is_weak() {
            return node.told();
        }
        // Acquire on failure: pairs with the Release in `List::pass`.
        let acquire = sites::GRANT_ACQUIRE.order(Ordering::Acquire);
        if node.state.compare_exchange(WAITING, ASLEEP, Ordering::Relaxed, acquire).is_err() {
            return node.told();
        }
        drop(inner);
        let park = || {
            S::step();
            let still = || node.state.load(Ordering::Relaxed) == ASLEEP;
            ask.park::<S>(node.key(), ParkToken(node.key()), still, |_| {})
        };
        // A wake-up of any kind is noticed below.
        let _ = lock.monitor.slept(spins, || traced.parked(park));
        // The thread was told a result, was woken to check again, or its deadline passed.
        let _ = node.state.compare_exchange(ASLEEP, WAITING, Ordering::Relaxed, Ordering::Relaxed);
        node.told()
    }

    /// Leaves the list, unless the thread was told a result meanwhile (W4).
    fn leave<S: Steps>(&self, lock: &RawLock<S>, node: &Node, why: LockError) -> Left {
        S::step();
        let mut inner = self.lock();
        let told = node.told();
        if told.is_none() || sites::LATE_GRANT.is_weak() {
            self.take_out(lock, &mut inner, node);
            return Left::Over(why);
        }
        drop(inner);
        match told {
            Some(Told::Owner) if why == LockError::Cancelled => {
                lock.unlock();
                Left::Over(why)
            }
            Some(Told::Owner) => Left::Owner,
            _ => Left::Counted,
        }
    }

    /// Removes a node, if it is in the list.
    fn take_out<S: Steps>(&self, lock: &RawLock<S>, inner: &mut Inner, node: &Node) {
        inner.nodes.retain(|known| !std::ptr::eq(known.as_ptr(), node));
        if inner.nodes.is_empty() {
            lock.word.fetch_and(!QUEUED, Ordering::Relaxed);
        }
    }

    /// Gives the lock to the next waiter, or frees it and wakes that waiter. Only the holder calls this.
    /// Returns false if the list is empty.
    pub(super) fn pass<S: Steps>(&self, lock: &RawLock<S>, order: Order, told: Told) -> bool {
        // Computed outside the list's lock, because the first query of the machine reads files.
        let here = if order == Order::ClusterFirst { here() } else { 0 };
        let mut inner = self.lock();
        let Some(at) = inner.pick(order, here) else {
            lock.word.fetch_and(!QUEUED, Ordering::Relaxed);
            return false;
        };
        let node = inner.nodes.remove(at);
        // SAFETY: the node was in the list just now. Its thread waits until it is told a result (Q1), which
        // happens below.
        let node = unsafe { node.as_ref() };
        let none_left = if inner.nodes.is_empty() { QUEUED } else { 0 };
        S::step();
        let state = match told {
            Told::Owner => {
                Monitor::count(&lock.monitor.handed);
                lock.word.fetch_and(!none_left, Ordering::Relaxed);
                OWNER
            }
            Told::Counted => {
                lock.free_for_woken(none_left);
                COUNTED
            }
        };
        let key = node.key();
        // Release: pairs with the Acquire of `told`, so that the new owner sees the writes made under the
        // lock.
        let before = node.state.swap(state, sites::GRANT_RELEASE.order(Ordering::Release));
        drop(inner);
        S::step();
        if before == ASLEEP {
            wake(key);
        }
        true
    }

    /// Wakes the sleepers, so that they check again. They keep their places.
    pub(super) fn wake_all(&self) {
        let inner = self.lock();
        for node in inner.nodes() {
            let woken = node.state.compare_exchange(ASLEEP, WAITING, Ordering::Relaxed, Ordering::Relaxed);
            if woken.is_ok() {
                wake(node.key());
            }
        }
    }
}
