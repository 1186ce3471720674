//! What all threads of the torture share: places where maps live one after the other.
//!
//! - I1. What a place shows may be stale; who takes the owner out of it destroys the map, and nobody else does.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::book::Book;
use super::breaks::Break;
use super::kinds::{self, Kept};
use super::tally::{Tally, What, count};
use super::token::Token;
use crate::post::Post;
use crate::trial::Trial;
use crate::{Rng, leak, lock};

/// Places with a map.
pub(super) const PLACES: usize = 8;

#[derive(Default)]
struct Place {
    shown: Mutex<Option<Arc<Book>>>,
    vault: Mutex<Option<(Kept, Arc<Book>)>>,
}

pub(super) struct World {
    broken: Option<Break>,
    pub(super) trial: Trial,
    /// Where the threads live. A thread's lane in the books is the number of its post.
    pub(super) posts: Vec<Post>,
    /// Those of them that call.
    pub(super) callers: usize,
    places: Vec<Place>,
    alive: AtomicI64,
    serials: AtomicU64,
    pub(super) tally: Tally,
}

impl World {
    pub(super) fn make(broken: Option<Break>, callers: usize) -> &'static World {
        leak(World {
            broken,
            trial: Trial::default(),
            posts: (0..callers + super::lives::OTHERS.len()).map(|_| Post::default()).collect(),
            callers,
            places: (0..PLACES).map(|_| Place::default()).collect(),
            alive: AtomicI64::new(0),
            serials: AtomicU64::new(1),
            tally: Tally::default(),
        })
    }

    pub(super) fn is_broken(&self, how: Break) -> bool {
        self.broken == Some(how)
    }

    pub(super) fn token(&'static self, key: u64, event: u64) -> Token {
        Token::new(key, event, &self.alive)
    }

    /// Values that are alive.
    pub(super) fn alive(&self) -> i64 {
        // Acquire: pairs with the release of each drop.
        self.alive.load(Ordering::Acquire)
    }

    pub(super) fn any(&self, rng: &mut Rng) -> Option<Arc<Book>> {
        lock(&self.places[rng.below(PLACES as u64) as usize].shown).clone()
    }

    /// Puts a map into each place that has none.
    pub(super) fn fill(&'static self, rng: &mut Rng) {
        for place in &self.places {
            if lock(&place.vault).is_some() {
                continue;
            }
            let (map, is_adaptive) = kinds::any(rng);
            let serial = self.serials.fetch_add(1, Ordering::Relaxed);
            let book = Arc::new(Book::open(self, serial, map.handle(), is_adaptive));
            count(What::Made);
            if let Kept::Cached(_) = map {
                count(What::Cached);
            }
            let before = lock(&place.shown).replace(Arc::clone(&book));
            // There was none: maps are put here by one thread.
            let vault = lock(&place.vault).replace((map, book));
            drop((before, vault));
        }
    }

    /// Destroys the map of a place, if it has one; if `exactly`, when nobody writes, and compared with its book.
    pub(super) fn destroy(&self, place: usize, exactly: bool) {
        let Some((map, book)) = lock(&self.places[place].vault).take() else { return };
        if exactly {
            book.close();
        }
        if self.is_broken(Break::EarlyMark) {
            book.fate.mark_gone();
            // Long enough for a call.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        book.fate.begin_end();
        map.destroy();
        book.fate.mark_gone();
        count(What::Destroyed);
    }

    /// Ends all that is left.
    pub(super) fn end(&self) {
        for place in 0..PLACES {
            self.destroy(place, true);
            let shown = lock(&self.places[place].shown).take();
            drop(shown);
        }
    }
}
