//! EX-D7: idle servers push (fos, figures 6-25 to 6-28).

use squall_bench::pool::Load;
use squall_parts::bag::Strategy;

use super::{PLANTED, at, clients, curves, method, run, servers_name};
use crate::{Experiment, Found, Lab, Means, Missing, Paper, Plot, Verdict};

pub(in crate::experiments) static EX_D7: Experiment = Experiment {
    id: "EX-D7",
    title: "A distributed pool whose idle servers push elements",
    question: "What does it bring if an idle server with many elements gives some to the next one?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.5, figures 6-25 to 6-28.",
        found: "It is better than the four strategies before under all loads. 16 servers are worse than 8 with few clients, since \
                servers without clients hoard elements up to the limit of 20,000.",
    },
    here: method!("Compared are the operations that need another server, which the client waits for."),
    agrees_if: "under all four loads, with 8 servers and 16 clients, pushing leaves fewer such operations than bulk transfers; and with \
                8 clients under the uniform load, 16 servers have more of them than 8.",
    command: "squall report EX-D7",
    seconds: (5, 18),
    run: measure,
    verdict,
    alike: || planted(|servers, _| if servers == 16 { 5.0 } else { 1.0 }, [15.0, 3.0]),
    opposite: || planted(|servers, _| if servers == 16 { 1.0 } else { 5.0 }, [15.0, 20.0]),
};

const KINDS: [(&str, Strategy); 2] =
    [("bulk on demand", Strategy::BulkTransfer), ("with pushes", Strategy::BackgroundPush)];
const UNIT: &str = "demand transfers per 1000 operations";

fn measure(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let list = clients(lab);
    let uniform = plot(&list, |servers, clients| {
        run(lab, Strategy::BackgroundPush, Load::Uniform, servers, clients).demand_per_1000()
    });
    Ok(make(uniform, |kind, load| run(lab, KINDS[kind].1, load, 8, 16).demand_per_1000()))
}

fn plot(list: &[usize], value: impl FnMut(usize, usize) -> f64) -> Plot {
    curves("ex-d7", "Idle servers push, uniform load", UNIT, list, value)
}

fn make(uniform: Plot, mut value: impl FnMut(usize, Load) -> f64) -> Found {
    let mut found = Found { plots: vec![uniform], ..Found::default() };
    for load in Load::ALL {
        for (kind, (name, _)) in KINDS.into_iter().enumerate() {
            found.figure(at(name, load, 8, 16), value(kind, load), UNIT, Means::Stepped);
        }
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let [bulk, push] = KINDS.map(|(name, _)| Load::ALL.map(|load| found.value(&at(name, load, 8, 16))));
    let better = bulk.iter().zip(&push).all(|(bulk, push)| push < bulk);
    let [eight, sixteen] = [8, 16].map(|servers| found.series("ex-d7", &servers_name(servers)).at(8.0));
    let why = format!(
        "of 1000 operations under the four loads {:.1}, {:.1}, {:.1} and {:.1} need another server with pushes, and {:.1}, {:.1}, \
         {:.1} and {:.1} without; with 8 clients {eight:.2} do with 8 servers, and {sixteen:.2} with 16",
        push[0], push[1], push[2], push[3], bulk[0], bulk[1], bulk[2], bulk[3]
    );
    Verdict::of(better && sixteen > eight, why)
}

fn planted(uniform: impl Fn(usize, usize) -> f64, kinds: [f64; 2]) -> Found {
    make(plot(&PLANTED, uniform), |kind, _| kinds[kind])
}
