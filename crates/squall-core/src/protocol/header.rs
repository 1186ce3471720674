//! The header of a representative: what a table entry points to, and the only thing a call reads before the method.
//!
//! A thin pointer leads here; the fat one to the representative's interface lies inside. The id is compared with the
//! reference, so one store of zero makes every cached entry of every VP miss at once.
//!
//! - I1. `id` goes from `NEW` to the object's id, and from any to `SUSPENDED` while a mediator stands before the object; from
//!   `NEW` and `SUSPENDED` to the object's id when none does any more; and from any to `POISON`, and never back. With the object's id
//!   are the bits of `sign`, which are none of an id's: so one comparison says that a call may use the representative, and that it lends
//!   the first thing of its interface, whose sign is zero (`sign`).
//! - I2. `target`, `index`, `lent` and `sign` are written before the header is published, and never after.
//! - I3. `holds` counts calls that use the representative outside any operation. It grows only inside an operation that
//!   found the header's id alive, or within a miss; so after the grace period that follows the death it only falls.
//! - I4. Once `WAITED` is set (after that grace period), exactly one release returns [`Released::Last`] if any hold was
//!   left then, and none otherwise.
//! - I5. `NOTIFY` is set while a swap waits for the holds, and not once `WAITED` is.
//!
//! Cost: 32 bytes for each interface of a representative.

use squall_sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::sites;
use crate::protocol::id::SLOTS_MAX;

/// The id of a header whose object is gone, or on its way.
const POISON: u64 = 0;
/// The id of a header that is published but not yet active.
pub(crate) const NEW: u64 = u64::MAX;

/// The id of a header of an object before which a mediator stands. No id equals it: there is no such slot.
const SUSPENDED: u64 = u64::MAX - 1;

/// The sign in `holds` that memory quiet waits for the last of them.
const WAITED: u32 = 1 << 31;
/// The sign that a swap does.
const NOTIFY: u32 = 1 << 30;

/// Both words of a pointer to a `dyn` interface.
pub(crate) type Fat = [*const (); 2];

/// See the module.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    id: AtomicU64,
    target: Fat,
    holds: AtomicU32,
    index: u16,
    view_kind: u8,
    /// Of `lent`, in the lowest bits.
    view_tag: u8,
}

/// In a header, what is lent: nothing, or one of the three. A bit for each, so that who asks for one is compiled to ask in the order in which
/// it is written, and first for what is there most.
pub(crate) const NO_VIEW: u8 = 0;
pub(crate) const FIRST: u8 = 1;
pub(crate) const SECOND: u8 = 1 << 1;
pub(crate) const THIRD: u8 = 1 << 2;

/// The bits of signs.
const VIEW_KINDS: u8 = FIRST | SECOND | THIRD;

/// What a header has beside its id to say the same: zero for the first thing; and where the interface's representatives never lend anything.
const fn view_tag(has_views: bool, kind: u8) -> u8 {
    if has_views { kind ^ FIRST } else { 0 }
}

/// An id with a sign.
#[inline(always)]
fn tagged(id: u64, view_tag: u8) -> u64 {
    // Most have none.
    if view_tag == 0 { id } else { id | u64::from(view_tag) << VIEW_TAG_SHIFT }
}

/// Where the sign lies in `id`: above the slots of all ids.
const VIEW_TAG_SHIFT: u32 = 24;
/// The bits of it.
const VIEW_TAGS: u64 = (VIEW_KINDS as u64) << VIEW_TAG_SHIFT;
const _: () = assert!(SLOTS_MAX <= 1 << VIEW_TAG_SHIFT && VIEW_TAGS < 1 << u32::BITS);

/// What became of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Released {
    /// It was the last one, and memory quiet waits for it.
    Last,
    /// It was the last one, and a swap waits for it.
    LastOfSwap,
    /// Nothing follows.
    NotLast,
}

impl Header {
    /// The header of interface `index` of a representative, under this id or `NEW`.
    ///
    /// Of an interface whose representatives may lend something, this one lends nothing until [`lends`](Header::lends) says so.
    pub(crate) fn new(id: u64, target: Fat, index: u32, has_views: bool) -> Header {
        let view_tag = view_tag(has_views, NO_VIEW);
        let id = if id == NEW { NEW } else { tagged(id, view_tag) };
        // An interface has sixteen at most.
        let index = index as u16;
        Header {
            id: AtomicU64::new(id),
            target,
            holds: AtomicU32::new(0),
            index,
            view_kind: NO_VIEW,
            view_tag,
        }
    }

    /// Says which thing the representative lends (`view/I1`), before the header is published.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn set_view(&mut self, kind: u8) {
        let id = self.id.load(Ordering::Relaxed);
        (self.view_kind, self.view_tag) = (kind, view_tag(true, kind));
        if id != NEW {
            self.id.store(self.tagged(id & !VIEW_TAGS), Ordering::Relaxed);
        }
    }

    /// An id with the sign (I1).
    #[inline(always)]
    fn tagged(&self, id: u64) -> u64 {
        tagged(id, self.view_tag)
    }

    /// The same, and its sign is not zero: it does not lend the first thing. Of an interface whose representatives may lend something.
    ///
    /// One look, which says both: what another said before, that the first thing was not to be had here, may have been of a header that was
    /// not active then and has become so since (I1).
    #[inline(always)]
    pub(crate) fn lacks_first_view(&self, id: u64) -> bool {
        if sites::OTHER_AT_ONCE.is_weak() {
            return self.is_of(id);
        }
        // Relaxed: as in `is`. What differs is a sign alone, and not none: those bits, and no lower ones, which lie above them in this.
        let differs = (self.id.load(Ordering::Relaxed) ^ id).rotate_right(VIEW_TAG_SHIFT);
        differs.wrapping_sub(1) < VIEW_KINDS.into()
    }

    /// Whether a call with this id may use the representative, whatever it lends.
    #[inline(always)]
    pub(crate) fn is_of(&self, id: u64) -> bool {
        // Relaxed: as in `is`.
        (self.id.load(Ordering::Relaxed) ^ id) & !VIEW_TAGS == 0
    }

    /// Whether a call with this id may use the representative, and its sign is zero: that of an interface whose representatives lend nothing,
    /// or of one that lends the first thing.
    #[inline(always)]
    pub(crate) fn is(&self, id: u64) -> bool {
        // Relaxed: the entry that led here was loaded with acquire, and whoever knows that `destroy` has returned sees
        // its store by that knowledge.
        #[cfg(not(all(
            target_arch = "x86_64",
            not(any(loom, miri, squall_tsan, squall_asan, squall_model))
        )))]
        return self.id.load(Ordering::Relaxed) == id;
        // The compiler would load an atomic first and compare then.
        #[cfg(all(target_arch = "x86_64", not(any(loom, miri, squall_tsan, squall_asan, squall_model))))]
        // SAFETY: an aligned eight-byte read of our own field, which is as good as a relaxed one.
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

    /// Makes a published header active, unless it is poisoned.
    pub(crate) fn activate(&self, id: u64) {
        // Relaxed: a failure is all there is to know (I1), and the order against `poison` is that of one word.
        let _ = self.id.compare_exchange(NEW, self.tagged(id), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Makes it active again, or for the first time, unless it is poisoned: no mediator stands before its object any more.
    pub(crate) fn resume(&self, id: u64) {
        for before in [SUSPENDED, NEW] {
            // Relaxed: as `activate`.
            if self.id.compare_exchange(before, self.tagged(id), Ordering::Relaxed, Ordering::Relaxed).is_ok()
            {
                return;
            }
        }
    }

    /// Turns every later call away.
    pub(crate) fn poison(&self) {
        self.turn_away(POISON);
    }

    /// Turns later calls away until the header is resumed: they find the mediator.
    pub(crate) fn suspend(&self) {
        self.turn_away(SUSPENDED);
    }

    #[inline(always)]
    fn turn_away(&self, id: u64) {
        // Relaxed: as `is` and `activate`.
        #[cfg(not(loom))]
        self.id.store(id, Ordering::Relaxed);
        // Loom lets a store come between the load and the store of an exchange, the one in `activate`; no processor and no
        // compiler does. An exchange here says that to it, and synchronises with nothing.
        #[cfg(loom)]
        self.id.swap(id, Ordering::Relaxed);
    }

    /// Both words of the pointer to the representative's interface.
    #[inline(always)]
    pub(crate) fn target(&self) -> &Fat {
        &self.target
    }

    /// Which of the representative's interfaces this is.
    pub(crate) fn index(&self) -> u32 {
        self.index.into()
    }

    /// Which thing the representative lends; zero: none.
    #[inline(always)]
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn view_kind(&self) -> u8 {
        self.view_kind
    }

    /// Keeps the representative beyond the operation that found it (I3).
    #[inline]
    pub(crate) fn hold(&self) {
        // Relaxed: made visible before the operation ends, by the release of its leave.
        let before = self.holds.fetch_add(1, Ordering::Relaxed);
        debug_assert!(before & WAITED == 0, "a hold was taken after memory quiet began");
    }

    /// Lets it go.
    #[inline]
    pub(crate) fn release(&self) -> Released {
        // AcqRel: pairs with `wait_for_holds` and with the other releases: whoever drops the representative sees the
        // call over.
        let before = self.holds.fetch_sub(1, sites::RELEASE.order(Ordering::AcqRel));
        if before == WAITED | 1 {
            Released::Last
        } else if before == NOTIFY | 1 {
            Released::LastOfSwap
        } else {
            Released::NotLast
        }
    }

    /// Asks the last hold to tell a swap, or not any more.
    pub(crate) fn notify(&self, whether: bool) {
        // Relaxed: a change of one word; who waits looks again after it (`has_holds`), and who releases tells by the event
        // count of the object.
        if whether {
            self.holds.fetch_or(NOTIFY, Ordering::Relaxed);
        } else {
            self.holds.fetch_and(!NOTIFY, Ordering::Relaxed);
        }
    }

    /// Asks the last hold to report. Returns whether there is one. After the grace period (I4).
    pub(crate) fn wait_for_holds(&self) -> bool {
        // AcqRel: pairs with `release`.
        self.holds.fetch_or(WAITED, sites::WAIT_HOLDS.order(Ordering::AcqRel)) != 0
    }

    /// Whether a swap waits for its holds.
    #[cfg(not(loom))]
    pub(crate) fn is_waited_for(&self) -> bool {
        // Relaxed: who sleeps looks again when it is woken, after the sign was set.
        self.holds.load(Ordering::Relaxed) & NOTIFY != 0
    }

    /// For a model: it is freed now, so whoever uses it later, or still, is an error.
    #[cfg(all(test, loom))]
    pub(crate) fn freed(&mut self) {
        self.id.with_mut(|_| ());
        self.holds.with_mut(|_| ());
    }

    /// Whether a call holds it, or did not let it go for all to see. After the grace period (I4), or that of a swap.
    pub(crate) fn is_held(&self) -> bool {
        // Acquire: pairs with `release`, as in `wait_for_holds`.
        self.holds.load(sites::LOOK_HOLDS.order(Ordering::Acquire)) & !NOTIFY != 0
    }

    /// Calls that hold it now.
    pub(crate) fn holds(&self) -> u32 {
        self.holds.load(Ordering::Relaxed) & !(WAITED | NOTIFY)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const ID: u64 = 7 << 32 | 5;

    fn all(kind: u8) -> Header {
        let mut header = Header::new(ID, [std::ptr::null(); 2], 0, true);
        header.set_view(kind);
        header
    }

    #[test]
    fn who_meets_a_header_learns_what_it_lends_and_nothing_of_one_that_is_not_active() {
        for kind in [NO_VIEW, FIRST, SECOND, THIRD] {
            let header = all(kind);
            let says = |id| (header.is(id), header.lacks_first_view(id), header.is_of(id));
            assert_eq!(says(ID), (kind == FIRST, kind != FIRST, true));
            // Of other generations and slots.
            for bit in (0..64).filter(|bit| VIEW_TAGS >> bit & 1 == 0) {
                assert_eq!(says(ID ^ 1 << bit), (false, false, false), "bit {bit}");
            }
            header.suspend();
            assert_eq!(says(ID), (false, false, false));
            header.resume(ID);
            assert_eq!(says(ID), (kind == FIRST, kind != FIRST, true));
            header.poison();
            header.resume(ID);
            assert_eq!(says(ID), (false, false, false));
        }
    }
}
