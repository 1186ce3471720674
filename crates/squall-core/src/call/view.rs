//! What a representative lends to whoever calls it, without being asked each time: where that is the words behind its header say.
//!
//! Problem: a call that only wants a structure which the representative holds asks for it by a virtual call, of a dozen instructions;
//! and where a caller's loads miss the caches, its time goes with the instructions between them, and with the loads that each wait for the one
//! before. Idea: the header says what is lent, and the words behind it where that is, so that a call does not come to the representative.
//!
//! - I1. What the words behind a header say is what its root's [`Lender`] found in the representative, which is borrowed, shared, until it is
//!   dropped; so what its interface lends is there until then.
//! - I2. Room for the words is behind the headers of the representatives whose root has a `Lender`; a header that says that something is
//!   lent is one of those (`layout`).
//! - I3. Whether the first thing is lent, which is lent most, a call learns by the comparison of ids that it makes anyway: beside its id a
//!   header has a sign, which says the same as its kind (`header/I1`).

use std::fmt;
use std::mem::transmute;
use std::ptr;

use crate::call::interface::Interface;
use crate::protocol::header::{FIRST, NO_VIEW, SECOND, THIRD};

/// An interface whose representatives may lend something: one thing, perhaps with another beside it, or a second thing, or a third.
pub trait Lends: Interface {
    /// The one.
    type First: Send + Sync + 'static;
    /// What may be beside it.
    type Beside: Send + Sync + 'static;
    /// The second.
    type Second: Send + Sync + 'static;
    /// The third.
    type Third: Send + Sync + 'static;
}

/// What is lent.
pub enum Lent<'a, I: ?Sized + Lends> {
    /// The one, and what is beside it.
    First(&'a I::First, Option<&'a I::Beside>),
    /// The second.
    Second(&'a I::Second),
    /// The third.
    Third(&'a I::Third),
}

impl<I: ?Sized + Lends> fmt::Debug for Lent<'_, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lent::First(..) => "First",
            Lent::Second(_) => "Second",
            Lent::Third(_) => "Third",
        })
    }
}

/// The words behind the headers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    what: *const (),
    beside: *const (),
}

/// What representatives of type `T` lend who calls them as `I`; most lend nothing.
pub struct Lender<T, I: ?Sized> {
    asked: Option<Asked<T>>,
    interface: std::marker::PhantomData<fn(&I)>,
}

/// The function that says what, without its type, and who calls it.
struct Asked<T> {
    what: fn(),
    call: Call<T>,
}

/// # Safety
/// It is called with the function that it is beside.
type Call<T> = unsafe fn(fn(), &T) -> (u8, Words);

impl<T, I: ?Sized> fmt::Debug for Lender<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lender").field(&self.lends()).finish()
    }
}

impl<T, I: ?Sized> Lender<T, I> {
    /// Nothing.
    pub const NONE: Lender<T, I> = Lender { asked: None, interface: std::marker::PhantomData };

    /// Whether there is something to lend, perhaps.
    pub(crate) const fn lends(&self) -> bool {
        self.asked.is_some()
    }

    /// What a representative lends, as its header and the words behind it say it.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn ask(&self, rep: &T) -> (u8, Words) {
        match &self.asked {
            // SAFETY: the two are each other's.
            Some(asked) => unsafe { (asked.call)(asked.what, rep) },
            None => (NO_VIEW, Words { what: ptr::null(), beside: ptr::null() }),
        }
    }
}

/// What a [`Lender`] asks.
type What<T, I> = for<'a> fn(&'a T) -> Option<Lent<'a, I>>;

impl<T, I: ?Sized + Lends> Lender<T, I> {
    /// This.
    pub const fn of(what: What<T, I>) -> Lender<T, I> {
        const { assert!(I::LENDS, "an interface that `Lends` is marked so: `#[interface(crate = …, lends)]`") };
        unsafe fn call<T, I: ?Sized + Lends>(what: fn(), rep: &T) -> (u8, Words) {
            // SAFETY: the inverse of what `of` did with the same types.
            let what = unsafe { transmute::<fn(), What<T, I>>(what) };
            let (kind, what, beside) = match what(rep) {
                Some(Lent::First(first, beside)) => (
                    FIRST,
                    ptr::from_ref(first).cast(),
                    beside.map_or(ptr::null(), |b| ptr::from_ref(b).cast()),
                ),
                Some(Lent::Second(second)) => (SECOND, ptr::from_ref(second).cast(), ptr::null()),
                Some(Lent::Third(third)) => (THIRD, ptr::from_ref(third).cast(), ptr::null()),
                None => (NO_VIEW, ptr::null(), ptr::null()),
            };
            (kind, Words { what, beside })
        }
        // SAFETY: function pointers are of one size; this one is called as what it is only (`call`).
        let what = unsafe { transmute::<What<T, I>, fn()>(what) };
        Lender { asked: Some(Asked { what, call: call::<T, I> }), interface: std::marker::PhantomData }
    }
}

/// What is lent first, if `kind`, which a header says, says so; behind that header are these words.
///
/// # Safety
/// A `Lender` for `I` found them in a representative that is not dropped while the result is used (I1); if `kind` is nothing, there need be no
/// words.
#[inline(always)]
pub(crate) unsafe fn first<'a, I: ?Sized + Lends>(kind: u8, words: *const Words) -> Option<&'a I::First> {
    // SAFETY: I1: as `of` wrote them.
    (kind & FIRST != 0).then(|| unsafe { &*(*words).what.cast() })
}

/// What is lent beside the first.
///
/// # Safety
/// As of [`first`].
#[inline(always)]
pub(crate) unsafe fn beside<'a, I: ?Sized + Lends>(kind: u8, words: *const Words) -> Option<&'a I::Beside> {
    // SAFETY: I1: as `of` wrote them.
    if kind & FIRST != 0 { unsafe { (*words).beside.cast::<I::Beside>().as_ref() } } else { None }
}

/// What is lent second.
///
/// # Safety
/// As of [`first`].
#[inline(always)]
pub(crate) unsafe fn second<'a, I: ?Sized + Lends>(kind: u8, words: *const Words) -> Option<&'a I::Second> {
    // SAFETY: I1: as `of` wrote them.
    (kind & SECOND != 0).then(|| unsafe { &*(*words).what.cast() })
}

/// What is lent third.
///
/// # Safety
/// As of [`first`].
#[inline(always)]
pub(crate) unsafe fn third<'a, I: ?Sized + Lends>(kind: u8, words: *const Words) -> Option<&'a I::Third> {
    // SAFETY: I1: as `of` wrote them.
    (kind & THIRD != 0).then(|| unsafe { &*(*words).what.cast() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;
    use crate::call::interface::Super;
    use squall_sys::sync::Arc;

    trait Any: Send + Sync {}
    impl Interface for dyn Any {
        const LENDS: bool = true;
        const NAME: &'static str = "Any";
        const SOURCE: Source = Source { file: "", line: 0 };
        const SUPERS: &'static [Super<Self>] = &[];
    }
    impl Lends for dyn Any {
        type First = String;
        type Beside = [u8; 9];
        type Second = u32;
        type Third = u8;
    }

    struct Rep {
        behind: Arc<String>,
        beside: [u8; 9],
        second: u32,
    }

    fn found<'a>(lender: &Lender<Rep, dyn Any>, rep: &'a Rep) -> Option<Lent<'a, dyn Any>> {
        let (kind, words) = lender.ask(rep);
        let words = &raw const words;
        // SAFETY: found just now, in a representative that is borrowed.
        unsafe {
            let first =
                first::<dyn Any>(kind, words).map(|first| Lent::First(first, beside::<dyn Any>(kind, words)));
            let second = second::<dyn Any>(kind, words).map(Lent::Second);
            let third = third::<dyn Any>(kind, words).map(Lent::Third);
            let kinds = [first.is_some(), second.is_some(), third.is_some()];
            assert!(kinds.iter().filter(|is| **is).count() <= 1, "{kinds:?}");
            assert!(first.is_some() || beside::<dyn Any>(kind, words).is_none());
            first.or(second).or(third)
        }
    }

    #[test]
    fn what_is_lent_is_what_the_representative_says() {
        let rep = Rep { behind: Arc::new(String::from("lent")), beside: [7; 9], second: 3 };
        let first = Lender::of(|rep: &Rep| Some(Lent::First(&*rep.behind, None)));
        assert!(first.lends());
        let Some(Lent::First(what, None)) = found(&first, &rep) else { panic!("the first alone") };
        assert!(ptr::eq(what, &raw const *rep.behind));
        let both = Lender::of(|rep: &Rep| Some(Lent::First(&*rep.behind, Some(&rep.beside))));
        let Some(Lent::First(what, Some(beside))) = found(&both, &rep) else { panic!("both") };
        assert_eq!((what.as_str(), beside), ("lent", &[7; 9]));
        let second = Lender::of(|rep: &Rep| Some(Lent::Second(&rep.second)));
        assert!(matches!(found(&second, &rep), Some(Lent::Second(3))));
        let third = Lender::of(|rep: &Rep| Some(Lent::Third(&rep.beside[8])));
        assert!(matches!(found(&third, &rep), Some(Lent::Third(7))));
    }

    #[test]
    fn nothing_is_found_where_nothing_is_lent() {
        let rep = Rep { behind: Arc::new(String::new()), beside: [0; 9], second: 0 };
        assert!(found(&Lender::of(|_: &Rep| None), &rep).is_none());
        assert!(found(&Lender::NONE, &rep).is_none());
        assert!(!Lender::<Rep, dyn Any>::NONE.lends());
    }
}
