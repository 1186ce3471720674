//! A group of nodes over a network of one process.
#![allow(dead_code, reason = "each test file uses a part")]

use squall_fleet::{GroupKey, LocalNetwork, Name, NameCapability, Node, NodeBuilder};
use std::time::Duration;

/// No test waits so long unless it fails.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) struct Group {
    pub(crate) network: LocalNetwork,
    pub(crate) key: GroupKey,
    pub(crate) nodes: Vec<Node>,
    pub(crate) root: NameCapability,
}

impl Group {
    pub(crate) fn new(members: usize) -> Group {
        let (network, key) = (LocalNetwork::new(), GroupKey::random());
        let (first, root) = NodeBuilder::new(key).found(network.bind("0").unwrap(), &[]).unwrap();
        let mut group = Group { network, key, nodes: vec![first], root };
        (1..members).for_each(|_| group.add());
        group
    }

    pub(crate) fn add(&mut self) {
        let transport = self.network.bind(&self.nodes.len().to_string()).unwrap();
        let seeds = self.seeds();
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        let node = NodeBuilder::new(self.key).join(transport, &seeds).unwrap();
        node.wait_joined(LONG).unwrap();
        self.nodes.push(node);
    }

    pub(crate) fn seeds(&self) -> Vec<String> {
        self.nodes.iter().map(Node::endpoint).collect()
    }

    pub(crate) fn visitor(&self, name: &str) -> Node {
        let seeds = self.seeds();
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        NodeBuilder::new(self.key).visit(self.network.bind(name).unwrap(), &seeds).unwrap()
    }
}
