//! EX-D1 to EX-D10 over messages: the pool of the thesis (fos, chapter 6), simulated.
//!
//! Problem: the thesis runs up to 16 servers and 24 clients on processors of their own. Idea: real shards of
//! `squall-pool` run in the simulation of [`squall_bench::pool`], in virtual time.
//!
//! - I1. Messages and transfers are exact counts. Rates follow from them and the constants of the
//!   simulation.
//! - I2. Each experiment computes its figures by one function from the values of runs. Planted data go
//!   through it too.
//!
//! EX-D2, the kernel's own allocator, is no simulation. `squall bench page-alloc` times it on real pages.

mod ex_d1;
mod ex_d10;
mod ex_d2;
mod ex_d3;
mod ex_d4;
mod ex_d5;
mod ex_d6;
mod ex_d7;
mod ex_d8;
mod ex_d9;

pub(super) use ex_d1::EX_D1;
pub(super) use ex_d2::EX_D2;
pub(super) use ex_d3::EX_D3;
pub(super) use ex_d4::EX_D4;
pub(super) use ex_d5::EX_D5;
pub(super) use ex_d6::EX_D6;
pub(super) use ex_d7::EX_D7;
pub(super) use ex_d8::EX_D8;
pub(super) use ex_d9::EX_D9;
pub(super) use ex_d10::EX_D10;

use squall_bench::pool::{Load, Placement, SERVERS, Setup, Size, Strategy, Tally, name};

use crate::{Axis, Lab, Means, Plot, Series};

/// Values of a run that the experiments compare.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Values {
    /// Messages between servers per get.
    messages: f64,
    /// Demand transfers per 1000 gets.
    demand: f64,
    /// Demand transfers and those of idle servers, per 1000 gets.
    transfers: f64,
    /// Gets per millisecond of virtual time.
    rate: f64,
}

impl From<Tally> for Values {
    fn from(tally: Tally) -> Values {
        Values {
            messages: tally.messages_per_get(),
            demand: tally.demand_per_1000(),
            transfers: tally.transfers_per_1000(),
            rate: tally.gets_per_ms(),
        }
    }
}

/// Gives the values of a run: of the simulation, or planted ones.
type Source<'a> = dyn FnMut(Strategy, Load, usize, usize) -> Values + 'a;

const MESSAGES: &str = "messages per get";
const DEMAND: &str = "demand transfers per 1000 gets";
const TRANSFERS: &str = "transfers per 1000 gets";
const RATE: &str = "gets per virtual ms";

/// The numbers of clients of a plot: all of the thesis, or some in a quick run.
fn clients(lab: &Lab<'_>) -> Vec<usize> {
    if lab.quick { QUICK.to_vec() } else { (1..=24).collect() }
}

/// Clients of a quick run, and of planted data.
const QUICK: [usize; 5] = [2, 4, 8, 16, 24];

/// The size of a run. The first two strategies have no constants, so their counts per get hardly change with
/// the number of pages.
fn size(strategy: Strategy, quick: bool) -> Size {
    let has_constants = !matches!(strategy, Strategy::Centralized | Strategy::Distributed);
    if has_constants && !quick { Size::Thesis } else { Size::Tenth }
}

fn run_at(
    lab: &mut Lab<'_>,
    strategy: Strategy,
    load: Load,
    (servers, clients): (usize, usize),
    placement: Placement,
) -> Values {
    lab.tell(&format!("{}, {}, {servers} servers, {clients} clients", name(strategy), load.name()));
    let size = size(strategy, lab.quick);
    Setup { strategy, load, servers, clients, placement, size }.run().into()
}

fn run(lab: &mut Lab<'_>, strategy: Strategy, load: Load, servers: usize, clients: usize) -> Values {
    run_at(lab, strategy, load, (servers, clients), Placement::NearClients)
}

fn servers_name(servers: usize) -> String {
    if servers == 1 { "1 server".to_owned() } else { format!("{servers} servers") }
}

/// Name of the figure of a load with this many servers and clients.
fn at(what: &str, load: Load, servers: usize, clients: usize) -> String {
    format!("{what}: {}, {} and {clients} clients", load.name(), servers_name(servers))
}

/// The points of a plot: for each number of servers and of clients, the values of a run.
fn points(
    strategy: Strategy,
    load: Load,
    clients: &[usize],
    of: &mut Source<'_>,
) -> Vec<(usize, Vec<(usize, Values)>)> {
    let line = |servers: usize| {
        (servers, clients.iter().map(|&clients| (clients, of(strategy, load, servers, clients))).collect())
    };
    SERVERS.into_iter().map(line).collect()
}

/// A curve for each number of servers, over the clients.
fn curves(
    name: &'static str,
    title: &'static str,
    y: &'static str,
    points: &[(usize, Vec<(usize, Values)>)],
    value: fn(&Values) -> f64,
) -> Plot {
    let series = points.iter().map(|(servers, line)| Series {
        name: servers_name(*servers),
        points: line.iter().map(|(clients, values)| (*clients as f64, value(values))).collect(),
    });
    Plot {
        name,
        title,
        x: Axis::linear("clients"),
        y: Axis::linear(y),
        means: Means::Stepped,
        series: series.collect(),
    }
}

/// The last values of a plot's curves, by the number of servers.
fn last(found: &crate::Found, plot: &str) -> [f64; 5] {
    SERVERS.map(|servers| found.series(plot, &servers_name(servers)).last())
}

/// Numbers in a sentence.
fn told(values: &[f64]) -> String {
    let words: Vec<String> = values.iter().map(|value| crate::page::digits(*value)).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}

/// The text of all experiments about their method.
macro_rules! method {
    ($more:literal) => {
        concat!(
            "A simulation runs the shards of `squall-pool`. A server handles one request or frame at a time, in 10 us of \
             virtual time. A message takes 2 us to a neighbour and 4 us to others, and a client asks again 26 us after its \
             page, so one server is busy with four clients. Idle time costs nothing: a server acts after 40 us without work. \
             Frames that only acknowledge take 1 us, and are no messages here. ",
            $more
        )
    };
}
use method;

#[cfg(test)]
mod tests;
