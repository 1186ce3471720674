//! Checks the model against the bound over all interleavings, and against a MESI simulator with shuffled
//! streams.

use crate::files::{Access, WRITES, sources, table, whole_log};
use proptest::prelude::*;
use squall_locality::lines::{Line, Lines, Rules};
use squall_locality::model::Model;
use squall_locality_plugin::format::insn;

/// Ways in which threads access their line.
#[derive(Clone, Copy, Debug)]
struct How {
    /// One thread after the other, by the clock.
    apart: bool,
    /// Without atomic instructions.
    plainly: bool,
    /// Each thread its own bytes.
    to_its_own: bool,
}

/// Atomic accesses to the same bytes.
const ATOMICALLY: How = How { apart: false, plainly: false, to_its_own: false };

/// A line with one instruction per thread, which makes the given numbers of reads and writes.
fn line(threads: &[(u64, u64)], how: How) -> Option<Line> {
    let mut files = vec![whole_log(1)];
    for ((reads, writes), number) in threads.iter().zip(0..) {
        let epochs = if how.apart { (number * 10 + 1, number * 10 + 2) } else { (1, 9) };
        let kind = if how.plainly { insn::PLAIN } else { insn::ATOMIC };
        let bytes = if how.to_its_own { 7 << (number % 20 * 3) } else { 0xff };
        files.push(table(
            1,
            number,
            &[Access { reads: *reads, writes: *writes, epochs, kind, bytes, ..WRITES }],
        ));
    }
    let mut rules = Rules::new(None, 64);
    rules.with_main = true;
    Lines::fold(&sources(files), 1, rules).shared.pop()
}

/// Transfers and upgrades of this order of accesses, each with its thread and whether it writes.
fn play(order: &[(usize, bool)], threads: usize) -> (u64, u64) {
    // Per thread: whether it has a copy, and whether others wrote since its last access. Also the exclusive
    // owner.
    let (mut has, mut stale, mut alone) = (vec![false; threads], vec![false; threads], None);
    let (mut transfers, mut upgrades) = (0, 0);
    for (thread, writes) in order {
        let thread = *thread;
        let others = (0..threads).any(|other| other != thread && (has[other] || stale[other]));
        if stale[thread] {
            transfers += 1;
        } else if *writes && alone != Some(thread) && others {
            upgrades += 1;
        }
        stale[thread] = false;
        has[thread] = true;
        if *writes {
            alone = Some(thread);
            for other in (0..threads).filter(|other| *other != thread) {
                has[other] = false;
                stale[other] = true;
            }
        } else if alone != Some(thread) {
            alone = None;
        }
    }
    (transfers, upgrades)
}

/// Shuffles with a linear congruential generator; the same seed gives the same order.
fn shuffle<T>(items: &mut [T], seed: &mut u64) {
    for at in (1..items.len()).rev() {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        items.swap(at, ((*seed >> 33) % (at as u64 + 1)) as usize);
    }
}

fn order_of(threads: &[(u64, u64)]) -> Vec<(usize, bool)> {
    let mut order = Vec::new();
    for (thread, (reads, writes)) in threads.iter().enumerate() {
        order.extend((0..*reads).map(|_| (thread, false)));
        order.extend((0..*writes).map(|_| (thread, true)));
    }
    order
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_model_is_within_the_bound(
        threads in proptest::collection::vec((0u64..2_000, 0u64..2_000), 2..20),
        (apart, plainly, to_its_own) in any::<(bool, bool, bool)>(),
        ops in proptest::option::of(1u64..3_000),
    ) {
        let model = Model::preset("server").expect("a known preset");
        if let Some(line) = line(&threads, How { apart, plainly, to_its_own }) {
            let (by_model, bound) = (model.transfers(&line, ops), line.transfers_at_most as f64);
            prop_assert!(by_model <= bound * (1.0 + 1e-9), "{by_model} is more than {bound}: {line:?}");
            prop_assert!(model.upgrades(&line, ops) >= 0.0);
        }
    }

    #[test]
    fn no_order_is_above_the_bound(
        threads in proptest::collection::vec((0u64..40, 0u64..40), 2..6),
        seed in any::<u64>(),
        in_runs in any::<bool>(),
    ) {
        let mut order = order_of(&threads);
        let mut seed = seed;
        if !in_runs {
            shuffle(&mut order, &mut seed);
        }
        if let Some(line) = line(&threads, ATOMICALLY) {
            let (transfers, _) = play(&order, threads.len());
            prop_assert!(transfers <= line.transfers_at_most, "{transfers} of {:?}", order);
        }
    }
}

#[test]
fn the_model_is_the_mean_of_all_orders() {
    let model = Model::preset("server").expect("a known preset");
    let cases: [&[(u64, u64)]; 5] = [
        &[(0, 60), (0, 60)],
        &[(100, 0), (0, 30)],
        &[(40, 20), (80, 5), (0, 50)],
        &[(1, 1), (500, 0)],
        &[(30, 30), (30, 30), (30, 30), (30, 30)],
    ];
    for threads in cases {
        let line = line(threads, ATOMICALLY).expect("a shared line");
        let (mut transfers, mut upgrades, mut seed) = (0, 0, 1);
        const ORDERS: u32 = 4_000;
        for _ in 0..ORDERS {
            let mut order = order_of(threads);
            shuffle(&mut order, &mut seed);
            let played = play(&order, threads.len());
            transfers += played.0;
            upgrades += played.1;
        }
        let near = |played: u64, by_model: f64| {
            let mean = played as f64 / f64::from(ORDERS);
            (mean - by_model).abs() <= 0.02 * by_model + 0.1
        };
        let by_model = (model.transfers(&line, None), model.upgrades(&line, None));
        assert!(
            near(transfers, by_model.0),
            "{threads:?}: {transfers} in {ORDERS} orders, by the model {by_model:?}"
        );
        assert!(
            near(upgrades, by_model.1),
            "{threads:?}: {upgrades} in {ORDERS} orders, by the model {by_model:?}"
        );
    }
}

#[test]
fn given_latencies_are_in_the_models_name() {
    let model =
        Model::preset("server").expect("a known preset").with_latencies(Some(10.0), None).expect("a latency");
    assert_eq!((model.name.as_str(), model.near_ns, model.far_ns), ("server, near 10 ns", 10.0, 120.0));
    for ns in [-1.0, f64::NAN, f64::INFINITY] {
        let refused = Model::preset("server").expect("a known preset").with_latencies(None, Some(ns));
        assert!(refused.expect_err("an error").0.contains("far latency"));
    }
}

#[test]
fn a_visit_needs_the_line_once() {
    let model = Model::preset("server").expect("a known preset");
    // Five instructions in each of a hundred operations.
    let accesses: Vec<Access> =
        (0..5).map(|place| Access { pc: 0x1000 + place * 4, kind: insn::ATOMIC, ..WRITES }).collect();
    let files = vec![whole_log(1), table(1, 0, &accesses), table(1, 1, &accesses)];
    let mut rules = Rules::new(Some(100), 64);
    rules.with_main = true;
    let line = Lines::fold(&sources(files), 1, rules).shared.pop().expect("a shared line");
    assert_eq!((line.transfers_at_most, model.transfers(&line, Some(100))), (1_000, 100.0));
    // A hundred instructions, each of which runs in one of a hundred operations.
    let accesses: Vec<Access> = (0..100)
        .map(|place| Access { pc: 0x1000 + place * 4, writes: 1, kind: insn::ATOMIC, ..WRITES })
        .collect();
    let files = vec![whole_log(1), table(1, 0, &accesses), table(1, 1, &accesses)];
    let line = Lines::fold(&sources(files), 1, rules).shared.pop().expect("a shared line");
    assert_eq!((model.transfers(&line, Some(100)), model.transfers(&line, None)), (100.0, 1.0));
}

#[test]
fn plain_stores_to_own_bytes_are_cheaper_than_atomic_ones() {
    let model = Model::preset("server").expect("a known preset");
    let transfers = |how| model.transfers(&line(&[(0, 800), (0, 800)], how).expect("a shared line"), None);
    let packed = transfers(How { plainly: true, to_its_own: true, ..ATOMICALLY });
    assert_eq!((packed, transfers(ATOMICALLY)), (800.0 / model.stores_together, 800.0));
    // Bytes that others write as well must be fetched.
    assert_eq!(transfers(How { plainly: true, ..ATOMICALLY }), 800.0);
}

/// Four threads on two clusters of two processors, each pair with a line of its own, and one line for all.
#[test]
fn misses_are_told_by_the_distance_of_the_last_writer() {
    let model = Model::preset("server").expect("a known preset").with_topology("nodes:2,cores:2");
    let model = model.expect("a topology");
    let mut rules = Rules::new(Some(60), 64);
    rules.with_main = true;
    let misses = |lines_of: &dyn Fn(u32) -> u64| {
        let tables = (0..4).map(|number| {
            let line = lines_of(number);
            table(1, number, &[Access { line, writes: 60, kind: insn::ATOMIC, ..WRITES }])
        });
        let files: Vec<_> = std::iter::once(whole_log(1)).chain(tables).collect();
        model.misses_by_distance(&Lines::fold(&sources(files), 1, rules), Some(60))
    };
    let pairs = misses(&|number| 5 + u64::from(number / 2));
    assert_eq!((pairs.near, pairs.far), (120.0, 0.0));
    let across = misses(&|number| 5 + u64::from(number % 2));
    assert_eq!((across.near, across.far), (0.0, 120.0));
    // Three others write the line equally often, and one of them is in the cluster.
    let all = misses(&|_| 5);
    assert!((all.near - 60.0).abs() < 1e-9 && (all.far - 120.0).abs() < 1e-9, "{all:?}");
}
