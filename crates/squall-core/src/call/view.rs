//! Views: a representative may publish a copy of pointers to its main data structure behind its headers, so
//! that a call uses it without a virtual call.
//!
//! Problem: a call that needs only a data structure inside the representative (a hash table, say) gets it by
//! a virtual call, which costs a dozen instructions. If the caller's loads miss the cache, those instructions
//! and the dependent loads between them dominate the call. Idea: an interface names one type of view, which
//! holds references. The view of a representative lies behind its headers, so the call finds the structure
//! without entering the representative. The default of the type says that there is no view; `()` is the type
//! of interfaces without views.
//!
//! - I1. Every block of an interface has room for its view behind the headers, and the view is written before
//!   the first header is published. So a call that found the header reads a complete view.
//! - I2. The view was made from a borrow of the representative, at its final address. That borrow is shared
//!   and lasts until the representative is dropped, so the view is valid as long as the header.
//! - I3. No interface extends an interface with views ([`Super::new`](crate::call::interface::Super::new)
//!   checks it). So a header of such an interface is the first of its block, and the block was made for that
//!   interface.

use crate::call::interface::Interface;
use crate::protocol::header::Header;
use std::ptr::NonNull;

/// The function that makes the view of a representative.
pub(crate) type MakeView<T, I> = for<'rep> fn(&'rep T) -> <I as Interface>::View<'rep>;

/// Returns the size of a view's words in bytes. It is zero if the interface has no views.
pub(crate) const fn view_bytes<I: ?Sized + Interface>() -> usize {
    const { assert!(align_of::<I::View<'static>>() <= align_of::<Header>(), "the view is aligned too much") };
    size_of::<I::View<'static>>()
}

/// Returns the distance from the first header of a block for interface `I` to its view, in bytes.
pub(crate) const fn view_at<I: ?Sized + crate::call::interface::Counted>() -> usize {
    I::INTERFACES as usize * size_of::<Header>()
}

/// Makes the view of a representative and writes it behind the headers (I1).
///
/// # Safety
/// `first` is the first header of the caller's own block for interface `I`. `rep` is the value of that block,
/// at its final address.
pub(crate) unsafe fn write_view<T, I: ?Sized + Interface>(
    first: NonNull<Header>,
    rep: NonNull<T>,
    make: MakeView<T, I>,
) {
    // SAFETY: there is room behind the headers (I1). The view borrows the representative until it is dropped
    // (I2).
    unsafe { first.byte_add(view_at::<I>()).cast::<I::View<'_>>().write(make(rep.as_ref())) };
}

/// Returns the view behind the header.
///
/// # Safety
/// The header belongs to interface `I`, was found in an operation that lasts for `'o`, and its pointer may be
/// used for the whole block.
#[inline(always)]
pub(crate) unsafe fn read_view<'o, I: ?Sized + Interface>(header: NonNull<Header>) -> I::View<'o> {
    // SAFETY: written behind the first header (I1, I3), and valid for the operation (I2). Views are covariant
    // in their lifetime (`Interface::__shorten`), so a shorter one may be read.
    unsafe { header.byte_add(view_at::<I>()).cast::<I::View<'o>>().read() }
}
