//! Model checks of the shipped protocol, and their twins, each with one step left out. They cover the verdict
//! of [`find_or_fill`](Shared::find_or_fill_local), keys that are emptied while threads read or lock them,
//! and keys that are filled again. The tables are small stand-ins (`platform`); the locks are the shipped
//! ones.

use crate::dhash::Verdict;
use crate::dhash::element::Locked;
use crate::dhash::raw::{DeferredDrops, Local, Shared};
use squall_sys::sync::Arc;
use squall_sys::sync::thread;
use std::hash::{BuildHasherDefault, DefaultHasher};

type Hashing = BuildHasherDefault<DefaultHasher>;

const KEY: u8 = 7;

/// A master and two local tables.
struct World {
    shared: Shared<u8, u32, u32, Hashing>,
    locals: [Arc<Local<u8, u32, u32, Hashing>>; 2],
}

impl World {
    /// An empty master.
    fn new() -> Arc<World> {
        let shared = Shared::new(Hashing::default(), Box::new(|global| global * 10));
        let locals = [shared.add_local(Hashing::default()), shared.add_local(Hashing::default())];
        Arc::new(World { shared, locals })
    }

    /// The key has the value 1, and a replica in this local table.
    fn filled_at(local: usize) -> Arc<World> {
        let world = World::new();
        assert_eq!(world.ask(local, 1), (Verdict::Empty, 1));
        world
    }

    /// Asks for the key, and fills it with `fill` if told to.
    fn ask(&self, local: usize, fill: u32) -> (Verdict, u32) {
        let then = |verdict, global: &u32, part: &mut u32| {
            assert_eq!(*part, global * 10);
            (verdict, *global)
        };
        self.shared.find_or_fill_local(&self.locals[local], &KEY, || Ok::<_, ()>(fill), then).unwrap()
    }

    /// Asks for the key, and checks under its lock that it can still be read.
    fn ask_and_read(&self, local: usize) {
        let then = |_: Verdict, global: &u32, part: &mut u32| {
            assert_eq!(*part, global * 10);
            assert_eq!(self.read(local), Some(*global), "a locked value disappeared");
        };
        self.shared.find_or_fill_local(&self.locals[local], &KEY, || Ok::<_, ()>(2), then).unwrap();
    }

    fn read(&self, local: usize) -> Option<u32> {
        self.shared.read_local(&self.locals[local], &KEY, |global| *global)
    }

    fn empty(&self) -> bool {
        let mut deferred = DeferredDrops::new();
        self.shared
            .find(&KEY, |element| Locked::new(&self.shared, element, &mut deferred).empty_data())
            .is_some()
    }
}

/// Runs a second thread. Loom wants the thread that only reads to be the spawned one.
fn beside<T: 'static>(
    world: &Arc<World>,
    other: impl FnOnce(&World) -> T + 'static,
    this: impl FnOnce(),
) -> T {
    let world = world.clone();
    let other = thread::spawn(move || other(&world));
    this();
    other.join().unwrap()
}

/// Two threads ask for an absent key through these local tables: one fills it, and both see its value.
fn two_ask(first: usize, second: usize) {
    let world = World::new();
    let mut this = None;
    let other = beside(&world, move |world| world.ask(second, 3), || this = Some(world.ask(first, 2)));
    let this = this.unwrap();
    assert_ne!(this.0, other.0, "one of two callers fills the key");
    assert_eq!(this.1, other.1);
    assert_eq!((world.read(0), world.read(1)), (Some(this.1), Some(this.1)));
}

fn two_ask_in_two_places() {
    two_ask(0, 1);
}

fn two_ask_in_one_place() {
    two_ask(0, 0);
}

/// One thread asks through the master, the other through a local table.
fn one_asks_the_master() {
    let world = World::new();
    let mut this = None;
    let ask = || {
        let then = |verdict, element: &Arc<_>| (verdict, *crate::dhash::raw::Element::global(element));
        this = Some(world.shared.find_or_fill(&KEY, || Ok::<_, ()>(2), then).unwrap());
    };
    let other = beside(&world, move |world| world.ask(1, 3), ask);
    let this = this.unwrap();
    assert_ne!(this.0, other.0);
    assert_eq!(this.1, other.1);
}

/// A filler fails: the next caller fills the key.
fn one_does_not_fill() {
    let world = World::new();
    let fails = |world: &World| {
        let then = |verdict, global: &u32, _: &mut u32| (verdict, *global);
        world.shared.find_or_fill_local(&world.locals[1], &KEY, || Err(()), then)
    };
    let mut this = None;
    let other = beside(&world, fails, || this = Some(world.ask(0, 2)));
    assert_eq!(this, Some((Verdict::Empty, 2)));
    assert!(matches!(other, Err(()) | Ok((Verdict::Found, 2))), "{other:?}");
    assert_eq!(world.read(1), Some(2));
}

/// A key is read while it is filled: the reader sees the whole value or no value.
fn fills_under_a_reader() {
    let world = World::new();
    let read = |world: &World| {
        let (first, second) = (world.read(0), world.read(1));
        assert!(first.is_none() || second.is_some(), "the key disappeared");
    };
    beside(&world, read, || _ = world.ask(0, 2));
}

/// A key is emptied while another thread has it locked, or is about to lock it.
fn empties_under_a_lock() {
    let world = World::filled_at(0);
    beside(&world, |world| world.ask_and_read(0), || assert!(world.empty()));
}

/// A key is emptied while another thread makes a replica of it.
fn empties_under_a_new_replica() {
    let world = World::filled_at(1);
    beside(&world, |world| world.ask_and_read(0), || assert!(world.empty()));
}

/// A key is emptied while it is read in two places: if the first finds no value, neither does the second.
fn empties_under_a_reader() {
    let world = World::filled_at(1);
    let read = |world: &World| {
        let (first, second) = (world.read(0), world.read(1));
        assert!(first.is_some() || second.is_none(), "the key was absent here and present there");
    };
    beside(&world, read, || assert!(world.empty()));
    assert_eq!((world.read(0), world.read(1)), (None, None));
}

/// A key is emptied and refilled while it is read: no reader goes back to an earlier life.
fn filled_again_under_a_reader() {
    let world = World::filled_at(0);
    let read = |world: &World| {
        let looks = [world.read(0), world.read(1)];
        assert!(matches!(looks, [Some(1), _] | [None, None | Some(2)] | [Some(2), Some(2)]), "{looks:?}");
    };
    beside(&world, read, || {
        assert!(world.empty());
        assert_eq!(world.ask(1, 2), (Verdict::Empty, 2));
    });
}

/// A key is emptied and refilled while another thread asks for it: each life has one filler.
fn filled_again_by_either() {
    let world = World::filled_at(0);
    let mut this = None;
    let other = beside(
        &world,
        |world| world.ask(0, 3),
        || {
            assert!(world.empty());
            this = Some(world.ask(1, 2));
        },
    );
    let now = world.read(0).unwrap();
    match (this.unwrap(), other) {
        ((Verdict::Empty, 2), (Verdict::Found, 1 | 2)) => assert_eq!(now, 2),
        ((Verdict::Found, 3), (Verdict::Empty, 3)) => assert_eq!(now, 3),
        told => panic!("{told:?}"),
    }
}

macro_rules! models {
    ($($test:ident $model:ident;)*) => { $(
        #[test]
        fn $test() {
            squall_sys::sync::weaken::check($model);
        }
    )* };
}

models! {
    co_55_two_ask_in_two_places two_ask_in_two_places;
    co_55_two_ask_in_one_place two_ask_in_one_place;
    co_57_one_asks_the_master one_asks_the_master;
    co_56_one_does_not_fill one_does_not_fill;
    co_56_fills_under_a_reader fills_under_a_reader;
    co_61_empties_under_a_lock empties_under_a_lock;
    co_61_empties_under_a_new_replica empties_under_a_new_replica;
    co_61_empties_under_a_reader empties_under_a_reader;
    co_66_filled_again_under_a_reader filled_again_under_a_reader;
    co_66_filled_again_by_either filled_again_by_either;
}

mod twins {
    use crate::dhash::sites;
    use squall_sys::sync::weaken::twin;

    #[test]
    fn a_lock_without_a_recheck() {
        twin(sites::RECHECK, &[], "dhash::model::co_61_empties_under_a_lock");
    }

    #[test]
    fn a_fill_without_waiting() {
        twin(sites::WAIT, &[], "dhash::model::co_55_two_ask_in_two_places");
    }

    #[test]
    fn a_replica_made_without_the_elements_lock() {
        twin(sites::CREATE_LOCKED, &[], "dhash::model::co_61_empties_under_a_new_replica");
    }

    #[test]
    fn an_element_removed_before_it_is_gone() {
        twin(sites::MARK_FIRST, &[], "dhash::model::co_61_empties_under_a_reader");
    }

    #[test]
    fn an_element_emptied_before_its_replicas_are_locked() {
        twin(sites::LOCK_ALL, &[], "dhash::model::co_61_empties_under_a_lock");
    }

    #[test]
    fn a_verdict_of_the_local_table() {
        twin(sites::VERDICT, &[], "dhash::model::co_55_two_ask_in_two_places");
    }
}
