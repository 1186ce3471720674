//! Model checks of the shipped protocol, and their twins, each with one step weakened.

use super::places::{Holders, Presence};
use super::raw::{Copied, DeadNodes, Master, Node, Word};
use super::sites;
use super::watch::Watch;
use squall_rcu::__model::Quiescence;
use squall_sys::sync::Arc;
use squall_sys::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use squall_sys::sync::cell::UnsafeCell;
use squall_sys::sync::thread;
use std::ptr::NonNull;
use std::task::{Wake, Waker};

/// A number watched by the checker: written when it is made and when it is freed.
struct Value(UnsafeCell<u32>);

/// The content of a freed value.
const FREED: u32 = u32::MAX;

// SAFETY: the protocol under test keeps readers and the freeing thread apart; the checker watches.
unsafe impl Sync for Value {}
// SAFETY: as above.
unsafe impl Send for Value {}

fn made(version: u64, value: u32) -> Box<Node<Value>> {
    let node = Node::new(version, Value(UnsafeCell::new(0)));
    // The checker tracks writes, not initial values.
    // SAFETY: only this function has it.
    node.value.0.with_mut(|place| unsafe { *place = value });
    node
}

fn read(node: NonNull<Node<Value>>) -> u32 {
    // SAFETY: the protocol under test; a node's memory is never deallocated in a model (`free`).
    let value = unsafe { node.as_ref() }.value.0.with(|value| unsafe { *value });
    assert_ne!(value, FREED, "a freed value was read");
    value
}

/// Marks nodes as freed. Their memory stays allocated, so that a bug is seen and does no harm.
fn free(dead: &mut DeadNodes<Value>) {
    while let Some(node) = dead.take() {
        // SAFETY: as in `read`.
        unsafe { node.as_ref() }.value.0.with_mut(|value| unsafe { *value = FREED });
    }
}

/// A master and two words.
struct World {
    master: Master<Value>,
    words: [Word<Value>; 2],
    quiescence: Quiescence,
}

// SAFETY: as for `Value`.
unsafe impl Sync for World {}
// SAFETY: as for `Value`.
unsafe impl Send for World {}

impl World {
    /// The value is 1, and `attached` words hold it.
    fn new(attached: usize) -> Arc<World> {
        let words = [Word::new(), Word::new()];
        let world = World { master: Master::new(Some(made(1, 1))), words, quiescence: Quiescence::new() };
        world.words[..attached].iter().for_each(|word| assert!(world.master.attach(word, None, || ())));
        Arc::new(world)
    }

    /// Reads like a replica.
    fn read(&self, word: usize) -> u32 {
        read(self.words[word].find().or_else(|| self.master.node()).expect("the master has a value"))
    }

    /// Reads like an empty replica that makes its own copy. The word is not loaded first: loom forgets the
    /// load of a thread that then changes the same location, and with it the steps of others in between.
    fn fetch(&self, word: usize) -> u32 {
        let original = self.master.node().expect("the master has a value");
        let value = read(original);
        let copy = NonNull::from(Box::leak(made(0, value)));
        self.master.attach(&self.words[word], Some(Copied { copy, original }), || ());
        value
    }

    fn replace(&self, value: u32, fill: bool) -> DeadNodes<Value> {
        let mut dead = DeadNodes::new();
        let new = |version| NonNull::from(Box::leak(made(version, value)));
        let mut walk = |reach: &mut dyn FnMut(&Word<Value>)| self.words.iter().for_each(reach);
        let replaced = self.master.replace(|_| true, new, &mut walk, fill, &mut dead);
        assert!(replaced.is_some());
        dead
    }
}

fn forget(dead: DeadNodes<Value>) {
    // No memory is freed in this model.
    let _ = dead;
}

/// A reader that has seen the new value in one replica sees it in every other.
fn never_back(fill: bool) {
    let world = World::new(2);
    let updater = {
        let world = world.clone();
        thread::spawn(move || forget(world.replace(2, fill)))
    };
    let first = world.read(0);
    let second = world.read(1);
    assert!(second >= first, "{second} was read after {first}");
    updater.join().unwrap();
    assert_eq!((world.read(0), world.read(1)), (2, 2));
}

fn filled() {
    never_back(true);
}

fn emptied() {
    never_back(false);
}

/// A copy attached by one reader is complete for another.
fn neighbours() {
    let world = World::new(0);
    let other = {
        let world = world.clone();
        thread::spawn(move || world.fetch(0))
    };
    assert_eq!(world.read(0), 1);
    assert_eq!(other.join().unwrap(), 1);
}

/// A replica attached during an update does not keep the old value.
fn late(copies: bool) {
    let world = World::new(0);
    let reader = {
        let world = world.clone();
        thread::spawn(move || {
            if copies {
                world.fetch(0);
            } else {
                world.master.attach(&world.words[0], None, || ());
            }
            // Its next read is no older than an earlier read elsewhere.
            world.read(1) <= world.read(0)
        })
    };
    forget(world.replace(2, true));
    assert!(reader.join().unwrap(), "a replica showed an older value than another before");
    assert_eq!(world.read(0), 2, "a replica kept the old value");
}

fn late_shared() {
    late(false);
}

fn late_copied() {
    late(true);
}

/// Two threads each change one value and then read the other: at least one sees the other's change.
fn two_values() {
    let worlds = [World::new(0), World::new(0)];
    let other = {
        let [one, two] = worlds.clone();
        thread::spawn(move || {
            forget(one.replace(2, true));
            two.read(0)
        })
    };
    let [one, two] = worlds;
    forget(two.replace(2, true));
    let here = one.read(0);
    let there = other.join().unwrap();
    assert!(here == 2 || there == 2, "neither saw what the other did");
}

/// A node is freed only when no operation can still read it.
fn reclaimed() {
    let world = World::new(1);
    let (reader, updater) = (world.quiescence.register(), world.quiescence.register());
    let _ = updater;
    let reading = {
        let world = world.clone();
        thread::spawn(move || {
            // SAFETY: registered in this domain, and used by this thread alone.
            unsafe { world.quiescence.in_operation(reader, || world.read(0)) }
        })
    };
    let mut dead = world.replace(2, true);
    let moment = world.quiescence.mark();
    if world.quiescence.poll(moment) {
        free(&mut dead);
    }
    reading.join().unwrap();
}

/// The thread that drops the last reference frees the node, and has seen the other holders finish.
fn references() {
    let world = World::new(0);
    let kept = world.master.share().expect("the master has a value").as_ptr() as usize;
    let keeper = thread::spawn(move || {
        let kept = NonNull::new(kept as *mut Node<Value>).expect("from a node");
        assert_eq!(read(kept), 1);
        let mut dead = DeadNodes::new();
        // SAFETY: from `share`.
        unsafe { dead.release(kept, 1) };
        free(&mut dead);
    });
    let mut dead = world.replace(2, true);
    free(&mut dead);
    keeper.join().unwrap();
}

/// An update that visits only the words noted as holders visits all that hold the value.
fn noted() {
    let (world, holders) = (World::new(0), Arc::new(Holders::new()));
    let reader = {
        let (world, holders) = (world.clone(), holders.clone());
        thread::spawn(move || world.master.attach(&world.words[0], None, || holders.note(0)))
    };
    let mut dead = DeadNodes::new();
    let new = |version| NonNull::from(Box::leak(made(version, 2)));
    let mut walk = |reach: &mut dyn FnMut(&Word<Value>)| {
        holders.take().below(2).for_each(|word| reach(&world.words[word]));
    };
    assert!(world.master.replace(|_| true, new, &mut walk, false, &mut dead).is_some());
    forget(dead);
    let attached = reader.join().unwrap();
    let held = world.words[0].find().map(read);
    assert!(held != Some(1), "a word kept the old value");
    assert_eq!(held.is_some(), holders.all().may_have(0), "attached: {attached}");
}

/// A place that has one word, the other, or no word, like a representative of a cached object that becomes
/// thin and full again. A number and a word stand for `Rcu` and a table.
struct Moving {
    world: Arc<World>,
    holders: Holders,
    kept: AtomicUsize,
}

/// A place without a word.
const NONE: usize = 2;

impl Moving {
    fn new(kept: usize) -> Arc<Moving> {
        Arc::new(Moving { world: World::new(0), holders: Holders::new(), kept: AtomicUsize::new(kept) })
    }

    /// The word that the place has now.
    fn lend(&self) -> usize {
        self.kept.load(Ordering::Acquire)
    }

    /// Looks up in this word, and fills it if it is empty.
    fn look(&self, word: usize) -> u32 {
        if word == NONE {
            return read(self.world.master.node().expect("the master has a value"));
        }
        if let Some(node) = self.world.words[word].find() {
            return read(node);
        }
        self.put(word);
        read(self.world.master.node().expect("the master has a value"))
    }

    fn put(&self, word: usize) {
        self.world.master.attach(&self.world.words[word], None, || self.holders.note(0));
    }

    /// The place loses its word.
    fn become_thin(&self) {
        self.kept.swap(NONE, Ordering::AcqRel);
    }

    /// The place gets the other word, which is given the value.
    fn become_full(&self) {
        if sites::PLACE_FIRST.is_weak() {
            self.put(1);
        }
        self.kept.swap(1, Ordering::AcqRel);
        self.put(1);
    }

    /// A change or a removal: both empty the place's word.
    fn change(&self) {
        let mut dead = DeadNodes::new();
        let new = |version| NonNull::from(Box::leak(made(version, 2)));
        let mut walk = |reach: &mut dyn FnMut(&Word<Value>)| {
            if self.holders.take().may_have(0) {
                self.world.words.get(self.lend()).into_iter().for_each(reach);
            }
        };
        assert!(self.world.master.replace(|_| true, new, &mut walk, false, &mut dead).is_some());
        forget(dead);
    }

    /// Two lookups: the second must not find a value that the first knows to be outdated.
    fn look_twice(&self) {
        let lent = self.lend();
        let first = self.look(lent);
        // The newest value that this thread has heard of.
        let known = first.max(read(self.world.master.node().expect("the master has a value")));
        let lent = if sites::RELOAD_WORD.is_weak() { lent } else { self.lend() };
        let second = self.look(lent);
        assert!(second >= known, "{second} was found when {known} was known");
    }
}

/// A place becomes thin while a change walks and a lookup fills its word.
fn thinned() {
    let moving = Moving::new(0);
    let [thin, change] = [Moving::become_thin, Moving::change].map(|act| {
        let moving = moving.clone();
        thread::spawn(move || act(&moving))
    });
    moving.look_twice();
    thin.join().unwrap();
    change.join().unwrap();
    assert_eq!(moving.look(moving.lend()), 2);
}

/// A place becomes full, with a value kept elsewhere, while a change walks.
fn handed() {
    let moving = Moving::new(0);
    moving.put(0);
    moving.become_thin();
    let change = {
        let moving = moving.clone();
        thread::spawn(move || moving.change())
    };
    moving.become_full();
    change.join().unwrap();
    assert_eq!(moving.look(moving.lend()), 2);
    moving.look_twice();
}

/// An entry made while the object ends is removed by one of the two threads.
fn swept() {
    let (presence, entry) = (Arc::new(Presence::new()), Arc::new(AtomicBool::new(false)));
    let maker = {
        let (presence, entry) = (presence.clone(), entry.clone());
        thread::spawn(move || {
            presence.announce(0);
            entry.store(true, Ordering::Relaxed);
            if !presence.is_here_still() {
                entry.store(false, Ordering::Relaxed);
            }
        })
    };
    let ender = {
        let (presence, entry) = (presence.clone(), entry.clone());
        thread::spawn(move || {
            if presence.end().expect("the first call ends it").may_have(0) {
                // Like a table: it does not write if the entry is absent.
                if entry.load(Ordering::Relaxed) {
                    entry.store(false, Ordering::Relaxed);
                }
            }
        })
    };
    maker.join().unwrap();
    ender.join().unwrap();
    assert!(!entry.load(Ordering::Relaxed), "an entry was left");
}

struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Bell>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A waiter sees the change, or is woken after it.
fn watched() {
    let watch = Arc::new(Watch::new());
    let changed = Arc::new(AtomicBool::new(false));
    let bell = std::sync::Arc::new(Bell(AtomicBool::new(false)));
    let waker = {
        let (watch, changed) = (watch.clone(), changed.clone());
        thread::spawn(move || {
            changed.store(true, Ordering::Relaxed);
            watch.wake();
        })
    };
    watch.register(None, &Waker::from(bell.clone()));
    let seen = changed.load(Ordering::Relaxed);
    waker.join().unwrap();
    assert!(seen || bell.0.load(Ordering::Relaxed), "a change was missed");
}

use squall_sys::models;
models!(
    filled,
    emptied,
    neighbours,
    late_shared,
    late_copied,
    two_values,
    reclaimed,
    references,
    watched,
    noted,
    thinned,
    handed,
    swept
);

/// The light fence in the release of `squall_lock::Lock`: a fence only in loom, not on the machine.
#[cfg(loom)]
const LOCK_LIGHT: squall_sys::sync::weaken::Site = squall_sys::sync::weaken::Site(2);

#[cfg(loom)]
#[test]
fn twins() {
    use sites as s;
    use squall_rcu::__model::ENTER_FENCE;
    let (filled, emptied) = ("replica::model::filled::holds", "replica::model::emptied::holds");
    for (site, masks, test) in [
        (s::FIND, &[][..], filled),
        // The fence before it would hide the weakening.
        (s::FILL, &[s::UPDATE], filled),
        (s::COMMIT, &[], filled),
        (s::READ_MASTER, &[], filled),
        (s::EMPTY_FIRST, &[], filled),
        (s::COMMIT, &[], emptied),
        (s::READ_MASTER, &[], emptied),
        (s::EMPTY_FIRST, &[], emptied),
        (s::ATTACH, &[], "replica::model::neighbours::holds"),
        (s::ATTACH_LOCKED, &[], "replica::model::late_shared::holds"),
        (s::ATTACH_LOCKED, &[], "replica::model::late_copied::holds"),
        (s::UPDATE, &[LOCK_LIGHT], "replica::model::two_values::holds"),
        (ENTER_FENCE, &[], "replica::model::reclaimed::holds"),
        (s::RELEASE, &[], "replica::model::references::holds"),
        (s::WATCH, &[], "replica::model::watched::holds"),
        (s::WAKE, &[], "replica::model::watched::holds"),
        (s::NOTE_LOCKED, &[], "replica::model::noted::holds"),
        (s::RELOAD_WORD, &[], "replica::model::thinned::holds"),
        (s::PLACE_FIRST, &[], "replica::model::handed::holds"),
        (s::CONFIRM, &[], "replica::model::swept::holds"),
        (s::END, &[], "replica::model::swept::holds"),
    ] {
        squall_sys::sync::weaken::twin(site, masks, test);
    }
}
