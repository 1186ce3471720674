//! Faults and other events that a thread reads from the descriptor.

use crate::support::{BOTH, MISSING, Memory, PLAIN, copy, file, one_at_a_time, open, page, register};
use squall_sys::uffd::{Event, Features, Modes, Options, Uffd};
use std::time::Duration;

/// Waits for the next event.
fn next(uffd: &Uffd) -> Event {
    loop {
        assert!(uffd.wait(None).unwrap());
        let mut events = [Event::Empty];
        if uffd.read_events(&mut events).unwrap() == 1 {
            let [event] = events;
            return event;
        }
    }
}

#[test]
fn a_thread_sleeps_until_its_page_is_copied() {
    let _one = one_at_a_time();
    let Some(uffd) = open(Features::THREAD_ID | Features::EXACT_ADDRESS) else { return };
    let (memory, source) = (Memory::private(2), Memory::private(2));
    source.fill(40);
    register(&uffd, &memory, MISSING);
    assert!(!uffd.wait(Some(Duration::ZERO)).unwrap());
    assert_eq!(uffd.read_events(&mut [Event::Empty]).unwrap(), 0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            // SAFETY: gettid(2) has no arguments.
            let thread = unsafe { libc::gettid() };
            // SAFETY: memory of this test.
            (thread, unsafe { memory.pointer(1).add(5).read_volatile() }, memory.read(1))
        });
        let Event::PageFault { address, write, write_protected, minor, thread } = next(&uffd) else {
            panic!("another event");
        };
        assert_eq!((address, write, write_protected, minor), (memory.page(1) + 5, false, false, false));
        // The copy leaves the thread asleep, and the wake ends that.
        let options = Options { dont_wake: true, ..PLAIN };
        // SAFETY: memory of this test.
        assert_eq!(unsafe { uffd.copy(memory.page(1), source.pointer(1), page(), options) }, Ok(page()));
        uffd.wake(memory.page(1), page()).unwrap();
        let (number, byte, first) = reader.join().unwrap();
        assert_eq!((byte, first), (0, 41));
        // A process in another pid namespace than its parent's has a number of each.
        assert!(thread.is_some(), "no number of the thread {number}");
    });
}

#[test]
fn minor_and_protected_faults_are_told_apart() {
    let _one = one_at_a_time();
    let Some(uffd) = open(Features::MINOR_SHMEM | Features::WP_HUGETLBFS_SHMEM) else { return };
    let file = file(1);
    let (memory, other) = (Memory::of_file(1, &file), Memory::of_file(1, &file));
    other.write(0, 3);
    register(&uffd, &memory, Modes { minor: true, write_protect: true, missing: false });
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| memory.read(0));
        let event = next(&uffd);
        assert!(
            matches!(event, Event::PageFault { minor: true, write: false, thread: None, .. }),
            "{event:?}"
        );
        // SAFETY: memory of this test.
        unsafe { uffd.resume(memory.at, page(), PLAIN) }.unwrap();
        assert_eq!(reader.join().unwrap(), 3);
        uffd.write_protect(memory.at, page(), true, PLAIN).unwrap();
        let writer = scope.spawn(|| memory.write(0, 4));
        let event = next(&uffd);
        let Event::PageFault { address, write: true, write_protected: true, .. } = event else {
            panic!("{event:?}");
        };
        assert_eq!(address, memory.at);
        uffd.write_protect(memory.at, page(), false, PLAIN).unwrap();
        writer.join().unwrap();
        assert_eq!(other.read(0), 4);
    });
}

#[test]
fn changes_of_mappings_are_events() {
    let _one = one_at_a_time();
    let wanted = Features::EVENT_REMOVE | Features::EVENT_UNMAP | Features::EVENT_REMAP;
    let Some(uffd) = open(wanted) else { return };
    let memory = std::mem::ManuallyDrop::new(Memory::private(4));
    memory.fill(1);
    register(&uffd, &memory, BOTH);
    let (at, len) = (memory.at, memory.len());
    std::thread::scope(|scope| {
        let changer = scope.spawn(|| {
            // SAFETY: memory of this test, which no other code uses; the moved mapping goes last.
            unsafe {
                assert_eq!(libc::madvise(memory.pointer(1).cast(), page(), libc::MADV_DONTNEED), 0);
                let moved = libc::mremap(memory.pointer(0).cast(), len, 2 * len, libc::MREMAP_MAYMOVE);
                assert_ne!(moved, libc::MAP_FAILED);
                assert_eq!(libc::munmap(moved, 2 * len), 0);
                moved.addr()
            }
        });
        let event = next(&uffd);
        assert!(matches!(event, Event::Remove { at: first, len } if first == at + page() && len == page()));
        // A mapping that grows in place sends no event of a move.
        let mut event = next(&uffd);
        let mut to = at;
        if let Event::Remap { from, to: new, .. } = event {
            assert_eq!(from, at);
            to = new;
            event = next(&uffd);
        }
        // The kernel may tell of the old place too.
        if matches!(event, Event::Unmap { at: first, .. } if first == at && to != at) {
            event = next(&uffd);
        }
        assert!(matches!(event, Event::Unmap { at: first, .. } if first == to), "{event:?}");
        assert_eq!(changer.join().unwrap(), to);
    });
}

#[test]
fn a_fork_is_an_event_with_a_descriptor_of_the_child() {
    let _one = one_at_a_time();
    let Some(uffd) = open(Features::EVENT_FORK) else { return };
    let (memory, source) = (Memory::private(1), Memory::private(1));
    source.fill(55);
    register(&uffd, &memory, MISSING);
    let pointer = memory.pointer(0).expose_provenance();
    std::thread::scope(|scope| {
        // The fork waits until its event is read.
        let forker = scope.spawn(|| {
            // SAFETY: fork(2); the child reads one byte and ends.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    let byte = std::ptr::with_exposed_provenance::<u8>(pointer).read_volatile();
                    libc::_exit(byte.into());
                }
                child
            }
        });
        let event = next(&uffd);
        let Event::Fork(of_child) = event else { panic!("{event:?}") };
        let child = forker.join().unwrap();
        assert!(child > 0);
        assert_eq!(of_child.features(), Features::EVENT_FORK);
        // The child waits for its page, which the parent copies from its own memory.
        assert!(matches!(next(&of_child), Event::PageFault { address, .. } if address == memory.at));
        copy(&of_child, memory.at, &source, 0, 1).unwrap();
        let mut status = 0;
        // SAFETY: waitpid(2) for our child, with a place of ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert!(libc::WIFEXITED(status));
        assert_eq!(libc::WEXITSTATUS(status), 55);
        assert!(!memory.is_present(0));
        // The memory of an ended process is gone.
        let error = copy(&of_child, memory.at, &source, 0, 1).unwrap_err();
        assert_eq!(error.reason(), squall_sys::uffd::Reason::Ended);
    });
}

#[test]
fn more_events_than_places_are_read_in_turns() {
    const THREADS: usize = 5;
    let _one = one_at_a_time();
    let Some(uffd) = open(Features::EMPTY) else { return };
    let memory = Memory::private(THREADS);
    register(&uffd, &memory, MISSING);
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let memory = &memory;
            scope.spawn(move || assert_eq!(memory.read(number), 0));
        }
        let mut seen = 0;
        while seen < THREADS {
            assert!(uffd.wait(None).unwrap());
            let mut events = [const { Event::Empty }; 2];
            let read = uffd.read_events(&mut events).unwrap();
            assert!(read <= 2);
            for event in &events[..read] {
                let Event::PageFault { address, .. } = *event else { panic!("{event:?}") };
                // SAFETY: memory of this test.
                unsafe { uffd.zero(address, page(), PLAIN) }.unwrap();
            }
            assert!(events[read..].iter().all(|event| matches!(event, Event::Empty)));
            seen += read;
        }
    });
}
