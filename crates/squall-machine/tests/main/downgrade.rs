//! Giving restartable sequences up under load. Sums stay exact and no value is lost, for every cause and for
//! each way of restarting the sequences in flight. Each trial is a process of its own, because the mode never
//! comes back.
#![cfg(not(miri))]

use crate::support::{Random, Rounds, add_slowly, again, hop, is_child, roam};
use squall_machine::Vp;
use squall_machine::pervp::{self, AtomicReason, PerVpStack, PerVpWord, RestartMode};
use squall_sys::area::CacheSlot;
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use squall_sys::sync::thread;
use std::time::Duration;

const TRIALS: u64 = 6;
const THREADS: u64 = 6;

/// Threads add, push and pop until told to stop; meanwhile `cause` runs on a thread of its own.
fn give_up_under_load(cause: impl Fn(&PerVpWord) + Send + Sync) {
    if pervp::restart_mode() != RestartMode::Restartable {
        println!("SKIP: no restartable sequences here");
        return;
    }
    let word = PerVpWord::new();
    let mut stack = PerVpStack::new();
    let (stop, added, pushed, popped) =
        (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let rounds = Rounds::new(THREADS);
    thread::scope(|scope| {
        for id in 0..THREADS {
            let (word, stack, stop, rounds) = (&word, &stack, &stop, &rounds);
            let (added, pushed, popped) = (&added, &pushed, &popped);
            scope.spawn(move || {
                let mut random = Random::new(id);
                let (mut adds, mut sum_in, mut sum_out) = (0, 0u64, 0u64);
                while !stop.load(Ordering::Relaxed) {
                    for step in 0..500 {
                        word.add(1);
                        adds += 1;
                        if step % 4 == 0 {
                            let value = random.next();
                            sum_in = sum_in.wrapping_add(value);
                            stack.push(value);
                        } else if let Some(value) = stack.pop() {
                            sum_out = sum_out.wrapping_add(value);
                        }
                    }
                    rounds.count(id);
                    if id % 2 == 0 {
                        hop(&mut random);
                    }
                }
                roam();
                added.fetch_add(adds, Ordering::Relaxed);
                pushed.fetch_add(sum_in, Ordering::Relaxed);
                popped.fetch_add(sum_out, Ordering::Relaxed);
            });
        }
        rounds.wait();
        scope.spawn(|| cause(&word)).join().expect("the cause");
        assert_eq!(pervp::restart_mode(), RestartMode::Atomic { why: AtomicReason::Downgraded });
        rounds.wait();
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(word.sum(), added.into_inner());
    let left = stack.drain().into_iter().fold(0u64, |sum, (_, value)| sum.wrapping_add(value));
    assert_eq!(popped.into_inner().wrapping_add(left), pushed.into_inner(), "a value was lost or duplicated");
}

fn trials(variables: &[(&str, &str)], test: &str) {
    if !is_child() {
        (0..TRIALS).for_each(|_| again(variables, &["--exact", test]));
    }
}

#[test]
fn by_force_with_membarrier() {
    if is_child() {
        give_up_under_load(|_| pervp::force_downgrade());
    }
    trials(&[], "downgrade::by_force_with_membarrier");
}

#[test]
fn by_force_with_visits_to_every_processor() {
    if is_child() {
        give_up_under_load(|_| pervp::force_downgrade());
    }
    trials(&[("SQUALL_MEMBARRIER", "off")], "downgrade::by_force_with_visits_to_every_processor");
}

/// Checks that no sequence in flight overwrites an atomic addition made after the process gave restartable
/// mode up. Each sequence takes most of a millisecond, so that some are in flight at that time. The thread
/// that gives the mode up then adds to the word of another processor. Such an addition can really happen: a
/// thread's cached processor number may be out of date.
fn give_up_and_add_from_elsewhere() {
    let allowed = squall_sys::affinity::allowed().expect("an affinity mask");
    let (RestartMode::Restartable, [there, .., here]) = (pervp::restart_mode(), &allowed[..]) else {
        println!("SKIP: needs restartable sequences and two processors");
        return;
    };
    const LAPS: u64 = 3_000_000;
    const ADDITIONS: u64 = 60;
    let word = PerVpWord::new();
    let (stop, added) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for cpu in [*there, *here, *there] {
            let (word, stop, added) = (&word, &stop, &added);
            scope.spawn(move || {
                squall_sys::affinity::restrict_to(&[cpu]).expect("a processor that was allowed");
                while !stop.load(Ordering::Relaxed) {
                    add_slowly(word, LAPS);
                    added.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Time for sequences to be in flight. The test waits for no end of one, since a busy processor lets
        // few of them end.
        thread::sleep(Duration::from_millis(15));
        squall_sys::affinity::restrict_to(&[*here]).expect("a processor that was allowed");
        squall_sys::area::set_own_cache(CacheSlot::Machine, *there as u32, ADDITIONS as u32 + 1);
        pervp::force_downgrade();
        for _ in 0..ADDITIONS {
            word.add(1);
            // Spread over the duration of a slow sequence.
            (0..3_000).for_each(|lap| _ = std::hint::black_box(lap));
        }
        let vp = Vp::current();
        assert_eq!(vp.index(), *there);
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(word.sum(), added.into_inner() + ADDITIONS, "a sequence committed late");
}

#[test]
fn no_sequence_commits_late() {
    if is_child() {
        give_up_and_add_from_elsewhere();
    }
    trials(&[], "downgrade::no_sequence_commits_late");
}

#[test]
fn no_sequence_commits_late_without_membarrier() {
    if is_child() {
        give_up_and_add_from_elsewhere();
    }
    trials(&[("SQUALL_MEMBARRIER", "off")], "downgrade::no_sequence_commits_late_without_membarrier");
}

/// Gives the mode up after each of the first instructions of an addition, also between its read of
/// `AREA_OFFSET` and its start. In each case the addition must take the atomic path.
///
/// The processor's trap flag stops the thread after each instruction. A stop inside the sequence restarts it,
/// so the sequence cannot commit before the handler has given the mode up and lets the thread run on.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(squall_tsan)))]
fn at_every_instruction_of_an_addition() {
    const INSTRUCTIONS: u64 = 48;
    let name = "downgrade::at_every_instruction_of_an_addition";
    match std::env::var("SQUALL_TEST_STEP") {
        Ok(step) => step_and_give_up(step.parse().expect("a number")),
        Err(_) => {
            for step in 1..=INSTRUCTIONS {
                again(&[("SQUALL_TEST_STEP", &step.to_string())], &["--exact", name]);
            }
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(squall_tsan)))]
fn step_and_give_up(step: u64) {
    use std::ffi::{c_int, c_void};
    unsafe extern "C" {
        fn signal(number: c_int, handler: *const ()) -> usize;
    }
    const TRAP: c_int = 5;
    static LEFT: AtomicU64 = AtomicU64::new(0);
    extern "C" fn on_trap(_: c_int, _: *mut c_void, context: *mut u8) {
        const FLAGS_OFFSET: usize = 40 + 17 * 8;
        const TRAP_FLAG: u64 = 1 << 8;
        if LEFT.fetch_sub(1, Ordering::Relaxed) == 1 {
            pervp::force_downgrade();
            // SAFETY: the flags in the `ucontext_t` that the kernel passes to every handler on x86-64.
            unsafe { *context.add(FLAGS_OFFSET).cast::<u64>() &= !TRAP_FLAG };
        }
    }
    let allowed = squall_sys::affinity::allowed().expect("an affinity mask");
    let (RestartMode::Restartable, [there, .., here]) = (pervp::restart_mode(), &allowed[..]) else {
        println!("SKIP: needs restartable sequences and two processors");
        return;
    };
    let word = PerVpWord::new();
    squall_sys::affinity::restrict_to(&[*here]).expect("a processor that was allowed");
    // The processor of the addition shows whether it took the atomic path.
    squall_sys::area::set_own_cache(CacheSlot::Machine, *there as u32, 9);
    LEFT.store(step, Ordering::Relaxed);
    // SAFETY: the handler is ours. Setting the flag stops this thread after the following instruction, and
    // the handler clears it. The stack is used below the part that the compiler may use (no `nostack`).
    unsafe {
        signal(TRAP, on_trap as *const ());
        std::arch::asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq");
    }
    word.add(1);
    assert_eq!(LEFT.load(Ordering::Relaxed), 0, "the addition has fewer instructions than steps");
    assert_eq!(pervp::restart_mode(), RestartMode::Atomic { why: AtomicReason::Downgraded });
    assert_eq!(
        (word.load(Vp::new(*there as u32)), word.sum()),
        (1, 1),
        "the addition committed after the mode was given up"
    );
}

/// A thread that really has no registration: it takes its own back, then counts.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu"))]
fn by_a_thread_without_registration() {
    if is_child() {
        give_up_under_load(|word| {
            crate::support::unregister();
            word.add(1);
            word.add(1u64.wrapping_neg());
        });
    }
    trials(&[], "downgrade::by_a_thread_without_registration");
}
