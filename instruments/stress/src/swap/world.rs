//! What all threads of the torture share: places where objects live one after the other, and the books of all of them.
//!
//! - I1. What a place shows may be stale; who takes the owner out of it destroys the object, and nobody else does.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use squall::Owned;
use squall::swap::{Cancel, Factory};

use super::breaks::Break;
use super::caller::Entry;
use super::faults::Fault;
use super::interfaces::Relay;
use super::life::Life;
use super::stations::{Candidate, Kind};
use super::swaps;
use super::tally::{Tally, What, count};
use super::via::{Attached, detach};
use crate::post::Post;
use crate::trial::Trial;
use crate::{Rng, leak, lock};

/// Whom the methods of the object in each place call: two call each other; a chain of three leads back to its first; a
/// chain of three ends; two are the factory's, and call into the others.
const NEXT: [usize; 10] = [1, 0, 3, 4, 2, 6, 7, 7, 0, 2];
const FACTORY: std::ops::Range<usize> = 8..10;

/// Books that are named in an accusation, at most.
const NAMED_MAX: usize = 4;

#[derive(Default)]
pub(super) struct Place {
    shown: Mutex<Option<Entry>>,
    vault: Mutex<Option<(Owned<dyn Relay>, Entry)>>,
    pub(super) next: usize,
}

pub(super) struct World {
    pub(super) broken: Option<Break>,
    pub(super) trial: Trial,
    /// Where the threads live. A thread's lane in the objects' state is the number of its post.
    pub(super) posts: Vec<Post>,
    /// What the thread of each post does.
    doing: Vec<AtomicU64>,
    pub(super) places: Vec<Place>,
    pub(super) factory: Factory<dyn Relay>,
    pub(super) upgrading: Mutex<()>,
    /// Twice the upgrades, and one more while one is under way.
    pub(super) upgrades: AtomicU64,
    /// Where half of them are: of the object there and that which it calls each swapper has one.
    pub(super) front: AtomicUsize,
    /// All are to meet at one place.
    pub(super) duel: AtomicBool,
    /// Cancels every swap, when all are to end.
    pub(super) last: Cancel,
    pub(super) cancels: Mutex<VecDeque<Cancel>>,
    pub(super) arbiters: Mutex<Vec<Attached>>,
    pub(super) tally: Tally,
    lives: Mutex<BTreeMap<u64, Weak<Life>>>,
    serials: AtomicU64,
    /// Implementations are numbered.
    pub(super) numbers: AtomicU64,
    pub(super) chassis_made: AtomicU64,
    pub(super) chassis_dropped: AtomicU64,
    pub(super) marks_made: AtomicU64,
    pub(super) marks_dropped: AtomicU64,
    /// Calls that functions arbitrated, as these say and as the callers do.
    pub(super) arbitrated: AtomicU64,
    met: AtomicU64,
}

impl World {
    pub(super) fn make(broken: Option<Break>, posts: usize) -> &'static World {
        leak(World {
            broken,
            trial: Trial::default(),
            posts: (0..posts).map(|_| Post::default()).collect(),
            doing: (0..posts).map(|_| AtomicU64::new(0)).collect(),
            places: NEXT.iter().map(|&next| Place { next, ..Place::default() }).collect(),
            // It is given its maker before it makes anything.
            factory: Factory::new(|| unreachable!("the factory was not upgraded yet")),
            upgrading: Mutex::default(),
            upgrades: AtomicU64::new(0),
            front: AtomicUsize::new(0),
            duel: AtomicBool::new(false),
            last: Cancel::new(),
            cancels: Mutex::default(),
            arbiters: Mutex::default(),
            tally: Tally::default(),
            lives: Mutex::default(),
            serials: AtomicU64::new(1),
            numbers: AtomicU64::new(1),
            chassis_made: AtomicU64::new(0),
            chassis_dropped: AtomicU64::new(0),
            marks_made: AtomicU64::new(0),
            marks_dropped: AtomicU64::new(0),
            arbitrated: AtomicU64::new(0),
            met: AtomicU64::new(0),
        })
    }

    pub(super) fn is_broken(&self, how: Break) -> bool {
        self.broken == Some(how)
    }

    /// Accuses if the verdict says so.
    pub(super) fn judge(&self, verdict: Result<(), String>) {
        if let Err(what) = verdict {
            self.trial.accuse(what);
        }
    }

    /// What the thread of this post does from now on, by its number in the list of such things.
    pub(super) fn does(&self, post: usize, what: u64) {
        self.doing[post].store(what, Ordering::Relaxed);
    }

    pub(super) fn doing(&self, post: usize) -> u64 {
        self.doing[post].load(Ordering::Relaxed)
    }

    /// A caller has met an arbiter.
    pub(super) fn note_met(&self) {
        self.met.fetch_add(1, Ordering::Relaxed);
    }

    fn open(&'static self) -> Arc<Life> {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let life = Arc::new(Life::new(self, serial));
        lock(&self.lives).insert(serial, Arc::downgrade(&life));
        life
    }

    /// A book was balanced.
    pub(super) fn forget(&self, serial: u64) {
        lock(&self.lives).remove(&serial);
    }

    /// The book with this number.
    pub(super) fn life(&self, serial: u64) -> Option<Arc<Life>> {
        lock(&self.lives).get(&serial).and_then(Weak::upgrade)
    }

    /// Creates an object of any kind.
    fn create(&'static self, of_factory: bool, rng: &mut Rng) -> Option<(Owned<dyn Relay>, Entry)> {
        let life = self.open();
        let owned = if of_factory {
            swaps::make(self, &life)?
        } else {
            let kind = [Kind::Central, Kind::Text, Kind::Spread, Kind::Spread][rng.below(4) as usize];
            let candidate = Candidate::build(self, Some(&life), (kind, false), Fault::None, rng);
            match candidate.new.create() {
                Ok(owned) => owned,
                Err(error) => {
                    self.trial.accuse(format!("an object could not be created: {error}"));
                    return None;
                }
            }
        };
        let co = owned.handle();
        let _ = life.co.set(co);
        count(What::Created);
        Some((owned, Entry { life, co, of_factory }))
    }

    /// One that only its creator knows.
    pub(super) fn create_apart(&'static self, rng: &mut Rng) -> Option<(Owned<dyn Relay>, Entry)> {
        self.create(false, rng)
    }

    pub(super) fn destroy_apart(&self, owned: Owned<dyn Relay>, entry: &Entry) {
        let swaps = entry.life.swaps_under_way();
        if self.is_broken(Break::EarlyMark) {
            entry.life.mark_gone();
        }
        entry.life.begin_end();
        Owned::destroy(owned);
        entry.life.mark_gone();
        count(What::DestroyedAll);
        if swaps {
            count(What::DestroyedSwapping);
        }
    }

    pub(super) fn shown(&self, place: usize) -> Option<Entry> {
        lock(&self.places[place].shown).clone()
    }

    /// Destroys the object of a place. It stays shown.
    pub(super) fn destroy(&self, place: usize) {
        let taken = lock(&self.places[place].vault).take();
        if let Some((owned, entry)) = taken {
            self.destroy_apart(owned, &entry);
        }
    }

    /// Puts an object into a place, if it has none.
    pub(super) fn fill(&'static self, place: usize, rng: &mut Rng) {
        if lock(&self.places[place].vault).is_some() {
            return;
        }
        let Some((owned, entry)) = self.create(FACTORY.contains(&place), rng) else { return };
        let shown = lock(&self.places[place].shown).replace(entry.clone());
        let before = lock(&self.places[place].vault).replace((owned, entry));
        if let Some((owned, entry)) = before {
            self.destroy_apart(owned, &entry);
        }
        drop(shown);
    }

    /// Gives the factory its first maker, and every place its first object.
    pub(super) fn begin(&'static self, rng: &mut Rng) {
        swaps::upgrade(self, rng);
        (0..self.places.len()).for_each(|place| self.fill(place, rng));
    }

    /// Ends all that is left.
    pub(super) fn end(&self) {
        lock(&self.cancels).clear();
        let arbiters = std::mem::take(&mut *lock(&self.arbiters));
        arbiters.into_iter().for_each(detach);
        for place in 0..self.places.len() {
            self.destroy(place);
            let shown = lock(&self.places[place].shown).take();
            drop(shown);
        }
    }

    /// What is not accounted for.
    pub(super) fn left(&self) -> Option<String> {
        let lives = lock(&self.lives);
        if !lives.is_empty() {
            let named: Vec<String> =
                lives.keys().take(NAMED_MAX).map(|serial| format!("#{serial}")).collect();
            return Some(format!("{} objects are not accounted for: {}", lives.len(), named.join(", ")));
        }
        drop(lives);
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        let pairs = [
            ("implementations", read(&self.chassis_made), read(&self.chassis_dropped)),
            ("representatives", read(&self.marks_made), read(&self.marks_dropped)),
        ];
        let (what, made, dropped) = pairs.into_iter().find(|(_, made, dropped)| made != dropped)?;
        Some(format!("{what}: made {made}, dropped {dropped}"))
    }

    /// Whether functions have seen as many calls as callers have seen functions.
    pub(super) fn compare_arbiters(&self) -> Result<(), String> {
        let (ran, met) = (self.arbitrated.load(Ordering::Relaxed), self.met.load(Ordering::Relaxed));
        match ran == met {
            true => Ok(()),
            false => Err(format!("arbiters were run {ran} times, and {met} calls have met one")),
        }
    }
}
