//! Compiled functions: the slow paths of a table, compiled once in this crate.
//!
//! Problem: a crate that calls a generic function compiles it again, even for types of another crate. So each
//! program would compile the slow paths for all four kinds of slots.
//! Idea: a method of a trait, implemented for a type without parameters, is compiled where it is implemented.
//! Typed code calls these methods in place of the generic functions that they contain.
//!
//! Typed code must not call the functions of [`Raw`] with these names, which are generic.
//!
//! Cost: a virtual call for each comparison and each hash of a key on a slow path.

use crate::table::raw::{Found, Raw};
use crate::table::slots::{DynHash, DynIsKey, FlatSlots, NodeSlots, Slots, SplitSlots, WideSlots};
use crate::table::write::{Change, Written};

/// Slots with compiled functions. Each has the contract of the function of [`Raw`] with its name.
pub(crate) trait Compiled: Slots {
    /// # Panics
    /// As [`Raw::new`].
    fn new(entries: usize) -> Raw<Self>;
    /// # Safety
    /// As [`Raw::free_entries`]. The table is dropped, too.
    unsafe fn free(raw: Raw<Self>, free: &mut dyn FnMut(Self::Raw));
    /// # Safety
    /// As [`Raw::find`].
    unsafe fn find<'a>(raw: &'a Raw<Self>, hash: u64, is_key: DynIsKey<'_, Self>) -> Option<Found<'a, Self>>;
    /// # Safety
    /// As [`Raw::write`].
    unsafe fn write(
        raw: &Raw<Self>,
        hash: u64,
        is_key: DynIsKey<'_, Self>,
        rehash: DynHash<'_, Self>,
        change: &Change<Self>,
        is_made: &mut bool,
    ) -> Written<Self>;
    /// # Safety
    /// As [`Raw::change`].
    unsafe fn change(
        raw: &Raw<Self>,
        found: Found<'_, Self>,
        is_key: DynIsKey<'_, Self>,
        rehash: DynHash<'_, Self>,
        new: Option<Self::Raw>,
        is_made: &mut bool,
    ) -> Written<Self>;
    /// # Safety
    /// As [`Raw::resize`].
    unsafe fn resize(raw: &Raw<Self>, rehash: DynHash<'_, Self>);
    /// # Safety
    /// As [`Raw::resize_if_sampled`].
    unsafe fn resize_if_sampled(raw: &Raw<Self>, mixed: u64, rehash: DynHash<'_, Self>);
    /// # Safety
    /// As [`Raw::resize_to`].
    unsafe fn resize_to(raw: &Raw<Self>, entries: usize, less: bool, rehash: DynHash<'_, Self>) -> bool;
    /// # Safety
    /// As [`Raw::visit`].
    unsafe fn visit(
        raw: &Raw<Self>,
        from: u64,
        rehash: DynHash<'_, Self>,
        f: &mut dyn FnMut(Self::Raw),
    ) -> Option<u64>;
    /// # Safety
    /// As [`Raw::collect`].
    unsafe fn collect(raw: &Raw<Self>, from: u64, entries: &mut Vec<Self::Raw>) -> Option<u64>;
}

/// Implements [`Compiled`] by plain functions.
macro_rules! compile {
    ($($slots:ty),*) => { $(
        impl Compiled for $slots {
            fn new(entries: usize) -> Raw<Self> {
                Raw::new(entries)
            }

            unsafe fn free(mut raw: Raw<Self>, free: &mut dyn FnMut(Self::Raw)) {
                // SAFETY: the caller. The table is dropped here, after a panic too.
                unsafe { raw.free_entries(free) };
            }

            #[inline(never)]
            unsafe fn find<'a>(
                raw: &'a Raw<Self>,
                hash: u64,
                is_key: DynIsKey<'_, Self>,
            ) -> Option<Found<'a, Self>> {
                // SAFETY: the caller.
                unsafe { raw.find(hash, is_key) }
            }

            #[inline(never)]
            unsafe fn write(
                raw: &Raw<Self>,
                hash: u64,
                is_key: DynIsKey<'_, Self>,
                rehash: DynHash<'_, Self>,
                change: &Change<Self>,
                is_made: &mut bool,
            ) -> Written<Self> {
                // SAFETY: the caller.
                unsafe { raw.write(hash, is_key, rehash, change, is_made) }
            }

            #[inline(never)]
            unsafe fn change(
                raw: &Raw<Self>,
                found: Found<'_, Self>,
                is_key: DynIsKey<'_, Self>,
                rehash: DynHash<'_, Self>,
                new: Option<Self::Raw>,
                is_made: &mut bool,
            ) -> Written<Self> {
                // SAFETY: the caller.
                unsafe { raw.change(found, is_key, rehash, new, is_made) }
            }

            #[cold]
            #[inline(never)]
            unsafe fn resize(raw: &Raw<Self>, rehash: DynHash<'_, Self>) {
                // SAFETY: the caller.
                unsafe { raw.resize(rehash) };
            }

            #[cold]
            #[inline(never)]
            unsafe fn resize_if_sampled(raw: &Raw<Self>, mixed: u64, rehash: DynHash<'_, Self>) {
                // SAFETY: the caller.
                unsafe { raw.resize_if_sampled(mixed, rehash) };
            }

            unsafe fn resize_to(
                raw: &Raw<Self>,
                entries: usize,
                less: bool,
                rehash: DynHash<'_, Self>,
            ) -> bool {
                // SAFETY: the caller.
                unsafe { raw.resize_to(entries, less, rehash) }
            }

            unsafe fn visit(
                raw: &Raw<Self>,
                from: u64,
                rehash: DynHash<'_, Self>,
                f: &mut dyn FnMut(Self::Raw),
            ) -> Option<u64> {
                // SAFETY: the caller.
                unsafe { raw.visit(from, rehash, f) }
            }

            unsafe fn collect(raw: &Raw<Self>, from: u64, entries: &mut Vec<Self::Raw>) -> Option<u64> {
                // SAFETY: the caller.
                unsafe { raw.collect(from, entries) }
            }
        }
    )* };
}

compile!(FlatSlots, WideSlots, NodeSlots, SplitSlots);
