//! Trace: the slow paths of all floors emit events, and one sink receives them while it is switched on.
//!
//! Problem: the program's monitor lies above the locks, gates and objects that it observes. Idea: each of
//! them emits its events here. The monitor installs a function, and switches it on while it has readers.
//!
//! - I1. While the trace is off, [`emit`] only loads one word. It takes no lock and no memory, and reads no
//!   clock.
//! - I2. The sink runs on the emitting thread, after the event has happened. The thread may hold locks.
//!
//! Limits: only slow paths emit. The sink may allocate, so a global allocator must not take a lock that
//! emits.
//! Cost: off, a load and a predicted branch; on, a call out of line through a pointer.
//! Source: KT-18 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.2).

mod kind;

pub use kind::{KINDS_MAX, Kind, Role};

// In models too: the trace is off there, and is no part of any protocol.
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Function that receives the events.
pub type Sink = fn(&'static Kind, Subject, [u64; 2]);

static ON: AtomicBool = AtomicBool::new(false);
static SINK: OnceLock<Sink> = OnceLock::new();

/// Installs the sink of the process. Returns `false` if another one was installed before.
pub fn install(sink: Sink) -> bool {
    std::ptr::fn_addr_eq(*SINK.get_or_init(|| sink), sink)
}

/// Switches the trace on or off. Without a sink it has no effect on threads that emit.
pub fn switch(on: bool) {
    // Relaxed: a thread that knows of the switch by other means sees this store too.
    ON.store(on, Ordering::Relaxed);
}

/// Returns `true` while the trace is on.
#[inline(always)]
pub fn is_on() -> bool {
    // Relaxed: a thread that does not see the switch yet omits events that were not promised.
    !cfg!(loom) && ON.load(Ordering::Relaxed)
}

/// Passes an event to the sink, if the trace is on. Call it after the event has happened.
///
/// # Cost
/// Off: one load and a branch.
///
/// ```
/// use squall_sys::trace::{Kind, Subject, emit, install, switch};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// static REFILL: Kind = Kind::new("pool.refill", ["items", ""]);
/// static ITEMS: AtomicU64 = AtomicU64::new(0);
///
/// assert!(install(|_, _, [items, _]| drop(ITEMS.fetch_add(items, Ordering::Relaxed))));
/// emit(&REFILL, Subject::NONE, [8, 0]); // off
/// switch(true);
/// emit(&REFILL, Subject::NONE, [32, 0]);
/// assert_eq!(ITEMS.load(Ordering::Relaxed), 32);
/// ```
#[inline(always)]
pub fn emit(kind: &'static Kind, subject: Subject, values: [u64; 2]) {
    if is_on() {
        emit_now(kind, subject, values);
    }
}

#[cold]
#[inline(never)]
fn emit_now(kind: &'static Kind, subject: Subject, values: [u64; 2]) {
    if let Some(sink) = SINK.get() {
        sink(kind, subject, values);
    }
}

/// Subject of an event: an object with an id, an address, or a number.
///
/// | bits | of an id | of an address | of a number |
/// |---|---|---|---|
/// | 0..31 | slot | low bits | number |
/// | 31 | 0 | 1 | top bit of the number |
/// | 32..63 | generation | high bits | 0 |
/// | 63 | top bit of the generation | 1 | 0 |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(u64);

const HALF_SHIFT: u32 = u32::BITS;
const LOW_BITS: u32 = 31;
const LOW: u64 = (1 << LOW_BITS) - 1;
/// The marks of an address.
const MARKS: u64 = 1 << LOW_BITS | 1 << 63;

impl Subject {
    /// No particular subject.
    pub const NONE: Subject = Subject(0);

    /// Creates a subject from a number.
    pub const fn number(number: u32) -> Subject {
        Subject(number as u64)
    }

    /// Creates a subject from the slot and the generation of an id. The slot is below 2^31, and the
    /// generation is not zero.
    pub const fn id(slot: u32, generation: u32) -> Subject {
        Subject((generation as u64) << HALF_SHIFT | slot as u64)
    }

    /// Creates a subject from the address of a value, such as a lock. Two values of size zero may share it.
    #[inline]
    pub fn at<T: ?Sized>(value: &T) -> Subject {
        Subject::address(std::ptr::from_ref(value).addr())
    }

    /// Creates a subject from an address.
    pub const fn address(address: usize) -> Subject {
        let address = address as u64;
        Subject((address >> LOW_BITS) << HALF_SHIFT | address & LOW | MARKS)
    }

    /// Returns the address, if the subject is one.
    pub const fn as_address(self) -> Option<usize> {
        if self.0 & MARKS != MARKS {
            return None;
        }
        let bits = self.0 & !MARKS;
        Some(((bits >> HALF_SHIFT) << LOW_BITS | bits & LOW) as usize)
    }

    /// Returns the bits, which differ between subjects.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Creates a subject from its [bits](Subject::bits).
    pub const fn from_bits(bits: u64) -> Subject {
        Subject(bits)
    }
}

/// Start of a span of time, known only if the trace was on then.
///
/// ```
/// use squall_sys::trace::{Since, switch};
///
/// assert_eq!(Since::now().ns(), None);
/// switch(true);
/// assert!(Since::now().ns().is_some());
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Since(Option<Instant>);

impl Since {
    /// The start of a span that no event reports.
    pub const UNKNOWN: Since = Since(None);

    /// Reads the clock, if the trace is on.
    ///
    /// # Cost
    /// Off: one load and a branch.
    #[inline(always)]
    pub fn now() -> Since {
        if is_on() { Since::read() } else { Since::UNKNOWN }
    }

    #[cold]
    #[inline(never)]
    fn read() -> Since {
        Since(Some(Instant::now()))
    }

    /// Returns the nanoseconds since the start, if it is known.
    #[inline]
    pub fn ns(self) -> Option<u64> {
        self.0.map(|start| u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns `true` if the start is known.
    #[inline]
    pub const fn is_known(self) -> bool {
        self.0.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_of_different_sorts_differ() {
        let value = 7_u64;
        let address = std::ptr::from_ref(&value).addr();
        assert_eq!(Subject::at(&value).as_address(), Some(address));
        for address in [0, 1, 0x40_0000, 0x7fff_ffff, 0x8000_0000, usize::MAX >> 2] {
            assert_eq!(Subject::address(address).as_address(), Some(address));
        }
        for other in [Subject::NONE, Subject::number(u32::MAX), Subject::id((1 << 31) - 1, u32::MAX)] {
            assert_eq!(other.as_address(), None);
        }
    }
}
