//! Sequences of calls at random, against a model: every block holds what was written to it, none overlaps another, and when all is
//! freed the heaps have all their blocks.

mod support;

use proptest::prelude::*;
use squall_alloc::{LocalityAlloc, Placement, Pool};
use std::alloc::{GlobalAlloc, Layout};
use std::collections::BTreeMap;
use std::ptr::NonNull;

#[derive(Clone, Debug)]
enum Step {
    Take { placement: Placement, size: usize, align: usize },
    Free(usize),
    Change { which: usize, size: usize },
    Zeroed { size: usize },
}

fn size() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0usize), 8 => 1usize..300, 4 => 300usize..9000, 1 => 9000usize..1_200_000]
}

fn step() -> impl Strategy<Value = Step> {
    let placement = prop_oneof![
        Just(Placement::General),
        Just(Placement::Local),
        Just(Placement::Shared),
        (0u32..4).prop_map(Placement::Near)
    ];
    prop_oneof![
        6 => (placement, size(), 0u32..14).prop_map(|(placement, size, align)| {
            Step::Take { placement, size, align: 1 << align }
        }),
        4 => any::<usize>().prop_map(Step::Free),
        // `GlobalAlloc` asks for a size that is not 0.
        2 => (any::<usize>(), size()).prop_map(|(which, size)| Step::Change { which, size: size.max(1) }),
        1 => size().prop_map(|size| Step::Zeroed { size: size.max(1) }),
    ]
}

struct Held {
    block: NonNull<u8>,
    layout: Layout,
    mark: u8,
    general: bool,
}

impl Held {
    fn new(block: NonNull<u8>, layout: Layout, mark: u8, general: bool) -> Held {
        assert_eq!(block.addr().get() % layout.align(), 0);
        // SAFETY: a block of so many bytes.
        unsafe { block.as_ptr().write_bytes(mark, layout.size()) };
        Held { block, layout, mark, general }
    }

    fn check(&self, size: usize) {
        // SAFETY: a block of so many bytes, written when it was taken.
        let bytes = unsafe { std::slice::from_raw_parts(self.block.as_ptr(), size) };
        assert!(bytes.iter().all(|byte| *byte == self.mark), "{:?}", self.layout);
    }

    fn free(self) {
        self.check(self.layout.size());
        // SAFETY: freed once, for its layout.
        unsafe { Pool::new(Placement::General).free(self.block, self.layout) };
    }
}

fn run(steps: &[Step]) {
    let mut held: BTreeMap<usize, Held> = BTreeMap::new();
    for (number, step) in steps.iter().enumerate() {
        let mark = number as u8;
        match *step {
            Step::Take { placement, size, align } => {
                let layout = Layout::from_size_align(size, align).unwrap();
                let block = Pool::new(placement).allocate(layout).unwrap();
                let general = placement == Placement::General;
                held.insert(block.addr().get(), Held::new(block, layout, mark, general));
            }
            Step::Zeroed { size } => {
                let layout = Layout::from_size_align(size, 8).unwrap();
                // SAFETY: not of size 0.
                let block = NonNull::new(unsafe { LocalityAlloc.alloc_zeroed(layout) }).unwrap();
                // SAFETY: our own block of so many bytes.
                let bytes = unsafe { std::slice::from_raw_parts(block.as_ptr(), size) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                held.insert(block.addr().get(), Held::new(block, layout, mark, true));
            }
            Step::Free(which) if !held.is_empty() => {
                let key = *held.keys().nth(which % held.len()).unwrap();
                held.remove(&key).unwrap().free();
            }
            Step::Change { which, size } if !held.is_empty() => {
                let key = *held.keys().nth(which % held.len()).unwrap();
                let old = held.remove(&key).unwrap();
                if !old.general || old.layout.size() == 0 {
                    old.free();
                    continue;
                }
                // SAFETY: our own block, for its layout; not of size 0.
                let block = unsafe { LocalityAlloc.realloc(old.block.as_ptr(), old.layout, size) };
                let layout = Layout::from_size_align(size, old.layout.align()).unwrap();
                let moved = Held { block: NonNull::new(block).unwrap(), layout, ..old };
                moved.check(old.layout.size().min(size));
                held.insert(moved.block.addr().get(), Held::new(moved.block, layout, mark, true));
            }
            _ => {}
        }
        let mut end = 0;
        for (address, held) in &held {
            assert!(*address >= end, "two blocks overlap");
            end = address + held.layout.size().max(1);
        }
    }
    held.into_values().for_each(Held::free);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 200 }, ..ProptestConfig::default() })]

    #[test]
    #[cfg_attr(miri, ignore = "large blocks are never given back there")]
    fn any_sequence_agrees_with_the_model(steps in prop::collection::vec(step(), 1..200)) {
        run(&steps);
    }
}

#[test]
#[cfg_attr(miri, ignore = "it starts processes")]
fn and_so_it_does_in_the_other_modes() {
    let test = "any_sequence_agrees_with_the_model";
    support::must_pass(test, &[("SQUALL_RSEQ", "off")]);
    support::must_pass(test, &[("SQUALL_ALLOC_DEBUG", "1")]);
    support::must_pass(test, &[("SQUALL_TOPOLOGY", "nodes:2,cores:4")]);
}
