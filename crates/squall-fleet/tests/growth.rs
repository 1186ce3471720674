//! A fleet that chooses its own size: members start, die, are replaced, and leave.

use squall_fleet::{
    GroupKey, Growth, GrowthAction, GrowthOptions, GrowthReason, LocalNetwork, LocalTransport, Name,
    NameCapability, NameOptions, Node, NodeBuilder, NodeId, NodeLoad, Receiver, ServiceCall, ShardService,
    Transport,
};
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// No test waits so long unless it fails.
const LONG: Duration = Duration::from_secs(60);
const SHARDS: u32 = 6;
/// Waiting calls of a member: too many, enough, and few.
const HIGH: u64 = 100;
const STEADY: u64 = 8;
const LOW: u64 = 0;

/// A counter in each shard.
#[derive(Default)]
struct Counters(Mutex<HashMap<u32, u64>>);

impl ShardService for Counters {
    fn create(&self, shard: u32) {
        self.0.lock().unwrap().insert(shard, 0);
    }

    fn import(&self, shard: u32, state: &[u8]) {
        self.0.lock().unwrap().insert(shard, u64::from_le_bytes(state.try_into().unwrap()));
    }

    fn export(&self, shard: u32) -> Vec<u8> {
        self.0.lock().unwrap()[&shard].to_le_bytes().to_vec()
    }

    fn forget(&self, shard: u32) {
        self.0.lock().unwrap().remove(&shard);
    }

    fn call(&self, shard: u32, call: ServiceCall<'_>) -> Option<Vec<u8>> {
        let mut shards = self.0.lock().unwrap();
        let count = shards.get_mut(&shard)?;
        *count += call.method;
        Some(count.to_le_bytes().to_vec())
    }
}

struct Member {
    id: NodeId,
    growth: Growth,
    killed: AtomicBool,
    resigns: AtomicBool,
}

/// A group, in which each member is a thread, as a process would be.
struct World {
    network: LocalNetwork,
    key: GroupKey,
    root: Mutex<Option<NameCapability>>,
    fleet: Name,
    waiting: AtomicU64,
    started: AtomicU64,
    /// How often a load was read.
    looks: AtomicU64,
    /// Whether started members wait before they join.
    held: AtomicBool,
    members: Mutex<Vec<Arc<Member>>>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl World {
    fn new() -> Arc<World> {
        let world = Arc::new(World {
            network: LocalNetwork::new(),
            key: GroupKey::random(),
            root: Mutex::new(None),
            fleet: "/counters".parse().unwrap(),
            waiting: AtomicU64::new(STEADY),
            started: AtomicU64::new(0),
            looks: AtomicU64::new(0),
            held: AtomicBool::new(false),
            members: Mutex::new(Vec::new()),
            threads: Mutex::new(Vec::new()),
        });
        // It outlives the members, so that they have an endpoint to join at.
        let (seed, root) =
            NodeBuilder::new(world.key).found(world.network.bind("seed").unwrap(), &[]).unwrap();
        *world.root.lock().unwrap() = Some(root);
        std::mem::forget(seed);
        world
    }

    /// Starts a member, as the fleet does.
    fn start(self: &Arc<World>) -> io::Result<()> {
        let world = self.clone();
        let number = self.started.fetch_add(1, SeqCst);
        let thread = thread::Builder::new().spawn(move || world.run(number))?;
        self.threads.lock().unwrap().push(thread);
        Ok(())
    }

    /// The program of a member.
    fn run(self: Arc<World>, number: u64) {
        while self.held.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        let transport = self.network.bind(&number.to_string()).unwrap();
        let node = NodeBuilder::new(self.key).join(transport, &["local/seed"]).unwrap();
        node.wait_joined(LONG).unwrap();
        let root = self.root.lock().unwrap().clone().unwrap();
        let right = node.serve_shards(&self.fleet, &root, SHARDS, Counters::default()).unwrap();
        let (of_load, of_start) = (self.clone(), self.clone());
        let load = move || {
            of_load.looks.fetch_add(1, SeqCst);
            NodeLoad { waiting: of_load.waiting.load(SeqCst), ..NodeLoad::default() }
        };
        let millis = Duration::from_millis;
        let options = GrowthOptions::new(1, 3).calls_max(1_000_000).waiting_max(10).looks(2);
        let options = options.look_every(millis(5)).pause(millis(10)).start_limit(LONG);
        let growth = node.grow_by(&right, options, load, move || of_start.start()).unwrap();
        let (killed, resigns) = (AtomicBool::new(false), AtomicBool::new(false));
        let member = Arc::new(Member { id: node.id(), growth, killed, resigns });
        self.members.lock().unwrap().push(member.clone());
        while !member.killed.load(SeqCst) && !member.growth.wait_to_leave(millis(5)) {
            if member.resigns.load(SeqCst) {
                member.growth.resign(LONG).unwrap();
                break;
            }
        }
        self.members.lock().unwrap().retain(|other| other.id != member.id);
        if !member.killed.load(SeqCst) {
            node.leave(LONG).unwrap();
        }
        // A death: the others are not told.
        drop(node);
    }

    fn members(&self) -> Vec<Arc<Member>> {
        self.members.lock().unwrap().clone()
    }

    /// Waits until the fleet has so many members, with all shards in place. Returns their numbers.
    fn settle(&self, visitor: &Node, members: usize) -> Vec<NodeId> {
        loop {
            let shown = visitor.show(LONG).unwrap();
            let fleet = shown.services.iter().find(|service| service.name == self.fleet);
            let settled = fleet.filter(|fleet| {
                let lives =
                    |member: &&Arc<Member>| !member.killed.load(SeqCst) && fleet.nodes.contains(&member.id);
                let here = self.members().iter().filter(lives).count();
                fleet.nodes.len() == members
                    && here == members
                    && fleet.shards.iter().all(|shard| shard.owner.is_some() && shard.target.is_none())
            });
            if let Some(fleet) = settled {
                return fleet.nodes.clone();
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends all members, and waits for their threads.
    fn end(&self) {
        self.members().iter().for_each(|member| member.killed.store(true, SeqCst));
        let threads: Vec<_> = std::mem::take(&mut *self.threads.lock().unwrap());
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// The member that decides.
    fn decider(&self) -> Arc<Member> {
        self.members().into_iter().min_by_key(|member| member.id).unwrap()
    }
}

#[test]
fn fo_13_a_fleet_chooses_its_size_by_its_load_and_replaces_the_dead() {
    let world = World::new();
    let visitor =
        NodeBuilder::new(world.key).visit(world.network.bind("visitor").unwrap(), &["local/seed"]).unwrap();
    world.start().unwrap();
    world.settle(&visitor, 1);
    assert_eq!(world.started.load(SeqCst), 1);

    // Too many calls wait, so the fleet grows to its largest size.
    world.waiting.store(HIGH, SeqCst);
    world.settle(&visitor, 3);
    world.waiting.store(STEADY, SeqCst);
    let grown: Vec<_> = (world.members().iter())
        .flat_map(|member| member.growth.history())
        .filter(|decision| decision.reason == GrowthReason::CallsWait)
        .collect();
    assert_eq!(grown.len(), 2, "{grown:?}");
    assert!(grown.iter().all(|decision| decision.action == GrowthAction::Start && decision.waiting > 10));

    // The member that decides dies. The next one knows the wanted size.
    let dead = world.decider();
    dead.killed.store(true, SeqCst);
    let nodes = world.settle(&visitor, 3);
    assert!(!nodes.contains(&dead.id));
    assert_eq!(world.started.load(SeqCst), 4);

    // A member that leaves by its own decision is not replaced.
    let leaver = world.members().into_iter().find(|member| member.id != world.decider().id).unwrap();
    leaver.resigns.store(true, SeqCst);
    world.settle(&visitor, 2);
    let decider = world.decider();
    assert_eq!(decider.growth.wanted(), Some(2), "{:?}", decider.growth.history());

    // The fleet shrinks. Each member that is asked hands its shards over first.
    let add = |shard: u32, count: u64| {
        let reply = visitor.call_shard(&world.fleet, shard, count, b"", LONG).unwrap();
        u64::from_le_bytes(reply.try_into().unwrap())
    };
    let before: Vec<u64> = (0..SHARDS).map(|shard| add(shard, 1 + u64::from(shard))).collect();
    world.waiting.store(LOW, SeqCst);
    world.settle(&visitor, 1);
    let after: Vec<u64> = (0..SHARDS).map(|shard| add(shard, 0)).collect();
    assert_eq!(before, after);
    let last = world.decider();
    let shrunk = last.growth.history().into_iter().find(|decision| decision.action == GrowthAction::Shrink);
    assert_eq!(shrunk.unwrap().reason, GrowthReason::FewCalls);
    assert_eq!(world.started.load(SeqCst), 4);

    world.end();
}

/// The decider dies while its member starts. The next one waits for that member, and starts one other.
#[test]
fn a_start_outlives_the_decider() {
    let world = World::new();
    let visitor =
        NodeBuilder::new(world.key).visit(world.network.bind("visitor").unwrap(), &["local/seed"]).unwrap();
    world.start().unwrap();
    world.waiting.store(HIGH, SeqCst);
    world.settle(&visitor, 3);
    world.waiting.store(STEADY, SeqCst);
    let started = world.started.load(SeqCst);
    assert_eq!(started, 3);

    world.held.store(true, SeqCst);
    let decider = world.decider();
    let other = world.members().into_iter().find(|member| member.id != decider.id).unwrap();
    other.killed.store(true, SeqCst);
    while world.started.load(SeqCst) == started {
        thread::sleep(Duration::from_millis(1));
    }
    decider.killed.store(true, SeqCst);
    world.settle(&visitor, 1);
    // The last member decides several times.
    let decided = world.looks.load(SeqCst);
    while world.looks.load(SeqCst) < decided + 3 {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.started.load(SeqCst), started + 1);
    world.held.store(false, SeqCst);
    world.settle(&visitor, 3);
    let newest = world.decider();
    // It knows the size once it has asked the others.
    while newest.growth.wanted().is_none() {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((world.started.load(SeqCst), newest.growth.wanted()), (started + 2, Some(3)));
    world.end();
}

/// Reads a count until it has grown by so many.
fn await_more(count: &AtomicU64, more: u64) {
    let before = count.load(SeqCst);
    while count.load(SeqCst) < before + more {
        thread::sleep(Duration::from_millis(1));
    }
}

/// The member that decides tells the others of a start. One of them answers late, and a third one joins by a
/// command meanwhile.
#[test]
fn a_member_that_joins_while_the_others_are_told_of_a_start_is_not_started_again() {
    let (network, key, started) = (LocalNetwork::new(), GroupKey::random(), Arc::new(AtomicU64::new(0)));
    let (_seed, root) = NodeBuilder::new(key).found(network.bind("seed").unwrap(), &[]).unwrap();
    let join = |name: &str| {
        let node = NodeBuilder::new(key).join(network.bind(name).unwrap(), &["local/seed"]).unwrap();
        node.wait_joined(LONG).unwrap();
        node
    };
    // Counts the reads of a load, and tells the waiting calls by the number of the read.
    let grow = |node: &Node, reads: &Arc<AtomicU64>, waiting: Box<dyn Fn(u64) -> u64 + Send + Sync>| {
        let serve = |call: ServiceCall<'_>| Some(call.body.to_vec());
        let name = NameOptions::new().stateless();
        let right = node.serve(&"/echo".parse().unwrap(), &root, name, serve).unwrap();
        let options = GrowthOptions::new(1, 3).waiting_max(10).looks(1).pause(Duration::ZERO);
        let options = options.look_every(Duration::from_millis(5)).start_limit(LONG);
        let (reads, started) = (reads.clone(), started.clone());
        let load = move || {
            let waiting = waiting(reads.fetch_add(1, SeqCst));
            NodeLoad { waiting, ..NodeLoad::default() }
        };
        let start = move || {
            started.fetch_add(1, SeqCst);
            Ok(())
        };
        node.grow_by(&right, options, load, start).unwrap()
    };
    let mut nodes = [join("a"), join("b")];
    nodes.sort_by_key(Node::id);
    let [decider, late] = nodes;
    // The member that decides has the lowest number of all.
    let mut spares = Vec::new();
    let third = loop {
        let node = join(&format!("c{}", spares.len()));
        if node.id() > decider.id() {
            break node;
        }
        spares.push(node);
    };

    let [of_decider, of_late, of_third] = <[Arc<AtomicU64>; 3]>::default();
    let first = grow(&decider, &of_decider, Box::new(|_| STEADY));
    // From this read on: a high load, and no answer while the gate is closed.
    let (high, gate) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicBool::new(false)));
    let (from, opened) = (high.clone(), gate.clone());
    let waiting = move |read: u64| {
        while read > from.load(SeqCst) && !opened.load(SeqCst) {
            thread::sleep(Duration::from_millis(1));
        }
        if read == from.load(SeqCst) { HIGH } else { STEADY }
    };
    let second = grow(&late, &of_late, Box::new(waiting));
    while first.wanted() != Some(2) {
        thread::sleep(Duration::from_millis(1));
    }
    await_more(&of_late, 2);
    let next = of_late.load(SeqCst) + 1;
    high.store(next, SeqCst);
    while of_late.load(SeqCst) <= next + 1 {
        thread::sleep(Duration::from_millis(1));
    }
    let joined = grow(&third, &of_third, Box::new(|_| STEADY));
    // The member that decides knows the third one once it calls it.
    await_more(&of_third, 1);
    gate.store(true, SeqCst);
    await_more(&of_decider, 3);
    assert_eq!((started.load(SeqCst), first.wanted()), (0, Some(3)), "{:?}", first.history());
    drop((first, second, joined));
}

#[test]
fn a_failed_start_is_recorded_and_repeated() {
    let (node, root) =
        NodeBuilder::new(GroupKey::random()).found(LocalNetwork::new().bind("a").unwrap(), &[]).unwrap();
    let serve = |call: ServiceCall<'_>| Some(call.body.to_vec());
    let right = node.serve(&"/echo".parse().unwrap(), &root, Default::default(), serve).unwrap();
    let (tried, tries) = std::sync::mpsc::channel();
    let millis = Duration::from_millis;
    let options = GrowthOptions::new(2, 2).look_every(millis(1)).pause(millis(1));
    let mut count = 0;
    let growth = node.grow(&right, options, move || {
        count += 1;
        let _ = tried.send(count);
        if count == 1 { panic!("as planned") } else { Err(io::Error::other("as planned")) }
    });
    let growth = growth.unwrap();
    assert!((1..4).all(|count| tries.recv() == Ok(count)));
    drop(tries);
    let history = growth.history();
    let failed = history.iter().filter(|decision| decision.reason == GrowthReason::StartFailed).count();
    assert!(failed >= 2, "{history:?}");
    let text = history[0].to_string();
    assert!(
        text.starts_with("the fleet starts a member: a member is missing (1 members, 2 wanted"),
        "{text}"
    );
    // The load of the node itself.
    let before = node.load();
    node.call(&"/echo".parse().unwrap(), 0, b"x", LONG).unwrap();
    let after = node.load();
    assert_eq!((after.calls - before.calls, after.refused), (1, 0));
}

/// A transport that loses all frames while it is cut.
struct Cut {
    inner: LocalTransport,
    is_cut: Arc<AtomicBool>,
}

impl Transport for Cut {
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
        if !self.is_cut.load(SeqCst) {
            self.inner.send(to, frame);
        }
    }

    fn stop(&self) {
        self.inner.stop();
    }
}

#[test]
fn a_member_decides_only_under_a_lease() {
    let (network, key, is_cut) = (LocalNetwork::new(), GroupKey::random(), Arc::new(AtomicBool::new(false)));
    let bind = |name| Cut { inner: network.bind(name).unwrap(), is_cut: is_cut.clone() };
    let (seed, root) = NodeBuilder::new(key).found(bind("seed"), &[]).unwrap();
    let node = NodeBuilder::new(key).join(bind("a"), &["local/seed"]).unwrap();
    node.wait_joined(LONG).unwrap();
    let serve = |call: ServiceCall<'_>| Some(call.body.to_vec());
    let right = node.serve(&"/echo".parse().unwrap(), &root, Default::default(), serve).unwrap();
    let (waiting, started) = (Arc::new(AtomicU64::new(STEADY)), Arc::new(AtomicU64::new(0)));
    let (of_load, of_start) = (waiting.clone(), started.clone());
    let load = move || NodeLoad { waiting: of_load.load(SeqCst), ..NodeLoad::default() };
    let start = move || {
        of_start.fetch_add(1, SeqCst);
        Ok(())
    };
    let millis = Duration::from_millis;
    let options = GrowthOptions::new(1, 2).waiting_max(10).looks(1).look_every(millis(1)).start_limit(LONG);
    let growth = node.grow_by(&right, options, load, start).unwrap();
    while growth.wanted().is_none() {
        thread::sleep(millis(1));
    }
    is_cut.store(true, SeqCst);
    while !node.figures().lease_left.is_zero() {
        thread::sleep(millis(1));
    }
    // It has many looks here. A slow machine has fewer, and finds less.
    waiting.store(HIGH, SeqCst);
    thread::sleep(millis(100));
    assert_eq!((started.load(SeqCst), growth.wanted()), (0, Some(1)));
    // It decides once it has a lease again.
    is_cut.store(false, SeqCst);
    while started.load(SeqCst) == 0 {
        thread::sleep(millis(1));
    }
    assert_eq!(growth.wanted(), Some(2), "{:?}", growth.history());
    drop((growth, node, seed));
}
