//! Model checks of the shipped keyed copies, and their twins, each with one step left out. The model has one
//! key, and tables that promise no more than `keyed.rs` requires.

use super::keyed::KeyedCopies;
use super::sites;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::thread;

/// A place's copy of the key; zero if absent.
#[derive(Clone)]
struct Place(Arc<AtomicU32>);

impl Place {
    fn with(value: u32) -> Place {
        Place(Arc::new(AtomicU32::new(value)))
    }

    fn find(&self) -> Option<u32> {
        // Acquire: pairs with the release in `put`.
        Some(self.0.load(Ordering::Acquire)).filter(|value| *value != 0)
    }

    /// Stores the value if the key is absent.
    fn put(&self, value: &mut Option<u32>) {
        if let Some(new) = value {
            // Release: pairs with the acquire in `find`.
            let put = self.0.compare_exchange(0, *new, Ordering::Release, Ordering::Relaxed);
            *value = put.err();
        }
    }

    fn take_out(&self) {
        if self.find().is_some() {
            self.0.swap(0, Ordering::Relaxed);
        }
    }
}

/// The source, two places, and the `KeyedCopies` between them. The first value is 1.
struct World {
    source: AtomicU32,
    places: [Place; 2],
    keyed: KeyedCopies<Place>,
}

impl World {
    /// `joined` places have joined, with or without copies.
    fn new(joined: usize, copies: bool) -> Arc<World> {
        let places = [0, 1].map(|at| Place::with(u32::from(copies && at < joined)));
        let world = World { source: AtomicU32::new(1), places, keyed: KeyedCopies::new(1) };
        world.places[..joined].iter().for_each(|place| world.keyed.join(place.clone()));
        Arc::new(world)
    }

    fn source(&self) -> u32 {
        // Acquire: pairs with the release in `change`.
        self.source.load(Ordering::Acquire)
    }

    /// Looks up the key without making a copy.
    fn look(&self, place: usize) -> u32 {
        self.places[place].find().unwrap_or_else(|| self.source())
    }

    /// Makes a copy, like a lookup that missed.
    fn copy(&self, place: usize) {
        self.keyed.copy(0, || Some(self.source()), |copy| self.places[place].put(copy));
    }

    fn change(&self, value: u32) {
        let late = sites::TAKE_FIRST.is_weak();
        let announced = self.keyed.announce(0, |place| {
            if !late {
                place.take_out()
            }
        });
        // Release: pairs with the acquire in `source`.
        self.source.store(value, Ordering::Release);
        if late {
            self.places.iter().for_each(Place::take_out);
        }
        drop(announced);
    }

    /// Asserts that no place has a copy of this value.
    fn has_no_copy_of(&self, value: u32) {
        for (at, place) in self.places.iter().enumerate() {
            assert_ne!(place.find(), Some(value), "a copy survived its value at {at}");
        }
    }
}

/// Runs `other` in a second thread, and `here` in this one.
fn beside(world: &Arc<World>, other: impl FnOnce(&World) + Send + 'static, here: impl FnOnce(&World)) {
    let there = {
        let world = world.clone();
        thread::spawn(move || other(&world))
    };
    here(world);
    there.join().unwrap();
}

/// A reader that has seen the new value at one place sees it at every other.
fn never_back() {
    let world = World::new(2, true);
    let looks = |world: &World| {
        let (first, second) = (world.look(0), world.look(1));
        assert!(second >= first, "{second} was seen after {first}");
    };
    beside(&world, looks, |world| world.change(2));
    world.has_no_copy_of(1);
}

/// A copy made while the value changes has the new value, or is removed. The value that its maker reads next
/// is no older than the source was.
fn no_copy_survives() {
    let world = World::new(1, false);
    let copies = |world: &World| {
        let before = world.source();
        world.copy(0);
        let after = world.look(0);
        assert!(after >= before, "{after} was seen after {before}");
    };
    beside(&world, copies, |world| world.change(2));
    world.has_no_copy_of(1);
}

/// A place that joins while a change is announced, and copies at once, keeps no old value.
fn joins() {
    let world = World::new(1, true);
    let joins = |world: &World| {
        world.keyed.join(world.places[1].clone());
        world.copy(1);
        let (first, second) = (world.look(1), world.look(0));
        assert!(second >= first, "{second} was seen after {first}");
    };
    beside(&world, joins, |world| world.change(2));
    world.has_no_copy_of(1);
}

/// A place that leaves removes no other place.
fn leaves() {
    let world = World::new(2, true);
    let leaves = |world: &World| world.keyed.leave(|place| Arc::ptr_eq(&place.0, &world.places[1].0));
    beside(&world, leaves, |world| world.change(2));
    assert_eq!(world.places[0].find(), None, "a copy survived its value");
}

/// Each of two changes of a stripe prevents copies until its own end.
fn two_change() {
    let world = World::new(1, false);
    let other = |world: &World| drop(world.keyed.announce(0, Place::take_out));
    beside(&world, other, |world| {
        let announced = world.keyed.announce(0, Place::take_out);
        world.copy(0);
        assert_eq!(world.look(0), 1);
        assert_eq!(world.places[0].find(), None, "a key was copied while its change was announced");
        drop(announced);
    });
}

macro_rules! models {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn keyed() {
                squall_sys::sync::weaken::check(super::$name);
            }
        }
    )*};
}

models!(never_back, no_copy_survives, joins, leaves, two_change);

#[cfg(loom)]
#[test]
fn keyed_twins() {
    use sites as s;
    for (site, test) in [
        (s::TAKE_FIRST, "replica::keyed_model::never_back::keyed"),
        (s::ANNOUNCE_FIRST, "replica::keyed_model::no_copy_survives::keyed"),
        (s::NO_CHANGE_NOW, "replica::keyed_model::no_copy_survives::keyed"),
        (s::NO_CHANGE_SINCE, "replica::keyed_model::no_copy_survives::keyed"),
        (s::COPY_LOCKED, "replica::keyed_model::no_copy_survives::keyed"),
        (s::PLACES_AFTER, "replica::keyed_model::joins::keyed"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], test);
    }
}
