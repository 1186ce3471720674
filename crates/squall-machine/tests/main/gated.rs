//! The gated word, with more threads than processors, which move and are preempted. No addition is lost while
//! gates open and close, and a closed gate lets no addition through.

#[cfg(not(miri))]
use crate::support::hop;
use crate::support::{EXPECT, MODES, Random, again, is_child, roam, slowness};
use squall_machine::pervp::{self, GatedWord, RestartMode};
use squall_machine::{Vp, machine};
use squall_sys::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use squall_sys::sync::thread;

const THREADS: u64 = if cfg!(miri) { 3 } else { 6 };
const PER_HOP: u64 = 300;

fn operations() -> u64 {
    if cfg!(miri) { 60 } else { 60_000 / slowness() }
}

fn rounds() -> u64 {
    if cfg!(miri) { 5 } else { 2_000 / slowness() }
}

fn words() -> Vec<GatedWord> {
    (0..machine().vp_limit() as u32).map(|vp| GatedWord::new(Vp::new(vp))).collect()
}

fn sum(words: &[GatedWord], of: impl Fn(&GatedWord) -> u64) -> u64 {
    words.iter().map(of).sum()
}

/// Sets the flag when it is dropped, so that the threads of a failed test end.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// True if gates open in this process. Tries a gate on the VP of a thread that stays there.
fn gates_open() -> bool {
    let allowed = squall_sys::affinity::allowed().unwrap_or_default();
    let place = allowed.first().copied();
    let stays = move || {
        let Some(place) = place.filter(|_| !machine().is_virtual()) else { return false };
        squall_sys::affinity::restrict_to(&[place]).expect("a processor that was allowed");
        let word = GatedWord::new(Vp::new(place as u32));
        word.open();
        word.count_at_gate()
    };
    thread::spawn(stays).join().expect("it does not panic")
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn again_in_every_mode() {
    if is_child() {
        return;
    }
    for &(name, value, expect) in MODES {
        again(&[(name, value), (EXPECT, expect)], &["gated::"]);
    }
    // The process has sequences, but the kernel does not restart them on request.
    again(&[("SQUALL_MEMBARRIER", "off")], &["gated::"]);
}

#[test]
fn a_gate_opens_only_if_it_can_be_closed_again() {
    let refused = std::env::var_os("SQUALL_MEMBARRIER").is_some_and(|value| value == "off");
    let restartable = pervp::restart_mode() == RestartMode::Restartable;
    if refused || !restartable {
        assert!(!gates_open());
    } else if squall_sys::membarrier::restart_all().is_ok() {
        assert!(gates_open());
    }
    assert_eq!(GatedWord::finish_closing(), Ok(()));
}

#[test]
fn a_new_word_is_closed() {
    let each = words();
    assert!(each.iter().all(|word| !word.count_at_gate()));
    each.iter().for_each(GatedWord::count);
    assert!(each.iter().all(|word| (word.added_at_gate(), word.added_elsewhere(), word.load()) == (0, 1, 1)));
    let name = format!("{:?}", each[0]);
    assert_eq!(name, "GatedWord { vp: Vp(0), open: false, sum: 1 }");
}

#[test]
#[should_panic(expected = "does not exist")]
fn a_nonexistent_vp_is_rejected() {
    GatedWord::new(Vp::new(machine().vp_limit() as u32));
}

/// A gate belongs to one VP.
#[test]
fn other_vps_are_rejected_at_the_gate() {
    let each = words();
    each.iter().for_each(GatedWord::open);
    let allowed = squall_sys::affinity::allowed().unwrap_or_default();
    let places = if machine().is_virtual() { (0..each.len()).collect() } else { allowed };
    let open = gates_open();
    thread::scope(|scope| {
        for &place in &places {
            let each = &each;
            scope.spawn(move || {
                if machine().is_virtual() {
                    Vp::assign_current(Vp::new(place as u32)).expect("a VP below the limit");
                } else {
                    squall_sys::affinity::restrict_to(&[place]).expect("a processor that was allowed");
                }
                for (at, word) in each.iter().enumerate() {
                    assert_eq!(word.vp(), Vp::new(at as u32));
                    assert_eq!(word.count_at_gate(), open && at == place);
                }
            });
        }
    });
    assert_eq!(sum(&each, GatedWord::added_at_gate), if open { places.len() as u64 } else { 0 });
    roam();
}

/// Gates open and close all the time; each addition takes one of the two paths, once.
#[test]
fn sums_are_exact() {
    let each = words();
    let (done, at_gates) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                each.iter().for_each(GatedWord::open);
                thread::yield_now();
                each.iter().for_each(GatedWord::close);
                thread::yield_now();
            }
        });
        let _over = Over(&done);
        thread::scope(|adders| {
            for id in 0..THREADS {
                let (each, at_gates) = (&each, &at_gates);
                adders.spawn(move || {
                    let (mut random, mut own) = (Random::new(id + 1), 0);
                    for operation in 0..operations() {
                        // Half of the threads stay on the scheduler's choice of processor.
                        #[cfg(not(miri))]
                        if operation % PER_HOP == 0 && id % 2 == 0 {
                            hop(&mut random);
                        }
                        let near = Vp::current().index();
                        let any = (random.next() + operation / PER_HOP) as usize % each.len();
                        for word in [&each[near], &each[any]] {
                            if word.count_at_gate() {
                                own += 1;
                            } else {
                                word.count();
                            }
                        }
                    }
                    at_gates.fetch_add(own, Ordering::Relaxed);
                    roam();
                });
            }
        });
    });
    assert_eq!(sum(&each, GatedWord::load), 2 * THREADS * operations());
    assert_eq!(sum(&each, GatedWord::added_at_gate), at_gates.into_inner());
}

/// A count read after closing has finished no longer changes. Several threads add at the gates all the time.
#[test]
fn closing_is_exact() {
    let each = words();
    let (done, at_gates) = (AtomicBool::new(false), AtomicU64::new(0));
    let (open, mut came_through) = (gates_open(), 0);
    thread::scope(|scope| {
        for _ in 0..each.len().min(4) {
            let (each, done, at_gates) = (&each, &done, &at_gates);
            scope.spawn(move || {
                let mut own = 0;
                while !done.load(Ordering::Relaxed) {
                    let near = &each[Vp::current().index()];
                    (0..PER_HOP).for_each(|_| own += u64::from(near.count_at_gate()));
                    #[cfg(miri)]
                    thread::yield_now();
                }
                at_gates.fetch_add(own, Ordering::Relaxed);
            });
        }
        let _over = Over(&done);
        // Goes on until an addition came through.
        let mut round = 0;
        while round < rounds() || (open && came_through == 0) {
            round += 1;
            let before = sum(&each, GatedWord::added_at_gate);
            each.iter().for_each(GatedWord::open);
            // Long enough for the other threads to own the cache lines, and to be inside a sequence.
            for _ in 0..round % 1024 {
                squall_sys::sync::hint::spin_loop();
            }
            each.iter().for_each(GatedWord::close);
            if GatedWord::finish_closing().is_err() {
                println!("SKIP: the kernel no longer restarts sequences");
                return;
            }
            let closed = sum(&each, GatedWord::added_at_gate);
            for _ in 0..200 {
                assert_eq!(sum(&each, GatedWord::added_at_gate), closed, "an addition passed a closed gate");
            }
            came_through += closed - before;
        }
    });
    assert_eq!(sum(&each, GatedWord::added_at_gate), at_gates.into_inner());
}

/// After a downgrade there are no sequences, so every gate rejects.
#[test]
#[cfg(not(miri))]
fn without_sequences_gates_are_closed() {
    let name = "gated::without_sequences_gates_are_closed";
    if !is_child() {
        return again(&[], &["--exact", name]);
    }
    let each = words();
    each.iter().for_each(GatedWord::open);
    pervp::force_downgrade();
    assert!(each.iter().all(|word| !word.count_at_gate()));
    assert_eq!(GatedWord::finish_closing(), Ok(()));
}

/// Its `cpu_id` is negative, which equals neither a VP nor the value of a closed gate.
#[test]
#[cfg(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu", not(miri)))]
fn an_unregistered_thread_is_rejected_at_every_gate() {
    let name = "gated::an_unregistered_thread_is_rejected_at_every_gate";
    if !is_child() {
        return again(&[], &["--exact", name]);
    }
    let (before, each) = (pervp::restart_mode(), words());
    let stray = || {
        if before == RestartMode::Restartable {
            crate::support::unregister();
        }
        each.iter().for_each(GatedWord::open);
        assert!(each.iter().all(|word| !word.count_at_gate()));
        each.iter().for_each(GatedWord::close);
        assert!(each.iter().all(|word| !word.count_at_gate()));
        each.iter().for_each(GatedWord::count);
    };
    thread::scope(|scope| scope.spawn(stray).join().expect("it does not panic"));
    assert_eq!(sum(&each, GatedWord::load), each.len() as u64);
    assert_eq!(pervp::restart_mode(), before);
}

/// Runs the instructions themselves on the first and on the last VP, also where the kernel has no sequences.
#[test]
#[cfg(not(miri))]
fn instructions_agree_with_a_model() {
    let name = "gated::instructions_agree_with_a_model";
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
    let (own, last) = (GatedWord::new(Vp::new(cpu)), machine().vp_limit() as u32 - 1);
    let other = GatedWord::new(Vp::new(if cpu == last { 0 } else { last }));
    // SAFETY: the other threads of this child are the test harness's, which use no per-VP operations.
    unsafe { pervp::pretend_restartable(cpu) };
    let (mut random, mut counts, mut is_open) = (Random::new(5), (0, 0), false);
    for _ in 0..10_000 {
        match random.next() % 8 {
            0 => [&own, &other].into_iter().for_each(GatedWord::open),
            1 => [&own, &other].into_iter().for_each(GatedWord::close),
            _ => {
                assert_eq!(own.count_at_gate(), is_open);
                counts.0 += u64::from(is_open);
                if other.vp() != own.vp() {
                    assert!(!other.count_at_gate());
                    other.count();
                    counts.1 += 1;
                }
                assert_eq!((own.load(), other.load()), counts);
                continue;
            }
        }
        is_open = format!("{own:?}").contains("open: true");
    }
    assert!(counts.0 > 0);
    assert_eq!((own.added_elsewhere(), other.added_at_gate()), (0, 0));
    assert_eq!(pervp::restart_mode(), RestartMode::Restartable, "something took the atomic path");
}
