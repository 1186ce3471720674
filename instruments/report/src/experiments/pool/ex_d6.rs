//! EX-D6 over messages: idle servers pull (fos, figures 6-21 to 6-24).

use squall_bench::pool::{Load, Strategy};

use super::{
    DEMAND, MESSAGES, QUICK, RATE, Source, TRANSFERS, Values, at, clients, curves, method, points, run, told,
};
use crate::{Experiment, Found, Means, Paper, Verdict};

pub(in crate::experiments) static EX_D6: Experiment = Experiment {
    id: "EX-D6-messages",
    title: "A distributed pool whose idle servers pull elements, over messages",
    question: "What does it bring if an idle server with few elements takes some of another one in advance?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.4, pages 131 to 134, figures 6-21 to 6-24.",
        found: "Little or nothing: the curves are those of bulk transfers. With fewer clients than servers it is slightly worse, \
                since servers without clients hoard elements.",
    },
    here: method!(
        "So a pull in idle time spares a client's wait, and the rate may rise. The thesis measured no such gain. Pulls have \
         the price that it names: they are not fewer than the transfers on demand that they replace."
    ),
    agrees_if: "under all four loads, with 8 servers and 16 clients and with 16 servers and 8 clients, pulling needs at least 0.9 \
                times as many transfers in all as bulk transfers on demand, and more messages; and with 8 servers the rate \
                differs by less than 5 %.",
    command: "squall report EX-D6-messages",
    seconds: (12, 200),
    run: |lab| {
        let list = clients(lab);
        Ok(found(&list, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || {
        found(&QUICK, &mut |strategy, _, _, _| {
            let pulls = strategy == Strategy::BackgroundPull;
            let (messages, demand) = if pulls { (0.5, 30.0) } else { (0.2, 80.0) };
            Values { messages, demand, transfers: 80.0, rate: 300.0 }
        })
    },
    opposite: || {
        found(&QUICK, &mut |strategy, _, _, _| match strategy {
            Strategy::BackgroundPull => Values { messages: 0.1, demand: 1.0, transfers: 5.0, rate: 400.0 },
            _ => Values { messages: 0.2, demand: 80.0, transfers: 80.0, rate: 200.0 },
        })
    },
};

const KINDS: [(&str, Strategy); 2] =
    [("bulk on demand", Strategy::BulkTransfer), ("with pulls", Strategy::BackgroundPull)];
/// Servers and clients of the figures.
const SIZES: [(usize, usize); 2] = [(8, 16), (16, 8)];
/// A figure's name, its unit, and its value.
type Part = (&'static str, &'static str, fn(&Values) -> f64);
const PARTS: [Part; 3] = [
    ("messages", MESSAGES, |it| it.messages),
    ("transfers", TRANSFERS, |it| it.transfers),
    ("rate", RATE, |it| it.rate),
];

fn found(list: &[usize], of: &mut Source<'_>) -> Found {
    let points = points(Strategy::BackgroundPull, Load::Uniform, list, of);
    let mut found = Found {
        plots: vec![
            curves("ex-d6-messages", "Idle servers pull, uniform load", MESSAGES, &points, |it| it.messages),
            curves("ex-d6-demand", "Idle servers pull, uniform load", DEMAND, &points, |it| it.demand),
            curves("ex-d6-rate", "Idle servers pull, uniform load", RATE, &points, |it| it.rate),
        ],
        ..Found::default()
    };
    for load in Load::ALL {
        for (servers, clients) in SIZES {
            for (kind, strategy) in KINDS {
                let values = of(strategy, load, servers, clients);
                for (part, unit, value) in PARTS {
                    let name = at(&format!("{part} {kind}"), load, servers, clients);
                    found.figure(name, value(&values), unit, Means::Stepped);
                }
            }
        }
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let ratios = |part: &str, (servers, clients)| {
        Load::ALL.map(|load| {
            let [bulk, pull] =
                KINDS.map(|(kind, _)| found.value(&at(&format!("{part} {kind}"), load, servers, clients)));
            pull / bulk
        })
    };
    let [messages, transfers] = ["messages", "transfers"].map(|part| SIZES.map(|size| ratios(part, size)));
    let rates = ratios("rate", SIZES[0]);
    let why = format!(
        "with pulls, 8 servers and 16 clients, there are {} times as many messages under the four loads, {} times as many \
         transfers, and {} times the rate; with 16 servers and 8 clients {} times as many messages",
        told(&messages[0]),
        told(&transfers[0]),
        told(&rates),
        told(&messages[1])
    );
    let price = messages.iter().flatten().all(|times| *times > 1.0)
        && transfers.iter().flatten().all(|times| *times >= 0.9);
    Verdict::of(price && rates.iter().all(|times| (0.95..1.05).contains(times)), why)
}
