//! A pool shared by messages, under the loads of the thesis, in virtual time.
//!
//! Problem: the thesis runs 16 servers and 24 clients on processors of their own. This machine may have two.
//! Idea: real shards of `squall-pool` run in a simulation. Each server handles one input at a time, and each
//! message takes a fixed time. So all counts are exact, and equal in each run. Times are virtual, and follow
//! from the counts and four constants.
//!
//! - I1. A server handles requests of clients, frames of other servers and its own timeouts in the order of
//!   their arrival, each for [`SERVICE_NS`]. Its answers leave at the end of that time. A frame that only
//!   acknowledges takes [`ACK_NS`].
//! - I2. A server without inputs has an idle event every [`IDLE_EVENT_NS`], as a scheduler that polls. An
//!   idle act that sends frames takes [`SERVICE_NS`], and only then the server handles its next input.
//! - I3. Each page is at one place: a page that is given out twice ends the run with a panic.
//! - I4. Counts are those of the phases in which clients take pages. Filling the pool, the time before the
//!   clients begin, and giving pages back between two phases are left out.
//!
//! Not promised: the times of a real machine. The constants are chosen so that a server of the thesis is busy
//! with four clients, as in its figure 6-8.
//! Cost: about a microsecond of real time for each frame.
//!
//! Source: Wentzlaff, *fos*, PhD thesis 2012, §6.2 (EX-D1): the loads, the number of pages, all of them at
//! the first server at the start, clients dealt to servers in turn.

mod find;
mod load;
mod world;

pub use find::{Costs, costs};
pub use load::Load;
pub use squall_pool::protocol::Strategy;

use squall_pool::protocol::Attributes;

/// Time in which a server handles an input, in nanoseconds.
pub const SERVICE_NS: u64 = 10_000;
/// Time in which a server handles a frame that only acknowledges others.
pub const ACK_NS: u64 = 1_000;
/// Time between two idle events of a server without inputs. A server that is always idle acts once in the
/// time of four requests.
pub const IDLE_EVENT_NS: u64 = 400;
/// Time of a client between a page and its next request: it maps and clears the page.
pub const CLIENT_NS: u64 = 26_000;
/// Time of a message between neighbours.
pub const NEAR_NS: u64 = 2_000;
/// Time of a message between processors that are apart.
pub const FAR_NS: u64 = 4_000;

/// The numbers of servers of the thesis.
pub const SERVERS: [usize; 5] = [1, 2, 4, 8, 16];

/// The name of a strategy in rows.
#[must_use]
pub fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::Centralized => "centralized",
        Strategy::Distributed => "distributed",
        Strategy::BulkTransfer => "bulk",
        Strategy::BackgroundPull => "pull",
        Strategy::BackgroundPush => "push",
        Strategy::EstimatedPush => "estimated-push",
        Strategy::Directory => "directory",
    }
}

/// Placement of servers and clients on processors (fos, figure 6-33).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Each server is beside its clients, and far from other servers.
    NearClients,
    /// All servers are side by side, and far from the clients.
    Together,
}

impl Placement {
    /// Time of a message between a client and its server, in nanoseconds.
    fn client_ns(self) -> u64 {
        match self {
            Placement::NearClients => NEAR_NS,
            Placement::Together => FAR_NS,
        }
    }

    /// Time of a message between two servers, in nanoseconds.
    fn server_ns(self) -> u64 {
        match self {
            Placement::NearClients => FAR_NS,
            Placement::Together => NEAR_NS,
        }
    }
}

/// The numbers of pages, and the constants of the strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// The sizes of the thesis: 65,536 pages per server.
    Thesis,
    /// A tenth of all of them but the 50 elements of a transfer, for a quick run.
    Tenth,
}

impl Size {
    /// Both sizes.
    pub const ALL: [Size; 2] = [Size::Thesis, Size::Tenth];

    fn part(self, number: u64) -> u64 {
        match self {
            Size::Thesis => number,
            Size::Tenth => number.div_ceil(10),
        }
    }

    /// The pages of the pool.
    #[must_use]
    pub fn pages(self, servers: usize) -> u64 {
        self.part(65_536) * servers as u64
    }

    /// Pages per server and client that the uniform load leaves.
    fn left_uniform(self) -> u64 {
        self.part(1024)
    }

    /// Pages per client that the other loads leave.
    fn left(self) -> u64 {
        self.part(256)
    }

    /// The attributes of the pool.
    fn attributes(self, strategy: Strategy) -> Attributes {
        let whole = Attributes::new(strategy);
        let part = |number: usize| self.part(number as u64) as usize;
        Attributes {
            pull_below: part(whole.pull_below),
            push_above: part(whole.push_above),
            estimate_step: part(whole.estimate_step),
            push_margin: part(whole.push_margin),
            ..whole
        }
    }
}

/// A run: a strategy, a load, and the servers and clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// The strategy of the pool.
    pub strategy: Strategy,
    /// The pages that clients take.
    pub load: Load,
    /// The number of servers, at least one.
    pub servers: usize,
    /// The number of clients, at least one. Client `c` has server `c` modulo the number of servers.
    pub clients: usize,
    /// Distances between servers and clients.
    pub placement: Placement,
    /// The number of pages.
    pub size: Size,
}

/// Counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Gets of clients.
    pub gets: u64,
    /// Gets that found the pool empty. The loads never drain it.
    pub empty: u64,
    /// Messages between servers, without acknowledgements.
    pub messages: u64,
    /// Frames between servers, with acknowledgements.
    pub frames: u64,
    /// Transfers that a server with an empty shard had to wait for.
    pub demand_transfers: u64,
    /// Pages of these transfers.
    pub demanded: u64,
    /// Transfers by idle servers.
    pub background_transfers: u64,
    /// Virtual time until the slowest client has its pages, in nanoseconds.
    pub time_ns: u64,
}

impl Tally {
    fn per_get(&self, count: u64) -> f64 {
        count as f64 / self.gets as f64
    }

    /// Messages between servers, per get.
    #[must_use]
    pub fn messages_per_get(&self) -> f64 {
        self.per_get(self.messages)
    }

    /// Demand transfers per 1000 gets.
    #[must_use]
    pub fn demand_per_1000(&self) -> f64 {
        self.per_get(self.demand_transfers) * 1000.0
    }

    /// Transfers on demand and by idle servers, per 1000 gets.
    #[must_use]
    pub fn transfers_per_1000(&self) -> f64 {
        self.per_get(self.demand_transfers + self.background_transfers) * 1000.0
    }

    /// Gets of all clients per millisecond of virtual time, until the slowest client is done.
    #[must_use]
    pub fn gets_per_ms(&self) -> f64 {
        self.gets as f64 * 1e6 / self.time_ns as f64
    }
}

impl Setup {
    /// Runs the load and returns its counts.
    ///
    /// # Panics
    /// `servers` or `clients` is zero.
    #[must_use]
    pub fn run(&self) -> Tally {
        assert!(self.servers > 0 && self.clients > 0, "a pool needs a server and a client: {self:?}");
        world::run(self)
    }
}
