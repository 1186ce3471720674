//! Plain values stored as machine words in slots, and their conversion back.
//!
//! - I1. A word made by [`to_word`] from a `T` gives a `T` back. Only such words reach [`from_word`]: a slot
//!   holds words made from entries of the table's own types.
//! - I2. The types admitted by [`fits_word`] may be copied bit by bit: they have no drop, no interior
//!   mutability, and no padding.

use squall_sys::sync::Arc;
use std::any::TypeId;
#[cfg(not(loom))]
use std::ffi::OsString;
use std::mem::ManuallyDrop;
#[cfg(not(loom))]
use std::path::PathBuf;

/// Whether `T` is a plain type that fits one word, so that a copy of its bits is a `T` (I2).
///
/// # Cost
/// A constant in optimised builds.
#[inline(always)]
pub(crate) fn fits_word<T: 'static>() -> bool {
    macro_rules! among {
        ($($known:ty),* $(,)?) => { $(TypeId::of::<T>() == TypeId::of::<$known>())||* };
    }
    let known = among!(
        (),
        bool,
        char,
        u8,
        u16,
        u32,
        u64,
        usize,
        i8,
        i16,
        i32,
        i64,
        isize,
        f32,
        f64,
        [u8; 1],
        [u8; 2],
        [u8; 3],
        [u8; 4],
        [u8; 5],
        [u8; 6],
        [u8; 7],
        [u8; 8],
        [u16; 2],
        [u16; 4],
        [u32; 1],
        [u32; 2],
        [u64; 1],
        std::num::NonZeroU8,
        std::num::NonZeroU16,
        std::num::NonZeroU32,
        std::num::NonZeroU64,
        std::num::NonZeroUsize,
        std::num::NonZeroI32,
        std::num::NonZeroI64,
        std::net::Ipv4Addr,
    );
    known && size_of::<T>() <= size_of::<u64>()
}

/// Whether a shared `T` never changes in place, so that all copies of its bits stay equal (layout/I2). Such
/// types have interior mutability behind a pointer at most. Only a list of known types is recognised.
#[inline(always)]
pub(crate) fn has_stable_bits<T: 'static>() -> bool {
    macro_rules! among {
        ($($known:ty),* $(,)?) => { $(TypeId::of::<T>() == TypeId::of::<$known>())||* };
    }
    fits_word::<T>()
        || among!(
            String,
            Box<str>,
            Arc<str>,
            &'static str,
            std::borrow::Cow<'static, str>,
            Vec<u8>,
            Box<[u8]>,
            Arc<[u8]>,
            &'static [u8],
            Vec<u32>,
            Vec<u64>,
            std::path::PathBuf,
            std::ffi::OsString,
            std::ffi::CString,
            std::any::TypeId,
            u128,
            i128,
            [u8; 12],
            [u8; 16],
            [u8; 20],
            [u8; 32],
            [u8; 64],
            [u32; 3],
            [u32; 4],
            [u64; 2],
            [u64; 3],
            [u64; 4],
            (u32, u32),
            (u64, u64),
            (u32, u64),
            (u64, u32),
            (u64, u64, u64),
            (String, String),
            (String, u64),
            (u64, String),
            std::net::Ipv6Addr,
            std::net::IpAddr,
            std::net::SocketAddr,
            std::net::SocketAddrV4,
            std::net::SocketAddrV6,
            std::time::Duration,
            std::time::Instant,
            std::time::SystemTime,
        )
}

/// Words in a slot for a key that needs several. Models use two, to have fewer states.
pub(crate) const WORDS: usize = if cfg!(loom) { 2 } else { 3 };

/// The bits of a key of several words, padded with zeros. They are pointers, so that a pointer in the key
/// keeps its provenance.
pub(crate) type Words = [*mut (); WORDS];

/// Whether `T` fits [`Words`]: its bits are [stable](has_stable_bits), all its bytes are initialised, and it
/// owns at most one allocation.
#[inline(always)]
pub(crate) fn fits_words<T: 'static>() -> bool {
    macro_rules! among {
        ($($known:ty),* $(,)?) => { $(TypeId::of::<T>() == TypeId::of::<$known>())||* };
    }
    let known = among!(
        String,
        Box<str>,
        Arc<str>,
        &'static str,
        Vec<u8>,
        Box<[u8]>,
        Arc<[u8]>,
        &'static [u8],
        std::path::PathBuf,
        std::ffi::OsString,
        [u8; 12],
        [u8; 16],
        [u8; 20],
        [u32; 3],
        [u32; 4],
        [u64; 2],
        [u64; 3],
        (u64, u64),
        (u64, u64, u64),
        std::net::Ipv6Addr,
    );
    known && size_of::<T>() <= size_of::<Words>() && align_of::<T>() <= align_of::<Words>()
}

/// Converts a value that [fits words](fits_words) to its bits. The words own it from then on.
#[inline(always)]
pub(crate) fn to_words<T: 'static>(value: T) -> Words {
    let value = ManuallyDrop::new(value);
    let mut words: Words = [std::ptr::null_mut(); WORDS];
    // SAFETY: the value is no longer than the words and does not overlap them. It is in `ManuallyDrop`, so
    // only the owner of the words drops it.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const *value).cast::<u8>(),
            words.as_mut_ptr().cast::<u8>(),
            size_of::<T>(),
        );
    }
    words
}

/// Views the words as the value they were made from, without moving it. A moved `Box` would claim to be the
/// only owner of its memory; several copies of the words may be read this way.
///
/// # Safety
/// [`to_words`] made them from a `T`, and the memory owned by that value has not been freed.
#[inline(always)]
pub(crate) unsafe fn words_as_ref<T: 'static>(words: &Words) -> &T {
    // SAFETY: 1. the words begin with the bits of a `T` (the caller). 2. their alignment suffices
    // (`fits_words`). 3. a shared `T` does not change (`has_stable_bits`).
    unsafe { &*words.as_ptr().cast::<T>() }
}

/// The memory owned by a value that [fits words](fits_words).
#[cfg(not(loom))]
pub(crate) enum Owned {
    Nothing,
    /// The buffer of a `Vec<u8>` of this capacity, at this address.
    Bytes(*mut (), u32),
    /// One count of an `Arc<[u8]>` of this length, at this address.
    Arc(*mut (), u32),
    /// Some other resource: only the value itself can free it.
    Other,
}

/// Takes apart the value with these bits, and returns the memory that it owns.
///
/// # Safety
/// [`to_words`] made them from a `T`. The caller takes over that memory and frees it once.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn owned<T: 'static>(words: &Words) -> Owned {
    if !std::mem::needs_drop::<T>() {
        return Owned::Nothing;
    }
    /// Reads the value as a `U` if `T` is `U`.
    unsafe fn known<T: 'static, U: 'static>(words: &Words) -> Option<U> {
        // SAFETY: the words begin with the bits of a `T` (the caller), which is a `U`.
        (TypeId::of::<T>() == TypeId::of::<U>()).then(|| unsafe { words.as_ptr().cast::<U>().read() })
    }
    // SAFETY: the caller. At most one value is read, and its memory is passed on.
    let (shared, bytes) = unsafe {
        let shared = known::<T, Arc<str>>(words).map(Arc::<[u8]>::from);
        let bytes = known::<T, String>(words)
            .map(String::into_bytes)
            .or_else(|| known::<T, Vec<u8>>(words))
            .or_else(|| known::<T, Box<str>>(words).map(|text| text.into_boxed_bytes().into_vec()))
            .or_else(|| known::<T, Box<[u8]>>(words).map(<[u8]>::into_vec))
            .or_else(|| known::<T, PathBuf>(words).map(|path| path.into_os_string().into_encoded_bytes()))
            .or_else(|| known::<T, OsString>(words).map(OsString::into_encoded_bytes));
        (shared.or_else(|| known::<T, Arc<[u8]>>(words)), bytes)
    };
    let is_short = |bytes: usize| u32::try_from(bytes).ok();
    if let Some(shared) = shared {
        let bytes = shared.len();
        let data = Arc::into_raw(shared).cast_mut().cast();
        return is_short(bytes).map_or(Owned::Other, |bytes| Owned::Arc(data, bytes));
    }
    let Some(bytes) = bytes else { return Owned::Other };
    let mut bytes = ManuallyDrop::new(bytes);
    let data = bytes.as_mut_ptr().cast();
    match is_short(bytes.capacity()) {
        Some(0) => Owned::Nothing,
        Some(bytes) => Owned::Bytes(data, bytes),
        None => Owned::Other,
    }
}

/// Whether dropping a `T` runs no user code and only frees memory. Holds for all types with stable bits and
/// for types without a drop; other types count as not known.
#[inline(always)]
pub(crate) fn drop_only_frees<T: 'static>() -> bool {
    !std::mem::needs_drop::<T>() || has_stable_bits::<T>()
}

/// Copies a value of a type that [fits a word](fits_word) (I2). Values of other types are not copied.
#[inline(always)]
#[cfg(not(loom))]
pub(crate) fn copy_if_plain<T: 'static>(value: &T) -> Option<T> {
    // SAFETY: a copy of the bits of such a `T` is a `T` (I2).
    fits_word::<T>().then(|| unsafe { std::ptr::read(value) })
}

/// Converts a value that [fits a word](fits_word) to its bits.
#[inline(always)]
pub(crate) fn to_word<T: 'static>(value: &T) -> u64 {
    debug_assert!(fits_word::<T>());
    let mut word = 0u64;
    // SAFETY: 1. the copy has the size of the value, which is at most that of the word. 2. all bytes of the
    // value are initialised: it has no padding (I2).
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(value).cast::<u8>(),
            (&raw mut word).cast::<u8>(),
            size_of::<T>(),
        );
    }
    word
}

/// Converts a word back to the value from which [`to_word`] made it.
///
/// # Safety
/// [`to_word`] made the word from a value of this type.
#[inline(always)]
pub(crate) unsafe fn from_word<T: 'static>(word: u64) -> T {
    debug_assert!(fits_word::<T>());
    // SAFETY: 1. the word's first bytes are those of a `T` (the caller). 2. a copy of a `T` is a `T` (I2). 3.
    // the word is aligned enough: no such type is aligned to more than its size.
    unsafe { std::ptr::read((&raw const word).cast::<T>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: 'static + PartialEq + std::fmt::Debug + Copy>(value: T) {
        assert!(fits_word::<T>());
        // SAFETY: the word is made from a `T`.
        assert_eq!(unsafe { from_word::<T>(to_word(&value)) }, value);
    }

    #[test]
    fn values_of_one_word_round_trip() {
        round_trip(());
        round_trip(true);
        round_trip('ß');
        round_trip(u64::MAX);
        round_trip(-3i8);
        round_trip(-0.5f64);
        round_trip([1u8, 2, 3]);
        round_trip(std::num::NonZeroU32::new(7).unwrap());
    }

    /// Frees the memory owned by a value from its parts, and drops a clone of the value as usual.
    #[cfg(not(loom))]
    fn frees_by_parts<T: 'static + Clone + PartialEq + std::fmt::Debug>(value: T) {
        assert!(fits_words::<T>());
        let words = to_words(value.clone());
        // SAFETY: made from a `T`; freed once.
        unsafe {
            assert_eq!(*words_as_ref::<T>(&words), value);
            match owned::<T>(&words) {
                Owned::Nothing => {}
                Owned::Bytes(data, bytes) => drop(Vec::<u8>::from_raw_parts(data.cast(), 0, bytes as usize)),
                Owned::Arc(data, bytes) => {
                    drop(Arc::from_raw(std::ptr::slice_from_raw_parts(data.cast::<u8>(), bytes as usize)));
                }
                Owned::Other => unreachable!("every type that fits words is known"),
            }
        }
    }

    #[test]
    #[cfg(not(loom))]
    fn keys_of_several_words_round_trip_and_are_freed_by_parts() {
        for text in ["", "a", "as long as a string can be that is written down here"] {
            frees_by_parts(text.to_owned());
            frees_by_parts(String::with_capacity(100) + text);
            frees_by_parts::<Box<str>>(text.into());
            frees_by_parts::<Arc<str>>(text.into());
            frees_by_parts::<Arc<[u8]>>(text.as_bytes().into());
            frees_by_parts::<Box<[u8]>>(text.as_bytes().into());
            frees_by_parts(text.as_bytes().to_vec());
            frees_by_parts(std::path::PathBuf::from(text));
            frees_by_parts(std::ffi::OsString::from(text));
        }
        frees_by_parts("static");
        frees_by_parts([1u64, 2, 3]);
        frees_by_parts([7u8; 20]);
        frees_by_parts((1u64, 2u64));
        frees_by_parts(std::net::Ipv6Addr::LOCALHOST);
        assert!(
            !fits_words::<u64>()
                && !fits_words::<u128>()
                && !fits_words::<(String, String)>()
                && !fits_words::<Vec<u64>>()
        );
    }

    #[test]
    fn owning_mutable_or_long_types_do_not_fit() {
        assert!(!fits_word::<String>());
        assert!(!fits_word::<std::sync::atomic::AtomicU64>());
        assert!(!fits_word::<u128>());
        assert!(!fits_word::<(u8, u32)>());
        assert!(!fits_word::<&'static str>());
    }

    #[test]
    fn a_user_drop_does_not_only_free() {
        struct Mine;
        impl Drop for Mine {
            fn drop(&mut self) {}
        }
        assert!(
            drop_only_frees::<u64>() && drop_only_frees::<String>() && drop_only_frees::<(String, u64)>()
        );
        assert!(
            !drop_only_frees::<Mine>() && !drop_only_frees::<Arc<Mine>>() && !drop_only_frees::<Vec<Mine>>()
        );
    }
}
