//! Calls that run until the hoard is over: users with many of them must leave other users theirs.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex};

use crate::run::lock;

/// Most calls of one user that run at a time: half of the workers of a process.
pub(super) const SHARE: usize = 512;

/// The calls that wait for the end of the hoard.
#[derive(Debug, Default)]
pub(super) struct Hoard {
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lasts: bool,
    /// The number of hoards so far. A call of an earlier one does not wait in this one.
    number: u64,
    /// Running calls of each user, and the largest number that there was.
    users: HashMap<u32, (usize, usize)>,
}

impl Hoard {
    /// Lets calls wait from now on.
    pub(super) fn begin(&self) {
        let mut state = lock(&self.state);
        state.lasts = true;
        state.number += 1;
    }

    /// Lets all calls return. Returns the largest number of calls of one user that ran at a time.
    pub(super) fn end(&self) -> usize {
        let mut state = lock(&self.state);
        state.lasts = false;
        self.over.notify_all();
        let most = state.users.values().map(|(_, most)| *most).max();
        most.unwrap_or(0)
    }

    /// Runs as a call of this user until the hoard is over.
    pub(super) fn park(&self, uid: u32) {
        let mut state = lock(&self.state);
        let user = state.users.entry(uid).or_default();
        user.0 += 1;
        user.1 = user.1.max(user.0);
        drop(state);
        self.wait();
        lock(&self.state).users.entry(uid).and_modify(|user| user.0 -= 1);
    }

    /// Waits until the hoard is over.
    pub(super) fn wait(&self) {
        let mut state = lock(&self.state);
        let number = state.number;
        while state.lasts && state.number == number {
            state = self.over.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_of_each_user_is_kept() {
        let hoard = Hoard::default();
        hoard.begin();
        std::thread::scope(|scope| {
            for uid in [1, 1, 2] {
                let hoard = &hoard;
                scope.spawn(move || hoard.park(uid));
            }
            let running = || lock(&hoard.state).users.values().map(|(now, _)| *now).sum::<usize>();
            while running() < 3 {
                std::thread::yield_now();
            }
            assert_eq!(hoard.end(), 2);
        });
        hoard.park(1);
        assert!(lock(&hoard.state).users.values().all(|(now, _)| *now == 0));
    }
}
