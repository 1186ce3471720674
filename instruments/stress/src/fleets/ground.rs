//! The ground of a group: the endpoints of its members, and the way into their hosts.

#[cfg(feature = "net")]
use std::sync::Arc;

use squall::fleet::{GroupKey, HostTransport, Node, NodeBuilder};

#[cfg(feature = "net")]
use super::hosts::network::Network;

/// The places of the members of a group.
#[derive(Clone, Debug)]
pub(crate) enum Ground {
    /// Processes of this machine. The names of all transports begin with this prefix.
    Machine(String),
    /// Processes in network namespaces, joined by TCP.
    #[cfg(feature = "net")]
    Hosts(Arc<Network>),
}

impl Ground {
    /// Returns the endpoint of a member.
    pub(crate) fn endpoint(&self, number: u32) -> String {
        match self {
            Ground::Machine(prefix) => format!("host/{prefix}-{number}"),
            #[cfg(feature = "net")]
            Ground::Hosts(network) => network.endpoint(number),
        }
    }

    /// Returns the words before the command of a member.
    pub(crate) fn entry(&self, number: u32) -> Vec<String> {
        let _ = number;
        match self {
            Ground::Machine(_) => Vec::new(),
            #[cfg(feature = "net")]
            Ground::Hosts(network) => network.entry(number),
        }
    }

    /// Makes a visitor of the group that has members at `seeds`.
    pub(super) fn visit(&self, key: GroupKey, seeds: &[String]) -> Result<Node, String> {
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        let builder = NodeBuilder::new(key);
        let visitor = match self {
            Ground::Machine(prefix) => HostTransport::bind(&format!("{prefix}-visitor"))
                .and_then(|bound| builder.visit(bound, &seeds)),
            #[cfg(feature = "net")]
            Ground::Hosts(network) => squall_net::Tcp::builder(network.own_address())
                .build()
                .and_then(|bound| builder.host(0).visit(bound, &seeds)),
        };
        visitor.map_err(|error| format!("there is no visitor: {error}"))
    }
}
