//! Deadlock detection: in debug builds, a wait that can never end panics and names the threads and locks of
//! the cycle.
//!
//! Problem: a deadlock is silent. Idea: record the holder of each lock and the source line that took it. A
//! thread that is about to sleep for a lock without a limit follows the chain: lock, holder, the lock that
//! the holder waits for, and so on. If the chain leads back to the thread, these waits can never end.
//!
//! - I1. An owner is recorded after the lock was taken and removed before the lock is released. So a recorded
//!   owner holds the lock.
//! - I2. A thread is in the list of waiters only while it is in [`waits`]. It releases no lock there.
//! - I3. No false cycle. The list is locked during the search, and each thread of the cycle is in it. So each
//!   thread holds its recorded locks until the search ends (I1, I2). It waits without a limit for a lock held
//!   by the next thread. A thread may have received its lock and still be in the list. Such a thread is in no
//!   cycle: the lock's recorded holder is this thread, or empty.
//! - I4. The last thread to enter the list finds a cycle of recorded owners. The others are in the list
//!   already, and their locks were recorded before.
//! - I5. Recording and removing an owner never allocates. Both wait only for a short section that does not
//!   allocate. So the locks of an allocator may be recorded too.
//! - I6. Locks that a thread takes inside this module are neither recorded nor listed. (Recording a wait and
//!   writing a report allocate, and the allocator may have locks.) So this module never re-enters a lock it
//!   holds.
//!
//! Not detected:
//! - waits with a limit or a cancellation, which end by themselves;
//! - holders that are not recorded: of two-bit locks, gates, and locks of other crates;
//! - of several threads that share a lock, all but the last recorded one;
//! - locks beyond the capacity of the owner table (`HELD_MAX` in each part);
//! - cycles through a lock taken inside this module (I6).
//!
//! A forgotten guard is a lock held forever. If the lock's memory is then reused for
//! another lock, that lock has a wrong recorded holder until it is first taken.
//!
//! Cost: debug builds only: a `std` lock per acquisition and release, and 100 KB of zeroed memory. In release
//! builds, under Miri and in models, this module is empty.
//! Source: wait-for graphs; Holt, "Some deadlock properties of computer systems", 1972.

#[cfg(all(debug_assertions, not(loom), not(miri)))]
pub(crate) use graph::{acquired, holds, name, released, waits};
#[cfg(not(all(debug_assertions, not(loom), not(miri))))]
#[cfg_attr(loom, allow(unused_imports, reason = "models are built without the public types"))]
pub(crate) use nothing::{acquired, holds, name, released, waits};

/// Empty functions for builds without detection.
#[cfg(not(all(debug_assertions, not(loom), not(miri))))]
mod nothing {
    use std::panic::Location;

    #[inline(always)]
    pub(crate) fn acquired(_lock: usize, _at: &'static Location<'static>) {}

    #[inline(always)]
    pub(crate) fn released(_lock: usize) {}

    #[cfg_attr(loom, allow(dead_code, reason = "models are built without the public types"))]
    #[inline(always)]
    pub(crate) fn holds(_lock: usize) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) fn waits<R>(_lock: usize, wait: impl FnOnce() -> R) -> R {
        wait()
    }

    #[inline(always)]
    pub(crate) fn name(_lock: usize, _name: &'static str) {}
}

#[cfg(all(debug_assertions, not(loom), not(miri)))]
mod graph {
    use squall_sys::sync::atomic::{AtomicU64, Ordering};
    use squall_sys::sync::thread::{self, ThreadId};
    use squall_sys::sync::{Mutex, MutexGuard};
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::fmt::{self, Write};
    use std::panic::Location;

    thread_local! {
        /// True while this thread is inside this module (I6).
        static INSIDE: Cell<bool> = const { Cell::new(false) };
        /// The thread's number; 0 until the thread asks for it.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }

    /// Proof that this thread is inside this module.
    struct Inside;

    impl Inside {
        /// Enters, or returns `None` if this thread is already inside, or in the child of a fork. There the
        /// locks of this module may be held for ever.
        fn enter() -> Option<Inside> {
            if squall_sys::fork::forked() || INSIDE.replace(true) { None } else { Some(Inside) }
        }
    }

    impl Drop for Inside {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }

    /// Returns a number unique to this thread. `ThreadId` would not do: reading it may allocate, and fails in
    /// an allocator (I5).
    fn number() -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        NUMBER.with(|number| {
            if number.get() == 0 {
                number.set(LAST.fetch_add(1, Ordering::Relaxed) + 1);
            }
            number.get()
        })
    }

    /// A thread as a report shows it.
    struct Who {
        number: u64,
        id: ThreadId,
        name: Option<String>,
    }

    impl Who {
        fn this() -> Who {
            let thread = thread::current();
            Who { number: number(), id: thread.id(), name: thread.name().map(str::to_owned) }
        }
    }

    impl fmt::Display for Who {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match &self.name {
                Some(name) => write!(f, "thread `{name}` ({:?})", self.id),
                None => write!(f, "thread {:?}", self.id),
            }
        }
    }

    /// The holder of a lock, and the place that took it.
    #[derive(Clone, Copy)]
    struct Owner {
        lock: usize,
        who: u64,
        at: &'static Location<'static>,
    }

    /// The number of owners in one part of the table.
    const HELD_MAX: usize = 64;

    /// A table of owners, at most one per lock. It is allocated statically (I5).
    struct Owners {
        count: usize,
        /// The first `count` entries are set.
        list: [Option<Owner>; HELD_MAX],
    }

    impl Owners {
        const fn new() -> Owners {
            Owners { count: 0, list: [None; HELD_MAX] }
        }

        fn place(&self, lock: usize) -> Option<usize> {
            self.list[..self.count].iter().position(|owner| owner.is_some_and(|owner| owner.lock == lock))
        }

        fn get(&self, lock: usize) -> Option<Owner> {
            self.list[self.place(lock)?]
        }

        /// Inserts the owner, and replaces the previous owner of the lock. A full table ignores it.
        fn insert(&mut self, owner: Owner) {
            let place = self.place(owner.lock).unwrap_or(self.count);
            if place < HELD_MAX {
                self.list[place] = Some(owner);
                self.count = self.count.max(place + 1);
            }
        }

        /// Removes the owner of `lock`, unless another thread is recorded, which shares the lock.
        fn remove(&mut self, lock: usize, who: u64) {
            let Some(place) = self.place(lock) else { return };
            if self.list[place].is_some_and(|owner| owner.who == who) {
                self.count -= 1;
                self.list.swap(place, self.count);
                self.list[self.count] = None;
            }
        }
    }

    /// A thread that waits for a lock without a limit.
    struct Waiter {
        who: Who,
        lock: usize,
        at: &'static Location<'static>,
    }

    /// The owners by lock. The table has parts, so that threads with different locks seldom meet. No thread
    /// allocates while it holds a part.
    static OWNERS: [Mutex<Owners>; PARTS] = [const { Mutex::new(Owners::new()) }; PARTS];
    const PARTS: usize = 64;

    /// The waiting threads. Locked before any part of the owners.
    static WAITERS: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

    static NAMES: Mutex<BTreeMap<usize, &'static str>> = Mutex::new(BTreeMap::new());

    fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn owners(lock: usize) -> MutexGuard<'static, Owners> {
        // Locks lie at least two bytes apart, and usually more.
        locked(&OWNERS[(lock >> 4 ^ lock >> 12) % PARTS])
    }

    fn owner(lock: usize) -> Option<Owner> {
        owners(lock).get(lock)
    }

    /// Records that this thread holds `lock` (its address) since `at`.
    pub(crate) fn acquired(lock: usize, at: &'static Location<'static>) {
        if let Some(_inside) = Inside::enter() {
            owners(lock).insert(Owner { lock, who: number(), at });
        }
    }

    /// Removes the record that this thread holds `lock`, before the thread releases it.
    pub(crate) fn released(lock: usize) {
        if let Some(_inside) = Inside::enter() {
            owners(lock).remove(lock, number());
        }
    }

    /// Returns whether this thread is recorded as the holder of `lock`.
    pub(crate) fn holds(lock: usize) -> bool {
        Inside::enter().is_some_and(|_inside| owner(lock).is_some_and(|owner| owner.who == number()))
    }

    /// Names `lock` in reports.
    pub(crate) fn name(lock: usize, name: &'static str) {
        if let Some(_inside) = Inside::enter() {
            locked(&NAMES).insert(lock, name);
        }
    }

    /// Runs `wait`, which ends only when `lock` is free, without a limit or a cancellation.
    ///
    /// # Panics
    /// If the wait can never end. Then `wait` has not run.
    #[track_caller]
    pub(crate) fn waits<R>(lock: usize, wait: impl FnOnce() -> R) -> R {
        let _listed = match Inside::enter() {
            Some(inside) => {
                let (listed, report) = list(lock, Location::caller());
                drop(inside);
                if let Some(report) = report {
                    panic!("{report}");
                }
                Some(listed)
            }
            None => None,
        };
        wait()
    }

    /// Puts this thread on the list. Returns a report if that closes a cycle.
    fn list(lock: usize, at: &'static Location<'static>) -> (Listed, Option<String>) {
        let who = Who::this();
        let number = who.number;
        let mut waiters = locked(&WAITERS);
        waiters.push(Waiter { who, lock, at });
        let report = cycle(&waiters, number).map(|cycle| report(&waiters, &cycle));
        (Listed(number), report)
    }

    /// Removes the thread from the list, once it has the lock or panics.
    struct Listed(u64);

    impl Drop for Listed {
        fn drop(&mut self) {
            // Freeing memory also belongs inside this module (I6). A thread that was inside before made no
            // `Listed`.
            let _inside = Inside::enter();
            let mut waiters = locked(&WAITERS);
            // Remove the last entry: a wait may be nested in another.
            if let Some(at) = waiters.iter().rposition(|waiter| waiter.who.number == self.0) {
                waiters.remove(at);
            }
        }
    }

    /// A link of a cycle: the index of a waiter, and the owner of the lock it waits for.
    struct Link(usize, Owner);

    /// Returns the cycle that `start` closes, beginning with the wait of `start`.
    fn cycle(waiters: &[Waiter], start: u64) -> Option<Vec<Link>> {
        let mut links: Vec<Link> = Vec::new();
        let mut who = start;
        loop {
            let at = waiters.iter().position(|waiter| waiter.who.number == who)?;
            // This cycle does not lead through `start`: the thread that closed it has reported it.
            if links.iter().any(|link| link.0 == at) {
                return None;
            }
            let owner = owner(waiters[at].lock)?;
            who = owner.who;
            links.push(Link(at, owner));
            if who == start {
                return Some(links);
            }
        }
    }

    fn report(waiters: &[Waiter], cycle: &[Link]) -> String {
        let names = locked(&NAMES);
        let show = |lock: usize| match names.get(&lock) {
            Some(name) => format!("lock `{name}` ({lock:#x})"),
            None => format!("lock {lock:#x}"),
        };
        let mut text = match cycle.len() {
            1 => String::from("deadlock: a thread waits for a lock that it holds itself"),
            count => format!("deadlock: {count} threads wait for each other"),
        };
        for Link(at, owner) in cycle {
            let Waiter { who, lock, at } = &waiters[*at];
            let holder =
                waiters.iter().find(|waiter| waiter.who.number == owner.who).map(|waiter| &waiter.who);
            let holder = holder.expect("a thread of a deadlock cycle is missing from the list of waiters");
            let _ = write!(
                text,
                "\n  {who} waits at {at} for {}, which {holder} holds since {}",
                show(*lock),
                owner.at
            );
        }
        text
    }

    #[cfg(test)]
    mod tests {
        use super::{HELD_MAX, Inside, Location, Owner, Owners, acquired, number, owner, released, waits};

        #[test]
        fn a_full_table_ignores_further_owners() {
            let mut owners = Owners::new();
            let at = Location::caller();
            for lock in 0..HELD_MAX + 3 {
                owners.insert(Owner { lock, who: 7, at });
            }
            assert!(owners.get(HELD_MAX - 1).is_some() && owners.get(HELD_MAX).is_none());
            // Another thread that shares the lock takes the entry, so the first thread has no entry to
            // remove.
            owners.insert(Owner { lock: 0, who: 8, at });
            (0..HELD_MAX + 3).for_each(|lock| owners.remove(lock, 7));
            assert_eq!((owners.count, owners.get(0).map(|owner| owner.who)), (1, Some(8)));
            owners.remove(0, 8);
            assert_eq!((owners.count, owners.list.iter().flatten().count()), (0, 0));
            owners.insert(Owner { lock: HELD_MAX, who: 7, at });
            assert!(owners.get(HELD_MAX).is_some());
        }

        /// The locks of an allocator, for example, which this module itself makes a thread take (I6).
        #[test]
        fn locks_taken_inside_the_module_are_not_recorded() {
            let (lock, outer) = (std::ptr::from_ref(&0u64).addr(), std::ptr::from_ref(&1u64).addr());
            acquired(outer, Location::caller());
            {
                let _inside = Inside::enter().expect("not inside yet");
                acquired(lock, Location::caller());
                assert!(owner(lock).is_none());
                // This thread holds `outer` itself: outside this module the wait would be a deadlock and
                // panic.
                assert_eq!(waits(outer, || 3), 3);
                released(outer);
            }
            assert_eq!(owner(outer).map(|owner| owner.who), Some(number()));
            assert!(std::panic::catch_unwind(|| waits(outer, || ())).is_err());
            // The panic has left the module, and removed its list entry.
            assert_eq!(waits(lock, || 4), 4);
            released(outer);
            assert!(owner(outer).is_none());
        }
    }
}
