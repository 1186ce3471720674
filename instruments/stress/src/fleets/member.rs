//! The body of a member process: counters in shards, and an echo.

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use squall::Owned;
use squall::fleet::{
    GroupKey, Growth, GrowthOptions, HostTransport, NameCapability, NameOptions, Node, NodeBuilder, NodeLoad,
    ServiceCall, ShardService, Transport,
};

use super::books::SHARDS;
use super::breaks::Break;
use super::state::{ShardState, words};
use super::{COUNTERS, ECHO_NAME, PATIENCE, name};
use crate::run::lock;
use crate::skeleton::breaks::Breaks;

/// Counts a call.
pub(super) const COUNT: u64 = 1;
/// Counts a call, and returns late.
pub(super) const COUNT_LATE: u64 = 2;
/// Returns the state of the shard.
pub(super) const READ: u64 = 3;
/// The time between a run and its result in a late call.
const LATE: Duration = Duration::from_millis(2);

/// The object that all members serve.
#[squall::interface(remote)]
pub(crate) trait Echo: Send + Sync {
    /// Returns the two numbers, mixed.
    fn echo(&self, client: u64, number: u64) -> u64;
}

/// The result of `echo`.
pub(super) fn mixed(client: u64, number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ client
}

/// The news of a member to its parent, one on each line of its standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The member founded the group. The right to all names follows.
    Founded(String),
    /// The member serves.
    Ready,
    /// A call ran: the client, the shard or the number that stands for the echo, and the number of the call.
    Ran(u64, u32, u64),
    /// A shard has begun with an empty state.
    Born,
    /// The member decides for its fleet, which wants a further member.
    Wants,
    /// The fleet asks this member to leave.
    Asked,
    /// The member has left the group.
    Left,
    /// A promise is broken.
    Wrong(String),
}

impl News {
    fn line(&self) -> String {
        match self {
            News::Founded(right) => format!("founded {right}\n"),
            News::Ready => "ready\n".to_owned(),
            News::Ran(client, place, number) => format!("ran {client} {place} {number}\n"),
            News::Born => "born\n".to_owned(),
            News::Wants => "wants\n".to_owned(),
            News::Asked => "asked\n".to_owned(),
            News::Left => "left\n".to_owned(),
            News::Wrong(why) => format!("wrong {}\n", why.replace('\n', " ")),
        }
    }

    pub(super) fn parse(line: &str) -> Option<News> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        Some(match kind {
            "founded" => News::Founded(rest.to_owned()),
            "ready" => News::Ready,
            "ran" => {
                let mut numbers = rest.split(' ');
                let client = numbers.next()?.parse().ok()?;
                let place = numbers.next()?.parse().ok()?;
                News::Ran(client, place, numbers.next()?.parse().ok()?)
            }
            "born" => News::Born,
            "wants" => News::Wants,
            "asked" => News::Asked,
            "left" => News::Left,
            "wrong" => News::Wrong(rest.to_owned()),
            _ => return None,
        })
    }
}

/// Tells news. The process ends if its parent has closed the pipe.
fn tell(news: &News) {
    // One write: a killed process has told a line whole, or no part of it.
    let mut out = io::stdout().lock();
    if out.write_all(news.line().as_bytes()).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}

fn wrong(why: String) -> ! {
    tell(&News::Wrong(why));
    std::process::exit(1);
}

/// The part of a member. It arrives on the standard input, since arguments of a process are no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) key: GroupKey,
    /// The right to all names, unless this member founds the group.
    pub(super) root: Option<String>,
    /// The endpoint of the transport.
    pub(super) endpoint: String,
    pub(super) broken: Option<Break>,
    /// The bounds of a fleet that chooses its own size.
    pub(super) grows: Option<(u32, u32)>,
    /// Endpoints of living members.
    pub(super) seeds: Vec<String>,
}

impl Part {
    pub(super) fn line(&self) -> String {
        let broken = Break::ALL.iter().find(|(_, planned)| Some(*planned) == self.broken);
        let broken = broken.map_or("-", |(name, _)| name);
        let root = self.root.as_deref().unwrap_or("-");
        let (least, most) = self.grows.unwrap_or_default();
        let seeds = self.seeds.join(",");
        format!("{} {root} {} {broken} {least} {most} {seeds}\n", self.key, self.endpoint)
    }

    fn parse(line: &str) -> Option<Part> {
        let fields: Vec<&str> = line.trim_end_matches('\n').split(' ').collect();
        let [key, root, endpoint, broken, least, most, seeds] = fields[..] else { return None };
        let broken = match broken {
            "-" => None,
            name => Some(Break::ALL.iter().find(|(known, _)| *known == name)?.1),
        };
        let (least, most) = (least.parse().ok()?, most.parse().ok()?);
        Some(Part {
            grows: (most > 0).then_some((least, most)),
            key: key.parse().ok()?,
            root: (root != "-").then(|| root.to_owned()),
            endpoint: endpoint.to_owned(),
            broken,
            seeds: seeds.split(',').filter(|seed| !seed.is_empty()).map(str::to_owned).collect(),
        })
    }
}

/// The fleet of counters, and the echo.
#[derive(Clone)]
struct Services {
    shards: Arc<Mutex<HashMap<u32, ShardState>>>,
    broken: Option<Break>,
}

impl Services {
    fn count(&self, client: u64, shard: u32, number: u64) -> Option<Vec<u8>> {
        let mut shards = lock(&self.shards);
        let state = shards.get_mut(&shard)?;
        if !state.calls.entry(client).or_default().add(number) {
            // The parent finds that it ran before.
            drop(shards);
            tell(&News::Ran(client, shard, number));
            return None;
        }
        state.count += 1;
        let result = [state.life.to_le_bytes(), state.count.to_le_bytes()].concat();
        drop(shards);
        // Before the result leaves.
        tell(&News::Ran(client, shard, number));
        if self.broken == Some(Break::RunTwice) && number.is_multiple_of(64) {
            tell(&News::Ran(client, shard, number));
        }
        Some(result)
    }

    fn begin(&self, shard: u32, state: ShardState, how: &str) {
        if lock(&self.shards).insert(shard, state).is_some() {
            wrong(format!("shard {shard} is {how}, although the member has it"));
        }
    }
}

fn new_life() -> ShardState {
    let now = clock_gettime(ClockId::Monotonic);
    let life = now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs();
    ShardState { life, ..ShardState::default() }
}

impl ShardService for Services {
    fn create(&self, shard: u32) {
        tell(&News::Born);
        self.begin(shard, new_life(), "created");
    }

    fn import(&self, shard: u32, state: &[u8]) {
        match ShardState::from_bytes(state) {
            Some(_) if self.broken == Some(Break::BeginAnew) => self.create(shard),
            Some(state) => self.begin(shard, state, "imported"),
            None => wrong(format!("the state of shard {shard} arrived as {} other bytes", state.len())),
        }
    }

    fn export(&self, shard: u32) -> Vec<u8> {
        let Some(mut state) = lock(&self.shards).get(&shard).cloned() else {
            wrong(format!("shard {shard} is exported, although the member does not have it"));
        };
        if self.broken == Some(Break::LoseInMove)
            && let Some((client, spans)) = state.calls.pop_first()
        {
            let fewer = spans.numbers().take(spans.count() as usize - 1).map(|number| (number, number));
            state.calls.insert(client, super::spans::Spans::from_parts(fewer));
            state.count -= 1;
        }
        state.to_bytes()
    }

    fn forget(&self, shard: u32) {
        if lock(&self.shards).remove(&shard).is_none() {
            wrong(format!("shard {shard} is forgotten, although the member does not have it"));
        }
    }

    fn call(&self, shard: u32, call: ServiceCall<'_>) -> Option<Vec<u8>> {
        if call.method == READ {
            return lock(&self.shards).get(&shard).map(ShardState::to_bytes);
        }
        let [client, number] = words(call.body)?[..] else { return None };
        let result = self.count(client, shard, number);
        if call.method == COUNT_LATE {
            thread::sleep(LATE);
        }
        result
    }
}

impl Echo for Services {
    fn echo(&self, client: u64, number: u64) -> u64 {
        tell(&News::Ran(client, super::books::ECHO, number));
        mixed(client, number)
    }
}

/// Runs a member process, until its parent closes its input or asks it to leave. Its part is the first line
/// of its input.
///
/// # Errors
/// The input is not that of a member, the member does not join in time, or the system refuses something.
pub fn member() -> Result<(), String> {
    end_with_parent().map_err(|error| error.to_string())?;
    let mut input = io::stdin().lock();
    let mut line = String::new();
    input.read_line(&mut line).map_err(|error| error.to_string())?;
    let part = Part::parse(&line).ok_or("the input is not that of a member of a demo or a stress")?;
    let (node, root) = enter(&part)?;
    let services = Services { shards: Arc::default(), broken: part.broken };
    let object: Owned<dyn Echo> = squall::shared(services.clone());
    let refused = |error| format!("a service was not registered: {error}");
    let right = node.serve_shards(&name(COUNTERS), &root, SHARDS, services).map_err(refused)?;
    let options = NameOptions::new().stateless();
    node.serve_object(&name(ECHO_NAME), &root, options, object.handle()).map_err(refused)?;
    let waiting = Arc::new(AtomicU64::new(0));
    if let Some(bounds) = part.grows {
        grow(&node, &right, bounds, &waiting)?;
    }
    tell(&News::Ready);
    loop {
        line.clear();
        input.read_line(&mut line).map_err(|error| error.to_string())?;
        let Some(load) = line.strip_prefix(LOAD) else { break };
        let load = load.trim_end().parse().map_err(|_| format!("{load:?} is no load"))?;
        // Relaxed: the load publishes no other data.
        waiting.store(load, Ordering::Relaxed);
    }
    if line == LEAVE {
        node.leave(PATIENCE).map_err(|error| format!("the member cannot leave: {error}"))?;
        tell(&News::Left);
    }
    // The node ends before its object.
    drop(node);
    drop(object);
    Ok(())
}

/// Lets the fleet of counters choose its size, by a load that the parent tells. The parent starts members.
fn grow(
    node: &Node,
    right: &NameCapability,
    (least, most): (u32, u32),
    waiting: &Arc<AtomicU64>,
) -> Result<(), String> {
    let waiting = Arc::clone(waiting);
    // Relaxed: the load publishes no other data.
    let load = move || NodeLoad { waiting: waiting.load(Ordering::Relaxed), ..NodeLoad::default() };
    let start = || {
        tell(&News::Wants);
        Ok(())
    };
    // The rate of calls changes no size: it depends on the machine.
    let options = GrowthOptions::new(least, most).calls_max(u64::MAX - 1).waiting_max(WAITING_MAX).looks(2);
    let options = options.look_every(Duration::from_millis(20)).pause(Duration::from_millis(100));
    let growth = node.grow_by(right, options.start_limit(PATIENCE), load, start);
    let growth = growth.map_err(|error| format!("the fleet does not choose its size: {error}"))?;
    let asked = move || tell_if_asked(&growth);
    let thread = thread::Builder::new().name("stress-growth".to_owned()).spawn(asked);
    thread.map(drop).map_err(|error| error.to_string())
}

/// Tells the parent if the fleet asks this member to leave.
fn tell_if_asked(growth: &Growth) {
    while !growth.wait_to_leave(PATIENCE) {}
    tell(&News::Asked);
    // The member answers until it has left.
    loop {
        thread::park();
    }
}

/// Lets the process end with its parent.
pub(crate) fn end_with_parent() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that died before the signal was set has written the part perhaps, and closed the pipe.
    let input = io::stdin();
    let mut looked = [PollFd::new(&input, PollFlags::empty())];
    poll(&mut looked, Some(&Timespec::default()))?;
    match looked[0].revents().contains(PollFlags::HUP) {
        true => Err(io::Error::other("the parent of the member has ended")),
        false => Ok(()),
    }
}

/// The line that asks a member to leave.
pub(super) const LEAVE: &str = "leave\n";
/// Begins the line that tells a member its load: calls that wait.
pub(super) const LOAD: &str = "load ";
/// The most waiting calls of a member of a fleet that does not grow.
pub(super) const WAITING_MAX: u64 = 10;

fn enter(part: &Part) -> Result<(Node, NameCapability), String> {
    let bad = |error: io::Error| format!("there is no transport {}: {error}", part.endpoint);
    let builder = NodeBuilder::new(part.key);
    #[cfg(feature = "net")]
    if let Some(address) = part.endpoint.strip_prefix("tcp/") {
        let address: std::net::SocketAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
        let transport = squall_net::Tcp::builder(address).build().map_err(bad)?;
        // Each host is a machine of its own.
        let host = match address.ip() {
            std::net::IpAddr::V4(ip) => u32::from(ip).into(),
            std::net::IpAddr::V6(ip) => u128::from(ip) as u64,
        };
        return enter_by(part, builder.host(host), transport);
    }
    let name = part.endpoint.strip_prefix("host/").ok_or("the endpoint of a member begins with host/")?;
    enter_by(part, builder, HostTransport::bind(name).map_err(bad)?)
}

fn enter_by(
    part: &Part,
    builder: NodeBuilder,
    transport: impl Transport,
) -> Result<(Node, NameCapability), String> {
    let Some(root) = &part.root else {
        let (node, root) = builder.found(transport, &[]).map_err(|error| error.to_string())?;
        tell(&News::Founded(root.to_string()));
        return Ok((node, root));
    };
    let root: NameCapability = root.parse().map_err(|_| "the right to all names is malformed")?;
    let seeds: Vec<&str> = part.seeds.iter().map(String::as_str).collect();
    let node = builder.join(transport, &seeds).map_err(|error| error.to_string())?;
    node.wait_joined(PATIENCE).map_err(|error| format!("the member has not joined: {error}"))?;
    Ok((node, root))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_and_parts_arrive() {
        let news = [
            News::Founded("12/".to_owned()),
            News::Ready,
            News::Ran(3, 16, u64::MAX),
            News::Born,
            News::Wants,
            News::Asked,
            News::Left,
            News::Wrong("two words".to_owned()),
        ];
        for news in news {
            assert_eq!(News::parse(news.line().trim_end()), Some(news));
        }
        assert_eq!([News::parse("ran 1 2"), News::parse("running 1 test")], [None, None]);
        let key: GroupKey = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let seeds = vec!["host/a".to_owned(), "host/b".to_owned()];
        let (grows, endpoint) = (Some((3, 5)), "host/a".to_owned());
        let founder = Part { key, root: None, endpoint, broken: None, grows, seeds: Vec::new() };
        let other = Part {
            root: Some("5/".to_owned()),
            broken: Some(Break::RunTwice),
            grows: None,
            seeds,
            ..founder.clone()
        };
        for part in [founder, other] {
            assert_eq!(Part::parse(&part.line()), Some(part));
        }
        assert_eq!(Part::parse("\n"), None);
    }
}
