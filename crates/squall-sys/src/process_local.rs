//! Descriptors that stay in the process that opened them. Linux only.
//!
//! Problem: the child of a fork has a copy of each descriptor. So the peer of a socket does not see the end
//! of the process while a child lives. A call of the child on its copy reaches the peer too.
//!
//! Idea: in the child, a function puts another socket under the number of each such descriptor. The peer of
//! that socket has ended. So the owner in the child still has a valid descriptor.
//!
//! - I1. A place has the number of a descriptor that its [`ProcessLocal`] owns, or `FREE`. It becomes free
//!   before the descriptor is closed. So the child replaces no descriptor of another owner.
//! - I2. The function in the child takes no lock and no memory, since a thread that is gone may hold them.
//!
//! Not promised: that no child ever has the descriptor. A fork before `new`, or during the drop, copies it.
//! So shut a connection down before the drop. A child made without fork(3) has it, too.
//! Cost: a place of 16 bytes, which is used again and never freed. A fork visits all places.
#![cfg(all(target_os = "linux", not(miri)))]

use crate::fork;
use crate::system::quietly;
use std::fmt;
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::net::UnixStream;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};
use std::sync::{Once, OnceLock};

/// A place without a descriptor.
const FREE: i32 = -1;

struct Place {
    /// The number of a descriptor, or `FREE` (I1).
    number: AtomicI32,
    /// Fixed before the place is in the list.
    next: Option<&'static Place>,
}

/// The first place of the list, which only grows.
static PLACES: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
/// The socket for children.
static STAND_IN: OnceLock<UnixStream> = OnceLock::new();

/// A descriptor that the child of a fork does not have: a socket without a peer takes its place there.
///
/// ```
/// # #[cfg(all(target_os = "linux", not(miri)))] {
/// use squall_sys::process_local::ProcessLocal;
/// use std::io::Write as _;
/// use std::os::unix::net::UnixStream;
///
/// let (one, other) = UnixStream::pair()?;
/// let one = ProcessLocal::new(one)?;
/// (&*one).write_all(b"hello")?; // in the child of a fork: `BrokenPipe`
/// # drop(other);
/// # }
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct ProcessLocal<T> {
    place: &'static Place,
    value: T,
}

impl<T: AsFd> ProcessLocal<T> {
    /// Keeps a descriptor out of the children of later forks.
    ///
    /// # Errors
    /// The error of socketpair(2), in the first call.
    pub fn new(value: T) -> io::Result<ProcessLocal<T>> {
        static REGISTERED: Once = Once::new();
        if STAND_IN.get().is_none() {
            let (stand_in, _) = UnixStream::pair()?;
            // Another thread may have made one, which will do too.
            let _ = STAND_IN.set(stand_in);
        }
        REGISTERED.call_once(|| fork::at_fork(replace_all));
        Ok(ProcessLocal { place: take_place(value.as_fd().as_raw_fd()), value })
    }
}

impl<T> Deref for ProcessLocal<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> Drop for ProcessLocal<T> {
    fn drop(&mut self) {
        // Relaxed: a fork that comes too early copies a descriptor that is about to be closed.
        self.place.number.store(FREE, Ordering::Relaxed);
    }
}

impl<T: fmt::Debug> fmt::Debug for ProcessLocal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProcessLocal").field(&self.value).finish()
    }
}

fn places() -> Option<&'static Place> {
    // SAFETY: null, or a place that was leaked. Acquire: pairs with the Release in `take_place`.
    unsafe { PLACES.load(Ordering::Acquire).as_ref() }
}

/// Returns a place with this number: a free one, or else a new one.
fn take_place(number: i32) -> &'static Place {
    let claim = |place: &&Place| {
        // Relaxed: the number is all that passes.
        place.number.compare_exchange(FREE, number, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    if let Some(place) = std::iter::successors(places(), |place| place.next).find(claim) {
        return place;
    }
    let mut new = Box::new(Place { number: AtomicI32::new(number), next: None });
    loop {
        let first = places();
        new.next = first;
        let first = first.map_or(ptr::null_mut(), |place| ptr::from_ref(place).cast_mut());
        let place = Box::into_raw(new);
        // Release: pairs with the Acquire in `places`, which then sees the fields.
        match PLACES.compare_exchange(first, place, Ordering::Release, Ordering::Relaxed) {
            // SAFETY: leaked, and changed through its atomic field alone from here on.
            Ok(_) => return unsafe { &*place },
            // SAFETY: converted just now, and not published.
            Err(_) => new = unsafe { Box::from_raw(place) },
        }
    }
}

/// Replaces the descriptors of all places. Runs in the child, on its only thread (I2).
extern "C" fn replace_all() {
    let Some(stand_in) = STAND_IN.get() else { return };
    for place in std::iter::successors(places(), |place| place.next) {
        // Relaxed: the fork copied the memory.
        let number = place.number.load(Ordering::Relaxed);
        if number != FREE {
            // SAFETY: dup3(2) puts an open descriptor under a number whose owner is a `ProcessLocal` (I1).
            // The owner still has an open descriptor. If the call fails, the child has the old one.
            quietly(|| unsafe { libc::dup3(stand_in.as_raw_fd(), number, libc::O_CLOEXEC) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::time::Duration;

    /// Runs `check` in a child, which then waits for its end by a signal. Returns the child's number.
    fn child(check: impl FnOnce() -> bool) -> i32 {
        // SAFETY: the child only makes system calls in `check`, and ends.
        match unsafe { libc::fork() } {
            0 => {
                let code = i32::from(!check());
                // SAFETY: the child ends at once, or at the signal.
                unsafe {
                    libc::alarm(60);
                    if code == 0 {
                        libc::pause()
                    } else {
                        0
                    };
                    libc::_exit(code)
                }
            }
            child => child,
        }
    }

    /// Ends a child. Returns whether it was still waiting.
    fn end(child: i32) -> bool {
        let mut status = 0;
        // SAFETY: a child of this process that no code has waited for, and a place for its status.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        }
        libc::WIFSIGNALED(status)
    }

    #[test]
    fn a_peer_sees_the_end_while_a_child_lives() {
        let (one, mut other) = UnixStream::pair().unwrap();
        let (told, mut tells) = UnixStream::pair().unwrap();
        let one = ProcessLocal::new(one).unwrap();
        let waits = child(|| {
            // A write does not reach the peer, and a shutdown does not end the parent's connection.
            let is_cut = (&*one).write(b"x").is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
            let _ = one.shutdown(std::net::Shutdown::Both);
            (&told).write_all(&[u8::from(is_cut)]).is_ok()
        });
        let mut byte = [0];
        tells.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
        tells.read_exact(&mut byte).unwrap();
        assert_eq!(byte, [1]);
        (&*one).write_all(b"y").unwrap();
        drop(one);
        // The limit ends the test if the child has the socket.
        other.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
        let mut read = Vec::new();
        other.read_to_end(&mut read).unwrap();
        assert_eq!(read, b"y");
        assert!(end(waits));
    }

    #[test]
    fn a_place_is_used_again_and_belongs_to_no_descriptor_that_was_dropped() {
        let (one, _other) = UnixStream::pair().unwrap();
        let local = ProcessLocal::new(one).unwrap();
        let place = ptr::from_ref(local.place);
        drop(local);
        let used = std::iter::successors(places(), |place| place.next).any(|one| ptr::eq(one, place));
        assert!(used, "a place stays in the list");
        // A number that is free again may belong to any other descriptor.
        let (mut one, mut other) = UnixStream::pair().unwrap();
        let waits = child(|| one.write_all(b"z").is_ok());
        let mut byte = [0];
        other.set_read_timeout(Some(Duration::from_secs(50))).unwrap();
        other.read_exact(&mut byte).unwrap();
        assert!(end(waits));
    }
}
