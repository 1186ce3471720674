//! The inboxes of all VPs, and the threads that serve them.
//!
//! - I1. A VP's inbox is made once, by the first thread that needs it, and stays for good.
//! - I2. A queued call has a sender that holds its ticket and has not looked for the result, or its inbox was
//!   asked for a server after the call was queued (`staff/I1`). If no thread could be started then, a sender
//!   gets the call back, runs it, or asks again at its next look.
//! - I3. A thread of a staff that polls a call counts as waiting (`staff/I2`) until the end of the call that
//!   it runs.
//!
//! Not promised: that a thread of a staff runs on its VP. It does not if the VP is offline or not permitted.
//! The thread has the scheduling class and the signal mask of the thread that made it, so it may handle
//! signals that are sent to the process.
//!
//! Cost: an inbox is 256 bytes for each slot, near its VP.

use super::inbox::{Inbox, SLOTS_MAX, Slot, Slots, Taken, Ticket};
use super::staff::Staff;
use squall_alloc::{Arena, Placement};
use squall_machine::{Vp, machine};
use squall_rcu::__run_served as run_served;
use squall_sys::fork::forked;
use squall_sys::padded::CachePadded;
use squall_sys::sync::atomic::{AtomicU32, Ordering};
use squall_sys::sync::{OnceLock, thread};
use std::alloc::Layout;
use std::cell::Cell;

/// The slots of inboxes that are made from now on.
static SLOTS: AtomicU32 = AtomicU32::new(SLOTS_MAX as u32);
static INBOXES: OnceLock<Box<[OnceLock<Box<VpInbox>>]>> = OnceLock::new();

/// The most calls that a thread serves while it waits, each inside the one before (`staff/I3`).
const NESTED_MAX: u32 = 16;

thread_local! {
    /// The inbox that the thread was started to serve.
    static STAFF_OF: Cell<Option<&'static VpInbox>> = const { Cell::new(None) };
    /// The looks of the call that a thread of a staff runs.
    static LOOKS: Cell<Looks> = const { Cell::new(Looks::None) };
    /// The thread runs a call for another one.
    static SERVING: Cell<bool> = const { Cell::new(false) };
    /// Calls that the thread serves while it waits.
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// Looks of a shipped call for the result of another one, without a wait (I3).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looks {
    None,
    /// The thread counts as waiting.
    Counted,
    /// The thread counts as waiting, but no other one could be started.
    Unserved,
}

/// Returns whether the calling thread runs a call for another one. The call leaves operations, too.
pub(super) fn is_serving() -> bool {
    SERVING.get()
}

/// The most rounds in which one thread serves calls that run again, if no other thread can be started.
const ROUNDS_MAX: u32 = 1000;

/// Returns the number of slots of an inbox that is made now: [`set_slots`].
pub fn slots() -> usize {
    // Relaxed, here and below: the number guards no other data.
    SLOTS.load(Ordering::Relaxed) as usize
}

/// Sets the number of slots of each VP's inbox, from 1 to 64. By default there are 64. The inbox of a VP is
/// made for the first call to it, and keeps its slots.
///
/// # Panics
/// If `count` is 0 or above 64.
///
/// # Example
/// ```
/// use squall::ship;
///
/// ship::set_slots(16);
/// assert_eq!(ship::slots(), 16);
/// ```
pub fn set_slots(count: usize) {
    assert!((1..=SLOTS_MAX).contains(&count), "an inbox has 1 to {SLOTS_MAX} slots, not {count}");
    SLOTS.store(count as u32, Ordering::Relaxed);
}

/// The inbox of a VP with its staff.
pub(super) struct VpInbox {
    pub(super) vp: Vp,
    pub(super) inbox: Inbox,
    pub(super) staff: CachePadded<Staff>,
    /// No thread can be started.
    #[cfg(test)]
    pub(super) refuses: std::sync::atomic::AtomicBool,
    /// Threads of the program that serve the inbox when they leave an operation here. A hint.
    serving: CachePadded<AtomicU32>,
}

/// Returns the inbox of a VP of the machine, and makes it first if it is absent.
///
/// # Panics
/// If the machine has no VP `vp`.
pub(super) fn inbox_of(vp: Vp) -> &'static VpInbox {
    let all = INBOXES.get_or_init(|| {
        // A child of a fork must know that it is one, even if no operation was ever opened.
        squall_sys::fork::arm();
        (0..machine().vp_limit()).map(|_| OnceLock::new()).collect()
    });
    assert!(machine().vps().contains(vp), "this machine has no {vp}");
    all[vp.index()].get_or_init(|| Box::new(VpInbox::new(vp)))
}

/// Returns the inbox of a VP, if a thread has needed it before.
#[inline]
pub(super) fn existing(vp: Vp) -> Option<&'static VpInbox> {
    INBOXES.get()?.get(vp.index())?.get().map(|inbox| &**inbox)
}

/// Makes slots in memory near the VP.
fn slots_near(vp: Vp, count: usize) -> Slots {
    let owned = || Slots::Owned((0..count).map(|_| Slot::new()).collect());
    // Tools watch the memory of the program's allocator.
    if cfg!(any(miri, squall_asan, squall_tsan)) {
        return owned();
    }
    let Ok(layout) = Layout::array::<Slot>(count) else { return owned() };
    let Ok(block) = Arena::new(Placement::Near(vp.index() as u32)).allocate(layout) else { return owned() };
    let first = block.cast::<Slot>();
    // SAFETY: a block of our own, for `count` slots, which are written before they are used. It is never
    // freed.
    Slots::Near(unsafe {
        (0..count).for_each(|at| first.add(at).write(Slot::new()));
        std::slice::from_raw_parts(first.as_ptr(), count)
    })
}

impl VpInbox {
    pub(super) fn new(vp: Vp) -> VpInbox {
        VpInbox {
            vp,
            inbox: Inbox::new(slots_near(vp, slots())),
            staff: CachePadded::new(Staff::new()),
            #[cfg(test)]
            refuses: false.into(),
            serving: CachePadded::new(AtomicU32::new(0)),
        }
    }

    /// Returns whether a thread of the program serves the inbox. It may be out of date.
    #[inline]
    pub(super) fn is_served(&self) -> bool {
        self.serving.load(Ordering::Relaxed) != 0
    }

    pub(super) fn add_serving(&self) {
        self.serving.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_serving(&self) {
        self.serving.fetch_sub(1, Ordering::Relaxed);
    }

    /// Asks for a thread that serves the inbox. Returns false if there may be none.
    pub(super) fn ask(&'static self) -> bool {
        self.staff.ask(|| self.start())
    }

    /// Lets a call run that was just sent, without its sender. Returns false if no thread can serve it; the
    /// call was dropped then.
    pub(super) fn let_run(&'static self, ticket: Ticket) -> bool {
        // A thread of the program does not count: it may sleep, or serve no more, and no sender waits.
        let ticket = match self.ask() {
            true => ticket,
            false => match self.inbox.cancel(ticket) {
                Ok(()) => return false,
                Err(ticket) => ticket,
            },
        };
        self.inbox.detach(ticket);
        true
    }

    fn start(&'static self) -> bool {
        #[cfg(test)]
        if self.refuses.load(Ordering::Relaxed) {
            return false;
        }
        let name = format!("squall-ship-{}", self.vp.index());
        thread::Builder::new().name(name).spawn(move || self.work()).is_ok()
    }

    /// The life of a thread of the staff.
    fn work(&'static self) {
        // A processor may be offline or not permitted. The calls then run elsewhere.
        let moved = Vp::__move_current(self.vp);
        assert!(moved || !machine().is_virtual(), "the machine is virtual and has this VP");
        STAFF_OF.set(Some(self));
        self.staff.serve(&self.inbox, |taken| self.run_by_staff(taken));
    }

    fn run(&self, taken: Taken) -> bool {
        let outer = SERVING.replace(true);
        let again = run_served(|| self.inbox.run(taken));
        SERVING.set(outer);
        again
    }

    /// Runs a call on a thread of the staff. Returns false in the child of a fork that the call made, whose
    /// copies of the other calls are the parent's.
    fn run_by_staff(&self, taken: Taken) -> bool {
        if forked() {
            return false;
        }
        let outer = LOOKS.replace(Looks::None);
        self.run(taken);
        if LOOKS.replace(outer) != Looks::None && !forked() {
            self.staff.end_wait();
        }
        !forked()
    }

    /// Runs the calls that wait in the inbox, and returns their number.
    pub(super) fn serve_some(&'static self) -> usize {
        let mut count = 0;
        for _ in 0..ROUNDS_MAX {
            let mut again = false;
            // Only as many as wait now: a call may queue itself anew.
            for _ in 0..self.inbox.queued() {
                let Some(taken) = self.inbox.take() else { break };
                again |= self.run(taken);
                count += 1;
                if forked() {
                    return count;
                }
            }
            // No sender asks for a call that runs again (I2), and this thread may sleep now. If no other
            // thread serves, this one goes on.
            if !again || self.ask() {
                break;
            }
        }
        count
    }
}

/// Runs `sleep`, which waits until a shipped call `is_over`. A thread of a staff lets another thread serve
/// meanwhile, or serves first itself (`staff/I2`, `staff/I3`).
pub(super) fn waiting(is_over: impl Fn() -> bool, sleep: impl FnOnce()) {
    let Some(mine) = STAFF_OF.get().filter(|_| LOOKS.get() != Looks::Counted) else { return sleep() };
    let waiting = mine.staff.wait(&mine.inbox, || mine.start());
    if NESTED.get() < NESTED_MAX {
        NESTED.set(NESTED.get() + 1);
        waiting.serve(&mine.inbox, &is_over, |taken| mine.run_by_staff(taken));
        NESTED.set(NESTED.get() - 1);
    }
    if !is_over() {
        sleep();
    }
}

/// Notes that the calling thread has looked for the result of a shipped call, which was not there (I3).
pub(super) fn note_look() {
    // In the child of a fork nobody serves.
    let Some(mine) = STAFF_OF.get().filter(|_| !forked()) else { return };
    let is_served = match LOOKS.get() {
        Looks::None => mine.staff.begin_wait(&mine.inbox, || mine.start()),
        Looks::Counted => return,
        Looks::Unserved => !mine.inbox.has_queued() || mine.ask(),
    };
    LOOKS.set(if is_served { Looks::Counted } else { Looks::Unserved });
}
