//! Layout of a representative's block: a prefix that ends in the owner, the headers, the view if the
//! interface has views, and the author's value.

use std::alloc::Layout;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::call::interface::{Headers, InterfaceOf};
use crate::call::view::{MakeView, view_at, view_bytes, write_view};
use crate::protocol::header::Header;
use crate::protocol::id::Id;
use crate::protocol::reps::Owner;

/// A block with a prefix `P` that ends in its [`Owner`], the headers of interface `I`, its view, and a value
/// `T`.
pub(crate) struct Block<P, I: ?Sized, T>(PhantomData<(P, T, *const I)>);

const fn round_up(n: usize, align: usize) -> usize {
    n.div_ceil(align) * align
}

const fn max(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

impl<P, I: ?Sized + InterfaceOf<T>, T> Block<P, I, T> {
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
        round_up(Self::HEADERS_AT + view_at::<I>() + view_bytes::<I>(), align_of::<T>());
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

    /// Writes the value, the headers and the view.
    ///
    /// # Safety
    /// The caller's own block, of this layout.
    pub(crate) unsafe fn fill(block: NonNull<P>, id: Option<Id>, value: T, view: MakeView<T, I>) {
        /// Drops the value if [`InterfaceOf::view`] or `view` panics.
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
            write_view::<T, I>(headers, place, view);
            std::mem::forget(written);
        }
    }
}
