//! Recycling: the id and the block of an ended object go to the next object of its size on its VP, and to no
//! other.
//!
//! A program of its own: it sets the topology of the process and turns the reclaimer off, and it also runs
//! under Miri, which cannot start processes.
#![cfg(not(loom))]

use squall_core::{CallError, CallErrorKind, Handle, Owned, info_of, shared, tables};
use squall_machine::{Machine, Vp};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, MutexGuard, Once};
use std::thread;

/// Whether this build recycles blocks (`recycle::KEEPS`).
const KEEPS: bool = cfg!(squall_recycle) || !cfg!(any(miri, squall_asan));

#[squall_macros::interface(crate = squall_core)]
trait Number: Send + Sync {
    fn number(&self) -> u64;
    fn address(&self) -> usize;
}

struct Plain<const WORDS: usize>([u64; WORDS]);

impl<const WORDS: usize> Number for Plain<WORDS> {
    fn number(&self) -> u64 {
        self.0.iter().sum()
    }
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

fn object<const WORDS: usize>(n: u64) -> Owned<dyn Number> {
    let mut words = [0; WORDS];
    words[0] = n;
    shared(Plain(words))
}

/// Sets up a machine of eight VPs. Tests run one at a time, since they inspect blocks that others would take.
fn machine_of_8() -> MutexGuard<'static, ()> {
    static MADE: Once = Once::new();
    static TURN: Mutex<()> = Mutex::new(());
    MADE.call_once(|| {
        Machine::set_virtual("cores:8".parse().unwrap()).unwrap();
        // An object that the reclaimer ends is not ended on its home, and leaves no block there.
        squall_rcu::set_reclaimer(false);
    });
    TURN.lock().unwrap_or_else(|poison| poison.into_inner())
}

fn on<T>(vp: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

fn end(object: Owned<dyn Number>) {
    Owned::destroy(object).wait().unwrap();
}

/// Returns the slot, the generation and the address of the value.
fn place(object: &Owned<dyn Number>) -> (u32, u32, usize) {
    let id = Handle::id(object.handle());
    (id.slot(), id.generation(), object.address())
}

#[test]
fn co_29_the_next_object_of_a_size_has_slot_and_block_under_the_next_generation() {
    let _turn = machine_of_8();
    on(0, || {
        let first = object::<2>(1);
        let (slot, generation, address) = place(&first);
        let stale = first.handle();
        end(first);
        let next = object::<2>(2);
        assert_eq!(place(&next).0, slot, "a slot that is free on this VP is used first");
        assert_eq!(place(&next).1, generation + 1);
        if KEEPS {
            assert_eq!(place(&next).2, address);
        }
        assert_eq!(next.number(), 2);
        let error: CallError = stale.try_number().unwrap_err();
        assert_eq!(error.reason(), CallErrorKind::Destroyed);
        assert!(info_of(Handle::id(stale)).is_none());
        end(next);
    });
}

#[test]
fn other_sizes_and_other_vps_get_other_blocks() {
    let _turn = machine_of_8();
    let address = on(1, || {
        let first = object::<3>(1);
        let address = first.address();
        end(first);
        address
    });
    let others: Vec<_> = (0..8).map(|_| on(2, || object::<3>(1))).collect();
    let larger: Vec<_> = (0..8).map(|_| on(1, || object::<9>(1))).collect();
    for other in others.iter().chain(&larger) {
        assert!(!KEEPS || other.address() != address);
        assert_eq!(other.number(), 1);
    }
    for (objects, vp) in [(others, 2), (larger, 1)] {
        for object in objects {
            let home = info_of(Handle::id(object.handle())).unwrap().home;
            assert_eq!(home, Some(Vp::new(vp)), "an id is of the VP that made the object");
            on(vp, || end(object));
        }
    }
}

#[test]
fn slots_of_objects_ended_elsewhere_return_home() {
    // Only this test uses these two VPs.
    const HOME: u32 = 6;
    const ELSEWHERE: u32 = 7;
    let _turn = machine_of_8();
    let made = |vp| {
        let objects: Vec<_> = (0..8).map(|n| on(vp, || object::<4>(n))).collect();
        let slots: HashSet<u32> = objects.iter().map(|object| Handle::id(object.handle()).slot()).collect();
        (objects, slots)
    };
    let (objects, slots) = made(HOME);
    objects.into_iter().for_each(|object| on(ELSEWHERE, || end(object)));
    let (there, others) = made(ELSEWHERE);
    assert!(others.is_disjoint(&slots), "a slot went astray");
    let (here, again) = made(HOME);
    assert_eq!(again, slots, "a slot is lost");
    here.into_iter().chain(there).for_each(end);
}

#[test]
fn objects_beyond_the_kept_ones_are_made_again() {
    let _turn = machine_of_8();
    let count = if cfg!(miri) { 40 } else { 5000 };
    // Only this test uses this VP.
    on(5, || {
        let mut seen = HashSet::new();
        for round in 0..3 {
            let objects: Vec<_> = (0..count).map(object::<1>).collect();
            let ids: HashSet<_> = objects.iter().map(|object| Handle::id(object.handle())).collect();
            assert_eq!(ids.len(), objects.len(), "an id was given twice");
            let addresses: HashSet<_> = objects.iter().map(|object| object.address()).collect();
            assert_eq!(addresses.len(), objects.len(), "a block was given twice");
            assert!(objects.iter().zip(0..).all(|(object, n)| object.number() == n));
            assert!(ids.iter().all(|id| seen.insert(*id)), "an id came again");
            if round > 0 {
                let slots =
                    |ids: &HashSet<squall_core::Id>| ids.iter().map(|id| id.slot()).collect::<HashSet<_>>();
                assert_eq!(
                    slots(&seen).len(),
                    slots(&ids).len(),
                    "the slots of the round before were not used"
                );
            }
            objects.into_iter().for_each(drop);
            squall_rcu::barrier().unwrap();
        }
    });
}

#[test]
fn trim_returns_the_kept_blocks() {
    const VP: u32 = 4;
    let _turn = machine_of_8();
    on(VP, || {
        let mut slots = HashSet::new();
        for object in [object::<1>(1), object::<2>(2), object::<5>(5), object::<100>(100)] {
            slots.insert(Handle::id(object.handle()).slot());
            end(object);
        }
        let before = tables::stats().kept_bytes;
        let freed = tables::trim();
        assert_eq!(tables::stats().kept_bytes, before - freed);
        assert!(freed >= if KEEPS { size_of::<u64>() * (1 + 2 + 5) } else { 0 });
        assert_eq!(tables::trim(), 0);
        // A slot without a kept block is as good as any other.
        let objects: Vec<_> = (0..4).map(object::<3>).collect();
        assert!(objects.iter().all(|object| slots.contains(&Handle::id(object.handle()).slot())));
        objects.into_iter().for_each(end);
    });
}

/// A value with a counted drop, of the size of other values.
struct Counted<'a>(u64, &'a AtomicUsize);

impl Number for Counted<'static> {
    fn number(&self) -> u64 {
        self.0
    }
    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::Relaxed);
        // The next object cannot have this block yet (object/I4).
        let next = shared::<dyn Number, _>(Plain([self.0, 0]));
        assert_ne!(next.address(), std::ptr::from_ref(self).addr());
        assert_eq!(next.number(), self.0);
    }
}

#[test]
fn threads_never_share_a_recycled_block() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    let _turn = machine_of_8();
    let (threads, rounds) = if cfg!(miri) { (3, 4) } else { (8, 2000) };
    let start = Barrier::new(threads);
    thread::scope(|scope| {
        for thread in 0..threads {
            let start = &start;
            scope.spawn(move || {
                // At least two threads on each VP.
                Vp::assign_current(Vp::new(thread as u32 / 2 % 4)).unwrap();
                start.wait();
                for round in 0..rounds {
                    let n = (thread * rounds + round) as u64;
                    let counted: Owned<dyn Number> = shared(Counted(n, &DROPS));
                    let plain = object::<2>(n);
                    assert_eq!((counted.number(), plain.number()), (n, n));
                    let (counted, stale) = (counted, plain.handle());
                    drop(plain);
                    assert!(stale.try_number().is_err());
                    assert_eq!(counted.number(), n);
                }
            });
        }
    });
    // Drops make objects, which are destroyed in turn.
    squall_rcu::barrier().unwrap();
    assert_eq!(DROPS.load(Ordering::Relaxed), threads * rounds);
}
