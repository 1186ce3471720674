//! Services of a node, as a program writes them.

use crate::NodeId;

/// A call, as a service sees it.
#[derive(Clone, Copy, Debug)]
pub struct ServiceCall<'a> {
    /// The calling node.
    pub client: NodeId,
    /// The number of the method.
    pub method: u64,
    /// The arguments.
    pub body: &'a [u8],
}

/// A service without shards. Its calls may run at the same time.
///
/// A closure is one, too.
pub trait Service: Send + Sync + 'static {
    /// Runs a call, and returns its result. Without a result, or by a panic, it drops the call: the client
    /// gets [`Fate::Dropped`](crate::Fate::Dropped).
    fn call(&self, call: ServiceCall<'_>) -> Option<Vec<u8>>;
}

impl<F: Fn(ServiceCall<'_>) -> Option<Vec<u8>> + Send + Sync + 'static> Service for F {
    fn call(&self, call: ServiceCall<'_>) -> Option<Vec<u8>> {
        self(call)
    }
}

/// A service with state in shards. Each shard is on one member of the fleet at a time.
///
/// The functions of one shard run one after the other, those of different shards at the same time.
///
/// Source: Wentzlaff 2012, §3.2.4 (FO-13): a leaving member moves its data first.
pub trait ShardService: Send + Sync + 'static {
    /// Begins with an empty shard: it is new, or its last owner died.
    fn create(&self, shard: u32);

    /// Begins with a shard that another member has exported.
    fn import(&self, shard: u32, state: &[u8]);

    /// Returns the state of a shard, for the member that takes it over. The shard may still go on here, if
    /// that member dies.
    fn export(&self, shard: u32) -> Vec<u8>;

    /// Forgets a shard: it has moved, or this node was removed from the group.
    fn forget(&self, shard: u32);

    /// Runs a call of a shard. Without a result, or by a panic, it drops the call.
    fn call(&self, shard: u32, call: ServiceCall<'_>) -> Option<Vec<u8>>;
}
