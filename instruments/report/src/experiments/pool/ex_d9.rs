//! EX-D9 over messages: the six strategies compared (fos, §6.3.7), and the seventh of Squall.

use squall_bench::pool::{Load, Strategy, costs, name};

use super::{DEMAND, MESSAGES, RATE, Source, TRANSFERS, Values, method, run, told};
use crate::{Experiment, Found, Means, Paper, Verdict};

pub(in crate::experiments) static EX_D9: Experiment = Experiment {
    id: "EX-D9-messages",
    title: "Seven strategies of a distributed pool, over messages",
    question: "Does one strategy win under all loads, and what does a directory of filled servers add?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.7, pages 142 to 143.",
        found: "The ranking is the same under all loads: pushes with estimates, pushes, bulk transfers about equal to pulls, and \
                at the end single elements and the pool in one server.",
    },
    here: method!(
        "A figure is the mean over 8, 16 and 24 clients of 8 servers. Pushes without estimates move many elements to and fro, \
         but in idle time, which costs nothing. So estimates save transfers, not time. The seventh strategy is Squall's: \
         a dry server asks the first one for a server with elements. With two servers and many clients that is a question more, and \
         it is slower; the reason names both cases."
    ),
    agrees_if: "under all four loads both kinds of pushes have a higher rate than bulk transfers, and these than the last two; \
                estimates save transfers in all, at 0.95 times the rate of pushes or more; the seventh strategy has at most as \
                many demand transfers as the sixth, at 0.95 times its rate or more; and with 16 servers it needs fewer messages \
                in the worst case, and for a join no more.",
    command: "squall report EX-D9-messages",
    seconds: (35, 200),
    run: |lab| {
        let worst = [SIXTH, SEVENTH].map(|strategy| {
            let costs = costs(strategy, 16);
            [costs.worst_get, costs.empty_get, costs.join].map(|count| count as f64)
        });
        Ok(found(worst, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || {
        found([[30.0, 60.0, 2.0], [4.0, 2.0, 2.0]], &mut |strategy, _, _, _| {
            let place = place(strategy);
            Values {
                demand: [900.0, 850.0, 80.0, 40.0, 5.0, 5.0, 3.0][place],
                transfers: [900.0, 850.0, 80.0, 80.0, 200.0, 25.0, 25.0][place],
                rate: [50.0, 40.0, 300.0, 310.0, 350.0, 360.0, 361.0][place],
                messages: 1.0,
            }
        })
    },
    opposite: || {
        found([[30.0, 60.0, 2.0], [40.0, 80.0, 16.0]], &mut |strategy, _, _, _| {
            let place = place(strategy) as f64;
            Values { demand: place, transfers: place, rate: 100.0 - place, messages: 1.0 }
        })
    },
};

const SIXTH: Strategy = Strategy::EstimatedPush;
const SEVENTH: Strategy = Strategy::Directory;
const CLIENTS: [usize; 3] = [8, 16, 24];
/// Servers and clients of two more cases: half of the servers have no client, and all servers are busy.
const EDGES: [(usize, usize); 2] = [(16, 8), (2, 16)];
const COSTS: [&str; 3] = ["a get in the worst case", "a get in an empty pool", "a join"];
/// A figure's name, its unit, and its value.
type Part = (&'static str, &'static str, fn(&Values) -> f64);
const PARTS: [Part; 4] = [
    ("demand", DEMAND, |it| it.demand),
    ("transfers", TRANSFERS, |it| it.transfers),
    ("messages", MESSAGES, |it| it.messages),
    ("rate", RATE, |it| it.rate),
];

fn place(strategy: Strategy) -> usize {
    Strategy::ALL.iter().position(|it| *it == strategy).unwrap_or(0)
}

fn found(worst: [[f64; 3]; 2], of: &mut Source<'_>) -> Found {
    let mut found = Found::default();
    for load in Load::ALL {
        for strategy in Strategy::ALL {
            let all = CLIENTS.map(|clients| of(strategy, load, 8, clients));
            for (part, unit, value) in PARTS {
                let mean = all.iter().map(value).sum::<f64>() / CLIENTS.len() as f64;
                found.figure(at(part, load, strategy), mean, unit, Means::Stepped);
            }
        }
        for (servers, clients) in EDGES {
            for strategy in [SIXTH, SEVENTH] {
                let rate = of(strategy, load, servers, clients).rate;
                found.figure(edge(load, strategy, servers, clients), rate, RATE, Means::Stepped);
            }
        }
    }
    for (strategy, counts) in [SIXTH, SEVENTH].into_iter().zip(worst) {
        for (what, count) in COSTS.into_iter().zip(counts) {
            found.figure(cost(what, strategy), count, "messages", Means::Stepped);
        }
    }
    found
}

fn at(part: &str, load: Load, strategy: Strategy) -> String {
    format!("{part}: {}, {}", load.name(), name(strategy))
}

fn edge(load: Load, strategy: Strategy, servers: usize, clients: usize) -> String {
    format!("rate with {servers} servers and {clients} clients: {}, {}", load.name(), name(strategy))
}

fn cost(what: &str, strategy: Strategy) -> String {
    format!("{what} with 16 servers: {}", name(strategy))
}

fn verdict(found: &Found) -> Verdict {
    let (mut holds, mut rows) = (true, Vec::new());
    for load in Load::ALL {
        let of = |part: &str| Strategy::ALL.map(|strategy| found.value(&at(part, load, strategy)));
        let [central, single, bulk, _, push, sixth, seventh] = of("rate");
        let [_, _, _, _, _, sixth_demand, seventh_demand] = of("demand");
        let [_, _, _, _, all_push, all_sixth, _] = of("transfers");
        holds &= push.min(sixth) > bulk && bulk > single.max(central);
        holds &= all_sixth < all_push && sixth >= 0.95 * push;
        holds &= seventh_demand <= sixth_demand && seventh >= 0.95 * sixth;
        rows.push(format!("{} {}", load.name(), told(&of("rate"))));
    }
    let [sixth, seventh] =
        [SIXTH, SEVENTH].map(|strategy| COSTS.map(|what| found.value(&cost(what, strategy))));
    holds &= seventh[0] < sixth[0] && seventh[1] < sixth[1] && seventh[2] <= sixth[2];
    let edges = EDGES.map(|(servers, clients)| {
        Load::ALL.map(|load| {
            let rate = |strategy| found.value(&edge(load, strategy, servers, clients));
            rate(SEVENTH) / rate(SIXTH)
        })
    });
    let why = format!(
        "gets per ms of the seven strategies: {}; messages of a get in the worst case, of one in an empty pool and of a join \
         are {} with the sixth and {} with the seventh; the seventh has {} times the rate of the sixth under the four loads \
         with 16 servers and 8 clients, and {} times with 2 and 16",
        rows.join("; "),
        told(&sixth),
        told(&seventh),
        told(&edges[0]),
        told(&edges[1])
    );
    Verdict::of(holds, why)
}
