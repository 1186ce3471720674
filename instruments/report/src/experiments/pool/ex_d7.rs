//! EX-D7 over messages: idle servers push (fos, figures 6-25 to 6-28).

use squall_bench::pool::{Load, Strategy};

use super::{
    DEMAND, QUICK, RATE, Source, Values, at, clients, curves, last, method, points, run, servers_name, told,
};
use crate::{Experiment, Found, Means, Paper, Verdict};

pub(in crate::experiments) static EX_D7: Experiment = Experiment {
    id: "EX-D7-messages",
    title: "A distributed pool whose idle servers push elements, over messages",
    question: "What does it bring if an idle server with many elements gives some to the next one?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.5, pages 134 to 137, figures 6-25 to 6-28.",
        found: "It is better than the four strategies before under all loads. 8 and 16 servers still gain at 24 clients. 16 \
                servers are worse than 8 with few clients, since servers without clients hoard elements up to the limit.",
    },
    here: method!("Pulls are not compared: here they gain too, see EX-D6-messages."),
    agrees_if: "under all four loads, with 8 servers and 16 clients, pushing leaves at most half of the demand transfers of bulk \
                transfers, with a higher rate; with 8 and 16 servers the rate grows from 16 to 24 clients; and with 8 clients, 16 \
                servers have more demand transfers than 8.",
    command: "squall report EX-D7-messages",
    seconds: (12, 250),
    run: |lab| {
        let list = clients(lab);
        Ok(found(&list, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || {
        found(&QUICK, &mut |strategy, _, servers, clients| {
            let pushes = strategy == Strategy::BackgroundPush;
            let demand = if !pushes { 80.0 } else { servers as f64 / 8.0 };
            Values { demand, rate: clients as f64 + if pushes { 5.0 } else { 0.0 }, ..Values::default() }
        })
    },
    opposite: || {
        found(&QUICK, &mut |strategy, _, servers, _| {
            let pushes = strategy == Strategy::BackgroundPush;
            let demand = if pushes { 160.0 / servers as f64 } else { 1.0 };
            Values { demand, rate: if pushes { 1.0 } else { 2.0 }, ..Values::default() }
        })
    },
};

const KINDS: [(&str, Strategy); 2] =
    [("bulk on demand", Strategy::BulkTransfer), ("with pushes", Strategy::BackgroundPush)];

fn found(list: &[usize], of: &mut Source<'_>) -> Found {
    let points = points(Strategy::BackgroundPush, Load::Uniform, list, of);
    let mut found = Found {
        plots: vec![
            curves("ex-d7-demand", "Idle servers push, uniform load", DEMAND, &points, |it| it.demand),
            curves("ex-d7-rate", "Idle servers push, uniform load", RATE, &points, |it| it.rate),
        ],
        ..Found::default()
    };
    for load in Load::ALL {
        for (kind, strategy) in KINDS {
            let values = of(strategy, load, 8, 16);
            found.figure(at(&format!("demand {kind}"), load, 8, 16), values.demand, DEMAND, Means::Stepped);
            found.figure(at(&format!("rate {kind}"), load, 8, 16), values.rate, RATE, Means::Stepped);
        }
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let pair = |part: &str| {
        KINDS.map(|(kind, _)| Load::ALL.map(|load| found.value(&at(&format!("{part} {kind}"), load, 8, 16))))
    };
    let ([bulk, push], [bulk_rate, push_rate]) = (pair("demand"), pair("rate"));
    let better = bulk.iter().zip(&push).all(|(bulk, push)| *push <= 0.5 * bulk)
        && bulk_rate.iter().zip(&push_rate).all(|(bulk, push)| push > bulk);
    let rises = [8, 16].map(|servers| {
        let curve = found.series("ex-d7-rate", &servers_name(servers));
        curve.at(24.0) > curve.at(16.0)
    });
    let few = [8, 16].map(|servers| found.series("ex-d7-demand", &servers_name(servers)).at(8.0));
    let why = format!(
        "of 1000 gets under the four loads {} wait for a transfer with pushes, and {} without, at rates of {} and {} gets per \
         ms; with 8 clients {} do with 8 and 16 servers; with 24 clients and 1, 2, 4, 8 and 16 servers the rates are {}",
        told(&push),
        told(&bulk),
        told(&push_rate),
        told(&bulk_rate),
        told(&few),
        told(&last(found, "ex-d7-rate"))
    );
    Verdict::of(better && rises == [true, true] && few[1] > few[0], why)
}
