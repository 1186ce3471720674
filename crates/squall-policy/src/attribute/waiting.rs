//! Thread-local stack of attributes that wait for their callee.
//!
//! Problem: an attribute must live only as long as the caller's closure runs. Calls nest without a limit, an
//! attribute may cost about a nanosecond, and no entry may point to a program stack.
//!
//! Idea: each thread has a fixed stack of entries, and a vector for those above it. One word says which
//! entries wait now. So one store hides them or brings them back.
//!
//! - I1. The entries below `top` belong to frames of running `with` calls, each entry to one frame. A new
//!   frame begins at `top`, and `top` returns to its old value when that frame ends. So the entries of a
//!   frame do not change while its `with` runs.
//! - I2. Entry `n` is in the array if `n` is below its length, else in the vector, which is as long as `top`
//!   requires.
//! - I3. The vector owns no memory while `top` is within the array.
//! - I4. A shipped closure that the thread serves sees no entry of a `with` around it.
//!
//! Not promised: use in a signal handler. Cost: each attribute is copied once. Words that are accessed
//! together are separate cells. In one cell the compiler would join their loads into one, and the processor
//! cannot forward two stores to one load.

use squall_core::Id;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::Head;

/// Number of entries in the fixed stack.
const ROOM: usize = 32;

/// An attribute, as the address of its head, and the bits of its value.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) head: Option<&'static Head>,
    pub(super) bits: u64,
}

impl Entry {
    pub(super) const NONE: Entry = Entry { head: None, bits: 0 };

    #[inline(always)]
    pub(super) fn new(head: &'static Head, bits: u64) -> Entry {
        Entry { head: Some(head), bits }
    }

    #[inline(always)]
    pub(super) fn is_of(&self, head: &'static Head) -> bool {
        self.head.is_some_and(|own| std::ptr::eq(own, head))
    }
}

/// Place for one entry, in two cells: one load of both words would stall on the two stores that wrote them.
struct Slot {
    head: Cell<Option<&'static Head>>,
    bits: Cell<u64>,
}

impl Slot {
    const fn new() -> Slot {
        Slot { head: Cell::new(None), bits: Cell::new(0) }
    }

    #[inline(always)]
    fn set(&self, entry: Entry) {
        self.head.set(entry.head);
        self.bits.set(entry.bits);
    }

    #[inline(always)]
    fn get(&self) -> Entry {
        Entry { head: self.head.get(), bits: self.bits.get() }
    }

    #[inline(always)]
    fn bits_of(&self, head: &'static Head) -> Option<u64> {
        self.head.get().is_some_and(|own| std::ptr::eq(own, head)).then(|| self.bits.get())
    }
}

/// Range of the waiting entries, and the end of the stack. From the low bits: `count`, `first`, `top`.
#[derive(Clone, Copy)]
pub(super) struct Span(u64);

const COUNT_BITS: u32 = 8;
const INDEX_BITS: u32 = 28;
const COUNT: u64 = (1 << COUNT_BITS) - 1;
const INDEX: u64 = (1 << INDEX_BITS) - 1;
const _: () = assert!(COUNT_BITS + 2 * INDEX_BITS == u64::BITS);

impl Span {
    pub(super) const EMPTY: Span = Span(0);

    #[inline(always)]
    pub(super) fn count(self) -> usize {
        (self.0 & COUNT) as usize
    }

    #[inline(always)]
    pub(super) fn first(self) -> usize {
        (self.0 >> COUNT_BITS & INDEX) as usize
    }

    #[inline(always)]
    fn top(self) -> usize {
        (self.0 >> (COUNT_BITS + INDEX_BITS)) as usize
    }

    /// Returns the span of a new frame of `count` entries on top of this stack.
    #[inline(always)]
    fn next(self, count: usize) -> Span {
        let (first, top) = (self.top() as u64, (self.top() + count) as u64);
        Span(top << (COUNT_BITS + INDEX_BITS) | first << COUNT_BITS | count as u64)
    }

    /// Returns the span of the same stack with no entry waiting.
    #[inline(always)]
    fn hidden(self) -> Span {
        Span(self.0 & !COUNT)
    }
}

/// Waiting attributes of this thread, and their callee.
pub struct Waiting {
    /// Callee, as the id of the interface that is called; arbitrary while no entry waits.
    callee: Cell<Id>,
    entries: [Slot; ROOM],
    span: Cell<Span>,
}

thread_local! {
    static WAITING: Waiting = const {
        Waiting {
            callee: Cell::new(Id::NULL),
            entries: [const { Slot::new() }; ROOM],
            span: Cell::new(Span::EMPTY),
        }
    };
    /// Entries from `ROOM` on. It has no destructor, so it exists as long as the thread. It owns memory only
    /// while a frame reaches into it (I3).
    static ABOVE: ManuallyDrop<RefCell<Vec<Entry>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// Runs `f` with the stack of this thread.
#[inline(always)]
pub(super) fn with_waiting<R>(f: impl FnOnce(&Waiting) -> R) -> R {
    // The stack has no destructor, so it exists as long as the thread.
    WAITING.with(f)
}

impl Waiting {
    #[inline(always)]
    pub(super) fn callee(&self) -> Id {
        self.callee.get()
    }

    #[inline(always)]
    pub(super) fn span(&self) -> Span {
        self.span.get()
    }

    /// Begins a frame of `count` entries, which the caller writes next. Dropping the result ends the frame.
    #[inline(always)]
    pub(super) fn push(&self, callee: Id, count: usize) -> Frame {
        squall_rcu::__hide_from_served(squall_rcu::__State::Attributes, run_hidden);
        let span = self.span.get();
        let outer = Frame { callee: self.callee.get(), span, top: span.top() + count, here: PhantomData };
        if outer.top > ROOM {
            resize_above(outer.span.top() + count);
        }
        self.callee.set(callee);
        self.span.set(outer.span.next(count));
        outer
    }

    /// Hides the waiting entries until the result is dropped.
    #[inline(always)]
    pub(super) fn hide(&self) -> Hidden {
        let hidden = Hidden { span: self.span.get(), here: PhantomData };
        self.span.set(hidden.span.hidden());
        hidden
    }

    /// Writes one entry of a frame that has just begun, by its position in the frame.
    #[inline(always)]
    pub(super) fn write(&self, frame: &Frame, place: usize, entry: Entry) {
        let index = frame.span.top() + place;
        match self.entries.get(index) {
            Some(slot) => slot.set(entry),
            None => write_above(index, entry),
        }
    }

    /// Returns the bits of the attribute with this head, among these entries.
    #[inline(always)]
    pub(super) fn find(&self, span: Span, head: &'static Head) -> Option<u64> {
        match self.entries.get(span.first()..span.first() + span.count()) {
            Some(slots) => slots.iter().find_map(|slot| slot.bits_of(head)),
            None => self.find_above(span, head),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_above(&self, span: Span, head: &'static Head) -> Option<u64> {
        let mut entries = (0..span.count()).map(|place| self.entry(span.first() + place));
        entries.find(|entry| entry.is_of(head)).map(|entry| entry.bits)
    }

    #[inline(always)]
    pub(super) fn entry(&self, index: usize) -> Entry {
        match self.entries.get(index) {
            Some(slot) => slot.get(),
            None => read_above(index),
        }
    }
}

/// Guard of a frame. Dropping it, also in a panic, restores the entries that waited before.
///
/// The guard looks up the thread-local stack again, which takes a few instructions. It keeps no borrow of the
/// stack: a borrow cannot leave [`with_waiting`], so the caller's closure would have to run inside it,
/// without inlining.
pub struct Frame {
    callee: Id,
    span: Span,
    /// End of the stack while the frame lives. Kept here because a reload right after the store would stall.
    top: usize,
    /// `!Send`: the thread that made the guard drops it.
    here: PhantomData<*const ()>,
}

impl Drop for Frame {
    #[inline(always)]
    fn drop(&mut self) {
        with_waiting(|waiting| {
            if self.top > ROOM {
                resize_above(self.span.top());
            }
            waiting.callee.set(self.callee);
            waiting.span.set(self.span);
        });
    }
}

/// Guard of hidden entries. Dropping it, also in a panic, brings them back.
pub(super) struct Hidden {
    span: Span,
    /// `!Send`, like [`Frame`].
    here: PhantomData<*const ()>,
}

impl Hidden {
    /// Returns the hidden span.
    #[inline(always)]
    pub(super) fn span(&self) -> Span {
        self.span
    }
}

impl Drop for Hidden {
    #[inline(always)]
    fn drop(&mut self) {
        with_waiting(|waiting| waiting.span.set(self.span));
    }
}

/// Runs `f` without waiting entries (I4).
fn run_hidden(f: &mut dyn FnMut()) {
    let _hidden = with_waiting(Waiting::hide);
    f();
}

#[cold]
#[inline(never)]
fn resize_above(top: usize) {
    assert!(
        top as u64 <= INDEX,
        "calls with attributes are nested too deep: this thread has more than 2^28 attributes waiting"
    );
    ABOVE.with(|above| match top.saturating_sub(ROOM) {
        0 => *above.borrow_mut() = Vec::new(),
        len => above.borrow_mut().resize(len, Entry::NONE),
    });
}

#[cold]
#[inline(never)]
fn write_above(index: usize, entry: Entry) {
    ABOVE.with(|above| above.borrow_mut()[index - ROOM] = entry);
}

#[cold]
#[inline(never)]
fn read_above(index: usize) -> Entry {
    ABOVE.with(|above| above.borrow()[index - ROOM])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_nesting_leaves_no_memory() {
        let capacity = || ABOVE.with(|above| above.borrow().capacity());
        with_waiting(|waiting| {
            let mut frames: Vec<_> =
                (1..=20).map(|_| waiting.push(Id::from_parts(1, 1).unwrap(), 3)).collect();
            assert_eq!((waiting.span().first(), waiting.span().count(), waiting.span().top()), (57, 3, 60));
            assert!(capacity() >= 60 - ROOM);
            while frames.pop().is_some() {
                assert_eq!(waiting.span().top(), 3 * frames.len());
            }
            assert_eq!((waiting.span().count(), capacity()), (0, 0));
        });
    }
}
