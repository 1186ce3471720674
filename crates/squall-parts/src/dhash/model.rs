//! Model checks of the shipped protocol, and their twins, each with one step left out. They cover the verdict
//! of [`find_or_fill`](Shared::find_or_fill_local), keys that are emptied while threads read or lock them,
//! keys that are filled again, and reservations. The tables are small stand-ins (`platform`); the locks are
//! the shipped ones.

use crate::dhash::Verdict;
use crate::dhash::element::Locked;
use crate::dhash::raw::{DeferredDrops, Element, Local, Shared};
use crate::dhash::reserve::Step;
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

    /// Finds the key or reserves it; waits for other fillers. Returns the error that one of them passed.
    fn reserve(&self, local: usize) -> Result<Step<u32, u8, u32>, String> {
        let mut then = Some(|global: &u32, part: &mut u32| {
            assert_eq!(*part, global * 10);
            *global
        });
        loop {
            match self.shared.reserve_local(&self.locals[local], &KEY, &mut then) {
                Step::Filling(element) => {
                    if let Some(error) = element.await_fill() {
                        return Err(error.inner().to_string());
                    }
                }
                done => return Ok(done),
            }
        }
    }

    /// Reserves the key and fills it, or finds it.
    fn reserve_and_fill(&self, local: usize, fill: u32) -> (Verdict, u32) {
        match self.reserve(local).unwrap() {
            Step::Found(global) => (Verdict::Found, global),
            Step::Reserved(element) => {
                self.fill(local, &element, fill).unwrap();
                (Verdict::Empty, fill)
            }
            Step::Filling(_) => unreachable!(),
        }
    }

    fn fill(&self, local: usize, element: &Arc<Element<u8, u32>>, fill: u32) -> Result<(), u32> {
        self.shared.fill_reserved_local(&self.locals[local], element, fill, |global, part| {
            assert_eq!((*global, *part), (fill, fill * 10));
        })
    }

    /// Reserves an absent key.
    fn reserved(&self) -> Arc<Element<u8, u32>> {
        match self.reserve(0) {
            Ok(Step::Reserved(element)) => element,
            _ => panic!("the key is present"),
        }
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
        let then = |verdict, element: &Arc<_>| (verdict, *Element::global(element));
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

/// Two threads reserve an absent key: one fills it, and the other waits for the fill.
fn two_reserve() {
    let world = World::new();
    let mut this = None;
    let other =
        beside(&world, |world| world.reserve_and_fill(1, 3), || this = Some(world.reserve_and_fill(0, 2)));
    let this = this.unwrap();
    assert_ne!(this.0, other.0, "one of two callers fills the key");
    assert_eq!(this.1, other.1);
    assert_eq!((world.read(0), world.read(1)), (Some(this.1), Some(this.1)));
}

/// One thread reserves the key, the other fills it by a closure.
fn one_reserves() {
    let world = World::new();
    let mut this = None;
    let other = beside(&world, |world| world.ask(1, 3), || this = Some(world.reserve_and_fill(0, 2)));
    let this = this.unwrap();
    assert_ne!(this.0, other.0, "one of two callers fills the key");
    assert_eq!(this.1, other.1);
}

/// A reserved key is filled by another thread than that which waits, or reserved it.
fn filled_elsewhere() {
    let world = World::new();
    let element = world.reserved();
    let waiter = |world: &World| {
        let then = |global: &u32, part: &mut u32| (*global, *part);
        let seen = world.shared.find_local(&world.locals[1], &KEY, then);
        assert_eq!(seen, Some((2, 20)), "a waiter found the key before it was filled");
    };
    beside(&world, waiter, || world.shared.fill_reserved(&element, 2).unwrap());
}

/// A task waits for a key that a closure fills.
fn filled_by_a_closure() {
    let world = World::new();
    let waiter = |world: &World| match world.shared.reserve_local(
        &world.locals[1],
        &KEY,
        &mut Some(|_: &_, _: &mut _| ()),
    ) {
        Step::Filling(element) => assert!(element.filled().wait().is_none()),
        Step::Reserved(element) => assert!(world.shared.end_reserved(&element, None)),
        Step::Found(()) => {}
    };
    beside(&world, waiter, || assert_eq!(world.ask(0, 2), (Verdict::Empty, 2)));
    assert_eq!(world.read(1), Some(2));
}

/// A reservation is withdrawn: a thread that waits for it reserves the key.
fn one_withdraws() {
    let world = World::new();
    let element = world.reserved();
    let waiter = |world: &World| world.reserve_and_fill(1, 3);
    let other = beside(&world, waiter, || assert!(world.shared.end_reserved(&element, None)));
    assert_eq!(other, (Verdict::Empty, 3));
    assert_eq!(world.read(0), Some(3));
}

/// A reservation fails: a thread that waits for it gets the error, and one that comes later reserves the key.
fn one_fails() {
    let world = World::new();
    let element = world.reserved();
    let waiter = |world: &World| {
        let mut then = Some(|_: &u32, _: &mut u32| ());
        match world.shared.reserve_local(&world.locals[1], &KEY, &mut then) {
            Step::Filling(element) => element.filled().wait().map(|error| error.inner().to_string()),
            Step::Reserved(element) => {
                assert!(world.shared.end_reserved(&element, None));
                Some("io".to_owned())
            }
            Step::Found(()) => panic!("a failed fill left a value"),
        }
    };
    let other = beside(&world, waiter, || assert!(world.shared.end_reserved(&element, Some(&"io".into()))));
    assert!(matches!(other.as_deref(), Some("io") | None), "{other:?}");
}

/// A thread waits for a key, and then its fill fails: it gets the error.
fn a_waiter_is_told() {
    let world = World::new();
    let element = world.reserved();
    let waiting = element.clone();
    let waiter = move |_: &World| {
        // Registers first, so that the error is for this thread.
        let mut filled = std::pin::pin!(waiting.filled());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let first = filled.as_mut().poll(&mut context);
        match filled.as_mut().poll(&mut context) {
            std::task::Poll::Ready(error) => {
                assert!(first.is_ready() || error.is_some(), "a waiter was not told of the error");
            }
            std::task::Poll::Pending => {}
        }
    };
    beside(&world, waiter, || assert!(world.shared.end_reserved(&element, Some(&"io".into()))));
}

/// A reservation is revoked while it is filled: one of the two takes effect.
fn revoked_while_filled() {
    let world = World::new();
    let element = world.reserved();
    let same = element.clone();
    let mut filled = None;
    let revoke = move |world: &World| world.shared.end_reserved(&same, None);
    let fill = || filled = Some(world.shared.fill_reserved(&element, 2).is_ok());
    let revoked = beside(&world, revoke, fill);
    assert_ne!(filled, Some(revoked), "a fill and its revocation agree on one end");
    assert_eq!(world.read(1), (!revoked).then_some(2));
    assert_eq!(world.ask(1, 3).0, if revoked { Verdict::Empty } else { Verdict::Found });
}

/// A reserved key is read while it is filled: the reader sees the whole value or no value.
fn reserved_under_a_reader() {
    let world = World::new();
    let element = world.reserved();
    let read = |world: &World| {
        let (first, second) = (world.read(0), world.read(1));
        assert!(first.is_none_or(|global| global == 2), "half a value");
        assert!(first.is_none() || second.is_some(), "the key disappeared");
    };
    beside(&world, read, || world.fill(0, &element, 2).unwrap());
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
    co_56_two_reserve two_reserve;
    co_56_one_reserves one_reserves;
    co_56_filled_elsewhere filled_elsewhere;
    co_56_filled_by_a_closure filled_by_a_closure;
    co_56_one_withdraws one_withdraws;
    co_56_one_fails one_fails;
    co_56_a_waiter_is_told a_waiter_is_told;
    co_56_revoked_while_filled revoked_while_filled;
    co_56_reserved_under_a_reader reserved_under_a_reader;
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
    fn a_waiter_that_does_not_check_again() {
        twin(sites::CHECK_AGAIN, &[], "dhash::model::co_56_filled_elsewhere");
    }

    #[test]
    fn a_fill_that_ignores_a_revocation() {
        twin(sites::CHECK_REVOKED, &[], "dhash::model::co_56_revoked_while_filled");
    }

    #[test]
    fn a_revocation_that_ignores_a_fill() {
        twin(sites::CHECK_FILLED, &[], "dhash::model::co_56_revoked_while_filled");
    }

    #[test]
    fn a_fill_that_wakes_no_waiter() {
        twin(sites::WAKE, &[], "dhash::model::co_56_filled_by_a_closure");
        twin(sites::WAKE, &[], "dhash::model::co_56_one_withdraws");
    }

    #[test]
    fn an_error_stored_after_the_end() {
        twin(sites::ERROR_FIRST, &[], "dhash::model::co_56_a_waiter_is_told");
    }

    #[test]
    fn a_verdict_of_the_local_table() {
        twin(sites::VERDICT, &[], "dhash::model::co_55_two_ask_in_two_places");
    }
}
