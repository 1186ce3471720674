//! The shapes of the thesis in the simulation itself: exact counts, and rates of virtual time. Few servers
//! and a tenth of the pages, so that the tests are short.

use std::path::Path;

use super::*;

fn values_at(strategy: Strategy, load: Load, servers: usize, clients: usize, placement: Placement) -> Values {
    Setup { strategy, load, servers, clients, placement, size: Size::Tenth }.run().into()
}

fn values(strategy: Strategy, load: Load, servers: usize, clients: usize) -> Values {
    values_at(strategy, load, servers, clients, Placement::NearClients)
}

#[test]
fn ex_d1_the_loads_are_those_of_the_thesis() {
    let mut step = |_: &str| {};
    let mut lab = Lab::new(Path::new("no instrument is needed"), true, &mut step);
    let found = (EX_D1.run)(&mut lab).expect("a simulation needs no instrument");
    let verdict = (EX_D1.verdict)(&found);
    assert_eq!(verdict.word(), "agrees", "{}", verdict.why());
}

#[test]
fn ex_d3_a_pool_in_one_server_gains_nothing_from_more_servers() {
    let [one, two, four] = [1, 2, 4].map(|servers| values(Strategy::Centralized, Load::Uniform, servers, 8));
    assert_eq!([one, two, four].map(|it| it.messages), [0.0, 1.0, 1.5]);
    assert!(two.rate < one.rate && four.rate < one.rate, "{one:?} {two:?} {four:?}");
}

#[test]
fn ex_d4_and_d5_single_elements_do_not_scale_and_bulk_transfers_do() {
    let single = [2, 4].map(|servers| values(Strategy::Distributed, Load::Uniform, servers, 8));
    assert_eq!(single.map(|it| it.messages.round()), [1.0, 3.0]);
    let central = values(Strategy::Centralized, Load::Uniform, 4, 8);
    assert!(single[1].rate < central.rate, "{single:?} {central:?}");
    let bulk = [2, 4].map(|servers| values(Strategy::BulkTransfer, Load::Uniform, servers, 8));
    assert!(bulk[0].demand * 10.0 < single[0].demand && bulk[1].demand * 10.0 < single[1].demand, "{bulk:?}");
    assert!(bulk[0].rate < bulk[1].rate, "{bulk:?}");
    // The last two of the ranking.
    assert!(central.rate < 0.5 * bulk[1].rate && single[1].rate < 0.5 * bulk[1].rate, "{central:?} {bulk:?}");
}

/// A pull spares waits, but neither messages nor transfers.
#[test]
fn ex_d6_pulls_replace_transfers_on_demand_by_more_others() {
    for (servers, clients) in [(4, 8), (4, 2)] {
        let [bulk, pull] = [Strategy::BulkTransfer, Strategy::BackgroundPull]
            .map(|strategy| values(strategy, Load::Uniform, servers, clients));
        assert!(pull.demand < bulk.demand && pull.transfers > bulk.transfers, "{bulk:?} {pull:?}");
        assert!(pull.messages > bulk.messages, "{bulk:?} {pull:?}");
    }
}

#[test]
fn ex_d8_no_get_of_eight_servers_waits_and_servers_without_clients_hoard() {
    for clients in [8, 12] {
        assert_eq!(values(Strategy::EstimatedPush, Load::Uniform, 8, clients).demand, 0.0, "{clients}");
    }
    let [equal, few] = [8, 2].map(|clients| values(Strategy::EstimatedPush, Load::Uniform, 8, clients));
    assert!(few.demand > equal.demand, "{few:?}");
}

/// The ranking by rate, and the price of pushes without estimates.
#[test]
fn ex_d7_and_d9_the_strategies_rank_alike_under_all_loads() {
    for load in Load::ALL {
        let [bulk, push, estimated, directory] =
            [Strategy::BulkTransfer, Strategy::BackgroundPush, Strategy::EstimatedPush, Strategy::Directory]
                .map(|strategy| values(strategy, load, 4, 8));
        assert!(
            estimated.rate > push.rate && push.rate > bulk.rate,
            "{load:?} {estimated:?} {push:?} {bulk:?}"
        );
        assert!(estimated.transfers < push.transfers && estimated.messages < push.messages, "{load:?}");
        assert!(push.demand * 4.0 < bulk.demand, "{load:?} {push:?} {bulk:?}");
        // The seventh strategy is the sixth one here.
        assert!(directory.demand <= estimated.demand, "{load:?} {directory:?} {estimated:?}");
        assert!(directory.rate > 0.99 * estimated.rate, "{load:?} {directory:?} {estimated:?}");
    }
}

#[test]
fn ex_d10_servers_near_their_clients_are_a_little_better() {
    let [near, together] = [Placement::NearClients, Placement::Together]
        .map(|placement| values_at(Strategy::EstimatedPush, Load::Uniform, 4, 4, placement));
    let gain = near.rate / together.rate;
    assert!(gain > 1.0 && gain <= 1.15, "{near:?} {together:?}");
    assert!(near.messages < 2.0 && together.messages < 2.0, "{near:?} {together:?}");
}
