#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![doc = include_str!("../README.md")]

#[cfg_attr(loom, allow(dead_code))]
mod bell;
#[cfg_attr(loom, allow(dead_code))]
mod capability;
#[cfg_attr(loom, allow(dead_code))]
mod handover;
#[cfg_attr(loom, allow(dead_code))]
mod host;
#[cfg_attr(loom, allow(dead_code))]
mod lane;
#[cfg(not(loom))]
mod late;
#[cfg_attr(loom, allow(dead_code))]
mod link;
#[cfg_attr(not(all(target_os = "linux", not(miri), not(loom))), allow(dead_code))]
mod links;
#[cfg_attr(loom, allow(dead_code))]
mod post;
#[cfg_attr(loom, allow(dead_code))]
mod receiver;
mod sites;
#[cfg_attr(loom, allow(dead_code))]
mod stats;
#[cfg_attr(loom, allow(dead_code))]
mod tasks;
#[cfg_attr(loom, allow(dead_code))]
mod waiters;

#[cfg(not(loom))]
mod blocking;
#[cfg(not(loom))]
mod call;
#[cfg(not(loom))]
mod condition;
#[cfg(not(loom))]
mod context;
#[cfg(not(loom))]
mod control;
#[cfg(not(loom))]
mod defaults;
#[cfg(not(loom))]
mod dispatcher;
#[cfg(not(loom))]
mod envelope;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
mod inlet;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod link_call;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod link_port;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
mod link_stub;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
mod mailbox;
#[cfg(not(loom))]
mod methods;
#[cfg(all(test, any(loom, squall_model)))]
mod model;
#[cfg(not(loom))]
mod node;
#[cfg(not(loom))]
mod once;
mod patience;
#[cfg(not(loom))]
mod protocol;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod replies;
#[cfg(not(loom))]
mod request;
#[cfg(not(loom))]
mod retry;
#[cfg(not(loom))]
mod sender;
#[cfg(not(loom))]
#[cfg_attr(any(not(target_os = "linux"), miri), allow(dead_code))]
mod share;
#[cfg(not(loom))]
mod stations;
#[cfg(not(loom))]
mod stub;
#[cfg(not(loom))]
mod timers;
#[cfg(not(loom))]
mod transport;
#[cfg(not(loom))]
mod watch;

/// Parts for crates above this one. Not for programs.
#[doc(hidden)]
pub mod __parts {
    pub use crate::handover::{Giver, Taker, handover};
    #[cfg(not(loom))]
    pub use crate::node::{block_for, library_secret};
}

#[cfg(not(loom))]
pub use call::{CallFailed, Caller};
pub use capability::{Alias, Capability};
#[cfg(not(loom))]
pub use condition::Condition;
#[cfg(not(loom))]
pub use context::{Context, Sleep};
#[cfg(not(loom))]
pub use control::Control;
#[cfg(not(loom))]
pub use defaults::{ServerAddress, connect_default, remove_default, set_default};
#[cfg(not(loom))]
pub use dispatcher::Dispatcher;
#[cfg(not(loom))]
pub use error::{CapabilityError, SendError};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use host::HostTransport;
#[cfg(not(loom))]
pub use inlet::Inlet;
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use link::{
    Fault, Link, LinkError, LinkListener, LinkName, LinkOptions, LinkReceiver, LinkRequest, LinkSender,
    LinkWait, LinkWaitToSend,
};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use link_call::{LinkCallFailed, LinkServer};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use link_port::{LinkAdder, LinkPort, LinkRefused};
#[cfg(all(target_os = "linux", not(miri), not(loom)))]
pub use link_stub::connect_link;
#[cfg(not(loom))]
pub use local::{LocalNetwork, LocalTransport};
#[cfg(not(loom))]
pub use mailbox::{Capabilities, Mailbox, MailboxBuilder, Message, Wait};
#[cfg(not(loom))]
pub use methods::Methods;
#[cfg(not(loom))]
pub use node::{
    CallLost, ExportError, GroupInfo, GroupKey, Growth, GrowthAction, GrowthDecision, GrowthOptions,
    GrowthReason, MemberInfo, MemberNumber, NameOptions, NamedSendError, NamedSender, NamedSending, Node,
    NodeBuilder, NodeImportError, NodeInfo, NodeLoad, RequestError, Roster, RosterMember, Seat, Service,
    ServiceCall, ServiceInfo, ShardInfo, ShardService, nodes,
};
#[cfg(not(loom))]
pub use protocol::{CallCounts, EndInfo, EndReason, NodeFigures, NodeState};
#[cfg(not(loom))]
pub use protocol::{Fate, Location, Name, NameAlias, NameCapability, NameError, NodeId, Refusal};
#[cfg(not(loom))]
pub use request::{Class, Request};
#[cfg(not(loom))]
pub use sender::{Sender, WaitToSend};
#[cfg(not(loom))]
pub use stats::DispatcherStats;
#[cfg(not(loom))]
pub use stub::{ConnectError, Server, StubOptions, connect};
#[cfg(not(loom))]
pub use transport::{Receive, Receiver, Transport};
#[cfg(not(loom))]
pub use watch::{LongSteps, Running};
