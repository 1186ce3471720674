//! Tests of the map checks: std's map behind a lock passes all of them, and each check fails for some faulty
//! map. A check that has never failed shows nothing.

mod fault;
mod flawed;

use fault::{FAULTS, Fault};
use flawed::Broken;
use proptest::prelude::*;
use squall_history::maps::{Act, Load, Maker, Wide, acts, all_checks, checks};

/// Maximum number of seeds that a check may need to detect a fault.
const SEEDS_MAX: u64 = 64;

#[test]
fn std_map_behind_a_lock_passes() {
    for seed in 1..=2 {
        all_checks(&Broken(Fault::None), &Load { seed, ..Load::default() })
            .unwrap_or_else(|failed| panic!("{failed}"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 200 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_acts_of_one_thread(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        let acts = Act::all_from_bytes(&bytes);
        let maker = Broken(Fault::None);
        prop_assert_eq!(acts::follow(&maker.make::<u64>(), &acts), Ok(()));
        prop_assert_eq!(acts::follow(&maker.make::<Wide>(), &acts), Ok(()));
    }
}

#[test]
#[cfg_attr(miri, ignore = "threads meet too rarely in the few calls under Miri")]
fn each_fault_is_detected() {
    let mut missed = Vec::new();
    for (fault, name) in FAULTS {
        let check =
            checks::<Broken>().into_iter().find(|check| check.name == *name).expect("a check of this name");
        let run = |seed| (check.run)(&Broken(*fault), &Load { seed, ..Load::default() });
        match (1..=SEEDS_MAX).find_map(|seed| run(seed).err()) {
            Some(what) => println!("{fault:?}, by {name}: {what}\n"),
            None => missed.push((fault, name)),
        }
    }
    assert!(missed.is_empty(), "not detected: {missed:?}");
}

#[test]
fn each_check_detects_a_fault() {
    let idle: Vec<_> = checks::<Broken>()
        .into_iter()
        .map(|check| check.name)
        .filter(|name| FAULTS.iter().all(|(_, by)| by != name))
        .collect();
    assert!(idle.is_empty(), "no fault tests: {idle:?}");
}
