//! Forked processes. Their logs start at the fork and refer to the parent's log.

use crate::files::{Access, WRITES, head_of, log, request, set, sources, table};
use squall_locality::objects::Object;
use squall_locality::report::{Report, report, table as text};
use squall_locality_plugin::format::{HEAD_BYTES, file, head, record};

/// A block of 64 bytes, allocated by this thread in the first epoch.
fn alloc(thread: u32, address: u64) -> Vec<u8> {
    let words: [u32; 4] = [1, thread, 0, 0];
    let mut payload: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    payload.extend([address, 64].iter().flat_map(|long| long.to_le_bytes()));
    payload
}

/// Forked from this process, whose log had `bytes` bytes of records.
fn forked(process: u32, bytes: u64) -> Vec<u8> {
    [u64::from(process), bytes].iter().flat_map(|long| long.to_le_bytes()).collect()
}

fn of(process: u32, mut file: Vec<u8>) -> Vec<u8> {
    set(&mut file, head::PROCESS, process);
    file
}

/// Bytes of a log's records.
fn bytes_of(log: &[u8]) -> u64 {
    (log.len() - HEAD_BYTES) as u64
}

/// Report on the process of this number, with two threads that write lines 1 to `lines`, and with these logs.
fn look(logs: Vec<Vec<u8>>, process: u32, lines: u64) -> Report {
    let accesses: Vec<Access> = (1..=lines).map(|line| Access { line, ..WRITES }).collect();
    let tables = (0..2).map(|number| of(process, table(process + 1, number, &accesses)));
    let mut request = request(64, Some(100));
    request.pid = process + 1;
    report(&sources(logs.into_iter().chain(tables).collect()), &request)
}

/// For the line at this address: the process that allocated its block, if it is another one, and the thread.
/// Empty if no block is known.
fn asked(report: &Report, address: u64) -> Option<(Option<u32>, u32)> {
    let line = report.lines.iter().find(|line| line.address == format!("{address:#x}")).expect("the line");
    match &line.object {
        Object::Heap { blocks } => Some((blocks[0].process, blocks[0].thread)),
        Object::Unknown => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_grandchild_inherits_blocks_of_both_ancestors() {
    let (free, kept) = ([&[1, 0, 0, 0, 0, 0, 0, 0][..], &0x80u64.to_le_bytes()].concat(), alloc(7, 0x40));
    let first = [(record::ALLOC, &kept[..]), (record::ALLOC, &alloc(8, 0x80))];
    let first = log(1, &first);
    let at_the_fork = bytes_of(&first);
    // Events of the first process after the fork are not inherited.
    let mut later = first.clone();
    later.extend_from_slice(&log(1, &[(record::ALLOC, &alloc(9, 0x140))])[HEAD_BYTES..]);
    let second = [
        (record::FORKED, &forked(0, at_the_fork)[..]),
        (record::FREE, &free[..]),
        (record::ALLOC, &alloc(5, 0xc0)),
    ];
    let second = of(1, log(2, &second));
    let third = [(record::FORKED, &forked(1, bytes_of(&second))[..]), (record::ALLOC, &alloc(3, 0x100))];
    let third = of(2, log(3, &third));
    // The order of the files does not matter.
    for logs in [[later.clone(), second.clone(), third.clone()], [third, later, second]] {
        let found = look(logs.to_vec(), 2, 5);
        assert_eq!(asked(&found, 0x40), Some((Some(1), 7)), "of the first");
        assert_eq!(asked(&found, 0x80), Some((Some(1), 8)), "given back at the first epoch, with the writes");
        assert_eq!(asked(&found, 0xc0), Some((Some(2), 5)), "of the second");
        assert_eq!(asked(&found, 0x100), Some((None, 3)), "its own");
        assert_eq!(asked(&found, 0x140), None, "after the copy was made");
    }
}

#[test]
fn a_log_cut_inside_a_record_ends_before_it() {
    let whole = log(1, &[(record::ALLOC, &alloc(7, 0x40))]);
    let both = log(1, &[(record::ALLOC, &alloc(7, 0x40)), (record::ALLOC, &alloc(8, 0x80))]);
    for cut in [bytes_of(&whole), bytes_of(&whole) + 1, bytes_of(&whole) + 8, bytes_of(&both) - 1] {
        let copy = of(1, log(2, &[(record::FORKED, &forked(0, cut))]));
        let found = look(vec![both.clone(), copy], 1, 2);
        assert_eq!((asked(&found, 0x40), asked(&found, 0x80)), (Some((Some(1), 7)), None), "{cut}");
    }
    // More bytes than the log has means all.
    let copy = of(1, log(2, &[(record::FORKED, &forked(0, u64::MAX))]));
    assert_eq!(asked(&look(vec![both, copy], 1, 2), 0x80), Some((Some(1), 8)));
}

#[test]
fn a_child_without_a_parent_log_keeps_its_own_blocks() {
    let first = log(1, &[(record::ALLOC, &alloc(7, 0x40))]);
    let third = of(2, log(3, &[(record::FORKED, &forked(1, u64::MAX)), (record::ALLOC, &alloc(3, 0x80))]));
    let found = look(vec![first.clone(), third.clone()], 2, 2);
    assert_eq!((asked(&found, 0x40), asked(&found, 0x80)), (None, Some((None, 3))));
    // A table is not a log, nor is any other file.
    let no_log = of(1, head_of(file::TABLE, 2, 0));
    let found = look(vec![first, no_log, third], 2, 2);
    assert_eq!((asked(&found, 0x40), asked(&found, 0x80)), (None, Some((None, 3))));
    // A process cannot be forked from itself or from a later one.
    for parent in [1, 2, u32::MAX] {
        let alone =
            of(1, log(2, &[(record::FORKED, &forked(parent, u64::MAX)), (record::ALLOC, &alloc(3, 0x40))]));
        assert_eq!(asked(&look(vec![alone], 1, 1), 0x40), Some((None, 3)));
    }
}

#[test]
fn the_table_names_the_allocating_process() {
    let first = log(1, &[(record::ALLOC, &alloc(3, 0x40))]);
    let copy = of(1, log(2, &[(record::FORKED, &forked(0, bytes_of(&first)))]));
    let said = text(&look(vec![first.clone(), copy], 1, 1));
    assert!(said.contains("allocated by thread 3 of process 1\n"), "{said}");
    let said = text(&look(vec![first], 0, 1));
    assert!(said.contains("allocated by thread 3\n"), "{said}");
}
