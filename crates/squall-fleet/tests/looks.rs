//! Looks at nodes: the list of the nodes of a process, their figures, and directories over a lossy network.

mod common;

use common::{Group, LONG, name};
use squall_fleet::{
    EndReason, Fate, GroupKey, LocalNetwork, LocalTransport, MemberNumber, NameOptions, Node, NodeBuilder,
    NodeId, NodeInfo, NodeState, Receiver, Refusal, RequestError, Roster, RosterMember, Seat, ServiceCall,
    ShardService, Transport, nodes,
};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const SHARDS: u32 = 8;

fn ids(group: &Group) -> Vec<NodeId> {
    group.nodes.iter().map(Node::id).collect()
}

/// Returns the entry of a node in the list of this process.
fn listed(node: NodeId) -> Option<NodeInfo> {
    nodes().into_iter().find(|info| info.node == node)
}

/// Shards without a state.
struct Empty;

impl ShardService for Empty {
    fn create(&self, _: u32) {}

    fn import(&self, _: u32, _: &[u8]) {}

    fn export(&self, _: u32) -> Vec<u8> {
        Vec::new()
    }

    fn forget(&self, _: u32) {}

    fn call(&self, _: u32, _: ServiceCall<'_>) -> Option<Vec<u8>> {
        Some(Vec::new())
    }
}

/// A member of a roster without any work.
struct Quiet;

impl RosterMember for Quiet {
    fn changed(&self, _: &Seat, _: &Roster) {}

    fn vacated(&self, _: &Seat) {}

    fn removed(&self, _: &Seat) {}

    fn receive(&self, _: &Seat, _: MemberNumber, _: &[u8]) {}
}

/// A transport that loses its first frames.
struct Lossy {
    inner: LocalTransport,
    lost: Arc<AtomicUsize>,
    to_lose: usize,
}

impl Transport for Lossy {
    fn endpoint(&self) -> String {
        self.inner.endpoint()
    }

    fn largest_frame(&self) -> usize {
        self.inner.largest_frame()
    }

    fn start(&self, receiver: Receiver) -> io::Result<()> {
        self.inner.start(receiver)
    }

    fn send(&self, to: &str, frame: &[u8]) {
        if self.lost.load(SeqCst) < self.to_lose {
            self.lost.fetch_add(1, SeqCst);
        } else {
            self.inner.send(to, frame);
        }
    }

    fn stop(&self) {
        self.inner.stop();
    }
}

#[test]
fn a_lost_question_for_the_directory_is_asked_again() {
    let group = Group::new(1);
    let lost = Arc::new(AtomicUsize::new(0));
    let inner = group.network.bind("lossy").unwrap();
    let transport = Lossy { inner, lost: lost.clone(), to_lose: 3 };
    let visitor = NodeBuilder::new(group.key).visit(transport, &["local/0"]).unwrap();
    let shown = visitor.show(LONG).unwrap();
    assert_eq!((shown.members.len(), lost.load(SeqCst)), (1, 3));
    // The figures of its member, too.
    lost.store(0, SeqCst);
    assert_eq!(visitor.figures_of(&ids(&group), LONG).len(), 1);
    assert_eq!(lost.load(SeqCst), 3);
}

#[test]
fn a_roster_is_shown_with_its_members_and_the_epoch_of_their_last_change() {
    let group = Group::new(1);
    let node = &group.nodes[0];
    let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    node.serve(&name("/echo"), &group.root, NameOptions::new(), echo).unwrap();
    for members in 1..=3 {
        node.join_roster(&name("/roster"), &group.root, 7, Quiet).unwrap();
        let shown = node.show(LONG).unwrap();
        let found: Vec<_> =
            shown.services.iter().map(|it| (it.name.as_str(), it.roster_epoch, it.nodes.len())).collect();
        assert_eq!(found, [("/echo", None, 1), ("/roster", Some(members), members as usize)]);
    }
}

#[test]
fn a_question_without_an_answer_ends_with_its_time() {
    let network = LocalNetwork::new();
    let transport = network.bind("alone").unwrap();
    let visitor = NodeBuilder::new(GroupKey::random()).visit(transport, &["local/absent"]).unwrap();
    assert_eq!(visitor.show(Duration::ZERO), Err(RequestError::TimedOut));
    assert_eq!(visitor.show(Duration::from_millis(1)), Err(RequestError::TimedOut));
    let info = listed(visitor.id()).unwrap();
    assert_eq!(info.figures.state, NodeState::Visitor);
    let other = NodeBuilder::new(GroupKey::random()).visit(network.bind("other").unwrap(), &[]).unwrap();
    assert!(info.figures_of(&[other.id()], Duration::ZERO).is_empty());
    assert_eq!(info.leave(LONG), Err(RequestError::NoMember));
}

#[test]
fn a_node_is_listed_from_its_start_to_its_end() {
    let mut group = Group::new(2);
    let [first, second] = [listed(ids(&group)[0]).unwrap(), listed(ids(&group)[1]).unwrap()];
    assert!(first.number < second.number);
    assert_eq!((&*first.endpoint, &*second.endpoint), ("local/0", "local/1"));
    assert_eq!(second.figures.state, NodeState::Member);
    assert!(second.figures.term >= 1 && second.figures.joined >= 1, "{second:?}");
    assert_eq!(second.show(LONG).unwrap().members.len(), 2);
    let visitor = group.visitor("visitor");
    assert!(listed(visitor.id()).is_some_and(|info| info.figures.state == NodeState::Visitor));
    drop((group.nodes.pop(), visitor));
    assert!(listed(second.node).is_none());
    assert_eq!(second.show(LONG), Err(RequestError::NoMember));
    assert_eq!(second.leave(LONG), Err(RequestError::NoMember));
}

#[test]
fn a_leader_alone_has_a_lease() {
    let group = Group::new(1);
    // It leads once the first change of its term is committed.
    while group.nodes[0].figures().lease_left.is_zero() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(group.nodes[0].figures().leader, Some(ids(&group)[0]));
}

#[test]
fn a_listed_member_leaves_in_two_phases_and_keeps_its_entry() {
    let group = Group::new(3);
    for node in &group.nodes {
        node.serve_shards(&name("/fleet"), &group.root, SHARDS, Empty).unwrap();
    }
    // Before, its leave would move no shard.
    while group.nodes[2].figures().imported == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let ids = ids(&group);
    let last = listed(ids[2]).unwrap();
    last.leave(LONG).unwrap();
    // Its number may be another one: a node that was removed begins again.
    let left = nodes().into_iter().find(|info| info.number == last.number);
    assert_eq!(left.map(|info| info.figures.state), Some(NodeState::Left));
    // A second leave has no effect.
    last.leave(LONG).unwrap();
    let ends = |node: &Node| -> Vec<(NodeId, EndReason)> {
        node.figures().ends.iter().map(|end| (end.node, end.reason)).collect()
    };
    while group.nodes[..2].iter().any(|node| ends(node).is_empty()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(group.nodes[..2].iter().all(|node| ends(node) == [(ids[2], EndReason::Left)]));
    let imported: u64 = group.nodes[..2].iter().map(|node| node.figures().imported).sum();
    assert!(imported > 0, "its shards moved to the others");
}

#[test]
fn figures_count_calls_by_their_ends_and_requests() {
    let mut group = Group::new(3);
    let visitor = group.visitor("visitor");
    let echo = |call: ServiceCall<'_>| (call.method != 9).then(|| call.body.to_vec());
    let echo = group.nodes[1].serve(&name("/echo"), &group.root, NameOptions::new(), echo).unwrap();
    let refused = group.nodes[0].reserve(&name("/other"), &echo);
    assert_eq!(refused, Err(RequestError::Refused(Refusal::NotBelow)));
    for _ in 0..3 {
        visitor.call(&name("/echo"), 0, b"abc", LONG).unwrap();
    }
    assert_eq!(visitor.call(&name("/echo"), 9, b"abc", LONG).unwrap_err().fate, Fate::Dropped);
    let absent = visitor.call(&name("/absent"), 0, b"abc", Duration::from_millis(1));
    assert_eq!(absent.unwrap_err().fate, Fate::NoService);
    let calls = visitor.figures().calls;
    assert_eq!((calls.done, calls.dropped, calls.no_service, calls.total()), (3, 1, 1, 5));
    assert_eq!(visitor.figures().open_calls, 0);

    // Each node tells its own figures, and those of the others are asked for.
    let ids = ids(&group);
    visitor.show(LONG).unwrap();
    for asking in [&visitor, &group.nodes[0], &group.nodes[1]] {
        let figures = asking.figures_of(&ids, LONG);
        assert_eq!(figures.keys().copied().collect::<Vec<_>>(), sorted(&ids));
        let (first, second) = (&figures[&ids[0]], &figures[&ids[1]]);
        assert_eq!((first.granted, first.refused), (0, 1));
        assert_eq!((second.granted, second.refused), (1, 0));
        assert_eq!((second.served, second.running, second.sessions), (4, 0, 1));
    }

    // A node that is dropped dies for its group. This transport does not tell of deaths.
    drop(group.nodes.pop());
    while group.nodes[0].figures().ends.is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let end = &group.nodes[0].figures().ends[0];
    assert_eq!((end.node, &*end.endpoint), (ids[2], "local/2"));
    assert_ne!(end.reason, EndReason::Left);
    assert!(visitor.figures_of(&ids[2..], Duration::ZERO).is_empty());
}

fn sorted(ids: &[NodeId]) -> Vec<NodeId> {
    let mut ids = ids.to_vec();
    ids.sort_unstable();
    ids
}
