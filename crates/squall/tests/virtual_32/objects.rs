//! Objects: representatives, misses, ids, gathers and destruction, by the VP of each call.

use crate::common::{self, Event, Hits, Inside, Log, Spread, alone, assert_held_up, end, stop};
use crate::{machine_of_32, on, vps};
use squall::{
    CallErrorKind, Cleanup, Cluster, ClusterSize, Handle, Interface, Owned, RepContext, Root, Vp, machine,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

fn info(hits: Handle<dyn Hits>) -> squall::ObjectInfo {
    squall::info_of(Handle::id(hits)).unwrap()
}

#[test]
fn pr_02_nothing_is_made_before_the_first_call_and_then_only_where_it_is() {
    machine_of_32();
    let _guard = common::misses_are_counted();
    let log = Log::default();
    let hits = on(7, || Spread::new(&log).create(ClusterSize::Cpu));
    let h = hits.handle();
    let unused = info(h).bytes;
    assert_eq!((log.made(), info(h).misses, vps(&info(h).translations)), (0, 0, vec![]));
    on(5, || h.add(1));
    assert_eq!(*log.events(), [Event::Made(Cluster::new(5))]);
    assert_eq!((info(h).misses, vps(&info(h).translations)), (1, vec![5]));
    let one = info(h).bytes - unused;
    on(20, || h.add(1));
    assert_eq!((info(h).misses, vps(&info(h).translations)), (2, vec![5, 20]));
    assert_eq!(info(h).bytes, unused + 2 * one, "each calling VP adds the same number of bytes");
    // The home VP has no representative, since it never called.
    assert_eq!(info(h).home, Some(Vp::new(7)));
    assert_eq!(on(7, || h.total()), 2);
    assert_eq!(log.made(), 3);
    end(hits);
    log.assert_over();
}

#[test]
fn to_06_one_miss_for_each_vp_and_none_after() {
    machine_of_32();
    let _guard = common::misses_are_counted();
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Core);
    let h = hits.handle();
    for round in 1..=3 {
        for vp in 0..32 {
            on(vp, || (0..10).for_each(|_| h.add(1)));
        }
        assert_eq!((info(h).misses, log.made()), (32, 16), "round {round}");
    }
    assert_eq!(info(h).translations.len(), 32);
    assert_eq!(h.total(), 3 * 32 * 10);
    end(hits);
    log.assert_over();
}

#[test]
fn co_09_each_size_of_cluster_has_one_representative_for_each_of_its_clusters() {
    machine_of_32();
    let sizes = [
        (ClusterSize::Cpu, 32),
        (ClusterSize::Core, 16),
        (ClusterSize::Cache, 4),
        (ClusterSize::Node, 2),
        (ClusterSize::Machine, 1),
        (ClusterSize::fixed(5), 7),
    ];
    for (size, clusters) in sizes {
        let log = Log::default();
        let hits = Spread::new(&log).create(size);
        let h = hits.handle();
        // Every second VP backwards, then all VPs.
        (0..32).rev().step_by(2).chain(0..32).for_each(|vp| on(vp, || h.add(1)));
        assert_eq!(log.made(), clusters, "{size}");
        for vp in 0..32 {
            let (cluster, made_by) = on(vp, || h.who());
            let of_size = machine().clusters(size);
            assert_eq!(cluster, of_size.cluster_of(Vp::new(vp)), "{size}, VP {vp}");
            assert_eq!(of_size.cluster_of(made_by), cluster, "{size}, VP {vp}");
        }
        assert_eq!(h.total(), 16 + 32);
        let of: BTreeSet<_> = info(h).reps.iter().map(|rep| rep.cluster.unwrap()).collect();
        assert_eq!(of.len(), clusters);
        end(hits);
        log.assert_over();
    }
}

#[test]
fn co_06_a_local_entry_may_be_discarded_at_any_time() {
    machine_of_32();
    let _guard = common::tables_are_discarded();
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Core);
    let h = hits.handle();
    on(2, || h.add(1));
    on(3, || h.add(1));
    assert_eq!((info(h).misses, log.made()), (2, 1));
    // Discards between calls and within a call.
    squall::tables::discard_page_of(Vp::new(2), Handle::id(h));
    on(3, || h.add(1));
    assert_eq!(info(h).misses, 2, "the entry of VP 3 stayed");
    on(2, || {
        h.within(&mut || {
            squall::tables::discard(Vp::new(2));
            h.add(1);
        });
        h.add(1);
    });
    // One miss for the page, one for the table.
    assert_eq!((info(h).misses, log.made(), vps(&info(h).translations)), (4, 1, vec![2, 3]));
    assert_eq!(h.total(), 5);
    end(hits);
    log.assert_over();
}

#[test]
fn to_08_tables_are_discarded_while_every_vp_calls() {
    machine_of_32();
    let _guard = common::tables_are_discarded();
    let logs: Vec<Log> = (0..4).map(|_| Log::default()).collect();
    let sizes = [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Node, ClusterSize::Machine];
    let objects: Vec<_> = logs.iter().zip(sizes).map(|(log, size)| Spread::new(log).create(size)).collect();
    let handles: Vec<_> = objects.iter().map(Owned::handle).collect();
    let going = AtomicUsize::new(8);
    thread::scope(|scope| {
        for first in 0..8 {
            let (handles, going) = (&handles, &going);
            scope.spawn(move || {
                for n in 0..2000 {
                    on((first + n * 8) % 32, || handles.iter().for_each(|hits| hits.add(1)));
                }
                going.fetch_sub(1, Ordering::Relaxed);
            });
        }
        let mut vp = 0;
        while going.load(Ordering::Relaxed) > 0 {
            squall::tables::discard(Vp::new(vp));
            squall::tables::discard_page_of(Vp::new((vp + 16) % 32), Handle::id(handles[0]));
            vp = (vp + 1) % 32;
        }
    });
    assert!(handles.iter().all(|hits| hits.total() == 16_000));
    // Apart from losers of races, each representative was made once.
    assert!(logs.iter().map(|log| log.made() - log.reps_dropped()).eq([32, 16, 2, 1]));
    objects.into_iter().for_each(end);
    logs.iter().for_each(Log::assert_over);
}

#[test]
fn co_10_the_translation_set_is_exact_on_the_way_and_after_discards() {
    machine_of_32();
    let _guard = common::tables_are_discarded();
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Machine);
    let h = hits.handle();
    let mut expected = Vec::new();
    for vp in [31, 0, 17, 4] {
        on(vp, || h.add(1));
        expected.push(vp as usize);
        expected.sort_unstable();
        assert_eq!(vps(&info(h).translations), expected);
    }
    squall::tables::discard_all();
    assert_eq!(vps(&info(h).translations), expected, "discards keep the translation set");
    end(hits);
}

#[test]
fn co_05_an_id_names_the_vp_that_made_it() {
    machine_of_32();
    for vp in (0..32).rev() {
        let objects: Vec<Owned<dyn Hits>> =
            on(vp, || (0..3).map(|_| Spread::new(&Log::default()).create(ClusterSize::Cpu)).collect());
        for object in &objects {
            assert_eq!(info(object.handle()).home, Some(Vp::new(vp)));
        }
        // The id returns to its home, also if another VP destroys the object.
        on(31 - vp, || objects.into_iter().for_each(end));
        let next = on(vp, || Spread::new(&Log::default()).create(ClusterSize::Cpu));
        assert_eq!(info(next.handle()).home, Some(Vp::new(vp)));
        end(next);
    }
}

#[squall::interface]
trait Other: Send + Sync {
    fn other(&self) -> String;
}

struct Text(String);

impl Other for Text {
    fn other(&self) -> String {
        self.0.clone()
    }
}

#[squall::interface]
trait Sum: Send + Sync {
    fn add(&self, n: u64) -> u64;
}

/// As large as [`Text`]: the next object of a slot reuses its block if it has about the same size.
struct Wide(AtomicU64, [u64; 2]);
const _: () = assert!(size_of::<Wide>() == size_of::<Text>());

impl Sum for Wide {
    fn add(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed) + n + self.1[0]
    }
}

#[test]
fn pitfall_06_an_id_is_used_again_under_another_generation_only() {
    if !alone("objects::pitfall_06_an_id_is_used_again_under_another_generation_only") {
        return;
    }
    machine_of_32();
    on(5, || {
        let sum: Owned<dyn Sum> = squall::shared(Wide(AtomicU64::new(0), [0; 2]));
        let stale = sum.handle();
        // The table of VP 1 has an entry too.
        assert_eq!((stale.add(1), on(1, || stale.add(1))), (1, 2));
        Owned::destroy(sum).wait().unwrap();
        for generation in 2..20 {
            // An object of another interface in the same slot.
            let text = text_in(Handle::id(stale).slot(), &"not a number".repeat(5));
            assert_eq!(Handle::id(text.handle()).generation(), generation);
            assert_eq!(text.other().len(), 60);
            on(1, || assert_eq!(text.other().len(), 60));
            for vp in [1, 2, 5] {
                let error = on(vp, || stale.try_add(1)).unwrap_err();
                assert_eq!(
                    (error.reason(), error.id(), error.class()),
                    (CallErrorKind::Destroyed, Handle::id(stale), None)
                );
            }
            assert!(squall::info_of(Handle::id(stale)).is_none());
            // Until reclamation, only the last object's own handle knows the class.
            let dying = text.handle();
            let done = squall::rcu::pin(|_| {
                let done = Owned::destroy(text);
                assert_eq!(stale.try_add(1).unwrap_err().class(), None);
                assert_eq!(dying.try_other().unwrap_err().class(), Some(std::any::type_name::<Text>()));
                done
            });
            done.wait().unwrap();
            assert_eq!(dying.try_other().unwrap_err().class(), Some(std::any::type_name::<Text>()));
        }
    });
}

/// Creates objects until one gets this slot. The slot may reach the list of free slots late.
fn in_slot<I: ?Sized + Interface>(slot: u32, make: impl Fn() -> Owned<I>) -> Owned<I> {
    for _ in 0..60_000 {
        let made = make();
        if Handle::id(made.handle()).slot() == slot {
            return made;
        }
        // Kept, so that the next one does not get that one's.
        let _ = Owned::leak(made);
        squall::rcu::barrier().unwrap();
        thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("slot {slot} is not used again");
}

fn text_in(slot: u32, text: &str) -> Owned<dyn Other> {
    in_slot(slot, || squall::shared(Text(text.into())))
}

#[test]
fn co_29_the_id_is_free_only_after_the_last_drop() {
    if !alone("objects::co_29_the_id_is_free_only_after_the_last_drop") {
        return;
    }
    machine_of_32();
    let vp = 20;
    let log = Log::default();
    let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
    let slots = seen.clone();
    let hits = on(vp, || {
        Spread::new(&log)
            .on_drop(move |_| {
                // A free slot of this VP would be reused at once (`pitfall_06`).
                let text: Owned<dyn Other> = on(vp, || squall::shared(Text(String::new())));
                slots.lock().unwrap().push(Handle::id(text.handle()).slot());
                // Keeps this object, so that the next one gets another slot.
                let _ = Owned::leak(text);
            })
            .create(ClusterSize::Cpu)
    });
    let mine = Handle::id(hits.handle()).slot();
    (0..32).for_each(|vp| on(vp, || hits.add(1)));
    end(hits);
    log.assert_over();
    let slots = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(slots.len(), 32);
    assert!(!slots.contains(&mine), "{mine} was used again before the last drop");
    // After the last drop it is.
    let next = on(vp, || text_in(mine, ""));
    Owned::destroy(next).wait().unwrap();
}

// --- extended interfaces ---

#[squall::interface]
trait Named: Send + Sync {
    fn first(&self) -> u64;
    fn name(&self) -> String;
}

#[squall::interface]
trait Sized_: Send + Sync {
    fn size(&self) -> u64;
}

#[squall::interface]
trait File: Named + Sized_ {
    fn read(&self) -> String;
}

struct Doc(String);

impl Named for Doc {
    fn first(&self) -> u64 {
        1
    }
    fn name(&self) -> String {
        format!("the name of {}", self.0)
    }
}
impl Sized_ for Doc {
    fn size(&self) -> u64 {
        self.0.len() as u64
    }
}
impl File for Doc {
    fn read(&self) -> String {
        self.0.clone()
    }
}

#[test]
fn pitfall_04_an_upcast_handle_is_of_the_extended_interface() {
    if !alone("objects::pitfall_04_an_upcast_handle_is_of_the_extended_interface") {
        return;
    }
    machine_of_32();
    on(11, || {
        let file: Owned<dyn File> = squall::shared(Doc("text".into()));
        let f = file.handle();
        let named: Handle<dyn Named> = Handle::upcast(f);
        let sized: Handle<dyn Sized_> = Handle::upcast(f);
        for vp in [0, 9, 11] {
            on(vp, || {
                assert_eq!((f.read(), f.name(), f.size()), ("text".into(), "the name of text".into(), 4));
                assert_eq!((named.first(), named.name(), sized.size()), (1, "the name of text".into(), 4));
            });
        }
        // One object has three consecutive ids, one for each interface.
        let slots = [Handle::id(f), Handle::id(named), Handle::id(sized)].map(|id| id.slot());
        assert_eq!(slots, [slots[0], slots[0] + 1, slots[0] + 2]);
        assert_eq!(squall::info_of(Handle::id(sized)).unwrap().id, Handle::id(f));
        assert_eq!(squall::snapshot().iter().filter(|info| slots.contains(&info.id.slot())).count(), 1);
        let destruction = Owned::destroy(file);
        for error in [f.try_read().map(drop), named.try_name().map(drop), sized.try_size().map(drop)] {
            assert_eq!(error.unwrap_err().reason(), CallErrorKind::Destroyed);
        }
        destruction.wait().unwrap();
        // The three ids are used again together, by an object of the same number of interfaces.
        let other: Owned<dyn File> = in_slot(slots[0], || squall::shared(Doc("other".into())));
        assert_eq!(sized.try_size().unwrap_err().interface(), "Sized_");
        assert_eq!(Handle::upcast::<dyn Sized_>(other.handle()).size(), 5);
        Owned::destroy(other).wait().unwrap();
    });
}

// --- representatives ---

/// The root of an object that calls the functions of its context.
struct Ring;
struct Link {
    at: RepContext<Ring>,
    n: AtomicU64,
}

#[squall::interface]
trait Peer: Send + Sync {
    fn set(&self, n: u64);
    /// Returns for each VP the number in the representative of its cluster.
    fn found(&self) -> Vec<Option<u64>>;
    /// Returns the number of the caller's own representative, by `local`, and the count of representatives.
    fn own(&self) -> (u64, usize);
    /// Runs `f`, then `own` on VP 9 and on VP 6.
    fn look(&self, f: &mut dyn FnMut()) -> Vec<(u64, usize)>;
    /// Returns the text that `gather` combines, with brackets.
    fn gathered(&self) -> String;
    /// Adds one to each, in the order of the tree, which is returned.
    fn raise(&self) -> Vec<u64>;
}

impl Root for Ring {
    type Interface = dyn Peer;
    type Rep = Link;
    fn make_rep(&self, at: RepContext<Ring>) -> Link {
        Link { n: AtomicU64::new(at.cluster().index() as u64), at }
    }
}

impl Peer for Link {
    fn set(&self, n: u64) {
        self.n.store(n, Ordering::Relaxed);
    }
    fn found(&self) -> Vec<Option<u64>> {
        (0..33).map(|vp| self.at.find(Vp::new(vp)).map(|peer| peer.n.load(Ordering::Relaxed))).collect()
    }
    fn own(&self) -> (u64, usize) {
        let own = self.at.local().n.load(Ordering::Relaxed);
        (own, self.at.reps().count())
    }
    fn look(&self, f: &mut dyn FnMut()) -> Vec<(u64, usize)> {
        f();
        [9, 6].map(|vp| on(vp, || self.own())).to_vec()
    }
    fn gathered(&self) -> String {
        let text = |peer: &Link| peer.n.load(Ordering::Relaxed).to_string();
        self.at.gather(text, |a, b| format!("({a} {b})")).unwrap()
    }
    fn raise(&self) -> Vec<u64> {
        let mut order = Vec::new();
        self.at.broadcast(|peer| order.push(peer.n.fetch_add(1, Ordering::Relaxed)));
        order
    }
}

#[test]
fn co_68_each_vp_leads_to_its_representative() {
    machine_of_32();
    let ring = Ring.create(ClusterSize::Core);
    let r = ring.handle();
    for vp in [30, 2, 17] {
        on(vp, || r.set(u64::from(vp) * 100));
    }
    let expected: Vec<_> = (0..33_u64)
        .map(|vp| match vp {
            2 | 3 => Some(200),
            16 | 17 => Some(1700),
            30 | 31 => Some(3000),
            // VP 32 does not exist on this machine.
            _ => None,
        })
        .collect();
    assert_eq!(on(2, || r.found()), expected);
    assert_eq!(squall::info_of(Handle::id(r)).unwrap().reps.len(), 3, "find makes no representative");
    Owned::destroy(ring).wait().unwrap();
}

#[test]
fn co_15_local_makes_the_callers_own_and_no_other() {
    machine_of_32();
    let ring = Ring.create(ClusterSize::Cpu);
    let r = ring.handle();
    assert_eq!(on(6, || r.own()), (6, 1));
    // A thread that migrates within its call stays with the old representative, and finds the new one.
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Cpu);
    on(6, || hits.within(&mut || assert_eq!(on(9, || r.own()), (9, 2))));
    end(hits);
    Owned::destroy(ring).wait().unwrap();
}

#[test]
fn x_01_the_gate_refuses_for_good_so_that_nothing_is_made_after_the_end() {
    machine_of_32();
    let ring = Ring.create(ClusterSize::Cpu);
    let r = ring.handle();
    let owned = Mutex::new(Some(ring));
    let mut ending = None;
    let looked = on(6, || {
        r.look(&mut || {
            if let Some(ring) = owned.lock().unwrap().take() {
                ending = Some(Owned::destroy(ring));
            }
        })
    });
    // After destruction, on a VP without a representative, `local` returns the calling one.
    assert_eq!(looked, [(6, 1), (6, 1)]);
    ending.unwrap().wait().unwrap();
}

#[test]
fn co_15_gather_goes_up_the_tree_and_broadcast_down() {
    machine_of_32();
    let ring = Ring.create(ClusterSize::Core);
    let r = ring.handle();
    // Cores 0 and 1 share a cache. Core 5 has another cache of the same node. Cores 8 and 15 are in the other
    // node, with different caches.
    for vp in [0, 2, 10, 16, 30] {
        on(vp, || r.set(u64::from(vp) / 2));
    }
    assert_eq!(on(0, || r.gathered()), "(((0 1) 5) (8 15))");
    assert_eq!(on(10, || r.raise()), [0, 1, 5, 8, 15]);
    assert_eq!(on(30, || r.gathered()), "(((1 2) 6) (9 16))");
    Owned::destroy(ring).wait().unwrap();
    // A fixed size has no tree. Each representative is visited once.
    let ring = Ring.create(ClusterSize::fixed(3));
    let r = ring.handle();
    (0..32).for_each(|vp| on(vp, || r.set(1)));
    assert_eq!(r.raise().len(), 11);
    assert_eq!(r.gathered().matches('2').count(), 11);
    Owned::destroy(ring).wait().unwrap();
}

#[test]
fn co_15_while_it_is_frozen_exactly_the_representatives_there_are_are_seen() {
    machine_of_32();
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Cpu);
    let h = hits.handle();
    on(0, || h.add(1));
    thread::scope(|scope| {
        on(0, || {
            h.frozen(&mut |count| {
                assert_eq!(count, 1);
                let comers = 6;
                for vp in 1..=comers {
                    scope.spawn(move || on(vp, || h.add(1)));
                }
                // All have been made, and the frozen object hides them.
                while log.made() < 1 + comers as usize {
                    thread::yield_now();
                }
                for _ in 0..100 {
                    assert_eq!(info(h).reps.len(), 1);
                    thread::yield_now();
                }
                assert_eq!(h.total(), 1);
            });
        });
    });
    // The end of the freeze let all calls through.
    assert_eq!((on(0, || h.total()), info(h).reps.len()), (7, 7));
    end(hits);
    log.assert_over();
}

// --- clean-up ---

#[test]
fn co_30_each_representative_is_dropped_on_a_vp_of_its_cluster_and_the_root_last() {
    machine_of_32();
    for size in [ClusterSize::Cpu, ClusterSize::Core, ClusterSize::Cache, ClusterSize::Node] {
        let clusters = machine().clusters(size);
        let log = Log::default();
        let hits = Spread::new(&log).create(size);
        (0..32).for_each(|vp| on(vp, || hits.add(1)));
        end(hits);
        for event in log.events().iter() {
            if let Event::RepDropped(cluster, _, dropped_on) = event {
                assert_eq!(clusters.cluster_of(*dropped_on), *cluster, "{size}");
            }
        }
        log.assert_over();
    }
}

#[test]
fn co_31_a_drop_that_panics_stops_no_other() {
    machine_of_32();
    let _guard = common::drops_panic();
    let (log, panicked) = (Log::default(), squall::tables::stats().panicked_drops);
    let spread = Spread::new(&log).on_drop(|at| assert!(at.cluster().index() % 4 != 0, "a planned panic"));
    let hits = spread.create(ClusterSize::Cpu);
    (0..32).for_each(|vp| on(vp, || hits.add(1)));
    end(hits);
    let on_own = |event: &&Event| matches!(event, Event::RepDropped(_, vp, dropped_on) if vp == dropped_on);
    assert_eq!(log.events().iter().filter(on_own).count(), 32);
    assert!(squall::tables::stats().panicked_drops - panicked >= 8);
    log.assert_over();
}

#[test]
fn co_31_experts_clean_up_where_and_how_they_like() {
    machine_of_32();
    type Cleaned = Arc<Mutex<Vec<(Vp, u64)>>>;
    struct Mine(Cleaned, Log);
    struct Part(RepContext<Mine>, AtomicU64);
    impl Root for Mine {
        type Interface = dyn Peer;
        type Rep = Part;
        const EAGER: bool = true;
        const CLEANUP: Cleanup = Cleanup::Anywhere;
        fn make_rep(&self, at: RepContext<Mine>) -> Part {
            Part(at, AtomicU64::new(0))
        }
        fn cleanup(&self, made_on: Vp, rep: Part) {
            assert!(!squall::rcu::in_operation());
            self.0.lock().unwrap().push((made_on, rep.1.load(Ordering::Relaxed)));
            self.1.push(Event::RepDropped(rep.0.cluster(), made_on, Vp::current()));
        }
    }
    impl Drop for Mine {
        fn drop(&mut self) {
            self.1.push(Event::RootDropped);
        }
    }
    impl Peer for Part {
        fn set(&self, n: u64) {
            self.1.store(n, Ordering::Relaxed);
        }
        fn found(&self) -> Vec<Option<u64>> {
            Vec::new()
        }
        fn own(&self) -> (u64, usize) {
            (self.1.load(Ordering::Relaxed), self.0.reps().count())
        }
        fn look(&self, f: &mut dyn FnMut()) -> Vec<(u64, usize)> {
            f();
            Vec::new()
        }
        fn gathered(&self) -> String {
            String::new()
        }
        fn raise(&self) -> Vec<u64> {
            Vec::new()
        }
    }
    let (cleaned, log) = (Cleaned::default(), Log::default());
    let object = Mine(cleaned.clone(), log.clone()).create(ClusterSize::Core);
    // An eager object has all representatives before the first call, but no translations.
    let before = squall::info_of(Handle::id(object.handle())).unwrap();
    assert_eq!((before.reps.len(), before.translations.len()), (16, 0));
    on(12, || object.set(5));
    assert_eq!(on(13, || object.own()), (5, 16));
    Owned::destroy(object).wait().unwrap();
    let mut cleaned = std::mem::take(&mut *cleaned.lock().unwrap());
    cleaned.sort_unstable();
    let expected: Vec<_> = (0..16).map(|core| (Vp::new(core * 2), if core == 6 { 5 } else { 0 })).collect();
    assert_eq!(cleaned, expected);
    assert_eq!((log.reps_dropped(), log.roots_dropped()), (16, 1));
    assert_eq!(log.events().last(), Some(&Event::RootDropped));
}

#[test]
fn co_30_a_drop_cannot_wait_wherever_it_runs() {
    machine_of_32();
    let log = Log::default();
    let waits: Arc<Mutex<Vec<Result<(), squall::rcu::WaitError>>>> = Arc::default();
    let (told, inner) = (waits.clone(), Log::default());
    let hits = Spread::new(&log)
        .on_drop(move |_| {
            let other = Spread::new(&inner).create(ClusterSize::Node);
            [0, 31].into_iter().for_each(|vp| on(vp, || other.add(1)));
            told.lock().unwrap().push(Owned::destroy(other).wait());
        })
        .create(ClusterSize::Node);
    [0, 31].into_iter().for_each(|vp| on(vp, || hits.add(1)));
    end(hits);
    log.assert_over();
    let refused = Err(squall::rcu::WaitError::InDeferredCall);
    assert_eq!(*waits.lock().unwrap(), [refused, refused]);
}

#[test]
fn pitfall_03_a_miss_that_installs_late_leaves_no_entry() {
    machine_of_32();
    for _ in 0..20 {
        // On three VPs a miss is in `make_rep` when the object is destroyed.
        let log = Log::default();
        let (stops, stoppers): (Vec<_>, Vec<_>) = (0..3).map(|_| stop()).unzip();
        let turn = AtomicUsize::new(0);
        let spread =
            Spread::new(&log).on_make(move |_| stoppers[turn.fetch_add(1, Ordering::Relaxed)].stop());
        let hits = spread.create(ClusterSize::Cpu);
        let h = hits.handle();
        let late: Vec<_> = (0..3).map(|vp| thread::spawn(move || on(vp * 9, || h.add(1)))).collect();
        stops.iter().for_each(|stop| stop.wait_until_there());
        let destruction = Owned::destroy(hits);
        stops.iter().for_each(|stop| stop.go());
        late.into_iter().for_each(|thread| thread.join().unwrap());
        destruction.wait().unwrap();
        log.assert_over();
        // The object is freed. A stale entry would read freed memory, and sanitizers would report it.
        for vp in [0, 9, 18] {
            assert_eq!(on(vp, || h.try_add(1)).unwrap_err().reason(), CallErrorKind::Destroyed);
        }
    }
}

#[test]
fn pitfall_02_cached_entries_fail_before_they_are_cleared() {
    machine_of_32();
    let log = Log::default();
    let (making, stopper) = stop();
    let spread = Spread::new(&log).on_make(move |at| {
        if at.cluster() == Cluster::new(12) {
            stopper.stop();
        }
    });
    let hits = spread.create(ClusterSize::Cpu);
    let h = hits.handle();
    // VP 3 has a cached entry. The miss in flight on VP 12 delays the clearing of entries.
    on(3, || h.add(1));
    let late = thread::spawn(move || on(12, || h.add(1)));
    making.wait_until_there();
    let destruction = Owned::destroy(hits);
    for vp in [3, 12, 4] {
        let error = on(vp, || h.try_add(1)).unwrap_err();
        assert_eq!(error.reason(), CallErrorKind::Destroyed, "VP {vp}");
    }
    making.go();
    late.join().unwrap();
    destruction.wait().unwrap();
    assert_eq!(log.made(), 2);
    log.assert_over();
}

#[test]
fn pitfall_09_user_code_runs_outside_squalls_locks() {
    machine_of_32();
    let _guard = common::tables_are_discarded();
    // Uses every function that could need a lock, from the VP of the stopped user code, and on the same
    // object.
    let everything = |hits: Handle<dyn Hits>, live: bool| {
        on(5, || {
            let (one, other_log) = (Log::default(), Log::default());
            let objects: Vec<_> = (0..600).map(|_| Spread::new(&one).create(ClusterSize::Core)).collect();
            objects.iter().for_each(|object| object.add(1));
            objects
                .into_iter()
                .map(Owned::destroy)
                .for_each(|end| assert!(!end.is_complete() || one.made() == 600));
            let text: Owned<dyn Other> = squall::shared(Text("text".into()));
            assert_eq!(text.other(), "text");
            assert!(squall::snapshot().iter().any(|info| info.id == Handle::id(text.handle())));
            drop(text);
            squall::tables::discard_all();
            assert!(squall::tables::stats().objects_count > 0 || !live);
            drop(other_log);
            assert_eq!(hits.try_add(1).is_ok(), live);
        });
        // Makes another representative, and freezes the object.
        on(6, || assert_eq!(hits.try_frozen(&mut |count| assert_eq!(count, 2)).is_ok(), live));
    };
    let log = Log::default();
    let ((making, make), (dropping, unmake)) = (stop(), stop());
    let once = AtomicUsize::new(0);
    let dropped = AtomicUsize::new(0);
    let hits = Spread::new(&log)
        .on_make(move |at| {
            if at.cluster() == Cluster::new(5) && once.fetch_add(1, Ordering::Relaxed) == 0 {
                make.stop();
            }
        })
        .on_drop(move |_| {
            // The first dropped one lost its race. Two more are dropped.
            if dropped.fetch_add(1, Ordering::Relaxed) == 1 {
                unmake.stop();
            }
        })
        .create(ClusterSize::Cpu);
    let h = hits.handle();
    let maker = thread::spawn(move || on(5, || h.add(1)));
    making.wait_until_there();
    everything(h, true);
    making.go();
    maker.join().unwrap();
    assert_eq!((log.made(), log.reps_dropped()), (3, 1));
    let ending = Owned::destroy(hits);
    let waiter = thread::spawn(move || ending.wait().unwrap());
    dropping.wait_until_there();
    everything(h, false);
    dropping.go();
    waiter.join().unwrap();
    log.assert_over();
}

#[test]
fn to_12_a_hold_on_one_representative_keeps_its_peers() {
    machine_of_32();
    let log = Log::default();
    let hits = Spread::new(&log).create(ClusterSize::Cpu);
    let h = hits.handle();
    (0..32).for_each(|vp| on(vp, || h.add(1)));
    let mut destruction = None;
    let owned = Mutex::new(Some(hits));
    on(4, || {
        h.holding(&mut || {
            let ending = Owned::destroy(owned.lock().unwrap().take().unwrap());
            assert_held_up(ending);
            assert_eq!(log.reps_dropped(), 0);
            destruction = Some(ending);
        });
    });
    destruction.unwrap().wait().unwrap();
    log.assert_over();
}

#[test]
fn co_26_many_objects_end_together_and_each_is_dropped_once() {
    machine_of_32();
    let dropped = Log::default();
    let inside_log = Log::default();
    let first = Spread::new(&inside_log).create(ClusterSize::Cpu);
    let inside = Inside::operation(first.handle());
    let ends: Vec<_> = (0..500)
        .map(|n| {
            let hits = on(n % 32, || Spread::new(&dropped).create(ClusterSize::Cpu));
            on(n % 32, || hits.add(1));
            on((n * 7) % 32, || hits.add(1));
            Owned::destroy(hits)
        })
        .collect();
    assert_eq!((dropped.roots_dropped(), dropped.reps_dropped()), (0, 0));
    drop(inside);
    end(first);
    ends.into_iter().for_each(|end| end.wait().unwrap());
    assert_eq!((dropped.roots_dropped(), dropped.reps_dropped()), (500, dropped.made()));
}
