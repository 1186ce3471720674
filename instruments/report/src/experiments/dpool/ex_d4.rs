//! EX-D4: the pool spread over servers, one element at a time (fos, figures 6-13 to 6-16).

use squall_bench::pool::Load;
use squall_parts::bag::Strategy;

use super::{PLANTED, SERVERS, at, clients, curves, method, run, servers_name};
use crate::{Experiment, Found, Lab, Means, Missing, Paper, Plot, Verdict};

pub(in crate::experiments) static EX_D4: Experiment = Experiment {
    id: "EX-D4",
    title: "A distributed pool that moves single elements",
    question: "What does an own list in each server bring, if a dry server asks the others for one element?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.2, figures 6-13 to 6-16.",
        found: "More servers make it slower. With many servers and few clients it is even slower than the pool in one server, \
                since a dry server asks empty servers before the first one.",
    },
    here: method!(
        "The slight gain of the triangular load in the thesis is one of time, and is not compared."
    ),
    agrees_if: "with 24 clients, messages per operation grow with each doubling of servers; and with 16 servers and 2 or 4 \
                clients they are more than with the pool in one server.",
    command: "squall report EX-D4",
    seconds: (5, 20),
    run: measure,
    verdict,
    alike: || planted(|servers, _| servers as f64 / 2.0 - 0.5, [4.0, 6.0], [0.5, 0.75]),
    opposite: || planted(|servers, _| 16.0 / servers as f64, [0.1, 0.1], [0.5, 0.75]),
};

/// Numbers of clients that are few.
const FEW: [usize; 2] = [2, 4];
const KINDS: [(&str, Strategy); 2] =
    [("distributed", Strategy::Distributed), ("in one server", Strategy::Centralized)];

fn measure(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let list = clients(lab);
    let uniform = plot(&list, |servers, clients| {
        run(lab, Strategy::Distributed, Load::Uniform, servers, clients).messages_per_op()
    });
    let few = KINDS.map(|(_, strategy)| {
        FEW.map(|clients| run(lab, strategy, Load::Uniform, 16, clients).messages_per_op())
    });
    Ok(make(uniform, few))
}

fn plot(list: &[usize], value: impl FnMut(usize, usize) -> f64) -> Plot {
    curves("ex-d4", "Single elements on demand, uniform load", "messages per operation", list, value)
}

fn make(uniform: Plot, few: [[f64; 2]; 2]) -> Found {
    let mut found = Found { plots: vec![uniform], ..Found::default() };
    for ((kind, _), values) in KINDS.into_iter().zip(few) {
        for (clients, value) in FEW.into_iter().zip(values) {
            found.figure(
                at(kind, Load::Uniform, 16, clients),
                value,
                "messages per operation",
                Means::Stepped,
            );
        }
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let last: Vec<f64> =
        SERVERS.iter().map(|&servers| found.series("ex-d4", &servers_name(servers)).last()).collect();
    let grows = last.windows(2).all(|pair| pair[0] < pair[1]);
    let [own, central] =
        KINDS.map(|(kind, _)| FEW.map(|clients| found.value(&at(kind, Load::Uniform, 16, clients))));
    let why = format!(
        "with 24 clients and 2, 4, 8 and 16 servers an operation needs {:.2}, {:.2}, {:.2} and {:.2} messages; with 16 \
         servers and 2 or 4 clients {:.2} or {:.2}, and {:.2} or {:.2} with the pool in one server",
        last[1], last[2], last[3], last[4], own[0], own[1], central[0], central[1]
    );
    Verdict::of(grows && own[0] > central[0] && own[1] > central[1], why)
}

fn planted(uniform: impl Fn(usize, usize) -> f64, own: [f64; 2], central: [f64; 2]) -> Found {
    make(plot(&PLANTED, uniform), [own, central])
}
