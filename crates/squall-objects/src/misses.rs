//! Misses as the sensor of an adaptive object: a hit stays as cheap as without one.
//!
//! - I1. A miss posts if the previous miss came from another VP. The engine removes the object's table
//!   entries when it arms the sensor. So VPs that still call miss once more.
//!
//! Source: see [`squall_adapt::adaptive`].

use squall_adapt::engine;
use squall_core::Id;
use squall_machine::Vp;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The misses of an object in its shared form.
#[derive(Default)]
pub struct Misses {
    /// Id of the object. Set when its representative is made.
    id: OnceLock<Id>,
    /// Index of the VP that missed last, plus one; zero before the first miss.
    last: AtomicU32,
}

impl Misses {
    /// Sets the id of the object.
    pub fn set_id(&self, id: Id) {
        self.id.get_or_init(|| id);
    }

    /// Notes a miss, and posts if the previous one came from another VP (I1). Returns `false` if the post was
    /// dropped, so that the VP must miss again.
    pub fn note(&self, vp: Vp) -> bool {
        let this = vp.index() as u32 + 1;
        // Relaxed: each of two concurrent misses may post, and a second post has no effect.
        let last = self.last.swap(this, Ordering::Relaxed);
        let is_heard = last == 0 || last == this || self.id.get().is_none_or(|id| engine::post(*id));
        if !is_heard {
            self.last.store(last, Ordering::Relaxed);
        }
        is_heard
    }
}
