//! The links that a dispatcher receives from: any number, on one thread.
//!
//! Problem: a dispatcher with thousands of links must find the few that have messages. It sleeps if all are
//! empty, and the next message of any of them wakes it. A thread for each link would cost more than the link.
//!
//! Idea: the links share one [`Bell`]. A link with messages is *active*: the dispatcher looks into it in
//! turn. A link that stays empty becomes *quiet*: it gets a waker that rings the bell with the number of the
//! link. The peer's next message calls it, by the thread `squall-calls`, which watches the sockets of all
//! links.
//!
//! - I1. Each link is active, or held, or quiet, or its number is in the bell. A quiet link has left its
//!   waker by [`Inbound::ask`], which fails if there may be a message. A held link is not looked into until
//!   its release makes it active.
//! - I2. The dispatcher sleeps only after each link is quiet or held, and the bell has no ring, in one step
//!   with the announcement of the sleep (`bell/I2`).
//! - I3. Number 0 of the bell stands for links that another thread has added. They are in the list before the
//!   ring.
//! - I4. A number is used again after its link has ended. A late ring of the old link makes the new one
//!   active, which is harmless: the look finds nothing.
//!
//! Fairness: a link gives at most [`BURST`] messages before the next one has its turn. A look reads at most
//! [`LOOKS`] links beside the one in turn.
//!
//! Cost: a look reads one cache line of each active link. A link that becomes quiet costs a locked
//! instruction, and its next message a packet on the socket.
//! Source: Wentzlaff 2012, §3.3 (FO-16): the dispatcher polls the mailboxes that are registered with it.

use crate::bell::{Bell, LANES_MAX};
use crate::sites;
use squall_sys::sync::{Mutex, MutexGuard, StdArc, lock};
use std::task::{Wake, Waker};

/// The most messages of a link in one turn.
const BURST: u32 = 16;
/// The most links that one look reads, beside the one in turn.
const LOOKS: usize = 64;
/// Looks in vain after which a link becomes quiet.
const VAIN: u32 = if cfg!(any(loom, squall_model)) { 1 } else { 64 };
/// The most links at a time. The bell has one number more.
pub(crate) const LINKS_MAX: usize = LANES_MAX - 1;

/// The end of a link that receives.
pub(crate) trait Inbound {
    /// The reason of an end.
    type Error;

    /// Takes the next message, if there is one, and keeps it.
    fn look(&mut self) -> Result<bool, Self::Error>;
    /// Leaves a waker for the next message or the end. Returns false if the caller must look again.
    fn ask(&self, waker: &Waker) -> bool;
}

/// The part of the links that other threads use.
pub(crate) struct Shared<L> {
    bell: StdArc<Bell>,
    fresh: Mutex<Fresh<L>>,
}

struct Fresh<L> {
    /// Links that the dispatcher has not taken over yet (I3).
    links: Vec<L>,
    /// All links, with those that were taken over.
    count: usize,
    has_ended: bool,
}

impl<L> Shared<L> {
    fn lock(&self) -> MutexGuard<'_, Fresh<L>> {
        lock(&self.fresh, "the new links of a dispatcher")
    }

    /// Returns whether the dispatcher has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Returns whether it would take a link on now.
    pub(crate) fn has_room(&self) -> bool {
        let fresh = self.lock();
        !fresh.has_ended && fresh.count < LINKS_MAX
    }

    /// Adds a link. Returns it if there are [`LINKS_MAX`] already, or the dispatcher has ended.
    pub(crate) fn add(&self, link: L) -> Result<(), L> {
        if sites::LINK_FRESH.is_weak() {
            self.bell.ring(0);
        }
        let mut fresh = self.lock();
        if fresh.has_ended || fresh.count == LINKS_MAX {
            return Err(link);
        }
        fresh.count += 1;
        fresh.links.push(link);
        drop(fresh);
        // After the push: the dispatcher that finds the ring also finds the link (I3).
        if !sites::LINK_FRESH.is_weak() {
            self.bell.ring(0);
        }
        Ok(())
    }
}

/// Rings the bell with the number of a link.
struct Rings {
    number: usize,
    bell: StdArc<Bell>,
}

impl Wake for Rings {
    fn wake(self: StdArc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &StdArc<Self>) {
        self.bell.ring(self.number);
    }
}

struct Local<L> {
    link: L,
    waker: Waker,
    /// Looks in vain since the last message.
    vain: u32,
    is_active: bool,
    is_held: bool,
}

/// The result of a look.
#[derive(Debug)]
pub(crate) enum Look<L, E> {
    /// The link of this number has a message.
    Message(usize),
    /// The link has ended, for the given reason. Its messages were received.
    Ended(L, E),
    Nothing,
}

/// The part of the links that the dispatcher uses.
pub(crate) struct Links<L> {
    shared: StdArc<Shared<L>>,
    /// By number. Number 0 is never used.
    links: Vec<Option<Local<L>>>,
    /// Numbers whose links have ended.
    unused: Vec<usize>,
    /// The numbers of the links to look into.
    active: Vec<usize>,
    /// The place in `active` of the link in turn.
    turn: usize,
    /// Messages of this turn.
    burst: u32,
}

impl<L: Inbound> Links<L> {
    pub(crate) fn new() -> Links<L> {
        let fresh = Mutex::new(Fresh { links: Vec::new(), count: 0, has_ended: false });
        Links {
            shared: StdArc::new(Shared { bell: StdArc::new(Bell::new()), fresh }),
            links: vec![None],
            unused: Vec::new(),
            active: Vec::new(),
            turn: 0,
            burst: 0,
        }
    }

    /// Returns the part for other threads.
    pub(crate) fn shared(&self) -> &StdArc<Shared<L>> {
        &self.shared
    }

    /// Returns the link of a number from [`Look::Message`].
    pub(crate) fn get(&self, number: usize) -> Option<&L> {
        self.links.get(number)?.as_ref().map(|local| &local.link)
    }

    /// Returns the number of links that were taken over.
    pub(crate) fn count(&self) -> usize {
        self.links.len() - 1 - self.unused.len()
    }

    /// Looks for a message in the link in turn, and then in the others.
    #[inline]
    pub(crate) fn look(&mut self) -> Look<L, L::Error> {
        if self.burst < BURST
            && let Some(number) = self.active.get(self.turn)
            && let Some(local) = &mut self.links[*number]
            && let Ok(true) = local.link.look()
        {
            self.burst += 1;
            local.vain = 0;
            return Look::Message(*number);
        }
        self.look_further()
    }

    #[inline(never)]
    fn look_further(&mut self) -> Look<L, L::Error> {
        if self.shared.bell.has_rung() {
            self.answer();
        }
        self.turn += 1;
        self.burst = 0;
        for _ in 0..self.active.len().min(LOOKS) {
            if self.turn >= self.active.len() {
                self.turn = 0;
            }
            let number = self.active[self.turn];
            let Some(local) = &mut self.links[number] else { continue };
            match local.link.look() {
                Ok(true) => {
                    local.vain = 0;
                    self.burst = 1;
                    return Look::Message(number);
                }
                Ok(false) => {}
                Err(error) => {
                    self.active.swap_remove(self.turn);
                    return match self.forget(number) {
                        Some(link) => Look::Ended(link, error),
                        None => Look::Nothing,
                    };
                }
            }
            local.vain += 1;
            // If it is quiet now, another link has come to this place.
            if local.vain < VAIN || !self.quiet(self.turn) {
                self.turn += 1;
            }
        }
        Look::Nothing
    }

    /// Takes over the links that are new, and makes those active that rang.
    fn answer(&mut self) {
        let Links { shared, links, unused, active, .. } = self;
        shared.bell.answer(|number| {
            if number == 0 {
                for link in std::mem::take(&mut shared.lock().links) {
                    let number = unused.pop().unwrap_or_else(|| {
                        links.push(None);
                        links.len() - 1
                    });
                    let waker = Waker::from(StdArc::new(Rings { number, bell: shared.bell.clone() }));
                    links[number] = Some(Local { link, waker, vain: 0, is_active: true, is_held: false });
                    active.push(number);
                }
                // No link: a late ring of one that has ended (I4).
            } else if let Some(Some(local)) = links.get_mut(number)
                && !local.is_active
                && !local.is_held
            {
                local.is_active = true;
                local.vain = 0;
                active.push(number);
            }
        });
    }

    /// Forgets a link that is not active.
    fn forget(&mut self, number: usize) -> Option<L> {
        let local = self.links[number].take()?;
        self.unused.push(number);
        self.shared.lock().count -= 1;
        Some(local.link)
    }

    /// Looks no further into a link, until its [release](Links::release). Late rings do not change that.
    pub(crate) fn hold(&mut self, number: usize) {
        let Some(Some(local)) = self.links.get_mut(number) else { return };
        local.is_held = true;
        if std::mem::take(&mut local.is_active)
            && let Some(place) = self.active.iter().position(|active| *active == number)
        {
            self.active.swap_remove(place);
            // Its turn ends.
            self.burst = BURST;
        }
    }

    /// Looks into a held link again.
    pub(crate) fn release(&mut self, number: usize) {
        if let Some(Some(local)) = self.links.get_mut(number)
            && std::mem::take(&mut local.is_held)
        {
            local.is_active = true;
            local.vain = 0;
            self.active.push(number);
        }
    }

    /// Makes the link at this place of `active` quiet. Returns false if it may have a message (I1).
    fn quiet(&mut self, place: usize) -> bool {
        let Some(local) = &mut self.links[self.active[place]] else { return false };
        if !sites::LINK_QUIET.is_weak() && !local.link.ask(&local.waker) {
            return false;
        }
        local.is_active = false;
        self.active.swap_remove(place);
        true
    }

    /// Makes all links quiet, and announces a sleep until `waker` is called. Returns false if the caller must
    /// look again (I2).
    pub(crate) fn sleep(&mut self, waker: &Waker) -> bool {
        for place in (0..self.active.len()).rev() {
            self.quiet(place);
        }
        self.active.is_empty() && self.shared.bell.sleep(waker)
    }

    /// Ends a sleep that no message ended.
    pub(crate) fn awake(&self) {
        self.shared.bell.awake();
    }

    /// Takes no further link. Returns all links.
    pub(crate) fn end(&mut self) -> Vec<L> {
        let mut fresh = self.shared.lock();
        fresh.has_ended = true;
        let mut links = std::mem::take(&mut fresh.links);
        drop(fresh);
        links.extend(self.links.drain(1..).flatten().map(|local| local.link));
        self.active.clear();
        self.unused.clear();
        links
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    /// A link with messages to come, which may end after them.
    #[derive(Debug)]
    struct Fake {
        messages: u32,
        has_ended: bool,
        looks: Rc<Cell<usize>>,
    }

    impl Inbound for Fake {
        type Error = ();

        fn look(&mut self) -> Result<bool, ()> {
            self.looks.set(self.looks.get() + 1);
            if self.messages == 0 && self.has_ended {
                return Err(());
            }
            let found = self.messages > 0;
            self.messages = self.messages.saturating_sub(1);
            Ok(found)
        }

        fn ask(&self, _: &Waker) -> bool {
            self.messages == 0 && !self.has_ended
        }
    }

    fn fake(messages: u32, has_ended: bool, looks: &Rc<Cell<usize>>) -> Fake {
        Fake { messages, has_ended, looks: looks.clone() }
    }

    #[test]
    fn a_look_reads_a_bounded_number_of_links_and_reaches_all_of_them() {
        let looks = Rc::new(Cell::new(0));
        let mut links = Links::new();
        for number in 0..LINKS_MAX {
            links.shared().add(fake(u32::from(number == 3000), false, &looks)).unwrap();
        }
        let mut turns = 0;
        while !matches!(links.look(), Look::Message(_)) {
            assert!(looks.replace(0) <= LOOKS + 1);
            turns += 1;
        }
        assert!(turns <= LINKS_MAX.div_ceil(LOOKS));
        assert_eq!(links.count(), LINKS_MAX);
    }

    #[test]
    fn the_number_of_links_is_bounded_and_an_ended_one_gives_its_place_back() {
        let looks = Rc::default();
        let mut links = Links::new();
        for _ in 0..LINKS_MAX - 1 {
            links.shared().add(fake(0, false, &looks)).unwrap();
        }
        assert!(links.shared().has_room());
        links.shared().add(fake(1, true, &looks)).unwrap();
        assert!(!links.shared().has_room());
        let refused = links.shared().add(fake(0, false, &looks)).unwrap_err();
        let (mut messages, mut ends) = (0, 0);
        while ends == 0 {
            match links.look() {
                Look::Message(number) => {
                    assert_eq!(links.get(number).map(|link| link.messages), Some(0));
                    messages += 1;
                }
                Look::Ended(link, ()) => ends += usize::from(link.has_ended),
                Look::Nothing => {}
            }
        }
        assert_eq!((messages, links.count()), (1, LINKS_MAX - 1));
        links.shared().add(refused).unwrap();
        // All are quiet now, but for the new one.
        assert!(!links.sleep(Waker::noop()));
        assert!(matches!(links.look(), Look::Nothing));
        assert!(links.sleep(Waker::noop()));
        links.awake();
        assert_eq!(links.end().len(), LINKS_MAX);
        assert!(links.shared().has_ended() && !links.shared().has_room());
        assert!(links.shared().add(fake(0, false, &looks)).is_err());
    }

    #[test]
    fn a_held_link_is_not_looked_into_and_a_ring_does_not_change_that() {
        let looks = Rc::default();
        let mut links = Links::new();
        links.shared().add(fake(100, false, &looks)).unwrap();
        links.shared().add(fake(100, false, &looks)).unwrap();
        assert!(matches!(links.look(), Look::Message(_)));
        links.hold(1);
        links.hold(1);
        links.shared().bell.ring(1);
        for _ in 0..40 {
            assert!(matches!(links.look(), Look::Message(2)));
        }
        links.hold(2);
        assert!(matches!(links.look(), Look::Nothing));
        assert!(links.sleep(Waker::noop()), "held links do not keep the dispatcher awake");
        links.awake();
        links.release(1);
        links.release(1);
        assert_eq!(links.active, [1]);
        assert!(!links.sleep(Waker::noop()));
        assert!(matches!(links.look(), Look::Message(1)));
    }

    #[test]
    fn a_link_with_many_messages_leaves_the_turn_to_the_others() {
        let looks = Rc::default();
        let mut links = Links::new();
        links.shared().add(fake(1000, false, &looks)).unwrap();
        links.shared().add(fake(20, false, &looks)).unwrap();
        let mut received = [0; 3];
        while received[2] < 20 {
            let Look::Message(number) = links.look() else { panic!("there are messages") };
            received[number] += 1;
        }
        assert!(received[1] <= 3 * BURST, "{received:?}");
    }
}
