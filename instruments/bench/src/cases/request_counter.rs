//! `request-counter`: a request enters and leaves a gate that all threads pass.
//!
//! The subjects of ours are the gates of `squall-objects`, called through a `Handle`, with two calls per
//! operation. The rivals are plain structures called directly.
//!
//! One metric, from one thread: `pass_over_two_additions` divides the time of enter and leave by that of two
//! additions to a distributed counter. Those are two calls with only a restartable addition in each. The
//! result is the median over pairs of short runs.

use std::hint::black_box;
use std::time::Instant;

use squall::objects::{counter, gate};

use crate::case::{Case, PLAIN, Scale, Setting, Spec};
use crate::ours_gate::Counted;
use crate::ours_machine::on_processor;
use crate::rivals::gates::{Atomic, Clones, Group, passing};

pub(super) static CASE: Case = Case {
    name: "request-counter",
    about: "one request enters and leaves a gate that all threads pass and that can be drained",
    variants: &[PLAIN],
    subjects: &[
        Spec::ours("squall-shared", passing::<Counted<false>>()),
        Spec::ours("squall-distributed", passing::<Counted<true>>()),
        Spec::rival("atomic", passing::<Atomic>()),
        Spec::rival("arc-clone", passing::<Clones>()),
        Spec::rival("wait-group", passing::<Group>()),
        Spec::rival("std-rwlock", passing::<std::sync::RwLock<()>>()),
    ],
    scale: Scale::Work,
    slice_ms: (20, 5),
    thread_range: false,
    metrics: Some(measure),
    default_threads: &[],
};

fn measure(_: &Setting, quick: bool) -> Result<Vec<(String, f64)>, String> {
    let ratio = on_processor(0, || pass_over_two_additions(quick)).map_err(|missing| missing.0)?;
    Ok(vec![("pass_over_two_additions".to_owned(), ratio)])
}

fn pass_over_two_additions(quick: bool) -> f64 {
    use squall::objects::counter::Counter as _;
    use squall::objects::gate::Gate as _;
    let (pairs, ops) = if quick { (9, 200_000) } else { (41, 1_000_000) };
    let (gate, counter) = (gate::distributed(), counter::distributed());
    let (gate, counter) = (gate.handle(), counter.handle());
    let timed = |run: &dyn Fn()| {
        let began = Instant::now();
        run();
        began.elapsed().as_secs_f64()
    };
    let pass = || {
        for _ in 0..ops {
            if black_box(gate).enter_now().is_ok() {
                black_box(gate).leave();
            }
        }
    };
    let add = || {
        for _ in 0..ops {
            black_box(counter).add(1);
            black_box(counter).add(1);
        }
    };
    pass();
    add();
    let mut ratios: Vec<f64> = (0..pairs).map(|_| timed(&pass) / timed(&add)).collect();
    ratios.sort_by(f64::total_cmp);
    ratios[pairs / 2]
}
