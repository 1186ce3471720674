//! Classification of tables with known contents, without an emulator.

use crate::files::{Access, WRITES, log, look, request, set, sources, table, whole_log};
use squall_locality::lines::{Phase, Sharing};
use squall_locality::report::{page, report, table as text};
use squall_locality::run::Outcome;
use squall_locality_plugin::format::{head, insn, record};

#[test]
fn sharing_is_recognised_with_many_instructions() {
    // Each of three hundred instructions makes less than one per cent of the accesses.
    let places = |bytes| -> Vec<Access> {
        (0..300).map(|place| Access { pc: 0x1000 + place * 4, writes: 10, bytes, ..WRITES }).collect()
    };
    let same = look(&[&places(0xff), &places(0xff)], 64, Some(100));
    assert_eq!((same.lines[0].sharing, same.falsely_shared_accesses), (Sharing::True, 0));
    assert_eq!(same.lines[0].words.len(), 1);
    let apart = look(&[&places(0xff), &places(0xff00)], 64, Some(100));
    assert_eq!((apart.lines[0].sharing, apart.falsely_shared_accesses), (Sharing::False, 6_000));
    // Only some are listed, and the report says so.
    assert_eq!(same.lines[0].code.len() + same.lines[0].code_not_listed, 300);
    assert!(text(&same).contains("more places"));
}

#[test]
fn rare_accesses_are_initialisation() {
    let set_up = Access { pc: 0x2000, writes: 1, bytes: u64::MAX, ..WRITES };
    let (left, right) = (WRITES, Access { bytes: 0xff00, ..WRITES });
    let found = look(&[&[set_up, left, Access { pc: 0x1004, ..left }], &[right]], 64, Some(100));
    assert_eq!(found.lines[0].sharing, Sharing::False);
}

#[test]
fn a_crossing_access_is_one_access_to_a_line_of_128_bytes() {
    let begins = Access { line: 2, bytes: 0xf << 60, ..WRITES };
    let ends = Access { line: 3, bytes: 0xf, kind: insn::CROSSES, ..WRITES };
    let both: &[Access] = &[begins, ends];
    let wide = look(&[both, both], 128, Some(100));
    assert_eq!((wide.accesses, wide.write_shared_accesses, wide.lines.len()), (200, 200, 1));
    assert_eq!((wide.lines[0].writes, wide.lines[0].transfers_at_most), (200, 200));
    assert_eq!((wide.write_shared_accesses_per_op, wide.transfers_per_op_at_most), (Some(1.0), Some(1.0)));
    // The bytes of both halves are known.
    assert_eq!(wide.lines[0].words.iter().map(|word| word.offset).collect::<Vec<_>>(), [56, 64]);
    let narrow = look(&[both, both], 64, Some(100));
    assert_eq!((narrow.accesses, narrow.lines.len()), (400, 2));
    // An access across two lines of 128 bytes counts once in each.
    let out = [Access { line: 3, ..begins }, Access { line: 4, ..ends }];
    let next = look(&[&out, &out], 128, Some(100));
    assert_eq!((next.accesses, next.lines.len()), (400, 2));
}

#[test]
fn a_lock_is_recognised_by_its_accesses() {
    let taken = Access { kind: insn::EXCHANGE, bytes: 0xf, ..WRITES };
    let given = Access { pc: 0x1004, kind: insn::PLAIN, ..taken };
    let lock: &[Access] = &[taken, given];
    assert_eq!(look(&[lock, lock], 64, Some(100)).lines[0].content, "lock");
    // Counters by compare-and-exchange and by addition.
    assert_eq!(look(&[&[taken], &[taken]], 64, Some(100)).lines[0].content, "atomic");
    let added = Access { kind: insn::ATOMIC, ..taken };
    assert_eq!(look(&[&[added, given], &[added, given]], 64, Some(100)).lines[0].content, "atomic");
    // A word that one thread resets; a word that a single thread acquires and releases; stores to
    // neighbouring bytes.
    assert_eq!(look(&[lock, &[taken]], 64, Some(100)).lines[0].content, "atomic");
    let data = Access { bytes: 0xf0, ..given };
    assert_eq!(look(&[&[taken, data], &[taken, data]], 64, Some(100)).lines[0].content, "atomic");
    assert_eq!(look(&[&[WRITES], &[WRITES]], 64, Some(100)).lines[0].content, "data");
    // Threads slept on the word.
    let files = vec![
        log(1, &[(record::FUTEX, &0x40u64.to_le_bytes())]),
        table(1, 0, &[taken]),
        table(1, 1, &[taken]),
    ];
    assert_eq!(report(&sources(files), &request(64, Some(100))).lines[0].content, "lock");
}

#[test]
fn accesses_without_bytes_are_unknown() {
    let nowhere = Access { bytes: 0, ..WRITES };
    assert_eq!(look(&[&[nowhere], &[nowhere]], 64, Some(100)).lines[0].content, "unknown");
}

#[test]
fn without_operations_the_figures_ignore_the_clock() {
    let counts = |first: (u32, u32), second: (u32, u32)| {
        let tables: [&[Access]; 2] =
            [&[Access { epochs: first, ..WRITES }], &[Access { epochs: second, ..WRITES }]];
        look(&tables, 64, None)
    };
    let (meet, part) = (counts((1, 90), (5, 80)), counts((1, 9), (50, 90)));
    assert_eq!((meet.lines[0].phase, part.lines[0].phase), (Phase::AtOnce, Phase::HandedOver));
    for found in [&meet, &part] {
        assert_eq!((found.write_shared_accesses, found.write_shared_lines), (200, 1));
        assert_eq!((found.falsely_shared_accesses, found.transfers_at_most), (0, 200));
        assert!(!found.steady && found.phases.steady == 0 && found.write_shared_accesses_per_op.is_none());
        assert!(!text(found).contains("steadily") && text(found).contains("accesses to write-shared lines"));
    }
    // With known operations the clock is ignored, and the counts decide whether a line is steady.
    let tables: [&[Access]; 2] =
        [&[Access { epochs: (1, 9), ..WRITES }], &[Access { epochs: (50, 90), ..WRITES }]];
    let found = look(&tables, 64, Some(100));
    assert_eq!((found.lines[0].phase, found.write_shared_accesses_per_op), (Phase::Steady, Some(1.0)));
    assert!(found.steady && text(&found).contains("steadily write-shared accesses"));
}

#[test]
fn the_table_and_the_page_have_the_same_figures() {
    for ops in [None, Some(100)] {
        let found = look(&[&[WRITES], &[WRITES]], 64, ops);
        let (table, page) = (text(&found), page(&found));
        let figures = table.lines().skip(3).take_while(|line| !line.is_empty());
        for figure in figures {
            let name = figure.trim().split("  ").next().expect("a name");
            assert!(page.contains(&format!(">{name}</td>")), "{name:?} is not on the page");
        }
        assert!(page.contains(table.lines().nth(1).expect("what was counted")));
    }
}

#[test]
fn interrupted_counts_are_incomplete() {
    let whole = look(&[&[WRITES], &[WRITES]], 64, Some(100));
    assert_eq!((&whole.incomplete, whole.write_shared_of_all_processes()), (&Vec::new(), Some(1.0)));
    let tables = || vec![table(1, 0, &[WRITES]), table(1, 1, &[WRITES])];
    let of = |files: Vec<Vec<u8>>, outcome: Outcome| {
        let mut request = request(64, Some(100));
        request.outcome = outcome;
        report(&sources(files), &request)
    };
    let why = |files: Vec<Vec<u8>>, outcome| of(files, outcome).incomplete.join("; ");
    let logged = |log| [vec![log], tables()].concat();
    assert!(why(logged(whole_log(1)), Outcome::TimedOut).contains("did not end in time"));
    assert!(why(logged(whole_log(1)), Outcome::Signal(6)).contains("died of signal 6"));
    let became = log(1, &[(record::EXEC, b"\0\0\0\0\0\0\0\0/bin/sh")]);
    assert!(why(logged(became), Outcome::Exited(0)).contains("became /bin/sh"));
    let mut sampled = logged(whole_log(1));
    set(&mut sampled[1], head::SAMPLE, 1);
    assert!(why(sampled, Outcome::Exited(0)).contains("one in 2 was kept"));
    let mut lost = logged(whole_log(1));
    set(&mut lost[1], head::LOST, 5);
    assert!(why(lost, Outcome::Exited(0)).contains("5 accesses of process 1 found no room"));
    let mut orphan = logged(whole_log(1));
    orphan.push(log(7, &[]));
    assert!(why(orphan, Outcome::Exited(0)).contains("child process 7 did not exit"));
}

#[test]
fn a_limit_covers_all_processes() {
    let mut files = vec![whole_log(1), table(1, 0, &[Access { line: 8, ..WRITES }])];
    files.extend([whole_log(7), table(7, 0, &[WRITES]), table(7, 1, &[WRITES])]);
    let found = report(&sources(files), &request(64, Some(100)));
    // The started process shares no line; its child does.
    assert_eq!((found.pid, found.write_shared_accesses), (1, 0));
    assert!(found.incomplete.is_empty());
    let all = found.write_shared_of_all_processes().expect("threads worked");
    assert!((all - 2.0 / 3.0).abs() < 1e-9, "{all}");
    assert_eq!(
        report(&sources(vec![whole_log(1)]), &request(64, Some(100))).write_shared_of_all_processes(),
        None
    );
}

#[test]
fn sums_over_a_sample_are_scaled_and_called_estimates() {
    let line = (0..64).find(|line| squall_locality_plugin::format::is_sampled(*line, 1)).expect("one in two");
    let mut files = vec![whole_log(1)];
    for number in 0..2 {
        files.push(table(1, number, &[Access { line, ..WRITES }]));
        set(files.last_mut().expect("a table"), head::SAMPLE, 1);
    }
    let found = report(&sources(files), &request(64, Some(100)));
    assert_eq!((found.one_line_in, found.write_shared_accesses, found.transfers_at_most), (2, 400, 400));
    assert_eq!((found.lines[0].writes, found.lines[0].write_shared), (200, 200));
    for said in [text(&found), page(&found)] {
        assert!(said.contains("ESTIMATES"), "{said}");
    }
    // Both halves of a line of 128 bytes are kept or dropped together.
    for line in 0..1_000u64 {
        let kept = |line| squall_locality_plugin::format::is_sampled(line, 1);
        assert_eq!(kept(line * 2), kept(line * 2 + 1));
    }
}
