//! The attributes of waiting: a list of methods, in order. The list is one word that can be replaced
//! while threads wait.
//!
//! - I1. A [`Waiting`] is one word, so a waiter sees a whole old list or a whole new one.
//! - I2. A list has at least one method, and each method checks the lock at least once.
//!
//! Source: KT-15 (Gheith, Mukherjee, Silva and Schwan, "KTK", 1994, §5.1).

use std::fmt;
use std::time::Duration;

use squall_sys::sync::atomic::{AtomicU64, Ordering};

/// One way to wait. Amounts are capped at [`Method::AMOUNT_MAX`].
///
/// # Example
/// ```
/// use squall::lock::{Method, Waiting};
///
/// let waiting = Waiting::new(&[Method::Spin(50), Method::Yield(4), Method::Block]);
/// assert_eq!(waiting.methods().count(), 3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// Checks the lock this many times, with one processor pause (some 10 to 100 cycles) between two checks.
    Spin(u16),
    /// Checks the lock, and doubles the number of pauses after each check, up to 256. The amount is the total
    /// number of pauses.
    Backoff(u16),
    /// Checks the lock once per 256 pauses. The amount is the total number of pauses. The holder is hardly
    /// disturbed, and a lock reserved for the waiter does not wait long.
    StandBy(u16),
    /// Checks the lock this many times, and yields the processor to another thread after each check.
    Yield(u16),
    /// Sleeps until woken; then the list starts again. Later entries of the list are never reached.
    Block,
}

impl Method {
    /// The largest amount.
    pub const AMOUNT_MAX: u16 = (1 << AMOUNT_BITS) - 1;

    const fn pack(self) -> u64 {
        let (kind, amount) = match self {
            Method::Spin(n) => (1, n),
            Method::Backoff(n) => (2, n),
            Method::Yield(n) => (3, n),
            Method::Block => (4, 0),
            Method::StandBy(n) => (5, n),
        };
        let amount = if amount > Method::AMOUNT_MAX { Method::AMOUNT_MAX } else { amount };
        kind << AMOUNT_BITS | amount as u64
    }

    const fn unpack(bits: u64) -> Option<Method> {
        let amount = (bits & Method::AMOUNT_MAX as u64) as u16;
        match bits >> AMOUNT_BITS {
            1 => Some(Method::Spin(amount)),
            2 => Some(Method::Backoff(amount)),
            3 => Some(Method::Yield(amount)),
            4 => Some(Method::Block),
            5 => Some(Method::StandBy(amount)),
            _ => None,
        }
    }
}

const AMOUNT_BITS: u32 = 13;
const METHOD_BITS: u32 = 16;

/// The attributes of waiting: a list of methods. After its end the list starts again.
///
/// # Example
/// ```
/// use squall::lock::{Method, Waiting};
///
/// const PATIENT: Waiting = Waiting::new(&[Method::Backoff(200), Method::Block]);
/// assert!(PATIENT.blocks() && !Waiting::SPIN.blocks());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Waiting(u64);

impl Waiting {
    /// The longest list.
    pub const METHODS_MAX: usize = 4;
    /// Spins forever. Suitable only if each thread has a processor of its own.
    pub const SPIN: Waiting = Waiting::new(&[Method::Spin(64)]);
    /// Sleeps at once.
    pub const BLOCK: Waiting = Waiting::new(&[Method::Block]);
    /// Spins for about the time of a sleep and a wake-up, then sleeps.
    pub const SPIN_THEN_BLOCK: Waiting = Waiting::new(&[Method::Backoff(96), Method::Block]);

    /// Makes a list of methods.
    ///
    /// # Panics
    /// If the list is empty or longer than [`METHODS_MAX`](Waiting::METHODS_MAX). In a constant this is a
    /// compile error.
    pub const fn new(methods: &[Method]) -> Waiting {
        assert!(!methods.is_empty(), "the list of waiting methods is empty");
        assert!(
            methods.len() <= Waiting::METHODS_MAX,
            "the list of waiting methods has more than four entries"
        );
        let (mut bits, mut at) = (0, 0);
        while at < methods.len() {
            bits |= methods[at].pack() << (at as u32 * METHOD_BITS);
            at += 1;
        }
        Waiting(bits)
    }

    /// Returns the methods, in order.
    ///
    /// # Example
    /// ```
    /// use squall::lock::{Method, Waiting};
    ///
    /// assert!(Waiting::BLOCK.methods().eq([Method::Block]));
    /// ```
    pub fn methods(self) -> impl Iterator<Item = Method> {
        let bits = (0..Waiting::METHODS_MAX as u32).map(move |at| self.0 >> (at * METHOD_BITS) & 0xffff);
        bits.map_while(Method::unpack)
    }

    /// Returns whether the list contains [`Method::Block`].
    pub fn blocks(self) -> bool {
        self.methods().any(|method| method == Method::Block)
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.methods()).finish()
    }
}

/// A replaceable [`Waiting`], and the timeout of waits.
#[derive(Debug)]
pub(super) struct WaitingCell {
    methods: AtomicU64,
    timeout_ns: AtomicU64,
}

/// Stands for "no timeout".
const FOREVER: u64 = u64::MAX;

impl WaitingCell {
    #[cfg(not(loom))]
    pub(super) const fn new(waiting: Waiting) -> WaitingCell {
        WaitingCell { methods: AtomicU64::new(waiting.0), timeout_ns: AtomicU64::new(FOREVER) }
    }

    #[cfg(loom)]
    pub(super) fn new(waiting: Waiting) -> WaitingCell {
        WaitingCell { methods: AtomicU64::new(waiting.0), timeout_ns: AtomicU64::new(FOREVER) }
    }

    // Relaxed throughout: a waiter may see a change late. The changing thread wakes the sleepers afterwards,
    // and the lock of their queue makes the change visible to them.

    pub(super) fn get(&self) -> Waiting {
        Waiting(self.methods.load(Ordering::Relaxed))
    }

    pub(super) fn set(&self, waiting: Waiting) {
        self.methods.store(waiting.0, Ordering::Relaxed);
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        let ns = self.timeout_ns.load(Ordering::Relaxed);
        (ns != FOREVER).then(|| Duration::from_nanos(ns))
    }

    pub(super) fn set_timeout(&self, timeout: Option<Duration>) {
        let ns = timeout.map_or(FOREVER, |limit| u64::try_from(limit.as_nanos()).unwrap_or(FOREVER));
        self.timeout_ns.store(ns, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn kt_15_a_list_of_methods_round_trips() {
        let all = [Method::Spin(7), Method::StandBy(8191), Method::Yield(0), Method::Block];
        let waiting = Waiting::new(&all);
        assert_eq!(waiting.methods().collect::<Vec<_>>(), all);
        assert!(waiting.blocks());
        assert!(!Waiting::SPIN.blocks());
        assert_eq!(format!("{:?}", Waiting::BLOCK), "[Block]");
    }

    #[test]
    fn too_large_an_amount_is_capped() {
        let waiting = Waiting::new(&[Method::Spin(u16::MAX)]);
        assert_eq!(waiting.methods().next(), Some(Method::Spin(Method::AMOUNT_MAX)));
    }

    #[test]
    #[should_panic(expected = "is empty")]
    fn an_empty_list_is_refused() {
        let _ = Waiting::new(&[]);
    }

    #[test]
    #[should_panic(expected = "more than four")]
    fn a_long_list_is_refused() {
        let _ = Waiting::new(&[Method::Block; 5]);
    }
}
