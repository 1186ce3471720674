//! EX-D6: idle servers pull (fos, figures 6-21 to 6-24).

use squall_bench::pool::Load;
use squall_parts::bag::Strategy;

use super::{PLANTED, at, clients, curves, method, run};
use crate::{Experiment, Found, Lab, Means, Missing, Paper, Plot, Verdict};

pub(in crate::experiments) static EX_D6: Experiment = Experiment {
    id: "EX-D6",
    title: "A distributed pool whose idle servers pull elements",
    question: "What does it bring if an idle server with few elements takes some of another one in advance?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.4, figures 6-21 to 6-24.",
        found: "Nothing visible: the curves are those of bulk transfers. With fewer clients than servers it is slightly worse, \
                since servers without clients hoard elements.",
    },
    here: method!(
        "A transfer that is pulled in idle time is not on a client's path, which a time would show. So all transfers are \
         compared, on demand and pulled."
    ),
    agrees_if: "under all four loads, with 8 servers and 16 clients, pulling needs at least 0.9 times as many transfers in all as \
                bulk transfers on demand; and more with 16 servers and 8 clients.",
    command: "squall report EX-D6",
    seconds: (5, 18),
    run: measure,
    verdict,
    alike: || {
        planted(|_, _| 20.0, |strategy, servers| if strategy == 1 && servers == 16 { 20.0 } else { 18.0 })
    },
    opposite: || planted(|_, _| 5.0, |strategy, _| if strategy == 1 { 5.0 } else { 18.0 }),
};

const KINDS: [(&str, Strategy); 2] =
    [("bulk on demand", Strategy::BulkTransfer), ("with pulls", Strategy::BackgroundPull)];
/// Servers and clients of the figures.
const SIZES: [(usize, usize); 2] = [(8, 16), (16, 8)];
const UNIT: &str = "transfers per 1000 operations";

fn measure(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let list = clients(lab);
    let uniform = plot(&list, |servers, clients| {
        run(lab, Strategy::BackgroundPull, Load::Uniform, servers, clients).transfers_per_1000()
    });
    Ok(make(uniform, |kind, load, servers, clients| {
        run(lab, KINDS[kind].1, load, servers, clients).transfers_per_1000()
    }))
}

fn plot(list: &[usize], value: impl FnMut(usize, usize) -> f64) -> Plot {
    curves("ex-d6", "Idle servers pull, uniform load", UNIT, list, value)
}

fn make(uniform: Plot, mut value: impl FnMut(usize, Load, usize, usize) -> f64) -> Found {
    let mut found = Found { plots: vec![uniform], ..Found::default() };
    for load in Load::ALL {
        for (servers, clients) in SIZES {
            for (kind, (name, _)) in KINDS.into_iter().enumerate() {
                let value = value(kind, load, servers, clients);
                found.figure(at(name, load, servers, clients), value, UNIT, Means::Stepped);
            }
        }
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let ratios = |(servers, clients)| {
        Load::ALL.map(|load| {
            let [bulk, pull] = KINDS.map(|(name, _)| found.value(&at(name, load, servers, clients)));
            pull / bulk
        })
    };
    let [busy, idle] = SIZES.map(ratios);
    let why = format!(
        "with pulls there are {:.2}, {:.2}, {:.2} and {:.2} times as many transfers under the four loads with 8 servers and 16 \
         clients, and {:.2}, {:.2}, {:.2} and {:.2} times with 16 servers and 8 clients",
        busy[0], busy[1], busy[2], busy[3], idle[0], idle[1], idle[2], idle[3]
    );
    Verdict::of(busy.iter().all(|times| *times >= 0.9) && idle.iter().all(|times| *times > 1.0), why)
}

fn planted(uniform: impl Fn(usize, usize) -> f64, value: impl Fn(usize, usize) -> f64) -> Found {
    make(plot(&PLANTED, uniform), |kind, _, servers, _| value(kind, servers))
}
