//! Sets of userfaultfd's features.

use std::fmt;
use std::ops::BitOr;

/// Set of features of userfaultfd.
///
/// Missing pages of private anonymous memory need no feature.
///
/// # Example
/// ```
/// use squall_sys::uffd::Features;
///
/// let wanted = Features::SIGBUS | Features::MINOR_SHMEM;
/// assert!(wanted.contains(Features::SIGBUS));
/// assert_eq!(wanted.to_string(), "SIGBUS, MINOR_SHMEM");
/// assert!(wanted.without(wanted).is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Features(u64);

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $bit:literal;)*) => {
        impl Features {
            $($(#[$doc])* pub const $name: Features = Features(1 << $bit);)*

            /// All features, each with the kernel's name of it.
            pub(super) const NAMES: &[(&str, Features)] = &[$((stringify!($name), Features::$name)),*];
        }
    };
}

features! {
    /// Write-protected pages (5.7), of private anonymous memory. See
    /// [`WP_HUGETLBFS_SHMEM`](Self::WP_HUGETLBFS_SHMEM) for other memory.
    PAGEFAULT_FLAG_WP = 0;
    /// Events of fork (4.11). Needs `CAP_SYS_PTRACE`.
    EVENT_FORK = 1;
    /// Events of mremap(2) (4.11).
    EVENT_REMAP = 2;
    /// Events of madvise(2) that removes pages (4.11).
    EVENT_REMOVE = 3;
    /// Missing pages of hugetlbfs (4.11).
    MISSING_HUGETLBFS = 4;
    /// Missing pages of shared memory (4.11).
    MISSING_SHMEM = 5;
    /// Events of munmap(2) (4.11).
    EVENT_UNMAP = 6;
    /// Sends SIGBUS to the faulting thread instead of a page fault event (4.14).
    SIGBUS = 7;
    /// Number of the faulting thread in page fault events (4.14).
    THREAD_ID = 8;
    /// Minor faults of hugetlbfs (5.13).
    MINOR_HUGETLBFS = 9;
    /// Minor faults of shared memory (5.14): the file has the page, but the mapping lacks it.
    MINOR_SHMEM = 10;
    /// Page fault events with the exact address (5.18). Otherwise they have that of the page.
    EXACT_ADDRESS = 11;
    /// Write-protected pages of shared memory and hugetlbfs (5.19).
    WP_HUGETLBFS_SHMEM = 12;
    /// Write protection also of pages that do not exist yet (6.4).
    WP_UNPOPULATED = 13;
    /// Poisoned pages (6.6), by [`Uffd::poison`](super::Uffd::poison).
    POISON = 14;
    /// Lets the kernel resolve write faults (6.7). The protection then records writes alone.
    WP_ASYNC = 15;
    /// Moved pages (6.8), by [`Uffd::move_pages`](super::Uffd::move_pages).
    MOVE = 16;
}

impl Features {
    /// The empty set.
    pub const EMPTY: Features = Features(0);

    /// Returns the set of these bits of the kernel. Features without a name here are left out.
    #[cfg_attr(not(all(target_os = "linux", not(miri))), allow(dead_code))]
    pub(super) fn from_bits(bits: u64) -> Features {
        let all = Features::NAMES.iter().fold(0, |all, (_, feature)| all | feature.0);
        Features(bits & all)
    }

    /// Returns the set in the kernel's encoding.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// True if the set has all features of `others`.
    pub const fn contains(self, others: Features) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns the features of this set that `others` lacks.
    #[must_use]
    pub const fn without(self, others: Features) -> Features {
        Features(self.0 & !others.0)
    }

    /// True if the set has no feature.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, others: Features) -> Features {
        Features(self.0 | others.0)
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for (name, feature) in Features::NAMES {
            if self.contains(*feature) {
                f.write_str(if first { "" } else { ", " })?;
                f.write_str(name)?;
                first = false;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({self})")
    }
}
