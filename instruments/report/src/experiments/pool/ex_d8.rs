//! EX-D8 over messages: idle servers push to servers with few elements (fos, figures 6-29 to 6-32).

use squall_bench::pool::{Load, Strategy};

use super::{
    DEMAND, MESSAGES, QUICK, RATE, Source, Values, clients, curves, last, method, points, run, servers_name,
    told,
};
use crate::{Experiment, Found, Paper, Verdict};

pub(in crate::experiments) static EX_D8: Experiment = Experiment {
    id: "EX-D8-messages",
    title: "A distributed pool that pushes to servers with few elements, over messages",
    question: "What does it bring if servers know about how many elements the others have?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.6, pages 137 to 142, figures 6-29 to 6-32.",
        found: "It is the best of the six. With 8 servers no demand transfer occurs. With 16 servers and fewer clients, servers \
                without clients are pushed elements too, and loaded ones have to ask for them when few are left: they are a \
                little slower than 8. At exactly 16 clients they are faster, and beyond within 5 % of 8. Best rates grow from \
                1 to 2 and 4 servers.",
    },
    here: method!(
        "With 8 servers and more than 16 clients, servers of three clients are too busy to push, and transfers on demand \
         occur. There 16 servers are faster than 8, by more than the 5 % of the thesis. Estimates go through the first \
         server, which is a linear number of messages. The thesis counts a quadratic one."
    ),
    agrees_if: "under the uniform load with 8 to 16 clients, fewer than 1 of 10,000 gets of 8 servers wait for a transfer, and with 8 \
                clients and 16 servers at least 1 of 1000; the best rates grow from 1 to 8 servers; and 16 servers are slower \
                than 8 with 8 clients, by at most 5 %, and faster with 16.",
    command: "squall report EX-D8-messages",
    seconds: (4, 100),
    run: |lab| {
        let list = clients(lab);
        Ok(found(&list, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || {
        found(&QUICK, &mut |_, _, servers, clients| Values {
            demand: if servers == 16 && clients < 16 { 3.0 } else { 0.0 },
            rate: match (servers, clients) {
                (16, ..16) => 7.9,
                (16, _) => 8.1,
                _ => servers as f64,
            },
            ..Values::default()
        })
    },
    opposite: || {
        found(&QUICK, &mut |_, _, servers, _| Values {
            demand: if servers == 16 { 0.0 } else { 3.0 },
            rate: 16.0 / servers as f64,
            ..Values::default()
        })
    },
};

fn found(list: &[usize], of: &mut Source<'_>) -> Found {
    let points = points(Strategy::EstimatedPush, Load::Uniform, list, of);
    let title = "Idle servers push where few elements are, uniform load";
    Found {
        plots: vec![
            curves("ex-d8-demand", title, DEMAND, &points, |it| it.demand),
            curves("ex-d8-messages", title, MESSAGES, &points, |it| it.messages),
            curves("ex-d8-rate", title, RATE, &points, |it| it.rate),
        ],
        ..Found::default()
    }
}

fn verdict(found: &Found) -> Verdict {
    let curve = found.series("ex-d8-demand", &servers_name(8)).points;
    let within = curve.iter().filter(|(clients, _)| (8.0..=16.0).contains(clients));
    let eight = within.map(|(_, value)| *value).fold(f64::NAN, f64::max);
    let sixteen = found.series("ex-d8-demand", &servers_name(16)).at(8.0);
    let rates = last(found, "ex-d8-rate");
    let with =
        |clients| [8, 16].map(|servers| found.series("ex-d8-rate", &servers_name(servers)).at(clients));
    let (few, equal) = (with(8.0), with(16.0));
    let why = format!(
        "with 8 to 16 clients at most {eight:.3} of 1000 gets wait for a transfer with 8 servers, and with 8 clients \
         {sixteen:.3} with 16; 8 and 16 servers have {} gets per ms with 8 clients, and {} with 16; with 24 clients and 1, 2, \
         4, 8 and 16 servers it is {}",
        told(&few),
        told(&equal),
        told(&rates)
    );
    let peaks = rates[..4].windows(2).all(|pair| pair[0] < pair[1]);
    let crossing = few[1] < few[0] && few[1] > 0.95 * few[0] && equal[1] > equal[0];
    Verdict::of(eight < 0.1 && sixteen >= 1.0 && peaks && crossing, why)
}
