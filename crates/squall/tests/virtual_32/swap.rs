//! Hot-swap: the parts of state, misses and first calls, by the VP of each call.

use crate::common::swaps::{
    Caller, Crowd, Hits, Inside, Life, Running, Step, end, gate, info, many, new_many, new_one, one, patient,
    text_of, wait_until, wait_until_parked,
};
use crate::common::{self, swaps};
use crate::{machine_of_32, on, vps};
use squall::swap::{Replacement, RootFormats, Swap, SwapFailure, SwapPhase};
use squall::{
    CallErrorKind, Cluster, ClusterSize, Handle, Miss, MissAnswer, Owned, RepContext, Root, Vp, WellKnown,
    machine,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// The kinds of implementations: a shared value, or a representative for each cluster of a size.
const KINDS: [Option<ClusterSize>; 6] = [
    None,
    Some(ClusterSize::Cpu),
    Some(ClusterSize::Core),
    Some(ClusterSize::Node),
    Some(ClusterSize::Machine),
    Some(ClusterSize::fixed(3)),
];

fn new_of(kind: Option<ClusterSize>, name: &'static str, life: &Life) -> Replacement<dyn Hits> {
    match kind {
        None => new_one(name, life),
        Some(size) => Replacement::root(many(name, life), size),
    }
}

fn cluster_of(kind: Option<ClusterSize>, vp: u32) -> Cluster {
    kind.map_or(Cluster::new(0), |size| machine().clusters(size).cluster_of(Vp::new(vp)))
}

/// Returns the state that each cluster of `new` must get from the representatives of the old object. The swap
/// runs on VP `here`.
fn moved(handle: Handle<dyn Hits>, here: u32, new: Option<ClusterSize>) -> BTreeMap<Cluster, u64> {
    let mut expected = BTreeMap::new();
    for rep in info(handle).reps {
        // The state of a shared value goes to the VP that swaps.
        let vp = rep.vp.map_or(here, |vp| vp.index() as u32);
        *expected.entry(cluster_of(new, vp)).or_default() += on(vp, || handle.local());
    }
    expected
}

#[test]
fn co_33_state_moves_exactly_between_objects_of_all_cluster_sizes() {
    machine_of_32();
    let _guard = common::misses_are_counted();
    for from in KINDS {
        for to in KINDS {
            let (old, life) = (Life::default(), Life::default());
            let hits = new_of(from, "old", &old).create().unwrap();
            let handle = hits.handle();
            // Adds different numbers on most VPs.
            for vp in (0..32).filter(|vp| vp % 5 != 3) {
                on(vp, || handle.add(1 << vp));
            }
            let total = on(0, || handle.total());
            let expected = on(17, || moved(handle, 17, to));
            let report = on(17, || patient(handle).run(new_of(to, "new", &life))).unwrap();
            let parts = old.count(Step::Export);
            assert_eq!((report.parts, report.bytes), (parts, 8 * parts), "{from:?} to {to:?}");
            // Two threads that move parts to one cluster may both make its representative. One is dropped
            // unused.
            let made = life.count(Step::Make) - life.count(Step::Drop);
            let reps: Vec<_> = info(handle).reps.iter().map(|rep| (rep.vp, rep.cluster)).collect();
            let expected_made = if to.is_some() { expected.len() } else { 1 };
            assert_eq!(
                (made, reps.len()),
                (expected_made, expected_made),
                "{from:?} to {to:?}: {expected:?}, of {reps:?}, {:?}",
                life.steps()
            );
            for vp in 0..32 {
                let local =
                    if to.is_none() { total } else { *expected.get(&cluster_of(to, vp)).unwrap_or(&0) };
                assert_eq!(
                    on(vp, || (handle.name(), handle.local())),
                    ("new", local),
                    "{from:?} to {to:?} on {vp}"
                );
            }
            assert_eq!(on(31, || handle.total()), total);
            // One miss for each VP and for each moved part. Later calls hit.
            let misses = info(handle).misses;
            assert_eq!(misses, report.parts as u64 + 32);
            (0..32).for_each(|vp| on(vp, || handle.add(1)));
            assert_eq!((info(handle).misses, info(handle).translations.len()), (misses, 32));
            end(hits);
            old.wait_for_drops(old.count(Step::Make));
            old.assert_over(1);
            life.wait_for_drops(life.count(Step::Make));
            life.assert_over(0);
        }
    }
}

#[test]
fn co_34_a_vp_may_call_for_the_first_time_in_any_phase() {
    machine_of_32();
    let (old, life) = (Life::default(), Life::default());
    let hits = many("old", &old).create(ClusterSize::Cpu);
    let handle = hits.handle();
    on(0, || handle.add(1));
    let before = Inside::operation_on(handle, 0);
    let (tell, told) = mpsc::channel();
    let inside = Inside::start(move |gate| {
        on(1, || {
            handle.holding(&mut || {
                gate.stop();
                // In `Block`: a thread in the object calls on VPs for the first time.
                on(9, || handle.add(100));
                tell.send(on(10, || handle.name())).unwrap();
            });
        });
    });
    let exports = gate();
    old.on(Step::Export, exports.stops());
    let swap = Running::start(handle, patient(handle), new_many("new", &life));
    // In `Forward`.
    on(5, || handle.add(10));
    assert_eq!(on(6, || handle.name()), "old");
    assert_eq!(vps(&info(handle).translations), [0, 1, 5, 6]);
    before.leave();
    let caller = Caller::of_on(handle, 20);
    wait_until_parked(handle, 1);
    inside.leave();
    assert_eq!(told.recv().unwrap(), "old");
    exports.wait();
    // In `Transfer`.
    let mut there = vps(&info(handle).translations);
    // VP 20 has an entry if the caller came before `Block`.
    there.retain(|&vp| vp != 20);
    assert_eq!(there, [0, 1, 5, 6, 9, 10]);
    let late = thread::spawn(move || on(30, || (handle.name(), handle.add(1000))));
    exports.open();
    let report = swap.end().unwrap();
    assert_eq!(caller.answer().unwrap(), "new");
    assert_eq!(late.join().unwrap().0, "new");
    assert_eq!(on(2, || handle.total()), 1111);
    // Moved parts stay on their VPs. First calls make representatives.
    assert_eq!(on(9, || handle.local()), 100);
    assert_eq!(info(handle).reps.iter().filter(|rep| rep.cluster == Some(Cluster::new(30))).count(), 1);
    end(hits);
    for (life, moved) in [(&old, 1), (&life, 0)] {
        life.wait_for_drops(life.count(Step::Make));
        life.assert_over(moved);
    }
    assert!(report.blocked >= 1);
}

#[test]
fn pr_17_after_a_swap_that_went_back_cached_entries_are_hits_again() {
    machine_of_32();
    let _guard = common::misses_are_counted();
    for kind in KINDS {
        let old = Life::default();
        let hits = new_of(kind, "old", &old).create().unwrap();
        let handle = hits.handle();
        (0..16).for_each(|vp| on(vp, || handle.add(1)));
        let misses = info(handle).misses;
        let fail = Life::default();
        fail.on(Step::Import, || Err("not today".into()));
        let error = on(3, || patient(handle).run(new_many("new", &fail))).unwrap_err();
        assert_eq!(error.failure(), SwapFailure::TransferFailed);
        let inside = Inside::operation_on(handle, 2);
        let error =
            on(3, || Swap::new(handle).timeout(Duration::ZERO).run(new_many("new", &fail))).unwrap_err();
        assert_eq!(error.failure(), SwapFailure::TimedOut(SwapPhase::Forward));
        inside.leave();
        let inside = Inside::hold_on(handle, 2);
        let error = on(3, || Swap::new(handle).drain_timeout(Duration::ZERO).run(new_many("new", &fail)))
            .unwrap_err();
        assert_eq!(error.failure(), SwapFailure::TimedOut(SwapPhase::Block));
        inside.leave();
        (0..16).for_each(|vp| on(vp, || handle.add(1)));
        assert_eq!((info(handle).misses, on(0, || handle.total())), (misses, 32), "{kind:?}");
        end(hits);
    }
}

#[test]
fn pr_17_calls_that_meet_a_mediator_miss_once_for_each_vp_at_most() {
    machine_of_32();
    let _guard = common::misses_are_counted();
    let (old, life) = (Life::default(), Life::default());
    let hits = many("old", &old).create(ClusterSize::Core);
    let handle = hits.handle();
    on(0, || handle.add(1));
    let inside = Inside::operation_on(handle, 1);
    let swap = Running::start(handle, patient(handle), new_many("new", &life));
    for _ in 0..3 {
        (0..32).for_each(|vp| on(vp, || handle.add(1)));
    }
    assert_eq!((info(handle).misses, info(handle).reps.len()), (32, 16));
    inside.leave();
    let report = swap.end().unwrap();
    assert_eq!((report.forwarded, report.parts), (96, 16), "{report:?}");
    assert_eq!(on(0, || handle.total()), 97);
    end(hits);
}

#[test]
fn co_06_tables_may_be_discarded_in_any_phase() {
    machine_of_32();
    let _guard = common::tables_are_discarded();
    for back in [false, true] {
        let (old, life) = (Life::default(), Life::default());
        let hits = many("old", &old).create(ClusterSize::Core);
        let handle = hits.handle();
        let everywhere = || (0..32).for_each(|vp| on(vp, || handle.add(1)));
        everywhere();
        old.on(Step::Export, move || {
            squall::tables::discard_all();
            if back { Err("back".into()) } else { Ok(()) }
        });
        let inside = Inside::operation_on(handle, 1);
        let swap = Running::start(handle, patient(handle), new_one("new", &life));
        squall::tables::discard_all();
        everywhere();
        squall::tables::discard_page_of(Vp::new(4), Handle::id(handle));
        everywhere();
        inside.leave();
        assert_eq!(swap.end().is_err(), back);
        squall::tables::discard_all();
        everywhere();
        assert_eq!((on(0, || handle.total()), handle.name()), (128, if back { "old" } else { "new" }));
        end(hits);
        old.wait_for_drops(16);
        old.assert_over(usize::from(!back));
    }
}

// --- roots with their own `handle_miss` ---

/// A root that answers misses as `answer` says.
struct Odd {
    life: Life,
    answer: Answer,
}

#[derive(Clone, Copy)]
enum Answer {
    /// The representative of cluster 0 serves all VPs. True: the tables cache the answer.
    Central(bool),
    /// Refuses calls from this VP.
    Not(u32),
}

struct OddPart(AtomicU64, RepContext<Odd>);

impl Root for Odd {
    type Interface = dyn Hits;
    type Rep = OddPart;
    fn make_rep(&self, at: RepContext<Odd>) -> OddPart {
        OddPart(AtomicU64::new(0), at)
    }
    fn handle_miss<'a>(&'a self, miss: Miss<'a, Odd>) -> MissAnswer<'a, Odd> {
        match self.answer {
            Answer::Central(true) => miss.rep(Cluster::new(0)).cached(),
            Answer::Central(false) => miss.rep(Cluster::new(0)).once(),
            Answer::Not(vp) if miss.vp() == Vp::new(vp) => miss.refuse("not from here"),
            Answer::Not(_) => miss.local().cached(),
        }
    }
    fn formats(formats: &mut RootFormats<'_, Odd>) {
        formats.export_part(|_, rep| Ok(rep.0.load(Relaxed))).import_part(|_, rep, n: u64| {
            rep.0.fetch_add(n, Relaxed);
            Ok(())
        });
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        assert_eq!(self.life.count(Step::RootDrop), 0);
    }
}

impl Hits for OddPart {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.1.reps().map(|rep| rep.0.load(Relaxed)).sum()
    }
    fn local(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn name(&self) -> &'static str {
        "odd"
    }
    fn carried(&self) -> Result<u64, squall::CallError> {
        Ok(self.total())
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn holding(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn panics(&self) {
        unreachable!("no test here calls it");
    }
}

fn odd(answer: Answer) -> Replacement<dyn Hits> {
    Replacement::root(Odd { life: Life::default(), answer }, ClusterSize::Cpu)
}

#[test]
fn co_34_roots_that_redirect_keep_doing_so_while_they_are_swapped() {
    machine_of_32();
    let _guard = common::misses_are_counted();
    for cached in [true, false] {
        let hits: Owned<dyn Hits> = squall::swappable(one("old", &Life::default()));
        let handle = hits.handle();
        on(9, || handle.add(1));
        on(8, || patient(handle).run(odd(Answer::Central(cached)))).unwrap();
        (0..32).for_each(|vp| on(vp, || handle.add(1)));
        assert_eq!((info(handle).reps.len(), on(30, || handle.local())), (1, 33));
        // Forwarded calls ask the root each time if its answers are not cached.
        let misses = info(handle).misses;
        let inside = Inside::operation_on(handle, 1);
        let swap = Running::start(handle, patient(handle), new_many("new", &Life::default()));
        (0..32).for_each(|vp| on(vp, || handle.add(1)));
        let asked = info(handle).misses - misses;
        assert_eq!(asked, if cached { 0 } else { 33 });
        inside.leave();
        assert_eq!(swap.end().unwrap().parts, 1);
        assert_eq!((on(0, || handle.local()), on(4, || handle.total())), (65, 65));
        end(hits);
    }
}

#[test]
fn co_39_roots_may_refuse_calls_and_parts() {
    machine_of_32();
    let old = Life::default();
    let hits = many("old", &old).create(ClusterSize::Cpu);
    let handle = hits.handle();
    (3..9).for_each(|vp| on(vp, || handle.add(1)));
    let error = on(0, || patient(handle).run(odd(Answer::Not(7)))).unwrap_err();
    assert_eq!(error.failure(), SwapFailure::TransferFailed);
    assert!(error.to_string().ends_with(": the state could not be moved: not from here"), "{error}");
    assert_eq!((on(0, || handle.total()), on(7, || handle.name())), (6, "old"));
    on(0, || patient(handle).run(odd(Answer::Not(12)))).unwrap();
    let refused = || {
        let error = on(12, || handle.try_total()).unwrap_err();
        assert_eq!(error.reason(), CallErrorKind::Refused("not from here"));
        assert_eq!(error.class(), Some(std::any::type_name::<Odd>()));
    };
    refused();
    let inside = Inside::operation_on(handle, 1);
    let swap = Running::start(handle, patient(handle), new_many("new", &Life::default()));
    refused();
    assert_eq!(on(13, || handle.total()), 6);
    inside.leave();
    assert_eq!(swap.end().unwrap().forwarded, 2, "the refused call is forwarded, and asks the root");
    assert_eq!(on(12, || handle.total()), 6);
    end(hits);
    old.wait_for_drops(old.count(Step::Make));
    old.assert_over(1);
}

/// An eager root. Each representative records the name that served when it was made.
struct Eager {
    life: Life,
    heard: Arc<std::sync::Mutex<Vec<&'static str>>>,
    fails: bool,
}

struct EagerPart(AtomicU64, RepContext<Eager>);

impl Root for Eager {
    type Interface = dyn Hits;
    type Rep = EagerPart;
    const EAGER: bool = true;
    fn make_rep(&self, at: RepContext<Eager>) -> EagerPart {
        assert!(!(self.fails && at.cluster() == Cluster::new(5)), "not the sixth");
        self.life.on_made();
        // The old implementation still serves.
        if let Ok(name) = at.handle().try_name() {
            self.heard.lock().unwrap().push(name);
        }
        EagerPart(AtomicU64::new(0), at)
    }
    fn formats(formats: &mut RootFormats<'_, Eager>) {
        formats.export_part(|_, rep| Ok(rep.0.load(Relaxed))).import_part(|_, rep, n: u64| {
            rep.0.fetch_add(n, Relaxed);
            Ok(())
        });
    }
}

impl Drop for EagerPart {
    fn drop(&mut self) {
        self.1.root().life.on_dropped();
    }
}

impl Hits for EagerPart {
    fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }
    fn total(&self) -> u64 {
        self.1.reps().map(|rep| rep.0.load(Relaxed)).sum()
    }
    fn local(&self) -> u64 {
        self.0.load(Relaxed)
    }
    fn name(&self) -> &'static str {
        "eager"
    }
    fn carried(&self) -> Result<u64, squall::CallError> {
        Ok(self.total())
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn holding(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn panics(&self) {
        unreachable!("no test here calls it");
    }
}

#[test]
fn co_17_an_eager_object_has_its_representatives_before_it_takes_the_place() {
    machine_of_32();
    let (old, life, heard) = (Life::default(), Life::default(), Arc::default());
    let hits: Owned<dyn Hits> = squall::swappable(one("old", &old));
    let handle = hits.handle();
    on(6, || handle.add(3));
    let eager = |fails| {
        let root = Eager { life: life.clone(), heard: Arc::clone(&heard), fails };
        Replacement::root(root, ClusterSize::Core)
    };
    // A panic in `make_rep` reaches the caller of the swap, and the object is unchanged.
    assert_eq!(text_of(|| on(6, || patient(handle).run(eager(true)))), "not the sixth");
    assert_eq!((on(1, || handle.total()), on(2, || handle.name())), (3, "old"));
    assert_eq!((info(handle).state, life.count(Step::Make)), (squall::ObjectState::Live, 5));
    life.wait_for_drops(5);
    heard.lock().unwrap().clear();
    let report = on(6, || patient(handle).run(eager(false))).unwrap();
    assert_eq!((report.parts, info(handle).reps.len()), (1, 16));
    assert_eq!(*heard.lock().unwrap(), ["old"; 16]);
    assert_eq!(on(7, || (handle.name(), handle.local())), ("eager", 3));
    assert_eq!(on(0, || (handle.local(), handle.total())), (0, 3));
    // A swap back moves all 16 parts.
    (0..32).for_each(|vp| on(vp, || handle.add(1)));
    assert_eq!(patient(handle).run(new_one("new", &Life::default())).unwrap().parts, 16);
    assert_eq!((handle.name(), handle.total()), ("new", 35));
    end(hits);
    life.wait_for_drops(5 + 16);
    old.assert_over(1);
}

// --- more than one interface ---

#[squall::interface]
trait Named: Send + Sync {
    fn called(&self) -> &'static str;
}

#[squall::interface]
trait Counts: Named {
    fn count(&self) -> u64;
    #[blocking]
    fn hold(&self, f: &mut dyn FnMut());
}

#[squall::interface]
trait Sized_: Send + Sync {
    fn size(&self) -> u64;
}

#[squall::interface]
trait Tally: Counts + Sized_ {
    fn tick(&self);
    fn stay(&self, f: &mut dyn FnMut());
}

struct Ticks {
    name: &'static str,
}

struct Tick(AtomicU64, RepContext<Ticks>);

impl Root for Ticks {
    type Interface = dyn Tally;
    type Rep = Tick;
    fn make_rep(&self, at: RepContext<Ticks>) -> Tick {
        Tick(AtomicU64::new(0), at)
    }
    fn formats(formats: &mut RootFormats<'_, Ticks>) {
        formats.export_part(|_, rep| Ok(rep.0.load(Relaxed))).import_part(|root, rep, n: u64| {
            rep.0.fetch_add(n, Relaxed);
            if root.name == "fails" { Err("no".into()) } else { Ok(()) }
        });
    }
}
impl Named for Tick {
    fn called(&self) -> &'static str {
        self.1.root().name
    }
}
impl Counts for Tick {
    fn count(&self) -> u64 {
        self.1.reps().map(|rep| rep.0.load(Relaxed)).sum()
    }
    fn hold(&self, f: &mut dyn FnMut()) {
        f();
    }
}
impl Sized_ for Tick {
    fn size(&self) -> u64 {
        self.1.reps().count() as u64
    }
}
impl Tally for Tick {
    fn tick(&self) {
        self.0.fetch_add(1, Relaxed);
    }
    fn stay(&self, f: &mut dyn FnMut()) {
        f();
    }
}

#[test]
fn pitfall_04_references_of_all_interfaces_follow_the_swap() {
    machine_of_32();
    let _guard = common::misses_are_counted();
    let tally = Ticks { name: "old" }.create(ClusterSize::Cpu);
    let t = tally.handle();
    let counts: Handle<dyn Counts> = Handle::upcast(t);
    let (sized, named) = (Handle::upcast::<dyn Sized_>(t), Handle::upcast::<dyn Named>(counts));
    let all = move |name| {
        assert_eq!((t.called(), counts.called(), named.called()), (name, name, name));
        t.tick();
        assert!(counts.count() > 0 && sized.size() > 0);
        counts.hold(&mut || assert_eq!(named.called(), name));
        8
    };
    let mut calls = 0_u64;
    for vp in [0, 9, 31] {
        calls += on(vp, || all("old"));
    }
    for size in [ClusterSize::Cpu, ClusterSize::Node] {
        let info = || squall::info_of(Handle::id(sized)).unwrap();
        // The replacement must have the object's own interface.
        let error = patient_of(named).run(Replacement::shared(Fixed)).unwrap_err();
        assert_eq!((error.failure(), error.id()), (SwapFailure::WrongInterface, Handle::id(named)));
        // A swap inside a method of the object fails, also in a method of an extended interface.
        counts.hold(&mut || {
            let error = patient_of(t).run(Replacement::root(Ticks { name: "new" }, size)).unwrap_err();
            assert_eq!(error.failure(), SwapFailure::InMethod);
        });
        // After a rolled-back swap, cached entries hit again.
        let misses = info().misses;
        let total = counts.count();
        let fails = Replacement::root(Ticks { name: "fails" }, size);
        assert_eq!(patient_of(t).run(fails).unwrap_err().failure(), SwapFailure::TransferFailed);
        assert_eq!((named.called(), counts.count()), ("old", total));
        assert!(info().misses - misses <= 5, "VP 0 may be new to some of them");
        // Calls during the swap, also the first calls from a VP.
        let before = Inside::start(move |gate| on(2, || t.stay(&mut || gate.stop())));
        let swap = thread::spawn(move || patient_of(t).run(Replacement::root(Ticks { name: "old" }, size)));
        wait_until_parked(t, 0);
        assert_eq!(info().state, squall::ObjectState::Swapping);
        let forwarded: u64 = [0, 20, 31].into_iter().map(|vp| on(vp, || all("old"))).sum();
        let held = Inside::start(move |gate| on(3, || counts.hold(&mut || gate.stop())));
        before.leave();
        held.leave();
        let report = swap.join().unwrap().unwrap();
        // The nested calls count, and the one that stayed.
        assert_eq!(report.forwarded, forwarded + 1, "{report:?}");
        assert_eq!(counts.count(), total + 3);
        [0, 1, 31].into_iter().for_each(|vp| {
            on(vp, || all("old"));
        });
        let misses = info().misses;
        [0, 1, 31].into_iter().for_each(|vp| {
            on(vp, || all("old"));
        });
        assert_eq!(info().misses, misses);
        assert_eq!(info().id, Handle::id(t));
    }
    assert!(calls > 0);
    Owned::destroy(tally).wait().unwrap();
    assert_eq!(named.try_called().unwrap_err().reason(), CallErrorKind::Destroyed);
    assert_eq!(sized.try_size().unwrap_err().reason(), CallErrorKind::Destroyed);
}

struct Fixed;
impl Named for Fixed {
    fn called(&self) -> &'static str {
        "fixed"
    }
}

fn patient_of<I: ?Sized + squall::Interface>(handle: Handle<I>) -> Swap<I> {
    Swap::new(handle).drain_timeout(swaps::LONG)
}

#[test]
fn co_17_a_well_known_object_is_swapped_under_its_number() {
    machine_of_32();
    static PLACE: WellKnown<dyn Hits> = WellKnown::new(40);
    for _ in 0..2 {
        let (old, life) = (Life::default(), Life::default());
        let handle = PLACE.handle();
        let refused = patient(handle).run(new_one("new", &Life::default())).unwrap_err();
        assert_eq!(refused.failure(), SwapFailure::NotThere);
        let hits = PLACE.install(many("old", &old), ClusterSize::Node).unwrap();
        assert_eq!(hits.handle(), handle);
        (0..32).for_each(|vp| on(vp, || handle.add(1)));
        for name in ["new", "newer"] {
            let new = if name == "new" { new_many(name, &life) } else { new_one(name, &Life::default()) };
            patient(PLACE.handle()).run(new).unwrap();
            assert_eq!(on(9, || (handle.name(), handle.total())), (name, 32));
            assert!(matches!(
                PLACE.install_shared(one("", &Life::default())),
                Err(squall::CreateError::Taken(_))
            ));
        }
        // Destruction during a swap frees the number for the next object.
        let inside = Inside::operation_on(handle, 2);
        let swap = Running::start(handle, patient(handle), new_one("last", &Life::default()));
        let destruction = Owned::destroy(hits);
        assert_eq!(swap.end().unwrap_err().failure(), SwapFailure::Destroyed);
        inside.leave();
        destruction.wait().unwrap();
        old.wait_for_drops(2);
        old.assert_over(1);
        life.wait_for_drops(life.count(Step::Make));
        life.assert_over(1);
        wait_until(|| PLACE.handle() != handle);
    }
}

// --- parts ---

#[test]
fn co_39_parts_that_take_time_are_moved_by_several_threads_at_once() {
    machine_of_32();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let (old, life, crowd) = (Life::default(), Life::default(), Arc::new(Crowd::default()));
    let hits = many("old", &old).create(ClusterSize::Cpu);
    let handle = hits.handle();
    (0..32).for_each(|vp| on(vp, || handle.add(1 << vp)));
    let inner = crowd.clone();
    old.on(Step::Export, move || {
        if inner.enter() == 1 {
            // Long enough for the first thread to ask others for help.
            thread::sleep(Duration::from_millis(5));
        } else if processors > 1 {
            wait_until(|| inner.most() > 1);
        }
        inner.leave();
        Ok(())
    });
    let report = on(0, || patient(handle).run(new_many("new", &life))).unwrap();
    assert_eq!((report.parts, report.bytes, crowd.entered()), (32, 256, 32));
    assert!(crowd.most() > 1 || processors == 1);
    // Each part stayed on its VP.
    assert!((0..32).all(|vp| on(vp, || handle.local()) == 1 << vp));
    end(hits);
    old.wait_for_drops(32);
    old.assert_over(1);
    life.wait_for_drops(32);
}

#[test]
fn co_39_a_thread_stops_moving_parts_after_a_failure() {
    machine_of_32();
    let processors = thread::available_parallelism().map_or(1, usize::from);
    for (step, panics) in [(Step::Export, false), (Step::Import, false), (Step::Import, true)] {
        // The first part fails, or a later one, when other threads help.
        for good in [0, 1] {
            let (old, life, crowd) = (Life::default(), Life::default(), Arc::new(Crowd::default()));
            let hits = many("old", &old).create(ClusterSize::Cpu);
            let handle = hits.handle();
            (0..32).for_each(|vp| on(vp, || handle.add(1)));
            let inner = crowd.clone();
            let failing = if step == Step::Export { &old } else { &life };
            failing.on(step, move || {
                if inner.enter() <= good {
                    thread::sleep(Duration::from_millis(5));
                    Ok(())
                } else if panics {
                    std::panic::panic_any("one of them")
                } else {
                    Err("one of them".into())
                }
            });
            let error = on(0, || patient(handle).run(new_many("new", &life))).unwrap_err();
            let expected = if panics { SwapFailure::TransferPanicked } else { SwapFailure::TransferFailed };
            assert_eq!(error.failure(), expected);
            assert!(error.to_string().ends_with(": one of them"), "{error}");
            // A slow failure may have helpers too.
            let most = good + processors;
            assert!((good + 1..=most).contains(&crowd.entered()), "{} of {most}", crowd.entered());
            assert_eq!((on(9, || handle.total()), on(9, || handle.name())), (32, "old"));
            assert_eq!(old.count(Step::Drop), 0);
            end(hits);
            life.wait_for_drops(life.count(Step::Make));
            life.assert_over(0);
            old.wait_for_drops(32);
            old.assert_over(0);
        }
    }
}
