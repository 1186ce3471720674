//! Pools on nodes of one process: elements are found, moved, given back and accounted for.
#![cfg(all(target_os = "linux", not(miri)))]

use squall_fleet::{GroupKey, LocalNetwork, LocalTransport, Name, NameCapability, Node, NodeBuilder};
use squall_fleet::{Receiver, Transport};
use squall_pool::{
    Attributes, DistributedPool, PoolEnd, PoolErrorKind, PoolInfo, PoolState, Strategy, pools,
};
use std::collections::BTreeSet;
use std::error::Error;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

const LIMIT: Duration = Duration::from_secs(120);

/// A transport that loses all frames from and to nodes that are cut off.
struct Cuttable {
    transport: LocalTransport,
    cut: Cut,
}

type Cut = Arc<Mutex<BTreeSet<String>>>;

impl Transport for Cuttable {
    fn endpoint(&self) -> String {
        self.transport.endpoint()
    }

    fn largest_frame(&self) -> usize {
        self.transport.largest_frame()
    }

    fn start(&self, receiver: Receiver) -> std::io::Result<()> {
        self.transport.start(receiver)
    }

    fn send(&self, to: &str, frame: &[u8]) {
        let cut = self.cut.lock().unwrap();
        if !cut.contains(to) && !cut.contains(&self.endpoint()) {
            self.transport.send(to, frame);
        }
    }

    fn stop(&self) {
        self.transport.stop();
    }
}

struct Group {
    network: LocalNetwork,
    cut: Cut,
    key: GroupKey,
    root: NameCapability,
    nodes: Vec<Node>,
    made: usize,
}

impl Group {
    fn new(nodes: usize) -> Result<Group> {
        let (network, key) = (LocalNetwork::new(), GroupKey::random());
        let cut = Cut::default();
        let transport = Cuttable { transport: network.bind("0")?, cut: cut.clone() };
        let (first, root) = NodeBuilder::new(key).found(transport, &[])?;
        let mut group = Group { network, cut, key, root, nodes: vec![first], made: 1 };
        while group.nodes.len() < nodes {
            group.add_node()?;
        }
        Ok(group)
    }

    fn add_node(&mut self) -> Result<usize> {
        let transport = self.network.bind(&self.made.to_string())?;
        let transport = Cuttable { transport, cut: self.cut.clone() };
        let seeds = self.nodes.iter().map(Node::endpoint).collect::<Vec<_>>();
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        let node = NodeBuilder::new(self.key).join(transport, &seeds)?;
        node.wait_joined(LIMIT)?;
        self.made += 1;
        self.nodes.push(node);
        Ok(self.nodes.len() - 1)
    }

    fn pool(&self, node: usize, strategy: Strategy) -> Result<DistributedPool> {
        self.pool_with(node, Attributes::new(strategy))
    }

    fn pool_with(&self, node: usize, attributes: Attributes) -> Result<DistributedPool> {
        Ok(DistributedPool::join(&self.nodes[node], &name(), &self.root, attributes)?)
    }

    /// Makes a pool with copies at each node, and waits for the copies.
    fn replicated(&self, strategy: Strategy) -> Result<Vec<DistributedPool>> {
        let attributes = Attributes { replicated: true, ..Attributes::new(strategy) };
        let pools = (0..self.nodes.len()).map(|node| self.pool_with(node, attributes.clone()));
        let pools = pools.collect::<Result<Vec<_>>>()?;
        while !pools.iter().all(DistributedPool::has_heir) {
            std::thread::yield_now();
        }
        Ok(pools)
    }

    fn pools(&self, strategy: Strategy) -> Result<Vec<DistributedPool>> {
        (0..self.nodes.len()).map(|node| self.pool(node, strategy)).collect()
    }
}

fn name() -> Name {
    "/pool".parse().unwrap()
}

fn token(number: u64) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn number(element: &[u8]) -> u64 {
    u64::from_le_bytes(element.try_into().unwrap())
}

/// Takes all elements that a member finds.
fn drain(pool: &DistributedPool) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    while let Some(element) = pool.get(LIMIT)? {
        found.push(number(&element));
    }
    Ok(found)
}

/// Takes so many elements. On a loaded machine a node may be taken for dead meanwhile: its elements come
/// back.
fn take(pool: &DistributedPool, count: usize) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    while found.len() < count {
        found.extend(drain(pool)?);
    }
    Ok(found)
}

#[test]
fn each_element_goes_to_one_caller() -> Result {
    for strategy in Strategy::ALL {
        let group = Group::new(3)?;
        let pools = group.pools(strategy)?;
        let (last, taken) = (AtomicU64::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for pool in &pools {
                scope.spawn(|| {
                    for round in 0..60 {
                        if round % 3 != 2 {
                            pool.add(&token(last.fetch_add(1, Ordering::Relaxed)), LIMIT).unwrap();
                        } else if let Some(element) = pool.get(LIMIT).unwrap() {
                            taken.lock().unwrap().push(number(&element));
                        }
                    }
                });
            }
        });
        let mut taken = taken.into_inner()?;
        let left = last.load(Ordering::Relaxed) as usize - taken.len();
        taken.extend(take(&pools[1], left)?);
        let distinct: BTreeSet<u64> = taken.iter().copied().collect();
        assert_eq!(distinct.len(), taken.len(), "{strategy:?}: an element went to two callers");
        assert_eq!(distinct, (0..last.into_inner()).collect(), "{strategy:?}");
        for pool in &pools {
            assert_eq!(pool.get(LIMIT)?, None, "{strategy:?}");
            assert_eq!(pool.size(LIMIT)?, 0, "{strategy:?}");
        }
    }
    Ok(())
}

#[test]
fn a_leaver_loses_no_element_and_the_last_one_tells_its_loss() -> Result {
    for strategy in Strategy::ALL {
        let group = Group::new(3)?;
        let pools = group.pools(strategy)?;
        for (at, pool) in pools.iter().enumerate() {
            (0..40).try_for_each(|round| pool.add(&token(at as u64 * 100 + round), LIMIT))?;
        }
        // The master leaves first.
        assert_eq!(pools[0].shutdown(LIMIT)?, PoolEnd::Left, "{strategy:?}");
        let closed = pools[0].get(LIMIT).unwrap_err();
        assert_eq!(closed.kind, PoolErrorKind::Closed, "{strategy:?}");
        assert_eq!(pools[2].shutdown(LIMIT)?, PoolEnd::Left, "{strategy:?}");
        assert_eq!(pools[1].size(LIMIT)?, 120, "{strategy:?}");
        let first = pools[1].get(LIMIT)?;
        assert!(first.is_some(), "{strategy:?}");
        assert_eq!(pools[1].shutdown(LIMIT)?, PoolEnd::LastLeft { lost: 119 }, "{strategy:?}");
        // The name is free again.
        let again = group.pool(2, Strategy::Distributed)?;
        assert_eq!(again.get(LIMIT)?, None);
    }
    Ok(())
}

#[test]
fn a_node_that_leaves_gives_its_elements_away_first() -> Result {
    let mut group = Group::new(3)?;
    let pools = group.pools(Strategy::Directory)?;
    (0..30).try_for_each(|at| pools[2].add(&token(at), LIMIT))?;
    let node = group.nodes.pop().expect("three nodes");
    node.leave(LIMIT)?;
    assert_eq!(pools[2].shutdown(LIMIT)?, PoolEnd::Left);
    assert_eq!(take(&pools[0], 30)?.into_iter().collect::<BTreeSet<_>>(), (0..30).collect());
    Ok(())
}

#[test]
fn a_dead_member_loses_its_own_elements_alone() -> Result {
    for strategy in [Strategy::EstimatedPush, Strategy::Directory] {
        let mut group = Group::new(4)?;
        let pools = group.pools(strategy)?;
        for (at, pool) in pools.iter().enumerate() {
            (0..10).try_for_each(|round| pool.add(&token(at as u64 * 100 + round), LIMIT))?;
        }
        // The master dies.
        drop(group.nodes.remove(0));
        assert_eq!(pools[0].get(LIMIT).unwrap_err().kind, PoolErrorKind::Closed);
        let found: BTreeSet<u64> = take(&pools[3], 30)?.into_iter().collect();
        let expected: BTreeSet<u64> = (1..4).flat_map(|at| at * 100..at * 100 + 10).collect();
        assert_eq!(found, expected, "{strategy:?}");
    }
    Ok(())
}

#[test]
fn a_node_that_was_taken_for_dead_adds_its_elements_again() -> Result {
    let group = Group::new(3)?;
    let pools = group.pools(Strategy::Directory)?;
    (0..20).try_for_each(|at| pools[2].add(&token(at), LIMIT))?;
    let before = pools[2].location();
    group.cut.lock().unwrap().insert(group.nodes[2].endpoint());
    while pools[0].locations().len() > 2 {
        std::thread::yield_now();
    }
    // The others have a pool without it, and it serves no more.
    assert!(!pools[2].is_serving());
    assert_eq!(pools[2].get(Duration::ZERO).unwrap_err().kind, PoolErrorKind::TimedOut { begun: false });
    assert_eq!(drain(&pools[0])?, []);
    group.cut.lock().unwrap().clear();
    let mut found = BTreeSet::new();
    while found.len() < 20 {
        found.extend(drain(&pools[0])?);
    }
    assert_eq!(found, (0..20).collect());
    assert_ne!(pools[2].location(), before);
    assert_eq!(pools[2].shutdown(LIMIT)?, PoolEnd::Left);
    Ok(())
}

#[test]
fn a_dead_member_with_an_heir_loses_no_element() -> Result {
    for strategy in [Strategy::EstimatedPush, Strategy::Directory] {
        // On a loaded machine another node may be taken for dead at the same time. Then it is tried again.
        loop {
            let mut group = Group::new(4)?;
            let pools = group.replicated(strategy)?;
            let places: Vec<_> = pools.iter().map(DistributedPool::location).collect();
            for (at, pool) in pools.iter().enumerate() {
                (0..10).try_for_each(|round| pool.add(&token(at as u64 * 10 + round), LIMIT))?;
            }
            let had_heirs = pools.iter().all(DistributedPool::has_heir);
            // The master dies.
            drop(group.nodes.remove(0));
            assert_eq!(pools[0].get(LIMIT).unwrap_err().kind, PoolErrorKind::Closed);
            let mut found = BTreeSet::new();
            let undisturbed = || (1..4).all(|at| pools[at].location() == places[at]) && had_heirs;
            while found.len() < 40 && undisturbed() {
                for element in drain(&pools[3])? {
                    assert!(found.insert(element), "{strategy:?}: {element} came twice");
                }
            }
            if !undisturbed() {
                continue;
            }
            assert_eq!(found, (0..40).collect(), "{strategy:?}");
            // The heir has no more to do for it, and all have heirs again.
            while pools[1].locations().len() > 3 || !pools[1..].iter().all(DistributedPool::has_heir) {
                std::thread::yield_now();
            }
            assert_eq!(pools[1].shutdown(LIMIT)?, PoolEnd::Left);
            break;
        }
    }
    Ok(())
}

#[test]
fn a_node_that_was_taken_for_dead_finds_its_elements_at_its_heir() -> Result {
    let group = Group::new(3)?;
    let pools = group.replicated(Strategy::Directory)?;
    (0..20).try_for_each(|at| pools[2].add(&token(at), LIMIT))?;
    let before: Vec<_> = pools.iter().map(DistributedPool::location).collect();
    let had_heirs = pools.iter().all(DistributedPool::has_heir);
    let mut found = BTreeSet::new();
    let mut take = || -> Result<usize> {
        for element in drain(&pools[0])? {
            assert!(element < 20 && found.insert(element), "{element} came twice");
        }
        Ok(found.len())
    };
    group.cut.lock().unwrap().insert(group.nodes[2].endpoint());
    while pools[2].is_serving() {
        std::thread::yield_now();
    }
    take()?;
    group.cut.lock().unwrap().clear();
    while pools[2].location() == before[2] || !pools[2].is_serving() {
        std::thread::yield_now();
    }
    take()?;
    assert_eq!(pools[2].shutdown(LIMIT)?, PoolEnd::Left);
    let count = take()?;
    // On a loaded machine another node may be taken for dead at the same time.
    let undisturbed = (0..2).all(|at| pools[at].location() == before[at]) && had_heirs;
    assert!(count == 20 || !undisturbed, "{count} of 20 elements are there");
    Ok(())
}

#[test]
fn a_get_that_is_given_up_takes_nothing() -> Result {
    let group = Group::new(2)?;
    let pools = group.pools(Strategy::Directory)?;
    for round in 0..50 {
        pools[0].add(&token(round), LIMIT)?;
        let mut context = Context::from_waker(Waker::noop());
        // Polled or not, with a result or not, the element is still there.
        let future = pools[(round % 2) as usize].get_async();
        let mut future = pin!(future);
        if round % 3 == 0
            && let Poll::Ready(result) = future.as_mut().poll(&mut context)
        {
            pools[0].add(&result?.expect("an element"), LIMIT)?;
        }
    }
    // A get that was given up may take an element a moment later, and gives it back.
    let mut found = BTreeSet::new();
    while found.len() < 50 {
        found.extend(drain(&pools[found.len() % 2])?);
    }
    assert_eq!(found, (0..50).collect());
    Ok(())
}

#[test]
fn a_leaver_waits_for_the_elements_of_its_futures() -> Result {
    let group = Group::new(2)?;
    let pools = group.pools(Strategy::Directory)?;
    pools[0].add(&token(7), LIMIT)?;
    let holds = pools[0].get_async();
    let late = pools[0].shutdown(Duration::from_millis(100)).unwrap_err();
    assert_eq!(late.kind, PoolErrorKind::TimedOut { begun: true });
    drop(holds);
    assert_eq!(pools[0].shutdown(LIMIT)?, PoolEnd::Left);
    assert_eq!(drain(&pools[1])?, [7]);
    Ok(())
}

#[test]
fn misuse_has_its_error() -> Result {
    let group = Group::new(1)?;
    let pool = group.pool(0, Strategy::Directory)?;
    let large = pool.add(&vec![0; 2 << 20], LIMIT).unwrap_err();
    assert_eq!(large.kind, PoolErrorKind::LargeElement { bytes: 2 << 20 });
    assert!(large.to_string().starts_with("pool /pool: an element has at most 1044480 bytes"), "{large}");
    pool.add(&[1; 100], LIMIT)?;
    let too_large = pool.get_at_most(99, LIMIT).unwrap_err();
    assert_eq!(too_large.kind, PoolErrorKind::TooLarge { bytes: 100 });
    assert_eq!(pool.get_at_most(100, LIMIT)?, Some(vec![1; 100]));
    // Other attributes, and a name that is no pool.
    let other = group.pool(0, Strategy::Distributed).unwrap_err();
    assert!(other.to_string().contains("pool /pool: the name is taken, or has other options"), "{other}");
    let service = |_: squall_fleet::ServiceCall<'_>| None;
    group.nodes[0].serve(&"/s".parse()?, &group.root, squall_fleet::NameOptions::new(), service)?;
    let other = DistributedPool::join(&group.nodes[0], &"/s".parse()?, &group.root, Attributes::default())
        .unwrap_err();
    assert!(matches!(other.kind, PoolErrorKind::NotJoined(_)), "{other}");
    Ok(())
}

#[test]
fn several_members_of_one_node_and_several_pools_of_a_group() -> Result {
    let group = Group::new(1)?;
    let pools: Vec<DistributedPool> =
        (0..4).map(|_| group.pool(0, Strategy::EstimatedPush)).collect::<Result<_>>()?;
    let other =
        DistributedPool::join(&group.nodes[0], &"/other".parse()?, &group.root, Attributes::default())?;
    assert_eq!(pools[0].locations().len(), 4);
    assert_eq!(pools[0].locations()[3], pools[3].location().expect("a member"));
    pools[0].set_locality(pools[3].location().unwrap(), pools[0].location().unwrap(), 1);
    pools[0].add(&token(1), LIMIT)?;
    other.add(&token(2), LIMIT)?;
    assert_eq!(drain(&pools[3])?, [1]);
    assert_eq!(drain(&other)?, [2]);
    assert!(pools[3].counts().demand_transfers > 0);
    Ok(())
}

/// Returns the entries of a pool in the list of this process.
fn listed(name: &Name) -> Vec<PoolInfo> {
    pools().into_iter().filter(|info| info.name == *name).collect()
}

/// Looks until the list is as expected: on a loaded machine a node may have no lease for a while.
fn wait_for(name: &Name, is_expected: impl Fn(&[PoolInfo]) -> bool) -> Vec<PoolInfo> {
    loop {
        let found = listed(name);
        if is_expected(&found) {
            return found;
        }
        std::thread::yield_now();
    }
}

#[test]
fn members_are_listed_with_their_figures_until_they_leave_or_end() -> Result {
    let mut group = Group::new(3)?;
    let name: Name = "/listed".parse()?;
    assert_eq!(listed(&name), []);
    let join =
        |node: usize| DistributedPool::join(&group.nodes[node], &name, &group.root, Attributes::default());
    let members = [join(0)?, join(1)?, join(2)?];
    (0..3).try_for_each(|at| members[0].add(&token(at), LIMIT))?;
    let found = wait_for(&name, |found| {
        let serve = found.iter().all(|info| info.state == PoolState::Serving && info.locations.len() == 3);
        serve && found.len() == 3 && found[0].len_here == 3
    });
    assert!(found[0].number < found[1].number && found[1].number < found[2].number);
    for (info, (member, node)) in found.iter().zip(members.iter().zip(&group.nodes)) {
        assert_eq!((info.strategy, info.untaken, info.has_heir), (Strategy::Directory, 0, false));
        assert!(info.node == Some(node.id()) || member.location() != info.location, "{info:?}");
        assert!(info.location.is_some_and(|mine| info.locations.contains(&mine)), "{info:?}");
    }
    assert!(found[0].counts.operations >= 3 && found[0].counts.messages > 0, "{:?}", found[0]);

    // A future of a get holds an element.
    let held = members[0].get_async();
    wait_for(&name, |found| found[0].untaken == 1);
    drop(held);
    wait_for(&name, |found| found[0].untaken == 0 && found[0].len_here == 3);

    // Without a lease, operations wait.
    group.cut.lock().unwrap().insert(group.nodes[2].endpoint());
    wait_for(&name, |found| matches!(found[2].state, PoolState::NoLease | PoolState::Joining));
    let waits = members[2].add_async(&token(3));
    assert!(listed(&name)[2].open_operations > 0);
    drop(waits);
    group.cut.lock().unwrap().clear();
    wait_for(&name, |found| found[2].state == PoolState::Serving && found[2].open_operations == 0);

    // A member that has left is not listed, although the program has a handle. One without a handle is.
    let [first, second, third] = members;
    assert_eq!(second.shutdown(LIMIT)?, PoolEnd::Left);
    drop(third);
    let numbers: Vec<u64> = listed(&name).iter().map(|info| info.number).collect();
    assert_eq!(numbers, [found[0].number, found[2].number]);
    drop(group.nodes.pop());
    let numbers: Vec<u64> = listed(&name).iter().map(|info| info.number).collect();
    assert_eq!(numbers, [found[0].number]);
    drop(first);
    drop(group);
    assert_eq!(listed(&name), []);
    Ok(())
}

#[test]
fn a_listed_member_tells_whether_it_has_an_heir() -> Result {
    let group = Group::new(2)?;
    let _members = group.replicated(Strategy::Directory)?;
    let has_heir = |node: &Node| {
        pools().iter().any(|info| info.node == Some(node.id()) && info.name == name() && info.has_heir)
    };
    while !group.nodes.iter().all(has_heir) {
        std::thread::yield_now();
    }
    Ok(())
}
