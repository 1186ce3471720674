//! EX-D3 over messages: the pool in one server (fos, figures 6-8 to 6-12).

use squall_bench::pool::{Load, SERVERS, Strategy};

use super::{
    MESSAGES, QUICK, RATE, Source, Values, clients, curves, last, method, points, run, servers_name, told,
};
use crate::{Axis, Experiment, Found, Means, Paper, Plot, Series, Verdict};

pub(in crate::experiments) static EX_D3: Experiment = Experiment {
    id: "EX-D3-messages",
    title: "A pool in one server, over messages",
    question: "What do more servers bring if one of them holds the whole pool?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.1, pages 120 to 124, figures 6-8 to 6-12.",
        found: "One server is best for all loads. With 16 servers, 15 of 16 requests need another server. The curve of two \
                servers under the triangular load goes up and down from client to client.",
    },
    here: method!(
        "A get of another server's client takes two messages, a question and its answer. The thesis' rates fall beyond four \
         or eight clients; a server here is never slower with more clients, so ours stay."
    ),
    agrees_if: "no number of servers has a higher rate than one, under all loads with 4, 8, 16 and 24 clients; with 24 clients \
                messages per get grow with each doubling of servers; with 16 servers and 16 clients they are 2 times 15/16; \
                and with two servers under the triangular load they rise and fall by turns.",
    command: "squall report EX-D3-messages",
    seconds: (12, 25),
    run: |lab| {
        let list = clients(lab);
        Ok(found(&list, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || {
        found(&QUICK, &mut |_, load, servers, clients| Values {
            messages: match load {
                Load::Triangle => 1.0 + 0.1 * (clients % 2) as f64,
                _ => 2.0 * away(servers, clients),
            },
            rate: 100.0 / servers as f64,
            ..Values::default()
        })
    },
    opposite: || {
        found(&QUICK, &mut |_, _, servers, _| Values {
            messages: 1.0,
            rate: servers as f64,
            ..Values::default()
        })
    },
};

const CLIENTS: [usize; 4] = [4, 8, 16, 24];

/// Part of the clients that are not at the first server.
fn away(servers: usize, clients: usize) -> f64 {
    1.0 - clients.div_ceil(servers) as f64 / clients as f64
}

fn found(list: &[usize], of: &mut Source<'_>) -> Found {
    let points = points(Strategy::Centralized, Load::Uniform, list, of);
    let mut found = Found {
        plots: vec![
            curves("ex-d3-messages", "One shard for all, uniform load", MESSAGES, &points, |it| it.messages),
            curves("ex-d3-rate", "One shard for all, uniform load", RATE, &points, |it| it.rate),
        ],
        ..Found::default()
    };
    let ripples = (2..=24)
        .map(|clients| (clients as f64, of(Strategy::Centralized, Load::Triangle, 2, clients).messages));
    found.plots.push(Plot {
        name: "ex-d3-messages-triangle",
        title: "One shard for all, triangular load",
        x: Axis::linear("clients"),
        y: Axis::linear(MESSAGES),
        means: Means::Stepped,
        series: vec![Series { name: servers_name(2), points: ripples.collect() }],
    });
    for load in Load::ALL {
        // The highest rate of several servers, in parts of the rate of one.
        let mut best: f64 = 0.0;
        for clients in CLIENTS {
            let one = of(Strategy::Centralized, load, 1, clients).rate;
            for servers in &SERVERS[1..] {
                best = best.max(of(Strategy::Centralized, load, *servers, clients).rate / one);
            }
        }
        found.figure(best_name(load), best, "of the rate of one server", Means::Stepped);
    }
    found
}

fn best_name(load: Load) -> String {
    format!("highest rate of several servers, {}", load.name())
}

fn verdict(found: &Found) -> Verdict {
    let last = last(found, "ex-d3-messages");
    let grows = last[0] == 0.0 && last.windows(2).all(|pair| pair[0] < pair[1]);
    let sixteen = found.series("ex-d3-messages", &servers_name(16)).at(16.0);
    let curve = found.series("ex-d3-messages-triangle", &servers_name(2)).points;
    let steps: Vec<f64> = curve.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
    let turns = steps.windows(2).filter(|pair| pair[0] * pair[1] < 0.0).count();
    let best = Load::ALL.map(|load| found.value(&best_name(load)));
    let why = format!(
        "with 24 clients and 1, 2, 4, 8 and 16 servers a get takes {} messages, with 16 servers and 16 clients \
         {sixteen:.3}; several servers reach at most {} of the rate of one under the four loads; under the triangular load \
         the curve of two servers turns {turns} times in {} steps",
        told(&last),
        told(&best),
        steps.len()
    );
    let ripples = turns > 0 && turns + 1 == steps.len();
    let holds =
        grows && (sixteen - 15.0 / 8.0).abs() < 0.01 && best.iter().all(|best| *best <= 1.001) && ripples;
    Verdict::of(holds, why)
}
