//! Random sequences of calls against a model: every block keeps its content, blocks do not overlap, and after
//! all frees the heaps have all their blocks.

use super::sequences_common::{Step, alloc, run};
use super::support;
use proptest::prelude::*;
use squall_alloc::Placement;

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0usize), 8 => 1usize..300, 4 => 300usize..9000, 1 => 9000usize..1_200_000]
}

fn step() -> impl Strategy<Value = Step> {
    let placement = prop_oneof![
        Just(Placement::General),
        Just(Placement::Local),
        (0u32..4).prop_map(Placement::LocalOf),
        Just(Placement::Shared),
        (0u32..4).prop_map(Placement::Near)
    ];
    prop_oneof![
        6 => (placement, size(), 0u32..14).prop_map(|(placement, size, align)| {
            Step::Take { placement, size, align: 1 << align }
        }),
        4 => any::<usize>().prop_map(Step::Free),
        1 => any::<usize>().prop_map(Step::FreeElsewhere),
        // `GlobalAlloc` requires a size above 0.
        2 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Change { which, size: size.max(1) }),
        1 => size().prop_map(|size| Step::Zeroed { size: size.max(1) }),
        1 => prop_oneof![Just(Step::Decay), Just(Step::Trim)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 200 }, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "Miri never unmaps large blocks")]
    fn any_sequence_agrees_with_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(steps);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri never unmaps large blocks")]
    fn any_fuzzer_input_agrees_with_the_model(bytes in prop::collection::vec(any::<u8>(), 0..800)) {
        alloc(&bytes);
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri starts no processes")]
fn the_other_modes_agree_with_the_model() {
    let test = "model::any_sequence_agrees_with_the_model";
    support::must_pass(test, &[("SQUALL_RSEQ", "off")]);
    support::must_pass(test, &[("SQUALL_ALLOC_DEBUG", "1")]);
    support::must_pass(test, &[("SQUALL_TOPOLOGY", "nodes:2,cores:4")]);
}
