//! Views: a representative may publish a pointer to its main data structure behind its header, so that a call
//! uses it without a virtual call.
//!
//! Problem: a call that needs only a data structure inside the representative (a hash table, say) gets it by
//! a virtual call, which costs a dozen instructions. If the caller's loads miss the cache, those instructions
//! and the dependent loads between them dominate the call.
//! Idea: the header says whether the representative publishes a view, and which one. The pointers of the view
//! follow the headers. So the call finds the structure without entering the representative.
//!
//! An interface declares up to three types of view ([`Lends`]): the first, with an optional companion, the
//! second and the third. A representative publishes one of them. Its root names the function that finds it
//! ([`Lender`]). The interface is marked `lends`, and objects of other interfaces have neither the words nor
//! the tests.
//!
//! - I1. The pointers behind a header are those that the root's [`Lender`] found in the representative. That
//!   borrow is shared and lasts until the representative is dropped, so the view is valid until then.
//! - I2. Room for the pointers exists behind the headers of representatives whose root has a `Lender`. A
//!   header that announces a view is one of those (`layout`).
//! - I3. The comparison of ids, which every call makes, also tests for the first view, the most frequent one.
//!   The header stores a sign beside its id, which agrees with the view's kind (`header/I1`).

use std::fmt;
use std::mem::transmute;
use std::ptr;

use crate::call::interface::Interface;
use crate::protocol::header::{FIRST, NO_VIEW, SECOND, THIRD};

/// An interface whose representatives may publish a view.
pub trait Lends: Interface {
    /// The type of the first view.
    type First: Send + Sync + 'static;
    /// The type of the companion that may accompany the first view.
    type Beside: Send + Sync + 'static;
    /// The type of the second view.
    type Second: Send + Sync + 'static;
    /// The type of the third view.
    type Third: Send + Sync + 'static;
}

/// A view that a representative publishes.
pub enum Lent<'a, I: ?Sized + Lends> {
    /// The first view and its companion.
    First(&'a I::First, Option<&'a I::Beside>),
    /// The second view.
    Second(&'a I::Second),
    /// The third view.
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

/// The pointers behind the headers.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ViewWords {
    view: *const (),
    beside: *const (),
}

/// Finds the view of a representative of type `T` with the interface `I`. Most classes publish none.
pub struct Lender<T, I: ?Sized> {
    finder: Option<Finder<T>>,
    interface: std::marker::PhantomData<fn(&I)>,
}

/// The function that finds the view, with its type erased, and the function that restores the type and calls
/// it.
struct Finder<T> {
    find: fn(),
    call: Call<T>,
}

/// # Safety
/// Called with the function stored beside it.
type Call<T> = unsafe fn(fn(), &T) -> (u8, ViewWords);

impl<T, I: ?Sized> fmt::Debug for Lender<T, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lender").field(&self.lends()).finish()
    }
}

impl<T, I: ?Sized> Lender<T, I> {
    /// Publishes no view.
    pub const NONE: Lender<T, I> = Lender { finder: None, interface: std::marker::PhantomData };

    /// Whether representatives may publish a view.
    pub(crate) const fn lends(&self) -> bool {
        self.finder.is_some()
    }

    /// Returns the kind and the pointers of the representative's view, for its header and the words behind
    /// it.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn find_view(&self, rep: &T) -> (u8, ViewWords) {
        match &self.finder {
            // SAFETY: `call` and `find` belong together.
            Some(finder) => unsafe { (finder.call)(finder.find, rep) },
            None => (NO_VIEW, ViewWords { view: ptr::null(), beside: ptr::null() }),
        }
    }
}

/// The typed function of a [`Lender`].
type FindView<T, I> = for<'a> fn(&'a T) -> Option<Lent<'a, I>>;

impl<T, I: ?Sized + Lends> Lender<T, I> {
    /// Makes a `Lender` from the function that finds the view.
    pub const fn of(find: FindView<T, I>) -> Lender<T, I> {
        const {
            assert!(
                I::LENDS,
                "mark an interface that implements `Lends` with `#[interface(crate = …, lends)]`"
            )
        };
        unsafe fn call<T, I: ?Sized + Lends>(find: fn(), rep: &T) -> (u8, ViewWords) {
            // SAFETY: the inverse of the transmutation in `of`, with the same types.
            let find = unsafe { transmute::<fn(), FindView<T, I>>(find) };
            let (kind, view, beside) = match find(rep) {
                Some(Lent::First(first, beside)) => (
                    FIRST,
                    ptr::from_ref(first).cast(),
                    beside.map_or(ptr::null(), |b| ptr::from_ref(b).cast()),
                ),
                Some(Lent::Second(second)) => (SECOND, ptr::from_ref(second).cast(), ptr::null()),
                Some(Lent::Third(third)) => (THIRD, ptr::from_ref(third).cast(), ptr::null()),
                None => (NO_VIEW, ptr::null(), ptr::null()),
            };
            (kind, ViewWords { view, beside })
        }
        // SAFETY: function pointers have one size; `call` restores the type before the call.
        let find = unsafe { transmute::<FindView<T, I>, fn()>(find) };
        Lender { finder: Some(Finder { find, call: call::<T, I> }), interface: std::marker::PhantomData }
    }
}

/// Returns the first view if the header's `kind` announces it. `words` are the pointers behind that header.
///
/// # Safety
/// A `Lender` for `I` found the pointers in a representative that is not dropped while the result is used
/// (I1). If `kind` announces no view, the words need not exist.
#[inline(always)]
pub(crate) unsafe fn first<'a, I: ?Sized + Lends>(kind: u8, words: *const ViewWords) -> Option<&'a I::First> {
    // SAFETY: I1: as `of` wrote them.
    (kind & FIRST != 0).then(|| unsafe { &*(*words).view.cast() })
}

/// Returns the companion of the first view.
///
/// # Safety
/// The conditions of [`first`] hold.
#[inline(always)]
pub(crate) unsafe fn beside<'a, I: ?Sized + Lends>(
    kind: u8,
    words: *const ViewWords,
) -> Option<&'a I::Beside> {
    // SAFETY: I1: as `of` wrote them.
    if kind & FIRST != 0 { unsafe { (*words).beside.cast::<I::Beside>().as_ref() } } else { None }
}

/// Returns the second view.
///
/// # Safety
/// The conditions of [`first`] hold.
#[inline(always)]
pub(crate) unsafe fn second<'a, I: ?Sized + Lends>(
    kind: u8,
    words: *const ViewWords,
) -> Option<&'a I::Second> {
    // SAFETY: I1: as `of` wrote them.
    (kind & SECOND != 0).then(|| unsafe { &*(*words).view.cast() })
}

/// Returns the third view.
///
/// # Safety
/// The conditions of [`first`] hold.
#[inline(always)]
pub(crate) unsafe fn third<'a, I: ?Sized + Lends>(kind: u8, words: *const ViewWords) -> Option<&'a I::Third> {
    // SAFETY: I1: as `of` wrote them.
    (kind & THIRD != 0).then(|| unsafe { &*(*words).view.cast() })
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
        let (kind, words) = lender.find_view(rep);
        let words = &raw const words;
        // SAFETY: the pointers were found just now, in a representative that is borrowed.
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
    fn a_published_view_is_the_one_that_the_representative_gives() {
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
    fn a_representative_without_a_view_publishes_none() {
        let rep = Rep { behind: Arc::new(String::new()), beside: [0; 9], second: 0 };
        assert!(found(&Lender::of(|_: &Rep| None), &rep).is_none());
        assert!(found(&Lender::NONE, &rep).is_none());
        assert!(!Lender::<Rep, dyn Any>::NONE.lends());
    }
}
