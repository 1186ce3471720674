//! userfaultfd: page faults that the program itself resolves.
//!
//! Problem: a pager in user space must put contents into a page when a thread first touches it, or learn that
//! a thread writes to it. The kernel's descriptor for that has a dozen calls, some of which end halfway. It
//! has features of many versions, and three grants.
//!
//! Idea: [`Uffd`] opens the descriptor with exactly the wanted features, or names the missing grant or
//! feature. Each operation on a range repeats the kernel's call while that makes progress. Its error has the
//! number of done bytes. A fault goes to one of two places:
//!
//! - with [`Features::SIGBUS`], to the faulting thread itself, as a signal (see [`crate::fault`]);
//! - otherwise as an event to a thread that reads the descriptor, while the faulting thread sleeps.
//!
//! - I1. The done bytes of an operation are a prefix of its range. Each page of them was done once; the pages
//!   behind them are untouched. The kernel ends a call at the first page that it cannot do and counts the
//!   pages before it, and the next call begins there.
//! - I2. The operations on ranges neither allocate nor lock, and keep `errno`. So a signal handler may call
//!   them.
//! - I3. An operation is `unsafe` if a later read can return other bytes because of it. `wake`, `poison` and
//!   `write_protect` are safe: they change no byte, and an access of a registered page may stop in any case,
//!   to which the caller of `register` agreed. That caller agreed to the end of the descriptor, too.
//!
//! Addresses are numbers, because they may belong to another process. A descriptor acts on the memory of the
//! process that opened it, in a forked child or in a process that received it, too.
//!
//! Not promised: faults of the kernel. With [`Features::SIGBUS`], or a descriptor for user code alone, the
//! kernel does not wait for pages: `read(2)` into a missing page fails with `EFAULT`.
//! Cost: an operation is one system call, and one more per interruption. A fault by signal adds a signal and
//! the return from its handler. Several pages per operation share its cost.
//! Source: userfaultfd(2), ioctl_userfaultfd(2), Documentation/admin-guide/mm/userfaultfd.rst.

mod errors;
mod features;
#[cfg(all(target_os = "linux", not(miri)))]
mod linux;
#[cfg(not(all(target_os = "linux", not(miri))))]
mod other;
#[cfg(all(target_os = "linux", not(miri)))]
mod raw;

pub use errors::{Grants, OpenError, Operation, RangeError, Reason};
pub use features::Features;

#[cfg(all(target_os = "linux", not(miri)))]
use linux as imp;
#[cfg(not(all(target_os = "linux", not(miri))))]
use other as imp;
use std::io;
#[cfg(all(target_os = "linux", not(miri)))]
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Faults of a range that go to the descriptor.
///
/// # Example
/// ```
/// use squall_sys::uffd::Modes;
///
/// let modes = Modes { missing: true, write_protect: true, ..Modes::default() };
/// assert!(!modes.minor);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Modes {
    /// Accesses of pages without contents.
    pub missing: bool,
    /// Accesses of pages that the file has and the mapping lacks. Needs [`Features::MINOR_SHMEM`] or
    /// [`Features::MINOR_HUGETLBFS`].
    pub minor: bool,
    /// Writes to pages with write protection.
    pub write_protect: bool,
}

/// Options of operations. An operation refuses an option that it lacks, with [`Reason::Invalid`].
///
/// # Example
/// ```
/// use squall_sys::uffd::Options;
///
/// let quiet = Options { dont_wake: true, ..Options::default() };
/// assert!(!quiet.write_protected);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// Leaves threads that wait for the pages asleep, until [`Uffd::wake`].
    pub dont_wake: bool,
    /// Makes the pages write-protected from the start: `copy` and, since Linux 6.4, `resume`. The range must
    /// be registered with [`Modes::write_protect`].
    pub write_protected: bool,
    /// Skips pages to move that do not exist, which then count as done: `move_pages`.
    pub allow_holes: bool,
}

/// Event of a userfaultfd.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Event {
    /// No event: the initial value of a place for one.
    #[default]
    Empty,
    /// A thread waits for a page.
    PageFault {
        /// Address of the access with [`Features::EXACT_ADDRESS`], otherwise of its page.
        address: usize,
        /// True if the access writes.
        write: bool,
        /// True if the page is write-protected.
        write_protected: bool,
        /// True if the file has the page.
        minor: bool,
        /// Number of the thread, with [`Features::THREAD_ID`].
        thread: Option<u32>,
    },
    /// The process has forked. The descriptor acts on the memory of the child.
    Fork(Uffd),
    /// The process has moved a mapping.
    Remap {
        /// Old address.
        from: usize,
        /// New address.
        to: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The process has removed the contents of pages, which are missing from now on.
    Remove {
        /// Address of the first page.
        at: usize,
        /// Length in bytes.
        len: usize,
    },
    /// The process has unmapped pages.
    Unmap {
        /// Address of the first page.
        at: usize,
        /// Length in bytes.
        len: usize,
    },
    /// An event without a variant here, by its code.
    Other(u8),
}

/// Descriptor of userfaultfd.
///
/// Closing it unregisters its ranges. Threads that wait then repeat their access, and find ordinary memory.
///
/// # Example
/// ```
/// use squall_sys::uffd::{Features, OpenError, Uffd};
///
/// match Uffd::open(Features::SIGBUS) {
///     Ok(uffd) => assert!(uffd.features().contains(Features::SIGBUS)),
///     Err(OpenError::System(error)) => panic!("{error}"),
///     Err(refused) => println!("{refused}"),
/// }
/// ```
#[derive(Debug)]
pub struct Uffd {
    descriptor: imp::Descriptor,
    features: Features,
    user_mode_only: Option<bool>,
}

impl Uffd {
    /// Opens a descriptor with exactly these features.
    ///
    /// Tries /dev/userfaultfd first, then userfaultfd(2), and that at last for faults of user code alone. The
    /// descriptor closes on exec, and reading it does not block.
    ///
    /// # Errors
    /// The missing grant, the missing features, or the kernel's error.
    ///
    /// # Cost
    /// Two descriptors, one of them for a moment, to learn the kernel's features.
    pub fn open(wanted: Features) -> Result<Uffd, OpenError> {
        let available = Uffd::available()?;
        let missing = wanted.without(available);
        if !missing.is_empty() {
            return Err(OpenError::Features { missing, available });
        }
        let (descriptor, user_mode_only) = imp::Descriptor::open()?;
        descriptor.enable(wanted)?;
        Ok(Uffd { descriptor, features: wanted, user_mode_only: Some(user_mode_only) })
    }

    /// Returns all features of the kernel.
    ///
    /// # Errors
    /// The missing grant, or the kernel's error.
    pub fn available() -> Result<Features, OpenError> {
        imp::Descriptor::open()?.0.enable(Features::EMPTY)
    }

    /// Takes over a descriptor that another process or [`into_fd`](Self::into_fd) handed over. It acts on the
    /// memory of the process that opened it.
    ///
    /// The descriptor is set to nonblocking reads, for all processes that share it.
    ///
    /// # Errors
    /// `InvalidInput` if the descriptor is another one than of userfaultfd, as /proc tells. The error of
    /// reading /proc.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub fn from_fd(descriptor: OwnedFd) -> io::Result<Uffd> {
        let (descriptor, features) = imp::Descriptor::adopt(descriptor)?;
        Ok(Uffd { descriptor, features, user_mode_only: None })
    }

    /// Returns the descriptor, to hand it over. Its ranges stay registered.
    #[cfg(all(target_os = "linux", not(miri)))]
    pub fn into_fd(self) -> OwnedFd {
        self.descriptor.0
    }

    /// Returns the enabled features.
    pub fn features(&self) -> Features {
        self.features
    }

    /// True if the kernel's own accesses of registered pages fail, because the full form was refused. `None`
    /// if the descriptor was handed over, because the kernel does not tell.
    pub fn user_mode_only(&self) -> Option<bool> {
        self.user_mode_only
    }

    /// Sends faults of a range to this descriptor.
    ///
    /// A second call replaces the modes.
    ///
    /// # Units
    /// Bytes; both are multiples of the page size.
    ///
    /// # Errors
    /// [`Reason::Busy`] if another descriptor has the range. [`Reason::Invalid`] if a mapping of the range is
    /// neither private anonymous memory nor of a kind and mode that the kernel has.
    ///
    /// # Safety
    /// 1. The range belongs to the caller. Code that reads it agrees that the operations of this descriptor
    ///    give a missing page its bytes, rather than zeros or the file.
    /// 2. Code that accesses the range agrees that an access may wait, or raise SIGBUS.
    /// 3. That code keeps the descriptor open, or agrees with the effect of [`unregister`](Self::unregister)
    ///    at its end.
    pub unsafe fn register(&self, at: usize, len: usize, modes: Modes) -> Result<(), RangeError> {
        self.unit(Operation::Register, at, len, self.descriptor.register(at, len, modes))
    }

    /// Sends faults of a range to the kernel again, and wakes threads that wait for its pages.
    ///
    /// # Errors
    /// [`Reason::Invalid`] for a range without mappings.
    ///
    /// # Safety
    /// A page that is missing reads as zeros or as the file from now on. Code that reads the range agrees.
    pub unsafe fn unregister(&self, at: usize, len: usize) -> Result<(), RangeError> {
        self.unit(Operation::Unregister, at, len, self.descriptor.unregister(at, len))
    }

    /// Wakes the threads that wait for pages of a range. They repeat their access.
    ///
    /// # Errors
    /// [`Reason::Invalid`] if the range is not of whole pages.
    pub fn wake(&self, at: usize, len: usize) -> Result<(), RangeError> {
        self.unit(Operation::Wake, at, len, self.descriptor.wake(at, len))
    }

    /// Fills missing pages with a copy of `len` bytes at `from`, and returns `len`. The source is memory of
    /// this process.
    ///
    /// A page appears whole. A present page is never overwritten: there the copy ends with
    /// [`Reason::Present`].
    ///
    /// # Errors
    /// The done bytes, and the reason at the page after them.
    ///
    /// # Safety
    /// 1. The bytes at `from` are readable, and no thread writes them meanwhile. A source that is unmapped is
    ///    an error, and is safe.
    /// 2. Code that reads the pages at `to` finds these bytes valid.
    pub unsafe fn copy(
        &self,
        to: usize,
        from: *const u8,
        len: usize,
        options: Options,
    ) -> Result<usize, RangeError> {
        let mut call = |done: usize, rest: usize| {
            // SAFETY: a part of our caller's range, and of its source.
            unsafe { self.descriptor.copy(to + done, from.wrapping_add(done), rest, options) }
        };
        repeat(Operation::Copy, to, len, &mut call)
    }

    /// Fills missing pages with zeros, and returns `len`. A page of private anonymous memory is the kernel's
    /// page of zeros, until it is written.
    ///
    /// A present page ends the operation, as in [`copy`](Self::copy).
    ///
    /// # Errors
    /// The done bytes, and the reason at the page after them.
    ///
    /// # Safety
    /// Code that reads the pages finds zeros valid.
    pub unsafe fn zero(&self, at: usize, len: usize, options: Options) -> Result<usize, RangeError> {
        repeat(Operation::Zero, at, len, &mut |done, rest| {
            self.descriptor.fill(Operation::Zero, at + done, rest, options)
        })
    }

    /// Maps pages that the file has, after a minor fault, and returns `len`.
    ///
    /// A mapped page ends the operation, as in [`copy`](Self::copy).
    ///
    /// # Errors
    /// The done bytes, and the reason at the page after them: [`Reason::Unbacked`] if the file lacks it.
    ///
    /// # Safety
    /// Code that reads the pages finds the bytes of the file valid.
    pub unsafe fn resume(&self, at: usize, len: usize, options: Options) -> Result<usize, RangeError> {
        repeat(Operation::Resume, at, len, &mut |done, rest| {
            self.descriptor.fill(Operation::Resume, at + done, rest, options)
        })
    }

    /// Moves pages of private anonymous memory to missing pages, without a copy, and returns `len`. Needs
    /// [`Features::MOVE`], and that this process opened the descriptor.
    ///
    /// The source is missing afterwards. A present page at `to` ends the operation, as in
    /// [`copy`](Self::copy).
    ///
    /// # Errors
    /// The done bytes, and the reason at the page after them. [`Reason::Busy`] if a page to move is pinned,
    /// or shared with a forked process.
    ///
    /// # Safety
    /// 1. The range at `from` belongs to the caller, and no reference to it exists.
    /// 2. Code that reads the pages at `to` finds the moved bytes valid.
    pub unsafe fn move_pages(
        &self,
        to: usize,
        from: usize,
        len: usize,
        options: Options,
    ) -> Result<usize, RangeError> {
        let mut call = |done: usize, rest: usize| {
            // SAFETY: a part of our caller's ranges.
            unsafe { self.descriptor.move_pages(to + done, from + done, rest, options) }
        };
        repeat(Operation::Move, to, len, &mut call)
    }

    /// Makes missing pages raise SIGBUS at each access, and returns `len`. Needs [`Features::POISON`].
    ///
    /// A present page ends the operation, as in [`copy`](Self::copy). Removing the page, by madvise(2), heals
    /// it.
    ///
    /// # Errors
    /// The done bytes, and the reason at the page after them.
    pub fn poison(&self, at: usize, len: usize, options: Options) -> Result<usize, RangeError> {
        repeat(Operation::Poison, at, len, &mut |done, rest| {
            self.descriptor.fill(Operation::Poison, at + done, rest, options)
        })
    }

    /// Makes pages write-protected (`on`), or writable again, and returns `len`. Writable pages wake the
    /// threads that wait to write.
    ///
    /// The range is registered with [`Modes::write_protect`]. Pages that do not exist are skipped, unless
    /// [`Features::WP_UNPOPULATED`] is enabled or the memory is shared.
    ///
    /// # Errors
    /// The reason, with 0 done bytes. The kernel does not tell how far it came, so a part of the range may be
    /// changed. Repeating the call is harmless.
    pub fn write_protect(
        &self,
        at: usize,
        len: usize,
        on: bool,
        options: Options,
    ) -> Result<usize, RangeError> {
        let result = self.descriptor.write_protect(at, len, on, options);
        self.unit(Operation::WriteProtect, at, len, result).map(|()| len)
    }

    /// Takes events into `events` from the front, and returns their number. Never waits: 0 means that there
    /// is no event.
    ///
    /// Events come in the order in which the kernel gives them. It gives page faults before other events.
    ///
    /// # Errors
    /// The error of read(2), if there was one before the first event.
    pub fn read_events(&self, events: &mut [Event]) -> io::Result<usize> {
        let child = |descriptor| Uffd { descriptor, ..*self };
        self.descriptor.read(events, child)
    }

    /// Waits until there is an event, at most for `timeout`, and returns true if there is one. `None` waits
    /// without an end.
    ///
    /// With several readers another thread may take the event first.
    ///
    /// # Errors
    /// The error of ppoll(2).
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        self.descriptor.wait(timeout)
    }

    /// Adds the operation and its range to an error.
    fn unit(
        &self,
        operation: Operation,
        at: usize,
        len: usize,
        result: Result<(), Reason>,
    ) -> Result<(), RangeError> {
        result.map_err(|reason| RangeError { operation, at, len, done: 0, reason })
    }
}

#[cfg(all(target_os = "linux", not(miri)))]
impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.0.as_fd()
    }
}

/// Calls the kernel for the rest of a range, until the range is done or a call makes no progress (I1).
///
/// `call` gets the done bytes and the length of the rest. It returns the bytes that it did, and the reason
/// for which it ended.
fn repeat(
    operation: Operation,
    at: usize,
    len: usize,
    call: &mut dyn FnMut(usize, usize) -> (usize, Result<(), Reason>),
) -> Result<usize, RangeError> {
    let mut done = 0;
    loop {
        let (more, result) = call(done, len - done);
        done += more;
        match result {
            Ok(()) => return Ok(done),
            // The kernel answers so after a part; the next call tells the reason at the page after it.
            Err(Reason::Changing) if more > 0 && done < len => {}
            Err(reason) => return Err(RangeError { operation, at, len, done, reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `repeat` over the kernel's answers in turn, and returns its result and the asked ranges.
    fn answers(
        len: usize,
        list: &[(usize, Result<(), Reason>)],
    ) -> (Result<usize, RangeError>, Vec<(usize, usize)>) {
        let mut asked = Vec::new();
        let mut list = list.iter();
        let result = repeat(Operation::Copy, 0x10000, len, &mut |done, rest| {
            asked.push((done, rest));
            *list.next().expect("asked again after an end")
        });
        (result, asked)
    }

    #[test]
    fn a_part_is_continued_behind_its_last_page() {
        let (result, asked) =
            answers(12, &[(4, Err(Reason::Changing)), (6, Err(Reason::Changing)), (2, Ok(()))]);
        assert_eq!(result, Ok(12));
        assert_eq!(asked, [(0, 12), (4, 8), (10, 2)]);
    }

    #[test]
    fn an_end_without_progress_is_reported_with_the_bytes_before_it() {
        for reason in [Reason::Present, Reason::Changing, Reason::Ended, Reason::Other(7)] {
            let (result, asked) = answers(12, &[(4, Err(Reason::Changing)), (0, Err(reason))]);
            let error = result.unwrap_err();
            assert_eq!((error.done(), error.reason()), (4, reason));
            assert_eq!(asked, [(0, 12), (4, 8)]);
            let (result, asked) = answers(12, &[(0, Err(reason))]);
            assert_eq!((result.unwrap_err().done(), asked.len()), (0, 1));
        }
    }

    #[test]
    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn other_systems_refuse() {
        assert!(matches!(Uffd::open(Features::EMPTY), Err(OpenError::Unsupported)));
    }
}
