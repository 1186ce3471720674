//! Groups of nodes in one process, over a network that can be cut.

use squall_fleet::{GroupKey, LocalNetwork, LocalTransport, NameCapability, Node, NodeBuilder};
use squall_fleet::{Receiver, Transport};
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(crate) type Result<T = (), E = Box<dyn Error>> = std::result::Result<T, E>;

pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// The limit of a call that cannot end.
pub(crate) const SHORT: Duration = Duration::from_millis(100);

type Cut = Arc<Mutex<Option<String>>>;

/// A transport that loses the frames to a cut-off endpoint.
struct Cuttable {
    transport: LocalTransport,
    cut: Cut,
}

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
        if self.cut.lock().unwrap().as_deref() != Some(to) {
            self.transport.send(to, frame);
        }
    }

    fn stop(&self) {
        self.transport.stop();
    }
}

pub(crate) struct Group {
    network: LocalNetwork,
    cut: Cut,
    key: GroupKey,
    pub(crate) root: NameCapability,
    pub(crate) nodes: Vec<Node>,
    made: usize,
}

impl Group {
    pub(crate) fn new() -> Result<Group> {
        let (network, key) = (LocalNetwork::new(), GroupKey::random());
        let cut = Cut::default();
        let transport = Cuttable { transport: network.bind("0")?, cut: Arc::clone(&cut) };
        let (first, root) = NodeBuilder::new(key).found(transport, &[])?;
        Ok(Group { network, cut, key, root, nodes: vec![first], made: 1 })
    }

    fn bind(&mut self) -> Result<(Cuttable, Vec<String>)> {
        let transport = self.network.bind(&self.made.to_string())?;
        self.made += 1;
        let seeds = self.nodes.iter().map(Node::endpoint).collect();
        Ok((Cuttable { transport, cut: Arc::clone(&self.cut) }, seeds))
    }

    /// Adds a member.
    pub(crate) fn join(&mut self) -> Result<&Node> {
        let (transport, seeds) = self.bind()?;
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        let node = NodeBuilder::new(self.key).join(transport, &seeds)?;
        node.wait_joined(LIMIT)?;
        self.nodes.push(node);
        Ok(self.nodes.last().expect("a node was added"))
    }

    /// Makes a visitor, and returns its endpoint too.
    pub(crate) fn visit(&mut self) -> Result<(Node, String)> {
        let (transport, seeds) = self.bind()?;
        let (endpoint, seeds) = (transport.endpoint(), seeds.iter().map(String::as_str).collect::<Vec<_>>());
        Ok((NodeBuilder::new(self.key).visit(transport, &seeds)?, endpoint))
    }

    /// Loses all frames to an endpoint from now on, or to none.
    pub(crate) fn cut(&self, endpoint: Option<&String>) {
        *self.cut.lock().unwrap() = endpoint.cloned();
    }
}
