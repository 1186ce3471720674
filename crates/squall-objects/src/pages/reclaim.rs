//! Reclamation: users are asked for pages, and after them the pools below.
//!
//! All calls of users are made outside operations and without locks. A user that gets a page while it is
//! asked does not start another reclamation.
//!
//! Source: Appavoo 2005, §4.1.2 (CO-47). Our own: each thread that is short of pages reclaims by itself, and
//! begins with the table of its own VP. So several threads reclaim in parallel.

use squall_core::Handle;
use squall_machine::{Vp, machine};
use std::cell::Cell;
use std::collections::BTreeSet;

use super::{PagePool, PageUser};

thread_local! {
    /// Whether this thread reclaims at the moment.
    static RECLAIMS: Cell<bool> = const { Cell::new(false) };
}

/// Ends the reclamation of this thread when dropped, also during a panic of a user.
struct Reclaims;

impl Drop for Reclaims {
    fn drop(&mut self) {
        RECLAIMS.set(false);
    }
}

/// The largest depth of pools below each other that one reclamation asks. It bounds the stack.
const DEPTH: usize = 64;

/// The users that were asked for the same page before: they are passed over.
#[derive(Default)]
pub(super) struct Asked {
    users: BTreeSet<Handle<dyn PageUser>>,
    /// The pools that are being asked, each one below the one before it.
    path: Vec<Handle<dyn PagePool>>,
}

impl Asked {
    /// Returns the number of users that were asked.
    pub(super) fn users(&self) -> usize {
        self.users.len()
    }
}

/// Asks the users of `pool` that were not asked before, and then the pools below it, for `wanted` pages.
/// Returns the number of pages that they say they gave back.
pub(super) fn reclaim(pool: Handle<dyn PagePool>, wanted: usize, asked: &mut Asked) -> usize {
    if RECLAIMS.replace(true) {
        return 0;
    }
    let _reclaims = Reclaims;
    ask(pool, wanted, asked)
}

fn ask(pool: Handle<dyn PagePool>, wanted: usize, asked: &mut Asked) -> usize {
    // A pool may be attached below itself: the methods for that are public.
    if asked.path.len() == DEPTH || asked.path.contains(&pool) {
        return 0;
    }
    asked.path.push(pool);
    let got = ask_members(pool, wanted, asked);
    asked.path.pop();
    got
}

fn ask_members(pool: Handle<dyn PagePool>, wanted: usize, asked: &mut Asked) -> usize {
    let places = machine().vp_limit();
    let first = Vp::current().index();
    // A pool that was destroyed has no members.
    let members =
        |place: usize| pool.try_members((first + place) % places).ok().flatten().unwrap_or_default();
    // A user may return any number.
    let mut got = 0_usize;
    for place in 0..places {
        for user in members(place).users {
            if got >= wanted {
                return got;
            }
            if asked.users.insert(user) {
                // A user that was destroyed has no pages.
                got = got.saturating_add(user.try_give_back(wanted - got).unwrap_or(0));
            }
        }
    }
    for place in 0..places {
        for below in members(place).pools {
            if got >= wanted {
                return got;
            }
            // Its free pages first, then those of its users.
            got = got.saturating_add(below.try_give_up(wanted - got).unwrap_or(0));
            while got < wanted {
                let before = asked.users();
                let said = ask(below, wanted - got, asked);
                got = got.saturating_add(if said > 0 {
                    below.try_give_up(wanted - got).unwrap_or(0)
                } else {
                    0
                });
                // Again only if more users may be left, of which the first ones brought too little.
                if said == 0 || asked.users() == before {
                    break;
                }
            }
        }
    }
    got
}
