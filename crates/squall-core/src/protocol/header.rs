//! The header of a representative: the target of a table entry, and the only memory a call reads before the
//! method.
//!
//! A thin pointer leads to the header. The fat pointer to the representative's interface lies inside. A call
//! compares the header's id with its handle. So one store of zero makes every cached entry of every VP miss
//! at once.
//!
//! - I1. `id` is `NEW`, `SUSPENDED`, `POISON` or the object's id. Any value except `POISON` may become
//!   `SUSPENDED` when a mediator is installed in front of the object. `NEW` and `SUSPENDED` become the
//!   object's id when no mediator is in front of it. Any value may become `POISON`, which stays.
//! - I2. `target` and `index` are written before the header is published, and never after.
//! - I3. `holds` counts the calls that use the representative outside any operation. It grows only inside an
//!   operation that found the header's id alive, or within a miss. So after the grace period that follows the
//!   death it only falls.
//! - I4. `WAITED` is set after that grace period. From then on exactly one release returns [`Released::Last`]
//!   if any hold was left, and no release does otherwise.
//! - I5. `NOTIFY` is set while a swap waits for the holds. Once `WAITED` is set, it is clear.
//!
//! Cost: 32 bytes for each interface of a representative.

use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::sites;

/// The id of a dead header: its object was destroyed, or is being destroyed.
const POISON: u64 = 0;
/// The id of a header that is published but not yet active.
pub(crate) const NEW: u64 = u64::MAX;

/// The id of a header behind a mediator. No handle equals it: no such slot exists.
const SUSPENDED: u64 = u64::MAX - 1;

/// Flag in `holds`: memory quiet waits for the last hold.
const WAITED: u32 = 1 << 31;
/// Flag in `holds`: a swap waits for the last hold.
const NOTIFY: u32 = 1 << 30;

/// Both words of a pointer to a `dyn` interface.
pub(crate) type Fat = [*const (); 2];

/// The header of one interface of a representative. See the module.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    id: AtomicU64,
    target: Fat,
    holds: AtomicU32,
    index: u16,
}

/// The result of releasing a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Released {
    /// The last hold was released, and the destruction of the object waits for it.
    Last,
    /// The last hold was released, and a swap waits for it.
    LastOfSwap,
    /// No further action is needed.
    NotLast,
}

impl Header {
    /// Creates the header of interface `index` of a representative, under this id or `NEW`.
    pub(crate) fn new(id: u64, target: Fat, index: u32) -> Header {
        // A representative has at most sixteen interfaces.
        let index = index as u16;
        Header { id: AtomicU64::new(id), target, holds: AtomicU32::new(0), index }
    }

    /// Returns whether a call with this id may use the representative.
    #[inline(always)]
    pub(crate) fn is(&self, id: u64) -> bool {
        // Relaxed: the entry that led here was loaded with acquire. A thread that knows that `destroy` has
        // returned sees its store through that knowledge.
        #[cfg(not(all(
            target_arch = "x86_64",
            not(any(loom, miri, squall_tsan, squall_asan, squall_model))
        )))]
        return self.id.load(Ordering::Relaxed) == id;
        // The compiler would load an atomic first and compare it then.
        #[cfg(all(target_arch = "x86_64", not(any(loom, miri, squall_tsan, squall_asan, squall_model))))]
        // SAFETY: an aligned eight-byte read of our own field, equivalent to a relaxed load.
        unsafe {
            std::arch::asm!(
                "cmp qword ptr [{0}], {1}",
                "jne {2}",
                in(reg) self.id.as_ptr(),
                in(reg) id,
                label { return false },
                options(readonly, nostack),
            );
            true
        }
    }

    /// Activates a published header, unless it is poisoned or suspended.
    pub(crate) fn activate(&self, id: u64) {
        // Relaxed: only success or failure matters (I1), and one word orders this against `poison`.
        let _ = self.id.compare_exchange(NEW, id, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Activates the header, again or for the first time, unless it is poisoned. The mediator in front of its
    /// object has gone.
    pub(crate) fn resume(&self, id: u64) {
        for before in [SUSPENDED, NEW] {
            // Relaxed: as in `activate`.
            if self.id.compare_exchange(before, id, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Makes every later call miss, for good.
    pub(crate) fn poison(&self) {
        self.turn_away(POISON);
    }

    /// Makes later calls miss until the header is resumed: they find the mediator.
    pub(crate) fn suspend(&self) {
        self.turn_away(SUSPENDED);
    }

    #[inline(always)]
    fn turn_away(&self, id: u64) {
        // Relaxed: as in `is` and `activate`.
        #[cfg(not(loom))]
        self.id.store(id, Ordering::Relaxed);
        // Loom lets a store come between the load and the store of an exchange (the one in `activate`). No
        // processor and no compiler does so. The exchange here prevents it, and synchronises with no other
        // access.
        #[cfg(loom)]
        self.id.swap(id, Ordering::Relaxed);
    }

    /// Both words of the pointer to the representative's interface.
    #[inline(always)]
    pub(crate) fn target(&self) -> &Fat {
        &self.target
    }

    /// The number of this interface among those of the representative.
    pub(crate) fn index(&self) -> u32 {
        self.index.into()
    }

    /// Takes a hold: keeps the representative beyond the operation that found it (I3).
    #[inline]
    pub(crate) fn hold(&self) {
        // Relaxed: the release at the end of the operation makes it visible before that end.
        let before = self.holds.fetch_add(1, Ordering::Relaxed);
        debug_assert!(
            before & WAITED == 0,
            "a hold on a representative was taken after the grace period of its destruction"
        );
    }

    /// Releases a hold.
    #[inline]
    pub(crate) fn release(&self) -> Released {
        // AcqRel: pairs with `wait_for_holds` and with the other releases: the thread that drops the
        // representative sees the call over.
        let before = self.holds.fetch_sub(1, sites::RELEASE.order(Ordering::AcqRel));
        if before == WAITED | 1 {
            Released::Last
        } else if before == NOTIFY | 1 {
            Released::LastOfSwap
        } else {
            Released::NotLast
        }
    }

    /// Sets or clears the request that the release of the last hold signals a swap.
    pub(crate) fn notify(&self, whether: bool) {
        // Relaxed: one word decides. The waiting swap checks again after it (`is_held`), and the releasing
        // thread signals through the event count of the object.
        if whether {
            self.holds.fetch_or(NOTIFY, Ordering::Relaxed);
        } else {
            self.holds.fetch_and(!NOTIFY, Ordering::Relaxed);
        }
    }

    /// Sets `WAITED`, so that the last hold reports. Returns whether there is a hold. Called after the grace
    /// period (I4).
    pub(crate) fn wait_for_holds(&self) -> bool {
        // AcqRel: pairs with `release`.
        self.holds.fetch_or(WAITED, sites::WAIT_HOLDS.order(Ordering::AcqRel)) != 0
    }

    /// Returns whether a swap waits for the holds.
    #[cfg(not(loom))]
    pub(crate) fn is_waited_for(&self) -> bool {
        // Relaxed: a sleeping thread checks again when it is woken, and it is woken after the flag was set.
        self.holds.load(Ordering::Relaxed) & NOTIFY != 0
    }

    /// For a model: marks the memory as freed now, so that any later or concurrent use is an error.
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.id.with_mut(|_| ());
        self.holds.with_mut(|_| ());
    }

    /// Returns whether a call holds the representative, or released it and that is not yet visible. Called
    /// after the grace period (I4), or after that of a swap.
    pub(crate) fn is_held(&self) -> bool {
        // Acquire: pairs with `release`, as in `wait_for_holds`.
        self.holds.load(sites::LOOK_HOLDS.order(Ordering::Acquire)) & !NOTIFY != 0
    }

    /// The number of current holds.
    pub(crate) fn holds(&self) -> u32 {
        self.holds.load(Ordering::Relaxed) & !(WAITED | NOTIFY)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ID: u64 = 7 << 32 | 5;

    #[test]
    fn only_the_id_of_an_active_header_matches() {
        let header = Header::new(NEW, [std::ptr::null(); 2], 0);
        assert!(!header.is(ID));
        header.activate(ID);
        assert!(header.is(ID));
        // Ids of other generations and slots.
        assert!((0..64).all(|bit| !header.is(ID ^ 1 << bit)));
        header.suspend();
        assert!(!header.is(ID));
        header.resume(ID);
        assert!(header.is(ID));
        header.poison();
        header.resume(ID);
        assert!(!header.is(ID));
    }
}
