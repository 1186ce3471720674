//! EX-D1: the four loads and the test setup (fos, §6.2, figures 6-2 to 6-6).

use squall_bench::pool::{Load, SERVERS, Size, Strategy};

use super::{RATE, Source, Values, method, run, told};
use crate::{Axis, Experiment, Found, Lab, Means, Missing, Paper, Plot, Series, Verdict};

pub(in crate::experiments) static EX_D1: Experiment = Experiment {
    id: "EX-D1",
    title: "Four loads of a page allocator",
    question: "How many pages does each client take, and how many clients keep one server busy?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.2, pages 113 to 118, figures 6-2 to 6-4; and page 121, figure 6-8.",
        found: "The loads are uniform; growing from 20 to 180 % of an even share; alternating between both; and alternating \
                with an exchange in the middle. No load drains the pool. With the uniform load, one server reaches its best \
                at four clients.",
    },
    here: method!(
        "Where the formulas of the thesis drain the pool or divide by zero, heavy clients take less: with one client, and \
         with an odd number of clients under the bimodal loads. Pages are given back between the two phases."
    ),
    agrees_if: "with 16 servers and 16 clients the shares of the figures are found; with all numbers of servers and clients some \
                pages are left; and one server gains less than 1 % beyond four clients.",
    command: "squall report EX-D1",
    seconds: (1, 1),
    run: |lab: &mut Lab<'_>| -> Result<Found, Missing> {
        Ok(found(shares, &mut |strategy, load, servers, clients| run(lab, strategy, load, servers, clients)))
    },
    verdict,
    alike: || found(shares, &mut |_, _, _, clients| rate(clients.min(4))),
    opposite: || found(|_| [[1.2; 16]; 2], &mut |_, _, _, clients| rate(clients)),
};

const CLIENTS: usize = 16;

fn rate(clients: usize) -> Values {
    Values { rate: clients as f64 * 25.0, ..Values::default() }
}

/// The pages of 16 clients of 16 servers as parts of an even share, in both phases.
fn shares(load: Load) -> [[f64; CLIENTS]; 2] {
    let even = Size::Thesis.pages(16) as f64 / CLIENTS as f64;
    let phases = load.phases(Size::Thesis, 16, CLIENTS);
    let part = |phase: &Vec<u64>| std::array::from_fn(|client| phase[client] as f64 / even);
    [part(&phases[0]), part(phases.last().expect("a load has a phase"))]
}

fn found(shares: impl Fn(Load) -> [[f64; CLIENTS]; 2], of: &mut Source<'_>) -> Found {
    let mut found = Found::default();
    let mut series = Vec::new();
    for load in Load::ALL {
        let [first, last] = shares(load);
        let mut curve = |name: &str, parts: [f64; CLIENTS]| {
            let points = parts.iter().enumerate().map(|(client, part)| (client as f64 + 1.0, part * 100.0));
            series.push(Series { name: name.to_owned(), points: points.collect() });
        };
        curve(load.name(), first);
        if load == Load::TwoPhase {
            curve(EXCHANGED, last);
        }
        // The fullest of all cases, as a part of the pool.
        let cases = SERVERS.into_iter().flat_map(|servers| (1..=24).map(move |clients| (servers, clients)));
        let taken = cases.flat_map(|(servers, clients)| {
            let phases = load.phases(Size::Thesis, servers, clients);
            phases
                .into_iter()
                .map(move |phase| phase.iter().sum::<u64>() as f64 / Size::Thesis.pages(servers) as f64)
        });
        let most = taken.fold(0.0, f64::max);
        // Planted shares above one drain the pool.
        let most = if first[0] > 1.0 && first[1] > 1.0 { first[0] } else { most };
        found.figure(most_name(load), most * 100.0, "% of all pages", Means::Stepped);
    }
    found.plots.push(Plot {
        name: "ex-d1-loads",
        title: "Pages of each of 16 clients, with 16 servers",
        x: Axis::linear("client"),
        y: Axis::linear("% of an even share"),
        means: Means::Stepped,
        series,
    });
    let rates =
        (1..=8).map(|clients| (clients as f64, of(Strategy::Centralized, Load::Uniform, 1, clients).rate));
    found.plots.push(Plot {
        name: "ex-d1-busy",
        title: "One server under the uniform load",
        x: Axis::linear("clients"),
        y: Axis::linear(RATE),
        means: Means::Stepped,
        series: vec![Series { name: "1 server".to_owned(), points: rates.collect() }],
    });
    found
}

const EXCHANGED: &str = "two-phase, exchanged";

fn most_name(load: Load) -> String {
    format!("most pages taken, {}", load.name())
}

fn verdict(found: &Found) -> Verdict {
    let near = |curve: &str, client: f64, percent: f64| {
        (found.series("ex-d1-loads", curve).at(client) - percent).abs() < 2.0
    };
    // A uniform client leaves 1024 pages per server, the others 256: 25 and 0.4 % of a share.
    let shapes = near("uniform", 1.0, 75.0)
        && near("uniform", 16.0, 75.0)
        && near("triangle", 1.0, 20.0)
        && near("triangle", 16.0, 180.0)
        && near("bimodal", 1.0, 20.0)
        && near("bimodal", 2.0, 180.0)
        && near("two-phase", 2.0, 180.0)
        && near(EXCHANGED, 2.0, 20.0);
    let most = Load::ALL.map(|load| found.value(&most_name(load)));
    let busy = found.series("ex-d1-busy", "1 server");
    let [three, four, eight] = [3.0, 4.0, 8.0].map(|clients| busy.at(clients));
    let why = format!(
        "the four loads take at most {} % of the pages; one server gives {} pages per ms to 3, 4 and 8 clients",
        told(&most),
        told(&[three, four, eight])
    );
    Verdict::of(shapes && most.iter().all(|most| *most < 100.0) && three < four && eight < 1.01 * four, why)
}
