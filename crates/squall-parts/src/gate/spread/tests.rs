//! Tests that need private fields.

use super::*;
use crate::gate::phase::{NORMAL, STOP};
use crate::gate::{GateError, Limits, Rejected};
use squall_machine::Vp;
use squall_machine::pervp::GatedWord;
use squall_sys::sync::atomic::{AtomicU64, Ordering};

#[test]
fn requests_make_full_fences_after_membarrier_is_refused() {
    let requests: SpreadRequests<AtomicU64> = SpreadRequests::of(|| AtomicU64::new(0), false);
    let local = || requests.local(|| AtomicU64::new(0));
    let early = local();
    requests.without_membarrier(NORMAL);
    let late = local();
    for local in [&early, &late, &requests.first()] {
        assert_eq!(local.state.load(Ordering::Relaxed), NORMAL | FENCED);
        assert_eq!(local.try_enter(), Ok(()));
    }
    assert_eq!(requests.inside(), 3);
    (0..3).for_each(|_| late.leave());
    requests.stop(Limits::NONE).unwrap();
    for local in [&early, &late, &requests.first()] {
        assert_eq!(local.state.load(Ordering::Relaxed), STOP | FENCED);
        assert_eq!(local.try_enter(), Err(Rejected::Stopped));
    }
    requests.restart().unwrap();
    assert_eq!(early.state.load(Ordering::Relaxed), NORMAL | FENCED);
    requests.shutdown(Limits::NONE).unwrap();
    assert_eq!(local().try_enter(), Err(Rejected::ShutDown));
}

#[test]
fn a_shutdown_of_a_stopped_counter_gives_up_and_it_is_stopped() {
    let requests: SpreadRequests<AtomicU64> = SpreadRequests::of(|| AtomicU64::new(0), false);
    let local = requests.local(|| AtomicU64::new(0));
    requests.stop(Limits::NONE).unwrap();
    // A request that is about to be rejected.
    local.entered.count();
    assert_eq!(requests.shutdown(Limits::NONE.or(&|| true)), Err(GateError::Interrupted));
    local.count_out();
    for local in [&local, &requests.first(), &requests.local(|| AtomicU64::new(0))] {
        assert_eq!(local.try_enter(), Err(Rejected::Stopped));
    }
    assert_eq!(requests.stop(Limits::NONE), Err(GateError::Stopped));
    requests.restart().unwrap();
    assert_eq!(local.try_enter(), Ok(()));
}

/// Returns the number of counts made at the gates of a counter.
fn at_gates(requests: &SpreadRequests<GatedWord>) -> u64 {
    requests.counts().map(GatedWord::added_at_gate).sum()
}

fn gated(fenced: bool) -> SpreadRequests<GatedWord> {
    SpreadRequests::of(|| GatedWord::new(Vp::current()), fenced)
}

/// Enters and leaves through a proxy of the thread's processor, and through the first. The thread may be
/// moved in between.
fn pass(requests: &SpreadRequests<GatedWord>) {
    for _ in 0..50 {
        let here = Vp::current();
        for gate in
            [requests.local_where(|count| count.vp() == here, || GatedWord::new(here)), requests.first()]
        {
            gate.try_enter().unwrap();
            gate.leave();
        }
    }
}

#[test]
fn gates_are_open_while_it_admits_requests() {
    let word = GatedWord::new(Vp::current());
    word.open();
    let requests = gated(false);
    pass(&requests);
    // Gates open in this mode, and the thread was not moved.
    let open = word.count_at_gate();
    assert!(!open || at_gates(&requests) > 0, "the gates of a new counter are closed");
    for _ in 0..3 {
        let early = requests.local(|| GatedWord::new(Vp::current()));
        requests.stop(Limits::NONE).unwrap();
        let late = requests.local(|| GatedWord::new(Vp::current()));
        let before = at_gates(&requests);
        for gate in [&early, &late, &requests.first()] {
            assert_eq!(gate.try_enter(), Err(Rejected::Stopped));
        }
        assert_eq!(at_gates(&requests), before, "a gate was open during a stop");
        drop((early, late));
        requests.restart().unwrap();
        pass(&requests);
        assert!(!open || at_gates(&requests) > before, "the restart opened no gate");
    }
    requests.shutdown(Limits::NONE).unwrap();
    let before = at_gates(&requests);
    assert_eq!(requests.first().try_enter(), Err(Rejected::ShutDown));
    assert_eq!(at_gates(&requests), before);
}

#[test]
fn no_gate_opens_after_membarrier_is_refused() {
    let (requests, from_the_start) = (gated(false), gated(true));
    let inside = requests.first();
    inside.try_enter().unwrap();
    // The effect of a stop that finds `membarrier` refused.
    requests.without_membarrier(STOP);
    assert_eq!(inside.try_enter(), Ok(()), "only the start of a stop changes its state");
    inside.leave();
    inside.leave();
    requests.stop(Limits::NONE).unwrap();
    requests.restart().unwrap();
    let before = at_gates(&requests);
    pass(&requests);
    assert_eq!(at_gates(&requests), before, "a gate was opened that cannot be closed");
    pass(&from_the_start);
    assert_eq!(at_gates(&from_the_start), 0);
    from_the_start.shutdown(Limits::NONE).unwrap();
}

/// Affects the whole process: from here on counters that other tests make by `new` are fenced too.
#[test]
fn counters_made_after_membarrier_is_refused_open_no_gate() {
    gated(false).without_membarrier(NORMAL);
    let late = SpreadRequests::new(|| GatedWord::new(Vp::current()));
    assert_eq!(late.first().state.load(Ordering::Relaxed), NORMAL | FENCED);
    pass(&late);
    assert_eq!(at_gates(&late), 0, "a gate was opened that cannot be closed");
    late.stop(Limits::NONE).unwrap();
}
