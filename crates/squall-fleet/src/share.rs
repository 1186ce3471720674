//! The requests of each link of a port that have no reply yet, and their limit.
//!
//! Problem: a class has a limit of requests. One link could use it up, and hold up all others.
//! Idea: a link has a share of the limit. A link with so many requests is held: the port does not look into
//! it until one of them ends.
//!
//! - I1. A held link has as many requests as its share. The end of a request that leaves fewer releases the
//!   link, before the next look into the port.
//!
//! Not promised: a share for each process. A process may have several links.
//! Cost: a lookup in a hash map at the beginning and the end of a request of a link.

use crate::inlet::Peer;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// A link may have this part of the limit of a class.
const PART: usize = 8;

/// The requests of the links of one port.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    links: RefCell<HashMap<u32, Used>>,
    /// Links that are released.
    released: RefCell<Vec<Peer>>,
    /// The most requests of a link, once there are several links.
    share: Cell<usize>,
}

#[derive(Debug, Default)]
struct Used {
    requests: usize,
    is_held: bool,
}

/// A request of a link. Its drop ends it.
#[derive(Debug)]
pub(crate) struct Share {
    shares: Rc<Shares>,
    peer: Peer,
}

impl Shares {
    /// Begins a request of a link, with this limit of the class.
    pub(crate) fn begin(self: &Rc<Shares>, peer: Peer, limit: usize) -> Share {
        self.share.set((limit / PART).max(1));
        self.links.borrow_mut().entry(peer.link).or_default().requests += 1;
        Share { shares: self.clone(), peer }
    }

    /// Takes the links that are released.
    pub(crate) fn released(&self) -> Vec<Peer> {
        self.released.take()
    }
}

impl Share {
    /// Holds the link if it has used up its share. Returns whether it is held now.
    pub(crate) fn hold_if_full(&self) -> bool {
        let mut links = self.shares.links.borrow_mut();
        let Some(used) = links.get_mut(&self.peer.link) else { return false };
        used.is_held = used.requests >= self.shares.share.get();
        used.is_held
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut links = self.shares.links.borrow_mut();
        let Some(used) = links.get_mut(&self.peer.link) else { return };
        used.requests -= 1;
        if used.is_held && used.requests < self.shares.share.get() {
            used.is_held = false;
            self.shares.released.borrow_mut().push(self.peer);
        }
        if used.requests == 0 {
            links.remove(&self.peer.link);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_link_is_held_until_a_request_ends() {
        let shares = Rc::new(Shares::default());
        let (one, other) = (Peer { place: 1, link: 7 }, Peer { place: 2, link: 8 });
        let first = shares.begin(one, 16);
        assert!(!first.hold_if_full());
        let second = shares.begin(one, 16);
        assert!(second.hold_if_full());
        assert!(!shares.begin(other, 16).hold_if_full());
        assert_eq!(shares.released(), []);
        drop(first);
        assert_eq!((shares.released(), shares.released()), (vec![one], vec![]));
        drop(second);
        assert_eq!(shares.released(), []);
        assert!(shares.links.borrow().is_empty());
    }

    #[test]
    fn a_link_above_its_share_is_released_only_below_it() {
        let shares = Rc::new(Shares::default());
        let peer = Peer { place: 1, link: 7 };
        // It was alone, so it was not held.
        let mut begun: Vec<Share> = (0..5).map(|_| shares.begin(peer, 24)).collect();
        assert!(begun[4].hold_if_full());
        begun.drain(..2);
        assert_eq!(shares.released(), []);
        begun.pop();
        assert_eq!(shares.released(), [peer]);
        // A small limit leaves one request.
        assert!(shares.begin(Peer { place: 2, link: 9 }, 3).hold_if_full());
    }
}
