//! Layout of a representative's block: a prefix that ends in the owner, the headers, the view's pointers if
//! the root publishes a view, and the author's value.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::call::interface::{Counted, Headers, InterfaceOf};
use crate::call::view::{Lender, ViewWords};
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::reps::Owner;

/// A block with a prefix `P` that ends in its [`Owner`], the headers of interface `I`, room `L` for the
/// view's pointers, and a value `T`.
pub(crate) struct Block<P, I: ?Sized, T, L = NoView>(PhantomData<(P, T, L, *const I)>);

/// The room for the view's pointers.
pub(crate) trait Room {
    const BYTES: usize;
}

/// No room: representatives of this class publish no view.
pub(crate) struct NoView;

impl Room for NoView {
    const BYTES: usize = 0;
}

/// Returns the distance from the first header of a block of interface `I` to the view's pointers, in bytes.
pub(crate) const fn view_at<I: ?Sized + Counted>() -> usize {
    I::INTERFACES as usize * size_of::<Header>()
}

const fn round_up(n: usize, align: usize) -> usize {
    n.div_ceil(align) * align
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

impl<P, I: ?Sized + InterfaceOf<T>, T, L: Room> Block<P, I, T, L> {
    const HEADERS_AT: usize = {
        // The headers follow the owner without a gap.
        assert!(
            size_of::<P>().is_multiple_of(align_of::<Header>())
                && align_of::<Owner>() == align_of::<Header>()
        );
        size_of::<P>()
    };
    const OWNER_AT: usize = Self::HEADERS_AT - size_of::<Owner>();
    pub(crate) const VALUE_AT: usize =
        round_up(Self::HEADERS_AT + view_at::<I>() + L::BYTES, align_of::<T>());
    pub(crate) const ALIGN: usize = max(align_of::<P>(), max(align_of::<Header>(), align_of::<T>()));
    pub(crate) const BYTES: usize = round_up(Self::VALUE_AT + size_of::<T>(), Self::ALIGN);
    pub(crate) const LAYOUT: Layout = match Layout::from_size_align(Self::BYTES, Self::ALIGN) {
        Ok(layout) => layout,
        Err(_) => panic!("the object is larger than the address space"),
    };

    /// Returns the owner in a block.
    ///
    /// # Safety
    /// The pointer may be used for the whole block.
    pub(crate) unsafe fn owner(block: NonNull<P>) -> NonNull<Owner> {
        // SAFETY: within the block.
        unsafe { block.byte_add(Self::OWNER_AT) }.cast()
    }

    /// Returns the value in a block.
    ///
    /// # Safety
    /// The pointer may be used for the whole block.
    #[inline(always)]
    pub(crate) unsafe fn value(block: NonNull<P>) -> NonNull<T> {
        // SAFETY: within the block.
        unsafe { block.byte_add(Self::VALUE_AT) }.cast()
    }

    /// Writes the value and the headers.
    ///
    /// # Safety
    /// The caller's own block, of this layout.
    pub(crate) unsafe fn fill(block: NonNull<P>, id: Option<Id>, value: T) {
        /// Drops the value if [`InterfaceOf::view`] panics.
        struct Written<T>(NonNull<T>);
        impl<T> Drop for Written<T> {
            fn drop(&mut self) {
                // SAFETY: written, and used by no other code.
                unsafe { self.0.drop_in_place() };
            }
        }
        // SAFETY: within the block, which is the caller's; the value is at its final address.
        unsafe {
            let place = Self::value(block);
            place.write(value);
            let written = Written(place);
            let headers = block.byte_add(Self::HEADERS_AT).cast::<Header>();
            Headers::write(id, headers.as_ptr(), I::view(place.as_ref()));
            std::mem::forget(written);
        }
    }

    /// Publishes the view: writes its kind into the header of `I` itself, and its pointers behind the
    /// headers.
    ///
    /// # Safety
    /// The caller's own block, which is filled and not published.
    #[inline]
    pub(crate) unsafe fn publish_view(block: NonNull<P>, lender: &Lender<T, I>) {
        if L::BYTES == 0 {
            return;
        }
        const {
            assert!(
                L::BYTES == 0
                    || L::BYTES == size_of::<ViewWords>() && align_of::<ViewWords>() <= align_of::<Header>()
            )
        };
        // SAFETY: within the block, which is the caller's and filled; there is room for the view's pointers.
        unsafe {
            let (kind, words) = lender.find_view(Self::value(block).as_ref());
            let mut header = block.byte_add(Self::HEADERS_AT).cast::<Header>();
            header.byte_add(view_at::<I>()).cast::<ViewWords>().write(words);
            header.as_mut().set_view(kind);
        }
    }
}
