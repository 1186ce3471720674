//! Memory that per-VP objects leave behind. Alone in its program, because it checks figures of the whole
//! process.
#![cfg(not(loom))]

#[path = "main/support.rs"]
mod support;
#[path = "main/this_program.rs"]
mod this_program;

use squall_machine::machine;
use squall_machine::pervp::{PerVp, PerVpStack, PerVpWord, PerVpWords, stats};
use support::{Random, hop, roam};

#[test]
fn pr_02_freed_space_is_zero_and_is_used_again() {
    let mut random = Random::new(11);
    drop(PerVpWord::new());
    let first = stats();
    assert_eq!(first.bytes_per_vp, 0);
    assert_eq!(first.reserved_bytes % machine().vp_limit(), 0);
    let rounds = if cfg!(miri) { 3 } else { 200 };
    for _ in 0..rounds {
        let words: Vec<PerVpWord> = (0..random.below(40)).map(|_| PerVpWord::new()).collect();
        let array = PerVpWords::<5>::new();
        let stack = PerVpStack::new();
        let values = PerVp::new(|vp| [vp.index() as u64 + 1; 9]);
        assert!(stats().bytes_per_vp >= words.len() * 8 + 5 * 8 + 2 * 16 + 9 * 8);
        assert!(words.iter().all(|word| word.iter().all(|(_, value)| value == 0)), "not zero");
        assert!((0..5).all(|index| array.iter(index).all(|(_, value)| value == 0)), "not zero");
        assert!(stack.pop().is_none());
        assert_eq!(values.iter().count(), 0);
        for _ in 0..4 {
            hop(&mut random);
            words.iter().for_each(|word| word.add(random.next() | 1));
            (0..5).for_each(|index| array.add(index, random.next() | 1));
            stack.push(random.next());
            assert!(values.here()[8] > 0);
        }
    }
    roam();
    let last = stats();
    assert_eq!(last.bytes_per_vp, 0);
    assert_eq!(last.chunks_count, first.chunks_count, "freed space was not used again");

    // More than one chunk holds: the allocator makes a second chunk, and reuses both later.
    let many: Vec<PerVpWords<512>> = (0..20).map(|_| PerVpWords::new()).collect();
    assert!(many.iter().all(|words| words.sum(511) == 0));
    let more = stats();
    assert!(more.chunks_count > first.chunks_count);
    drop(many);
    let again: Vec<PerVpWords<512>> = (0..20).map(|_| PerVpWords::new()).collect();
    assert_eq!(stats().chunks_count, more.chunks_count);
    drop(again);
    assert_eq!(stats().bytes_per_vp, 0);
}
