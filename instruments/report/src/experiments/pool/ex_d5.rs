//! EX-D5 over messages: bulk transfers (fos, figures 6-17 to 6-20).

use squall_bench::pool::{Load, Strategy};

use super::{
    MESSAGES, QUICK, RATE, Source, Values, at, clients, curves, last, method, points, run, servers_name, told,
};
use crate::{Experiment, Found, Means, Paper, Verdict};

pub(in crate::experiments) static EX_D5: Experiment = Experiment {
    id: "EX-D5-messages",
    title: "A distributed pool that moves 50 elements at once, over messages",
    question: "What does it bring if a dry server takes 50 elements instead of one?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.3, pages 127 to 131, figures 6-17 to 6-20.",
        found: "Performance grows with the clients, and 1, 2 and 4 servers limit it by and by. 16 servers are a little below 8: \
                under 16 clients, servers without clients are asked in vain; above, the load is less even.",
    },
    here: method!(
        "Servers without clients are also asked here. Near 24 clients the rates of 8 and 16 servers differ by less than in \
         the thesis, and may be the other way round. Linux is not compared."
    ),
    agrees_if: "with 24 clients the rates grow with the servers from 1 to 8; single elements need at least five times as many \
                demand transfers with 4, 8 and 16 servers; and with 16 clients, 16 servers send more messages per get than 8 \
                and have at most 1.02 times their rate.",
    command: "squall report EX-D5-messages",
    seconds: (4, 70),
    run: |lab| {
        let list = clients(lab);
        Ok(found(&list, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || {
        found(&QUICK, &mut |strategy, _, servers, _| Values {
            messages: servers as f64 / 20.0,
            demand: if strategy == Strategy::Distributed { 900.0 } else { 90.0 },
            rate: servers.min(8) as f64,
            ..Values::default()
        })
    },
    opposite: || {
        found(&QUICK, &mut |_, _, servers, _| Values {
            demand: 90.0,
            rate: 16.0 / servers as f64,
            ..Values::default()
        })
    },
};

const MANY: [usize; 3] = [4, 8, 16];
const TIMES: &str = "demand transfers of single elements, relative to those of 50";

fn found(list: &[usize], of: &mut Source<'_>) -> Found {
    let points = points(Strategy::BulkTransfer, Load::Uniform, list, of);
    let mut found = Found {
        plots: vec![
            curves("ex-d5-messages", "50 elements on demand, uniform load", MESSAGES, &points, |it| {
                it.messages
            }),
            curves("ex-d5-rate", "50 elements on demand, uniform load", RATE, &points, |it| it.rate),
        ],
        ..Found::default()
    };
    for servers in MANY {
        let [single, bulk] = [Strategy::Distributed, Strategy::BulkTransfer]
            .map(|strategy| of(strategy, Load::Uniform, servers, 24).demand);
        found.figure(at(TIMES, Load::Uniform, servers, 24), single / bulk, "times", Means::Stepped);
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let rates = last(found, "ex-d5-rate");
    let times = MANY.map(|servers| found.value(&at(TIMES, Load::Uniform, servers, 24)));
    let with_16 = |plot| [8, 16].map(|servers| found.series(plot, &servers_name(servers)).at(16.0));
    let (messages, rate) = (with_16("ex-d5-messages"), with_16("ex-d5-rate"));
    let grows = rates[..4].windows(2).all(|pair| pair[0] < pair[1]);
    let why = format!(
        "with 24 clients and 1, 2, 4, 8 and 16 servers the rates are {} gets per ms; single elements need {} times as many \
         demand transfers with 4, 8 and 16 servers; with 16 clients 8 and 16 servers send {} messages per get, and have {} \
         gets per ms",
        told(&rates),
        told(&times),
        told(&messages),
        told(&rate)
    );
    let behind = messages[1] > messages[0] && rate[1] <= 1.02 * rate[0];
    Verdict::of(grows && times.iter().all(|times| *times >= 5.0) && behind, why)
}
