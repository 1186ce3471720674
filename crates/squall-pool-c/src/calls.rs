//! The calls of C programs, once their arguments are checked: handles, nodes and pools.
//!
//! Idea: the thesis passes the mailbox of the first server and an object number to further servers. Here the
//! name of a pool stands for the mailbox, and the key of a claim on that name for the number.
//!
//! - I1. A pool `/x` has the roster `/x/pool`, below a claim of its creator on `/x`. So a name has one
//!   creator, and a facade needs the key.
//! - I2. The claim ends after the last facade has shut down. Its key finds no pool from then on. The group
//!   refuses to end it while a facade is there, also one that came a moment ago.

use crate::failure::Failure;
use crate::ffi::{POOL_KEY_BYTES, PoolLocation, SquallCode};
use crate::table::{self, Handle};
use pool::{Attributes, DistributedPool, PoolEnd, PoolErrorKind};
use squall_fleet::{GroupKey, HostTransport, Name, NameCapability, Node, NodeBuilder, Refusal, RequestError};
use squall_sys::sync::atomic::AtomicU8;
use squall_sys::sync::atomic::AtomicU64;
use squall_sys::sync::atomic::Ordering::Relaxed;
use squall_sys::sync::{Mutex, StdArc as Arc, lock};
use std::time::Duration;

/// The time of a call, unless the program sets another one.
const LIMIT: Duration = Duration::from_secs(30);
/// The most bytes of the name of a `HostTransport`.
const HOST_NAME_BYTES_MAX: usize = 80;
/// The last part of the name of a pool's roster (I1).
const ROSTER: &str = "/pool";
/// The first bytes of a location.
const MARK: [u8; 8] = *b"squallPL";

/// A node that a C program has.
pub(crate) struct NodeHandle {
    node: Node,
    /// The right to names, for pools of this node.
    right: Mutex<Option<NameCapability>>,
}

/// The bytes of a location, in memory that a C program may write.
type Given = Arc<[AtomicU8; 64]>;

/// A pool's member that a C program has.
pub(crate) struct PoolHandle {
    pool: DistributedPool,
    /// The claim on the pool's name (I1).
    claim: NameCapability,
    pub(crate) node: Handle,
    limit_ms: AtomicU64,
    /// The locations that the program has got, by their numbers.
    given: Mutex<Vec<(u64, Given)>>,
}

impl PoolHandle {
    fn limit(&self) -> Duration {
        // Relaxed: the number alone.
        Duration::from_millis(self.limit_ms.load(Relaxed))
    }
}

fn group_key(text: &str) -> Result<GroupKey, Failure> {
    text.parse().map_err(|error| Failure::argument(format!("the key of the group: {error}")))
}

/// Makes a key for a group.
pub(crate) fn new_group_key() -> String {
    GroupKey::random().to_string()
}

fn io_failure(host_name: &str, error: &std::io::Error) -> Failure {
    let code = match error.kind() {
        std::io::ErrorKind::InvalidInput => SquallCode::Argument,
        std::io::ErrorKind::AddrInUse => SquallCode::Refused,
        _ => SquallCode::System,
    };
    Failure::new(code, format!("node {host_name:?}: {error}"))
}

/// Checks the host name of another node, so that no time is lost with a name that no node can have.
fn check_seed(seed: &str) -> Result<(), Failure> {
    let is_name = (1..=HOST_NAME_BYTES_MAX).contains(&seed.len()) && !seed.chars().any(char::is_control);
    is_name.then_some(()).ok_or_else(|| {
        let text = format!(
            "the seed {seed:?} is no host name; it has 1 to {HOST_NAME_BYTES_MAX} bytes, and no control characters"
        );
        Failure::argument(text)
    })
}

/// Makes a group of one node.
pub(crate) fn found(host_name: &str, key: &str) -> Result<Handle, Failure> {
    table::check()?;
    let builder = NodeBuilder::new(group_key(key)?);
    let failed = |error| io_failure(host_name, &error);
    let (node, right) =
        builder.found(HostTransport::bind(host_name).map_err(failed)?, &[]).map_err(failed)?;
    table::add_node(NodeHandle { node, right: Mutex::new(Some(right)) })
}

/// Joins the group of a node of this machine.
pub(crate) fn join(host_name: Option<&str>, key: &str, seed: &str) -> Result<Handle, Failure> {
    table::check()?;
    let builder = NodeBuilder::new(group_key(key)?);
    check_seed(seed)?;
    let transport = host_name.map_or_else(HostTransport::unnamed, HostTransport::bind);
    let failed = |error| io_failure(host_name.unwrap_or_default(), &error);
    let node = builder.join(transport.map_err(failed)?, &[&format!("host/{seed}")]).map_err(failed)?;
    node.wait_joined(LIMIT).map_err(|_| {
        let text = format!(
            "no group let the node in within 30 s; look whether node {seed:?} lives, and has this key of the group"
        );
        Failure::new(SquallCode::TimedOut, text)
    })?;
    table::add_node(NodeHandle { node, right: Mutex::new(None) })
}

/// Returns the text of a node's right to names.
pub(crate) fn right(node: Handle) -> Result<String, Failure> {
    let node = table::node(node)?;
    let right = lock(&node.right, "the right of a node").clone();
    right.map(|right| right.to_string()).ok_or_else(no_right)
}

fn no_right() -> Failure {
    let text = "the node has no right to names; give it that of the first node with squallNodeTakeRight";
    Failure::new(SquallCode::Refused, text)
}

/// Gives a node a right to names.
pub(crate) fn take_right(node: Handle, right: &str) -> Result<(), Failure> {
    let node = table::node(node)?;
    let right = right.parse().map_err(|error| Failure::argument(format!("the right: {error}")))?;
    *lock(&node.right, "the right of a node") = Some(right);
    Ok(())
}

/// Leaves the group. Then the handles of the node and of its pools end.
pub(crate) fn leave(handle: Handle) -> Result<(), Failure> {
    let node = table::node(handle)?;
    node.node.leave(LIMIT).map_err(|error| {
        let text = "the time is over, and the node goes on leaving; call again, or free the node";
        match error {
            RequestError::TimedOut => Failure::new(SquallCode::TimedOut, text),
            error => Failure::request("the node", error),
        }
    })?;
    // Without this reference, the node ends with the call of the last other thread that uses it.
    drop(node);
    table::remove_node(handle)
}

fn name(text: &str) -> Result<Name, Failure> {
    text.parse().map_err(|error| Failure::argument(format!("the name of the pool: {error}")))
}

fn roster(name: &Name) -> Result<Name, Failure> {
    format!("{name}{ROSTER}")
        .parse()
        .map_err(|error| Failure::argument(format!("the name of the pool: {error}")))
}

fn add_pool(node: Handle, pool: DistributedPool, claim: NameCapability) -> Result<Handle, Failure> {
    let limit_ms = AtomicU64::new(LIMIT.as_millis() as u64);
    let given = Mutex::new(Vec::new());
    table::add_pool(PoolHandle { pool, claim, node, limit_ms, given })
}

/// Makes a pool, with its first facade.
pub(crate) fn create(handle: Handle, text: &str, attributes: Attributes) -> Result<Handle, Failure> {
    let node = table::node(handle)?;
    let name = name(text)?;
    let roster = roster(&name)?;
    let right = lock(&node.right, "the right of a node").clone().ok_or_else(no_right)?;
    let claim = node.node.reserve(&name, &right).map_err(|error| match error {
        RequestError::Refused(Refusal::NameClash) => {
            let text = format!("pool {name} exists; join it with poolInitFacade, or take another name");
            Failure::new(SquallCode::Refused, text)
        }
        error => Failure::request(format_args!("pool {name}"), error),
    })?;
    let joined = DistributedPool::join(&node.node, &roster, &claim, attributes);
    let made = joined.map_err(Failure::from).and_then(|pool| add_pool(handle, pool, claim.clone()));
    if made.is_err() {
        // Without it, the name would stay taken. The first error is the one to tell.
        _ = node.node.end_reservation(&claim);
    }
    made
}

/// Makes a further facade of a pool.
pub(crate) fn init_facade(
    handle: Handle,
    text: &str,
    key: &str,
    attributes: Attributes,
) -> Result<Handle, Failure> {
    let node = table::node(handle)?;
    let name = name(text)?;
    let roster = roster(&name)?;
    let is_key = key.len() == POOL_KEY_BYTES - 1 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    let claim = Some(format!("{key}{name}")).filter(|_| is_key).and_then(|text| text.parse().ok());
    let claim: NameCapability = claim.ok_or_else(|| {
        Failure::argument("the key of a pool is 32 hexadecimal digits, as poolKey gives it")
    })?;
    let joined = DistributedPool::join(&node.node, &roster, &claim, attributes);
    let pool = joined.map_err(|error| match error.kind {
        // The group does not tell a key that has ended from one that never was.
        PoolErrorKind::NotJoined(RequestError::Refused(Refusal::Forbidden)) => {
            let text = format!("pool {name} does not exist, or has another key; ask a facade for its key");
            Failure::new(SquallCode::Refused, text)
        }
        PoolErrorKind::NotJoined(RequestError::Refused(Refusal::NameClash)) => {
            let text = format!("pool {name} has other options; give those of its other facades");
            Failure::new(SquallCode::Refused, text)
        }
        _ => error.into(),
    })?;
    add_pool(handle, pool, claim)
}

/// Returns the text of a pool's key.
pub(crate) fn key(pool: Handle) -> Result<String, Failure> {
    let mut text = table::pool(pool)?.claim.to_string();
    text.truncate(POOL_KEY_BYTES - 1);
    Ok(text)
}

/// Sets the longest time of a pool's calls.
pub(crate) fn set_limit(pool: Handle, limit_ms: i32) -> Result<(), Failure> {
    let pool = table::pool(pool)?;
    let limit_ms = u64::try_from(limit_ms).map_err(|_| Failure::argument("the limit is negative"))?;
    // Relaxed: the number alone.
    pool.limit_ms.store(limit_ms, Relaxed);
    Ok(())
}

/// Adds an element.
pub(crate) fn add(pool: Handle, element: &[u8]) -> Result<(), Failure> {
    let pool = table::pool(pool)?;
    pool.pool.add(element, pool.limit()).map_err(|error| match error.kind {
        PoolErrorKind::TimedOut { begun: true } => Failure::new(SquallCode::Unknown, error.to_string()),
        _ => error.into(),
    })
}

/// Takes an element of at most `size` bytes.
pub(crate) fn get(pool: Handle, size: usize) -> Result<Vec<u8>, Failure> {
    let pool = table::pool(pool)?;
    let element = pool.pool.get_at_most(size, pool.limit())?;
    let name = || pool.claim.name();
    element.ok_or_else(|| Failure::new(SquallCode::Empty, format!("pool {} has no element", name())))
}

/// Estimates the number of elements.
pub(crate) fn size(pool: Handle) -> Result<u64, Failure> {
    let pool = table::pool(pool)?;
    Ok(pool.pool.size(pool.limit())?)
}

/// Finds the location of a facade, in memory that lives as long as its handle.
pub(crate) fn find_location(pool: Handle) -> Result<*mut PoolLocation, Failure> {
    let pool = table::pool(pool)?;
    let no_member = || {
        let text = format!("pool {}: this facade is in no pool now; call again later", pool.claim.name());
        Failure::new(SquallCode::Closed, text)
    };
    let number = pool.pool.location().ok_or_else(no_member)?.0;
    let mut given = lock(&pool.given, "the locations of a pool");
    let found = given.iter().find(|(of, _)| *of == number).map(|(_, given)| given.clone());
    let location = found.unwrap_or_else(|| {
        let bytes = encode(number);
        let fresh = Arc::new(std::array::from_fn(|at| AtomicU8::new(bytes[at])));
        given.push((number, fresh));
        given[given.len() - 1].1.clone()
    });
    // The list keeps the bytes at their place.
    Ok(Arc::as_ptr(&location).cast::<PoolLocation>().cast_mut())
}

fn encode(number: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&MARK);
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; 64]) -> Result<pool::PoolLocation, Failure> {
    let number = u64::from_le_bytes(std::array::from_fn(|at| bytes[8 + at]));
    let no_location = "a location has other bytes than poolFindLocation gave; copy all 64 of them";
    (*bytes == encode(number))
        .then_some(pool::PoolLocation(number))
        .ok_or_else(|| Failure::argument(no_location))
}

/// Tells one facade its distance to another one.
pub(crate) fn set_locality(pool: Handle, from: &[u8; 64], to: &[u8; 64], metric: i32) -> Result<(), Failure> {
    let pool = table::pool(pool)?;
    let distance = u32::try_from(metric).map_err(|_| Failure::argument("the distance is negative"))?;
    pool.pool.set_locality(decode(from)?, decode(to)?, distance);
    Ok(())
}

/// The end of a facade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Its elements are at other facades.
    Left,
    /// The facade was the last one, and the pool is gone.
    Last,
}

/// Shuts a facade down, and ends its handle.
///
/// A member without elements may leave before it learns that the others have left. So the directory tells
/// whether a member was the last one. If several leave at a time, those that end the claim say so.
pub(crate) fn shutdown(handle: Handle) -> Result<Shutdown, Failure> {
    let pool = table::pool(handle)?;
    let has_lost = matches!(pool.pool.shutdown(pool.limit())?, PoolEnd::LastLeft { .. });
    // Without its node, or out of the group, the facade has ended all the same.
    let node = table::node(pool.node);
    let has_ended = match &node {
        Ok(node) if has_lost || is_gone(&node.node, pool.pool.name()) => end_claim(&node.node, &pool.claim)?,
        _ => false,
    };
    table::remove_pool(handle)?;
    Ok(if has_lost || has_ended { Shutdown::Last } else { Shutdown::Left })
}

/// Returns whether a roster has no member left. The copy of the directory at a node has all that came before
/// the end of its own member.
fn is_gone(node: &Node, roster: &Name) -> bool {
    node.show(LIMIT).is_ok_and(|group| group.services.iter().all(|service| service.name != *roster))
}

/// Ends the claim of a pool without facades (I2). Returns false if another call did, if a facade has come
/// meanwhile, or if the node is out of the group. After a failure, the next call of the program tries it
/// again.
fn end_claim(node: &Node, claim: &NameCapability) -> Result<bool, Failure> {
    match node.end_reservation_if_unused(claim) {
        Ok(()) => Ok(true),
        Err(RequestError::TimedOut) => {
            let name = claim.name();
            let text =
                format!("pool {name} is gone, but no leader has freed its name within 30 s; call again");
            Err(Failure::new(SquallCode::TimedOut, text))
        }
        Err(_) => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The last facade of a pool has seen that no other one is left. Then a further facade comes.
    #[test]
    fn a_claim_does_not_end_under_a_facade_that_came_meanwhile() {
        let group = new_group_key();
        let host_name = format!("pool-c-claim-{}", std::process::id());
        let one = found(&host_name, &group).unwrap();
        let first = create(one, "/late", Attributes::default()).unwrap();
        let two = join(None, &group, &host_name).unwrap();
        let key = key(first).unwrap();
        let second = init_facade(two, "/late", &key, Attributes::default()).unwrap();
        let node = table::node(one).unwrap();
        let claim = table::pool(first).unwrap().claim.clone();
        assert!(!end_claim(&node.node, &claim).unwrap());
        // The key goes on, and the name is taken.
        assert_eq!(shutdown(first).unwrap(), Shutdown::Left);
        assert_eq!(create(one, "/late", Attributes::default()).unwrap_err().code, SquallCode::Refused);
        let third = init_facade(one, "/late", &key, Attributes::default()).unwrap();
        assert_eq!(shutdown(second).unwrap(), Shutdown::Left);
        assert_eq!(shutdown(third).unwrap(), Shutdown::Last);
        drop(node);
        for handle in [two, one] {
            leave(handle).unwrap();
        }
    }

    #[test]
    fn a_location_is_read_back_and_others_are_refused() {
        for number in [0, 1, u64::MAX] {
            assert_eq!(decode(&encode(number)).unwrap(), pool::PoolLocation(number));
        }
        for at in (0..8).chain(16..64) {
            let mut bytes = encode(7);
            bytes[at] ^= 1;
            assert_eq!(decode(&bytes).unwrap_err().code, SquallCode::Argument);
        }
    }
}
