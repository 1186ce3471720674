use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn seals_of(file: &OwnedFd) -> libc::c_int {
    // SAFETY: fcntl(2) with a descriptor alone.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) }
}

fn truncate(file: &OwnedFd, bytes: libc::off_t) -> io::Result<()> {
    // SAFETY: ftruncate(2) with numbers.
    answered(unsafe { libc::ftruncate(file.as_raw_fd(), bytes) }).map(drop)
}

/// A file in memory of 4096 bytes, with these seals alone.
fn memfd(flags: libc::c_uint, seals: libc::c_int) -> OwnedFd {
    // SAFETY: memfd_create(2) with a C string.
    let file = unsafe { opened(|| libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING | flags)) };
    let file = file.unwrap();
    truncate(&file, 4096).unwrap();
    // SAFETY: fcntl(2) with numbers.
    answered(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }).unwrap();
    file
}

/// The text of the error of opening this file as 4096 bytes.
fn refusal(file: BorrowedFd<'_>) -> String {
    let error = SharedMemory::open(file, 4096).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    error.to_string()
}

#[test]
fn new_memory_is_zero_sealed_and_closed_on_exec() {
    let (memory, file) = SharedMemory::create(12288).unwrap();
    assert_eq!(memory.len(), 12288);
    let mut bytes = vec![1; 12288];
    memory.copy_out(0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0));
    assert_eq!(seals_of(&file) & SEALS, SEALS);
    assert_eq!(truncate(&file, 4096).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(truncate(&file, 16384).unwrap_err().raw_os_error(), Some(libc::EPERM));
    // SAFETY: fcntl(2) with numbers.
    let more = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_WRITE) };
    assert_eq!(more, -1, "a seal could be added");
    // SAFETY: fcntl(2) with a descriptor alone.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}

#[test]
fn memory_of_no_size_or_of_an_impossible_one_is_an_error() {
    for bytes in [0, usize::MAX] {
        assert_eq!(SharedMemory::create(bytes).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn two_mappings_of_one_file_are_the_same_memory() {
    let (one, file) = SharedMemory::create(8192).unwrap();
    let two = SharedMemory::open(file.as_fd(), 8192).unwrap();
    drop(file);
    one.word(4096).store(7, Ordering::Relaxed);
    assert_eq!(two.word(4096).load(Ordering::Relaxed), 7);
    two.copy_in(100, b"from the other side");
    drop(two);
    let mut text = [0; 19];
    one.copy_out(100, &mut text);
    assert_eq!(&text, b"from the other side");
}

#[test]
fn a_file_without_seals_or_of_another_size_is_refused_with_the_reason() {
    let shrink = libc::F_SEAL_SHRINK;
    let grow = libc::F_SEAL_GROW;
    assert!(refusal(memfd(0, 0).as_fd()).contains("F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL"));
    assert!(refusal(memfd(0, shrink).as_fd()).contains("lacks F_SEAL_GROW, F_SEAL_SEAL:"));
    assert!(refusal(memfd(0, shrink | grow).as_fd()).contains("lacks F_SEAL_SEAL:"));
    assert!(refusal(memfd(0, grow | libc::F_SEAL_SEAL).as_fd()).contains("lacks F_SEAL_SHRINK:"));
    let null = std::fs::File::open("/dev/null").unwrap();
    assert!(refusal(null.as_fd()).contains("must be a memfd"));
    for bytes in [8192, 4100, 1] {
        let (_memory, file) = SharedMemory::create(bytes).unwrap();
        let expected = format!("has {bytes} bytes, and must have exactly 4096");
        assert!(refusal(file.as_fd()).contains(&expected));
    }
    assert!(SharedMemory::open(memfd(0, SEALS).as_fd(), 0).is_err());
    assert_eq!(SharedMemory::open(memfd(0, SEALS).as_fd(), 4096).unwrap().len(), 4096);
}

#[test]
fn memory_sealed_against_writing_is_an_error() {
    let file = memfd(0, SEALS | libc::F_SEAL_WRITE);
    assert!(SharedMemory::open(file.as_fd(), 4096).is_err());
}

#[test]
fn a_file_opened_for_reading_alone_is_an_error() {
    let (_memory, file) = SharedMemory::create(4096).unwrap();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let file = std::fs::File::open(path).unwrap();
    let error = SharedMemory::open(file.as_fd(), 4096).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn memory_of_huge_pages_is_refused() {
    // SAFETY: memfd_create(2) with a C string.
    let file = unsafe {
        opened(|| libc::memfd_create(c"test".as_ptr(), libc::MFD_ALLOW_SEALING | libc::MFD_HUGETLB))
    };
    // The kernel may lack huge pages.
    let Ok(file) = file else { return };
    // SAFETY: fcntl(2) with numbers.
    answered(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) }).unwrap();
    assert!(refusal(file.as_fd()).contains("huge pages"));
}

#[test]
fn copies_of_every_length_and_alignment_move_these_bytes_alone() {
    const BYTES: usize = 2112;
    let (memory, _file) = SharedMemory::create(BYTES).unwrap();
    let lengths = (0..=80).chain([127, 128, 129, 192, 1023, 2047, 2048, 2049]);
    let shifts = [0, 1, 3, 4, 7, 8, 15, 16];
    for (length, shift) in lengths.flat_map(|length| shifts.map(move |shift| (length, shift))) {
        for (offset, skip) in [(shift, 0), (0, shift), (shift, shift), (BYTES - length, shift)] {
            memory.copy_in(0, &[0xAA; BYTES]);
            let source: Vec<u8> = (0..skip + length).map(|at| (at * 7 + 1) as u8).collect();
            memory.copy_in(offset, &source[skip..]);
            let mut all = [0; BYTES];
            memory.copy_out(0, &mut all);
            assert_eq!(all[offset..offset + length], source[skip..], "{length} bytes to {offset}");
            assert!(all[..offset].iter().chain(&all[offset + length..]).all(|byte| *byte == 0xAA));
            let mut target = vec![0x55; skip + length + 9];
            memory.copy_out(offset, &mut target[skip..skip + length]);
            assert_eq!(target[skip..skip + length], source[skip..], "{length} bytes from {offset}");
            assert!(target[..skip].iter().chain(&target[skip + length..]).all(|byte| *byte == 0x55));
        }
    }
}

#[test]
fn accesses_outside_the_memory_panic_and_change_nothing() {
    let (memory, _file) = SharedMemory::create(4096).unwrap();
    let touch = |offset| {
        memory.word(offset).load(Ordering::Relaxed);
    };
    let panics = |access: &dyn Fn()| catch_unwind(AssertUnwindSafe(access)).is_err();
    for offset in [4093, 4096, 1 << 40, usize::MAX] {
        assert!(panics(&|| memory.copy_in(offset, &[1; 8])), "at {offset}");
        assert!(panics(&|| memory.copy_out(offset, &mut [0; 8])), "at {offset}");
    }
    for offset in [4096, usize::MAX - 3, 4097] {
        assert!(panics(&|| touch(offset)), "at {offset}");
    }
    for offset in [1, 2, 3, 4091] {
        assert!(panics(&|| touch(offset)), "at {offset}");
    }
    assert!(!panics(&|| memory.copy_in(4096, &[])));
    assert!(!panics(&|| touch(4092)));
    let mut all = [1; 4096];
    memory.copy_out(0, &mut all);
    assert!(all.iter().all(|byte| *byte == 0));
}

#[test]
fn a_copy_in_use_by_others_consists_of_bytes_that_were_written() {
    let (memory, _file) = SharedMemory::create(4096).unwrap();
    let ended = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..2000 {
                memory.copy_in(0, &[if round % 2 == 0 { 1 } else { 2 }; 999]);
            }
            // Release: pairs with the reader's load, so that the last copy follows all writes.
            ended.store(true, Ordering::Release);
        });
        loop {
            // Acquire: pairs with the writer's store.
            let last = ended.load(Ordering::Acquire);
            let mut copy = [9; 999];
            memory.copy_out(0, &mut copy);
            assert!(copy.iter().all(|byte| *byte <= 2));
            if last {
                assert!(copy.iter().all(|byte| *byte == 2));
                break;
            }
        }
    });
}
