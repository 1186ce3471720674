//! A simulator: whole pools on virtual time, over a network that loses, delays, repeats and cuts.
//!
//! Each seed is one schedule of up to 16 members. They join, leave and die, are cut off and fenced, and add
//! and get meanwhile. The master moves. Then the faults end, and the pool must come to rest. A schedule that
//! fails prints its seed; it is kept in `PAST_FAILURES`.
//!
//! The group is an oracle here: it fences a member, and then appends a view without it. Each member learns
//! the views in order, late, and may miss some.
//!
//! Checked: a get finds the pool empty only if at one moment of its call no living member had an element, by
//! a count over all stores and frames. Each element goes to one caller. Each added element is given out, is
//! still there, or was at a dead member or on its way to it. All operations of living members end.
//!
//! In schedules with copies, one member dies at a time, and none leaves until its heir acts for it: the next
//! one dies once all have an heir again. Then each added element is given out, or still there. So is the
//! result of a get that waited, unless the copy had taken the get. A member that was removed does not come
//! back here: `host.rs` has tests.

use super::shard::Phase;
use super::{
    Attributes, Command, Completion, Element, Host, MemberId, OpId, Output, Shard, Strategy, Time, View,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

const MEMBERS_MAX: usize = 16;
const END: Time = 3_000_000;
const RESTED: Time = 9_000_000;
/// Schedules from this seed on have copies.
pub(super) const COPIES: u64 = 1 << 32;
/// Seeds that failed once.
const PAST_FAILURES: &[u64] = &[52, 78, 328, 1168, 1544, 1565, 2271, 3166, 4657];

/// A generator of pseudo-random numbers (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Deliver {
        to: usize,
        from: MemberId,
        frame: Vec<u8>,
    },
    /// Learns the views up to this one.
    Learn {
        node: usize,
        epoch: u64,
    },
    Tick {
        node: usize,
    },
    /// The group appends a view without a member that the node acts for, as the node has asked.
    Vacate {
        node: usize,
        member: MemberId,
        if_epoch: Option<u64>,
    },
    /// The group appends a view without the members of a node, or with their heirs.
    Remove {
        node: usize,
    },
    /// The group notes an heir.
    Heir {
        node: usize,
        member: MemberId,
        heir: MemberId,
    },
    Act,
}

struct Node {
    host: Host,
    /// Neither killed nor fenced.
    alive: bool,
    killed: bool,
    /// The pool ended with this last member.
    ended: bool,
    leaving: bool,
    wake: Option<Time>,
}

#[derive(Debug)]
struct Get {
    node: usize,
    /// The number of the step in which it began.
    began: u64,
}

struct World {
    seed: u64,
    random: Random,
    now: Time,
    step: u64,
    attributes: Attributes,
    nodes: Vec<Node>,
    /// All views; the last one is the newest.
    views: Vec<View>,
    /// By member, as the group knows.
    heirs: BTreeMap<MemberId, MemberId>,
    inherited: usize,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    sequence: u64,
    /// In thousandths.
    loss: u64,
    repeat: u64,
    delay: Time,
    view_delay: Time,
    deaths: bool,
    cuts: bool,
    /// How often gets are more than adds, in thousandths.
    gets: u64,
    cut: BTreeSet<(usize, usize)>,
    next_op: u64,
    gets_open: BTreeMap<OpId, Get>,
    adds_open: BTreeMap<OpId, (usize, u64)>,
    others_open: BTreeMap<OpId, usize>,
    added: BTreeSet<u64>,
    given: BTreeSet<u64>,
    /// Elements that were at a dead member, or on their way to it on demand.
    lost: BTreeSet<u64>,
    /// The last step after which the pool was empty.
    empty_at: Option<u64>,
    found: u64,
    found_empty: u64,
    traced: bool,
}

fn token(element: &Element) -> u64 {
    u64::from_le_bytes(element[..8].try_into().unwrap())
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Random(seed);
        let strategy = Strategy::ALL[(seed % 7) as usize];
        let mut attributes = Attributes::new(strategy);
        // Small numbers, so that a schedule reaches each edge.
        attributes.bulk = 1 + random.below(8) as usize;
        attributes.idle_events = 1 + random.below(3) as u32;
        attributes.pull_below = 1 + random.below(8) as usize;
        attributes.push_above = random.below(6) as usize;
        attributes.push_margin = 1 + random.below(4) as usize;
        attributes.estimate_step = 1 + random.below(3) as usize;
        attributes.resend = 20_000;
        attributes.replicated = seed >= COPIES;
        let kind = random.below(6);
        let slowest = if random.below(4) == 0 { 40_000 } else { 4_000 };
        World {
            seed,
            now: 0,
            step: 0,
            attributes,
            nodes: Vec::new(),
            views: Vec::new(),
            heirs: BTreeMap::new(),
            inherited: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            loss: if kind == 0 { 0 } else { random.below(200) },
            repeat: random.below(150),
            delay: 1 + random.below(slowest),
            view_delay: 1 + random.below(200_000),
            deaths: kind >= 2,
            cuts: kind >= 3,
            gets: 350 + random.below(400),
            random,
            cut: BTreeSet::new(),
            next_op: 1,
            gets_open: BTreeMap::new(),
            adds_open: BTreeMap::new(),
            others_open: BTreeMap::new(),
            added: BTreeSet::new(),
            given: BTreeSet::new(),
            lost: BTreeSet::new(),
            empty_at: None,
            found: 0,
            found_empty: 0,
            traced: std::env::var_os("SQUALL_TRACE").is_some(),
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.sequence += 1;
        assert!(self.sequence < 400_000, "seed {}: the shards never rest", self.seed);
        self.events.push(Reverse((at, self.sequence, event)));
    }

    /// Appends a view, which all members learn by and by.
    fn append_view(&mut self, change: impl FnOnce(&mut View)) {
        let mut view = self.views.last().cloned().unwrap_or_default();
        change(&mut view);
        let epoch = self.views.len() as u64 + 1;
        view.epoch = epoch;
        view.inherited.retain(|(dead, _)| view.members.contains(dead));
        self.heirs.retain(|member, heir| {
            let lives = |id: &MemberId| view.members.contains(id);
            lives(member) && lives(heir) && view.heir_of(*heir).is_none()
        });
        self.views.push(view);
        for node in 0..self.nodes.len() {
            let at = self.now + self.random.below(self.view_delay);
            self.schedule(at, Event::Learn { node, epoch });
        }
    }

    fn join(&mut self) {
        let id = MemberId(self.nodes.len() as u64);
        let host = Host::new(id, 3, self.attributes.clone());
        self.nodes.push(Node { host, alive: true, killed: false, ended: false, leaving: false, wake: None });
        self.append_view(|view| view.members.push(id));
    }

    /// Ends a member: it is killed, or its lease ends. Its elements are lost, unless it has an heir.
    fn end(&mut self, node: usize) {
        (self.nodes[node].alive, self.nodes[node].killed) = (false, true);
        let id = MemberId(node as u64);
        if !self.heirs.contains_key(&id) {
            let there = self.nodes[node].host.own().all_elements().into_iter().map(token);
            let others = self.nodes.iter().filter(|other| other.alive);
            let on_the_way = others.flat_map(|other| other.host.own().given_to(id)).map(token);
            let results = self.nodes[node].host.waiting_results(None).into_iter().map(token);
            let lost: Vec<u64> = there.chain(on_the_way).chain(results).collect();
            self.lost.extend(lost);
        }
        self.gets_open.retain(|_, get| get.node != node);
        self.others_open.retain(|_, at| *at != node);
        self.adds_open.retain(|_, (at, _)| *at != node);
        let at = self.now + self.random.below(300_000);
        self.schedule(at, Event::Remove { node });
    }

    /// With copies, returns whether no dead member is in the view without an heir that acts for it.
    fn may_leave(&self) -> bool {
        let Some(view) = self.views.last() else { return true };
        let acts = |id: &MemberId| self.nodes[World::node_of(view, *id)].alive;
        !self.attributes.replicated || view.members.iter().all(acts)
    }

    /// With copies, returns whether a member may die: all have an heir, and its own one stays.
    fn may_die(&self, node: usize) -> bool {
        let Some(view) = self.views.last() else { return true };
        let settled = |id: &MemberId| {
            let node = &self.nodes[id.0 as usize];
            let has_heir = view.members.len() == 1 || self.heirs.contains_key(id);
            node.alive && has_heir
        };
        let heir = self.heirs.get(&MemberId(node as u64));
        let stays = heir.is_none_or(|heir| !self.nodes[heir.0 as usize].leaving);
        !self.attributes.replicated
            || stays && (view.inherited.is_empty() && view.members.iter().all(settled))
    }

    /// The node that acts for a member, by a view.
    fn node_of(view: &View, member: MemberId) -> usize {
        view.heir_of(member).unwrap_or(member).0 as usize
    }

    fn command(&mut self, node: usize, command: Command) {
        let op = OpId(self.next_op);
        self.next_op += 1;
        match &command {
            Command::AddElement(element) => _ = self.adds_open.insert(op, (node, token(element))),
            Command::GetElement { .. } => _ = self.gets_open.insert(op, Get { node, began: self.step }),
            _ => _ = self.others_open.insert(op, node),
        }
        if self.traced {
            eprintln!("{} {node} {op:?} {command:?}", self.now);
        }
        self.nodes[node].host.command(self.now, op, command);
        self.collect(node);
    }

    fn act(&mut self) {
        let living: Vec<usize> = (0..self.nodes.len()).filter(|node| self.nodes[*node].alive).collect();
        if living.is_empty() {
            return;
        }
        let one = living[self.random.below(living.len() as u64) as usize];
        let other = living[self.random.below(living.len() as u64) as usize];
        let act = self.random.below(1000);
        match act {
            0..30 if self.nodes.len() < MEMBERS_MAX => self.join(),
            30..45 if living.len() > 1 && self.may_leave() => {
                if self.nodes[one].host.own().is_ready() {
                    self.nodes[one].leaving = true;
                    self.command(one, Command::Shutdown);
                }
            }
            // With copies, many acts come at a time when no member may die.
            45..55 | 125..155
                if self.deaths
                    && living.len() > 1
                    && self.may_die(one)
                    && (self.attributes.replicated || act < 55) =>
            {
                self.end(one);
            }
            55..75 if self.cuts && one != other => {
                self.cut.insert((one, other));
                if self.random.below(2) == 0 {
                    self.cut.insert((other, one));
                }
            }
            // A partition: a member is cut off from all others.
            75..80 if self.cuts => {
                let pairs = (0..self.nodes.len()).flat_map(|node| [(one, node), (node, one)]);
                self.cut.extend(pairs);
            }
            80..110 => self.cut.clear(),
            110..120 => self.command(one, Command::Size),
            120..125 => {
                let (from, to) = (MemberId(one as u64), MemberId(other as u64));
                self.nodes[other].host.set_locality(self.now, from, to, 5);
                self.collect(other);
            }
            125..300 => {
                self.nodes[one].host.idle(self.now);
                self.collect(one);
            }
            _ if self.random.below(1000) < self.gets => {
                let size_max = if self.random.below(12) == 0 { 9 } else { 100 };
                self.command(one, Command::GetElement { size_max });
            }
            _ => {
                // One member in two adds more than the others.
                let token = self.next_op;
                let bytes = 8 + self.random.below(4) as usize;
                let mut element = token.to_le_bytes().to_vec();
                element.resize(bytes, 0);
                let node = if self.random.below(2) == 0 { living[0] } else { one };
                self.command(node, Command::AddElement(element));
            }
        }
    }

    fn transmit(&mut self, node: usize, to: usize, from: MemberId, frame: Vec<u8>) {
        if self.cut.contains(&(node, to)) || self.random.below(1000) < self.loss {
            return;
        }
        let copies = if self.random.below(1000) < self.repeat { 2 } else { 1 };
        for _ in 0..copies {
            let late = if self.loss > 0 && self.random.below(100) == 0 { 20 } else { 1 };
            let at = self.now + 10 + self.random.below(self.delay * late);
            self.schedule(at, Event::Deliver { to, from, frame: frame.clone() });
        }
    }

    /// Does the requests of a shard.
    fn collect(&mut self, node: usize) {
        for (member, output) in self.nodes[node].host.take_outputs() {
            match output {
                Output::Send { to, frame } => {
                    let to = World::node_of(&self.nodes[node].host.view, to);
                    self.transmit(node, to, member, frame);
                }
                Output::Completed { op, result } => self.completed(op, result),
                Output::Leave { if_epoch } => {
                    let at = self.now + self.random.below(50_000);
                    self.schedule(at, Event::Vacate { node, member, if_epoch });
                }
                Output::Heir(heir) => {
                    let latest = if self.random.below(2) == 0 { 50_000 } else { 300 };
                    let at = self.now + self.random.below(latest);
                    self.schedule(at, Event::Heir { node, member, heir });
                }
                Output::Ready => {}
                Output::Removed => self.nodes[node].alive = false,
            }
        }
        let wake = self.nodes[node].host.wake_at();
        if let Some(at) = wake
            && self.nodes[node].wake.is_none_or(|other| at < other)
        {
            self.nodes[node].wake = wake;
            self.schedule(at.max(self.now + 1), Event::Tick { node });
        }
    }

    fn completed(&mut self, op: OpId, result: Completion) {
        let seed = self.seed;
        if self.traced {
            eprintln!("{} {op:?} {result:?}", self.now);
        }
        if let Some(get) = self.gets_open.remove(&op) {
            match result {
                Completion::Got(element) => {
                    let token = token(&element);
                    assert!(self.given.insert(token), "seed {seed}: element {token} was given out twice");
                    self.found += 1;
                }
                Completion::Empty => {
                    assert!(
                        self.empty_at.is_some_and(|at| at >= get.began) || self.living() == 0,
                        "seed {seed}: {op:?} of {} found none, and the pool was never empty",
                        get.node
                    );
                    self.found_empty += 1;
                }
                Completion::TooLarge { size } => assert!(size > 9, "seed {seed}: {size} bytes"),
                Completion::Closed => {}
                other => panic!("seed {seed}: a get ended as {other:?}"),
            }
        } else if let Some((_, token)) = self.adds_open.remove(&op) {
            match result {
                Completion::Added => _ = self.added.insert(token),
                Completion::Closed => {}
                other => panic!("seed {seed}: an add ended as {other:?}"),
            }
        } else if let Some(node) = self.others_open.remove(&op)
            && let Completion::LastLeft { lost } = result
        {
            let node = &self.nodes[node];
            assert!(node.ended && node.host.own().len() as u64 == lost, "seed {seed}: the last member");
        }
    }

    /// The shards that count: those of living members, and copies of dead ones with an heir.
    fn counted(&self) -> impl Iterator<Item = &Shard> {
        let living = self.nodes.iter().filter(|node| node.alive && !node.ended);
        let running = living.flat_map(|node| node.host.shards());
        let view = self.views.last();
        let dead = view.into_iter().flat_map(|view| &view.members).filter(|id| {
            let node = World::node_of(self.views.last().expect("a view"), **id);
            !self.nodes[node].alive || self.nodes[node].host.shard_of(**id).is_none()
        });
        let with_copy = dead.filter_map(|id| {
            let view = self.views.last()?;
            let heir = view.heir_of(*id).or(self.heirs.get(id).copied())?;
            let node = &self.nodes[heir.0 as usize];
            node.host.copy_of(*id).filter(|_| node.alive)
        });
        running.chain(with_copy)
    }

    /// The number of living elements.
    fn living(&self) -> usize {
        self.counted().map(|shard| shard.all_elements().len()).sum()
    }

    fn living_elements(&self) -> Vec<u64> {
        self.counted().flat_map(Shard::all_elements).map(token).collect()
    }

    fn step(&mut self) {
        let Some(Reverse((at, _, event))) = self.events.pop() else { return };
        self.now = self.now.max(at);
        self.step += 1;
        let node = match &event {
            Event::Deliver { to: node, .. } | Event::Learn { node, .. } | Event::Tick { node } => *node,
            Event::Remove { node } => {
                self.remove(*node);
                return;
            }
            Event::Vacate { node, member, if_epoch } => {
                self.vacate(*node, *member, *if_epoch);
                return;
            }
            Event::Heir { node, member, heir } => {
                let view = self.views.last().cloned().unwrap_or_default();
                let lives = view.members.contains(heir) && view.heir_of(*heir).is_none();
                if lives && view.members.contains(member) && World::node_of(&view, *member) == *node {
                    self.heirs.insert(*member, *heir);
                }
                return;
            }
            Event::Act => {
                if self.now < END {
                    self.act();
                    let at = self.now + 200 + self.random.below(8_000);
                    self.schedule(at, Event::Act);
                }
                return self.look();
            }
        };
        if !self.nodes[node].alive {
            return;
        }
        let now = self.now;
        match event {
            Event::Deliver { from, frame, .. } => {
                if self.traced {
                    let frame = super::message::Frame::decode(&frame);
                    eprintln!("{now} {from:?} -> {node}: {:?}", frame);
                }
                self.nodes[node].host.receive(now, from, &frame)
            }
            Event::Learn { epoch, .. } => {
                let view = self.views[epoch as usize - 1].clone();
                if self.traced {
                    eprintln!("{now} {node} learns {view:?}");
                }
                // A giver may answer the last question of a dead member.
                let dead = (0..self.nodes.len()).filter(|other| self.nodes[*other].killed);
                let host = &self.nodes[node].host;
                let gone = dead.map(|dead| MemberId(dead as u64)).filter(|id| !view.members.contains(id));
                if !self.attributes.replicated {
                    self.lost.extend(gone.flat_map(|id| host.own().given_to(id)).map(token));
                }
                self.excuse_results(&view);
                let fits = |id: &MemberId| *id != MemberId(node as u64) && view.heir_of(*id).is_none();
                let backups: Vec<MemberId> = view.members.iter().copied().filter(fits).collect();
                self.nodes[node].host.install(now, &view, &backups);
            }
            _ => {
                self.nodes[node].wake = None;
                self.nodes[node].host.tick(now);
            }
        }
        self.collect(node);
        self.look();
    }

    /// The group removes a node: its members go to their heirs, or are out.
    fn remove(&mut self, node: usize) {
        let Some(view) = self.views.last().cloned() else { return };
        let mine = view.members.iter().copied().filter(|id| World::node_of(&view, *id) == node);
        let mine: Vec<MemberId> = mine.collect();
        let heir = |id: MemberId| self.heirs.get(&id).copied().filter(|heir| heir.0 as usize != node);
        let heirs: Vec<(MemberId, Option<MemberId>)> = mine.iter().map(|id| (*id, heir(*id))).collect();
        if mine.is_empty() {
            return;
        }
        self.inherited += heirs.iter().filter(|(_, heir)| heir.is_some()).count();
        self.append_view(|view| {
            view.inherited.retain(|(_, heir)| heir.0 as usize != node);
            for (id, heir) in heirs {
                match heir {
                    Some(heir) => view.inherited.push((id, heir)),
                    None => view.members.retain(|member| *member != id),
                }
            }
        });
        mine.iter().for_each(|id| _ = self.heirs.remove(id));
    }

    /// The group removes a member as its node asks for, but no heir before those that it acts for.
    fn vacate(&mut self, node: usize, member: MemberId, if_epoch: Option<u64>) {
        let Some(view) = self.views.last().cloned() else { return };
        let stays = view.inherited.iter().any(|(_, heir)| *heir == member);
        if if_epoch.is_some_and(|epoch| epoch != view.epoch)
            || !view.members.contains(&member)
            || World::node_of(&view, member) != node
            || stays
        {
            return;
        }
        if view.members.len() == 1 && if_epoch.is_some() {
            let node = &mut self.nodes[node];
            node.ended = true;
            self.lost.extend(node.host.own().all_elements().into_iter().map(token));
        }
        self.append_view(|view| view.members.retain(|other| *other != member));
    }

    /// Notes the results that go down with the members that are inherited in a view.
    fn excuse_results(&mut self, view: &View) {
        for (dead, heir) in &view.inherited {
            let (dead, heir) = (&self.nodes[dead.0 as usize].host, &self.nodes[heir.0 as usize]);
            let results = dead.waiting_results(Some(&heir.host)).into_iter().map(token);
            self.lost.extend(results);
        }
    }

    /// Notes whether the pool is empty now.
    fn look(&mut self) {
        if self.living() == 0 {
            self.empty_at = Some(self.step);
        }
    }

    fn run_until(&mut self, end: Time) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at < end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    fn play(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            self.join();
        }
        self.empty_at = Some(0);
        self.schedule(0, Event::Act);
        self.run_until(END);
        (self.loss, self.repeat, self.delay) = (0, 0, 1_000);
        self.cut.clear();
        self.run_until(RESTED);
    }

    fn check_end(&mut self) {
        let seed = self.seed;
        assert!(self.gets_open.is_empty(), "seed {seed}: gets never ended: {:?}", self.gets_open);
        assert!(self.adds_open.is_empty(), "seed {seed}: adds never ended: {:?}", self.adds_open);
        for node in self.nodes.iter().filter(|node| node.alive) {
            assert_eq!(node.host.inherited(), 0, "seed {seed}: an inherited member never left");
            let own = node.host.own();
            assert!(node.host.is_quiet(), "seed {seed}: frames of {:?} are unanswered", own.me);
            assert!(own.moving() == 0, "seed {seed}: elements still move at {:?}", own.me);
            // The last of the leavers holds the pool until its view has no other member.
            let left = node.leaving && own.phase != Phase::Removed;
            assert!(!left, "seed {seed}: {:?} never left: {own:?}", own.me);
        }
        assert!(
            self.nodes.iter().any(|node| node.leaving)
                || self.may_die(0)
                || self.views.last().is_none_or(|view| view.members.is_empty()),
            "seed {seed}: a member has no heir"
        );
        assert!(self.others_open.is_empty(), "seed {seed}: {:?} never ended", self.others_open);
        let present = self.living_elements();
        let mut seen = self.given.clone();
        for token in present {
            assert!(seen.insert(token), "seed {seed}: element {token} is there twice, or was given out");
        }
        for token in &self.added {
            let kept = seen.contains(token) || self.lost.contains(token);
            assert!(kept, "seed {seed}: element {token} was lost");
        }
    }
}

/// Runs one schedule. Returns the numbers of gets with and without an element, and of inherited members.
pub(super) fn run(seed: u64) -> (u64, u64, usize) {
    let mut world = World::new(seed);
    world.play();
    world.check_end();
    (world.found, world.found_empty, world.inherited)
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs schedules. Returns their number, and the sums of what they return.
fn run_all(first: u64, count: u64) -> [u64; 4] {
    (first..first + count).map(run).fold([count, 0, 0, 0], |[count, found, none, inherited], end| {
        [count, found + end.0, none + end.1, inherited + end.2 as u64]
    })
}

#[test]
fn schedules_break_no_promise() {
    let (first, count) = (number("SQUALL_SEED", 0), number("SQUALL_SCHEDULES", 140));
    let [count, found, none, _] = run_all(first, count);
    // Both answers are common.
    assert!(count < 100 || (found > 20 * count && none > 5 * count), "{found} found, {none} none");
}

#[test]
fn schedules_with_copies_break_no_promise() {
    let (first, count) = (COPIES + number("SQUALL_SEED", 0), number("SQUALL_SCHEDULES", 70) / 2);
    let [count, found, none, inherited] = run_all(first, count);
    let common = found > 20 * count && none > 5 * count && inherited > count;
    assert!(count < 50 || common, "{found} found, {none} none, {inherited} inherited");
}

#[test]
fn past_failures_stay_mended() {
    PAST_FAILURES.iter().for_each(|seed| _ = run(*seed));
}

/// Counts the kinds of failures over many seeds. For the search after a change.
#[test]
#[ignore = "a search, run by hand"]
fn survey() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut kinds: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (first, count) = (number("SQUALL_SEED", 0), number("SQUALL_SCHEDULES", 1000));
    let first = if std::env::var_os("SQUALL_COPIES").is_some() { COPIES + first } else { first };
    for seed in first..first + count {
        if let Err(panic) = std::panic::catch_unwind(|| run(seed)) {
            let text = super::twins::text(&panic);
            let kind: String = text.chars().filter(|c| !c.is_ascii_digit()).take(90).collect();
            kinds.entry(kind).or_default().push(seed);
        }
    }
    for (kind, seeds) in kinds {
        println!("{} {kind}: {:?}", seeds.len(), &seeds[..seeds.len().min(14)]);
    }
}

/// Runs one schedule with copies, by hand.
#[test]
#[ignore = "by hand"]
fn one_copied() {
    run(COPIES + number("SQUALL_SEED", 0));
}
