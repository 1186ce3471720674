//! Operations on pages, and faults that the faulting thread resolves.

use crate::support::{
    BOTH, Faults, MISSING, Memory, PLAIN, Plan, assert_write, copy, file, one_at_a_time, open, page, register,
};
use squall_sys::uffd::{Features, Modes, Operation, Options, Reason, Uffd};

#[test]
fn a_thread_copies_the_missing_page_that_it_touches() {
    let Some(uffd) = open(Features::SIGBUS) else { return };
    let (memory, source) = (Memory::private(4), Memory::private(4));
    source.fill(10);
    register(&uffd, &memory, MISSING);
    let faults = Faults::handle(uffd, Plan::Copy, &memory, Some(&source));
    for number in [2, 0, 3] {
        // SAFETY: the last byte of a page of ours.
        let last = unsafe { memory.pointer(number).add(page() - 1) };
        // SAFETY: the same.
        assert_eq!(unsafe { last.read_volatile() }, 0);
        assert_eq!(faults.address(), last.addr());
        assert_write(false);
        assert_eq!(memory.read(number), 10 + number as u8);
    }
    assert_eq!(faults.count(), 3);
    memory.write(1, 77);
    assert_write(true);
    assert_eq!((faults.count(), memory.read(1)), (4, 77));
}

#[test]
fn a_missing_page_becomes_zeros() {
    let Some(uffd) = open(Features::SIGBUS) else { return };
    let memory = Memory::private(2);
    register(&uffd, &memory, MISSING);
    let faults = Faults::handle(uffd, Plan::Zero, &memory, None);
    assert_eq!(memory.read(0), 0);
    memory.write(1, 5);
    assert_eq!((memory.read(1), faults.count()), (5, 2));
}

#[test]
fn a_page_of_a_file_is_resumed_after_a_minor_fault() {
    let wanted = Features::SIGBUS | Features::MINOR_SHMEM;
    let Some(uffd) = open(wanted) else { return };
    let file = file(8);
    let (memory, other) = (Memory::of_file(8, &file), Memory::of_file(8, &file));
    other.fill(30);
    register(&uffd, &memory, Modes { minor: true, ..Modes::default() });
    let faults = Faults::handle(uffd, Plan::Resume, &memory, None);
    assert_eq!((memory.read(3), memory.read(3), faults.count()), (33, 33, 1));
    memory.write(4, 99);
    assert_eq!((other.read(4), faults.count()), (99, 2));
    // A mapped page ends the operation behind the pages before it.
    // SAFETY: memory of this test.
    let error = unsafe { faults.uffd().resume(memory.at, memory.len(), PLAIN) }.unwrap_err();
    assert_eq!((error.done(), error.reason()), (3 * page(), Reason::Present));
    assert_eq!((memory.read(2), faults.count()), (32, 2));
}

#[test]
fn one_fault_resumes_many_pages() {
    let Some(uffd) = open(Features::SIGBUS | Features::MINOR_SHMEM) else { return };
    let file = file(16);
    let (memory, other) = (Memory::of_file(16, &file), Memory::of_file(16, &file));
    other.fill(100);
    register(&uffd, &memory, Modes { minor: true, ..Modes::default() });
    let faults = Faults::handle(uffd, Plan::ResumeMany(16), &memory, None);
    assert!((0..16).all(|number| memory.read(number) == 100 + number as u8));
    assert_eq!(faults.count(), 1);
}

#[test]
fn a_file_without_the_page_cannot_be_resumed() {
    let Some(uffd) = open(Features::MINOR_SHMEM) else { return };
    let file = file(2);
    let memory = Memory::of_file(2, &file);
    register(&uffd, &memory, Modes { minor: true, ..Modes::default() });
    // SAFETY: memory of this test.
    let error = unsafe { uffd.resume(memory.at, page(), PLAIN) }.unwrap_err();
    assert_eq!((error.done(), error.reason()), (0, Reason::Unbacked));
}

#[test]
fn a_write_to_a_protected_page_is_a_fault_and_is_resolved() {
    let Some(uffd) = open(Features::SIGBUS | Features::PAGEFAULT_FLAG_WP) else { return };
    let memory = Memory::private(4);
    memory.fill(1);
    register(&uffd, &memory, BOTH);
    assert_eq!(uffd.write_protect(memory.at, memory.len(), true, PLAIN), Ok(memory.len()));
    let faults = Faults::handle(uffd, Plan::Unprotect, &memory, None);
    assert_eq!((memory.read(2), faults.count()), (3, 0));
    memory.write(2, 50);
    assert_write(true);
    assert_eq!((memory.read(2), faults.count(), faults.address()), (50, 1, memory.page(2)));
    memory.write(2, 51);
    assert_eq!(faults.count(), 1);
}

#[test]
fn a_copy_may_be_protected_from_the_start() {
    let Some(uffd) = open(Features::SIGBUS | Features::PAGEFAULT_FLAG_WP) else { return };
    let (memory, source) = (Memory::private(1), Memory::private(1));
    source.fill(8);
    register(&uffd, &memory, BOTH);
    let options = Options { write_protected: true, ..PLAIN };
    // SAFETY: memory of this test.
    assert_eq!(unsafe { uffd.copy(memory.at, source.pointer(0), page(), options) }, Ok(page()));
    let faults = Faults::handle(uffd, Plan::Unprotect, &memory, None);
    assert_eq!((memory.read(0), faults.count()), (8, 0));
    memory.write(0, 9);
    assert_eq!((memory.read(0), faults.count()), (9, 1));
}

#[test]
fn the_kernel_resolves_writes_with_asynchronous_protection() {
    let Some(uffd) = open(Features::SIGBUS | Features::WP_ASYNC | Features::WP_UNPOPULATED) else { return };
    let memory = Memory::private(2);
    register(&uffd, &memory, Modes { write_protect: true, ..Modes::default() });
    uffd.write_protect(memory.at, memory.len(), true, PLAIN).unwrap();
    let faults = Faults::handle(uffd, Plan::Pass, &memory, None);
    memory.fill(1);
    assert_eq!((memory.read(1), faults.count()), (2, 0));
}

#[test]
fn a_missing_page_is_moved_from_elsewhere() {
    let Some(uffd) = open(Features::SIGBUS | Features::MOVE) else { return };
    let (memory, source) = (Memory::private(4), Memory::private(4));
    source.fill(60);
    register(&uffd, &memory, MISSING);
    let faults = Faults::handle(uffd, Plan::Move, &memory, Some(&source));
    assert!(source.is_present(1));
    assert_eq!((memory.read(1), faults.count()), (61, 1));
    assert!(!source.is_present(1));
    // The moved page is a hole now, which ends a move unless holes are allowed.
    let uffd = faults.uffd();
    let elsewhere = Memory::private(4);
    register(uffd, &elsewhere, MISSING);
    // SAFETY: memory of this test.
    let error = unsafe { uffd.move_pages(elsewhere.at, source.at, source.len(), PLAIN) }.unwrap_err();
    assert_eq!((error.done(), error.reason()), (page(), Reason::Absent));
    let rest = 3 * page();
    let holes = Options { allow_holes: true, ..PLAIN };
    // SAFETY: memory of this test.
    assert_eq!(unsafe { uffd.move_pages(elsewhere.page(1), source.page(1), rest, holes) }, Ok(rest));
    assert_eq!([0, 2, 3].map(|number| elsewhere.read(number)), [60, 62, 63]);
    assert!(!elsewhere.is_present(1));
}

#[test]
fn a_poisoned_page_is_a_fault_of_its_reader() {
    let Some(uffd) = open(Features::SIGBUS | Features::POISON) else { return };
    let memory = Memory::private(2);
    register(&uffd, &memory, MISSING);
    assert_eq!(uffd.poison(memory.page(1), page(), PLAIN), Ok(page()));
    let error = uffd.poison(memory.page(1), page(), PLAIN).unwrap_err();
    assert_eq!(error.reason(), Reason::Present);
    let faults = Faults::handle(uffd, Plan::Heal, &memory, None);
    assert_eq!(memory.read(1), 0);
    assert_eq!((faults.count(), faults.address()), (1, memory.page(1)));
    // Without memory failures (CONFIG_MEMORY_FAILURE), the kernel's signal does not tell poison apart.
    let told = std::path::Path::new("/proc/sys/vm/memory_failure_recovery").exists();
    assert_eq!(faults.poison(), told.into());
}

/// Checks that an operation ends at the present page 5 of 8, and that the rest can be done.
fn ends_at_a_present_page(uffd: &Uffd, act: impl Fn(&Memory, usize, usize) -> (usize, Option<Reason>)) {
    let memory = Memory::private(8);
    memory.write(5, 200);
    register(uffd, &memory, MISSING);
    assert_eq!(act(&memory, 0, 8), (5 * page(), Some(Reason::Present)));
    assert!((0..6).all(|number| memory.is_present(number)));
    assert!((6..8).all(|number| !memory.is_present(number)));
    assert_eq!(memory.read(5), 200);
    assert_eq!(act(&memory, 6, 2), (2 * page(), None));
    // A repetition changes no page.
    memory.write(6, 201);
    assert_eq!(act(&memory, 6, 2), (0, Some(Reason::Present)));
    assert_eq!(memory.read(6), 201);
}

#[test]
fn an_operation_ends_at_a_present_page_and_tells_the_bytes_before_it() {
    let Some(uffd) = open(Features::EMPTY) else { return };
    let source = Memory::private(8);
    source.fill(20);
    let done = |result: Result<usize, squall_sys::uffd::RangeError>| match result {
        Ok(done) => (done, None),
        Err(error) => (error.done(), Some(error.reason())),
    };
    ends_at_a_present_page(&uffd, |memory, first, pages| {
        let result = done(copy(&uffd, memory.page(first), &source, first, pages));
        assert_eq!(memory.read(first), if memory.read(first) == 201 { 201 } else { 20 + first as u8 });
        result
    });
    ends_at_a_present_page(&uffd, |memory, first, pages| {
        // SAFETY: memory of this test.
        done(unsafe { uffd.zero(memory.page(first), pages * page(), PLAIN) })
    });
}

#[test]
fn a_source_that_cannot_be_read_ends_a_copy() {
    let Some(uffd) = open(Features::EMPTY) else { return };
    let (memory, source) = (Memory::private(4), Memory::private(4));
    source.fill(1);
    // SAFETY: pages of ours, no longer used. Their addresses stay reserved.
    let forbidden = unsafe { libc::mprotect(source.pointer(2).cast(), 2 * page(), libc::PROT_NONE) };
    assert_eq!(forbidden, 0);
    register(&uffd, &memory, MISSING);
    let error = copy(&uffd, memory.at, &source, 0, 4).unwrap_err();
    assert_eq!((error.operation(), error.reason()), (Operation::Copy, Reason::Unbacked));
    assert_eq!(error.done(), 2 * page());
}

#[test]
fn misuse_has_its_reason() {
    let Some(uffd) = open(Features::EMPTY) else { return };
    let (memory, source) = (Memory::private(2), Memory::private(2));
    source.fill(1);
    assert_eq!(copy(&uffd, memory.at, &source, 0, 1).unwrap_err().reason(), Reason::Absent);
    register(&uffd, &memory, MISSING);
    // SAFETY: memory of this test, in all of these calls.
    unsafe {
        let invalid = Err(Reason::Invalid);
        let reason =
            |result: Result<usize, squall_sys::uffd::RangeError>| result.map_err(|error| error.reason());
        let at = source.pointer(0);
        assert_eq!(reason(uffd.copy(memory.at + 1, at, page(), PLAIN)), invalid);
        assert_eq!(reason(uffd.copy(memory.at, at, 1, PLAIN)), invalid);
        assert_eq!(reason(uffd.copy(memory.at, at, 0, PLAIN)), invalid);
        // Private memory has no file to resume from.
        assert_eq!(reason(uffd.resume(memory.at, page(), PLAIN)), invalid);
        let holes = Options { allow_holes: true, ..PLAIN };
        let protected = Options { write_protected: true, ..PLAIN };
        for options in [holes, protected] {
            assert_eq!(reason(uffd.copy(memory.at, at, page(), options)), invalid);
            assert_eq!(reason(uffd.zero(memory.at, page(), options)), invalid);
        }
        // The range is not registered for write protection.
        let error = uffd.write_protect(memory.at, page(), true, PLAIN).unwrap_err();
        assert_eq!((error.done(), error.reason()), (0, Reason::Absent));
        let other = Uffd::open(Features::EMPTY).unwrap();
        assert_eq!(other.register(memory.at, page(), MISSING).unwrap_err().reason(), Reason::Busy);
        let nothing = Modes::default();
        assert_eq!(uffd.register(memory.at, page(), nothing).unwrap_err().reason(), Reason::Invalid);
        // Ordinary memory again.
        uffd.unregister(memory.at, memory.len()).unwrap();
        assert_eq!(memory.read(0), 0);
        assert_eq!(uffd.wake(memory.at, memory.len()), Ok(()));
        assert_eq!(uffd.wake(memory.at + 1, 1).unwrap_err().reason(), Reason::Invalid);
    }
}

#[test]
fn the_kernel_itself_gets_no_page_in_signal_mode() {
    let Some(uffd) = open(Features::SIGBUS) else { return };
    let memory = Memory::private(1);
    register(&uffd, &memory, MISSING);
    let faults = Faults::handle(uffd, Plan::Zero, &memory, None);
    let zeros = std::fs::File::open("/dev/zero").unwrap();
    let zeros = std::os::fd::AsRawFd::as_raw_fd(&zeros);
    // SAFETY: read(2) into memory of this test.
    let read = || unsafe { libc::read(zeros, memory.pointer(0).cast(), 8) };
    assert_eq!(read(), -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EFAULT));
    assert_eq!(faults.count(), 0);
    // After a touch in user code, the page is there.
    assert_eq!((memory.read(0), faults.count()), (0, 1));
    assert_eq!(read(), 8);
}

#[test]
fn a_handler_keeps_errno() {
    let Some(uffd) = open(Features::SIGBUS) else { return };
    let memory = Memory::private(1);
    register(&uffd, &memory, MISSING);
    let faults = Faults::handle(uffd, Plan::Zero, &memory, None);
    // SAFETY: this thread's own `errno`.
    unsafe { libc::__errno_location().write(77) };
    memory.read(0);
    // SAFETY: this thread's own `errno`.
    assert_eq!((unsafe { libc::__errno_location().read() }, faults.count()), (77, 1));
}

#[test]
fn faults_of_many_threads_are_each_resolved() {
    const THREADS: usize = 4;
    const PAGES: usize = 64;
    let Some(uffd) = open(Features::SIGBUS) else { return };
    let (memory, source) = (Memory::private(THREADS * PAGES), Memory::private(THREADS * PAGES));
    (0..source.pages).for_each(|number| source.write(number, number as u8));
    register(&uffd, &memory, MISSING);
    let faults = Faults::handle(uffd, Plan::Copy, &memory, Some(&source));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let memory = &memory;
            scope.spawn(move || {
                for number in thread * PAGES..(thread + 1) * PAGES {
                    assert_eq!(memory.read(number), number as u8);
                }
            });
        }
    });
    assert_eq!(faults.count(), THREADS * PAGES);
}

#[test]
fn closing_makes_memory_ordinary() {
    let _one = one_at_a_time();
    let Some(uffd) = open(Features::SIGBUS) else { return };
    let memory = Memory::private(1);
    register(&uffd, &memory, MISSING);
    drop(uffd);
    assert_eq!(memory.read(0), 0);
}
