//! Nodes and groups over real sockets. The nodes of the group are in this process.

use std::time::Duration;

use crate::common::{Program, alone};
use squall_browse::protocol::{GroupView, NodeView, RefusalKind};
use squall_browse::{Builder, Client, ClientError};
use squall_fleet::{
    GroupKey, LocalNetwork, Name, NameCapability, NameOptions, Node, NodeBuilder, ServiceCall, ShardService,
};

/// No test waits so long unless it fails.
const LONG: Duration = Duration::from_secs(60);
const SHARDS: u32 = 6;

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

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

struct Group {
    network: LocalNetwork,
    key: GroupKey,
    members: Vec<Node>,
    root: NameCapability,
}

impl Group {
    fn new(members: usize) -> Group {
        let (network, key) = (LocalNetwork::new(), GroupKey::random());
        let transport = network.bind("0").expect("free");
        let (first, root) = NodeBuilder::new(key).found(transport, &[]).expect("a node");
        let mut group = Group { network, key, members: vec![first], root };
        for number in 1..members {
            let transport = group.network.bind(&number.to_string()).expect("free");
            let node = NodeBuilder::new(key).join(transport, &["local/0"]).expect("a node");
            node.wait_joined(LONG).expect("joined");
            group.members.push(node);
        }
        group
    }
}

fn number_of(client: &mut Client, node: &Node) -> Option<u64> {
    view_of(client, node).map(|view| view.number)
}

fn view_of(client: &mut Client, node: &Node) -> Option<NodeView> {
    let id = node.id().to_string();
    client.nodes().expect("an answer").into_iter().find(|view| view.node == id)
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> String {
    match result {
        Err(ClientError::Refused(refusal)) if refusal.kind == RefusalKind::Refused => refusal.message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_are_listed_with_their_figures() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let group = Group::new(1);
    let visitor =
        NodeBuilder::new(group.key).visit(group.network.bind("visitor").expect("free"), &["local/0"]);
    let visitor = visitor.expect("a node");
    let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    group.members[0].serve(&name("/echo"), &group.root, NameOptions::new(), echo).expect("served");
    visitor.call(&name("/echo"), 0, b"abc", LONG).expect("a result");
    visitor.call(&name("/absent"), 0, b"abc", Duration::ZERO).expect_err("no service");

    let view = view_of(&mut client, &group.members[0]).expect("listed");
    assert_eq!((&*view.endpoint, &*view.figures.state), ("local/0", "member"));
    assert_eq!((view.figures.served, view.figures.granted, view.machine.len()), (1, 1, 16));
    let view = view_of(&mut client, &visitor).expect("listed");
    assert_eq!((&*view.endpoint, &*view.figures.state), ("local/visitor", "visitor"));
    assert_eq!((view.figures.calls.done, view.figures.calls.no_service), (1, 1));

    // A visitor shows the group, too.
    let shown = client.group(view.number).expect("an answer");
    assert_eq!((shown.members.len(), shown.names.len()), (1, 1));
    assert_eq!((&*shown.names[0].name, &shown.names[0].nodes[..]), ("/echo", &["local/0".to_owned()][..]));
    let number = view.number;
    drop(visitor);
    let why = refusal(client.group(number));
    assert!(why.contains(&format!("no node {number};")), "{why}");
    program.check();
}

#[test]
fn a_group_has_its_members_shards_and_ends_and_a_member_leaves() {
    let _alone = alone();
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let group = Group::new(3);
    for node in &group.members {
        node.serve_shards(&name("/fleet"), &group.root, SHARDS, Empty).expect("served");
    }
    let number = number_of(&mut client, &group.members[0]).expect("listed");
    let wait_for = |client: &mut Client, is_it: &dyn Fn(&GroupView) -> bool| loop {
        let view = client.group(number).expect("an answer");
        if is_it(&view) {
            return view;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    // Each member learns of a move at a time of its own.
    let settled = |view: &GroupView, members: usize| {
        let [name] = &view.names[..] else { return false };
        let share = SHARDS as usize / members;
        let has_share = |shards: u64| shards == share as u64;
        name.moves.is_empty()
            && (name.owners.len(), view.members.len()) == (members, members)
            && view.members.iter().all(|member| member.votes && member.number.is_some())
            && view
                .members
                .iter()
                .all(|member| member.figures.as_ref().is_some_and(|it| has_share(it.shards)))
    };
    let view = wait_for(&mut client, &|view| settled(view, 3));
    assert_eq!((view.names[0].shards, view.members.len()), (SHARDS as usize, 3));
    assert_eq!(view.names[0].owners.iter().map(|owner| owner.shards).collect::<Vec<_>>(), [2, 2, 2]);
    assert_eq!(view.members.iter().filter(|member| member.leader).count(), 1);

    let leaver = number_of(&mut client, &group.members[2]).expect("listed");
    while !client.leave(leaver).expect("an answer") {}
    let view = wait_for(&mut client, &|view| settled(view, 2));
    assert!(view.names[0].owners.iter().all(|owner| owner.shards == 3), "{view:?}");
    let first = view.members.iter().find(|member| member.number == Some(number)).expect("a member");
    let ends = &first.figures.as_ref().expect("figures").ends;
    assert_eq!((ends.len(), &*ends[0].endpoint, &*ends[0].reason), (1, "local/2", "left"));
    let log = client.actions().expect("an answer");
    let action = log.iter().find(|action| action.action == format!("let node {leaver} leave"));
    assert_eq!(action.map(|action| &*action.outcome), Some("done"), "{log:?}");
    assert_eq!(view_of(&mut client, &group.members[2]).expect("listed").figures.state, "left");
    assert!(refusal(client.group(leaver)).ends_with("has left its group"));
    let why = refusal(client.leave(u64::MAX));
    assert!(why.contains("\"nodes\" lists them"), "{why}");
}

#[test]
fn a_visitor_cannot_leave_and_without_members_tells_so() {
    let program = Program::new(Builder::new());
    let mut client = program.client();
    let network = LocalNetwork::new();
    let transport = network.bind("alone").expect("free");
    let visitor = NodeBuilder::new(GroupKey::random()).visit(transport, &["local/absent"]).expect("a node");
    let number = number_of(&mut client, &visitor).expect("listed");
    let why = refusal(client.leave(number));
    assert!(why.ends_with("(local/alone) is no member, so it cannot leave"), "{why}");
    let why = refusal(client.group(number));
    assert!(why.contains("(local/alone) within 500 ms; look whether one lives"), "{why}");
}
