//! The simulation: servers, clients and messages, in virtual time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use squall_pool::protocol::{
    Attributes, Command, Completion, Counts, MemberId, OpId, Output, Shard, View, is_acknowledgement,
};

use super::{ACK_NS, CLIENT_NS, IDLE_EVENT_NS, SERVICE_NS, Setup, Strategy, Tally};

/// Bytes of an element: the number of a page.
const PAGE_BYTES: usize = 4;

/// An input of a server.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Input {
    /// A client asks for a page.
    Get { client: usize },
    /// A client gives back a page.
    Free { client: usize },
    /// A frame of another server.
    Frame { from: usize, bytes: Vec<u8> },
    /// A pause of the protocol has passed.
    Tick,
}

impl Input {
    /// Time in which a server handles it.
    fn service_ns(&self) -> u64 {
        match self {
            Input::Frame { bytes, .. } if is_acknowledgement(bytes) => ACK_NS,
            _ => SERVICE_NS,
        }
    }
}

/// Something that happens at a time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive {
        server: usize,
        input: Input,
    },
    /// A server has handled its first input, or has sent the frames of an idle act.
    Done {
        server: usize,
        acted: bool,
    },
    /// A server was idle for as many events as an act needs, unless it was busy since this spell began.
    Idle {
        server: usize,
        spell: u64,
    },
    Reply {
        client: usize,
    },
}

struct Server {
    shard: Shard,
    queue: VecDeque<Input>,
    busy: bool,
    /// Idle time that is left until the next act.
    idle_ns: u64,
    idle_since: u64,
    /// The number of the present spell of idleness.
    spell: u64,
    /// Time of the tick that is on its way.
    wake: Option<u64>,
}

struct Client {
    server: usize,
    left: u64,
    pages: Vec<Vec<u8>>,
}

struct World {
    setup: Setup,
    /// Idle time per act.
    act_ns: u64,
    now: u64,
    next: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    servers: Vec<Server>,
    clients: Vec<Client>,
    /// Whether idle servers of this strategy do anything.
    acts: bool,
    /// For each page, whether a client has it.
    taken: Vec<bool>,
    /// Clients that have not given back all their pages.
    freeing: usize,
    tally: Tally,
}

/// Nanoseconds of the simulation per unit of the protocol's clock.
const PER_TIME: u64 = 1000;

fn shards(count: usize, attributes: &Attributes) -> Vec<Shard> {
    let members: Vec<MemberId> = (0..count as u64).map(MemberId).collect();
    let view = View::new(1, members.clone());
    let make = |id: &MemberId| {
        let mut shard = Shard::new(*id, 0, attributes.clone());
        shard.install(0, &view);
        shard
    };
    members.iter().map(make).collect()
}

impl World {
    fn new(setup: &Setup) -> World {
        // No frame is lost here, so none is sent again. `idle` is called once for all events of an act.
        let attributes = setup.size.attributes(setup.strategy);
        let act_ns = u64::from(attributes.idle_events) * IDLE_EVENT_NS;
        let attributes = Attributes { resend: u64::MAX, idle_events: 1, ..attributes };
        let server = |shard| Server {
            shard,
            queue: VecDeque::new(),
            busy: false,
            idle_ns: act_ns,
            idle_since: 0,
            spell: 0,
            wake: None,
        };
        let client = |client| Client { server: client % setup.servers, left: 0, pages: Vec::new() };
        World {
            setup: *setup,
            act_ns,
            now: 0,
            next: 0,
            events: BinaryHeap::new(),
            servers: shards(setup.servers, &attributes).into_iter().map(server).collect(),
            clients: (0..setup.clients).map(client).collect(),
            acts: !matches!(
                setup.strategy,
                Strategy::Centralized | Strategy::Distributed | Strategy::BulkTransfer
            ),
            taken: vec![false; setup.size.pages(setup.servers) as usize],
            freeing: 0,
            tally: Tally::default(),
        }
    }

    fn schedule(&mut self, after_ns: u64, event: Event) {
        self.events.push(Reverse((self.now + after_ns, self.next, event)));
        self.next += 1;
    }

    /// Does the next event.
    fn step(&mut self) {
        let Some(Reverse((at, _, event))) = self.events.pop() else {
            panic!("clients wait, and no event is left: {:?}", self.setup)
        };
        self.now = at;
        match event {
            Event::Arrive { server, input } => {
                self.servers[server].queue.push_back(input);
                self.begin(server);
            }
            Event::Done { server, acted } => {
                self.servers[server].busy = false;
                if !acted && let Some(input) = self.servers[server].queue.pop_front() {
                    self.handle(server, input);
                }
                self.begin(server);
            }
            Event::Idle { server, spell } => {
                let it = &self.servers[server];
                if !it.busy && it.spell == spell {
                    self.act(server);
                }
            }
            Event::Reply { client } => self.replied(client),
        }
    }

    /// Begins with the next input of a server, or its spell of idleness.
    fn begin(&mut self, server: usize) {
        let now = self.now;
        let it = &mut self.servers[server];
        if it.busy {
            return;
        }
        if it.queue.is_empty() && !self.acts {
            return;
        }
        if it.queue.is_empty() {
            it.spell += 1;
            it.idle_since = now;
            let (spell, idle_ns) = (it.spell, it.idle_ns);
            return self.schedule(idle_ns, Event::Idle { server, spell });
        }
        it.busy = true;
        if it.idle_since < now {
            it.idle_ns -= (now - it.idle_since).min(it.idle_ns);
        }
        it.idle_since = u64::MAX;
        let after_ns = it.queue.front().map_or(0, Input::service_ns);
        self.schedule(after_ns, Event::Done { server, acted: false });
    }

    /// The background work of an idle server.
    fn act(&mut self, server: usize) {
        let it = &mut self.servers[server];
        it.idle_ns = self.act_ns;
        it.shard.idle(self.now / PER_TIME);
        let sent = self.collect(server);
        if sent {
            let it = &mut self.servers[server];
            (it.busy, it.idle_since) = (true, u64::MAX);
            self.schedule(SERVICE_NS, Event::Done { server, acted: true });
        } else {
            self.begin(server);
        }
    }

    fn handle(&mut self, server: usize, input: Input) {
        let now = self.now / PER_TIME;
        let shard = &mut self.servers[server].shard;
        match input {
            Input::Get { client } => {
                shard.command(now, OpId(client as u64), Command::GetElement { size_max: PAGE_BYTES });
            }
            Input::Free { client } => {
                let page = self.clients[client].pages.pop().expect("the client has a page");
                self.taken[number(&page)] = false;
                shard.command(now, OpId(client as u64), Command::AddElement(page));
            }
            Input::Frame { from, bytes } => shard.receive(now, MemberId(from as u64), &bytes),
            Input::Tick => {
                self.servers[server].wake = None;
                self.servers[server].shard.tick(now);
            }
        }
        self.collect(server);
        self.wake(server);
    }

    /// Takes the outputs of a shard. Returns whether there were frames.
    fn collect(&mut self, server: usize) -> bool {
        let (to_server, to_client) = (self.setup.placement.server_ns(), self.setup.placement.client_ns());
        let mut sent = false;
        for output in self.servers[server].shard.take_outputs() {
            match output {
                Output::Send { to, frame } => {
                    sent = true;
                    let input = Input::Frame { from: server, bytes: frame };
                    self.schedule(to_server, Event::Arrive { server: to.0 as usize, input });
                }
                // The operations of a client have its number.
                Output::Completed { op: OpId(op), result } if (op as usize) < self.clients.len() => {
                    let client = op as usize;
                    match result {
                        Completion::Got(page) => self.take(client, page),
                        Completion::Empty => self.tally.empty += 1,
                        Completion::Added => {}
                        other => panic!("an operation ended as {other:?}: {:?}", self.setup),
                    }
                    self.schedule(to_client, Event::Reply { client });
                }
                Output::Completed { result, .. } => {
                    assert_eq!(result, Completion::Added, "the first server adds at once: {:?}", self.setup);
                }
                _ => {}
            }
        }
        sent
    }

    fn take(&mut self, client: usize, page: Vec<u8>) {
        let had = std::mem::replace(&mut self.taken[number(&page)], true);
        assert!(!had, "page {} was given out twice: {:?}", number(&page), self.setup);
        self.clients[client].pages.push(page);
    }

    /// Schedules the next tick of a shard. Times of frames to be sent again are never reached.
    fn wake(&mut self, server: usize) {
        let it = &mut self.servers[server];
        let Some(at) = it.shard.wake_at().filter(|at| *at < u64::MAX / PER_TIME) else { return };
        if it.wake.is_none_or(|known| at < known) {
            it.wake = Some(at);
            let after = (at * PER_TIME).saturating_sub(self.now);
            self.schedule(after, Event::Arrive { server, input: Input::Tick });
        }
    }

    /// Goes on with a client whose operation has ended.
    fn replied(&mut self, client: usize) {
        let it = &mut self.clients[client];
        if it.left == 0 {
            return self.give_back(client);
        }
        it.left -= 1;
        self.tally.gets += 1;
        if it.left > 0 {
            self.request(client, CLIENT_NS);
        }
    }

    /// Gives back the next page of a client.
    fn give_back(&mut self, client: usize) {
        let it = &self.clients[client];
        if !it.pages.is_empty() {
            let (server, after_ns) = (it.server, self.setup.placement.client_ns());
            self.schedule(after_ns, Event::Arrive { server, input: Input::Free { client } });
        } else {
            self.freeing -= 1;
        }
    }

    fn request(&mut self, client: usize, after_ns: u64) {
        let server = self.clients[client].server;
        let after_ns = after_ns + self.setup.placement.client_ns();
        self.schedule(after_ns, Event::Arrive { server, input: Input::Get { client } });
    }

    fn run_until(&mut self, end: u64) {
        while self.events.peek().is_some_and(|Reverse((at, ..))| *at <= end) {
            self.step();
        }
        self.now = end;
    }

    /// Puts all pages into the first shard. Then all servers are idle, each for as many acts as there are
    /// servers, and again.
    fn fill(&mut self) {
        let ops = self.clients.len() as u64;
        let first = &mut self.servers[0].shard;
        for page in 0..self.taken.len() as u32 {
            let op = OpId(ops + u64::from(page));
            first.command(0, op, Command::AddElement(page.to_le_bytes().to_vec()));
        }
        (0..self.servers.len()).for_each(|server| {
            self.collect(server);
            self.begin(server);
        });
        self.run_until(2 * self.servers.len() as u64 * self.act_ns);
    }

    /// All clients take their pages.
    fn phase(&mut self, pages: &[u64]) {
        let (began, before) = (self.now, self.counts());
        for (client, left) in pages.iter().enumerate().filter(|(_, left)| **left > 0) {
            self.clients[client].left = *left;
            self.request(client, 0);
        }
        while self.clients.iter().any(|client| client.left > 0) {
            self.step();
        }
        let after = self.counts();
        let tally = &mut self.tally;
        tally.time_ns += self.now - began;
        tally.messages += after.messages - before.messages;
        tally.frames += after.frames - before.frames;
        tally.demand_transfers += after.demand_transfers - before.demand_transfers;
        tally.demanded += after.demanded - before.demanded;
        tally.background_transfers += after.background_transfers - before.background_transfers;
    }

    /// All clients give back their pages, one after the other.
    fn free(&mut self) {
        self.freeing = self.clients.len();
        (0..self.clients.len()).for_each(|client| self.give_back(client));
        while self.freeing > 0 {
            self.step();
        }
    }

    fn counts(&self) -> Counts {
        let counts = self.servers.iter().map(|server| server.shard.counts());
        counts.fold(Counts::default(), Counts::plus)
    }
}

fn number(page: &[u8]) -> usize {
    let bytes = page.try_into().expect("an element is the number of a page");
    u32::from_le_bytes(bytes) as usize
}

pub(super) fn run(setup: &Setup) -> Tally {
    let mut world = World::new(setup);
    world.fill();
    for (at, pages) in setup.load.phases(setup.size, setup.servers, setup.clients).iter().enumerate() {
        if at > 0 {
            world.free();
        }
        world.phase(pages);
    }
    world.tally
}

#[cfg(test)]
mod tests {
    use super::super::{Load, Placement, Size};
    use super::*;

    fn setup(strategy: Strategy, load: Load, servers: usize, clients: usize) -> Setup {
        Setup { strategy, load, servers, clients, placement: Placement::NearClients, size: Size::Tenth }
    }

    /// 30 of 40 virtual microseconds pass between two requests of a client, so a server is busy with four.
    #[test]
    fn one_server_sends_no_frame_and_is_busy_with_four_clients() {
        for (clients, rate) in [(1, 25.0), (2, 50.0), (4, 100.0), (8, 100.0)] {
            let tally = setup(Strategy::Distributed, Load::Uniform, 1, clients).run();
            assert_eq!((tally.messages, tally.frames, tally.empty), (0, 0, 0));
            assert!((tally.gets_per_ms() - rate).abs() < 0.1, "{clients}: {}", tally.gets_per_ms());
        }
    }

    /// With two servers, the pages of every second client are at the other one.
    #[test]
    fn a_get_of_the_other_server_takes_a_question_and_an_answer() {
        for strategy in [Strategy::Centralized, Strategy::Distributed] {
            let tally = setup(strategy, Load::Uniform, 2, 4).run();
            assert_eq!(
                (tally.messages, tally.demand_transfers * 2),
                (tally.gets, tally.gets),
                "{strategy:?}"
            );
        }
        let bulk = setup(Strategy::BulkTransfer, Load::Uniform, 2, 4).run();
        assert_eq!(bulk.messages, 2 * bulk.demand_transfers);
        // Gets that wait together share a transfer, and the last one may be in part unused.
        assert!(bulk.demanded.div_ceil(50) <= bulk.demand_transfers && bulk.demanded * 2 >= bulk.gets);
    }

    #[test]
    fn each_strategy_serves_both_phases_and_runs_are_equal() {
        for strategy in Strategy::ALL {
            let setup = setup(strategy, Load::TwoPhase, 2, 3);
            let (one, two) = (setup.run(), setup.run());
            let pages: u64 = setup.load.phases(setup.size, 2, 3).iter().flatten().sum();
            assert_eq!((one.gets, one.empty, one), (pages, 0, two), "{strategy:?}");
        }
    }

    #[test]
    #[should_panic(expected = "a pool needs a server and a client")]
    fn a_pool_without_clients_is_refused() {
        let _ = setup(Strategy::Directory, Load::Uniform, 2, 0).run();
    }
}
