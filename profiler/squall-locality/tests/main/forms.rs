//! Formats of the report: the table, the page, and the keys of the JSON object.

use std::collections::BTreeSet;
use std::path::Path;

use crate::files::{Access, WRITES, log, look, request, set, sources, table, whole_log};
use serde_json::Value;
use squall_locality::objects::Object;
use squall_locality::report::{FORMAT, LineReport, Report, page, report, table as text};
use squall_locality::symbols::functions;
use squall_locality_plugin::format::{HEAD_BYTES, head, insn, record};

/// Paths of all keys in a value, such as `lines[].words[].role`.
fn keys(value: &Value, above: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                keys(value, &path, found);
                found.insert(path);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| keys(value, &format!("{above}[]"), found)),
        _ => {}
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A report with an element in every list: a block of another process, code with names, and an executed
/// program with this name.
fn full(became: &str) -> Report {
    const BASE: u64 = 1 << 32;
    let program = std::env::current_exe().expect("the path of this program");
    let own = functions(&program, "forms::full").expect("its symbols").first().expect("this").offset;
    let site = words(&[0, BASE + own + 1]);
    let first = log(1, &[(record::SITE, &site), (record::ALLOC, &words(&[1, 0, 0x40, 64]))]);
    let forked = words(&[0, (first.len() - HEAD_BYTES) as u64]);
    let mmap = [&words(&[0, 0, BASE, BASE, 0]), program.to_str().expect("UTF-8").as_bytes()].concat();
    let exec = [&[0; 8], became.as_bytes()].concat();
    let second = [(record::FORKED, &forked[..]), (record::MMAP, &mmap), (record::EXEC, &exec)];
    let in_second = |mut file: Vec<u8>| {
        set(&mut file, head::PROCESS, 1);
        file
    };
    let access = Access { pc: BASE + own, ..WRITES };
    let mut files = vec![first, in_second(log(2, &second))];
    files.extend((0..2).map(|number| in_second(table(2, number, &[access]))));
    let mut request = request(64, Some(100));
    request.pid = 2;
    report(&sources(files), &request)
}

/// Checks the documented keys of the JSON object. For a new key, add it here and to `docs/locality.md`. If a
/// key is removed or changes its meaning, increase `FORMAT`.
#[test]
fn the_keys_of_the_object_are_documented() {
    let report = full("/bin/false");
    let value = serde_json::to_value(&report).expect("an object");
    assert_eq!(value["format"].as_u64(), Some(u64::from(FORMAT)));
    let mut found = BTreeSet::new();
    keys(&value, "", &mut found);
    let wanted: BTreeSet<String> = KEYS.split_whitespace().map(str::to_owned).collect();
    assert_eq!(found, wanted);
    // Objects other than heap blocks.
    let path = || std::path::PathBuf::from("/file");
    for (object, wanted) in [
        (Object::Static { file: path(), names: vec!["NAME".into()] }, "file kind names"),
        (Object::Stack { tid: 1 }, "kind tid"),
        (Object::ThreadLocal { tid: 1 }, "kind tid"),
        (Object::File { path: path(), offset: 0 }, "kind offset path"),
        (Object::Anonymous { start: 0, bytes: 0 }, "bytes kind start"),
        (Object::Unknown, "kind"),
    ] {
        let mut found = BTreeSet::new();
        keys(&serde_json::to_value(&object).expect("an object"), "", &mut found);
        assert_eq!(found.into_iter().collect::<Vec<_>>().join(" "), wanted, "{object:?}");
    }
    // The manual describes each key. It is not part of the package.
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/locality.md");
    let Ok(manual) = std::fs::read_to_string(manual) else { return };
    for key in KEYS.split_whitespace().flat_map(|path| path.split('.')) {
        let key = key.trim_end_matches("[]");
        assert!(manual.contains(&format!("`{key}`")), "{key} is not in docs/locality.md");
    }
}

const KEYS: &str = "\
    accesses accesses_crossing accesses_lost accesses_per_op command curve curve[].ns_per_op \
    curve[].processors curve[].speed_up emulator falsely_shared_accesses \
    far_misses_per_op_by_model format incomplete lines near_misses_per_op_by_model \
    lines[].address lines[].code lines[].code[].address lines[].code[].frames \
    lines[].code[].frames[].file lines[].code[].frames[].function lines[].code[].frames[].line \
    lines[].code[].instruction lines[].code[].reads lines[].code[].threads lines[].code[].writes \
    lines[].code_not_listed lines[].content lines[].cost_ms_by_model lines[].falsely_shared \
    lines[].object lines[].object.blocks lines[].object.blocks[].address \
    lines[].object.blocks[].bytes lines[].object.blocks[].frames \
    lines[].object.blocks[].frames[].file lines[].object.blocks[].frames[].function \
    lines[].object.blocks[].frames[].line lines[].object.blocks[].process \
    lines[].object.blocks[].thread lines[].object.kind lines[].phase lines[].reads lines[].sharing \
    lines[].threads lines[].threads[].reads lines[].threads[].thread lines[].threads[].writes \
    lines[].transfers_at_most lines[].transfers_by_model lines[].upgrades_by_model lines[].words \
    lines[].words[].offset lines[].words[].role lines[].words[].touched_by \
    lines[].words[].written_by lines[].write_shared lines[].writes lines_not_listed lines_read_only \
    lines_touched losses losses.accesses losses.processes losses.records losses.threads model \
    model.atomic_ns model.cluster model.far_ns model.hit_ns model.line_bytes model.name \
    model.near_ns model.stores_together notes one_line_in ops_per_thread outcome outcome.exited \
    phases phases.at-once phases.handed-over phases.occasional phases.start-up phases.steady pid \
    processes processes[].accesses processes[].became processes[].parent processes[].pid \
    processes[].threads processes[].threads_working processes[].write_shared_accesses seconds steady \
    thread_list thread_list[].accesses thread_list[].ended thread_list[].name thread_list[].number \
    thread_list[].tid thread_list[].works threads transfers_at_most transfers_per_op_at_most window \
    write_shared_accesses write_shared_accesses_per_op write_shared_lines";

#[test]
fn names_of_the_program_cannot_control_a_terminal() {
    let mut report = full("/tmp/\u{1b}[2J\nnote: all is well");
    let LineReport { object: Object::Heap { blocks }, code, .. } = &mut report.lines[0] else {
        panic!("a block")
    };
    for frame in blocks
        .iter_mut()
        .flat_map(|block| &mut block.frames)
        .chain(code.iter_mut().flat_map(|code| &mut code.frames))
    {
        frame.function = "f\u{1b}]0;title\u{7}\r".to_owned();
        frame.file = Some("/a\u{9b}31m\nb.rs".to_owned());
    }
    let said = text(&report);
    let active: Vec<char> = said.chars().filter(|letter| letter.is_control() && *letter != '\n').collect();
    assert_eq!(active, [], "{said:?}");
    assert!(
        !said.lines().any(|line| line.starts_with("note: all is well") || line.starts_with("b.rs")),
        "{said}"
    );
    assert!(
        said.contains("became /tmp/\\u{1b}[2J\\u{a}note") && said.contains("\\u{1b}]0;title\\u{7}"),
        "{said}"
    );
    // The texts printed beside the report are escaped as well.
    assert!(report.incomplete.iter().all(|why| !why.contains('\u{1b}')), "{:?}", report.incomplete);
}

#[test]
fn heat_map_cells_have_position_and_shade() {
    let both: [&[Access]; 2] = [
        &[WRITES, Access { line: 2, writes: 10, ..WRITES }],
        &[Access { reads: 5_000, writes: 0, ..WRITES }, Access { line: 2, writes: 10, ..WRITES }],
    ];
    let found = look(&both, 64, None);
    let addresses: Vec<&str> = found.lines.iter().map(|line| line.address.as_str()).collect();
    assert_eq!(addresses, ["0x40", "0x80"]);
    let page = page(&found);
    let cell = |x, y, hue, light, said| {
        let cell = format!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"13\" height=\"13\" fill=\"hsl({hue} 70% {light}%)\"><title>{said}</title></rect>"
        );
        assert!(page.contains(&cell), "{cell} is not in {page}");
    };
    // Red means writes; each power of ten is nine per cent darker.
    cell(120, 20, 5, 70, "thread 0: 0 reads, 100 writes");
    cell(134, 20, 215, 61, "thread 1: 5000 reads, 0 writes");
    cell(120, 34, 5, 79, "thread 0: 0 reads, 10 writes");
    cell(134, 34, 5, 79, "thread 1: 0 reads, 10 writes");
    assert_eq!(page.matches("<title>thread ").count(), 4);
}

#[test]
fn curve_points_have_their_position() {
    // Both axes are logarithmic: 428 pixels up to 256 processors, 268 pixels from a quarter to 256.
    let perfect = "46.0,260.4 99.5,233.6 474.0,46.0";
    let own: [&[Access]; 2] = [&[WRITES], &[Access { line: 2, ..WRITES }]];
    let (alone, shared) = (look(&own, 64, Some(100)), look(&[&[WRITES], &[WRITES]], 64, Some(100)));
    let drawn = |found: &Report, class: &str| {
        let page = page(found);
        let after = page.split_once(&format!("<polyline class=\"{class}\" points=\"")).expect("a curve").1;
        after.split('"').next().unwrap_or_default().to_owned()
    };
    // Without sharing the curve is perfect.
    assert_eq!(alone.curve.iter().map(|it| it.speed_up).collect::<Vec<_>>(), [1.0, 2.0, 256.0]);
    assert_eq!((drawn(&alone, "perfect").as_str(), drawn(&alone, "curve").as_str()), (perfect, perfect));
    // With sharing it is lower, as the model computes.
    let speed_ups: Vec<f64> = shared.curve.iter().map(|it| it.speed_up).collect();
    assert!(speed_ups[2] < speed_ups[1] && speed_ups[1] < 1.0, "{speed_ups:?}");
    let low = speed_ups[2].log2().floor();
    let at = |x: f64, speed_up: f64| {
        format!("{x:.1},{:.1}", 314.0 - (speed_up.log2() - low) / (8.0 - low) * 268.0)
    };
    let wanted = [at(46.0, speed_ups[0]), at(99.5, speed_ups[1]), at(474.0, speed_ups[2])].join(" ");
    assert_eq!(drawn(&shared, "curve"), wanted);
}

#[test]
fn accesses_across_lines_are_counted_separately() {
    let begins = Access { line: 2, bytes: 0xf << 60, ..WRITES };
    let ends = Access { line: 3, bytes: 0xf, kind: insn::CROSSES, ..WRITES };
    let both: &[Access] = &[begins, ends];
    let narrow = look(&[both, both], 64, Some(100));
    assert_eq!((narrow.accesses, narrow.accesses_crossing), (400, 200));
    // In a line of 128 bytes the access does not cross.
    let wide = look(&[both, both], 128, Some(100));
    assert_eq!((wide.accesses, wide.accesses_crossing), (200, 0));
}

#[test]
fn rows_belong_to_their_entries() {
    let access =
        |reads, writes, bytes, epochs| Access { reads, writes, bytes, epochs, kind: insn::ATOMIC, ..WRITES };
    let whole = [access(7, 1_010, 0xff, (2, 9)), Access { line: 2, ..access(0, 3, 1, (4, 4)) }];
    // Rows: two for the first line, one for a line without another entry, and an empty one.
    let parts = [
        access(3, 4, 0x0f, (5, 8)),
        whole[1],
        access(0, 6, 0xf0, (9, 9)),
        access(0, 0, 0, (0, 0)),
        access(4, 1_000, 0x3c, (2, 5)),
    ];
    let other: &[Access] = &[access(1, 1_000, 0xff, (1, 9)), Access { line: 2, ..access(0, 3, 1, (4, 4)) }];
    let found = |first: &[Access], rows: u32| {
        let mut counted = table(1, 0, first);
        set(&mut counted, head::ROWS, rows);
        let files = vec![whole_log(1), counted, table(1, 1, other)];
        serde_json::to_value(report(&sources(files), &request(64, None))).expect("an object")
    };
    assert_eq!(found(&parts, 4), found(&whole, 0));
    assert_ne!(found(&parts, 0), found(&whole, 0), "the rows matter");
}
