//! Which values fit a word of the table, and how they get there and back.
//!
//! - I1. A word that [`to_word`] made of a `T` gives a `T` back, and only such a word is ever given to [`from_word`]: slots
//!   hold what an entry of the table's own types was made of, whichever entry that was.
//! - I2. The types that [`fits`] admits are as good copied as moved: they have no drop, no interior mutability, and no padding.

use squall_sync::sync::Arc;
use std::any::TypeId;

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

/// Whether a drop of a `T` runs no code of the users' and gives nothing but memory back: so do those of all types that are known to
/// [`stays`]. Others may be so, too.
#[inline(always)]
pub(crate) fn is_memory<T: 'static>() -> bool {
    !std::mem::needs_drop::<T>() || stays::<T>()
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
