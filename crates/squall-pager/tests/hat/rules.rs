//! The rules of the handler of faults: the places where a thread may touch a page, and the end of the process
//! if a page cannot be brought in.

use crate::{FORMS, Program, program};
use squall_machine::ClusterSize;
use squall_macros::interface;
use squall_objects::map::{self, MapExt, OwnedMap};
use squall_pager::cache::{self, PAGE_BYTES};
use squall_pager::region::Region;
use squall_rcu::Rcu;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const PARTITIONED: cache::Form = cache::Form::Partitioned { partitions: 4, shift: 0 };

#[test]
fn pages_come_in_inside_closures_of_every_map() {
    const KEYS: usize = 32;
    let maps: [(&str, OwnedMap<usize, usize>); 5] = [
        ("shared", map::shared()),
        ("locked", map::locked()),
        ("partitioned", map::partitioned(4, |hash| hash as usize % 4)),
        ("replicated", map::replicated(ClusterSize::Cpu)),
        ("adaptive", map::adaptive()),
    ];
    for (name, map) in maps {
        let Some(program) = program(PARTITIONED, KEYS, 8) else { return };
        for key in 0..KEYS {
            map.insert(key, KEYS - 1 - key);
        }
        for key in 0..KEYS {
            let (fills, page) = (program.fills(), KEYS - 1 - key);
            let before = map.with(&key, |page| program.word(*page, 0).fetch_add(*page as u64, Relaxed));
            assert_eq!(before, Some(0), "{name}");
            // The thread may not wait there, so the service thread fills the page.
            assert_eq!(program.fills(), (fills.0 + 1, fills.1 + 1), "{name}");
            let after = map.with(&key, |page| program.word(*page, 0).load(Relaxed));
            assert_eq!(after, Some(page as u64), "{name}");
        }
    }
}

/// A value that touches mapped memory when it is dropped.
struct Touches(Arc<Program>, usize);

impl Drop for Touches {
    fn drop(&mut self) {
        self.0.word(self.1, 0).fetch_add(1, Relaxed);
    }
}

/// The interface of an object.
#[interface(crate = squall_core)]
trait Page: Send + Sync {
    fn page(&self) -> usize;
}

impl Page for Touches {
    fn page(&self) -> usize {
        self.1
    }
}

#[test]
fn pages_come_in_inside_drops_of_values_that_squall_destroys() {
    const PAGES: usize = 48;
    for form in FORMS {
        let Some(program) = program(form, PAGES, 8) else { return };
        let program = Arc::new(program);
        let touches = |page| Touches(program.clone(), page);
        let (map, cell) = (map::shared::<usize, Touches>(), Rcu::new(Box::new(touches(0))));
        for page in 0..PAGES {
            let object = squall_core::shared::<dyn Page, _>(touches(page));
            assert_eq!(object.page(), page);
            drop(object);
            map.set(0, touches(page));
            cell.replace(Box::new(touches(page)));
            squall_rcu::retire(Box::new(touches(page)));
        }
        drop((map, cell));
        squall_rcu::barrier().unwrap();
        let counts: Vec<u64> = (0..PAGES).map(|page| program.word(page, 0).load(Relaxed)).collect();
        // The cell had page 0 once more.
        let expected = (0..PAGES).map(|page| 4 + u64::from(page == 0));
        assert!(counts.iter().copied().eq(expected), "{form:?}: {counts:?}");
    }
}

#[test]
fn the_handler_runs_no_drop_of_a_retired_value() {
    const PAGES: usize = 64;
    const ROUNDS: usize = 2000;
    for form in FORMS {
        let Some(program) = program(form, PAGES, 4) else { return };
        let program = Arc::new(program);
        for round in 0..ROUNDS {
            // Its drop touches a page that is rarely there. A fault within a fault would end the process.
            squall_rcu::retire(Box::new(Touches(program.clone(), round % PAGES)));
            // Evicts a page, and retires its slot.
            program.word(round * 7 % PAGES, 1).fetch_add(1, Relaxed);
        }
        squall_rcu::barrier().unwrap();
        let drops: u64 = (0..PAGES).map(|page| program.word(page, 0).load(Relaxed)).sum();
        assert_eq!(drops, ROUNDS as u64, "{form:?}");
    }
}

/// Runs a system call that returns a count or -1.
fn call(call: impl FnOnce() -> isize) -> Result<usize, Option<i32>> {
    usize::try_from(call()).map_err(|_| io::Error::last_os_error().raw_os_error())
}

#[test]
fn a_system_call_on_a_page_that_is_not_there_returns_efault() {
    let Some(program) = program(PARTITIONED, 4, 8) else { return };
    let (from, to) = io::pipe().unwrap();
    // SAFETY: write(2) of a word of the mapping.
    let write =
        |page| call(|| unsafe { libc::write(to.as_raw_fd(), program.word(page, 0).as_ptr().cast(), 8) });
    // SAFETY: read(2) into a word of the mapping, which no other thread uses.
    let read =
        |page| call(|| unsafe { libc::read(from.as_raw_fd(), program.word(page, 0).as_ptr().cast(), 8) });
    const FAULT: Result<usize, Option<i32>> = Err(Some(libc::EFAULT));
    assert_eq!((write(0), program.fills()), (FAULT, (0, 0)));
    program.word(0, 0).store(7, Relaxed);
    assert_eq!(write(0), Ok(8));
    assert_eq!(read(1), FAULT);
    // A page that was touched by a load may be read alone.
    assert_eq!(program.word(1, 0).load(Relaxed), 0);
    assert_eq!(read(1), FAULT);
    program.word(1, 0).fetch_add(0, Relaxed);
    assert_eq!((read(1), program.word(1, 0).load(Relaxed)), (Ok(8), 7));
}

/// The kind of a failure, in the environment of a child process.
const ROLE: &str = "SQUALL_TEST_FAULT";

/// Runs in a child process. Touches a page that cannot be brought in.
fn fail(role: &str) {
    let Some(program) = program(PARTITIONED, 4, 8) else { return };
    println!("touches {:#x}", program.word(3, 1).as_ptr().addr());
    program.state.bad_reads.lock().unwrap().insert(3, "the disk is gone");
    match role {
        "in-operation" => _ = squall_rcu::pin(|_| program.word(3, 1).load(Relaxed)),
        "cut" => {
            program.region.truncate(2 * PAGE_BYTES as u64).unwrap();
            program.word(3, 1).load(Relaxed);
        }
        "panic" => {
            program.state.panics.store(true, Relaxed);
            program.word(3, 1).load(Relaxed);
        }
        _ => _ = program.word(3, 1).load(Relaxed),
    }
    println!("went on");
}

#[test]
fn a_page_that_cannot_be_brought_in_ends_the_process_with_address_object_and_reason() {
    if let Ok(role) = std::env::var(ROLE) {
        return fail(&role);
    }
    for (role, object, reason) in [
        ("alone", "source memory, page 3", "the disk is gone"),
        ("in-operation", "source memory, page 3", "the disk is gone"),
        ("cut", "the region at 0x0", "offset 12288 lies beyond the end"),
        ("panic", "its region, file cache or source", "panicked: the source has a bug"),
    ] {
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = "rules::a_page_that_cannot_be_brought_in_ends_the_process_with_address_object_and_reason";
        let output = child.args([name, "--exact", "--nocapture"]).env(ROLE, role).output().unwrap();
        let [told, errors] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        if told.contains("SKIP") {
            return;
        }
        assert_eq!(output.status.signal(), Some(libc::SIGBUS), "{role}: {told}{errors}");
        let address = told.split("touches ").nth(1).and_then(|rest| rest.lines().next()).unwrap();
        let mut lines = errors.lines();
        let line = lines.find(|line| line.starts_with(&format!("squall: no page at {address}: ")));
        let line = line.unwrap_or_else(|| panic!("{role}: {told}{errors}"));
        assert!(line.contains(object) && line.contains(reason), "{role}: {line}");
        assert!(!told.contains("went on"), "{role}: {told}");
    }
}
