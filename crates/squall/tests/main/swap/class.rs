//! All objects of a class replaced at once: factories.

/// Classes of this module's own: an upgrade replaces every object of a class, also those of other tests.
#[expect(
    clippy::duplicate_mod,
    reason = "its classes must be unknown to the other tests, which run at the same time"
)]
#[path = "../../common/swaps.rs"]
#[allow(dead_code, reason = "a part is used")]
mod own;

use own::{Hits, Inside, LONG, Life, Many, One, Step, end, info, many, new_many, new_one, one, text_of};
use squall::swap::{Factory, Replacement, SwapFailure};
use squall::{ClusterSize, Handle, Owned};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

/// Lets one test of this module run at a time, since an upgrade replaces all objects of a class.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn class_of(handle: Handle<dyn Hits>) -> &'static str {
    info(handle).class
}

#[test]
fn co_72_an_upgrade_swaps_all_that_live_and_makes_new_ones_of_the_new_class() {
    let _alone = alone();
    let (old, life) = (Life::default(), Life::default());
    let made = old.clone();
    let factory: Factory<dyn Hits> = Factory::new(move || new_one("old", &made));
    assert_eq!(format!("{factory:?}"), "Factory(Hits)");
    let mut owners: Vec<_> = (0..10).map(|_| factory.create()).collect();
    owners.iter().zip(1..).for_each(|(hits, n)| hits.add(n));
    // Two are destroyed before. One of the class was made without the factory, and one has another interface.
    owners.drain(3..5).for_each(end);
    let elsewhere: Owned<dyn Hits> = squall::swappable(one("old", &old));
    let other: Owned<dyn Names> = squall::swappable(one("old", &old));
    let new = life.clone();
    let done = factory.upgrade(move || new_many("new", &new), |swap| swap.drain_timeout(LONG)).unwrap();
    assert_eq!(done.len(), 9);
    assert!(done.is_sorted_by_key(|upgraded| upgraded.id.slot()));
    for upgraded in &done {
        let report = upgraded.outcome.as_ref().unwrap();
        assert_eq!(
            (report.id, report.from, report.to),
            (upgraded.id, std::any::type_name::<One>(), std::any::type_name::<Many>())
        );
    }
    for (hits, n) in owners.iter().zip([1, 2, 3, 6, 7, 8, 9, 10]) {
        assert!(done.iter().any(|upgraded| upgraded.id == Handle::id(hits.handle())));
        assert_eq!((hits.name(), hits.total()), ("new", n));
    }
    assert_eq!(elsewhere.name(), "new");
    assert_eq!(other.what(), "old");
    let next = factory.create();
    assert_eq!((next.name(), class_of(next.handle())), ("new", std::any::type_name::<Many>()));
    owners.into_iter().chain([elsewhere, next]).for_each(end);
    end(other);
    old.wait_for_drops(12);
    assert_eq!((old.count(Step::Make), old.count(Step::Moved)), (12, 9));
    life.wait_for_drops(life.count(Step::Make));
    life.assert_over(0);
}

/// Another interface that the class implements.
#[squall::interface]
trait Names: Send + Sync {
    fn what(&self) -> &'static str;
}

impl Names for One {
    fn what(&self) -> &'static str {
        Hits::name(self)
    }
}

#[test]
fn co_72_one_upgrade_follows_another() {
    let _alone = alone();
    let factory: Factory<dyn Hits> = Factory::new(|| new_one("first", &Life::default()));
    let owners: Vec<_> = (0..4).map(|_| factory.create()).collect();
    owners.iter().for_each(|hits| hits.add(3));
    let patient = |swap: squall::swap::Swap<dyn Hits>| swap.drain_timeout(LONG);
    let done = factory.upgrade(|| new_many("second", &Life::default()), patient).unwrap();
    assert_eq!(done.len(), 4);
    let done =
        factory.upgrade(|| Replacement::swappable(Third(one("third", &Life::default()))), patient).unwrap();
    assert_eq!(done.len(), 4, "the objects of the first upgrade");
    assert!(owners.iter().all(|hits| (hits.name(), hits.total()) == ("third", 3)));
    owners.into_iter().for_each(end);
}

/// A third class.
struct Third(One);

impl squall::swap::State for Third {
    fn formats(formats: &mut squall::swap::StateFormats<'_, Third>) {
        formats.export_part(|this| Ok(this.0.total())).import_part(|this, n: u64| {
            this.0.add(n);
            Ok(())
        });
    }
}

impl Hits for Third {
    fn add(&self, n: u64) {
        self.0.add(n);
    }
    fn total(&self) -> u64 {
        self.0.total()
    }
    fn local(&self) -> u64 {
        self.0.local()
    }
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn carried(&self) -> Result<u64, squall::CallError> {
        self.0.carried()
    }
    fn within(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn holding(&self, f: &mut dyn FnMut()) {
        f();
    }
    fn panics(&self) {
        self.0.panics();
    }
}

#[test]
fn co_72_objects_with_failed_swaps_go_on_serving() {
    let _alone = alone();
    let old = Life::default();
    let made = old.clone();
    let factory: Factory<dyn Hits> = Factory::new(move || new_one("old", &made));
    let mut owners: Vec<_> = (0..6).map(|_| factory.create()).collect();
    owners.iter().zip(1..).for_each(|(hits, n)| hits.add(n));
    // One is in use longer than the limit, one import fails, and one is destroyed during its transfer.
    let held = Inside::hold(owners[1].handle());
    let (imports, fourth) = (Arc::new(AtomicUsize::new(0)), Mutex::new(Some(owners.remove(4))));
    let life = Life::default();
    life.on(Step::Import, move || match imports.fetch_add(1, Relaxed) {
        1 => Err("bent".into()),
        _ => {
            drop(fourth.lock().unwrap().take());
            Ok(())
        }
    });
    let new = life.clone();
    let limits = Arc::new(AtomicUsize::new(0));
    let done = factory
        .upgrade(
            move || new_many("new", &new),
            |swap| {
                limits.fetch_add(1, Relaxed);
                swap.drain_timeout(std::time::Duration::from_millis(1))
            },
        )
        .unwrap();
    held.leave();
    let failures: Vec<_> = done
        .iter()
        .filter_map(|upgraded| Some((upgraded.id, upgraded.outcome.as_ref().err()?.failure())))
        .collect();
    assert_eq!((done.len(), limits.load(Relaxed)), (6, 6));
    let in_use = Handle::id(owners[1].handle());
    assert!(
        failures.iter().any(|(id, failure)| *id == in_use && matches!(failure, SwapFailure::TimedOut(_)))
    );
    assert!(failures.iter().any(|(_, failure)| *failure == SwapFailure::TransferFailed));
    assert!(failures.iter().any(|(_, failure)| *failure == SwapFailure::Destroyed));
    for (hits, n) in owners.iter().zip([1, 2, 3, 4, 6]) {
        let failed = failures.iter().any(|(id, _)| *id == Handle::id(hits.handle()));
        assert_eq!((hits.name(), hits.total()), (if failed { "old" } else { "new" }, n));
    }
    // The next upgrade replaces the rest.
    let third = || Replacement::swappable(Third(one("newer", &Life::default())));
    let left = factory.upgrade(third, |swap| swap.drain_timeout(LONG)).unwrap();
    assert!(left.iter().all(|upgraded| upgraded.outcome.is_ok()));
    assert!(owners.iter().zip([1, 2, 3, 4, 6]).all(|(hits, n)| (hits.name(), hits.total()) == ("newer", n)));
    owners.into_iter().for_each(end);
    old.wait_for_drops(6);
}

#[test]
fn co_72_none_is_missed_of_those_that_are_being_made() {
    let _alone = alone();
    const UPGRADES: usize = if cfg!(miri) { 2 } else { 20 };
    for _ in 0..UPGRADES {
        let factory: Factory<dyn Hits> = Factory::new(|| new_one("old", &Life::default()));
        let all = Mutex::new(Vec::new());
        let made = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..40 {
                        let hits = factory.create();
                        hits.add(1);
                        if made.fetch_add(1, Relaxed).is_multiple_of(2) {
                            all.lock().unwrap().push(hits);
                        }
                        thread::yield_now();
                    }
                });
            }
            while made.load(Relaxed) < 20 {
                thread::yield_now();
            }
            let done = factory.upgrade(|| new_many("new", &Life::default()), |swap| swap.drain_timeout(LONG));
            for upgraded in done.unwrap() {
                if let Err(error) = upgraded.outcome {
                    assert_eq!(error.failure(), SwapFailure::Destroyed);
                }
            }
        });
        for hits in all.into_inner().unwrap() {
            assert_eq!((hits.name(), hits.total()), ("new", 1));
        }
    }
}

#[test]
fn co_72_a_rejected_upgrade_changes_nothing() {
    let _alone = alone();
    let factory: Factory<dyn Hits> = Factory::new(|| new_one("old", &Life::default()));
    let hits = factory.create();
    let refused = || factory.upgrade(|| new_many("new", &Life::default()), |swap| swap);
    assert_eq!(squall::rcu::pin(|_| refused().unwrap_err()), squall::rcu::WaitError::InOperation);
    hits.within(&mut || assert!(refused().is_err()));
    // A constructor that panics leaves all objects unchanged.
    let cannot = || -> Replacement<dyn Hits> { panic!("planned panic") };
    assert_eq!(text_of(|| factory.upgrade(cannot, |swap| swap)), "planned panic");
    assert_eq!((hits.name(), factory.create().name()), ("old", "old"));
    // The panic of a constructor reaches the caller, and leaves no object.
    let panics: Factory<dyn Hits> = Factory::new(|| panic!("out of stock"));
    assert_eq!(text_of(|| panics.create()), "out of stock");
    assert_eq!(text_of(|| panics.try_create().map(drop)), "out of stock");
    end(hits);
}

#[test]
fn co_72_factories_make_objects_of_each_kind() {
    let _alone = alone();
    let life = Life::default();
    for size in [ClusterSize::Cpu, ClusterSize::Machine] {
        let of = life.clone();
        let factory: Factory<dyn Hits> = Factory::new(move || Replacement::root(many("old", &of), size));
        let hits = factory.try_create().unwrap();
        hits.add(2);
        assert_eq!((hits.total(), info(hits.handle()).interface), (2, "Hits"));
        end(hits);
    }
    life.wait_for_drops(life.count(Step::Make));
    life.assert_over(0);
    assert_eq!(life.count(Step::RootDrop), 2);
}
