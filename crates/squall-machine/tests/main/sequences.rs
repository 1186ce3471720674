//! Every instruction of every restartable sequence, against a model. The tests also run where the kernel has
//! no sequences (emulated user mode, a switched-off C library). The own block is then made to look
//! registered, in a process with one user of it.
#![cfg(not(miri))]

use crate::support::{Random, add_slowly, again, is_child};
use squall_machine::pervp::{
    self, CasError, ListNode, PerVpList, PerVpWord, PerVpWords, RestartMode, pretend_restartable,
};
use squall_machine::{Vp, machine, restartable};
use std::ptr::NonNull;

const NATIVE: bool = squall_sys::area::NATIVE && !cfg!(squall_tsan);

/// Length of a slow sequence: some microseconds.
const LAPS: u64 = 20_000;

fn pretend(cpu: u32) -> Vp {
    // SAFETY: the other threads of this child are the test harness's, which use no per-VP operations.
    unsafe { pretend_restartable(cpu) };
    assert_eq!(pervp::restart_mode(), RestartMode::Restartable);
    assert_eq!(Vp::current(), Vp::new(cpu));
    Vp::new(cpu)
}

/// Runs `check` in a child process for the first and for the last VP.
fn in_children(test: &str, check: impl FnOnce(Vp)) {
    if !NATIVE {
        println!("SKIP: no sequences in this build");
    } else if let (true, Ok(cpu)) = (is_child(), std::env::var("SQUALL_TEST_CPU")) {
        check(pretend(cpu.parse().expect("a number")));
        assert_eq!(pervp::restart_mode(), RestartMode::Restartable, "something took the atomic path");
    } else if !is_child() {
        for cpu in [0, machine().vp_limit() - 1] {
            again(&[("SQUALL_TEST_CPU", &cpu.to_string()), ("SQUALL_RSEQ", "off")], &["--exact", test]);
        }
    }
}

#[test]
fn words_agree_with_a_model() {
    in_children("sequences::words_agree_with_a_model", |vp| {
        let words = PerVpWords::<4>::new();
        let elsewhere = Vp::new(vp.index() as u32 + 1);
        let mut model = [0u64; 4];
        let mut random = Random::new(3);
        for step in 0..20_000 {
            let (at, other) = (random.below(4) as usize, random.below(3) as usize);
            let other = if other >= at { other + 1 } else { other };
            let value = random.next() << (step % 60);
            match random.below(9) {
                0 | 1 => {
                    words.add(at, value);
                    model[at] = model[at].wrapping_add(value);
                }
                2 => assert_eq!(words.swap(at, value), (vp, std::mem::replace(&mut model[at], value))),
                3 => {
                    assert_eq!(words.compare_and_store(vp, at, model[at], value), Ok(()));
                    model[at] = value;
                }
                4 => assert_eq!(
                    words.compare_and_store(vp, at, model[at] ^ 1 << (step % 64), value),
                    Err(CasError::Changed(model[at]))
                ),
                5 => assert_eq!(
                    words.compare_and_store(elsewhere, at, model[at], value),
                    Err(CasError::Elsewhere(vp))
                ),
                6 => {
                    let outcome = words.compare_store_and_store(vp, (at, model[at], value), (other, !value));
                    assert_eq!(outcome, Ok(()));
                    (model[at], model[other]) = (value, !value);
                }
                7 => {
                    let wrong = model[at].wrapping_add(1);
                    let outcome = words.compare_store_and_store(vp, (at, wrong, value), (other, value));
                    assert_eq!(outcome, Err(CasError::Changed(model[at])));
                    let outcome = words.compare_store_and_store(elsewhere, (at, model[at], 1), (other, 1));
                    assert_eq!(outcome, Err(CasError::Elsewhere(vp)));
                }
                _ => {
                    let outcome = words.update(at, |old| (old % 2 == 0).then_some(old ^ value));
                    if model[at] % 2 == 0 {
                        assert_eq!(outcome, Some((vp, model[at])));
                        model[at] ^= value;
                    } else {
                        assert_eq!(outcome, None);
                    }
                }
            }
            for (index, &expected) in model.iter().enumerate() {
                assert_eq!(words.load(vp, index), expected, "step {step}");
                assert_eq!(words.sum(index), expected, "step {step} wrote to another VP");
            }
        }
    });
}

#[test]
fn lists_agree_with_a_model() {
    in_children("sequences::lists_agree_with_a_model", |vp| {
        let nodes: Vec<NonNull<ListNode>> =
            (0..50).map(|_| NonNull::from(Box::leak(Box::new(ListNode::new())))).collect();
        let mut list = PerVpList::new();
        let (mut free, mut model) = (nodes.clone(), Vec::new());
        let mut random = Random::new(5);
        for _ in 0..20_000 {
            if random.below(2) == 0 {
                // SAFETY: our nodes, pushed only while free, freed after the list.
                let popped = unsafe { list.pop() };
                assert_eq!(popped, model.pop());
                free.extend(popped);
            } else if let Some(node) = free.pop() {
                // SAFETY: our nodes, pushed only while free, freed after the list.
                unsafe { list.push(node) };
                model.push(node);
            }
        }
        let mut drained = Vec::new();
        // SAFETY: the nodes are valid.
        unsafe { list.drain(|at, node| drained.push((at, node))) };
        model.reverse();
        assert_eq!(drained, model.into_iter().map(|node| (vp, node)).collect::<Vec<_>>());
        drop(list);
        // SAFETY: each came from a `Box` above, and the list is gone.
        nodes.into_iter().for_each(|node| drop(unsafe { Box::from_raw(node.as_ptr()) }));
    });
}

/// The macro as a user writes it: a counter that stops at a limit.
fn add_below(word: &PerVpWord, limit: u64) -> Result<Vp, u64> {
    let home = word.home().as_ptr();
    // SAFETY: of `restartable!`: 1. only the last instruction stores. 2. Only `count` changes. 3. The word's
    // home.
    unsafe {
        restartable! {
            in: [home = home, limit = limit],
            out: [count: u64],
            x86_64: [
                "mov {count}, qword ptr [{home} + {part}]",
                "cmp {count}, {limit}",
                "jae 33f",
                "add qword ptr [{home} + {part}], 1",
            ],
            aarch64: [
                "ldr {count}, [{home}, {part}]",
                "cmp {count}, {limit}",
                "b.hs 33f",
                "add {tmp}, {count}, #1",
                "str {tmp}, [{home}, {part}]",
            ],
            done: |vp| if count < limit { Ok(vp) } else { Err(count) },
            fallback: word
                .update(|count| (count < limit).then_some(count + 1))
                .map(|(vp, _)| vp)
                .ok_or(limit),
        }
    }
}

#[test]
fn a_user_sequence_works() {
    in_children("sequences::a_user_sequence_works", |vp| {
        let word = PerVpWord::new();
        (0..10).for_each(|_| assert_eq!(add_below(&word, 10), Ok(vp)));
        (0..10).for_each(|_| assert_eq!(add_below(&word, 10), Err(10)));
        assert_eq!(word.load(vp), 10);
    });
}

/// A user's sequence in the mode of this process, with restarts by the kernel.
#[test]
fn a_user_sequence_works_under_load() {
    const LIMIT: u64 = 5_000;
    let word = PerVpWord::new();
    let added: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|_| scope.spawn(|| (0..20_000).filter(|_| add_below(&word, LIMIT).is_ok()).count() as u64))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a thread that counts")).sum()
    });
    assert_eq!(word.sum(), added);
    assert!(word.iter().all(|(_, value)| value <= LIMIT));
}

/// Adds like `add_slowly`, without the frame: load, delay, store.
fn add_slowly_unprotected(word: &PerVpWord) {
    use squall_sys::sync::atomic::{AtomicU64, Ordering};
    // SAFETY: the word of a VP below the limit, of an object that outlives the borrow, accessed atomically.
    let word =
        unsafe { AtomicU64::from_ptr(word.home().as_ptr().byte_add(Vp::current().index() << pervp::SHIFT)) };
    let count = word.load(Ordering::Relaxed);
    (0..if cfg!(debug_assertions) { 1_000 } else { 20_000 }).for_each(|lap| _ = std::hint::black_box(lap));
    word.store(count + 1, Ordering::Relaxed);
}

/// Counts the additions that are lost when six threads add, all on one processor if the system allows that.
fn lost(add: impl Fn(&PerVpWord) + Sync, each: u64) -> u64 {
    let word = PerVpWord::new();
    let place = squall_sys::affinity::allowed().ok().and_then(|allowed| allowed.first().copied());
    let work = || {
        if let Some(place) = place {
            let _ = squall_sys::affinity::restrict_to(&[place]);
        }
        (0..each).for_each(|_| add(&word));
    };
    std::thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(work))));
    6 * each - word.sum()
}

/// The kernel restarts sequences that it preempts: plain code loses additions, the sequence loses no
/// addition.
#[test]
fn a_preempted_sequence_is_restarted() {
    if machine().is_virtual() {
        println!("SKIP: threads on one processor have different VPs");
        return;
    }
    // First check the test itself: plain code loses additions where threads are preempted. The test hangs if
    // it cannot detect a loss.
    while lost(add_slowly_unprotected, 1_500) == 0 {}
    for _ in 0..3 {
        assert_eq!(lost(|word| add_slowly(word, LAPS), 1_500), 0);
    }
}

/// Sequences in signal handlers, which interrupt sequences.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_handler_may_run_sequences() {
    use squall_sys::sync::atomic::{AtomicPtr, AtomicU64, Ordering, fence};
    use std::ffi::{c_int, c_long};
    unsafe extern "C" {
        fn signal(number: c_int, handler: *const ()) -> usize;
        fn setitimer(which: c_int, new: *const [c_long; 4], old: *mut [c_long; 4]) -> c_int;
    }
    static WORD: AtomicPtr<PerVpWord> = AtomicPtr::new(std::ptr::null_mut());
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn on_alarm(_: c_int) {
        BEGUN.fetch_add(1, Ordering::Relaxed);
        // Release: pairs with the fence of the check. A sum with this addition comes with this count.
        fence(Ordering::Release);
        // SAFETY: set before the timer starts, and leaked.
        unsafe { &*WORD.load(Ordering::Relaxed) }.add(1);
        // Release: pairs with the Acquire of the check.
        HANDLED.fetch_add(1, Ordering::Release);
    }
    if !is_child() {
        return again(&[], &["--exact", "sequences::a_signal_handler_may_run_sequences"]);
    }
    const ALARM: c_int = 14;
    const EACH: u64 = 1_000;
    let word: &PerVpWord = Box::leak(Box::new(PerVpWord::new()));
    WORD.store(std::ptr::from_ref(word).cast_mut(), Ordering::Relaxed);
    Vp::current();
    // SAFETY: the handler uses only atomics and `add`; the array has the layout of `struct itimerval`: 100
    // us.
    unsafe {
        signal(ALARM, on_alarm as *const ());
        assert_eq!(setitimer(0, &[0, 100, 0, 100], std::ptr::null_mut()), 0);
    }
    let mut added = 0;
    while HANDLED.load(Ordering::Relaxed) < 200 {
        std::thread::scope(|scope| {
            (0..3).for_each(|_| drop(scope.spawn(|| (0..EACH).for_each(|_| add_slowly(word, LAPS)))));
        });
        added += 3 * EACH;
    }
    // SAFETY: the same layout; zeros stop the timer.
    assert_eq!(unsafe { setitimer(0, &[0; 4], std::ptr::null_mut()) }, 0);
    // A signal may still be on its way to another thread. The sum counts if no handler ran while it was read.
    loop {
        // Acquire: the additions of these handlers are in the sum.
        let handled = HANDLED.load(Ordering::Acquire);
        let sum = word.sum();
        // Acquire: pairs with the fence of the handler.
        fence(Ordering::Acquire);
        if BEGUN.load(Ordering::Relaxed) == handled {
            assert_eq!(sum, added + handled, "an addition was lost");
            break;
        }
        std::thread::yield_now();
    }
}
