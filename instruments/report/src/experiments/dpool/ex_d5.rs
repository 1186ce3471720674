//! EX-D5: bulk transfers (fos, figures 6-17 to 6-20).

use squall_bench::pool::Load;
use squall_parts::bag::Strategy;

use super::{PLANTED, at, clients, curves, method, run, servers_name};
use crate::{Experiment, Found, Lab, Means, Missing, Paper, Plot, Verdict};

pub(in crate::experiments) static EX_D5: Experiment = Experiment {
    id: "EX-D5",
    title: "A distributed pool that moves 50 elements at once",
    question: "What does it bring if a dry server takes 50 elements instead of one?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.3, figures 6-17 to 6-20.",
        found: "A dry server asks others 50 times more rarely. Four and more servers exceed Linux under the uniform load, and \
                performance grows with the clients. 16 servers are a little below 8: under 16 clients, servers without clients \
                are asked in vain.",
    },
    here: method!(
        "All shards run dry at about the same time here, and then take what little another one has. So a transfer moves \
         far fewer than 50 elements. Linux is not compared."
    ),
    agrees_if: "with 4, 8 and 16 servers and 24 clients, single elements need at least twice as many demand transfers; and on \
                average over the numbers of clients, 16 servers send more messages per operation than 8.",
    command: "squall report EX-D5",
    seconds: (2, 8),
    run: measure,
    verdict,
    alike: || planted(|servers, _| servers as f64 / 1000.0, [50.0; 3]),
    opposite: || planted(|servers, _| 1.0 / servers as f64, [1.0; 3]),
};

const MANY: [usize; 3] = [4, 8, 16];
const TIMES: &str = "demand transfers of single elements, relative to those of 50";

fn measure(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let list = clients(lab);
    let uniform = plot(&list, |servers, clients| {
        run(lab, Strategy::BulkTransfer, Load::Uniform, servers, clients).messages_per_op()
    });
    let times = MANY.map(|servers| {
        let [single, bulk] = [Strategy::Distributed, Strategy::BulkTransfer]
            .map(|strategy| run(lab, strategy, Load::Uniform, servers, 24).demand_per_1000());
        single / bulk
    });
    Ok(make(uniform, times))
}

fn plot(list: &[usize], value: impl FnMut(usize, usize) -> f64) -> Plot {
    curves("ex-d5", "50 elements on demand, uniform load", "messages per operation", list, value)
}

fn make(uniform: Plot, times: [f64; 3]) -> Found {
    let mut found = Found { plots: vec![uniform], ..Found::default() };
    for (servers, times) in MANY.into_iter().zip(times) {
        found.figure(at(TIMES, Load::Uniform, servers, 24), times, "times", Means::Stepped);
    }
    found
}

fn verdict(found: &Found) -> Verdict {
    let times = MANY.map(|servers| found.value(&at(TIMES, Load::Uniform, servers, 24)));
    let [eight, sixteen] = [8, 16].map(|servers| {
        let curve = found.series("ex-d5", &servers_name(servers)).points;
        curve.iter().map(|point| point.1).sum::<f64>() / curve.len() as f64
    });
    let why = format!(
        "single elements need {:.0}, {:.0} and {:.0} times as many demand transfers with 4, 8 and 16 servers; on average \
         8 servers send {eight:.4} messages per operation, and 16 send {sixteen:.4}",
        times[0], times[1], times[2]
    );
    Verdict::of(times.iter().all(|times| *times >= 2.0) && sixteen > eight, why)
}

fn planted(uniform: impl Fn(usize, usize) -> f64, times: [f64; 3]) -> Found {
    make(plot(&PLANTED, uniform), times)
}
