//! The rivals of the locks.
//!
//! Spinning locks come twice: with their defaults, and with the yields that their authors offer for more
//! threads than processors. A case takes the form that fits its threads.

#[allow(unsafe_code)]
mod in_bits;
#[allow(unsafe_code)]
mod pthread;

use spin::relax::RelaxStrategy;

pub(crate) use in_bits::InBits;
pub(crate) use pthread::Adaptive as PthreadAdaptive;

/// A lock around one word.
pub(crate) trait Exclusive: Send + Sync + 'static {
    fn new() -> Self;

    /// Runs `section` with the lock held.
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R;
}

impl Exclusive for std::sync::Mutex<u64> {
    fn new() -> Self {
        std::sync::Mutex::new(0)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        section(&mut self.lock().expect("a thread panicked under the lock"))
    }
}

impl Exclusive for parking_lot::Mutex<u64> {
    fn new() -> Self {
        parking_lot::Mutex::new(0)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        section(&mut self.lock())
    }
}

/// Test and test-and-set, of crate `spin`.
pub(crate) type Spin<R> = spin::mutex::SpinMutex<u64, R>;

impl<R: RelaxStrategy + 'static> Exclusive for Spin<R> {
    fn new() -> Self {
        spin::mutex::SpinMutex::new(0)
    }

    #[inline(always)]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        section(&mut self.lock())
    }
}

/// Tickets, of crate `spin`.
pub(crate) type Ticket<R> = spin::mutex::TicketMutex<u64, R>;

impl<R: RelaxStrategy + 'static> Exclusive for Ticket<R> {
    fn new() -> Self {
        spin::mutex::TicketMutex::new(0)
    }

    #[inline(always)]
    fn with<T>(&self, section: impl FnOnce(&mut u64) -> T) -> T {
        section(&mut self.lock())
    }
}

/// The queue of Mellor-Crummey and Scott, of crate `mcslock`; the node lies on the caller's stack.
pub(crate) type McsSpinning = mcslock::raw::spins::Mutex<u64>;

impl Exclusive for McsSpinning {
    fn new() -> Self {
        mcslock::raw::spins::Mutex::new(0)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        self.lock_then(section)
    }
}

/// The queue lock that yields while it waits.
pub(crate) type McsYielding = mcslock::raw::yields::Mutex<u64>;

impl Exclusive for McsYielding {
    fn new() -> Self {
        mcslock::raw::yields::Mutex::new(0)
    }

    #[inline(always)]
    fn with<R>(&self, section: impl FnOnce(&mut u64) -> R) -> R {
        self.lock_then(section)
    }
}
