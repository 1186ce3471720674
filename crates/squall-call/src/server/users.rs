//! The workers of each user.
//!
//! Problem: the processes of one user, or connections that were left while their calls still run, must not
//! take all workers of a server. Neither must a few users together, or one person with several uids.
//!
//! Idea: the last eighth of the workers is a reserve for users without workers. Another user may have one
//! more worker if it has fewer than are free besides the reserve. Of 1,024 workers, one user alone gets 448,
//! two get about 299 each.
//!
//! - I1. A user without workers gets one if the users with workers are fewer than the workers of the reserve.
//!
//! Not promised: a worker for a new user if one person has as many uids as the reserve has workers.
//!
//! Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998.

use squall_sys::peer::Peer;
use squall_sys::sync::StdArc as Arc;
use squall_sys::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::collections::HashMap;

/// The limit of workers, divided by the number of reserved ones.
const RESERVED_PART: usize = 8;

/// The user that a connection counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum User {
    Uid(u32),
    /// The other end of a socket pair: the connection of this number, a user of its own.
    Pair(u64),
}

impl User {
    pub(super) fn new(peer: Option<Peer>, connection: u64) -> User {
        peer.map_or(User::Pair(connection), |peer| User::Uid(peer.uid))
    }
}

/// The workers of one user.
#[derive(Debug, Default)]
pub(super) struct Workers {
    /// Slots with a worker. Changed with the pool locked.
    served: AtomicUsize,
    /// Whether a slot waits for this user's share. Its workers then leave slots without calls.
    wanted: AtomicBool,
}

impl Workers {
    pub(super) fn wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }
}

/// The workers of all users.
#[derive(Debug)]
pub(super) struct Users {
    users: HashMap<User, Arc<Workers>>,
    served: usize,
    limit: usize,
}

impl Users {
    pub(super) fn new(limit: usize) -> Users {
        Users { users: HashMap::new(), served: 0, limit }
    }

    /// The workers of a user, for a new connection.
    pub(super) fn get(&mut self, user: User) -> Arc<Workers> {
        self.users.retain(|_, workers| Arc::strong_count(workers) > 1);
        self.users.entry(user).or_default().clone()
    }

    /// Whether the user may have one more worker.
    pub(super) fn may_have_more(&self, workers: &Workers) -> bool {
        let free = self.limit.saturating_sub(self.served);
        match workers.served.load(Ordering::Relaxed) {
            0 => free > 0,
            served => served < free.saturating_sub(self.limit / RESERVED_PART),
        }
    }

    /// A slot of the user gets a worker.
    pub(super) fn add(&mut self, workers: &Workers) {
        self.served += 1;
        workers.served.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker leaves a slot of the user.
    pub(super) fn remove(&mut self, workers: &Workers) {
        self.served -= 1;
        workers.served.fetch_sub(1, Ordering::Relaxed);
    }

    /// Notes that a slot waits for the user's share. Returns true if that is new: then all workers of the
    /// user must look at it.
    pub(super) fn want(&self, workers: &Workers) -> bool {
        // Relaxed: changed with the pool locked, and `make_look` tells the workers (`slot/I5`).
        !workers.wanted.swap(true, Ordering::Relaxed)
    }

    /// Notes that slots wait for the shares of these users only.
    pub(super) fn want_only(&self, wanting: &[Arc<Workers>]) {
        for workers in self.users.values() {
            let wanted = wanting.iter().any(|other| Arc::ptr_eq(other, workers));
            // Relaxed: no worker must learn at once that it may stay.
            workers.wanted.store(wanted, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives a user all the workers that it may have. Returns their number.
    fn fill(users: &mut Users, workers: &Workers) -> usize {
        (0..).take_while(|_| users.may_have_more(workers).then(|| users.add(workers)).is_some()).count()
    }

    #[test]
    fn one_user_leaves_workers_for_the_others() {
        let mut users = Users::new(12);
        let [one, two, three] = [User::Uid(0), User::Uid(1), User::Pair(1)].map(|user| users.get(user));
        assert_eq!(fill(&mut users, &one), 6);
        assert_eq!(fill(&mut users, &two), 3);
        assert_eq!(fill(&mut users, &three), 1);
        assert!(!users.may_have_more(&one));
        // One user has too many now that others came. As its workers leave, the others get more.
        (0..3).for_each(|_| users.remove(&one));
        assert!(users.may_have_more(&one) && users.may_have_more(&two) && users.may_have_more(&three));
        assert_eq!((fill(&mut users, &two), fill(&mut users, &three)), (1, 1));
    }

    #[test]
    fn few_users_leave_a_worker_for_a_new_one() {
        const LIMIT: usize = 1024;
        const RESERVE: usize = LIMIT / RESERVED_PART;
        let mut users = Users::new(LIMIT);
        let all: Vec<_> = (0..RESERVE as u32).map(|uid| users.get(User::Uid(uid))).collect();
        let served: Vec<_> = all[..11].iter().map(|workers| fill(&mut users, workers)).collect();
        assert_eq!(served, [448, 224, 112, 56, 28, 14, 7, 4, 2, 1, 1]);
        assert!(all[..11].iter().all(|workers| !users.may_have_more(workers)));
        for workers in &all[11..] {
            assert_eq!(fill(&mut users, workers), 1, "a user without workers gets one");
        }
        assert_eq!(users.served, LIMIT - 10);
    }

    #[test]
    fn a_reserved_worker_goes_to_a_user_without_workers() {
        let mut users = Users::new(16);
        let [one, two, three] = [0, 1, 2].map(|uid| users.get(User::Uid(uid)));
        (0..14).for_each(|_| users.add(&one));
        assert!(!users.may_have_more(&one) && users.may_have_more(&two));
        users.add(&two);
        assert!(!users.may_have_more(&two) && users.may_have_more(&three));
        users.add(&three);
        assert!([&one, &two, &three].iter().all(|workers| !users.may_have_more(workers)));
        users.remove(&two);
        assert!(!users.may_have_more(&one) && !users.may_have_more(&three) && users.may_have_more(&two));
    }

    #[test]
    fn the_first_slot_that_waits_for_a_user_s_share_is_told_from_further_ones() {
        let mut users = Users::new(2);
        let [one, two] = [User::Uid(0), User::Uid(1)].map(|user| users.get(user));
        assert!(users.want(&one) && !users.want(&one) && users.want(&two));
        users.want_only(std::slice::from_ref(&two));
        assert!(!one.wanted() && two.wanted());
        assert!(users.want(&one) && !users.want(&two));
    }

    #[test]
    fn connections_of_one_user_share_its_workers() {
        let mut users = Users::new(2);
        let first = users.get(User::Uid(7));
        assert_eq!(fill(&mut users, &first), 1);
        // The first connection has ended, and its call still runs.
        let second = users.get(User::Uid(7));
        assert!(Arc::ptr_eq(&first, &second) && !users.may_have_more(&second));
        users.remove(&first);
        drop((first, second));
        users.get(User::Pair(7));
        assert_eq!(users.users.len(), 1, "a user without connections is forgotten");
    }
}
