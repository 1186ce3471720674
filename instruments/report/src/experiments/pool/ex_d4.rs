//! EX-D4 over messages: the pool spread over servers, one element at a time (fos, figures 6-13 to 6-16).

use squall_bench::pool::{Load, Strategy};

use super::{MESSAGES, QUICK, RATE, Source, Values, at, clients, curves, last, method, points, run, told};
use crate::{Experiment, Found, Means, Paper, Verdict};

pub(in crate::experiments) static EX_D4: Experiment = Experiment {
    id: "EX-D4-messages",
    title: "A distributed pool that moves single elements, over messages",
    question: "What does an own list in each server bring, if a dry server asks the others for one element?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.2, pages 124 to 127, figures 6-13 to 6-16.",
        found: "More servers make it slower. With many servers and few clients it is even slower than the pool in one server, \
                since a dry server asks empty servers before the first one.",
    },
    here: method!("The pool has a tenth of the pages in all runs: the counts per get are the same."),
    agrees_if: "with 24 clients, messages per get grow with each doubling of servers, and the rate falls from 1 to 2 and from 8 to \
                16 servers; and with 16 servers and 2 or 4 clients the rate is below that of the pool in one server.",
    command: "squall report EX-D4-messages",
    seconds: (20, 100),
    run: |lab| {
        let list = clients(lab);
        Ok(found(&list, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || {
        found(&QUICK, &mut |strategy, _, servers, _| Values {
            messages: servers as f64 - 1.0,
            rate: if strategy == Strategy::Centralized { 50.0 } else { 40.0 / servers as f64 },
            ..Values::default()
        })
    },
    opposite: || found(&QUICK, &mut |_, _, servers, _| Values { rate: servers as f64, ..Values::default() }),
};

/// Numbers of clients that are few.
const FEW: [usize; 2] = [2, 4];
const KINDS: [(&str, Strategy); 2] =
    [("distributed", Strategy::Distributed), ("in one server", Strategy::Centralized)];

fn found(list: &[usize], of: &mut Source<'_>) -> Found {
    let points = points(Strategy::Distributed, Load::Uniform, list, of);
    let mut found = Found {
        plots: vec![
            curves("ex-d4-messages", "Single elements on demand, uniform load", MESSAGES, &points, |it| {
                it.messages
            }),
            curves("ex-d4-rate", "Single elements on demand, uniform load", RATE, &points, |it| it.rate),
        ],
        ..Found::default()
    };
    for (kind, strategy) in KINDS {
        for clients in FEW {
            let rate = of(strategy, Load::Uniform, 16, clients).rate;
            found.figure(at(kind, Load::Uniform, 16, clients), rate, RATE, Means::Stepped);
        }
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let messages = last(found, "ex-d4-messages");
    let rates = last(found, "ex-d4-rate");
    let [own, central] =
        KINDS.map(|(kind, _)| FEW.map(|clients| found.value(&at(kind, Load::Uniform, 16, clients))));
    let grows = messages.windows(2).all(|pair| pair[0] < pair[1]);
    let falls = rates[1] < rates[0] && rates[4] < rates[3];
    let why = format!(
        "with 24 clients and 1, 2, 4, 8 and 16 servers a get takes {} messages, and the rates are {} gets per ms; with 16 \
         servers and 2 or 4 clients they are {}, and {} with the pool in one server",
        told(&messages),
        told(&rates),
        told(&own),
        told(&central)
    );
    Verdict::of(grows && falls && own[0] < central[0] && own[1] < central[1], why)
}
