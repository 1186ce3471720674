//! The receiver's side: the lanes that it looks into, in turn.
//!
//! - I1. The lanes in `active` are the lanes that are not quiet, and lanes that are over and wait to be
//!   forgotten.
//! - I2. The receiver sleeps only after it has made every lane quiet. A lane with an incomplete message
//!   cannot be made quiet, so the receiver looks again instead.
//!
//! Fairness: the receiver takes at most [`BURST`] messages from a lane before it looks into the next one. A
//! sender that floods its lane holds up the others by that many messages.

use crate::lane::{Cursor, Look};
use crate::post::{Arrived, OwnLane, Post};
use squall_sys::fork::forked;
use squall_sys::sync::{Arc, thread};
use std::task::Waker;

/// The most messages of a lane in one turn.
const BURST: u32 = 16;
/// Looks in vain after which a lane is made quiet. A quiet lane costs its next sender a ring of the bell, a
/// look costs the receiver a read of a line that it has.
const VAIN: u32 = if cfg!(any(loom, squall_model)) { 1 } else { 64 };

pub(crate) struct Receiver {
    pub(crate) post: Arc<Post>,
    /// By number.
    lanes: Vec<Option<Local>>,
    /// The numbers of the lanes to look into.
    active: Vec<usize>,
    /// The place in `active` of the lane in turn.
    turn: usize,
    /// Messages of this turn.
    burst: u32,
    buffer: Vec<u8>,
    label: u64,
}

struct Local {
    lane: Arc<OwnLane>,
    cursor: Cursor,
    label: u64,
    /// The lane takes one message.
    once: bool,
    /// Looks in vain since the last message.
    vain: u32,
    is_active: bool,
}

impl Local {
    fn new(new: Arrived, is_active: bool) -> Local {
        let Arrived { lane, cursor, label, once } = new;
        Local { lane, cursor, label, once, vain: 0, is_active }
    }

    /// Takes a message, if there is one.
    #[inline]
    fn receive(&mut self, buffer: &mut Vec<u8>) -> bool {
        if self.lane.receive(&mut self.cursor, buffer) == Look::Nothing {
            return false;
        }
        self.vain = 0;
        true
    }
}

impl Receiver {
    pub(crate) fn new(post: Arc<Post>) -> Receiver {
        let (lanes, active, buffer) = (Vec::new(), Vec::new(), Vec::new());
        Receiver { post, lanes, active, turn: 0, burst: 0, buffer, label: 0 }
    }

    /// Returns the message that the last successful look found, and the label of its capability.
    pub(crate) fn message(&self) -> (&[u8], u64) {
        (&self.buffer, self.label)
    }

    /// Looks for a message, and keeps it. Returns whether there was one.
    #[inline]
    pub(crate) fn look(&mut self) -> bool {
        if self.burst < BURST
            && let Some(number) = self.active.get(self.turn)
            && let Some(local) = &mut self.lanes[*number]
            && local.receive(&mut self.buffer)
        {
            self.burst += 1;
            return self.received();
        }
        self.look_further()
    }

    /// Keeps the label of a message of the lane in turn. Returns true.
    #[inline]
    fn received(&mut self) -> bool {
        if let Some(local) = &self.lanes[self.active[self.turn]] {
            self.label = local.label;
            if local.once {
                // The lane is over.
                self.quiet(self.turn);
            }
        }
        true
    }

    /// Looks into the other lanes in turn, and last into the same one.
    #[inline(never)]
    fn look_further(&mut self) -> bool {
        if self.has_rung() {
            self.answer();
        }
        self.turn += 1;
        for _ in 0..self.active.len() {
            if self.turn >= self.active.len() {
                self.turn = 0;
            }
            let Some(local) = &mut self.lanes[self.active[self.turn]] else { continue };
            if local.receive(&mut self.buffer) {
                self.burst = 1;
                return self.received();
            }
            local.vain = local.vain.saturating_add(1);
            // If it is quiet now, another lane has come to this place.
            if local.vain < VAIN || !self.quiet(self.turn) {
                self.turn += 1;
            }
        }
        self.burst = 0;
        false
    }

    /// Takes the lanes over that rang.
    fn answer(&mut self) {
        let Receiver { post, lanes, active, .. } = self;
        post.bell.answer(|number| {
            if lanes.len() <= number {
                lanes.resize_with(number + 1, || None);
            }
            if lanes[number].is_none() {
                // None: a late ring of a lane that is over.
                lanes[number] = post.take_over(number).map(|new| Local::new(new, false));
            }
            if let Some(local) = &mut lanes[number]
                && !local.is_active
            {
                local.is_active = true;
                local.vain = 0;
                active.push(number);
            }
        });
    }

    /// Makes the lane at this place of `active` quiet, or forgets it if it is over. Returns false if it has,
    /// or gets, a message.
    fn quiet(&mut self, place: usize) -> bool {
        let number = self.active[place];
        let Some(local) = &mut self.lanes[number] else { return false };
        if !local.lane.quiet(&mut local.cursor) {
            return false;
        }
        local.is_active = false;
        self.active.swap_remove(place);
        if local.lane.is_over(&local.cursor) {
            self.lanes[number] = None;
            self.post.retire(number);
        }
        true
    }

    /// Returns whether a quiet lane has a message.
    pub(crate) fn has_rung(&self) -> bool {
        self.post.bell.has_rung()
    }

    /// Makes all lanes quiet, and announces a sleep. Returns false if the caller must look again.
    pub(crate) fn sleep(&mut self, waker: &Waker) -> bool {
        for place in (0..self.active.len()).rev() {
            self.quiet(place);
        }
        self.active.is_empty() && self.post.bell.sleep(waker)
    }

    /// Ends the mailbox: no further message is accepted.
    pub(crate) fn end(&mut self) {
        for new in self.post.end() {
            self.lanes.push(Some(Local::new(new, true)));
        }
        self.active = (0..self.lanes.len()).filter(|number| self.lanes[*number].is_some()).collect();
    }

    /// Looks for a message that an ended mailbox has accepted, and waits for an incomplete one.
    /// Returns false if there are no more.
    ///
    /// # Panics
    /// In the child of a fork, if it would wait.
    pub(crate) fn look_for_rest(&mut self) -> bool {
        while let Some(number) = self.active.last() {
            let Some(local) = &mut self.lanes[*number] else { return false };
            if local.receive(&mut self.buffer) {
                self.label = local.label;
                return true;
            }
            if local.lane.is_over(&local.cursor) {
                self.active.pop();
            } else {
                assert!(!forked(), "a message that was being sent never arrives in the child of a fork");
                thread::yield_now();
            }
        }
        false
    }
}
