//! Model tests of turns, and their twins with one weakened step.

use super::Turns;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::thread;

/// Several threads take the turn of one key, and one of them takes another key's first.
fn one_at_a_time() {
    let (turns, inside) = (Arc::new(Turns::new()), Arc::new(AtomicBool::new(false)));
    let visit = |turns: &Turns, inside: &AtomicBool| {
        let turn = turns.take(7).expect("a new thread has no turn");
        assert!(!inside.swap(true, Ordering::Relaxed), "two threads had the turn of one key");
        inside.store(false, Ordering::Relaxed);
        drop(turn);
    };
    let others: Vec<_> = (0..2)
        .map(|_| {
            let (turns, inside) = (turns.clone(), inside.clone());
            thread::spawn(move || visit(&turns, &inside))
        })
        .collect();
    let turn = turns.take(8);
    visit(&turns, &inside);
    drop(turn);
    others.into_iter().for_each(|other| other.join().unwrap());
}

#[test]
fn holds() {
    squall_sys::sync::weaken::check(one_at_a_time);
}

#[cfg(loom)]
#[test]
fn twins() {
    for site in [super::WAKE, super::LOOK_AGAIN] {
        squall_sys::sync::weaken::twin(site, &[], "turns::model::holds");
    }
}
