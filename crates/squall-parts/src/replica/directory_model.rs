//! Model checks of the shipped directory, and its twins, each with one step left out. The latches are locks
//! of `squall-lock`, and the places promise no more than `directory.rs` requires.

use super::directory::{Directory, Published};
use super::sites;
use squall_lock::{Lock, LockGuard};
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use squall_sys::sync::thread;

/// A copy behind its latch; `None` once it was taken away.
type Copied = Lock<Option<u32>>;

/// The object behind its latch, two places, and the copies. The first value is 1.
struct World {
    object: Lock<()>,
    /// The object's value. Written under its latch, and read without it by checks alone.
    value: AtomicU32,
    directory: Directory,
    /// For each place, the number of its copy plus one, or zero.
    places: [AtomicUsize; 2],
    copies: [Copied; 3],
}

impl World {
    /// Each place below `copied` has a copy of its number.
    fn new(copied: usize) -> Arc<World> {
        let world = World {
            object: Lock::new(()),
            value: AtomicU32::new(1),
            directory: Directory::new(),
            places: [0, 1].map(|_| AtomicUsize::new(0)),
            copies: [0, 1, 2].map(|_| Lock::new(None)),
        };
        (0..copied).for_each(|place| assert!(world.copy(place, place)));
        Arc::new(world)
    }

    /// Makes copy `number` at a place, unless a thread has the object's latch. Returns whether it stays.
    fn copy(&self, place: usize, number: usize) -> bool {
        let Some(object) = self.object.try_lock() else { return false };
        let value = self.value.load(Ordering::Relaxed);
        let mut copy = self.copies[number].lock();
        *copy = Some(value);
        let _object = (!sites::HOLD_OBJECT.is_weak()).then_some(object);
        let mut latch = if sites::HOLD_COPY.is_weak() {
            drop(copy);
            None
        } else {
            Some(copy)
        };
        let word = &self.places[place];
        // Release: pairs with the acquire in `found`.
        let insert = || word.compare_exchange(0, number + 1, Ordering::Release, Ordering::Relaxed).is_ok();
        let published = self.directory.publish(place, insert);
        if published != Published::Stays {
            **latch.get_or_insert_with(|| self.copies[number].lock()) = None;
        }
        if published == Published::Ended {
            self.unlink(place, number);
        }
        published == Published::Stays
    }

    fn found(&self, place: usize) -> Option<usize> {
        // Acquire: pairs with the release in `copy`.
        self.places[place].load(Ordering::Acquire).checked_sub(1)
    }

    fn unlink(&self, place: usize, number: usize) {
        let _ = self.places[place].compare_exchange(number + 1, 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Pins the copy at a place for reading.
    fn pin(&self, place: usize) -> Option<LockGuard<'_, Option<u32>>> {
        let copy = self.copies[self.found(place)?].try_lock()?;
        copy.is_some().then_some(copy)
    }

    /// Reads the copy, or else the object.
    fn read(&self, place: usize) -> u32 {
        if let Some(value) = self.pin(place).and_then(|copy| *copy) {
            return value;
        }
        let _object = self.object.lock();
        self.value.load(Ordering::Relaxed)
    }

    fn write(&self, value: u32) {
        let _object = self.object.lock();
        self.recall();
        self.value.store(value, Ordering::Relaxed);
    }

    /// Takes the copies away, under the object's latch.
    fn recall(&self) {
        let gone = self.directory.recall(2, |place| {
            if let Some(number) = self.found(place) {
                if !sites::WAIT_FOR_READERS.is_weak() {
                    *self.copies[number].lock() = None;
                }
                self.unlink(place, number);
            }
            true
        });
        assert!(gone);
    }

    fn end(&self) {
        self.directory.end(2, |place| {
            if let Some(number) = self.found(place) {
                self.unlink(place, number);
            }
        });
    }

    /// Asserts that no reader gets a copy with a value other than this one.
    fn has_no_copy_but(&self, value: Option<u32>) {
        for place in 0..2 {
            let copy = self.pin(place).and_then(|copy| *copy);
            assert!(copy.is_none() || copy == value, "place {place} has a copy of {copy:?}");
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

/// A copy that is made during a write has the new value, or is taken away.
fn copied_beside_a_write() {
    let world = World::new(0);
    let copies = |world: &World| {
        let before = world.read(0);
        world.copy(0, 0);
        let after = world.read(0);
        assert!(after >= before, "{after} was read after {before}");
    };
    beside(&world, copies, |world| world.write(2));
    world.has_no_copy_but(Some(2));
}

/// A thread that has read the new value finds no old copy elsewhere. The object does not change while a copy
/// is read.
fn read_beside_a_write() {
    let world = World::new(2);
    let reads = |world: &World| {
        if let Some(copy) = world.pin(1) {
            assert_eq!(*copy, Some(world.value.load(Ordering::Relaxed)), "the object changed under a pin");
        }
        let (first, second) = (world.read(1), world.read(0));
        assert!(second >= first, "{second} was read after {first}");
    };
    beside(&world, reads, |world| world.write(2));
    world.has_no_copy_but(None);
}

/// No reader gets a copy of an object that has ended.
fn copied_beside_the_end() {
    let world = World::new(1);
    beside(
        &world,
        |world| _ = world.copy(1, 2),
        |world| {
            world.end();
            world.has_no_copy_but(None);
        },
    );
    world.has_no_copy_but(None);
}

/// The end of an object waits for no recall, and leaves no copy.
fn recalled_beside_the_end() {
    let world = World::new(1);
    let ends = |world: &World| {
        world.end();
        world.has_no_copy_but(None);
    };
    // The recall begins: loom forgets a load of a thread that then changes the location.
    beside(&world, ends, |world| {
        let _object = world.object.lock();
        world.recall();
    });
}

macro_rules! models {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn directory() {
                squall_sys::sync::weaken::check(super::$name);
            }
        }
    )*};
}

models!(copied_beside_a_write, read_beside_a_write, copied_beside_the_end, recalled_beside_the_end);

#[cfg(loom)]
#[test]
fn directory_twins() {
    use sites as s;
    for (site, test) in [
        (s::HOLD_OBJECT, "replica::directory_model::copied_beside_a_write::directory"),
        (s::RECALL_ALL, "replica::directory_model::read_beside_a_write::directory"),
        (s::WAIT_FOR_READERS, "replica::directory_model::read_beside_a_write::directory"),
        (s::HOLD_COPY, "replica::directory_model::copied_beside_the_end::directory"),
        (s::CONFIRM, "replica::directory_model::copied_beside_the_end::directory"),
        (s::END, "replica::directory_model::copied_beside_the_end::directory"),
        (s::CLEAR_LAST, "replica::directory_model::recalled_beside_the_end::directory"),
    ] {
        squall_sys::sync::weaken::twin(site, &[], test);
    }
}
