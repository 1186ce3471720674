//! Deadlocks, named: in debug builds a wait that can never end panics instead, and says who waits for whom.
//!
//! Problem: a deadlock shows itself as silence. Idea: remember who holds each lock and since which line; a thread that is
//! about to sleep for a lock without a limit follows lock, holder, the lock that the holder waits for, and so on. If that leads
//! back to itself, none of these waits can end.
//!
//! - I1. An owner is noted after the lock was taken and forgotten before it is released: who is noted holds it.
//! - I2. A thread is in the list of waiting threads only while it is in [`waits`]; it then releases nothing.
//! - I3. No false cycle. Each thread of it is in the list, which is locked while we look; so each holds what is noted of it (I1,
//!   I2) until we have done, and waits without a limit for a lock that the next one holds. A thread that has been given
//!   its lock and is still in the list is in no cycle: nobody else is noted as the holder.
//! - I4. A cycle of noted owners is found by the thread that enters the list last: the others are in it, and what they hold
//!   was noted before.
//! - I5. To note an owner and to forget it neither allocates nor waits for anything but a short section that does not allocate,
//!   so that the locks of an allocator may be noted too.
//! - I6. What a thread takes while it is in here (to note a wait and to report allocate, and the allocator may have locks) is not
//!   diagnosed: neither noted nor listed. So nothing in here comes back to what it holds.
//!
//! Not seen: waits with a limit or a cancel, which end by themselves; holders that note nothing (two-bit locks, requests,
//! any lock of another crate); who shares a lock, beyond the last that noted itself; locks for which the table of owners has
//! no room (`HELD_MAX` in each of its parts); cycles through a lock that was taken within the diagnosis (I6). A guard
//! that was forgotten is a lock held for ever; if the lock's memory is then used for another lock, its holder is wrong until
//! that lock is first taken.
//!
//! Cost: debug builds only: a lock of `std` at each taking and release of ours, and 100 KB of zeroed memory. In release builds,
//! under Miri and in models all of this is empty.
//! Source: wait-for graphs; Holt, "Some deadlock properties of computer systems", 1972.

#[cfg(all(debug_assertions, not(loom), not(miri)))]
pub(crate) use graph::{acquired, name, released, waits};
#[cfg(not(all(debug_assertions, not(loom), not(miri))))]
pub(crate) use nothing::{acquired, name, released, waits};

/// What is left of it elsewhere.
#[cfg(not(all(debug_assertions, not(loom), not(miri))))]
mod nothing {
    use std::panic::Location;

    #[inline(always)]
    pub(crate) fn acquired(_lock: usize, _at: &'static Location<'static>) {}

    #[inline(always)]
    pub(crate) fn released(_lock: usize) {}

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
    use squall_sys::sync::{Mutex, MutexGuard};
    use squall_sys::sync::thread::{self, ThreadId};
    use std::cell::Cell;
    use std::collections::BTreeMap;
    use std::fmt::{self, Write};
    use std::panic::Location;

    thread_local! {
        /// Whether this thread is in here (I6).
        static INSIDE: Cell<bool> = const { Cell::new(false) };
        /// This thread's number; 0 until it asks.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }

    /// The proof that this thread is in here.
    struct Inside;

    impl Inside {
        /// `None` if it already is.
        fn enter() -> Option<Inside> {
            if INSIDE.replace(true) { None } else { Some(Inside) }
        }
    }

    impl Drop for Inside {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }

    /// A number that no other thread has. Not the `ThreadId`: to ask for that may allocate, and fails in an allocator (I5).
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

    /// Who holds a lock, and since where.
    #[derive(Clone, Copy)]
    struct Owner {
        lock: usize,
        who: u64,
        at: &'static Location<'static>,
    }

    /// How many owners a part of the table has room for.
    const HELD_MAX: usize = 64;

    /// Owners, at most one of a lock. It has its memory from the start (I5).
    struct Owners {
        count: usize,
        /// The first `count` are there.
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

        /// In the place of who was noted before, if anybody was. Does nothing where there is no room.
        fn insert(&mut self, owner: Owner) {
            let place = self.place(owner.lock).unwrap_or(self.count);
            if place < HELD_MAX {
                self.list[place] = Some(owner);
                self.count = self.count.max(place + 1);
            }
        }

        /// Does nothing if another is noted, who shares the lock, or nobody.
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

    /// Owners by lock, in parts, so that threads that share no lock seldom meet here. Nobody allocates while he has one.
    static OWNERS: [Mutex<Owners>; PARTS] = [const { Mutex::new(Owners::new()) }; PARTS];
    const PARTS: usize = 64;

    /// Those who wait. Taken before any part of the owners.
    static WAITERS: Mutex<Vec<Waiter>> = Mutex::new(Vec::new());

    static NAMES: Mutex<BTreeMap<usize, &'static str>> = Mutex::new(BTreeMap::new());

    fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn owners(lock: usize) -> MutexGuard<'static, Owners> {
        // Locks lie at least two bytes apart, and mostly more.
        locked(&OWNERS[(lock >> 4 ^ lock >> 12) % PARTS])
    }

    fn owner(lock: usize) -> Option<Owner> {
        owners(lock).get(lock)
    }

    /// Notes that this thread holds `lock` (its address) since `at`.
    pub(crate) fn acquired(lock: usize, at: &'static Location<'static>) {
        if let Some(_inside) = Inside::enter() {
            owners(lock).insert(Owner { lock, who: number(), at });
        }
    }

    /// Forgets that this thread holds `lock`, before it releases it.
    pub(crate) fn released(lock: usize) {
        if let Some(_inside) = Inside::enter() {
            owners(lock).remove(lock, number());
        }
    }

    /// Gives `lock` a name for reports.
    pub(crate) fn name(lock: usize, name: &'static str) {
        if let Some(_inside) = Inside::enter() {
            locked(&NAMES).insert(lock, name);
        }
    }

    /// Runs `wait`, which ends only when `lock` is free, by neither limit nor cancel.
    ///
    /// # Panics
    /// If it can never end. `wait` has not run then.
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

    /// Puts this thread on the list. A report, if that closes a cycle.
    fn list(lock: usize, at: &'static Location<'static>) -> (Listed, Option<String>) {
        let who = Who::this();
        let number = who.number;
        let mut waiters = locked(&WAITERS);
        waiters.push(Waiter { who, lock, at });
        let report = cycle(&waiters, number).map(|cycle| report(&waiters, &cycle));
        (Listed(number), report)
    }

    /// Takes the thread off the list, when it has the lock or panics.
    struct Listed(u64);

    impl Drop for Listed {
        fn drop(&mut self) {
            // What is freed belongs to the diagnosis too. A thread that is inside makes no `Listed`.
            let _inside = Inside::enter();
            let mut waiters = locked(&WAITERS);
            // The last: a wait may lie within another.
            if let Some(at) = waiters.iter().rposition(|waiter| waiter.who.number == self.0) {
                waiters.remove(at);
            }
        }
    }

    /// A link of a cycle: a place in the list, and who holds what it waits for.
    struct Link(usize, Owner);

    /// The cycle that `start` closes, from its own wait on.
    fn cycle(waiters: &[Waiter], start: u64) -> Option<Vec<Link>> {
        let mut links: Vec<Link> = Vec::new();
        let mut who = start;
        loop {
            let at = waiters.iter().position(|waiter| waiter.who.number == who)?;
            // A cycle that does not lead through `start`: whoever closed it has reported it.
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
            let holder = holder.expect("all of a cycle are in the list");
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
        fn the_table_forgets_what_it_has_no_room_for() {
            let mut owners = Owners::new();
            let at = Location::caller();
            for lock in 0..HELD_MAX + 3 {
                owners.insert(Owner { lock, who: 7, at });
            }
            assert!(owners.get(HELD_MAX - 1).is_some() && owners.get(HELD_MAX).is_none());
            // Another who shares the lock takes the place; then the first has nothing to forget.
            owners.insert(Owner { lock: 0, who: 8, at });
            (0..HELD_MAX + 3).for_each(|lock| owners.remove(lock, 7));
            assert_eq!((owners.count, owners.get(0).map(|owner| owner.who)), (1, Some(8)));
            owners.remove(0, 8);
            assert_eq!((owners.count, owners.list.iter().flatten().count()), (0, 0));
            owners.insert(Owner { lock: HELD_MAX, who: 7, at });
            assert!(owners.get(HELD_MAX).is_some());
        }

        /// As an allocator's locks that the diagnosis itself makes this thread take (I6).
        #[test]
        fn what_is_taken_inside_is_not_diagnosed() {
            let (lock, outer) = (std::ptr::from_ref(&0u64).addr(), std::ptr::from_ref(&1u64).addr());
            acquired(outer, Location::caller());
            {
                let _inside = Inside::enter().expect("not inside yet");
                acquired(lock, Location::caller());
                assert!(owner(lock).is_none());
                // It holds `outer` itself: outside this would be a deadlock, and panic.
                assert_eq!(waits(outer, || 3), 3);
                released(outer);
            }
            assert_eq!(owner(outer).map(|owner| owner.who), Some(number()));
            assert!(std::panic::catch_unwind(|| waits(outer, || ())).is_err());
            // The report has left the inside, and what it had listed.
            assert_eq!(waits(lock, || 4), 4);
            released(outer);
            assert!(owner(outer).is_none());
        }
    }
}
