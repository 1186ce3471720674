//! A pair of futexes in shared memory, written by hand: the least that two processes need.
//!
//! Each direction has a word that its sender increments. The other side waits for it. A waiting side sets a
//! flag in the word before it sleeps, so that a sender makes no system call for a side that is awake. The
//! server copies each request out of shared memory before it answers, as it would for a client that it does
//! not trust.
//!
//! Not promised: notice of a dead peer. A client whose server was killed waits for ever.

use std::io;
use std::os::fd::OwnedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::thread::futex;

use super::streams::wrong_count;
use super::{BULK_BYTES, Client, Connect, Form, LINE_BYTES, ServerEnd, Start, Transport};

pub(crate) static FUTEX: Transport = Transport {
    name: "futex",
    connect: Connect::PerClient(connect::<false>),
    serve: serve::<false>,
    polls: false,
    leaves_files: false,
};

/// Both sides poll for [`SPIN`] before they sleep.
pub(crate) static FUTEX_SPIN: Transport = Transport {
    name: "futex-spin",
    connect: Connect::PerClient(connect::<true>),
    serve: serve::<true>,
    polls: true,
    leaves_files: false,
};

/// Longest time of polling.
const SPIN: Duration = Duration::from_micros(20);
/// Polls between two readings of the clock.
const POLLS: u32 = 64;

/// Flag of a word: its waiting side sleeps.
const SLEEPS: u32 = 1;
/// The value of a word after the client has dropped its end. Its number is never sent.
const END: u32 = !SLEEPS;
/// Increment of a word.
const STEP: u32 = 2;

/// One direction: the word, and the bytes of a null call in the next line.
#[repr(C, align(128))]
struct Direction {
    word: AtomicU32,
    pad: [u8; 60],
    line: [u8; LINE_BYTES],
}

/// The shared memory.
#[repr(C, align(4096))]
struct Shared {
    requests: Direction,
    replies: Direction,
    bulk: [u8; BULK_BYTES],
}

/// A mapping of [`Shared`].
struct Mapping(NonNull<Shared>);

// SAFETY: a mapping belongs to no thread; all access is by atomic words and by copies ordered by them.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd) -> io::Result<Mapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so that no other mapping is replaced.
        let at = unsafe { mmap(ptr::null_mut(), size_of::<Shared>(), access, MapFlags::SHARED, fd, 0) }?;
        NonNull::new(at.cast()).map(Mapping).ok_or_else(|| io::Error::other("the mapping is at null"))
    }

    /// The request's word, its bytes, and the reply's word and bytes.
    fn parts(&self, form: Form) -> (&AtomicU32, *mut u8, &AtomicU32, *mut u8) {
        let at = self.0.as_ptr();
        // SAFETY: the mapping is live, and large enough. References are made to the atomic words alone.
        unsafe {
            let bytes = match form {
                Form::Null => (&raw mut (*at).requests.line).cast(),
                Form::Bulk => (&raw mut (*at).bulk).cast(),
            };
            (&(*at).requests.word, bytes, &(*at).replies.word, (&raw mut (*at).replies.line).cast())
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing refers to it any more. A failure only leaves it mapped.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), size_of::<Shared>()) };
    }
}

/// Sets `word` to the next number, and wakes the other side if it sleeps.
#[inline]
fn send(word: &AtomicU32, number: u32) {
    // AcqRel: the Release pairs with the Acquire in `wait`, and publishes the bytes.
    if word.swap(number, Ordering::AcqRel) & SLEEPS != 0 {
        // Fails for a wrong address only.
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}

/// Waits until `word` has left `old`. Returns the new number.
#[inline]
fn wait<const SPINS: bool>(word: &AtomicU32, old: u32) -> u32 {
    if SPINS {
        let mut since = None;
        loop {
            for _ in 0..POLLS {
                // Acquire: pairs with the swap in `send`.
                let now = word.load(Ordering::Acquire);
                if now & !SLEEPS != old {
                    return now & !SLEEPS;
                }
                std::hint::spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() > SPIN {
                break;
            }
        }
    }
    loop {
        // Acquire, here and on failure: pairs with the swap in `send`.
        match word.compare_exchange(old, old | SLEEPS, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => {}
            Err(now) if now & !SLEEPS != old => return now & !SLEEPS,
            Err(_) => {}
        }
        // An interrupted or late wait is repeated.
        let _ = futex::wait(word, futex::Flags::empty(), old | SLEEPS, None);
    }
}

struct Caller<const SPINS: bool> {
    shared: Mapping,
    form: Form,
    number: u32,
}

impl<const SPINS: bool> Client for Caller<SPINS> {
    #[inline]
    fn call(&mut self, request: &[u8], reply: &mut [u8]) {
        let (requests, to, replies, from) = self.shared.parts(self.form);
        assert!(request.len() == self.form.request_bytes() && reply.len() == self.form.reply_bytes());
        // SAFETY: the length was checked. The server does not touch the bytes before the word changes.
        unsafe { ptr::copy_nonoverlapping(request.as_ptr(), to, request.len()) };
        let old = self.number;
        self.number = if old + STEP == END { 0 } else { old + STEP };
        send(requests, self.number);
        wait::<SPINS>(replies, old);
        // SAFETY: the length was checked. The server does not touch the bytes until the next request.
        unsafe { ptr::copy_nonoverlapping(from, reply.as_mut_ptr(), reply.len()) };
    }
}

impl<const SPINS: bool> Drop for Caller<SPINS> {
    fn drop(&mut self) {
        send(self.shared.parts(self.form).0, END);
    }
}

fn connect<const SPINS: bool>(form: Form, start: Start<'_>) -> io::Result<Box<dyn Client>> {
    let fd = memfd_create(c"squall-bench-futex", MemfdFlags::CLOEXEC)?;
    ftruncate(&fd, size_of::<Shared>() as u64)?;
    let caller = Caller::<SPINS> { shared: Mapping::new(&fd)?, form, number: 0 };
    start(ServerEnd { fds: vec![fd], ..ServerEnd::default() })?;
    Ok(Box::new(caller))
}

fn serve<const SPINS: bool>(form: Form, end: ServerEnd) -> io::Result<()> {
    let Ok([fd]) = <[_; 1]>::try_from(end.fds) else { return Err(wrong_count()) };
    let shared = Mapping::new(&fd)?;
    drop(fd);
    let (requests, from, replies, to) = shared.parts(form);
    let (mut request, mut reply) = (vec![0; form.request_bytes()], vec![0; form.reply_bytes()]);
    let mut number = 0;
    loop {
        number = wait::<SPINS>(requests, number);
        if number == END {
            return Ok(());
        }
        // SAFETY: the lengths are those of the form. The client does not touch the bytes until the reply.
        unsafe { ptr::copy_nonoverlapping(from, request.as_mut_ptr(), request.len()) };
        form.answer(&request, &mut reply);
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(reply.as_ptr(), to, reply.len()) };
        send(replies, number);
    }
}
