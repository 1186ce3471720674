//! What a representative lends to whoever calls it, without being asked each time: where it lies is told by the header.
//!
//! Problem: a call that only wants a structure which the representative holds on to asks for it by a virtual call, of a dozen
//! instructions; and where a caller's loads miss the caches, its time goes with the instructions between them. Idea: the
//! representative has the structure's address in a place of its own that never changes, and the header says how far into the
//! representative that place is.
//!
//! - I1. A [`Lent`] holds a count of its `Arc`, or null; it is never written after it was made. So a pointer that is read from one is
//!   valid while it lives.
//! - I2. What a header says of a place is what its root's [`Lender`] found in the representative, which is borrowed, shared, until it is
//!   dropped; so a [`Lent`] of what its interface lends is there until then, and not null.

use std::fmt;
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::interface::Interface;

/// A place in a representative in which there is what it lends, or that it lends nothing.
pub struct Lent<T>(*const T, PhantomData<Arc<T>>);

// SAFETY: it is an `Arc`.
unsafe impl<T> Send for Lent<T> where Arc<T>: Send {}
// SAFETY: as above.
unsafe impl<T> Sync for Lent<T> where Arc<T>: Sync {}

impl<T> Lent<T> {
    /// Lends this.
    pub fn new(what: Option<Arc<T>>) -> Lent<T> {
        Lent(what.map_or(ptr::null(), Arc::into_raw), PhantomData)
    }

    /// What is lent.
    pub fn get(&self) -> Option<&T> {
        // SAFETY: I1.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: from `into_raw`, once (I1).
            drop(unsafe { Arc::from_raw(self.0) });
        }
    }
}

impl<T> fmt::Debug for Lent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lent").field(&self.0).finish()
    }
}

/// An interface whose representatives may lend something.
pub trait Lends: Interface {
    /// What.
    type What: Send + Sync + 'static;
}

/// Where in representatives of type `T` is what they lend who calls them as `I`; most lend nothing.
pub struct Lender<T, I: ?Sized> {
    asked: Option<Asked<T>>,
    interface: PhantomData<fn(&I)>,
}

/// The function that says where, without its type, and who calls it.
struct Asked<T> {
    place: fn(),
    /// # Safety
    /// It is called with `place`.
    call: unsafe fn(fn(), &T) -> *const (),
}

impl<T, I: ?Sized> fmt::Debug for Lender<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lender").field(&self.asked.is_some()).finish()
    }
}

impl<T, I: ?Sized> Lender<T, I> {
    /// Nowhere.
    pub const NONE: Lender<T, I> = Lender { asked: None, interface: PhantomData };

    /// How far into the representative the place is, and one; zero: nothing is lent, or the place is not within it.
    pub(crate) fn offset_in(&self, rep: &T) -> u16 {
        let Some(asked) = &self.asked else { return 0 };
        // SAFETY: the two are each other's. Null lies before every representative.
        let place = unsafe { (asked.call)(asked.place, rep) }.addr();
        let Some(offset) = place.checked_sub(ptr::from_ref(rep).addr()) else { return 0 };
        let is_within = offset + size_of::<Lent<()>>() <= size_of::<T>();
        u16::try_from(offset + 1).ok().filter(|_| is_within).unwrap_or(0)
    }
}

impl<T, I: ?Sized + Lends> Lender<T, I> {
    /// There.
    pub const fn of(place: fn(&T) -> &Lent<I::What>) -> Lender<T, I> {
        unsafe fn call<T, I: ?Sized + Lends>(place: fn(), rep: &T) -> *const () {
            // SAFETY: the inverse of what `of` did with the same types.
            let place = unsafe { transmute::<fn(), fn(&T) -> &Lent<I::What>>(place) };
            let lent = place(rep);
            if lent.0.is_null() { ptr::null() } else { ptr::from_ref(lent).cast() }
        }
        // SAFETY: function pointers are of one size; this one is called as what it is only (`call`).
        let place = unsafe { transmute::<fn(&T) -> &Lent<I::What>, fn()>(place) };
        Lender { asked: Some(Asked { place, call: call::<T, I> }), interface: PhantomData }
    }
}

/// What is lent at a place.
///
/// # Safety
/// `offset` is not zero, and is what a `Lender` for `I` found in the representative at `start`, which is not dropped while the result is
/// used (I2).
#[inline(always)]
pub(crate) unsafe fn lent_at<'a, I: ?Sized + Lends>(start: *const (), offset: u16) -> &'a I::What {
    const { assert!(size_of::<Lent<I::What>>() == size_of::<*const ()>(), "a thin pointer") };
    // SAFETY: I2; and I1 for what it points to.
    unsafe { start.byte_add(usize::from(offset)).byte_sub(1).cast::<NonNull<I::What>>().read().as_ref() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::interface::Super;

    trait Any: Send + Sync {}
    impl Interface for dyn Any {
        const NAME: &'static str = "Any";
        const SOURCE: Source = Source { file: "", line: 0 };
        const SUPERS: &'static [Super<Self>] = &[];
    }
    impl Lends for dyn Any {
        type What = String;
    }

    struct Rep<const BEFORE: usize> {
        before: [u8; BEFORE],
        lent: Lent<String>,
        behind: Box<Lent<String>>,
    }

    fn rep<const BEFORE: usize>(what: Option<Arc<String>>) -> Rep<BEFORE> {
        Rep { before: [0; BEFORE], lent: Lent::new(what.clone()), behind: Box::new(Lent::new(what)) }
    }

    #[test]
    fn what_is_lent_is_found_where_it_lies_and_let_go_with_the_representative() {
        let what = Arc::new(String::from("lent"));
        let rep = rep::<9>(Some(what.clone()));
        let offset = Lender::<_, dyn Any>::of(|rep: &Rep<9>| &rep.lent).offset_in(&rep);
        assert_eq!(usize::from(offset), std::mem::offset_of!(Rep<9>, lent) + 1);
        // SAFETY: just found.
        let found = unsafe { lent_at::<dyn Any>(ptr::from_ref(&rep).cast(), offset) };
        assert!(ptr::eq(found, &raw const *what));
        assert_eq!(rep.lent.get(), Some(&String::from("lent")));
        assert_eq!((Arc::strong_count(&what), rep.before.len()), (3, 9));
        drop(rep);
        assert_eq!(Arc::strong_count(&what), 1);
    }

    #[test]
    fn nothing_is_found_that_is_not_there_or_not_within_or_too_far() {
        let what = Some(Arc::new(String::new()));
        assert_eq!(Lender::<_, dyn Any>::NONE.offset_in(&rep::<0>(what.clone())), 0);
        let here = Lender::<_, dyn Any>::of(|rep: &Rep<0>| &rep.lent);
        assert_eq!(here.offset_in(&rep(None)), 0, "null");
        assert_ne!(here.offset_in(&rep(what.clone())), 0);
        let behind = Lender::<_, dyn Any>::of(|rep: &Rep<0>| &rep.behind);
        assert_eq!(behind.offset_in(&rep(what.clone())), 0, "elsewhere");
        assert_eq!(Lender::<_, dyn Any>::of(|_: &u8| Box::leak(Box::new(Lent::new(None)))).offset_in(&7), 0);

        /// Its place is beyond what a header can say.
        #[repr(C)]
        struct Far([u8; 1 << 16], Lent<String>);
        let far = Box::new(Far([0; 1 << 16], Lent::new(what)));
        assert_eq!(Lender::<_, dyn Any>::of(|far: &Far| &far.1).offset_in(&far), 0);
        assert_eq!(far.0.len(), 1 << 16);
    }
}
