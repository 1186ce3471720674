//! The biased word, with more threads than processors, which move and are preempted. The tests run in every
//! mode, during a downgrade, and beside a thread without restartable sequences.

#[cfg(not(miri))]
use crate::support::Rounds;
use crate::support::{EXPECT, MODES, Random, again, hop, is_child, roam, slowness};
use squall_machine::pervp::{self, BiasedWord, RestartMode};
use squall_machine::{Vp, machine};
use squall_sys::sync::atomic::{AtomicBool, Ordering};
use squall_sys::sync::thread;

const THREADS: u64 = if cfg!(miri) { 3 } else { 8 };
const PER_HOP: u64 = 300;
#[cfg(not(miri))]
const TRIALS: u64 = 4;

fn operations() -> u64 {
    if cfg!(miri) { 60 } else { 60_000 / slowness() }
}

fn words() -> Vec<BiasedWord> {
    (0..machine().vp_limit() as u32).map(|vp| BiasedWord::new(Vp::new(vp))).collect()
}

fn total(words: &[BiasedWord]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(word.load()))
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn again_in_every_mode() {
    if is_child() {
        return;
    }
    for &(name, value, expect) in MODES {
        again(&[(name, value), (EXPECT, expect)], &["biased::"]);
    }
}

/// One word for all threads, and one word per VP, used after the thread may have moved.
#[test]
fn sums_are_exact() {
    let (one, each) = (BiasedWord::new(Vp::current()), words());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut last = 0;
            while !done.load(Ordering::Relaxed) {
                let sum = one.load();
                // Both parts only grow.
                assert!(sum >= last && sum <= THREADS * operations());
                last = sum;
                thread::yield_now();
            }
        });
        thread::scope(|adders| {
            for id in 0..THREADS {
                let (one, each) = (&one, &each);
                adders.spawn(move || {
                    let mut random = Random::new(id + 1);
                    for operation in 0..operations() {
                        // Half of the threads stay on the scheduler's choice of processor.
                        if operation % PER_HOP == 0 && id % 2 == 0 {
                            hop(&mut random);
                        }
                        one.add(1);
                        each[Vp::current().index()].add(id);
                        each[operation as usize % each.len()].add(1u64.wrapping_neg());
                    }
                    roam();
                });
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(one.load(), THREADS * operations());
    let ids: u64 = (0..THREADS).sum();
    assert_eq!(total(&each), (ids * operations()).wrapping_sub(THREADS * operations()));
}

/// The path of an addition is part of the contract: it decides the cost, and the sensor counts it.
#[test]
fn own_additions_are_local_and_others_elsewhere() {
    let each = words();
    let may_restart = pervp::restart_mode() == RestartMode::Restartable;
    let allowed = squall_sys::affinity::allowed().unwrap_or_default();
    let places = if machine().is_virtual() { (0..each.len()).collect() } else { allowed };
    thread::scope(|scope| {
        for (order, &place) in places.iter().enumerate() {
            let each = &each;
            scope.spawn(move || {
                let vp = Vp::new(place as u32);
                if machine().is_virtual() {
                    Vp::assign_current(vp).expect("a VP below the limit");
                } else {
                    squall_sys::affinity::restrict_to(&[place]).expect("a processor that was allowed");
                }
                each[place].add(1000 + order as u64);
            });
        }
    });
    for (order, &place) in places.iter().enumerate() {
        let word = &each[place];
        assert_eq!(word.vp(), Vp::new(place as u32));
        assert_eq!(word.load(), 1000 + order as u64);
        assert_eq!(word.added_elsewhere(), if may_restart { 0 } else { word.load() });
    }
    // Add from one processor to the words of all others.
    if let (true, [here, others @ ..]) = (may_restart, &places[..]) {
        squall_sys::affinity::restrict_to(&[*here]).expect("a processor that was allowed");
        others.iter().for_each(|&other| each[other].add(7));
        assert!(others.iter().all(|&other| each[other].added_elsewhere() == 7));
        roam();
    }
    assert_eq!(pervp::restart_mode() == RestartMode::Restartable, may_restart, "the mode was given up");
}

#[test]
#[should_panic(expected = "does not exist")]
fn a_nonexistent_vp_is_rejected() {
    BiasedWord::new(Vp::new(machine().vp_limit() as u32));
}

#[test]
fn additions_wrap() {
    let word = BiasedWord::new(Vp::current());
    word.add(5);
    word.add(7u64.wrapping_neg());
    assert_eq!(word.load(), 2u64.wrapping_neg());
    assert!(format!("{word:?}").contains("18446744073709551614"));
}

/// Runs threads that add all the time while `cause` runs on a thread of its own; then checks that no addition
/// is lost.
#[cfg(not(miri))]
fn under_load(cause: impl Fn(&BiasedWord) + Send + Sync) {
    let each = words();
    let word = &each[Vp::current().index()];
    let (stop, added) = (AtomicBool::new(false), squall_sys::sync::atomic::AtomicU64::new(0));
    let rounds = Rounds::new(THREADS);
    thread::scope(|scope| {
        for id in 0..THREADS {
            let (each, stop, added, rounds) = (&each, &stop, &added, &rounds);
            scope.spawn(move || {
                let mut random = Random::new(id);
                let mut own = 0;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..500 {
                        word.add(1);
                        each[Vp::current().index()].add(1);
                        own += 2;
                    }
                    rounds.count(id);
                    if id % 2 == 0 {
                        hop(&mut random);
                    }
                }
                roam();
                added.fetch_add(own, Ordering::Relaxed);
            });
        }
        rounds.wait();
        let outcome = scope.spawn(|| cause(word)).join();
        rounds.wait();
        stop.store(true, Ordering::Relaxed);
        outcome.expect("the cause");
    });
    assert_eq!(total(&each), added.into_inner());
}

#[cfg(not(miri))]
fn trials(test: &str) {
    if !is_child() {
        (0..TRIALS).for_each(|_| again(&[], &["--exact", test]));
    }
}

#[test]
#[cfg(not(miri))]
fn sums_survive_a_downgrade() {
    if is_child() {
        let restartable = pervp::restart_mode() == RestartMode::Restartable;
        under_load(|_| pervp::force_downgrade());
        if restartable {
            assert_eq!(pervp::restart_mode(), RestartMode::Atomic { why: pervp::AtomicReason::Downgraded });
        }
    }
    trials("biased::sums_survive_a_downgrade");
}

/// Unlike per-VP words: here plain and atomic additions never meet on one word.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri)))]
fn an_unregistered_thread_keeps_the_mode() {
    if is_child() {
        let (before, each) = (pervp::restart_mode(), words());
        under_load(|word| {
            if before == RestartMode::Restartable {
                crate::support::unregister();
            }
            word.add(1);
            word.add(1u64.wrapping_neg());
            // Its `cpu_id` is now negative, which equals no VP.
            each.iter().for_each(|own| own.add(3));
            assert!(each.iter().all(|own| own.added_elsewhere() == 3));
        });
        assert_eq!(pervp::restart_mode(), before);
    }
    trials("biased::an_unregistered_thread_keeps_the_mode");
}

/// Runs the instructions themselves on the first and on the last VP, also where the kernel has no sequences.
#[test]
#[cfg(not(miri))]
fn instructions_agree_with_a_model() {
    let name = "biased::instructions_agree_with_a_model";
    if !squall_sys::area::NATIVE || cfg!(squall_tsan) {
        println!("SKIP: no sequences in this build");
        return;
    }
    let Some(cpu) = std::env::var("SQUALL_TEST_CPU").ok().filter(|_| is_child()) else {
        if !is_child() {
            for cpu in [0, machine().vp_limit() - 1] {
                again(&[("SQUALL_TEST_CPU", &cpu.to_string()), ("SQUALL_RSEQ", "off")], &["--exact", name]);
            }
        }
        return;
    };
    let cpu = cpu.parse().expect("a number");
    let (own, last) = (BiasedWord::new(Vp::new(cpu)), machine().vp_limit() as u32 - 1);
    let other = BiasedWord::new(Vp::new(if cpu == last { 0 } else { last }));
    // SAFETY: the other threads of this child are the test harness's, which use no per-VP operations.
    unsafe { pervp::pretend_restartable(cpu) };
    let (mut random, mut sums) = (Random::new(5), (0u64, 0u64));
    for step in 0..10_000 {
        let n = random.next() << (step % 60);
        own.add(n);
        other.add(!n);
        sums = (sums.0.wrapping_add(n), sums.1.wrapping_add(!n));
        assert_eq!((own.load(), other.load()), sums);
    }
    assert_eq!(own.added_elsewhere(), 0);
    if other.vp() != own.vp() {
        assert_eq!(other.added_elsewhere(), sums.1);
    }
    assert_eq!(pervp::restart_mode(), RestartMode::Restartable, "something took the atomic path");
}
