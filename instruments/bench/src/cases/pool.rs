//! `pool`: messages of a pool shared by 1 to 16 servers, under the loads of the thesis.
//!
//! The servers run in a simulation (`pool`), so all figures are counts, and equal in each run. A row is a
//! strategy and a number of servers. `--threads` gives the numbers of clients. Of a row's columns,
//! `messages` and `frames` go between servers; `frames` contain acknowledgements, and repetitions if there
//! were any. `demand` are transfers for which a client waits, `background` those of idle servers.
//! `gets_per_ms` is of virtual time. A quick run has a tenth of the pages.
//!
//! The variants `LOAD-together` have the other placement of the thesis. `find` has the messages of one get in
//! the worst case (`worst_get`), of one in an empty pool (`empty_get`), and of one more server (`join`).

use crate::case::{Case, PLAIN, Scale, Setting, Variant};
use crate::pool::{Load, Placement, SERVERS, Setup, Size, Strategy, costs, name};

pub(super) static CASE: Case = Case {
    name: "pool",
    about: "messages of a pool that servers share, by strategy and servers (counted, not timed)",
    variants: &[
        Variant { on_request: false, ..variant(UNIFORM, "all clients take equally many pages") },
        variant("triangle", "the clients take 20 to 180 % of an even share"),
        variant("bimodal", "the clients take 20 and 180 % of an even share, by turns"),
        variant("two-phase", "bimodal, and again with the two kinds of clients exchanged"),
        variant("uniform-together", "uniform, with all servers side by side and far from the clients"),
        variant("triangle-together", "triangle, with all servers side by side and far from the clients"),
        variant("bimodal-together", "bimodal, with all servers side by side and far from the clients"),
        variant("two-phase-together", "two-phase, with all servers side by side and far from the clients"),
        Variant {
            threads: Some(1),
            ..variant(FIND, "one get in the worst case, one in an empty pool, one join")
        },
    ],
    subjects: &[],
    scale: Scale::Latency,
    slice_ms: (0, 0),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[16],
};

const UNIFORM: &str = "uniform";
const FIND: &str = "find";
/// The end of the names of variants with the other placement.
const TOGETHER: &str = "-together";

const fn variant(name: &'static str, about: &'static str) -> Variant {
    Variant { name, about, on_request: true, threads_are: "client", ..PLAIN }
}

fn measure(setting: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let variant = setting.variant.name;
    let mut metrics = Vec::new();
    let mut row = |strategy, servers: usize, columns: &[(&str, f64)]| {
        let row = format!("{}/{servers}", name(strategy));
        metrics.extend(columns.iter().map(|(column, value)| (format!("{row}/{column}"), *value)));
    };
    if variant == FIND {
        for (strategy, servers) in each(&SERVERS[1..]) {
            let costs = costs(strategy, servers);
            let [worst, empty, join] =
                [costs.worst_get, costs.empty_get, costs.join].map(|count| count as f64);
            row(strategy, servers, &[("worst_get", worst), ("empty_get", empty), ("join", join)]);
        }
        return Ok(metrics);
    }
    let (load, placement) = match variant.strip_suffix(TOGETHER) {
        Some(load) => (load, Placement::Together),
        None => (variant, Placement::NearClients),
    };
    let load = Load::ALL.into_iter().find(|it| it.name() == load);
    let load = load.ok_or_else(|| format!("the variant {variant} has no load"))?;
    let size = if quick { Size::Tenth } else { Size::Thesis };
    for (strategy, servers) in each(&SERVERS) {
        let setup = Setup { strategy, load, servers, clients: setting.threads, placement, size };
        let tally = setup.run();
        if tally.empty > 0 {
            return Err(format!("{} gets found no page, though pages were left: {setup:?}", tally.empty));
        }
        row(
            strategy,
            servers,
            &[
                ("gets", tally.gets as f64),
                ("messages", tally.messages as f64),
                ("frames", tally.frames as f64),
                ("demand", tally.demand_transfers as f64),
                ("background", tally.background_transfers as f64),
                ("messages_per_get", tally.messages_per_get()),
                ("gets_per_ms", tally.gets_per_ms()),
            ],
        );
    }
    Ok(metrics)
}

/// All strategies, with each number of servers.
fn each(servers: &[usize]) -> impl Iterator<Item = (Strategy, usize)> {
    Strategy::ALL.into_iter().flat_map(|strategy| servers.iter().map(move |servers| (strategy, *servers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variant_has_a_row_for_each_strategy_and_number_of_servers() {
        let count = |name: &str, rows: usize, columns: usize| {
            let variant = CASE.variants.iter().find(|variant| variant.name == name).expect("a variant");
            let metrics = measure(&Setting { threads: 24, variant, counted: false }, true).expect("figures");
            assert_eq!(metrics.len(), rows * columns, "{name}");
        };
        count(FIND, 7 * 4, 3);
    }

    #[test]
    fn each_other_variant_has_a_load() {
        for variant in CASE.variants.iter().filter(|variant| variant.name != FIND) {
            let load = variant.name.strip_suffix(TOGETHER).unwrap_or(variant.name);
            assert!(Load::ALL.iter().any(|it| it.name() == load), "{load}");
        }
    }

    /// A script that names no variant gets one table.
    #[test]
    fn one_variant_runs_unless_another_one_is_asked_for() {
        let shown = CASE.variants.iter().filter(|variant| !variant.on_request).map(|variant| variant.name);
        assert_eq!(shown.collect::<Vec<_>>(), [UNIFORM]);
    }
}
