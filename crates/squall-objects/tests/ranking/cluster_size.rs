//! EX-H4 and EX-H7: the cost of a load over the cluster size has a minimum inside, which moves with the load.

#[path = "../../examples/cluster_size/count.rs"]
mod count;

use count::{Load, SIZES, Subject, curve, set_machine};

/// Returns a subject's cost at each cluster size, for `changes_of_10k` changes in ten thousand operations.
fn totals(subject: Subject, changes_of_10k: u64, seed: u64) -> [u64; SIZES.len()] {
    curve(subject, Load { operations: 4000, changes_of_10k, seed }).map(count::Cost::total)
}

/// Returns the size with the least cost, and whether the curve falls before it and rises after it.
fn valley(totals: &[u64]) -> (u32, bool) {
    let least = (0..totals.len()).min_by_key(|at| totals[*at]).unwrap();
    let falls = totals[..=least].windows(2).all(|pair| pair[0] > pair[1]);
    let rises = totals[least..].windows(2).all(|pair| pair[0] < pair[1]);
    (SIZES[least], falls && rises)
}

#[test]
fn ex_h4_ex_h7_the_costs_have_a_minimum_inside_which_moves_with_the_load() {
    set_machine();
    for subject in Subject::ALL {
        for seed in [1, 7] {
            for changes in [100, 300] {
                let totals = totals(subject, changes, seed);
                let what = format!("{subject:?}, {changes} changes of 10000, seed {seed}: {totals:?}");
                assert_eq!(valley(&totals), (4, true), "a U with the least at the size of a node: {what}");
            }
            let totals = totals(subject, 5000, seed);
            let (least, _) = valley(&totals);
            assert!(least > 4, "with many changes larger clusters cost less: {subject:?}, {totals:?}");
        }
    }
}

#[test]
fn ex_h7_small_clusters_pay_for_telling_each_other_and_large_ones_for_distance() {
    set_machine();
    for subject in Subject::ALL {
        let costs = curve(subject, Load { operations: 4000, changes_of_10k: 100, seed: 3 });
        let updates: Vec<u64> = costs.iter().map(|cost| cost.updates).collect();
        assert!(updates.windows(2).all(|pair| pair[0] > pair[1]), "{subject:?}: {updates:?}");
        let asked: Vec<u64> = costs.iter().map(|cost| cost.asked).collect();
        assert!(asked.windows(2).all(|pair| pair[0] >= pair[1]), "{subject:?}: {asked:?}");
        let remote = costs.map(|cost| cost.remote);
        assert!(remote[2] < remote[3] && remote[3] < remote[4], "{subject:?}: {remote:?}");
    }
}
