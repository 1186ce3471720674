//! The clients that a server of process ids knows, with the last call of each.
//!
//! A client that died never closes. So a server that knows too many forgets the client without a call for the
//! longest time. A forgotten client that lives connects again, with its next call. Only the fate of a call
//! without a reply is forgotten with it, as after the death of a server.

use super::wire::Reply;
use squall_sys::sync::{Mutex, StdArc as Arc};
use std::collections::HashMap;

/// The last call of a client.
#[derive(Debug)]
pub(super) struct Last {
    pub(super) number: u64,
    pub(super) reply: Reply,
}

#[derive(Debug)]
struct Session {
    last: Arc<Mutex<Last>>,
    /// The time of its last call.
    used: u64,
}

#[derive(Debug)]
pub(super) struct Sessions {
    count_max: usize,
    /// Grows with each call.
    clock: u64,
    by_client: HashMap<u64, Session>,
}

impl Sessions {
    pub(super) fn new(count_max: usize) -> Sessions {
        Sessions { count_max, clock: 0, by_client: HashMap::new() }
    }

    /// Returns the last call of a client, for its next call.
    pub(super) fn get(&mut self, client: u64) -> Option<Arc<Mutex<Last>>> {
        self.clock += 1;
        let session = self.by_client.get_mut(&client)?;
        session.used = self.clock;
        Some(session.last.clone())
    }

    /// Adds a client, if it is not there. Returns false if too many clients have calls on their way.
    #[must_use]
    pub(super) fn add(&mut self, client: u64, number: u64) -> bool {
        // A late copy of a connect changes no number.
        if self.by_client.contains_key(&client) {
            return true;
        }
        if self.by_client.len() >= self.count_max {
            let idle = self.by_client.iter().filter(|(_, session)| Arc::strong_count(&session.last) == 1);
            let Some(idle) = idle.min_by_key(|(_, session)| session.used).map(|(client, _)| *client) else {
                return false;
            };
            self.by_client.remove(&idle);
        }
        self.clock += 1;
        let last = Arc::new(Mutex::new(Last { number, reply: Reply::Old }));
        self.by_client.insert(client, Session { last, used: self.clock });
        true
    }

    pub(super) fn remove(&mut self, client: u64) {
        self.by_client.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_without_calls_is_forgotten_and_one_with_a_call_is_not() {
        let mut sessions = Sessions::new(2);
        assert!(sessions.add(1, 0) && sessions.add(2, 0));
        let of_call = sessions.get(1).expect("client 1 is known");
        assert!(sessions.add(3, 5));
        assert!(sessions.get(2).is_none());
        // Client 3 is newer than client 1, which has a call.
        assert!(sessions.add(4, 0));
        assert!(sessions.get(3).is_none());
        let of_other = sessions.get(4).expect("client 4 is known");
        assert!(!sessions.add(5, 0), "both clients have calls");
        drop((of_call, of_other));
        // A copy of a connect forgets no client.
        assert!(sessions.add(4, 9));
        assert_eq!(sessions.get(1).expect("client 1 is known").lock().unwrap().number, 0);
        sessions.remove(4);
        assert!(sessions.add(5, 0) && sessions.get(1).is_some());
    }
}
