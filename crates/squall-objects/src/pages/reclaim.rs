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

/// Asks the users of `pool`, and then the pools below it, for `wanted` pages. Returns the number of pages
/// that they say they gave back.
pub(super) fn reclaim(pool: Handle<dyn PagePool>, wanted: usize) -> usize {
    if RECLAIMS.replace(true) {
        return 0;
    }
    let _reclaims = Reclaims;
    ask(pool, wanted)
}

fn ask(pool: Handle<dyn PagePool>, wanted: usize) -> usize {
    let places = machine().vp_limit();
    let first = Vp::current().index();
    // A pool that was destroyed has no members.
    let members =
        |place: usize| pool.try_members((first + place) % places).ok().flatten().unwrap_or_default();
    let mut got = 0;
    for place in 0..places {
        for user in members(place).users {
            if got >= wanted {
                return got;
            }
            // A user that was destroyed has no pages.
            got += user.try_give_back(wanted - got).unwrap_or(0);
        }
    }
    for place in 0..places {
        for below in members(place).pools {
            if got >= wanted {
                return got;
            }
            // Its free pages first, then those of its users.
            got += below.try_give_up(wanted - got).unwrap_or(0);
            if got < wanted && ask(below, wanted - got) > 0 {
                got += below.try_give_up(wanted - got).unwrap_or(0);
            }
        }
    }
    got
}
