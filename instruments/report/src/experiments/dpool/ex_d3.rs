//! EX-D3: the pool in one server (fos, figures 6-8 to 6-12).

use squall_bench::pool::Load;
use squall_parts::bag::Strategy;

use super::{PLANTED, clients, curves, method, run, servers_name};
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in crate::experiments) static EX_D3: Experiment = Experiment {
    id: "EX-D3",
    title: "A pool in one server",
    question: "What do more servers bring if one of them holds the whole pool?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.1, figures 6-8 to 6-12.",
        found: "One server is best for all loads. With 16 servers, 15 of 16 requests need a second message to the first \
                server. The curve of two servers under the triangular load goes up and down from client to client, since \
                the last and heaviest client is at the first or at the second server by turns.",
    },
    here: method!(
        "All clients use the first shard. A client of another server counts one message per operation."
    ),
    agrees_if: "with 24 clients, messages per operation grow with each doubling of servers from 0 with one; with 16 servers and 16 \
                clients they are 15/16; and with two servers under the triangular load they rise and fall by turns with each \
                further client.",
    command: "squall report EX-D3",
    seconds: (2, 8),
    run: measure,
    verdict,
    alike: || planted(away, |clients| if clients % 2 == 0 { 0.6 } else { 0.4 }),
    opposite: || planted(|_, _| 0.5, |_| 0.5),
};

fn measure(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let list = clients(lab);
    let uniform = plot(&list, |servers, clients| {
        run(lab, Strategy::Centralized, Load::Uniform, servers, clients).messages_per_op()
    });
    let ripples =
        ripples(|clients| run(lab, Strategy::Centralized, Load::Triangle, 2, clients).messages_per_op());
    Ok(Found { plots: vec![uniform, ripples], ..Found::default() })
}

fn plot(list: &[usize], value: impl FnMut(usize, usize) -> f64) -> Plot {
    curves("ex-d3", "One shard for all, uniform load", "messages per operation", list, value)
}

fn ripples(mut value: impl FnMut(usize) -> f64) -> Plot {
    Plot {
        name: "ex-d3-triangle",
        title: "One shard for all, triangular load",
        x: Axis::linear("clients"),
        y: Axis::linear("messages per operation"),
        means: Means::Stepped,
        series: vec![Series {
            name: servers_name(2),
            points: (2..=24).map(|clients| (clients as f64, value(clients))).collect(),
        }],
    }
}

/// Part of the clients that are not at the first server.
fn away(servers: usize, clients: usize) -> f64 {
    1.0 - clients.div_ceil(servers) as f64 / clients as f64
}

fn verdict(found: &Found) -> Verdict {
    let last: Vec<f64> =
        super::SERVERS.iter().map(|&servers| found.series("ex-d3", &servers_name(servers)).last()).collect();
    let grows = last[0] == 0.0 && last.windows(2).all(|pair| pair[0] < pair[1]);
    let sixteen = found.series("ex-d3", &servers_name(16)).at(16.0);
    let curve = found.series("ex-d3-triangle", &servers_name(2)).points;
    let steps: Vec<f64> = curve.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let turns = steps.windows(2).filter(|pair| pair[0] * pair[1] < 0.0).count();
    let ripples = turns > 0 && turns + 1 == steps.len();
    let why = format!(
        "with 24 clients and 1, 2, 4, 8 and 16 servers an operation needs {:.2}, {:.2}, {:.2}, {:.2} and {:.2} messages, \
         with 16 servers and 16 clients {sixteen:.3}; under the triangular load the curve of two servers turns {turns} times \
         in {} steps",
        last[0],
        last[1],
        last[2],
        last[3],
        last[4],
        steps.len()
    );
    Verdict::of(grows && (sixteen - 15.0 / 16.0).abs() < 0.005 && ripples, why)
}

fn planted(uniform: impl Fn(usize, usize) -> f64, triangle: impl Fn(usize) -> f64) -> Found {
    Found { plots: vec![plot(&PLANTED, uniform), ripples(triangle)], ..Found::default() }
}
