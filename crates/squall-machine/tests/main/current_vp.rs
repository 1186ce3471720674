//! The current VP of a thread.

use crate::support::{MODES, again, is_child};
use squall_machine::{AssignError, Vp, machine};
use squall_sys::sync::thread;

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn again_in_every_mode() {
    if !is_child() {
        MODES.iter().for_each(|(name, value, _)| again(&[(name, value)], &["current_vp::"]));
    }
}

#[test]
fn a_vp_is_below_the_limit() {
    let limit = machine().vp_limit();
    thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(move || (0..200).for_each(|_| assert!(Vp::current().index() < limit)));
        }
    });
}

#[test]
#[cfg_attr(miri, ignore = "no affinity there")]
fn on_the_real_machine_a_vp_is_the_processor() {
    if machine().is_virtual() {
        return;
    }
    thread::spawn(|| {
        for cpu in squall_sys::affinity::allowed().expect("an affinity mask") {
            squall_sys::affinity::restrict_to(&[cpu]).expect("a processor that was allowed");
            // Without restartable sequences an answer serves 64 times.
            (0..64).for_each(|_| _ = Vp::current());
            assert_eq!(Vp::current().index(), cpu);
        }
        assert_eq!(Vp::assign_current(Vp::new(0)), Err(AssignError::RealTopology));
        assert_eq!(Vp::with_vp(Vp::new(0), || panic!("not run")), Err::<(), _>(AssignError::RealTopology));
    })
    .join()
    .expect("the moved thread panicked");
}

#[test]
fn in_a_virtual_topology_threads_are_assigned_vps() {
    if !machine().is_virtual() {
        return;
    }
    let limit = machine().vp_limit();
    assert_eq!(limit, 64);
    // Round robin over all VPs. Threads of other tests take turns too, so threads are started until each VP
    // was assigned.
    let mut seen = vec![false; limit];
    while !seen.iter().all(|&seen| seen) {
        let vp = thread::spawn(|| {
            let vp = Vp::current();
            assert_eq!(Vp::current(), vp, "a thread keeps its VP");
            vp
        });
        seen[vp.join().expect("the asking thread panicked").index()] = true;
    }

    let (seven, eight) = (Vp::new(7), Vp::new(8));
    Vp::assign_current(seven).expect("a VP of the topology");
    assert_eq!(Vp::current(), seven);
    assert_eq!(Vp::with_vp(eight, Vp::current), Ok(eight));
    assert_eq!(Vp::current(), seven);
    let unwound = std::panic::catch_unwind(|| Vp::with_vp(eight, || panic!("must restore the VP")));
    assert!(unwound.is_err());
    assert_eq!(Vp::current(), seven);
    let out = Vp::new(limit as u32);
    assert_eq!(Vp::assign_current(out), Err(AssignError::OutOfRange { vp: out, limit }));
    assert_eq!(Vp::current(), seven);
}
