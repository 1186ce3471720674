//! A descriptor in the hands of another process.

use crate::support::{
    Faults, MISSING, Memory, PLAIN, Plan, child, has_role, one_at_a_time, open, page, register,
};
use squall_sys::uffd::{Event, Features, Uffd};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;

/// Space for the message of one descriptor, aligned as its header demands.
#[repr(C, align(8))]
struct Control([u8; 32]);

/// Sends or receives one byte with a descriptor.
fn message(socket: &UnixStream, act: impl Fn(i32, &mut libc::msghdr) -> isize) {
    let mut byte = [1u8];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: zeros are a valid header without parts.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    assert_eq!(act(socket.as_raw_fd(), &mut header), 1, "{}", std::io::Error::last_os_error());
}

fn send(socket: &UnixStream, uffd: &Uffd) {
    let mut control = Control([0; 32]);
    let space = control.0.as_mut_ptr();
    message(socket, |socket, header| {
        header.msg_control = space.cast();
        // SAFETY: the space holds a header and one descriptor, to which `CMSG_DATA` points.
        unsafe {
            header.msg_controllen = libc::CMSG_SPACE(4) as _;
            let part = libc::CMSG_FIRSTHDR(header);
            (*part).cmsg_level = libc::SOL_SOCKET;
            (*part).cmsg_type = libc::SCM_RIGHTS;
            (*part).cmsg_len = libc::CMSG_LEN(4) as _;
            libc::CMSG_DATA(part).cast::<i32>().write_unaligned(uffd.as_fd().as_raw_fd());
            libc::sendmsg(socket, header, 0)
        }
    });
}

fn receive(socket: &UnixStream) -> OwnedFd {
    let mut control = Control([0; 32]);
    let space = control.0.as_mut_ptr();
    let descriptor = std::cell::Cell::new(-1);
    message(socket, |socket, header| {
        header.msg_control = space.cast();
        header.msg_controllen = 32;
        // SAFETY: the kernel fills the space with a header and one descriptor.
        unsafe {
            let received = libc::recvmsg(socket, header, libc::MSG_CMSG_CLOEXEC);
            let part = libc::CMSG_FIRSTHDR(header);
            assert!(!part.is_null());
            descriptor.set(libc::CMSG_DATA(part).cast::<i32>().read_unaligned());
            received
        }
    });
    // SAFETY: the kernel opened the descriptor for us.
    unsafe { OwnedFd::from_raw_fd(descriptor.get()) }
}

#[test]
fn role_pager() {
    if !has_role("handed::role_pager") {
        return;
    }
    // The standard input is a socket.
    let mut socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let uffd = Uffd::from_fd(receive(&socket)).unwrap();
    assert_eq!((uffd.features(), uffd.user_mode_only()), (Features::THREAD_ID, None));
    let source = Memory::private(1);
    source.fill(90);
    socket.write_all(&[1]).unwrap();
    assert!(uffd.wait(None).unwrap());
    let mut events = [Event::Empty];
    assert_eq!(uffd.read_events(&mut events).unwrap(), 1);
    let Event::PageFault { address, .. } = events[0] else { panic!("{events:?}") };
    // SAFETY: the parent finds any bytes valid.
    unsafe { uffd.copy(address, source.pointer(0), page(), PLAIN) }.unwrap();
}

#[test]
fn another_process_resolves_faults_by_a_descriptor_that_it_received() {
    let _one = one_at_a_time();
    let Some(uffd) = open(Features::THREAD_ID) else { return };
    let memory = Memory::private(1);
    register(&uffd, &memory, MISSING);
    let (mut socket, theirs) = UnixStream::pair().unwrap();
    let child = child("handed::role_pager", Some(theirs.into()));
    send(&socket, &uffd);
    // Own descriptor closed: the other process's keeps the range registered.
    drop(uffd);
    socket.read_exact(&mut [0]).unwrap();
    assert_eq!(memory.read(0), 90);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn another_thread_gets_a_descriptor_whole() {
    let wanted = Features::SIGBUS | Features::EXACT_ADDRESS;
    let Some(uffd) = open(wanted) else { return };
    let memory = Memory::private(1);
    register(&uffd, &memory, MISSING);
    let descriptor = uffd.into_fd();
    let uffd = std::thread::spawn(|| Uffd::from_fd(descriptor).unwrap()).join().unwrap();
    assert_eq!(uffd.features(), wanted);
    let faults = Faults::handle(uffd, Plan::Zero, &memory, None);
    assert_eq!((memory.read(0), faults.count()), (0, 1));
}

#[test]
fn another_kind_of_descriptor_is_refused() {
    for path in ["/dev/null", "/proc/self/maps"] {
        let file = std::fs::File::open(path).unwrap();
        let error = Uffd::from_fd(file.into()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("not of userfaultfd"));
    }
}
