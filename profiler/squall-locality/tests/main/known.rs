//! Profiles programs with known sharing. If there is no emulator, the tests print SKIP and pass.

use std::process::Command;
use std::time::Duration;

use squall_locality::Window;
use squall_locality::lines::Sharing;
use squall_locality::objects::Object;
use squall_locality::report::{LineReport, Report};
use squall_locality::run::{Outcome, run};

use crate::common::{built, emulator, look, options, skip};

/// Maximum number of lines in a report.
const LINES: usize = 10;

/// Profiles the program `name` of the example `known` and returns its figures per operation.
fn count(name: &str, threads: u32, ops: u64) -> Option<(Report, f64, f64)> {
    let options = options("known", &[name, &threads.to_string(), &ops.to_string()])?;
    let report = look(&options, Some(ops), LINES);
    assert_eq!(report.outcome, Outcome::Exited(0));
    assert_eq!(report.threads, threads as usize, "{name}");
    let shared = report.write_shared_accesses_per_op.expect("operations are given");
    let transfers = report.transfers_per_op_at_most.expect("operations are given");
    Some((report, shared, transfers))
}

/// Whether two figures are equal as printed.
fn is(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() < 0.000_05
}

#[test]
fn known_shared_one_access_of_each_operation_at_any_number_of_threads() {
    for threads in [2, 8, 64] {
        let Some((report, shared, transfers)) = count("shared", threads, 300) else { return };
        assert!(is(shared, 1.0) && is(transfers, 1.0), "{shared} {transfers}");
        assert_eq!((report.lines.len(), report.lines[0].sharing), (1, Sharing::True));
        assert_eq!(report.lines[0].content, "atomic");
        let Object::Static { names, .. } = &report.lines[0].object else {
            panic!("{:?}", report.lines[0].object)
        };
        assert!(names.iter().any(|name| name.contains("SHARED")), "{names:?}");
    }
}

#[test]
fn known_padded_nothing() {
    let Some((report, shared, transfers)) = count("padded", 8, 300) else { return };
    assert!(is(shared, 0.0) && is(transfers, 0.0), "{shared} {transfers}");
    assert_eq!(report.write_shared_lines, 0);
}

#[test]
fn known_unpadded_false_sharing_of_a_block_and_who_asked_for_it() {
    let Some((report, shared, _)) = count("unpadded", 8, 300) else { return };
    assert!(is(shared, 1.0), "{shared}");
    assert_eq!(report.falsely_shared_accesses, report.write_shared_accesses);
    assert_eq!(report.lines.len(), 4);
    for line in &report.lines {
        assert_eq!((line.sharing, line.threads.len(), line.words.len()), (Sharing::False, 2, 2));
        let Object::Heap { blocks } = &line.object else { panic!("{:?}", line.object) };
        let asked = blocks[0].allocated_at().expect("a frame");
        assert!(
            asked.file.as_deref().is_some_and(|file| file.ends_with("known.rs")),
            "{:?}",
            blocks[0].frames
        );
        assert!(line.code.iter().any(|code| code.frames.iter().any(|frame| frame.line.is_some())));
    }
}

#[test]
fn known_two_fields_of_one_struct_are_false_sharing_of_reader_and_writer() {
    let Some((report, shared, transfers)) = count("fields", 2, 300) else { return };
    // Each thread accesses its own field once; only the reader can miss because of the other thread.
    assert!(is(shared, 1.0) && is(transfers, 0.5), "{shared} {transfers}");
    assert_eq!((report.lines.len(), report.lines[0].sharing), (1, Sharing::False));
}

#[test]
fn known_a_reader_writer_locks_word_is_written_twice_by_a_reader() {
    let mut figures = Vec::new();
    for threads in [2, 4] {
        let Some((report, shared, transfers)) = count("rwlock", threads, 300) else { return };
        assert_eq!(report.write_shared_lines, 1);
        // The lock's word and its poison flag.
        let roles: Vec<_> = report.lines[0].words.iter().map(|word| word.role).collect();
        assert_eq!(roles, ["lock", "data"]);
        // A reader writes the word twice. Further reads depend on the standard library.
        let writes: u64 = report.lines[0].threads.iter().map(|touch| touch.writes).sum();
        assert_eq!(writes, 2 * 300 * u64::from(threads));
        assert!(is(shared, shared.round()) && shared >= 3.0, "{shared}");
        // The bound is the smaller of the line's accesses and the writes by others.
        let most = shared.min(2.0 * f64::from(threads - 1));
        assert!(is(transfers, most), "{transfers} {most}");
        // The guarded data is read by all threads and not written.
        assert!(report.lines_read_only > 0);
        figures.push(shared);
    }
    assert!(is(figures[0], figures[1]), "{figures:?}");
}

#[test]
fn known_a_queues_head_and_tail_and_slots_are_three_lines() {
    let Some((report, shared, _)) = count("queue", 2, 300) else { return };
    // Each thread reads both ends, writes its own end, and writes or reads a slot.
    assert!(is(shared, 4.0), "{shared}");
    assert_eq!((report.write_shared_lines, report.falsely_shared_accesses), (3, 0));
    let mut accesses: Vec<u64> = report.lines.iter().map(|line| line.reads + line.writes).collect();
    accesses.sort_unstable();
    assert_eq!(accesses, [600, 900, 900]);
    assert!(report.lines.iter().all(|line| line.content == "data"), "no instruction is atomic");
}

#[test]
fn known_a_mutex_around_a_map_is_a_lock_and_its_data() {
    let Some((report, first, _)) = count("mutex-map", 2, 200) else { return };
    assert!(report.lines.iter().any(|line| line.content.contains("lock")), "no lock among the lines");
    assert!(first > 4.0 && is(first, first.round()), "a whole number of accesses: {first}");
    // The figure does not depend on the number of threads.
    let Some((_, again, _)) = count("mutex-map", 3, 200) else { return };
    assert!(is(first, again), "{first} {again}");
}

#[test]
fn known_a_lock_is_recognised_by_accesses_not_by_name() {
    let content = |name| {
        let (report, ..) = count(name, 2, 200)?;
        let block = |line: &&LineReport| line.code.iter().any(|code| code.instruction == "exchange");
        report.lines.iter().find(block).map(|line| line.content.clone())
    };
    let Some(spin) = content("spin") else { return };
    assert_eq!(spin, "lock");
    assert_eq!(content("clock").as_deref(), Some("atomic"));
}

#[test]
fn known_an_arcs_clone_writes_its_count_twice() {
    let Some((report, shared, _)) = count("arc", 4, 300) else { return };
    assert!(is(shared, 2.0), "{shared}");
    assert_eq!((report.write_shared_lines, report.lines[0].sharing), (1, Sharing::True));
}

#[test]
fn known_reporting_blocks_adds_no_counted_access() {
    let Some(mut options) = options("known", &["malloc", "2", "300"]) else { return };
    let mut figures = |preload| {
        options.preload = preload;
        let report = look(&options, Some(300), LINES);
        assert_eq!((&report.outcome, report.threads), (&Outcome::Exited(0), 2));
        assert_eq!(report.notes.iter().any(|note| note.contains("could not be preloaded")), !preload);
        let shared = (report.write_shared_accesses, report.write_shared_lines, report.transfers_at_most);
        (report.accesses, shared)
    };
    let (with, without) = (figures(true), figures(false));
    assert_eq!(with, without);
    assert_eq!(with.1, (0, 0, 0), "each thread has blocks of its own");
}

#[test]
fn the_same_numbers_on_every_run() {
    // Programs that never retry, in any order of their threads.
    for (name, threads) in [("unpadded", 4), ("rwlock", 3), ("queue", 2)] {
        let figures = |_| {
            count(name, threads, 300).map(|(report, ..)| {
                (
                    report.write_shared_accesses,
                    report.transfers_at_most,
                    report.falsely_shared_accesses,
                    report.write_shared_lines,
                )
            })
        };
        let runs: Vec<_> = (0..3).map(figures).collect();
        assert!(runs.iter().all(|run| *run == runs[0]), "{name}: {runs:?}");
    }
}

#[test]
fn a_program_that_dies_or_never_ends_is_reported() {
    let Some(mut options) = options("known", &["abort", "2", "100000"]) else { return };
    let report = look(&options, None, LINES);
    assert_eq!(report.outcome, Outcome::Signal(6));
    let shared = |report: &Report| {
        report
            .lines
            .iter()
            .any(|line| line.sharing == Sharing::True && line.content == "atomic" && line.writes >= 500)
    };
    assert!(shared(&report), "the counter is seen");
    options.arguments[0] = "forever".into();
    // A busy machine may need longer until the threads have met.
    let met = [2, 8, 32, 128].iter().any(|seconds| {
        options.timeout = Some(Duration::from_secs(*seconds));
        let report = look(&options, None, LINES);
        assert_eq!(report.outcome, Outcome::TimedOut);
        shared(&report)
    });
    assert!(met, "the counter is seen");
}

#[test]
fn a_function_can_be_the_window() {
    let Some(mut options) = options("known", &["shared", "2", "400"]) else { return };
    options.window = Window::Function("work".into());
    let report = look(&options, Some(400), LINES);
    assert_eq!(report.threads, 2);
    assert!(is(report.write_shared_accesses_per_op.expect("operations"), 1.0), "one for each operation");
    options.window = Window::Function("no_such_function".into());
    let refused = run(&options).expect_err("an error");
    assert!(refused.0.contains("no function no_such_function"), "{refused}");
}

#[test]
fn lines_are_sampled_above_the_limit() {
    let Some(mut options) = options("known", &["memory", "2", "20000"]) else { return };
    let whole = look(&options, None, LINES);
    assert_eq!((&whole.outcome, whole.one_line_in), (&Outcome::Exited(0), 1));
    options.entries_max = 4_096;
    let sampled = look(&options, None, LINES);
    assert!(sampled.one_line_in > 1);
    let (all, estimate) = (whole.lines_touched as f64, sampled.lines_touched as f64);
    assert!((0.5..2.0).contains(&(estimate / all)), "{estimate} of {all}");
    assert!(sampled.notes.iter().any(|note| note.contains("was kept")));
}

#[test]
fn threads_that_end_and_children_have_their_own_counts() {
    let Some(options) = options("known", &["many", "60", "50"]) else { return };
    let report = look(&options, None, LINES);
    assert!(report.thread_list.len() >= 60, "{}", report.thread_list.len());
    assert!(report.thread_list.iter().filter(|thread| thread.ended).count() >= 59);
    // Blocks and stacks of ended threads are reused by the next.
    assert!(report.phases.handed_over > 0);
}

#[test]
fn the_example_is_where_cargo_puts_it() {
    assert!(built("known").is_absolute());
}

#[test]
#[cfg_attr(
    squall_global_alloc,
    ignore = "only blocks of the C library's allocator are known, and the program uses another"
)]
fn false_sharing_in_crates_of_others_is_found_and_named() {
    if let Err(why) = emulator(None) {
        return skip("emulator", &why);
    }
    let output = Command::new(built("found")).output().expect("a run");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    // Line tables alone give function names without the type; full debug information adds generic arguments.
    for (what, functions, file) in [
        ("evmap: epochs of readers", ["::new at evmap-", "; new<u64"], "at evmap-"),
        ("thread_local: values", ["::allocate_bucket at ", "; allocate_bucket"], "at thread_local-"),
    ] {
        let line =
            said.lines().find(|line| line.starts_with(what)).unwrap_or_else(|| panic!("no {what} in {said}"));
        assert!(functions.iter().any(|function| line.contains(function)), "none of {functions:?} in {line}");
        assert!(line.contains(file), "no {file} in {line}");
    }
}

/// The order measured by experiment EX-K1: a lock, one word, neighbours on a line, each on its own line.
#[test]
fn ex_k1_the_model_puts_the_counters_in_the_order_of_the_founding_experiment() {
    let mut points = Vec::new();
    for name in ["mutex-map", "shared", "unpadded", "padded"] {
        let Some((report, ..)) = count(name, 8, 300) else { return };
        let [one, many] = report.curve[..] else { panic!("{:?}", report.curve) };
        assert_eq!((one.processors, many.processors), (1, 64));
        points.push((name, one, many));
    }
    let [mutex, shared, unpadded, padded] = &points[..] else { unreachable!("four") };
    // A lock costs at least as much as one word, because its data is shared as well.
    let at_64 = [mutex, shared, unpadded, padded].map(|(_, _, many)| many.ns_per_op);
    assert!(at_64[0] >= at_64[1] && at_64[1] > at_64[2] && at_64[2] > at_64[3], "{points:?}");
    // On one processor no line is shared, and the lock costs more than an addition.
    let alone = [shared, unpadded, padded].map(|(_, one, _)| one.ns_per_op);
    assert!(alone.iter().all(|ns| *ns < mutex.1.ns_per_op && *ns < 2.0 * alone[0]), "{points:?}");
    // A word shared by all gains nothing from more processors; unshared words gain from each.
    assert!(shared.2.speed_up < 1.0 && mutex.2.speed_up < 4.0 && padded.2.speed_up > 60.0, "{points:?}");
}
