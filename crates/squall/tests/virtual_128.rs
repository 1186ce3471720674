//! Code that differs with more than 64 VPs, on a virtual machine of 128 VPs.
#![cfg(not(miri))]

#[path = "common/mod.rs"]
mod common;

use common::{Hits, Log, Spread, end};
use squall::{CallErrorKind, ClusterSize, Handle, Machine, Owned, Root, Vp, machine};
use std::sync::Once;
use std::thread;

fn machine_of_128() {
    static MADE: Once = Once::new();
    MADE.call_once(|| {
        Machine::set_virtual("nodes:4,caches:2,cores:8,threads:2".parse().unwrap()).unwrap();
    });
    assert_eq!(machine().vps().len(), 128);
}

/// Runs `f` on this VP.
fn on<T>(vp: u32, f: impl FnOnce() -> T) -> T {
    Vp::with_vp(Vp::new(vp), f).unwrap()
}

#[test]
fn co_10_translation_sets_have_as_many_words_as_are_needed() {
    machine_of_128();
    let _guard = common::misses_are_counted();
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Node);
    let h = hits.handle();
    let info = || squall::info_of(Handle::id(h)).unwrap();
    let unused = info().bytes;
    assert!(info().translations.is_empty());
    for vp in [127, 0, 63, 64, 65, 127] {
        on(vp, || h.add(1));
    }
    let vps: Vec<_> = info().translations.iter().map(Vp::index).collect();
    assert_eq!(vps, [0, 63, 64, 65, 127]);
    assert_eq!((info().misses, log.made()), (5, 4));
    let rep = (info().bytes - unused - 128 / 8) / 4;
    assert_eq!(info().bytes, unused + 4 * rep + 128 / 8, "bytes include the translation set");
    let end = Owned::destroy(hits);
    for vp in [0, 63, 64, 127, 5] {
        assert_eq!(on(vp, || h.try_add(1)).unwrap_err().reason(), CallErrorKind::Destroyed);
    }
    end.wait().unwrap();
    log.assert_over();
}

#[test]
fn co_12_first_misses_from_everywhere_at_once_lose_nothing() {
    machine_of_128();
    for size in [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Machine] {
        let log = Log::default();
        let hits = Spread::new(&log).create(size);
        let h = hits.handle();
        let ready = std::sync::Barrier::new(16);
        thread::scope(|scope| {
            for first in 0..16 {
                let ready = &ready;
                scope.spawn(move || {
                    ready.wait();
                    // Each thread visits the VPs in another order, so that they meet at different clusters.
                    for n in 0..128 {
                        on((n * (2 * first + 1) + first) % 128, || h.add(1));
                    }
                });
            }
        });
        assert_eq!(h.total(), 16 * 128, "{size}");
        let info = squall::info_of(Handle::id(h)).unwrap();
        assert_eq!(info.reps.len(), machine().clusters(size).len(), "{size}");
        assert_eq!(info.translations.len(), 128);
        // Losers of a race were dropped.
        assert_eq!(log.made() - log.reps_dropped(), info.reps.len());
        end(hits);
        log.assert_over();
    }
}

#[test]
fn co_68_a_representative_is_found_by_every_vp_of_its_cluster() {
    machine_of_128();
    let _guard = common::tables_are_discarded();
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Cpu);
    let h = hits.handle();
    // An order that makes the search tree as uneven as possible.
    let order = (0..128_u32).map(|n| n.reverse_bits() >> 25);
    for (vp, n) in order.zip(1_u64..) {
        on(vp, || h.add(n));
        assert_eq!(on(vp, || (h.who(), h.local())), ((squall::Cluster::new(vp), Vp::new(vp)), n));
        assert_eq!(h.total(), n * (n + 1) / 2);
        squall::tables::discard(Vp::new(vp));
    }
    assert_eq!(log.made(), 128);
    for (vp, n) in (0..128_u32).map(|n| n.reverse_bits() >> 25).zip(1_u64..) {
        assert_eq!(on(vp, || h.local()), n);
    }
    end(hits);
    log.assert_over();
}

#[test]
fn the_tests_pass_under_each_fallback() {
    if common::is_child() {
        return;
    }
    for environment in
        [&[("SQUALL_MEMBARRIER", "off")][..], &[("SQUALL_RECLAIMER", "off"), ("SQUALL_RSEQ", "off")]]
    {
        common::again(&["--test-threads=2"], environment);
    }
}
