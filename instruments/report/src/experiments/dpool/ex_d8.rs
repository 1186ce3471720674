//! EX-D8: idle servers push to servers with few elements (fos, figures 6-29 to 6-32).

use squall_bench::pool::Load;
use squall_parts::bag::Strategy;

use super::{PLANTED, SERVERS, clients, curves, method, run, servers_name};
use crate::{Experiment, Found, Lab, Missing, Paper, Plot, Verdict};

pub(in crate::experiments) static EX_D8: Experiment = Experiment {
    id: "EX-D8",
    title: "A distributed pool that pushes to servers with few elements",
    question: "What does it bring if servers know about how many elements the others have?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.6, figures 6-29 to 6-32.",
        found: "It is the best of the six. With 8 servers no demand transfer occurs, since pushes come in time. With 16 servers and \
                fewer than 16 clients, servers without clients are pushed elements too, and loaded ones have to ask for them \
                when few are left.",
    },
    here: method!(
        "Servers read each other's estimates in shared memory, without a master. With fewer than 8 clients, some of 8 \
         servers have no client and keep up to 20,000 elements each, more than the load leaves over: there a demand transfer \
         must occur."
    ),
    agrees_if: "under the uniform load with 8 servers and 8 to 15 clients no operation needs another server, and with 16 servers some do.",
    command: "squall report EX-D8",
    seconds: (4, 15),
    run: measure,
    verdict,
    alike: || planted(|servers, clients| if servers == 16 && clients < 16 { 3.0 } else { 0.0 }),
    opposite: || planted(|servers, _| if servers == 16 { 0.0 } else { 3.0 }),
};

fn measure(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let list = clients(lab);
    let uniform = plot(&list, |servers, clients| {
        run(lab, Strategy::EstimatedPush, Load::Uniform, servers, clients).demand_per_1000()
    });
    Ok(Found { plots: vec![uniform], ..Found::default() })
}

fn plot(list: &[usize], value: impl FnMut(usize, usize) -> f64) -> Plot {
    let unit = "demand transfers per 1000 operations";
    curves("ex-d8", "Idle servers push where few elements are, uniform load", unit, list, value)
}

fn verdict(found: &Found) -> Verdict {
    let most = |servers: usize| {
        let curve = found.series("ex-d8", &servers_name(servers)).points;
        let within = curve.iter().filter(|(clients, _)| (8.0..16.0).contains(clients));
        within.map(|(_, value)| *value).fold(f64::NAN, f64::max)
    };
    let [eight, sixteen] = [8, 16].map(most);
    let last: Vec<String> = SERVERS
        .iter()
        .map(|&servers| format!("{:.2}", found.series("ex-d8", &servers_name(servers)).last()))
        .collect();
    let why = format!(
        "with 8 to 15 clients, at most {eight:.3} of 1000 operations need another server with 8 servers, and at most {sixteen:.3} \
         with 16; with 24 clients and 1, 2, 4, 8 and 16 servers it is {}",
        last.join(", ")
    );
    Verdict::of(eight == 0.0 && sixteen > 0.0, why)
}

fn planted(uniform: impl Fn(usize, usize) -> f64) -> Found {
    Found { plots: vec![plot(&PLANTED, uniform)], ..Found::default() }
}
