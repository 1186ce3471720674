//! EX-D9: the six strategies compared (fos, §6.3.7), and a seventh of Squall.

use squall_bench::pool::Load;
use squall_parts::bag::Strategy;

use super::{method, run, step};
use crate::{Experiment, Found, Lab, Means, Missing, Paper, Verdict};

pub(in crate::experiments) static EX_D9: Experiment = Experiment {
    id: "EX-D9",
    title: "Six strategies of a distributed pool",
    question: "Does one strategy win under all loads?",
    paper: Paper {
        source: "D. Wentzlaff, fos, PhD thesis 2012, §6.3.7.",
        found: "The ranking is the same under all loads: pushes with estimates, pushes, bulk transfers about equal to pulls, and \
                at the end single elements and the pool in one server.",
    },
    here: method!(
        "A figure is the mean over 8, 16 and 24 clients of 8 servers. Pulls and the two kinds of pushes are also compared by \
         all their transfers, since those in idle time cost work, too. The worst cases at the end have 16 shards, and one \
         element in all."
    ),
    agrees_if: "under all four loads pushes leave fewer operations that need another server than bulk transfers, and these \
                fewer than the last two; pulls need 0.9 times as many transfers as bulk transfers or more; and estimates save \
                transfers in all, with at most 1.1 times as many operations that need another server.",
    command: "squall report EX-D9",
    seconds: (8, 8),
    run: measure,
    verdict,
    alike: || planted([900.0, 850.0, 17.0, 17.0, 5.0, 1.0], [18.0, 30.0, 20.0]),
    opposite: || planted([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2.0, 30.0, 40.0]),
};

const NAMES: [(&str, Strategy); 6] = [
    ("one server", Strategy::Centralized),
    ("single elements", Strategy::Distributed),
    ("bulk", Strategy::BulkTransfer),
    ("pull", Strategy::BackgroundPull),
    ("push", Strategy::BackgroundPush),
    ("push with estimates", Strategy::EstimatedPush),
];
const CLIENTS: [usize; 3] = [8, 16, 24];
const UNIT: &str = "per 1000 operations need another server";
const ALL_UNIT: &str = "per 1000 operations";
/// The strategies with transfers by idle servers.
const IDLE: std::ops::Range<usize> = 3..6;

fn measure(lab: &mut Lab<'_>) -> Result<Found, Missing> {
    let mut found = Found::default();
    for load in Load::ALL {
        for (place, (name, strategy)) in NAMES.into_iter().enumerate() {
            let tallies = CLIENTS.map(|clients| run(lab, strategy, load, 8, clients));
            let mean = |value: fn(&step::Tally) -> f64| tallies.iter().map(value).sum::<f64>() / 3.0;
            found.figure(at(load, name), mean(step::Tally::demand_per_1000), UNIT, Means::Stepped);
            if IDLE.contains(&place) {
                let all = mean(step::Tally::transfers_per_1000);
                found.figure(all_of(load, name), all, ALL_UNIT, Means::Stepped);
            }
        }
    }
    let worst =
        [("single elements", Strategy::Distributed), ("the seventh, a directory", Strategy::Directory)];
    for (name, strategy) in worst {
        let looks = step::worst_looks(strategy, 16) as f64;
        found.figure(format!("worst case, {name}"), looks, "shards asked", Means::Stepped);
    }
    Ok(found)
}

fn at(load: Load, name: &str) -> String {
    format!("{}, {name}", load.name())
}

fn all_of(load: Load, name: &str) -> String {
    format!("{}, {name}, all transfers", load.name())
}

fn verdict(found: &Found) -> Verdict {
    let (mut holds, mut told) = (true, Vec::new());
    for load in Load::ALL {
        let [central, single, bulk, _, push, estimated] = NAMES.map(|(name, _)| found.value(&at(load, name)));
        let [all_pull, all_push, all_estimated] =
            [3, 4, 5].map(|place: usize| found.value(&all_of(load, NAMES[place].0)));
        holds &= push < bulk && bulk < single.min(central) && all_pull >= 0.9 * bulk;
        holds &= all_estimated < all_push && estimated <= 1.1 * push;
        told.push(format!(
            "{} {estimated:.1}, {push:.1}, {bulk:.1}, {single:.0} and {central:.0} (all transfers of the first two \
             {all_estimated:.0} and {all_push:.0})",
            load.name()
        ));
    }
    let why = format!(
        "operations of 1000 that need another server, with estimates, pushes, bulk transfers, single elements and one server: {}",
        told.join("; ")
    );
    Verdict::of(holds, why)
}

fn planted(values: [f64; 6], all: [f64; 3]) -> Found {
    let mut found = Found::default();
    for load in Load::ALL {
        for ((name, _), value) in NAMES.into_iter().zip(values) {
            found.figure(at(load, name), value, UNIT, Means::Stepped);
        }
        for (place, all) in IDLE.zip(all) {
            found.figure(all_of(load, NAMES[place].0), all, ALL_UNIT, Means::Stepped);
        }
    }
    found
}
