//! Nodes of a group over a network of one process.

mod common;

use common::{Group, LONG, name};
use squall_call::with_deadline;
use squall_core::{CallErrorKind, Transport, shared};
use squall_fleet::{
    Fate, GroupKey, LocalTransport, Name, NameCapability, NameOptions, Node, NodeBuilder, Receiver, Refusal,
    RequestError, ServiceCall, ShardService,
};
use squall_macros::interface;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak, mpsc};
use std::time::Duration;

/// The hidden modules of the façade.
mod facade {
    pub(crate) use squall_core::__macro;
    pub(crate) mod call {
        pub(crate) use squall_call::__macro;
    }
}

/// A counter in each shard.
#[derive(Clone, Default)]
struct Counters {
    shards: Arc<Mutex<HashMap<u32, u64>>>,
    created: Arc<AtomicU64>,
    imported: Arc<AtomicU64>,
}

impl ShardService for Counters {
    fn create(&self, shard: u32) {
        self.created.fetch_add(1, SeqCst);
        assert!(self.shards.lock().unwrap().insert(shard, 0).is_none());
    }

    fn import(&self, shard: u32, state: &[u8]) {
        self.imported.fetch_add(1, SeqCst);
        let count = u64::from_le_bytes(state.try_into().unwrap());
        assert!(self.shards.lock().unwrap().insert(shard, count).is_none());
    }

    fn export(&self, shard: u32) -> Vec<u8> {
        self.shards.lock().unwrap()[&shard].to_le_bytes().to_vec()
    }

    fn forget(&self, shard: u32) {
        assert!(self.shards.lock().unwrap().remove(&shard).is_some());
    }

    fn call(&self, shard: u32, call: ServiceCall<'_>) -> Option<Vec<u8>> {
        let mut shards = self.shards.lock().unwrap();
        let count = shards.get_mut(&shard)?;
        *count += call.method;
        Some(count.to_le_bytes().to_vec())
    }
}

fn count(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().unwrap())
}

#[test]
fn a_name_is_called_from_every_node() {
    let group = Group::new(3);
    let echo = |call: ServiceCall<'_>| Some([call.body, &call.method.to_le_bytes()].concat());
    group.nodes[1].serve(&name("/echo"), &group.root, NameOptions::new(), echo).unwrap();
    let visitor = group.visitor("visitor");
    for node in group.nodes.iter().chain([&visitor]) {
        assert_eq!(node.call(&name("/echo"), 7, b"abc", LONG).unwrap(), b"abc\x07\0\0\0\0\0\0\0");
    }
    let shown = visitor.show(LONG).unwrap();
    assert_eq!((shown.members.len(), shown.services.len()), (3, 1));
    assert_eq!(shown.services[0].nodes, [group.nodes[1].id()]);
}

#[test]
fn a_service_in_place_runs_on_the_thread_that_received_the_call() {
    let group = Group::new(1);
    let node = &group.nodes[0];
    // Returns the name of its thread. Panics by another method.
    let service = |call: ServiceCall<'_>| {
        assert_eq!(call.method, 0, "as planned");
        Some(std::thread::current().name()?.as_bytes().to_vec())
    };
    let in_place = NameOptions::new().in_place();
    node.serve(&name("/worker"), &group.root, NameOptions::new(), service).unwrap();
    node.serve(&name("/here"), &group.root, in_place, service).unwrap();
    let visitor = group.visitor("visitor");
    let worker = visitor.call(&name("/worker"), 0, b"", LONG).unwrap();
    assert_eq!(worker, b"squall-fleet");
    for _ in 0..3 {
        assert_ne!(visitor.call(&name("/here"), 0, b"", LONG).unwrap(), worker);
        // A panic ends the call alone.
        assert_eq!(visitor.call(&name("/here"), 1, b"", LONG).unwrap_err().fate, Fate::Dropped);
    }
    // A caller on the node may hold a lock that the service takes, so a worker runs its call.
    assert_eq!(node.call(&name("/here"), 0, b"", LONG).unwrap(), worker);
    assert!(node.is_member());
}

#[test]
fn a_visitor_outlives_its_seeds() {
    let mut group = Group::new(3);
    let visitor = group.visitor("visitor");
    group.add();
    let last = group.nodes.last().unwrap().id();
    // It learns of the members that came later.
    while visitor.show(LONG).unwrap().members.iter().all(|member| member.node != last) {}
    for node in group.nodes.drain(..3) {
        node.leave(LONG).unwrap();
    }
    let shown = visitor.show(LONG).unwrap();
    assert!(shown.members.iter().any(|member| member.node == last), "{shown:?}");
    let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    group.nodes[0].serve(&name("/echo"), &group.root, NameOptions::new(), echo).unwrap();
    assert_eq!(visitor.call(&name("/echo"), 0, b"abc", LONG).unwrap(), b"abc");
}

#[test]
fn capabilities_rule_over_names() {
    let group = Group::new(1);
    let node = &group.nodes[0];
    let service = |_: ServiceCall<'_>| Some(Vec::new());
    let serve =
        |text: &str, parent: &NameCapability| node.serve(&name(text), parent, NameOptions::new(), service);
    let refused = |refusal| RequestError::Refused(refusal);
    let system = node.reserve(&name("/sys"), &group.root).unwrap();
    // The root's capability does not reach below a claim.
    assert_eq!(serve("/sys/fs", &group.root).unwrap_err(), refused(Refusal::Forbidden));
    let files = serve("/sys/fs", &system).unwrap();
    let block = serve("/sys/fs/block", &files).unwrap();
    assert_eq!(serve("/other", &system).unwrap_err(), refused(Refusal::NotBelow));
    assert_eq!(serve("/sys/fs", &system).unwrap_err(), refused(Refusal::NameClash));
    let forged: NameCapability = format!("{:032x}/sys", 5).parse().unwrap();
    assert_eq!(serve("/sys/net", &forged).unwrap_err(), refused(Refusal::Forbidden));
    assert_eq!(node.end_service(&forged).unwrap_err(), refused(Refusal::NoSuchName));
    node.end_service(&block).unwrap();
    // The name is gone, and so is the right to longer ones.
    assert_eq!(serve("/sys/fs/block/one", &block).unwrap_err(), refused(Refusal::Forbidden));
    node.end_reservation(&system).unwrap();
    serve("/sys/net", &group.root).unwrap();
}

#[test]
fn several_holders_of_a_claim_end_one_by_one() {
    let group = Group::new(1);
    let node = &group.nodes[0];
    let service = |_: ServiceCall<'_>| Some(Vec::new());
    let serve =
        |text: &str, parent: &NameCapability| node.serve(&name(text), parent, NameOptions::new(), service);
    let refused = |refusal| RequestError::Refused(refusal);
    let holders = [0, 1].map(|_| node.reserve_several(&name("/sys"), &group.root).unwrap());
    assert_ne!(holders[0], holders[1]);
    assert_eq!(node.reserve(&name("/sys"), &group.root).unwrap_err(), refused(Refusal::NameClash));
    serve("/sys/a", &holders[0]).unwrap();
    serve("/sys/b", &holders[1]).unwrap();
    node.end_reservation(&holders[0]).unwrap();
    assert_eq!(serve("/sys/c", &holders[0]).unwrap_err(), refused(Refusal::Forbidden));
    assert_eq!(serve("/sys/c", &group.root).unwrap_err(), refused(Refusal::Forbidden));
    serve("/sys/c", &holders[1]).unwrap();
    node.end_reservation(&holders[1]).unwrap();
    serve("/sys/d", &group.root).unwrap();
}

/// Calls the shard that the first byte names, from inside a call. Returns 1 and the result, or 0 if the call
/// is one of the shard itself.
struct Nested {
    node: Weak<Node>,
    fleet: Name,
}

impl ShardService for Nested {
    fn create(&self, _shard: u32) {}

    fn import(&self, _shard: u32, _state: &[u8]) {}

    fn export(&self, _shard: u32) -> Vec<u8> {
        Vec::new()
    }

    fn forget(&self, _shard: u32) {}

    fn call(&self, shard: u32, call: ServiceCall<'_>) -> Option<Vec<u8>> {
        let Some(next) = call.body.first() else { return Some(vec![u8::try_from(shard).unwrap()]) };
        let node = self.node.upgrade()?;
        match node.call_shard(&self.fleet, u32::from(*next), 0, b"", LONG) {
            Ok(result) => Some([vec![1], result].concat()),
            Err(lost) if lost.fate == Fate::OwnShard => Some(vec![0]),
            Err(_) => None,
        }
    }
}

#[test]
fn a_shard_that_calls_itself_is_told_so_and_may_call_others() {
    let mut group = Group::new(1);
    let fleet = name("/nested");
    let node = Arc::new(group.nodes.remove(0));
    let nested = Nested { node: Arc::downgrade(&node), fleet: fleet.clone() };
    node.serve_shards(&fleet, &group.root, 2, nested).unwrap();
    assert_eq!(node.call_shard(&fleet, 0, 0, &[0], LONG).unwrap(), [0]);
    assert_eq!(node.call_shard(&fleet, 0, 0, &[1], LONG).unwrap(), [1, 1]);
    assert_eq!(node.call_shard(&fleet, 1, 0, &[0], LONG).unwrap(), [1, 0]);
    // The shard goes on.
    assert_eq!(node.call_shard(&fleet, 0, 0, b"", LONG).unwrap(), [0]);
}

#[test]
fn a_fleet_grows_and_shrinks_while_clients_call() {
    const SHARDS: u32 = 8;
    let mut group = Group::new(1);
    let (fleet, services) = (name("/counters"), Counters::default());
    group.nodes[0].serve_shards(&fleet, &group.root, SHARDS, services.clone()).unwrap();
    let visitor = group.visitor("visitor");
    let sent: Vec<AtomicU64> = (0..SHARDS).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|threads| {
        let (stop, stopped) = mpsc::channel::<()>();
        let (visitor, sent, fleet) = (&visitor, &sent, &fleet);
        threads.spawn(move || {
            let mut shard = 0;
            while stopped.try_recv() == Err(mpsc::TryRecvError::Empty) {
                let reply = visitor.call_shard(fleet, shard, 1, b"", LONG).unwrap();
                let before = sent[shard as usize].fetch_add(1, SeqCst);
                assert_eq!(count(&reply), before + 1);
                shard = (shard + 1) % SHARDS;
            }
        });
        for _ in 0..2 {
            group.add();
            let node = group.nodes.last().unwrap();
            // Each member has a state of its own.
            node.serve_shards(fleet, &group.root, SHARDS, Counters::default()).unwrap();
        }
        // The shards are shared evenly in the end.
        loop {
            let shown = group.nodes[0].show(LONG).unwrap();
            let shards = &shown.services[0].shards;
            let owned = |node: &Node| shards.iter().filter(|shard| shard.owner == Some(node.id())).count();
            let counts: Vec<usize> = group.nodes.iter().map(owned).collect();
            if shards.iter().all(|shard| shard.target.is_none()) && counts.iter().all(|count| *count >= 2) {
                break;
            }
            std::thread::yield_now();
        }
        group.nodes.remove(0).leave(LONG).unwrap();
        stop.send(()).unwrap();
    });
    for shard in 0..SHARDS {
        let reply = visitor.call_shard(&fleet, shard, 0, b"", LONG).unwrap();
        assert_eq!(count(&reply), sent[shard as usize].load(SeqCst), "shard {shard}");
    }
    let shown = group.nodes[0].show(LONG).unwrap();
    assert!(shown.services[0].shards.iter().all(|shard| shard.born <= u64::from(SHARDS)), "{shown:?}");
}

#[test]
fn a_dead_member_loses_its_names_and_shards() {
    let mut group = Group::new(3);
    let fleet = name("/counters");
    for node in &group.nodes {
        node.serve_shards(&fleet, &group.root, 3, Counters::default()).unwrap();
    }
    let dead = group.nodes.remove(2);
    let id = dead.id();
    // As a death: the others are not told.
    drop(dead);
    loop {
        let shown = group.nodes[0].show(LONG).unwrap();
        if shown.members.iter().all(|member| member.node != id) {
            assert!(!shown.services[0].nodes.contains(&id));
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for shard in 0..3 {
        group.nodes[1].call_shard(&fleet, shard, 1, b"", LONG).unwrap();
    }
}

#[test]
fn calls_end_by_their_deadlines_and_tell_their_fates() {
    let group = Group::new(1);
    let node = &group.nodes[0];
    let lost = node.call(&name("/nobody"), 0, b"", Duration::from_millis(50)).unwrap_err();
    assert_eq!((lost.fate, lost.fate.may_have_run()), (Fate::NoService, false));
    let (begun, began) = mpsc::channel();
    let (open, gate) = mpsc::channel::<()>();
    let (begun, gate) = (Mutex::new(begun), Mutex::new(gate));
    let slow = move |call: ServiceCall<'_>| match call.method {
        0 => {
            begun.lock().unwrap().send(()).unwrap();
            gate.lock().unwrap().recv().unwrap();
            Some(Vec::new())
        }
        1 => None,
        2 => panic!("as planned"),
        _ => Some(vec![0; 2 << 20]),
    };
    node.serve(&name("/slow"), &group.root, NameOptions::new(), slow).unwrap();
    let call = |method, limit| node.call(&name("/slow"), method, b"", limit).map_err(|lost| lost.fate);
    assert_eq!(call(1, LONG), Err(Fate::Dropped));
    assert_eq!(call(2, LONG), Err(Fate::Dropped));
    assert_eq!(call(3, LONG), Err(Fate::NoResult));
    // The session is open by now, so the call is sent at once.
    assert_eq!(call(0, Duration::from_millis(50)), Err(Fate::TimedOut));
    began.recv().unwrap();
    open.send(()).unwrap();
    let large = vec![0; 2 << 20];
    assert_eq!(node.call(&name("/slow"), 0, &large, LONG).unwrap_err().fate, Fate::TooLarge);
}

#[test]
fn nodes_of_another_group_are_not_heard() {
    let group = Group::new(1);
    group.nodes[0].serve(&name("/a"), &group.root, NameOptions::new(), |_: ServiceCall<'_>| None).unwrap();
    let transport = group.network.bind("stranger").unwrap();
    let stranger = NodeBuilder::new(GroupKey::random()).join(transport, &["local/0"]).unwrap();
    assert_eq!(stranger.wait_joined(Duration::from_millis(300)), Err(RequestError::TimedOut));
    assert!(stranger.show(Duration::from_millis(50)).is_err());
    assert_eq!(group.nodes[0].show(LONG).unwrap().members.len(), 1);
}

#[interface(crate = crate::facade, remote)]
trait Stock: Send + Sync {
    fn add(&self, item: String, count: u64) -> u64;
    fn fail(&self);
}

#[derive(Default)]
struct Shelf(Mutex<HashMap<String, u64>>);

impl Stock for Shelf {
    fn add(&self, item: String, count: u64) -> u64 {
        let mut items = self.0.lock().unwrap();
        let entry = items.entry(item).or_default();
        *entry += count;
        *entry
    }

    fn fail(&self) {
        panic!("as planned");
    }
}

#[interface(crate = crate::facade, remote)]
trait Other: Send + Sync {
    fn add(&self, item: String) -> u64;
}

#[test]
fn an_object_is_called_from_another_node_like_one_of_its_own() {
    let group = Group::new(2);
    let stock = shared::<dyn Stock, _>(Shelf::default());
    let path = name("/shop/stock");
    group.nodes[1].serve_object(&path, &group.root, NameOptions::new(), stock.handle()).unwrap();
    let visitor = group.visitor("visitor");
    let imported = visitor.import::<dyn Stock>(&path, LONG).unwrap();
    // It is one object.
    assert_eq!(stock.add("bolt".into(), 2), 2);
    assert_eq!(imported.add("bolt".into(), 3), 5);
    let error = imported.try_fail().unwrap_err();
    assert_eq!(error.reason(), CallErrorKind::Transport(Transport::Panicked));
    let error = visitor.import::<dyn Other>(&path, LONG).unwrap_err();
    assert!(error.to_string().contains("/shop/stock serves another interface"), "{error}");
    let none = with_deadline(Duration::ZERO, || imported.try_add("bolt".into(), 1)).unwrap_err();
    assert!(!none.may_have_run(), "{none}");
}

#[test]
#[cfg(target_os = "linux")]
fn nodes_of_one_machine_join_over_links() {
    use squall_fleet::HostTransport;
    let unique = std::process::id();
    let bind = |index: u32| HostTransport::bind(&format!("squall-nodes-{unique}-{index}")).unwrap();
    let key = GroupKey::random();
    let (first, root) = NodeBuilder::new(key).found(bind(0), &[]).unwrap();
    let seed = first.endpoint();
    let second = NodeBuilder::new(key).join(bind(1), &[&seed]).unwrap();
    second.wait_joined(LONG).unwrap();
    second
        .serve(&name("/echo"), &root, NameOptions::new(), |call: ServiceCall<'_>| Some(call.body.to_vec()))
        .unwrap();
    let visitor = NodeBuilder::new(key).visit(HostTransport::unnamed().unwrap(), &[&seed]).unwrap();
    let large = vec![7; 900 << 10];
    assert_eq!(visitor.call(&name("/echo"), 0, &large, LONG).unwrap(), large);
    // The end of its transport is certain: the group goes on with one of two.
    let id = second.id();
    drop(second);
    while first.show(LONG).unwrap().members.iter().any(|member| member.node == id) {
        std::thread::yield_now();
    }
    let lost = first.call(&name("/echo"), 0, b"", Duration::from_millis(50)).unwrap_err();
    assert_eq!(lost.fate, Fate::NoService);
}

/// A transport that panics in some sends.
struct Panics {
    inner: LocalTransport,
    left: AtomicU64,
}

impl squall_fleet::Transport for Panics {
    fn endpoint(&self) -> String {
        self.inner.endpoint()
    }

    fn largest_frame(&self) -> usize {
        self.inner.largest_frame()
    }

    fn start(&self, receiver: Receiver) -> std::io::Result<()> {
        self.inner.start(receiver)
    }

    fn send(&self, to: &str, frame: &[u8]) {
        let left = self.left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        assert!(left.is_err(), "as planned");
        self.inner.send(to, frame);
    }

    fn stop(&self) {
        self.inner.stop();
    }
}

#[test]
fn a_transport_that_panics_loses_its_frame_alone() {
    let group = Group::new(1);
    let echo = |call: ServiceCall<'_>| Some(call.body.to_vec());
    group.nodes[0].serve(&name("/echo"), &group.root, NameOptions::new(), echo).unwrap();
    let transport = Panics { inner: group.network.bind("panics").unwrap(), left: AtomicU64::new(3) };
    let visitor = NodeBuilder::new(group.key).visit(transport, &["local/0"]).unwrap();
    assert_eq!(visitor.call(&name("/echo"), 0, b"x", LONG).unwrap(), b"x");
}
