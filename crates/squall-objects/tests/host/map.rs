//! Each form of a map under the checks for concurrent maps, at rest and while it is swapped between forms.
//!
//! The checks test recorded histories for linearizability. They compare the operations of one thread with
//! `std`'s map. They repeat tests from the suites of other maps.

use crate::maps::{Form, Maps, RestlessMaps, Swapping};
use proptest::prelude::*;
use squall_history::maps::{Act, Load, Maker, Wide, acts, all_checks, checks};
use std::hash::RandomState;

/// All checks together take about a second.
fn load() -> Load {
    // The order of all keys has a test of its own.
    Load { many: 500, rounds: 40, one_order: false, ..Load::default() }
}

#[track_caller]
fn passes(maker: &impl Maker, load: &Load) {
    all_checks(maker, load).unwrap_or_else(|failures| panic!("{failures}"));
}

#[test]
fn a_central_map_passes_every_check() {
    passes(&Maps(Form::Shared, RandomState::new()), &load());
}

#[test]
fn a_locked_map_passes_every_check() {
    passes(&Maps(Form::Locked, RandomState::new()), &load());
}

#[test]
fn co_64_a_partitioned_map_passes_every_check() {
    passes(&Maps(Form::Partitioned, RandomState::new()), &load());
}

#[test]
fn an_adaptive_map_passes_every_check() {
    passes(&Maps(Form::Adaptive, RandomState::new()), &load());
}

#[test]
fn a_map_passes_every_check_while_it_is_swapped_from_form_to_form() {
    let maker = Swapping::default();
    passes(&maker, &Load { many: 300, rounds: 30, ..load() });
    assert!(maker.swaps() > maker.maps() as u64, "{} maps, and {} swaps", maker.maps(), maker.swaps());
}

/// Random histories of all keys together, and two threads that read each other's keys.
#[test]
fn all_keys_have_one_order_across_swaps_too() {
    fn one_order<M: Maker>(maker: &M) {
        let load = Load { many: 100, rounds: 20, ..Load::default() };
        for check in checks::<M>().into_iter().filter(|check| check.needs_one_order) {
            (check.run)(maker, &load).unwrap_or_else(|what| panic!("{}: {what}", check.name));
        }
    }
    for form in crate::maps::FORMS {
        one_order(&Maps(form, RandomState::new()));
    }
    one_order(&Swapping::default());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_acts_of_one_thread_are_those_of_stds_map(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let acts = Act::all_from_bytes(&bytes);
        for form in crate::maps::FORMS {
            let maps = Maps(form, RandomState::new());
            prop_assert_eq!(acts::follow(&maps.make::<u64>(), &acts), Ok(()), "{:?}", form);
            prop_assert_eq!(acts::follow(&maps.make::<Wide>(), &acts), Ok(()), "{:?}", form);
        }
    }

    #[test]
    fn any_acts_of_one_thread_are_those_of_stds_map_across_swaps(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let acts = Act::all_from_bytes(&bytes);
        prop_assert_eq!(acts::follow(&RestlessMaps.make::<u64>(), &acts), Ok(()));
        prop_assert_eq!(acts::follow(&RestlessMaps.make::<Wide>(), &acts), Ok(()));
    }
}
