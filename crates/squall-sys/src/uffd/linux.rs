//! The kernel's calls of userfaultfd.

use super::raw::{self, Message};
use super::{Event, Features, Grants, Modes, OpenError, Operation, Options, Reason, Uffd};
use crate::system::{answered, opened, quietly, read_file};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Descriptor(pub(super) OwnedFd);

/// Number of the capability `CAP_SYS_PTRACE`.
const PTRACE: u32 = 19;

impl Descriptor {
    /// Opens a descriptor without features, by the first grant of the three. The flag tells whether it is for
    /// faults of user code alone.
    pub(super) fn open() -> Result<(Descriptor, bool), OpenError> {
        let device = match by_device() {
            Ok(descriptor) => return Ok((Descriptor(descriptor), false)),
            Err(error) => error,
        };
        let call = match by_call(0) {
            Ok(descriptor) => return Ok((Descriptor(descriptor), false)),
            Err(error) => error,
        };
        let user_mode_call = match by_call(raw::USER_MODE_ONLY) {
            Ok(descriptor) => return Ok((Descriptor(descriptor), true)),
            Err(error) => error,
        };
        Err(refusal(device, call, user_mode_call))
    }

    /// Enables features, which ends the handshake. Returns all features of the kernel.
    pub(super) fn enable(&self, wanted: Features) -> Result<Features, OpenError> {
        let mut request = raw::Handshake { version: raw::VERSION, features: wanted.bits(), calls: 0 };
        match self.call(raw::API, &mut request) {
            Ok(()) => Ok(Features::from_bits(request.features)),
            Err(libc::EPERM) if wanted.contains(Features::EVENT_FORK) => Err(OpenError::ForkEvents),
            Err(error) => Err(OpenError::System(io::Error::from_raw_os_error(error))),
        }
    }

    /// Checks that a descriptor is one of userfaultfd, makes it nonblocking, and returns its features.
    pub(super) fn adopt(descriptor: OwnedFd) -> io::Result<(Descriptor, Features)> {
        let number = descriptor.as_raw_fd();
        let text = quietly(|| std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")))?;
        // `API:`, then the version, the enabled features and those of the interface.
        let line = text.lines().find_map(|line| line.strip_prefix("API:"));
        let mut values =
            line.unwrap_or("").trim().split(':').map(|value| u64::from_str_radix(value, 16).ok());
        let (Some(Some(raw::VERSION)), Some(Some(features))) = (values.next(), values.next()) else {
            let why = "the descriptor is not of userfaultfd: hand over that of a Uffd";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        // SAFETY: fcntl(2) on a descriptor of our own, with numbers.
        quietly(|| unsafe {
            let flags = answered(libc::fcntl(number, libc::F_GETFL))? as libc::c_int;
            answered(libc::fcntl(number, libc::F_SETFL, flags | libc::O_NONBLOCK))
        })?;
        Ok((Descriptor(descriptor), Features::from_bits(features)))
    }

    pub(super) fn register(&self, at: usize, len: usize, modes: Modes) -> Result<(), Reason> {
        let mode = flag(modes.missing, raw::REGISTER_MISSING)
            | flag(modes.minor, raw::REGISTER_MINOR)
            | flag(modes.write_protect, raw::REGISTER_WRITE_PROTECT);
        self.call(raw::REGISTER, &mut raw::Register { range: range(at, len), mode, calls: 0 }).map_err(reason)
    }

    pub(super) fn unregister(&self, at: usize, len: usize) -> Result<(), Reason> {
        self.call(raw::UNREGISTER, &mut range(at, len)).map_err(reason)
    }

    pub(super) fn wake(&self, at: usize, len: usize) -> Result<(), Reason> {
        self.call(raw::WAKE, &mut range(at, len)).map_err(reason)
    }

    /// Copies to a range once. Returns the done bytes and the reason of the end.
    ///
    /// # Safety
    /// The contract of [`Uffd::copy`].
    pub(super) unsafe fn copy(
        &self,
        to: usize,
        from: *const u8,
        len: usize,
        options: Options,
    ) -> (usize, Result<(), Reason>) {
        if options.allow_holes {
            return (0, Err(Reason::Invalid));
        }
        let mode =
            flag(options.dont_wake, raw::DONT_WAKE) | flag(options.write_protected, raw::WRITE_PROTECTED);
        self.transfer(raw::COPY, to, from.addr(), len, mode)
    }

    /// Moves a range once. Returns the done bytes and the reason of the end.
    ///
    /// # Safety
    /// The contract of [`Uffd::move_pages`].
    pub(super) unsafe fn move_pages(
        &self,
        to: usize,
        from: usize,
        len: usize,
        options: Options,
    ) -> (usize, Result<(), Reason>) {
        if options.write_protected {
            return (0, Err(Reason::Invalid));
        }
        let mode = flag(options.dont_wake, raw::DONT_WAKE) | flag(options.allow_holes, raw::ALLOW_HOLES);
        self.transfer(raw::MOVE, to, from, len, mode)
    }

    fn transfer(
        &self,
        number: libc::Ioctl,
        to: usize,
        from: usize,
        len: usize,
        mode: u64,
    ) -> (usize, Result<(), Reason>) {
        let mut request = raw::Transfer { to: to as u64, from: from as u64, len: len as u64, mode, done: 0 };
        let result = self.call(number, &mut request);
        (counted(request.done), result.map_err(reason))
    }

    /// Fills a range once, by an operation without a source. Returns the done bytes and the reason of the
    /// end.
    pub(super) fn fill(
        &self,
        operation: Operation,
        at: usize,
        len: usize,
        options: Options,
    ) -> (usize, Result<(), Reason>) {
        let number = match operation {
            Operation::Zero => raw::ZERO_PAGE,
            Operation::Resume => raw::CONTINUE,
            Operation::Poison => raw::POISON,
            _ => return (0, Err(Reason::Invalid)),
        };
        if options.allow_holes || options.write_protected && operation != Operation::Resume {
            return (0, Err(Reason::Invalid));
        }
        let mode =
            flag(options.dont_wake, raw::DONT_WAKE) | flag(options.write_protected, raw::WRITE_PROTECTED);
        let mut request = raw::Fill { range: range(at, len), mode, done: 0 };
        let result = self.call(number, &mut request);
        (counted(request.done), result.map_err(reason))
    }

    pub(super) fn write_protect(
        &self,
        at: usize,
        len: usize,
        on: bool,
        options: Options,
    ) -> Result<(), Reason> {
        if options.write_protected || options.allow_holes {
            return Err(Reason::Invalid);
        }
        // Protecting pages wakes no thread, and the kernel refuses the flag there.
        let mode = if on { raw::PROTECT } else { flag(options.dont_wake, raw::PROTECT_DONT_WAKE) };
        self.call(raw::WRITE_PROTECT, &mut raw::Protect { range: range(at, len), mode }).map_err(reason)
    }

    pub(super) fn read(&self, events: &mut [Event], child: impl Fn(Descriptor) -> Uffd) -> io::Result<usize> {
        const BATCH: usize = 16;
        let mut messages: [Message; BATCH] = [[0; 4]; BATCH];
        let mut count = 0;
        while count < events.len() {
            let room = BATCH.min(events.len() - count);
            let bytes = room * size_of::<Message>();
            // SAFETY: read(2) into `room` messages of our own, for which any words are valid.
            let result = quietly(|| unsafe {
                answered(libc::read(self.0.as_raw_fd(), messages.as_mut_ptr().cast(), bytes) as libc::c_long)
            });
            let read = match result {
                Ok(bytes) => bytes as usize / size_of::<Message>(),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => continue,
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) || count > 0 => break,
                Err(error) => return Err(error),
            };
            for message in &messages[..read] {
                events[count] = event(message, &child);
                count += 1;
            }
            if read < room {
                break;
            }
        }
        Ok(count)
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) -> io::Result<bool> {
        // A time too far away for the clock has no end.
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            let left = end.map(|end| {
                let left = end.saturating_duration_since(Instant::now());
                libc::timespec {
                    tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                    // Below 10^9, which each type of the field can hold.
                    tv_nsec: left.subsec_nanos() as _,
                }
            });
            let left = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
            let mut descriptor = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: ppoll(2) with one descriptor of our own, and a time of our own or null. A null mask
            // leaves signals as they are.
            let result =
                quietly(|| unsafe { answered(libc::ppoll(&raw mut descriptor, 1, left, std::ptr::null())) });
            match result {
                Ok(0) => return Ok(false),
                Ok(_) if descriptor.revents & libc::POLLIN != 0 => return Ok(true),
                Ok(_) => {
                    let why = "the userfaultfd cannot be waited for: its reads must not block";
                    return Err(io::Error::other(why));
                }
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes a call with a structure of `raw`. Returns the error's number.
    fn call<T>(&self, number: libc::Ioctl, request: &mut T) -> Result<(), i32> {
        let request = std::ptr::from_mut(request);
        // SAFETY: the number contains the size of `T`: each caller passes the structure of its number. The
        // kernel reads and writes within it. Effects on memory are argued by the callers' contracts.
        let result = quietly(|| answered(unsafe { libc::ioctl(self.0.as_raw_fd(), number, request) }));
        result.map(drop).map_err(|error| error.raw_os_error().unwrap_or(0))
    }
}

fn flag(on: bool, bit: u64) -> u64 {
    if on { bit } else { 0 }
}

fn range(at: usize, len: usize) -> raw::Range {
    raw::Range { start: at as u64, len: len as u64 }
}

/// Bytes that a call did: its count, unless that is an error's negative number.
fn counted(done: i64) -> usize {
    usize::try_from(done).unwrap_or(0)
}

fn reason(error: i32) -> Reason {
    match error {
        libc::EEXIST => Reason::Present,
        libc::ENOENT => Reason::Absent,
        libc::EAGAIN => Reason::Changing,
        libc::EBUSY => Reason::Busy,
        libc::EFAULT => Reason::Unbacked,
        libc::ENOMEM => Reason::NoMemory,
        libc::EPERM => Reason::Forbidden,
        libc::ESRCH => Reason::Ended,
        libc::EINVAL => Reason::Invalid,
        other => Reason::Other(other),
    }
}

fn event(message: &Message, child: impl Fn(Descriptor) -> Uffd) -> Event {
    let [head, one, two, three] = *message;
    // The first four bytes of a word.
    let half = |word: u64| {
        let [a, b, c, d, ..] = word.to_ne_bytes();
        u32::from_ne_bytes([a, b, c, d])
    };
    match head.to_ne_bytes()[0] {
        raw::EVENT_PAGE_FAULT => Event::PageFault {
            address: two as usize,
            write: one & raw::FAULT_WRITE != 0,
            write_protected: one & raw::FAULT_WRITE_PROTECTED != 0,
            minor: one & raw::FAULT_MINOR != 0,
            thread: Some(half(three)).filter(|thread| *thread != 0),
        },
        raw::EVENT_FORK => {
            // SAFETY: read(2) opened the descriptor for us with this event.
            let descriptor = unsafe { opened(|| half(one).cast_signed()) };
            descriptor.map_or(Event::Other(raw::EVENT_FORK), |descriptor| {
                Event::Fork(child(Descriptor(descriptor)))
            })
        }
        raw::EVENT_REMAP => Event::Remap { from: one as usize, to: two as usize, len: three as usize },
        raw::EVENT_REMOVE => Event::Remove { at: one as usize, len: (two - one) as usize },
        raw::EVENT_UNMAP => Event::Unmap { at: one as usize, len: (two - one) as usize },
        code => Event::Other(code),
    }
}

const FLAGS: libc::c_int = libc::O_CLOEXEC | libc::O_NONBLOCK;

fn by_device() -> io::Result<OwnedFd> {
    // SAFETY: open(2) with a C string. It returns a new descriptor or -1.
    let device =
        unsafe { opened(|| libc::open(c"/dev/userfaultfd".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC))? };
    // SAFETY: the call takes a number, and returns a new descriptor or -1.
    unsafe { opened(|| libc::ioctl(device.as_raw_fd(), raw::NEW, FLAGS)) }
}

fn by_call(more: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: userfaultfd(2) with a number. It returns a new descriptor or -1, which fit an int.
    unsafe { opened(|| libc::syscall(libc::SYS_userfaultfd, FLAGS | more) as libc::c_int) }
}

/// Finds the reason for which all ways failed.
fn refusal(device: io::Error, call: io::Error, user_mode_call: io::Error) -> OpenError {
    let [by_device, by_call, by_user] = [&device, &call, &user_mode_call].map(|error| error.raw_os_error());
    if by_device == Some(libc::ENOENT) && by_call == Some(libc::ENOSYS) {
        return OpenError::Absent;
    }
    if !matches!(by_user, Some(libc::EPERM | libc::EACCES | libc::ENOSYS | libc::EINVAL)) {
        return OpenError::System(user_mode_call);
    }
    let capability = has_ptrace();
    let unprivileged = unprivileged();
    OpenError::Denied(Grants {
        device,
        call,
        user_mode_call,
        capability,
        unprivileged,
        // The kernel refuses the full form for want of grants alone, and never the other form. Kernels before
        // 5.11 find the other form's flag invalid.
        filtered: by_user != Some(libc::EINVAL) || capability || unprivileged == Some(1),
    })
}

/// Reads `vm.unprivileged_userfaultfd` (5.2).
fn unprivileged() -> Option<u8> {
    let mut text = [0; 8];
    let len = read_file(c"/proc/sys/vm/unprivileged_userfaultfd", &mut text).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

/// True if the calling thread has the capability `CAP_SYS_PTRACE`.
fn has_ptrace() -> bool {
    // `_LINUX_CAPABILITY_VERSION_3`, and the calling thread.
    let mut header: [u32; 2] = [0x2008_0522, 0];
    // Effective, permitted and inheritable capabilities: the lower half, then the upper one.
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: capget(2) with a header and two sets of our own, for which any words are valid.
    let result = quietly(|| unsafe {
        answered(libc::syscall(libc::SYS_capget, header.as_mut_ptr(), sets.as_mut_ptr()))
    });
    result.is_ok() && sets[0][0] >> PTRACE & 1 != 0
}
