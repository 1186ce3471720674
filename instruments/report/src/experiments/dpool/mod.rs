//! EX-D3 to EX-D9: the six strategies of a distributed pool (fos, §6.3), counted.
//!
//! The thesis runs servers and clients as processes on separate processors, and measures allocations per
//! cycle. Here a shard of a bag stands for a server, and one thread steps all clients in a fixed order. The
//! thesis explains its curves by the traffic between servers. That traffic is counted: the operations that
//! need another server, the messages that they send, and the transfers in the background. No time is
//! measured.

mod ex_d3;
mod ex_d4;
mod ex_d5;
mod ex_d6;
mod ex_d7;
mod ex_d8;
mod ex_d9;
mod step;

pub(super) use ex_d3::EX_D3;
pub(super) use ex_d4::EX_D4;
pub(super) use ex_d5::EX_D5;
pub(super) use ex_d6::EX_D6;
pub(super) use ex_d7::EX_D7;
pub(super) use ex_d8::EX_D8;
pub(super) use ex_d9::EX_D9;

use squall_parts::bag::Strategy;

use crate::{Axis, Lab, Means, Plot, Series};
use squall_bench::pool::Load;
use step::Tally;

/// The numbers of servers of the thesis.
const SERVERS: [usize; 5] = [1, 2, 4, 8, 16];

/// The numbers of clients: all of the thesis, or some in a quick run.
fn clients(lab: &Lab<'_>) -> Vec<usize> {
    if lab.quick { vec![1, 2, 4, 8, 12, 16, 24] } else { (1..=24).collect() }
}

/// Runs a load with this strategy.
fn run(lab: &mut Lab<'_>, strategy: Strategy, load: Load, servers: usize, clients: usize) -> Tally {
    lab.tell(&format!("{strategy:?}, {}, {servers} servers, {clients} clients", load.name()));
    step::run(strategy, load, servers, clients)
}

/// A curve for each number of servers, over the clients.
fn curves(
    name: &'static str,
    title: &'static str,
    y: &'static str,
    clients: &[usize],
    mut value: impl FnMut(usize, usize) -> f64,
) -> Plot {
    let series = SERVERS.map(|servers| Series {
        name: servers_name(servers),
        points: clients.iter().map(|&clients| (clients as f64, value(servers, clients))).collect(),
    });
    Plot {
        name,
        title,
        x: Axis::linear("clients"),
        y: Axis::linear(y),
        means: Means::Stepped,
        series: series.to_vec(),
    }
}

fn servers_name(servers: usize) -> String {
    if servers == 1 { "1 server".to_owned() } else { format!("{servers} servers") }
}

/// Clients that planted data contain.
const PLANTED: [usize; 7] = [1, 2, 4, 8, 12, 16, 24];

/// Name of the figure of a load with this many servers and clients.
fn at(what: &str, load: Load, servers: usize, clients: usize) -> String {
    format!("{what}: {}, {} and {clients} clients", load.name(), servers_name(servers))
}

/// The text of all seven experiments about their method.
macro_rules! method {
    ($more:literal) => {
        concat!(
            "The thesis runs servers and clients on separate processors. Here one thread steps the clients in turn. Each \
             makes one get of its server's shard per round. After a round each server has 100 idle events, less 25 for \
             each request that it served in the round, since a server of the thesis saturates at four clients. Before \
             the first round each server acts as often as there are servers. All elements are in the first shard at the \
             start. Messages are the questions to other shards. ",
            $more
        )
    };
}
use method;
