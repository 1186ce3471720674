//! Tests of budgets on one thread.

use super::{Budget, Claim};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn a_share_takes_no_more_than_fits_and_gives_the_rest_back() {
    let budget = Budget::new();
    let mut share = budget.share();
    assert!(share.take(4, 10) && share.take(6, 10) && !share.take(1, 10) && share.take(0, 10));
    share.spend(3);
    assert_eq!((share.held(), budget.taken()), (7, 10));
    drop(share);
    assert_eq!(budget.taken(), 3);
    assert!(!budget.share().take(u64::MAX, u64::MAX), "a sum beyond all numbers does not fit");
}

#[test]
fn a_claim_moves_the_cost_once() {
    let (budget, claim) = (Budget::new(), Claim::new(5));
    let (mut one, mut other) = (budget.share(), budget.share());
    assert!(one.take(8, 10));
    one.spend(8);
    assert!(other.claim(&claim, 8) && !one.claim(&claim, 8));
    assert_eq!((one.held(), other.held(), budget.taken()), (0, 8, 8));
    assert!(claim.is_claimed());
}

#[test]
fn a_change_of_the_bits_keeps_the_claim() {
    let (budget, claim) = (Budget::unbounded(), Claim::new(5));
    assert!(claim.change(5, 6) && !claim.change(5, 7));
    assert!(budget.share().claim(&claim, 1));
    assert!(!claim.change(6, 7), "the word was claimed meanwhile");
    let word = claim.word();
    assert!(claim.change(word, 7) && claim.is_claimed());
    assert_eq!(claim.word() << 1 >> 1, 7);
}

#[test]
fn an_unbounded_budget_counts_no_cost() {
    let budget = Budget::unbounded();
    let mut share = budget.share();
    assert!(share.take(u64::MAX, 1) && share.take(1, 1) && share.claim(&Claim::new(0), 3));
    share.spend(9);
    assert_eq!((share.held(), budget.taken()), (0, 0));
}

#[test]
fn an_entry_without_room_is_an_error() {
    let budget = Budget::new();
    let mut share = budget.share();
    assert!(share.take(2, 10));
    assert!(catch_unwind(AssertUnwindSafe(|| share.spend(3))).is_err());
    drop(share);
    assert_eq!(budget.taken(), 0);
}
