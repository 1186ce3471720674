//! The state that puts and gets check under a heap's lock: form, order, and whether the queue is closed.

use super::{Form, WhichPriority};

/// Form, order and closing, in one word. It changes only while all heaps are locked (`queue/I2`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(u32);

const FORM: u32 = 3;
const HIGHEST: u32 = 4;
const CLOSED: u32 = 8;

impl State {
    pub(super) fn new(form: Form) -> State {
        State(form as u32)
    }

    pub(super) fn from_bits(bits: u32) -> State {
        State(bits)
    }

    pub(super) fn bits(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn form(self) -> Form {
        match self.0 & FORM {
            0 => Form::Strict,
            1 => Form::Relaxed,
            _ => Form::Local,
        }
    }

    #[inline]
    pub(super) fn has_form(self, form: Form) -> bool {
        self.0 & FORM == form as u32
    }

    pub(super) fn with_form(self, form: Form) -> State {
        State(self.0 & !FORM | form as u32)
    }

    pub(super) fn which(self) -> WhichPriority {
        if self.0 & HIGHEST == 0 { WhichPriority::Lowest } else { WhichPriority::Highest }
    }

    pub(super) fn with_which(self, which: WhichPriority) -> State {
        match which {
            WhichPriority::Lowest => State(self.0 & !HIGHEST),
            WhichPriority::Highest => State(self.0 | HIGHEST),
        }
    }

    #[inline]
    pub(super) fn is_closed(self) -> bool {
        self.0 & CLOSED != 0
    }

    pub(super) fn closed(self) -> State {
        State(self.0 | CLOSED)
    }

    /// Returns the key of a priority, and the priority of a key: the lowest key comes first.
    #[inline]
    pub(super) fn key(self, priority: u64) -> u64 {
        if self.0 & HIGHEST == 0 { priority } else { !priority }
    }
}
