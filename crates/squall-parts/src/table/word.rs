//! Which values fit a word of the table, and how they get there and back.
//!
//! - I1. A word that [`to_word`] made of a `T` gives a `T` back, and only such a word is ever given to [`from_word`]: slots
//!   hold what an entry of the table's own types was made of, whichever entry that was.
//! - I2. The types that [`fits`] admits are as good copied as moved: they have no drop, no interior mutability, and no padding.

use squall_sys::sync::Arc;
use std::any::TypeId;
#[cfg(not(loom))]
use std::ffi::OsString;
use std::mem::ManuallyDrop;
#[cfg(not(loom))]
use std::path::PathBuf;

/// Whether a `T` is one of the types of which a copy of the bits is a `T`, and which fit a word (I2).
///
/// # Cost
/// None where it is optimised: a constant then.
#[inline(always)]
pub(crate) fn fits<T: 'static>() -> bool {
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

/// Whether nothing of a `T` itself changes while it is shared, so that its bits are the same wherever they are copied (layout/I2): types
/// without interior mutability but behind a pointer. Others may be so, too; only known ones can be told.
#[inline(always)]
pub(crate) fn stays<T: 'static>() -> bool {
    macro_rules! among {
        ($($known:ty),* $(,)?) => { $(TypeId::of::<T>() == TypeId::of::<$known>())||* };
    }
    fits::<T>()
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

/// Words of a slot for a key that does not fit one; fewer where each is one more for a model to try.
pub(crate) const WORDS: usize = if cfg!(loom) { 2 } else { 3 };

/// The bits of such a key, with zeros after them: as pointers, since some are, and shall be pointers when they come back.
pub(crate) type Words = [*mut (); WORDS];

/// Whether a `T` is one of the types that [`stay`](stays), all of whose bytes are initialised, which fit these words, and which own at
/// most one allocation.
#[inline(always)]
pub(crate) fn spans<T: 'static>() -> bool {
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

/// The bits of a value that [`spans`], which goes into them.
#[inline(always)]
pub(crate) fn to_words<T: 'static>(value: T) -> Words {
    let value = ManuallyDrop::new(value);
    let mut words: Words = [std::ptr::null_mut(); WORDS];
    // SAFETY: the value is no longer than the words, which are no part of it; it is dropped by nobody but whoever has the words.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const *value).cast::<u8>(),
            words.as_mut_ptr().cast::<u8>(),
            size_of::<T>(),
        );
    }
    words
}

/// The value whose bits the words are, where they lie: never moved, so that of a type which says that nobody else has what it owns there
/// may be many copies that are only looked at.
///
/// # Safety
/// [`to_words`] made them of a `T`, and what that owns has not been given back.
#[inline(always)]
pub(crate) unsafe fn of_words<T: 'static>(words: &Words) -> &T {
    // SAFETY: 1. the words begin with the bits of a `T` (the caller). 2. aligned as they are, or more than it asks for (`spans`). 3. nothing
    // of it changes while it is shared: it `stays`.
    unsafe { &*words.as_ptr().cast::<T>() }
}

/// What a value that [`spans`] owns.
#[cfg(not(loom))]
pub(crate) enum Owned {
    Nothing,
    /// What a `Vec<u8>` of this capacity has at this address.
    Bytes(*mut (), u32),
    /// A share in what an `Arc<[u8]>` of this length has.
    Arc(*mut (), u32),
    /// More than could be told so: the value itself says.
    Other,
}

/// What the value owns whose bits these are.
///
/// # Safety
/// [`to_words`] made them of a `T`. What it owns is the caller's to give back, once.
#[cfg(not(loom))]
#[inline(always)]
pub(crate) unsafe fn owned<T: 'static>(words: &Words) -> Owned {
    if !std::mem::needs_drop::<T>() {
        return Owned::Nothing;
    }
    /// The value, if its type is that one.
    unsafe fn known<T: 'static, U: 'static>(words: &Words) -> Option<U> {
        // SAFETY: the words begin with the bits of a `T` (the caller), which is a `U`.
        (TypeId::of::<T>() == TypeId::of::<U>()).then(|| unsafe { words.as_ptr().cast::<U>().read() })
    }
    // SAFETY: the caller. One of these is made, and what it owns passed on.
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

/// Whether a drop of a `T` runs no code of the users' and gives nothing but memory back: so do those of all types that are known to
/// [`stays`]. Others may be so, too.
#[inline(always)]
pub(crate) fn is_memory<T: 'static>() -> bool {
    !std::mem::needs_drop::<T>() || stays::<T>()
}

/// A copy of a value, if its type is one of those of which a copy of the bits is one (I2).
#[inline(always)]
#[cfg(not(loom))]
pub(crate) fn copied<T: 'static>(value: &T) -> Option<T> {
    // SAFETY: a copy of a `T` is a `T` (I2), as good as the value itself.
    fits::<T>().then(|| unsafe { std::ptr::read(value) })
}

/// The bits of a value that [`fits`].
#[inline(always)]
pub(crate) fn to_word<T: 'static>(value: &T) -> u64 {
    debug_assert!(fits::<T>());
    let mut word = 0u64;
    // SAFETY: 1. the value is as long as said, and of no more bytes than the word. 2. all of its bytes are initialised: it
    // has no padding (I2).
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(value).cast::<u8>(),
            (&raw mut word).cast::<u8>(),
            size_of::<T>(),
        );
    }
    word
}

/// The value of which [`to_word`] made the word.
///
/// # Safety
/// It did, for this type.
#[inline(always)]
pub(crate) unsafe fn from_word<T: 'static>(word: u64) -> T {
    debug_assert!(fits::<T>());
    // SAFETY: 1. the word's first bytes are those of a `T` (the caller). 2. a copy of a `T` is a `T` (I2). 3. it is aligned
    // enough: no type that fits is aligned to more than its size.
    unsafe { std::ptr::read((&raw const word).cast::<T>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: 'static + PartialEq + std::fmt::Debug + Copy>(value: T) {
        assert!(fits::<T>());
        // SAFETY: the word is made of a `T`.
        assert_eq!(unsafe { from_word::<T>(to_word(&value)) }, value);
    }

    #[test]
    fn what_fits_comes_back_as_it_was() {
        there_and_back(());
        there_and_back(true);
        there_and_back('ß');
        there_and_back(u64::MAX);
        there_and_back(-3i8);
        there_and_back(-0.5f64);
        there_and_back([1u8, 2, 3]);
        there_and_back(std::num::NonZeroU32::new(7).unwrap());
    }

    /// Gives back by its parts what it owns, and by itself a copy of the same.
    #[cfg(not(loom))]
    fn given_back<T: 'static + Clone + PartialEq + std::fmt::Debug>(value: T) {
        assert!(spans::<T>());
        let words = to_words(value.clone());
        // SAFETY: made of a `T`; given back once.
        unsafe {
            assert_eq!(*of_words::<T>(&words), value);
            match owned::<T>(&words) {
                Owned::Nothing => {}
                Owned::Bytes(data, bytes) => drop(Vec::<u8>::from_raw_parts(data.cast(), 0, bytes as usize)),
                Owned::Arc(data, bytes) => {
                    drop(Arc::from_raw(std::ptr::slice_from_raw_parts(data.cast::<u8>(), bytes as usize)));
                }
                Owned::Other => unreachable!("all that span are known"),
            }
        }
    }

    #[test]
    #[cfg(not(loom))]
    fn what_spans_words_comes_back_and_is_given_back_by_its_parts() {
        for text in ["", "a", "as long as a string can be that is written down here"] {
            given_back(text.to_owned());
            given_back(String::with_capacity(100) + text);
            given_back::<Box<str>>(text.into());
            given_back::<Arc<str>>(text.into());
            given_back::<Arc<[u8]>>(text.as_bytes().into());
            given_back::<Box<[u8]>>(text.as_bytes().into());
            given_back(text.as_bytes().to_vec());
            given_back(std::path::PathBuf::from(text));
            given_back(std::ffi::OsString::from(text));
        }
        given_back("static");
        given_back([1u64, 2, 3]);
        given_back([7u8; 20]);
        given_back((1u64, 2u64));
        given_back(std::net::Ipv6Addr::LOCALHOST);
        assert!(!spans::<u64>() && !spans::<u128>() && !spans::<(String, String)>() && !spans::<Vec<u64>>());
    }

    #[test]
    fn what_owns_or_changes_or_is_too_long_does_not_fit() {
        assert!(!fits::<String>());
        assert!(!fits::<std::sync::atomic::AtomicU64>());
        assert!(!fits::<u128>());
        assert!(!fits::<(u8, u32)>());
        assert!(!fits::<&'static str>());
    }

    #[test]
    fn a_drop_that_may_be_the_users_is_not_only_memory() {
        struct Mine;
        impl Drop for Mine {
            fn drop(&mut self) {}
        }
        assert!(is_memory::<u64>() && is_memory::<String>() && is_memory::<(String, u64)>());
        assert!(!is_memory::<Mine>() && !is_memory::<Arc<Mine>>() && !is_memory::<Vec<Mine>>());
    }
}
