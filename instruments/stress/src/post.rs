//! Posts, where one thread of a torture after another lives, and the farewells of those threads.
//!
//! - I1. A post names its thread only while that thread is alive: whoever does something to the thread holds the post's
//!   lock meanwhile, so that no other process's thread is hit by a number used again.
//! - I2. A farewell is said while a thread's thread-locals are destroyed. A thread has two, one before the library's own
//!   exit hook and one after it: destructors run in the opposite order of the first uses.
//! - I3. A farewell is due from before the thread can end until it has been said. A thread that is said to have finished
//!   may still be at its farewells, and must not be joined then: it might stand still there.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustix::process::Pid;
use rustix::thread::gettid;

use super::lock;

/// Where one thread after another lives.
#[derive(Default)]
pub(crate) struct Post {
    thread: Mutex<Option<Pid>>,
    /// Steps begun, ever.
    beats: AtomicU64,
    pub(crate) farewells: Farewells,
}

impl Post {
    /// The calling thread lives here from now on.
    pub(crate) fn move_in(&self) {
        *lock(&self.thread) = Some(gettid());
    }

    /// It lives here no longer, and may end (I1).
    pub(crate) fn move_out(&self) {
        *lock(&self.thread) = None;
    }

    /// A step begins.
    pub(crate) fn beat(&self) {
        self.beats.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn beats(&self) -> u64 {
        self.beats.load(Ordering::Relaxed)
    }

    /// Calls `f` with the thread that lives here, if one does (I1).
    pub(crate) fn with_thread(&self, f: impl FnOnce(Pid)) {
        if let Some(thread) = *lock(&self.thread) {
            f(thread);
        }
    }
}

/// The farewells that are to come of some threads (I3).
#[derive(Default)]
pub(crate) struct Farewells(AtomicUsize);

impl Farewells {
    pub(crate) fn are_due(&self) -> bool {
        // Acquire: pairs with the release of the last farewell: it is over.
        self.0.load(Ordering::Acquire) > 0
    }

    /// The calling thread says this after the library's own exit hook: to be called before its first use of the library.
    pub(crate) fn say_after_the_library(&'static self, say: impl FnOnce() + 'static) {
        AFTER.with(|place| self.plan(place, say));
    }

    /// The calling thread says this before the library's own exit hook: to be called after its first use of the library.
    pub(crate) fn say_before_the_library(&'static self, say: impl FnOnce() + 'static) {
        BEFORE.with(|place| self.plan(place, say));
    }

    fn plan(&'static self, place: &Place, say: impl FnOnce() + 'static) {
        self.0.fetch_add(1, Ordering::Relaxed);
        let planned = place.0.replace(Some(Farewell { say: Box::new(say), due: self }));
        assert!(planned.is_none(), "a thread has one life");
    }
}

struct Farewell {
    say: Box<dyn FnOnce()>,
    due: &'static Farewells,
}

struct Place(Cell<Option<Farewell>>);

// Two, each with a destructor that is registered at its first use (I2).
thread_local! {
    static AFTER: Place = const { Place(Cell::new(None)) };
    static BEFORE: Place = const { Place(Cell::new(None)) };
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(Farewell { say, due }) = self.0.take() {
            say();
            // Release: pairs with the acquire of who waits until none is due.
            due.0.fetch_sub(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn farewells_are_said_around_what_was_first_used_between_them() {
        static DUE: Farewells = Farewells(AtomicUsize::new(0));
        static SAID: Mutex<Vec<&str>> = Mutex::new(Vec::new());
        struct Library;
        impl Drop for Library {
            fn drop(&mut self) {
                lock(&SAID).push("library");
            }
        }
        thread_local!(static LIBRARY: Library = const { Library });
        let life = || {
            DUE.say_after_the_library(|| lock(&SAID).push("after"));
            LIBRARY.with(|_| ());
            DUE.say_before_the_library(|| lock(&SAID).push("before"));
            assert!(DUE.are_due() && lock(&SAID).is_empty());
        };
        thread::spawn(life).join().expect("it does not panic");
        assert!(!DUE.are_due());
        assert_eq!(*lock(&SAID), ["before", "library", "after"]);
    }

    #[test]
    fn a_post_names_its_thread_while_it_lives_there() {
        let post = Post::default();
        let named = || {
            let mut named = None;
            post.with_thread(|thread| named = Some(thread));
            named
        };
        assert_eq!(named(), None);
        post.move_in();
        assert_eq!(named(), Some(gettid()));
        post.move_out();
        assert_eq!(named(), None);
    }
}
