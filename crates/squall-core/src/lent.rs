//! What a representative lends to whoever calls it, without being asked each time: where in it that lies is told by the header.
//!
//! Problem: a call that only wants a structure which the representative holds asks for it by a virtual call, of a dozen instructions;
//! and where a caller's loads miss the caches, its time goes with the instructions between them. Idea: the structure, or a pointer to
//! it, lies in the representative, and the header says how far into it.
//!
//! - I1. A [`Lent`] holds a count of its `Arc`; it is never written after it was made. So what it points to is valid while it lives.
//! - I2. What a header says of a place is what its root's [`Lender`] found in the representative, which is borrowed, shared, until it is
//!   dropped; so what its interface lends is there until then.

use squall_sync::sync::Arc;
use std::fmt;
use std::marker::PhantomData;
use std::mem::transmute;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use crate::interface::Interface;

/// An `Arc` that knows what it points to, and not where that one's counts are: for what is lent.
pub struct Lent<T>(NonNull<T>, PhantomData<Arc<T>>);

// SAFETY: it is an `Arc`.
unsafe impl<T> Send for Lent<T> where Arc<T>: Send {}
// SAFETY: as above.
unsafe impl<T> Sync for Lent<T> where Arc<T>: Sync {}

impl<T> Lent<T> {
    /// Lends this.
    pub fn new(what: Arc<T>) -> Lent<T> {
        // SAFETY: what an `Arc` points to is somewhere.
        Lent(unsafe { NonNull::new_unchecked(Arc::into_raw(what).cast_mut()) }, PhantomData)
    }
}

impl<T> Deref for Lent<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: I1.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        // SAFETY: from `into_raw`, once (I1).
        drop(unsafe { Arc::from_raw(self.0.as_ptr()) });
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
    /// Of what is there.
    bytes: usize,
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
        let bytes = asked.bytes;
        let Some(offset) = place.checked_sub(ptr::from_ref(rep).addr()) else { return 0 };
        let is_within = offset.checked_add(bytes).is_some_and(|end| end <= size_of::<T>());
        u16::try_from(offset.saturating_add(1)).ok().filter(|_| is_within && bytes > 0).unwrap_or(0)
    }
}

impl<T, I: ?Sized + Lends> Lender<T, I> {
    /// There.
    pub const fn of(place: fn(&T) -> Option<&I::What>) -> Lender<T, I> {
        unsafe fn call<T, I: ?Sized + Lends>(place: fn(), rep: &T) -> *const () {
            // SAFETY: the inverse of what `of` did with the same types.
            let place = unsafe { transmute::<fn(), fn(&T) -> Option<&I::What>>(place) };
            place(rep).map_or(ptr::null(), |what| ptr::from_ref(what).cast())
        }
        // SAFETY: function pointers are of one size; this one is called as what it is only (`call`).
        let place = unsafe { transmute::<fn(&T) -> Option<&I::What>, fn()>(place) };
        Lender {
            asked: Some(Asked { place, call: call::<T, I>, bytes: size_of::<I::What>() }),
            interface: PhantomData,
        }
    }
}

/// What is lent at a place.
///
/// # Safety
/// `offset` is not zero, and is what a `Lender` for `I` found in the representative at `start`, which is not dropped while the result is
/// used (I2).
#[inline(always)]
pub(crate) unsafe fn lent_at<'a, I: ?Sized + Lends>(start: *const (), offset: u16) -> &'a I::What {
    // SAFETY: I2.
    unsafe { &*start.byte_add(usize::from(offset)).byte_sub(1).cast::<I::What>() }
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
        type What = Lent<String>;
    }

    struct Rep<const BEFORE: usize> {
        before: [u8; BEFORE],
        lent: Option<Lent<String>>,
        behind: Box<Option<Lent<String>>>,
    }

    fn rep<const BEFORE: usize>(what: Option<Arc<String>>) -> Rep<BEFORE> {
        let behind = Box::new(what.clone().map(Lent::new));
        Rep { before: [0; BEFORE], lent: what.map(Lent::new), behind }
    }

    #[test]
    fn what_is_lent_is_found_where_it_lies_and_let_go_with_the_representative() {
        let what = Arc::new(String::from("lent"));
        let rep = rep::<9>(Some(what.clone()));
        let offset = Lender::<_, dyn Any>::of(|rep: &Rep<9>| rep.lent.as_ref()).offset_in(&rep);
        assert_eq!(usize::from(offset), std::mem::offset_of!(Rep<9>, lent) + 1);
        // SAFETY: just found.
        let found = unsafe { lent_at::<dyn Any>(ptr::from_ref(&rep).cast(), offset) };
        assert!(ptr::eq(&raw const **found, &raw const *what));
        assert_eq!((Arc::strong_count(&what), rep.before.len()), (3, 9));
        drop(rep);
        assert_eq!(Arc::strong_count(&what), 1);
    }

    #[test]
    fn nothing_is_found_that_is_not_there_or_not_within_or_too_far() {
        let lent = Arc::new(String::new());
        let what = Some(lent.clone());
        assert_eq!(Lender::<_, dyn Any>::NONE.offset_in(&rep::<0>(what.clone())), 0);
        let here = Lender::<_, dyn Any>::of(|rep: &Rep<0>| rep.lent.as_ref());
        assert_eq!(here.offset_in(&rep(None)), 0, "nothing is lent");
        assert_ne!(here.offset_in(&rep(what.clone())), 0);
        let behind = Lender::<_, dyn Any>::of(|rep: &Rep<0>| (*rep.behind).as_ref());
        assert_eq!(behind.offset_in(&rep(what.clone())), 0, "elsewhere");

        /// Its place is beyond what a header can say.
        #[repr(C)]
        struct Far([u8; 1 << 16], Lent<String>);
        let far = Box::new(Far([0; 1 << 16], Lent::new(lent)));
        assert_eq!(Lender::<_, dyn Any>::of(|far: &Far| Some(&far.1)).offset_in(&far), 0);
        assert_eq!(far.0.len(), 1 << 16);
    }
}
